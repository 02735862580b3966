//! A recent Linux that attaches what `zonal serve` exports on this machine: scripts for the machine of `scripts/guest.sh`.

use crate::program::served::Fronts;
use crate::program::{repository, zonal};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A device as a SCSI disk of virtual machines, at a socket; `device` may have options of `zonal serve` after its name.
///
/// # Panics
/// If the server says something else than that it is ready.
pub fn scsi_disk(directory: &Path, device: &str, socket: &Path) -> Fronts {
    let served = Fronts::start(directory, &format!("{device} --vhost-user-scsi {}", socket.display()), 1);
    assert_eq!(served.ready, [format!("ready vhost-user-scsi {}", socket.display())]);
    served
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
    /// The test's script of this name. `seconds` is the longest time that it has once it began.
    pub fn script(name: &str, seconds: u32) -> Guest {
        Guest::at(&scripts().join(name), seconds)
    }

    /// The same with a script from elsewhere.
    pub fn at(script: &Path, seconds: u32) -> Guest {
        let mut run = Command::new(repository().join("scripts/guest.sh"));
        run.arg("run").arg(script).args(["--time-out", &seconds.to_string()]);
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

    /// Memory of the guest, in MiB, which it shares with the servers of its SCSI disks.
    pub fn shared_memory(mut self, mib: u32) -> Guest {
        let memory =
            format!("-object memory-backend-memfd,id=shared,size={mib}M,share=on -numa node,memdev=shared");
        self.run.args(["--memory", &mib.to_string(), "--qemu", &memory]);
        self
    }

    /// The same and these disks.
    pub fn scsi_disks(self, mib: u32, sockets: &[&Path]) -> Guest {
        let sockets = sockets.iter().enumerate();
        sockets.fold(self.shared_memory(mib), |guest, (n, socket)| guest.scsi_disk(n, socket, "", ""))
    }

    /// A SCSI disk in shared memory, with more options of its socket and of its adapter.
    pub fn scsi_disk(mut self, number: usize, socket: &Path, of_socket: &str, of_adapter: &str) -> Guest {
        let path = socket.display();
        let disk = format!(
            "-chardev socket,id=disk{number},path={path}{of_socket} -device vhost-user-scsi-pci,chardev=disk{number}{of_adapter}"
        );
        self.run.args(["--qemu", &disk]);
        self
    }

    /// Memory of the guest, in MiB, which it shares with the server of this SCSI disk, to which QEMU connects again.
    pub fn reconnecting_disk(self, mib: u32, socket: &Path) -> Guest {
        self.shared_memory(mib).scsi_disk(0, socket, ",reconnect-ms=200", "")
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
