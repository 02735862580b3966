//! The two sides: `zonal serve` on this machine, and the guest that attaches what it serves.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use zonal_check::program::{command, repository, zonal};

/// Longest time for a server to say that it is ready, or to end.
const SERVER_TIME_MAX: Duration = Duration::from_secs(60);

/// A running `zonal serve`, killed when it is dropped.
pub struct Served {
    child: Child,
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    /// Name of the subsystem.
    pub nqn: String,
    /// The namespaces, as its line says them.
    pub namespaces: String,
}

impl Served {
    /// Serves a device, with options after its name, on a free port and in `directory`.
    pub fn start(directory: &Path, device: &str) -> Served {
        Served::start_at(directory, device, 0)
    }

    /// The same on a port; 0 is a free one.
    pub fn start_at(directory: &Path, device: &str, port: u16) -> Served {
        let (mut served, line) =
            Served::spawn(directory, &format!("serve {device} --listen 127.0.0.1:{port}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["ready", "nvme-tcp", address, nqn, namespaces] = words[..] else {
            panic!("zonal serve {device} says {line:?}");
        };
        let port = address.strip_prefix("127.0.0.1:").and_then(|port| port.parse().ok());
        served.port = port.unwrap_or_else(|| panic!("{device} is at {address}"));
        (served.nqn, served.namespaces) = (nqn.to_owned(), namespaces.to_owned());
        served
    }

    /// Serves a device as a SCSI disk of virtual machines, at a socket.
    pub fn start_scsi(directory: &Path, device: &str, socket: &Path) -> Served {
        let line = format!("serve {device} --vhost-user-scsi {}", socket.display());
        let (served, line) = Served::spawn(directory, &line);
        assert_eq!(line, format!("ready vhost-user-scsi {}\n", socket.display()));
        served
    }

    /// A server, and the line with which it is ready.
    fn spawn(directory: &Path, line: &str) -> (Served, String) {
        let mut child = command(directory, line).stdout(Stdio::piped()).spawn().expect("the program starts");
        let out = child.stdout.take().expect("it is a pipe");
        let (sender, ready) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(out).read_line(&mut line);
            let _ = sender.send(line);
        });
        let served = Served { child, port: 0, nqn: String::new(), namespaces: String::new() };
        let line = ready.recv_timeout(SERVER_TIME_MAX).expect("the server says that it is ready");
        (served, line)
    }

    /// Asks the server to end, and returns its exit code.
    pub fn terminate(mut self) -> Option<i32> {
        let signal = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(signal.expect("kill runs").success(), "the server has ended before");
        let deadline = Instant::now() + SERVER_TIME_MAX;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory for the guest, with what its scripts share.
pub fn share() -> TempDir {
    let share = tempfile::tempdir().expect("there is room");
    std::fs::copy(scripts().join("lib.sh"), share.path().join("lib.sh")).expect("it is there");
    share
}

/// The same, with the program.
pub fn share_with_program() -> TempDir {
    let share = share();
    std::fs::copy(zonal(), share.path().join("zonal")).expect("there is room");
    share
}

/// Where the guest's scripts are.
pub fn scripts() -> PathBuf {
    repository().join("crates/zonal-check/tests/guest")
}

/// A script for the guest.
pub struct Guest {
    run: Command,
}

impl Guest {
    /// The script of this name beside this file. `seconds` is the longest time that it has once it began.
    pub fn script(name: &str, seconds: u32) -> Guest {
        let mut run = Command::new(repository().join("scripts/guest.sh"));
        run.arg("run").arg(scripts().join(name)).args(["--time-out", &seconds.to_string()]);
        // Plain disks, with the files of their schedulers.
        run.args(["--cmdline", "nvme_core.multipath=N"]).stdin(Stdio::null());
        Guest { run }
    }

    /// A directory of this machine that is `/share` in the guest.
    pub fn share(mut self, directory: &Path) -> Guest {
        self.run.arg("--share").arg(directory);
        self
    }

    /// A variable for the script.
    pub fn set(mut self, name: &str, value: impl std::fmt::Display) -> Guest {
        self.run.args(["--env", &format!("{name}={value}")]);
        self
    }

    /// Memory of the guest, in MiB.
    pub fn memory(mut self, mib: u32) -> Guest {
        self.run.args(["--memory", &mib.to_string()]);
        self
    }

    /// Memory of the guest, in MiB, which it shares with the servers of these SCSI disks.
    pub fn scsi_disks(mut self, mib: u32, sockets: &[&Path]) -> Guest {
        let memory =
            format!("-object memory-backend-memfd,id=shared,size={mib}M,share=on -numa node,memdev=shared");
        self.run.args(["--memory", &mib.to_string(), "--qemu", &memory]);
        for (n, socket) in sockets.iter().enumerate() {
            let path = socket.display();
            let disk =
                format!("-chardev socket,id=disk{n},path={path} -device vhost-user-scsi-pci,chardev=disk{n}");
            self.run.args(["--qemu", &disk]);
        }
        self
    }

    /// Memory of the guest, in MiB, which it shares with the server of this SCSI disk, to which QEMU connects again.
    pub fn reconnecting_disk(self, mib: u32, socket: &Path) -> Guest {
        let mut guest = self.scsi_disks(mib, &[]);
        let path = socket.display();
        let disk = format!(
            "-chardev socket,id=disk,path={path},reconnect-ms=200 -device vhost-user-scsi-pci,chardev=disk"
        );
        guest.run.args(["--qemu", &disk]);
        guest
    }

    /// With QEMU of the guest's distribution in place of this machine's.
    pub fn newest_qemu(mut self) -> Guest {
        self.run.arg("--newest-qemu");
        self
    }

    /// One processor, whose clock counts instructions.
    pub fn icount(mut self) -> Guest {
        self.run.arg("--icount");
        self
    }

    /// A zoned drive of QEMU's own: its size, and options of its `nvme-ns` device.
    pub fn qemu_drive(mut self, spec: &str) -> Guest {
        self.run.args(["--zns", spec]);
        self
    }

    /// Runs the script and returns its lines.
    ///
    /// # Panics
    /// If it fails, or the guest is not there.
    pub fn lines(mut self) -> Vec<String> {
        let Output { status, stdout, stderr } = self.run.output().expect("the script runs");
        let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        eprint!("{err}");
        assert!(status.success(), "scripts/guest.sh: {status}\n{err}{out}");
        let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
        assert!(lines.first().is_some_and(|line| line.starts_with("guest: Linux ")), "{out}");
        eprintln!("{}", lines.remove(0));
        lines
    }
}
