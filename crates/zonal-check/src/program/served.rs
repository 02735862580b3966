//! A running `zonal serve`.

use super::command;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a test waits for what a server has to do.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The first lines of a server, and what reads the rest: fewer lines if it ends before. `None` if they do not come within [`PATIENCE`].
fn first_lines(child: &mut Child, count: usize) -> Option<(Vec<String>, BufReader<ChildStdout>)> {
    let mut out = BufReader::new(child.stdout.take()?);
    let (sender, read) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = out.by_ref().lines().take(count).map_while(Result::ok).collect();
        let _ = sender.send((lines, out));
    });
    read.recv_timeout(PATIENCE).ok()
}

fn send(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(sent.unwrap().success(), "it has ended before");
}

fn ended(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A server with other fronts than NVMe/TCP, killed when it is dropped.
pub struct Fronts {
    /// The process.
    pub child: Child,
    /// Its lines, in the order of its output.
    pub ready: Vec<String>,
}

impl Fronts {
    /// `zonal serve` with `options` in `dir`, once it has said `lines` lines.
    ///
    /// # Panics
    /// If it says fewer, or does not within [`PATIENCE`].
    pub fn start(dir: &Path, options: &str, lines: usize) -> Fronts {
        Fronts::start_as(command(dir, &format!("serve {options}")), lines)
    }

    /// The same with a command of the caller's.
    ///
    /// # Panics
    /// As [`Fronts::start`].
    pub fn start_as(mut command: Command, lines: usize) -> Fronts {
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut fronts = Fronts { child, ready: Vec::new() };
        let said = first_lines(&mut fronts.child, lines);
        fronts.ready = said.map(|(ready, _)| ready).unwrap_or_default();
        assert_eq!(fronts.ready.len(), lines, "{command:?} is not ready: {:?}", fronts.ready);
        fronts
    }

    /// Asks it to end, and returns its exit code.
    ///
    /// # Panics
    /// If it has ended before, or does not end within [`PATIENCE`].
    pub fn terminate(mut self) -> Option<i32> {
        send(&self.child, "-TERM");
        ended(&mut self.child).code()
    }
}

impl Drop for Fronts {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running server, killed when it is dropped.
pub struct Served {
    /// The process.
    pub child: Child,
    out: BufReader<ChildStdout>,
    /// Where it listens.
    pub address: SocketAddr,
    /// The name of the subsystem.
    pub nqn: String,
    /// The namespaces, as its line says them.
    pub namespaces: String,
}

impl Served {
    /// `zonal serve` with `options` in `dir`, on a free port, once hosts can connect.
    ///
    /// # Panics
    /// If that does not come about within [`PATIENCE`].
    pub fn start(dir: &Path, options: &str) -> Served {
        Served::start_at(dir, options, 0)
    }

    /// The same on a port of 127.0.0.1; 0 is a free one.
    ///
    /// # Panics
    /// As [`Served::start`].
    pub fn start_at(dir: &Path, options: &str, port: u16) -> Served {
        let line = format!("serve {options} --listen 127.0.0.1:{port}");
        Served::start_as(command(dir, &line), options)
    }

    /// The same with a command of the caller's.
    ///
    /// # Panics
    /// As [`Served::start`].
    pub fn start_as(mut command: Command, options: &str) -> Served {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (line, out) = match first_lines(&mut child, 1) {
            Some((mut lines, out)) if !lines.is_empty() => (lines.remove(0), out),
            _ => {
                let _ = child.kill();
                let mut err = String::new();
                child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
                panic!("zonal serve {options} is not ready: {err}");
            }
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["ready", "nvme-tcp", address, nqn, namespaces] = words[..] else { panic!("{line:?}") };
        Served {
            child,
            out,
            address: address.parse().unwrap(),
            nqn: nqn.to_owned(),
            namespaces: namespaces.to_owned(),
        }
    }

    /// Sends a signal, such as `-TERM`.
    ///
    /// # Panics
    /// If the server has ended before.
    pub fn signal(&self, name: &str) {
        send(&self.child, name);
    }

    /// Asks it to end, and returns its exit code.
    ///
    /// # Panics
    /// If it has ended before, or does not end within [`PATIENCE`].
    pub fn terminate(self) -> Option<i32> {
        self.signal("-TERM");
        self.wait().0
    }

    /// Waits for its end. Returns its exit code, what else it said on standard output, and its standard error.
    ///
    /// # Panics
    /// If it has not ended within [`PATIENCE`].
    pub fn wait(mut self) -> (Option<i32>, String, String) {
        let status = ended(&mut self.child);
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (status.code(), out, err)
    }

    /// The served drive as a device.
    pub fn device(&self) -> String {
        format!("nvme-tcp://{}/{}", self.address, self.nqn)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
