//! Directories that are listed while they change.

use rustix::fs::{Dir, Mode, OFlags};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use zonal_check::program::mounted::MountPlace;

/// Number of permanent names.
const NAMES: usize = 5000;

/// Runs `look` on a directory with permanent names while two programs create and remove others.
fn while_others_change(place: &MountPlace, names: usize, look: impl FnOnce(&Path)) {
    let dir = place.dir().join("d");
    fs::create_dir(&dir).unwrap();
    for n in 0..names {
        fs::File::create(dir.join(format!("stays{n}"))).unwrap();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for program in 0..2 {
            let (dir, is_over) = (&dir, &is_over);
            scope.spawn(move || {
                let at = |what: &str, n: u64| -> PathBuf { dir.join(format!("{what}{program}-{n}")) };
                for n in (0..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    fs::write(at("comes", n % 100), b"").unwrap();
                    fs::rename(at("comes", n % 100), at("goes", n % 50)).unwrap();
                    fs::remove_file(at("goes", n % 50)).unwrap();
                }
            });
        }
        // The programs end even if `look` panics.
        let end = when_dropped(|| is_over.store(true, Ordering::Relaxed));
        look(&dir);
        drop(end);
    });
}

/// Calls `act` when dropped.
fn when_dropped<F: FnMut()>(act: F) -> impl Drop {
    struct Guard<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Guard<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    Guard(act)
}

fn stays(name: &[u8]) -> bool {
    name.starts_with(b"stays")
}

#[test]
fn stable_names_are_listed_once_while_others_change() {
    let names = std::env::var("ZONAL_MOUNT_NAMES").map_or(NAMES, |names| names.parse().unwrap());
    let place = MountPlace::new("1G");
    let mounted = place.mount("");
    while_others_change(&place, names, |dir| {
        for _ in 0..5 {
            let mut seen = HashSet::new();
            for entry in fs::read_dir(dir).unwrap() {
                let name = entry.unwrap().file_name().into_encoded_bytes();
                assert!(!stays(&name) || seen.insert(name), "a name is seen twice");
            }
            assert_eq!(seen.len(), names);
        }
    });
    mounted.end();
}

/// Two programs read a directory, seek to positions returned earlier, and continue reading from
/// there.
#[test]
fn directory_positions_of_two_readers_stay_valid_during_changes() {
    let place = MountPlace::new("256M");
    let mounted = place.mount("");
    while_others_change(&place, NAMES, |dir| {
        let program = |seed: usize| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let mut dir = Dir::new(rustix::fs::open(dir, flags, Mode::empty()).unwrap()).unwrap();
            // Each permanent name, with the position after it.
            let mut told = Vec::new();
            while let Some(entry) = dir.read() {
                let entry = entry.unwrap();
                if stays(entry.file_name().to_bytes()) {
                    told.push((entry.file_name().to_owned(), entry.offset()));
                }
            }
            assert_eq!(told.len(), NAMES);
            for step in 0..500 {
                let at = (step * 7919 + seed) % (NAMES - 1);
                dir.seek(told[at].1).unwrap();
                let next = loop {
                    let entry = dir.read().unwrap().unwrap();
                    if stays(entry.file_name().to_bytes()) {
                        break entry.file_name().to_owned();
                    }
                };
                assert_eq!(next, told[at + 1].0, "after {:?}", told[at].0);
            }
            dir.seek(told[NAMES - 1].1).unwrap();
            let rest = std::iter::from_fn(|| dir.read());
            let rest = rest.map(|entry| entry.unwrap()).find(|entry| stays(entry.file_name().to_bytes()));
            assert!(rest.is_none(), "{rest:?}");
        };
        std::thread::scope(|scope| {
            scope.spawn(|| program(3));
            program(1234);
        });
    });
    mounted.end();
}
