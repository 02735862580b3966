//! Directories that are listed while they change.

use crate::mounted::Place;
use std::collections::HashSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

/// Names that stay.
const NAMES: usize = 5000;

#[test]
fn names_that_stay_are_seen_once_while_others_come_and_go() {
    let place = Place::new("256M");
    let mounted = place.mount("");
    fs::create_dir(mounted.at("d")).unwrap();
    let at = |name: String| mounted.at("d").join(name);
    for n in 0..NAMES {
        fs::write(at(format!("stays{n}")), b"").unwrap();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in (0..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                let comes = at(format!("comes{}", n % 100));
                fs::write(&comes, b"").unwrap();
                fs::rename(&comes, at(format!("goes{}", n % 50))).unwrap();
                fs::remove_file(at(format!("goes{}", n % 50))).unwrap();
            }
        });
        for _ in 0..5 {
            let mut seen = HashSet::new();
            for entry in fs::read_dir(mounted.at("d")).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                assert!(!name.starts_with("stays") || seen.insert(name), "a name is seen twice");
            }
            assert_eq!(seen.iter().filter(|name| name.starts_with("stays")).count(), NAMES);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    mounted.end();
}
