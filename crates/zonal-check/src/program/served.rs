//! A running `zonal serve`.

use super::command;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Longest time that a test waits for a server.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The first lines of a server's output, fewer if it exits earlier, and the reader of the rest.
/// `None` after [`PATIENCE`].
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

/// A server with fronts other than NVMe/TCP. It is killed when dropped.
pub struct Fronts {
    /// Process of the server.
    pub child: Child,
    /// Lines in the order of its output.
    pub ready: Vec<String>,
}

impl Fronts {
    /// Starts `zonal serve` with `options` in `dir`, and waits until it has printed `lines` lines.
    ///
    /// # Panics
    /// If it prints fewer, or not within [`PATIENCE`].
    pub fn start(dir: &Path, options: &str, lines: usize) -> Fronts {
        Fronts::start_as(command(dir, &format!("serve {options}")), lines)
    }

    /// Like [`Fronts::start`], with a command made by the caller.
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

    /// Sends SIGTERM, and returns the exit code.
    ///
    /// # Panics
    /// If it has exited before, or does not exit within [`PATIENCE`].
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

/// A running server. It is killed when dropped.
pub struct Served {
    /// Process of the server.
    pub child: Child,
    out: BufReader<ChildStdout>,
    /// Address on which it listens.
    pub address: SocketAddr,
    /// Name of the subsystem.
    pub nqn: String,
    /// Namespaces, as printed in the ready line.
    pub namespaces: String,
}

impl Served {
    /// Starts `zonal serve` with `options` in `dir`, on a free port, and waits until hosts can
    /// connect.
    ///
    /// # Panics
    /// If it is not ready within [`PATIENCE`].
    pub fn start(dir: &Path, options: &str) -> Served {
        Served::start_at(dir, options, 0)
    }

    /// Starts it on a port of 127.0.0.1; 0 selects a free one.
    ///
    /// # Panics
    /// As [`Served::start`].
    pub fn start_at(dir: &Path, options: &str, port: u16) -> Served {
        let line = format!("serve {options} --listen 127.0.0.1:{port}");
        Served::start_as(command(dir, &line), options)
    }

    /// Starts it with a command made by the caller.
    ///
    /// # Panics
    /// As [`Served::start`].
    pub fn start_as(mut command: Command, options: &str) -> Served {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (line, out) = match first_lines(&mut child, 2) {
            // The second line is the one to attach a host with.
            Some((mut lines, out)) if lines.len() == 2 => (lines.remove(0), out),
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
    /// If the server has exited before.
    pub fn signal(&self, name: &str) {
        send(&self.child, name);
    }

    /// Sends SIGTERM, and returns the exit code.
    ///
    /// # Panics
    /// If it has exited before, or does not exit within [`PATIENCE`].
    pub fn terminate(self) -> Option<i32> {
        self.signal("-TERM");
        self.wait().0
    }

    /// Waits for it to exit. Returns its exit code, the rest of its standard output, and its
    /// standard error.
    ///
    /// # Panics
    /// If it has not exited within [`PATIENCE`].
    pub fn wait(mut self) -> (Option<i32>, String, String) {
        let status = ended(&mut self.child);
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (status.code(), out, err)
    }

    /// Device name of the served drive.
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
