//! Rows that are not in memory: while one thread waits for the drive to read some, no other thread
//! waits.

use crate::common::{device, make_with, reopen, settle, superblock, volume, waiter};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;
use zonal_fs::format::{FileKind, Position};
use zonal_fs::store::backend::{Backend, Memory};
use zonal_fs::{
    Changes, FileSystem, IfThere, MountOptions, NewFile, Payload, ROOT, Rename, Seek, SetIds, SetXattr,
    Target, ZeroEnd,
};

/// Time limit of a call that does not have to wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// Directories, and files per directory: enough that a page of rows contains only neighbours.
const DIRECTORIES: u64 = 70;
const FILES: u64 = 200;

/// Controls which thread's read is held up.
#[derive(Default, Debug)]
enum Gate {
    #[default]
    Open,
    /// The next read of this thread is to be held up.
    Armed(ThreadId),
    /// A read is held up.
    Shut,
}

/// A backend in memory that can hold up one read.
#[derive(Clone, Default, Debug)]
struct Slow(Arc<(Mutex<Gate>, Condvar)>, Memory);

impl Slow {
    fn set(&self, gate: Gate) {
        *self.0.0.lock() = gate;
        self.0.1.notify_all();
    }

    /// Waits until a read is held up.
    fn await_shut(&self) -> bool {
        let mut gate = self.0.0.lock();
        let is_shut = |gate: &mut Gate| !matches!(gate, Gate::Shut);
        !self.0.1.wait_while_for(&mut gate, is_shut, PATIENCE).timed_out()
    }
}

impl Backend for Slow {
    fn len(&self) -> io::Result<u64> {
        self.1.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut gate = self.0.0.lock();
        if matches!(*gate, Gate::Armed(whose) if whose == thread::current().id()) {
            *gate = Gate::Shut;
            self.0.1.notify_all();
            self.0.1.wait_while(&mut gate, |gate| matches!(gate, Gate::Shut));
        }
        drop(gate);
        self.1.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.1.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.1.write(offset, data)
    }
}

fn name(what: &str, number: u64) -> Vec<u8> {
    // Long names, so that few share a page.
    format!("{what}{number:04}{}", "n".repeat(200)).into_bytes()
}

/// A file system with many files, reopened so that no row is in memory.
fn cold() -> (Slow, FileSystem) {
    let volume = volume(device("ram:size=96M,zone_size=1M,blocksize=4096"));
    let (superblock, slow) = (superblock(&volume, 0, 8), Slow::default());
    let fs = make_with(volume.clone(), superblock.clone(), slow.clone(), MountOptions::default());
    let w = waiter();
    for d in 0..DIRECTORIES {
        let directory =
            fs.create(&w, ROOT, &name("d", d), &NewFile::new(FileKind::Directory, 0o755)).unwrap();
        for n in 0..FILES {
            let file = fs.create(&w, directory, &name("f", n), &NewFile::new(FileKind::File, 0o644)).unwrap();
            fs.set_xattr(&w, file, b"user.much", &[7; 300]).unwrap();
            fs.write(&w, file, 0, Payload::Bytes(&[1; 4096])).unwrap();
        }
        let link = NewFile { target: vec![b't'; 300], ..NewFile::new(FileKind::Symlink, 0o777) };
        fs.create(&w, directory, b"link", &link).unwrap();
        fs.create(&w, directory, b"sub", &NewFile::new(FileKind::Directory, 0o755)).unwrap();
    }
    fs.sync(&w).unwrap();
    settle(&fs);
    drop(fs);
    (slow.clone(), reopen(volume, superblock, slow, MountOptions::default()).unwrap())
}

/// Numbers of directory `d` and of its file `n`. Its rows are far from those of other directories.
/// Nothing is read, because numbers follow from the order of creation.
fn place(d: u64, n: u64) -> (u64, u64) {
    let directory = 2 + d * (FILES + 3);
    (directory, directory + 1 + n)
}

/// Runs `call` in a thread with its first read of rows held up, and `others` meanwhile.
fn while_it_reads(
    slow: &Slow,
    fs: &FileSystem,
    what: &str,
    call: impl FnOnce(&FileSystem) + Send,
    others: impl Fn() + Sync,
) {
    thread::scope(|scope| {
        let caller = scope.spawn(|| {
            slow.set(Gate::Armed(thread::current().id()));
            call(fs);
        });
        assert!(slow.await_shut(), "{what} reads no row");
        let (told, heard) = std::sync::mpsc::channel();
        scope.spawn({
            let others = &others;
            move || {
                others();
                told.send(()).unwrap();
            }
        });
        let came = heard.recv_timeout(PATIENCE);
        slow.set(Gate::Open);
        assert!(came.is_ok(), "other threads wait while {what} reads");
        caller.join().unwrap();
    });
}

type Call = (&'static str, fn(&FileSystem, u64, u64));

#[test]
fn call_that_reads_cold_rows_holds_up_no_other() {
    let (slow, fs) = cold();
    let w = waiter();
    // Everything used by the others is in memory.
    let (own, own_file) = place(0, 0);
    let open = fs.open_file(own_file).unwrap();
    let others = || {
        let w = waiter();
        assert_eq!(fs.attributes(own_file).unwrap().size, 4096);
        assert_eq!(fs.lookup(own, &name("f", 0)).unwrap(), own_file);
        fs.write(&w, own_file, 0, Payload::Bytes(&[3; 4096])).unwrap();
        let ino = fs.create(&w, own, b"new", &NewFile::new(FileKind::File, 0o644)).unwrap();
        assert_eq!(fs.lookup(own, b"new").unwrap(), ino);
        fs.unlink(&w, own, b"new").unwrap();
        let mut found = vec![0; 4096];
        fs.read(&w, own_file, 0, Target::Bytes(&mut found)).unwrap();
        assert!(found == [3; 4096], "what was written is read");
    };
    others();
    fs.list(own, None, |_, _| ControlFlow::Continue(())).unwrap();
    others();
    let calls: [Call; 32] = [
        ("attributes", |fs, _, file| assert_eq!(fs.attributes(file).unwrap().size, 4096)),
        ("lookup", |fs, d, file| assert_eq!(fs.lookup(d, &name("f", 100)).unwrap(), file)),
        ("lookup of no file", |fs, d, _| assert!(fs.lookup(d, &name("g", 100)).is_err())),
        ("list", |fs, d, _| fs.list(d, None, |_, _| ControlFlow::Continue(())).unwrap()),
        ("list by position", |fs, d, _| {
            fs.list_from(d, Position::START, |_, _, _| ControlFlow::Continue(())).unwrap();
        }),
        ("xattr", |fs, _, file| assert_eq!(fs.xattr(file, b"user.much").unwrap(), [7; 300])),
        ("xattrs", |fs, _, file| assert_eq!(fs.xattrs(file).unwrap().len(), 1)),
        ("set_xattr", |fs, _, file| fs.set_xattr(&waiter(), file, b"user.more", b"1").unwrap()),
        ("remove_xattr", |fs, _, file| fs.remove_xattr(&waiter(), file, b"user.much").unwrap()),
        ("set_attributes", |fs, _, file| {
            fs.set_attributes(&waiter(), file, &Changes { mode: Some(0o600), ..Changes::default() }).unwrap();
        }),
        ("target", |fs, d, _| assert_eq!(fs.target(d + 1 + FILES).unwrap().len(), 300)),
        ("create", |fs, d, _| {
            fs.create(&waiter(), d, &name("f", 9999), &NewFile::new(FileKind::File, 0o644)).unwrap();
        }),
        ("link", |fs, d, file| fs.link(&waiter(), file, d, b"other").unwrap()),
        ("unlink", |fs, d, _| fs.unlink(&waiter(), d, &name("f", 100)).unwrap()),
        ("rmdir", |fs, d, _| fs.rmdir(&waiter(), d, b"sub").unwrap()),
        ("rename", |fs, d, _| {
            fs.rename(&waiter(), (d, &name("f", 100)), (d, &name("f", 2)), Rename::Replace).unwrap();
        }),
        ("rename of a directory", |fs, d, _| {
            fs.rename(&waiter(), (d, b"sub"), (d + 1 + FILES + 2, b"sub"), Rename::Replace).unwrap();
        }),
        ("open_file", |fs, _, file| fs.open_file(file).unwrap().close(&waiter()).unwrap()),
        ("read", |fs, _, file| {
            let mut found = vec![0; 4096];
            fs.read(&waiter(), file, 0, Target::Bytes(&mut found)).unwrap();
            assert!(found == [1; 4096], "what was written is read");
        }),
        ("write", |fs, _, file| {
            fs.write(&waiter(), file, 100, Payload::Bytes(&[2; 100])).unwrap();
            fs.sync(&waiter()).unwrap();
        }),
        ("truncate", |fs, _, file| fs.truncate(&waiter(), file, 100).unwrap()),
        ("punch", |fs, _, file| fs.punch(&waiter(), file, 0..4096).unwrap()),
        ("zero_range", |fs, _, file| {
            fs.zero_range(&waiter(), file, 100..5000, ZeroEnd::Extend, SetIds::Clear).unwrap();
        }),
        ("seek", |fs, _, file| assert_eq!(fs.seek(file, 0, Seek::Hole).unwrap(), 4096)),
        ("copy_range", |fs, _, file| {
            let copied = fs.copy_range(&waiter(), (file, 0), (file, 8192), 4096, SetIds::Clear);
            assert_eq!(copied.unwrap(), 4096);
        }),
        ("lookup_known", |fs, d, file| {
            assert_eq!(fs.lookup_known(d, &name("f", 100)).unwrap().ino, file);
            fs.forget(&waiter(), file, 1).unwrap();
        }),
        ("know", |fs, _, file| {
            assert_eq!(fs.know(file).unwrap().size, 4096);
            fs.forget(&waiter(), file, 1).unwrap();
        }),
        ("create_known", |fs, d, _| {
            let new = NewFile::new(FileKind::File, 0o644);
            let made = fs.create_known(&waiter(), d, &name("f", 9999), &new).unwrap();
            fs.forget(&waiter(), made.ino, 1).unwrap();
        }),
        ("open_or_create", |fs, d, file| {
            let (new, name) = (NewFile::new(FileKind::File, 0o644), name("f", 100));
            let opened = fs.open_or_create(&waiter(), (d, &name), &new, IfThere::Open).unwrap();
            assert_eq!((opened.file.ino(), opened.is_new), (file, false));
        }),
        ("link_over", |fs, d, file| fs.link_over(&waiter(), file, d, &name("f", 2)).unwrap()),
        ("set_xattr_if", |fs, _, file| {
            fs.set_xattr_if(&waiter(), file, (b"user.much", b"1"), SetXattr::Replace).unwrap();
        }),
        ("setattr of all", |fs, _, file| {
            let changes = Changes { size: Some(100), mode: Some(0o600), uid: Some(7), ..Changes::default() };
            fs.set_attributes(&waiter(), file, &changes).unwrap();
        }),
    ];
    for (d, (what, call)) in (2..).step_by(2).zip(calls) {
        let (directory, file) = place(d, 100);
        while_it_reads(&slow, &fs, what, |fs| call(fs, directory, file), others);
    }
    assert_eq!(fs.statistics().locked_reads, 0, "rows were read under the lock");
    open.close(&w).unwrap();
    fs.sync(&w).unwrap();
}

/// The collector lists a zone's pieces and looks up their owners without the lock.
#[test]
fn collector_that_reads_cold_rows_holds_up_no_other() {
    let (slow, fs) = cold();
    let (_, own_file) = place(0, 0);
    let open = fs.open_file(own_file).unwrap();
    let others = || assert_eq!(fs.attributes(own_file).unwrap().size, 4096);
    for round in 0..3 {
        let collect = |fs: &FileSystem| {
            fs.collect(&waiter()).unwrap();
        };
        if round == 0 {
            while_it_reads(&slow, &fs, "the collector", collect, others);
        }
        collect(&fs);
        fs.sync(&waiter()).unwrap();
    }
    assert_eq!(fs.statistics().locked_reads, 0, "rows were read under the lock");
    open.close(&waiter()).unwrap();
}
