//! The process of a mount is killed while programs write, or the power of its drive fails: data
//! acknowledged as durable is there after the next mount.
//!
//! `ZONAL_MOUNT_KILLS` sets the number of kills under each program, `ZONAL_MOUNT_SEED` the seed. A
//! seed determines the files and the moments, but not the progress of the kernel by then.
//!
//! For power cuts, the test's own process serves the mount, with an image in memory that forgets
//! unsynced data.

use super::power::Powered;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::fs::{IFlags, Mode, OFlags, fdatasync, fsync, ftruncate, ioctl_setflags, open};
use rustix::io::{ReadWriteFlags, pwrite, pwritev2};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use zonal_check::program::mounted::{MountPlace, bytes};
use zonal_fuse::probe;

/// Kills of the ordinary test under each of the four programs.
const KILLS: u64 = 6;

/// Threads that write files.
const WRITERS: u64 = 2;

/// Files of each thread.
const FILES: u64 = 6;

fn test_number(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().map_or(or, |text| text.parse().expect("it is a number"))
}

/// Ways in which a mount ends under a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// Its process is killed.
    Kill,
    /// The power of the drive fails.
    Cut,
}

impl End {
    /// Runs `work` while mounts end repeatedly; after each, `check` verifies the state.
    fn again_and_again<S: Send>(
        self,
        seed: u64,
        mut state: S,
        work: impl Fn(&Path, &mut S) + Sync,
        check: impl Fn(&Path, &mut S),
    ) {
        let mut random = Pcg64Mcg::seed_from_u64(test_number("ZONAL_MOUNT_SEED", 0) << 8 | seed);
        let rounds = test_number("ZONAL_MOUNT_KILLS", KILLS);
        match self {
            End::Kill => {
                let place = MountPlace::new("256M");
                for round in 0..rounds {
                    let mut mounted = place.mount(if round % 2 == 0 { "writeback" } else { "writethrough" });
                    let dir = place.dir();
                    check(&dir, &mut state);
                    std::thread::scope(|scope| {
                        let worker = scope.spawn(|| work(&dir, &mut state));
                        std::thread::sleep(moment(&mut random));
                        mounted.kill();
                        worker.join().unwrap();
                    });
                    place.check();
                }
                let mounted = place.mount("");
                check(&place.dir(), &mut state);
                mounted.end();
            }
            End::Cut => {
                let mut drive = Powered::new();
                for round in 0..rounds {
                    let mounted = drive.mount(round % 2 == 0);
                    let dir = mounted.dir.path();
                    check(dir, &mut state);
                    std::thread::scope(|scope| {
                        let worker = scope.spawn(|| work(dir, &mut state));
                        std::thread::sleep(moment(&mut random));
                        drive.cut(&mut random);
                        worker.join().unwrap();
                    });
                    drop(mounted);
                    drive.restart(&mut random);
                }
                check(drive.mount(true).dir.path(), &mut state);
            }
        }
    }
}

/// Writes `data` through a shared mapping, and syncs the mapping.
fn write_by_mapping(file: &File, data: &[u8]) -> rustix::io::Result<()> {
    ftruncate(file, data.len() as u64)?;
    // SAFETY: the mapping is private to this function, and the file keeps its length until the
    // mapping is gone.
    unsafe {
        let (length, protection) = (data.len(), ProtFlags::READ | ProtFlags::WRITE);
        let at = mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, file, 0)?;
        std::ptr::copy_nonoverlapping(data.as_ptr(), at.cast(), length);
        msync(at, length, MsyncFlags::SYNC)?;
        munmap(at, length)
    }
}

/// Each call that promises durability has made its bytes durable when it returns, on this kernel,
/// with and without the page cache.
///
/// `ZONAL_MOUNT_CALLS` sets the number of kills after each call.
#[test]
fn data_survives_a_kill_after_every_durability_call() {
    type Call = (&'static str, OFlags, fn(&File, &[u8]) -> rustix::io::Result<()>);
    fn written(file: &File, data: &[u8]) -> rustix::io::Result<()> {
        assert_eq!(pwrite(file, data, 0)?, data.len());
        Ok(())
    }
    fn with_flag(file: &File, data: &[u8], flag: ReadWriteFlags) -> rustix::io::Result<()> {
        assert_eq!(pwritev2(file, &[IoSlice::new(data)], 0, flag)?, data.len());
        Ok(())
    }
    let calls: [Call; 7] = [
        ("fsync", OFlags::empty(), |file, data| written(file, data).and_then(|()| fsync(file))),
        ("fdatasync", OFlags::empty(), |file, data| written(file, data).and_then(|()| fdatasync(file))),
        ("O_SYNC", OFlags::SYNC, written),
        ("O_DSYNC", OFlags::DSYNC, written),
        ("RWF_DSYNC", OFlags::empty(), |file, data| with_flag(file, data, ReadWriteFlags::DSYNC)),
        ("RWF_SYNC", OFlags::empty(), |file, data| with_flag(file, data, ReadWriteFlags::SYNC)),
        ("msync", OFlags::empty(), write_by_mapping),
    ];
    let synced: Call = ("write", OFlags::empty(), written);
    // With enough space for files to use the page cache.
    let place = MountPlace::new("4G");
    let keeps_single = probe::syncs_single_writes().unwrap();
    let mut number = 0;
    let mut is_kept = |options: &str, (_, flags, call): Call| {
        number += 1;
        let (mut mounted, data) = (place.mount(options), bytes(number, 100_000));
        // The file is renamed before the call, so the call must make the new name durable, too.
        let (made, path) = (place.dir().join("made"), place.dir().join(format!("f{number}")));
        let flags = OFlags::RDWR | OFlags::CREATE | flags;
        let file = File::from(open(&made, flags, Mode::RUSR | Mode::WUSR).unwrap());
        fs::rename(&made, &path).unwrap();
        call(&file, &data).unwrap();
        drop(file);
        mounted.kill();
        let mounted = place.mount(options);
        let is_there = fs::read(&path).is_ok_and(|found| found == data);
        mounted.end();
        is_there
    };
    for _ in 0..test_number("ZONAL_MOUNT_CALLS", 1) {
        for options in ["", "writeback", "writethrough"] {
            for call in calls {
                let is_single = call.0.starts_with("RWF");
                // The default follows the probe; write-back keeps this promise only if the kernel
                // does.
                let keeps = !(options == "writeback" && is_single) || keeps_single;
                assert_eq!(is_kept(options, call), keeps, "{} with {options:?}", call.0);
            }
        }
        assert!(is_kept("sync", synced), "a write with sync");
        assert!(!is_kept("writethrough,commit=3600", synced), "a write that asks for nothing");
    }
}

/// Opening a file for synchronous writes is refused, because no kernel passes the flag on.
#[test]
fn synchronous_flag_of_a_file_is_refused() {
    let place = MountPlace::new("64M");
    let mounted = place.mount("");
    let file = File::create(place.dir().join("f")).unwrap();
    assert!(ioctl_setflags(&file, IFlags::SYNC).is_err());
    drop(file);
    mounted.end();
}

/// Random time after which a mount ends.
fn moment(random: &mut Pcg64Mcg) -> Duration {
    Duration::from_millis(random.random_range(20..400))
}

/// Possible versions of a file: the last durable one, and any later one.
#[derive(Default, Clone, Copy)]
struct Written {
    durable: u64,
    last: u64,
}

fn contents(number: u64) -> Vec<u8> {
    bytes(number, (number * 7919 % 200_000) as usize)
}

/// Writes a temporary file, makes it durable, and renames it over the original, as editors and
/// databases do.
fn replace(dir: &Path, name: &str, number: u64) -> std::io::Result<()> {
    let beside = dir.join(format!("{name}.new"));
    let mut file = File::create(&beside)?;
    file.write_all(&contents(number))?;
    file.sync_all()?;
    fs::rename(&beside, dir.join(name))?;
    File::open(dir)?.sync_all()
}

#[test]
fn durably_replaced_files_survive_a_kill() {
    replaced_files(End::Kill);
}

#[test]
fn durably_replaced_files_survive_power_cuts() {
    replaced_files(End::Cut);
}

fn replaced_files(end: End) {
    let work = |dir: &Path, states: &mut Vec<BTreeMap<String, Written>>| {
        std::thread::scope(|scope| {
            for (writer, state) in states.iter_mut().enumerate() {
                scope.spawn(move || {
                    for n in 0.. {
                        let name = format!("w{writer}f{}", n % FILES);
                        let written = state.entry(name.clone()).or_default();
                        written.last += 1;
                        // The mount is gone.
                        if replace(dir, &name, written.last).is_err() {
                            return;
                        }
                        written.durable = written.last;
                    }
                });
            }
        });
    };
    let check = |dir: &Path, states: &mut Vec<BTreeMap<String, Written>>| {
        for (name, written) in states.iter_mut().flatten() {
            let found = match fs::read(dir.join(name)) {
                Ok(found) => found,
                Err(error) => {
                    assert_eq!(
                        (error.kind(), written.durable),
                        (std::io::ErrorKind::NotFound, 0),
                        "{name}: {error}"
                    );
                    continue;
                }
            };
            let number = (written.durable..=written.last).find(|number| contents(*number) == found);
            let number = number.unwrap_or_else(|| panic!("{name} has {} other bytes", found.len()));
            (written.durable, written.last) = (number, number);
        }
    };
    end.again_and_again(1, vec![BTreeMap::new(); WRITERS as usize], work, check);
}

/// Runs SQLite on a database with these statements, passes each output line to `line`, and returns
/// its error messages.
fn sqlite(database: &Path, statements: &str, mut line: impl FnMut(&str)) -> String {
    let mut child = Command::new("sqlite3")
        .arg("-batch")
        .arg(database)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("scripts/setup.sh installs sqlite3");
    let mut input = child.stdin.take().unwrap();
    let statements = statements.to_owned();
    let stderr = child.stderr.take().unwrap();
    let errors = std::thread::spawn(move || std::io::read_to_string(stderr).unwrap_or_default());
    let feeder = std::thread::spawn(move || drop(input.write_all(statements.as_bytes())));
    BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).for_each(|text| line(&text));
    feeder.join().unwrap();
    child.wait().unwrap();
    errors.join().unwrap()
}

/// Slow: it runs SQLite with two journals between kills.
#[test]
fn database_transactions_survive_kills() {
    transactions(End::Kill);
}

/// Slow: it runs SQLite with two journals between power cuts.
#[test]
fn database_transactions_survive_power_cuts() {
    transactions(End::Cut);
}

fn transactions(end: End) {
    for (seed, journal) in [(2, "wal"), (3, "delete")] {
        let work = move |dir: &Path, last: &mut u64| {
            // Levels below EXTRA do not make the removal of a journal durable, which is the commit.
            let mut statements = format!("PRAGMA journal_mode={journal}; PRAGMA synchronous=EXTRA;\n");
            statements += "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, x BLOB);\n";
            for _ in 0..3000 {
                // The drive must not become full: replaying a journal needs space, too.
                statements += "DELETE FROM t WHERE id < (SELECT max(id) FROM t) - 300;\n";
                statements += "INSERT INTO t(x) VALUES(randomblob(abs(random()) % 20000)); SELECT 'id', max(id) FROM t;\n";
            }
            // SQLite ignores a failure to open the directory for making a removal durable. So a
            // transaction counts only after the next one has completed: the mount was still there
            // after it.
            let mut told = *last;
            sqlite(&dir.join("db"), &statements, |line| {
                if let Some(id) = line.strip_prefix("id|") {
                    *last = std::mem::replace(&mut told, id.parse().unwrap());
                }
            });
        };
        let check = |dir: &Path, last: &mut u64| {
            let mut said = Vec::new();
            let statements = "PRAGMA integrity_check; SELECT ifnull(max(id), 0) FROM t;\n";
            let errors = sqlite(&dir.join("db"), statements, |line| said.push(line.to_owned()));
            if *last == 0 {
                return;
            }
            assert_eq!(said.len(), 2, "{said:?} {errors}");
            assert_eq!(said[0], "ok");
            assert!(said[1].parse::<u64>().unwrap() >= *last, "{said:?}, {last} was told");
        };
        end.again_and_again(seed, 0, work, check);
    }
}

/// Runs git in a directory, and returns its output if it succeeds.
fn git(dir: &Path, line: &str) -> Option<String> {
    let output = Command::new("git")
        .args(["-c", "user.name=zonal", "-c", "user.email=zonal@localhost", "-c", "core.fsync=all"])
        .args(["-c", "safe.directory=*", "-c", "gc.auto=0"])
        .args(line.split(' '))
        .current_dir(dir)
        .output();
    // The directory of a mount that is gone cannot be entered.
    let output = output.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[test]
fn git_commits_survive_a_kill() {
    commits(End::Kill);
}

#[test]
fn git_commits_survive_power_cuts() {
    commits(End::Cut);
}

fn commits(end: End) {
    assert!(git(Path::new("/"), "--version").is_some(), "scripts/setup.sh installs git");
    let work = |dir: &Path, heads: &mut Vec<String>| {
        let repository = dir.join("r");
        if fs::create_dir_all(&repository).is_err() {
            return;
        }
        if heads.is_empty() && git(&repository, "init -q").is_none() {
            return;
        }
        let _ = fs::remove_file(repository.join(".git/index.lock"));
        let _ = fs::remove_file(repository.join(".git/HEAD.lock"));
        for n in 0.. {
            if fs::write(repository.join(format!("f{}", n % 9)), contents(heads.len() as u64 * 50 + n))
                .is_err()
            {
                return;
            }
            let commit = git(&repository, "add -A").and_then(|_| git(&repository, "commit -q -m change"));
            let Some(head) = commit.and_then(|_| git(&repository, "rev-parse HEAD")) else { return };
            // git makes a reference durable, but not its name.
            if File::open(repository.join(".git/refs/heads")).and_then(|names| names.sync_all()).is_err() {
                return;
            }
            heads.push(head);
        }
    };
    let check = |dir: &Path, heads: &mut Vec<String>| {
        let Some(last) = heads.last() else { return };
        let repository = dir.join("r");
        assert!(git(&repository, "fsck --full --strict").is_some(), "the repository is damaged");
        let ancestor = format!("merge-base --is-ancestor {last} HEAD");
        assert!(git(&repository, &ancestor).is_some(), "{last} is gone");
    };
    end.again_and_again(4, Vec::new(), work, check);
}
