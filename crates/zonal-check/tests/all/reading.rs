//! Tests of commands that only read: they change nothing, work on read-only and full file systems,
//! and run concurrently.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;
use tempfile::TempDir;
use zonal_check::program;
use zonal_io::device::OpenMode;
use zonal_io::image::{ImageDevice, OpenOptions};
use zonal_io::lock::lock;

/// Locations of the metadata: number of conventional zones, and option.
const PLACES: [(u32, &str); 3] = [(0, ""), (3, ""), (0, "--metadata m")];

/// Every command that only reads, on the drive `d` with the file `f`.
const READING: [&str; 10] = [
    "ls d -R",
    "get d f -",
    "stat d --json",
    "dump d",
    "dump d --rows",
    "dump d --zone 5 --data",
    "fsck d",
    "fsck d --data",
    "info d",
    "report d --count 1",
];

fn zonal(dir: &Path, line: &str) -> Vec<u8> {
    program::run(dir, line).done()
}

/// Runs a command on the file system with the option `metadata`.
fn on(dir: &Path, line: &str, metadata: &str) -> Vec<u8> {
    let needs_metadata = !line.starts_with("info") && !line.starts_with("report");
    zonal(dir, &format!("{line} {}", if needs_metadata { metadata } else { "" }))
}

fn random(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    bytes
}

/// Makes a drive `d` of 24 zones of 16 MiB in `dir`, with a file system and the file `f` of `length` bytes.
fn make(dir: &Path, (conventional, metadata): (u32, &str), length: usize) -> Vec<u8> {
    zonal(dir, &format!("create d --size 384M --zone-size 16M --zone-nr-conv {conventional}"));
    zonal(dir, &format!("mkfs d --label films {metadata}"));
    let data = random(length);
    fs::write(dir.join("in"), &data).unwrap();
    zonal(dir, &format!("put d in f {metadata}"));
    data
}

/// Content and modification time of the drive and the metadata file.
fn state(dir: &Path, metadata: &str) -> Vec<(Vec<u8>, SystemTime)> {
    let names = if metadata.is_empty() { &["d"][..] } else { &["d", "m"] };
    let state = |name: &&str| {
        let path = dir.join(name);
        (fs::read(&path).unwrap(), path.metadata().unwrap().modified().unwrap())
    };
    names.iter().map(state).collect()
}

/// Slow: it compares the whole image after each command.
#[test]
fn command_that_reads_changes_not_a_byte_nor_a_time() {
    for (conventional, metadata) in PLACES {
        let dir = tempfile::tempdir().unwrap();
        let data = make(dir.path(), (conventional, metadata), 3_000_000);
        // A killed writer leaves states that the next opener for writing repairs.
        let line = format!("put d - half {metadata}");
        let mut put = program::command(dir.path(), &line).stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut put.stdin.take().unwrap(), &random(20 << 20)).unwrap();
        put.kill().unwrap();
        put.wait().unwrap();
        let before = state(dir.path(), metadata);
        for line in READING {
            on(dir.path(), line, metadata);
            assert!(state(dir.path(), metadata) == before, "{line} {metadata}: the drive has changed");
        }
        zonal(dir.path(), &format!("get d f out {metadata}"));
        assert!(fs::read(dir.path().join("out")).unwrap() == data);
        assert!(state(dir.path(), metadata) == before, "get {metadata}: the drive has changed");
    }
}

#[test]
fn writer_is_refused_with_the_pid_of_the_current_reader() {
    for (conventional, metadata) in PLACES {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), (conventional, metadata), 40 << 20);
        let line = format!("get d f - {metadata}");
        let mut reader = program::command(dir.path(), &line).stdout(Stdio::piped()).spawn().unwrap();
        let mut pipe = reader.stdout.take().unwrap();
        // The command has started, and waits for the rest of its output to be read.
        pipe.read_exact(&mut [0; 1000]).unwrap();
        for line in READING {
            on(dir.path(), line, metadata);
        }
        let in_the_way = format!("in use for reading by process {} (`zonal get`)", reader.id());
        for line in ["put d in g", "rm d f", "fsck d --repair", "fsck d --rebuild", "mkfs d --force"] {
            let refused = program::run(dir.path(), &format!("{line} {metadata}")).refused(4);
            assert!(refused.ends_with(&in_the_way), "{line}: {refused}");
        }
        drop(pipe);
        reader.wait().unwrap();
        on(dir.path(), "rm d f", metadata);
    }
}

#[test]
fn reader_is_refused_with_the_pid_of_the_current_writer() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), (0, "--metadata m"), 1000);
    let own = std::process::id();
    let writer = ImageDevice::open(&dir.path().join("d"), &OpenOptions::default()).unwrap();
    for line in READING {
        let refused = program::run(dir.path(), line).refused(4);
        let in_the_way = format!("in use by process {own}");
        assert!(refused.ends_with(&in_the_way), "{line}: {refused}");
    }
    writer.close().unwrap();
    let file = File::open(dir.path().join("m")).unwrap();
    lock(&file, OpenMode::Writing).unwrap();
    for line in ["ls d --metadata m", "fsck d --metadata m"] {
        let refused = program::run(dir.path(), line).refused(4);
        assert!(refused.ends_with(&format!("m: in use by process {own}")), "{refused}");
    }
}

/// Mount that is removed on drop.
struct Mount(PathBuf);

impl Mount {
    /// Mounts at `place`. If that is not possible here, skips the test with the reason.
    fn new(arguments: &[&str], place: &Path) -> Option<Mount> {
        fs::create_dir_all(place).unwrap();
        let mounted = Command::new("mount").args(arguments).arg(place).output();
        match mounted {
            Ok(said) if said.status.success() => Some(Mount(place.to_owned())),
            said => {
                program::skip(&format!("nothing can be mounted here: {said:?}"));
                None
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Calls `look` with a read-only bind mount of the directory `real`.
fn read_only(dir: &TempDir, look: impl FnOnce(&Path)) {
    let (real, place) = (dir.path().join("real"), dir.path().join("read-only"));
    let bind = ["--bind", real.to_str().unwrap()];
    let Some(mount) = Mount::new(&bind, &place) else { return };
    let remounted = Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&place).status().unwrap();
    assert!(remounted.success());
    look(&mount.0);
}

#[test]
fn drive_on_a_read_only_mount_is_read_and_refuses_changes() {
    for (conventional, metadata) in PLACES {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        fs::create_dir(&real).unwrap();
        let data = make(&real, (conventional, metadata), 3_000_000);
        read_only(&dir, |place| {
            // Control sockets need a writable directory.
            let run = |line: &str| {
                let mut command = program::command(place, &format!("{line} {metadata}"));
                command.env("ZONAL_RUNTIME_DIR", dir.path()).output().unwrap()
            };
            for line in READING {
                assert!(on(place, line, metadata).len() < 4 << 20);
            }
            assert!(on(place, "get d f -", metadata) == data);
            for line in
                ["put d /dev/null g", "rm d f", "fsck d --repair", "mkfs d --force", "fsck d --rebuild"]
            {
                let said = run(line);
                let error = String::from_utf8(said.stderr).unwrap();
                assert!(!said.status.success(), "{line}: {error}");
                assert!(!error.contains("--rebuild"), "{line}: {error}");
                let is_told =
                    ["open for reading only", "may only be read", "Read-only file system", "nothing is lost"];
                assert!(is_told.iter().any(|why| error.contains(why)), "{line}: {error}");
            }
        });
        assert!(zonal(&real, &format!("get d f - {metadata}")) == data);
    }
}

/// Names in a directory, except `zonal`, which has the control sockets.
fn names(directory: &Path) -> Vec<String> {
    let names =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name != "zonal").collect();
    names.sort();
    names
}

#[test]
fn drive_on_a_full_disk_is_read_and_left_as_it_was() {
    for (conventional, metadata) in PLACES {
        let dir = tempfile::tempdir().unwrap();
        let Some(mount) = Mount::new(&["-t", "tmpfs", "-o", "size=24M", "tmpfs"], &dir.path().join("small"))
        else {
            return;
        };
        let place = &mount.0;
        let data = make(place, (conventional, metadata), 3_000_000);
        fs::write(place.join("out"), "old").unwrap();
        let ballast = place.join("ballast");
        let full = fs::write(&ballast, vec![0; 32 << 20]).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        let (before, names_before) = (state(place, metadata), names(place));
        for line in READING {
            on(place, line, metadata);
        }
        assert!(on(place, "get d f -", metadata) == data);
        let said = program::run(place, &format!("get d f out {metadata}")).refused(1);
        assert!(said.contains("out: ") && said.contains("No space left"), "{said}");
        assert_eq!(fs::read(place.join("out")).unwrap(), b"old");
        assert!(state(place, metadata) == before, "the drive has changed");
        assert_eq!(names(place), names_before);
        // A failed copy into the drive leaves no name. With free space again, nothing has changed.
        let said = program::run(place, &format!("put d in g {metadata}"));
        assert!(said.code != Some(0), "the host has room");
        fs::remove_file(&ballast).unwrap();
        let list = String::from_utf8(on(place, "ls d -R", metadata)).unwrap();
        assert!(list.lines().count() == 1 && list.ends_with(" f\n"), "{list}");
        assert_eq!(on(place, "fsck d --data", metadata), b"d: clean; all data was read\n");
        assert!(on(place, "get d f -", metadata) == data);
    }
}
