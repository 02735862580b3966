//! One drive, and several that want it: file systems, and a thread that polls.

mod common;

use common::{device, volume, waiter};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use zonal_fs::drive::Drive;
use zonal_fs::format::Kind;
use zonal_fs::make::{MakeError, MakeOptions, look, make, open};
use zonal_fs::store::backend::BackendError;
use zonal_fs::waiter::polling;
use zonal_fs::{MountOptions, NewFile, Payload, ROOT};
use zonal_io::volume::Driver;

fn is_claimed<T>(result: Result<T, MakeError>) -> bool {
    matches!(result, Err(MakeError::Backend(BackendError::Claimed)))
}

#[test]
fn file_system_that_is_open_is_neither_opened_again_nor_made_anew() {
    for conventional in [0, 8] {
        let name = format!("ram:size=16M,zone_size=512K,blocksize=4096,zone_nr_conv={conventional}");
        let (drive, waiters) = (Arc::new(Drive::new(volume(device(&name)))), polling(Instant::now()));
        make(&drive, &waiters, [7; 16], &MakeOptions::default()).unwrap();
        let options = MountOptions::default();
        let fs = open(&drive, &waiters, None, options).unwrap();
        assert!(is_claimed(open(&drive, &waiters, None, options)));
        assert!(is_claimed(look(&drive, &waiters, None, options)));
        let force = MakeOptions { force: true, ..MakeOptions::default() };
        assert!(is_claimed(make(&drive, &waiters, [8; 16], &force)));
        let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(Kind::File, 0o644)).unwrap();
        fs.write(&waiter(), ino, 0, Payload::Bytes(b"here")).unwrap();
        fs.sync(&waiter()).unwrap();
        drop(fs);
        let fs = open(&drive, &waiters, None, options).unwrap();
        assert_eq!(common::read_all(&fs, ino).unwrap(), b"here");
    }
}

/// Far more than making a file system takes, on a machine with other work too.
const STUCK: Duration = Duration::from_secs(60);

#[test]
fn file_system_is_made_and_used_where_a_thread_polls_the_volume() {
    for _ in 0..20 {
        let volume = volume(device("ram:size=16M,zone_size=512K,blocksize=4096,complete=poll"));
        let driver = Driver::start(volume.clone()).unwrap();
        let (drive, waiters) = (Arc::new(Drive::new(volume)), polling(Instant::now()));
        let (ended, end) = mpsc::channel();
        thread::spawn(move || {
            make(&drive, &waiters, [7; 16], &MakeOptions::default()).unwrap();
            let fs = open(&drive, &waiters, None, MountOptions::default()).unwrap();
            let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(Kind::File, 0o644)).unwrap();
            fs.write(&waiter(), ino, 0, Payload::Bytes(b"here")).unwrap();
            fs.sync(&waiter()).unwrap();
            ended.send(common::read_all(&fs, ino).unwrap()).unwrap();
        });
        assert_eq!(end.recv_timeout(STUCK).expect("the thread ends"), b"here");
        drop(driver);
    }
}
