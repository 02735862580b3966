//! `zonal serve` as a program: what it says, how it ends, and what it refuses. What hosts see of it is tested in zonal-nvme, and by
//! Linux in `tests/guest`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use zonal_check::program::{command, run};

const USAGE: i32 = 2;
const DEVICE: i32 = 4;
const UUID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server, killed when it is dropped.
struct Served {
    child: Child,
    out: BufReader<ChildStdout>,
    address: SocketAddr,
    nqn: String,
    namespaces: String,
}

impl Served {
    fn start(dir: &Path, options: &str) -> Served {
        let line = format!("serve {options} --listen 127.0.0.1:0");
        Served::start_as(command(dir, &line), options)
    }

    fn start_as(mut command: Command, options: &str) -> Served {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (sender, ready) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            let _ = out.read_line(&mut line);
            let _ = sender.send(line);
            out
        });
        let line = match ready.recv_timeout(PATIENCE) {
            Ok(line) if !line.is_empty() => line,
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
            out: reader.join().unwrap(),
            address: address.parse().unwrap(),
            nqn: nqn.to_owned(),
            namespaces: namespaces.to_owned(),
        }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success(), "it has ended before");
    }

    /// Waits for its end. Returns its exit code, what else it said on standard output, and its standard error.
    fn wait(mut self) -> (Option<i32>, String, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (status.code(), out, err)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory with an image `d` of both kinds of zones.
fn drive() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), &format!("create d --size 64M --zone-size 4M --zone-nr-conv 2 --uuid {UUID}")).done();
    dir
}

#[test]
fn serve_says_one_line_and_exits_with_0_when_asked_to_end() {
    let dir = drive();
    for signal in ["-TERM", "-INT"] {
        let served = Served::start(dir.path(), "d");
        assert_eq!(served.nqn, format!("nqn.2014-08.org.nvmexpress:uuid:{UUID}"));
        assert_eq!(served.namespaces, "nsid=1:zoned,nsid=2:conventional");
        assert!(served.address.ip().is_loopback() && served.address.port() > 0);
        // A host that says nothing keeps it from nothing.
        let silent = TcpStream::connect(served.address).unwrap();
        served.signal(signal);
        assert_eq!(served.wait(), (Some(0), String::new(), String::new()));
        drop(silent);
    }
}

#[test]
fn device_without_identity_is_given_one_or_takes_that_of_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), &format!("null:size=64M,zone_size=4M --uuid {UUID}"));
    assert_eq!(served.nqn, format!("nqn.2014-08.org.nvmexpress:uuid:{UUID}"));
    assert_eq!(served.namespaces, "nsid=1:zoned");
    served.signal("-TERM");
    assert_eq!(served.wait(), (Some(0), String::new(), String::new()));
    let nqns = [0, 1].map(|_| {
        let served = Served::start(dir.path(), "null:size=64M,zone_size=4M");
        let nqn = served.nqn.clone();
        let uuid = nqn.rsplit(':').next().unwrap().to_owned();
        served.signal("-TERM");
        let (code, _, err) = served.wait();
        assert_eq!(code, Some(0));
        assert!(err.contains(&format!("--uuid={uuid}")) && err.lines().count() == 1, "{err}");
        nqn
    });
    assert_ne!(nqns[0], nqns[1]);
    let served = Served::start(dir.path(), "null:size=64M,zone_size=4M --nqn nqn.2020-01.example:d");
    assert_eq!(served.nqn, "nqn.2020-01.example:d");
}

#[test]
fn what_cannot_be_served_is_refused_in_one_line() {
    let dir = drive();
    let refused = |line: &str, code| run(dir.path(), &format!("serve {line}")).refused(code);
    for address in ["0.0.0.0:0", "192.0.2.1:4420", "[::]:0"] {
        let said = refused(&format!("d --listen {address}"), USAGE);
        assert!(said.contains("not an address of the loopback interface"), "{said}");
    }
    let said = refused("sim:smr-hdd-30t --listen 127.0.0.1:0", DEVICE);
    assert!(said.contains("virtual time") && said.contains("timing:"), "{said}");
    let said = refused("absent --listen 127.0.0.1:0", DEVICE);
    assert!(said.contains("absent"), "{said}");
    let said = refused("d --listen 127.0.0.1:0 --nqn nonsense", USAGE);
    assert!(said.contains("nonsense"), "{said}");
    let served = Served::start(dir.path(), "d");
    let said = refused(&format!("null: --uuid {UUID} --listen {}", served.address), 1);
    assert!(said.contains(&served.address.to_string()), "{said}");
    let said = refused("d --listen 127.0.0.1:0", DEVICE);
    assert!(said.contains(&served.child.id().to_string()), "the image is in use: {said}");
}

#[test]
fn served_device_is_looked_into_by_other_commands() {
    let dir = drive();
    let served = Served::start(dir.path(), "d");
    for line in ["stat d --json", "plugs d", "info d", "mode d"] {
        let said = run(dir.path(), line);
        assert_eq!(said.code, Some(0), "{line}: {}", said.err);
    }
    let mode = String::from_utf8(run(dir.path(), "mode d --set direct").done()).unwrap();
    assert!(mode.contains("direct"), "{mode}");
    served.signal("-TERM");
    assert_eq!(served.wait().0, Some(0));
}

/// The same command, in a process that may have this number of descriptors.
fn with_descriptors(command: &Command, number: u32) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -n {number}; exec \"$0\" \"$@\"")]);
    limited.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.current_dir(command.get_current_dir().expect("a directory"));
    limited
}

/// Time that a process has run.
fn ran(process: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let ran = |task: std::io::Result<std::fs::DirEntry>| -> u64 {
        let stat = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        stat.split(' ').next().unwrap().parse().unwrap()
    };
    Duration::from_nanos(tasks.map(ran).sum())
}

/// A request for a connection, and what is granted: nothing where the server has closed it.
fn is_granted(mut stream: &TcpStream) -> bool {
    let mut request = [0; 128];
    (request[2], request[4]) = (128, 128);
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let _ = stream.write_all(&request);
    stream.read_exact(&mut [0; 128]).is_ok()
}

/// With 128 descriptors there is room for 64 connections, by the server's own bound. With 24 the kernel refuses some before that.
#[test]
fn more_connections_than_there_is_room_for_are_refused() {
    for (descriptors, most) in [(128, 64), (24, 16)] {
        let dir = tempfile::tempdir().unwrap();
        let line = format!("serve null:size=64M,zone_size=4M --uuid {UUID} --listen 127.0.0.1:0");
        let served = Served::start_as(with_descriptors(&command(dir.path(), &line), descriptors), "null:");
        let streams: Vec<_> = (0..100).map(|_| TcpStream::connect(served.address).unwrap()).collect();
        let granted: Vec<bool> = streams.iter().take(most + 10).map(is_granted).collect();
        let number = granted.iter().filter(|granted| **granted).count();
        assert!(number >= 8 && number <= most, "{number} of {granted:?}");
        let before = ran(served.child.id());
        std::thread::sleep(Duration::from_secs(1));
        let ran = ran(served.child.id()) - before;
        assert!(ran < Duration::from_millis(100), "{ran:?} of a second");
        drop(streams);
        let deadline = Instant::now() + PATIENCE;
        while !is_granted(&TcpStream::connect(served.address).unwrap()) {
            assert!(Instant::now() < deadline, "it takes no new ones");
        }
        served.signal("-TERM");
        assert_eq!(served.wait().0, Some(0));
    }
}
