//! A recent Linux that attaches drives exported by `zonal serve` on this machine: runs scripts in
//! the virtual machine of `scripts/guest.sh`.

use crate::program::served::Fronts;
use crate::program::{repository, zonal};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Serves a device as a SCSI disk for virtual machines, at a socket. Options of `zonal serve` may
/// follow the name in `device`.
///
/// # Panics
/// If the server prints anything but its ready line.
pub fn scsi_disk(directory: &Path, device: &str, socket: &Path) -> Fronts {
    let served = Fronts::start(directory, &format!("{device} --vhost-user-scsi {}", socket.display()), 1);
    assert_eq!(served.ready, [format!("ready vhost-user-scsi {}", socket.display())]);
    served
}

/// Creates a directory to share with the guest, with the library of its scripts.
pub fn share() -> TempDir {
    let share = tempfile::tempdir().expect("there is room");
    std::fs::copy(scripts().join("lib.sh"), share.path().join("lib.sh")).expect("it is there");
    share
}

/// Like `share`, with the `zonal` program.
pub fn share_with_program() -> TempDir {
    let share = share();
    std::fs::copy(zonal(), share.path().join("zonal")).expect("there is room");
    share
}

/// Directory of the guest's scripts.
pub fn scripts() -> PathBuf {
    repository().join("crates/zonal-check/tests/guest")
}

/// A script to run in the guest.
pub struct Guest {
    run: Command,
}

impl Guest {
    /// The test's script of this name, with a limit on its run time.
    pub fn script(name: &str, seconds: u32) -> Guest {
        Guest::at(&scripts().join(name), seconds)
    }

    /// A script at any path, with a limit on its run time.
    pub fn at(script: &Path, seconds: u32) -> Guest {
        let mut run = Command::new(repository().join("scripts/guest.sh"));
        run.arg("run").arg(script).args(["--time-out", &seconds.to_string()]);
        // Without multipath the disks are plain ones and have their own scheduler files.
        run.args(["--cmdline", "nvme_core.multipath=N"]).stdin(Stdio::null());
        Guest { run }
    }

    /// Mounts a directory of this machine as `/share` in the guest.
    pub fn share(mut self, directory: &Path) -> Guest {
        self.run.arg("--share").arg(directory);
        self
    }

    /// Sets a variable for the script.
    pub fn set(mut self, name: &str, value: impl std::fmt::Display) -> Guest {
        self.run.args(["--env", &format!("{name}={value}")]);
        self
    }

    /// Sets the memory of the guest, in MiB.
    pub fn memory(mut self, mib: u32) -> Guest {
        self.run.args(["--memory", &mib.to_string()]);
        self
    }

    /// Sets the memory of the guest, in MiB, and shares it with the servers of its SCSI disks.
    pub fn shared_memory(mut self, mib: u32) -> Guest {
        let memory =
            format!("-object memory-backend-memfd,id=shared,size={mib}M,share=on -numa node,memdev=shared");
        self.run.args(["--memory", &mib.to_string(), "--qemu", &memory]);
        self
    }

    /// Like `shared_memory`, with these SCSI disks.
    pub fn scsi_disks(self, mib: u32, sockets: &[&Path]) -> Guest {
        let sockets = sockets.iter().enumerate();
        sockets.fold(self.shared_memory(mib), |guest, (n, socket)| guest.scsi_disk(n, socket, "", ""))
    }

    /// Adds a SCSI disk, which needs shared memory, with additional options for its socket and its
    /// adapter.
    pub fn scsi_disk(mut self, number: usize, socket: &Path, of_socket: &str, of_adapter: &str) -> Guest {
        let path = socket.display();
        let disk = format!(
            "-chardev socket,id=disk{number},path={path}{of_socket} -device vhost-user-scsi-pci,chardev=disk{number}{of_adapter}"
        );
        self.run.args(["--qemu", &disk]);
        self
    }

    /// Sets the shared memory of the guest, in MiB, and adds a SCSI disk to which QEMU reconnects.
    pub fn reconnecting_disk(self, mib: u32, socket: &Path) -> Guest {
        self.shared_memory(mib).scsi_disk(0, socket, ",reconnect-ms=200", "")
    }

    /// Uses the QEMU of the guest's distribution instead of this machine's.
    pub fn newest_qemu(mut self) -> Guest {
        self.run.arg("--newest-qemu");
        self
    }

    /// Runs on one processor with a clock that counts instructions.
    pub fn icount(mut self) -> Guest {
        self.run.arg("--icount");
        self
    }

    /// Adds a zoned drive emulated by QEMU: size, and options of the `nvme-ns` device.
    pub fn qemu_drive(mut self, spec: &str) -> Guest {
        self.run.args(["--zns", spec]);
        self
    }

    /// Runs a script that resets the machine.
    ///
    /// # Panics
    /// If the guest ends in another way.
    pub fn is_reset(mut self) {
        let Output { status, stdout, stderr } = self.run.output().expect("the script runs");
        let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        // The guest ended without a status.
        assert_eq!(status.code(), Some(125), "scripts/guest.sh: {status}\n{err}{out}");
    }

    /// Runs the script and returns its output lines.
    ///
    /// # Panics
    /// If it fails, or the guest is not installed.
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
