//! A directory mounted by a `zonal mount` process.

use crate::program;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use zonal_fuse::front::{self, Log};
use zonal_fuse::mount::{MountOptions, mount};
use zonal_fuse::session::SessionOptions;

/// Longest time for a mount to end.
const END_MAX: Duration = Duration::from_secs(30);

/// A drive with a file system, and the directory that it is mounted at.
pub struct MountPlace {
    home: TempDir,
}

impl MountPlace {
    /// Creates a drive of `size` in zones of 4 MiB, with a new file system.
    ///
    /// # Panics
    /// On any failure, as all functions here.
    pub fn new(size: &str) -> MountPlace {
        MountPlace::with_zones(size, "4M")
    }

    /// Creates a drive of `size` in zones of this size.
    ///
    /// # Panics
    /// As [`MountPlace::new`].
    pub fn with_zones(size: &str, zone: &str) -> MountPlace {
        MountPlace::made(MountPlace { home: tempfile::tempdir().unwrap() }, size, zone)
    }

    /// Like `with_zones`, with the drive in memory.
    ///
    /// # Panics
    /// As [`MountPlace::new`].
    pub fn in_memory(size: &str, zone: &str) -> MountPlace {
        MountPlace::made(MountPlace { home: tempfile::tempdir_in("/dev/shm").unwrap() }, size, zone)
    }

    fn made(place: MountPlace, size: &str, zone: &str) -> MountPlace {
        place.zonal(&format!("create --size {size} --zone-size {zone} d.img"));
        place.zonal("mkfs image:d.img");
        std::fs::create_dir(place.dir()).unwrap();
        place
    }

    /// Directory that holds the drive, the mounted directory and the control sockets.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Path of the mounted directory.
    pub fn dir(&self) -> PathBuf {
        self.home.path().join("m")
    }

    /// Runs a command that must succeed, and returns its output.
    ///
    /// # Panics
    /// If it fails, or writes to standard error.
    pub fn zonal(&self, line: &str) -> String {
        String::from_utf8(program::run(self.home.path(), line).done()).unwrap()
    }

    /// Mounts the drive with these options, which may be empty.
    ///
    /// # Panics
    /// If the mount does not become ready.
    pub fn mount(&self, options: &str) -> Mounted<'_> {
        self.mount_device("image:d.img", options)
    }

    /// Mounts `device` with these options.
    ///
    /// # Panics
    /// If the mount does not become ready.
    pub fn mount_device(&self, device: &str, options: &str) -> Mounted<'_> {
        self.mount_at(device, "m", options)
    }

    /// Mounts `device` at `dir`, relative to the home.
    ///
    /// # Panics
    /// If the mount does not become ready.
    pub fn mount_at(&self, device: &str, dir: &str, options: &str) -> Mounted<'_> {
        let options = if options.is_empty() { String::new() } else { format!("-o {options}") };
        let mut command = program::command(self.home.path(), &format!("mount {device} {dir} {options}"));
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let stderr = child.stderr.take();
        let mut mounted = Mounted { place: self, child, stderr };
        if line != format!("ready {}\n", self.home().join(dir).display()) {
            panic!("it is not ready: {line}{}", mounted.log());
        }
        mounted
    }

    /// Checks the file system and all of its data.
    ///
    /// # Panics
    /// If either is damaged.
    pub fn check(&self) {
        let said = program::run(self.home.path(), "fsck --data image:d.img");
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{}", String::from_utf8_lossy(&said.out));
    }
}

impl Drop for MountPlace {
    fn drop(&mut self) {
        // A failed test may have left it mounted, and then the home cannot be removed.
        let unmount =
            || Command::new("umount").args(["-q", "-l"]).arg(self.dir()).stderr(Stdio::null()).status();
        while unmount().is_ok_and(|status| status.success()) {}
    }
}

/// Mounts a file system at `dir`, to be served by this process.
///
/// # Panics
/// If the kernel has no FUSE.
pub fn mount_here(dir: &Path) -> OwnedFd {
    let how = MountOptions {
        source: "zonal-check".to_owned(),
        read_only: false,
        no_suid: true,
        no_dev: true,
        no_exec: false,
        allow_other: false,
    };
    mount(dir, &how).expect("FUSE is there")
}

/// Options for serving a mount in this process.
pub fn session_options(writeback: bool, log: Log) -> SessionOptions {
    let front = front::Options { writeback, ..front::Options::default() };
    SessionOptions { front, threads: 2, sync_every: Duration::from_secs(5), log }
}

/// A mount served by a child process of the test.
pub struct Mounted<'a> {
    place: &'a MountPlace,
    child: Child,
    stderr: Option<ChildStderr>,
}

impl Mounted<'_> {
    /// Path of `name` in the mounted directory.
    pub fn at(&self, name: &str) -> PathBuf {
        self.place.dir().join(name)
    }

    /// Id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory of the process, in bytes.
    ///
    /// # Panics
    /// If it has exited.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        line.and_then(|kib| kib.parse::<u64>().ok()).expect("it has memory") << 10
    }

    /// Waits for the process to exit.
    ///
    /// # Panics
    /// If that takes more than half a minute.
    pub fn wait(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begin.elapsed() < END_MAX, "the mount does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the process to exit, and returns its standard error.
    pub fn log(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.stderr.take() {
            let _ = self.child.wait();
            stderr.read_to_string(&mut text).unwrap();
        }
        text
    }

    /// Unmounts it, and checks the file system.
    ///
    /// # Panics
    /// If it fails, or the file system is damaged.
    pub fn end(mut self) {
        self.place.zonal("unmount m");
        assert!(self.wait().success());
        self.place.check();
    }

    /// Kills the process.
    ///
    /// # Panics
    /// If it has exited before.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes from which their position can be recognized.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let word = |n: u64| (seed << 40 | n).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    (0..length.div_ceil(8) as u64).flat_map(word).take(length).collect()
}

/// Opens a file with these flags.
///
/// # Panics
/// If it cannot be opened.
pub fn open(path: &Path, flags: rustix::fs::OFlags) -> File {
    use rustix::fs::{Mode, OFlags};
    let flags = flags | OFlags::CLOEXEC;
    File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)).unwrap())
}
