//! One drive with several users: file systems that write, file systems that read, and a thread that
//! polls.

use crate::common;
use crate::common::{device, volume, waiter};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use zonal_fs::drive::Drive;
use zonal_fs::format::FileKind;
use zonal_fs::make::{MakeError, MakeOptions, look, make, open};
use zonal_fs::store::backend::BackendError;
use zonal_fs::waiter::polling;
use zonal_fs::{FsError, MountOptions, NewFile, Payload, ROOT};
use zonal_io::clock::Clock;
use zonal_io::device::Device;
use zonal_io::image::ImageOptions;
use zonal_io::registry::Registry;
use zonal_io::volume::Driver;

fn is_claimed<T>(result: Result<T, MakeError>) -> bool {
    matches!(result, Err(MakeError::Backend(BackendError::Claimed)))
}

#[test]
fn file_system_that_is_open_is_neither_opened_again_nor_made_anew() {
    for conventional in [0, 8] {
        let name = format!("ram:size=16M,zone_size=512K,blocksize=4096,zone_nr_conv={conventional}");
        let (drive, waiters) = (Arc::new(Drive::new(volume(device(&name)))), polling(Clock::start()));
        make(&drive, &waiters, [7; 16], &MakeOptions::default()).unwrap();
        let options = MountOptions::default();
        let fs = open(&drive, &waiters, None, options).unwrap();
        assert!(is_claimed(open(&drive, &waiters, None, options)));
        assert!(is_claimed(look(&drive, &waiters, None, options)));
        let force = MakeOptions::default().with_force(true);
        assert!(is_claimed(make(&drive, &waiters, [8; 16], &force)));
        let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
        fs.write(&waiter(), ino, 0, Payload::Bytes(b"here")).unwrap();
        fs.sync(&waiter()).unwrap();
        drop(fs);
        let fs = open(&drive, &waiters, None, options).unwrap();
        assert_eq!(common::read_all(&fs, ino).unwrap(), b"here");
    }
}

/// Far more than making a file system takes, even on a busy machine.
const STUCK: Duration = Duration::from_secs(60);

#[test]
fn file_system_is_made_where_a_thread_polls_the_volume() {
    for _ in 0..20 {
        let volume = volume(device("ram:size=16M,zone_size=512K,blocksize=4096,complete=poll"));
        let clock = Clock::start();
        let driver = Driver::start(volume.clone(), clock).unwrap();
        let (drive, waiters) = (Arc::new(Drive::new(volume)), polling(clock));
        let (ended, end) = mpsc::channel();
        thread::spawn(move || {
            make(&drive, &waiters, [7; 16], &MakeOptions::default()).unwrap();
            let fs = open(&drive, &waiters, None, MountOptions::default()).unwrap();
            let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
            fs.write(&waiter(), ino, 0, Payload::Bytes(b"here")).unwrap();
            fs.sync(&waiter()).unwrap();
            ended.send(common::read_all(&fs, ino).unwrap()).unwrap();
        });
        assert_eq!(end.recv_timeout(STUCK).expect("the thread ends"), b"here");
        drop(driver);
    }
}

const READ_ONLY: &str = "the drive is open for reading only, by request or because its file is not writable";

#[test]
fn read_only_drive_refuses_changes_with_a_reason() {
    for (conventional, is_beside) in [(0, false), (3, false), (0, true)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        let size = ImageOptions::default().with_size(24 << 20).with_zone_size(1 << 20);
        size.with_zone_nr_conv(conventional).create(&path).unwrap();
        let beside = is_beside.then(|| dir.path().join("m"));
        let (name, waiters, options) =
            (path.to_str().unwrap(), polling(Clock::start()), MountOptions::default());
        let drive = |device: Arc<dyn Device>| Arc::new(Drive::new(volume(device)));
        let writing = drive(device(name));
        let made = MakeOptions::default().with_beside(beside.clone());
        make(&writing, &waiters, [7; 16], &made).unwrap();
        let fs = open(&writing, &waiters, beside.clone(), options).unwrap();
        let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
        fs.write(&waiter(), ino, 0, Payload::Bytes(&common::bytes(1, 9000))).unwrap();
        fs.sync(&waiter()).unwrap();
        // A file without a name that was not closed, to be deleted by the next opening for writing.
        let unnamed = fs.create_unnamed(&waiter(), &NewFile::new(FileKind::File, 0o644)).unwrap();
        fs.sync(&waiter()).unwrap();
        fs.forbid_changes("the power is cut");
        drop((unnamed, fs, writing));
        let files =
            || [Some(&path), beside.as_ref()].into_iter().flatten().map(|path| std::fs::read(path).unwrap());
        let before: Vec<Vec<u8>> = files().collect();
        let reading = || drive(Registry::default().open_to_read(name).unwrap());
        let (first, second) = (reading(), reading());
        let by_itself = open(&first, &waiters, beside.clone(), options).unwrap();
        let looked = look(&second, &waiters, beside.clone(), options).unwrap();
        for (fs, why) in [(by_itself, READ_ONLY), (looked, "it is open for inspection only")] {
            assert!(common::read_all(&fs, ino).unwrap() == common::bytes(1, 9000));
            let handle = fs.open_file(ino).unwrap();
            let w = waiter();
            for refused in [
                fs.write(&w, ino, 0, Payload::Bytes(b"x")).map(drop),
                fs.unlink(&w, ROOT, b"f"),
                fs.truncate(&w, ino, 0),
                fs.fsync(&w, ino),
                fs.sync(&w),
                fs.background_step(&w).map(drop),
                fs.collect(&w).map(drop),
            ] {
                assert!(matches!(&refused, Err(FsError::ReadOnly(told)) if told == why), "{refused:?}");
            }
            drop(handle);
            assert!(common::read_all(&fs, ino).unwrap() == common::bytes(1, 9000));
            fs.check();
        }
        let refused = make(&first, &waiters, [8; 16], &made.with_force(true));
        assert!(refused.unwrap_err().to_string().contains(READ_ONLY));
        drop((first, second));
        assert!(files().eq(before), "{conventional} {is_beside}: the drive has changed");
    }
}
