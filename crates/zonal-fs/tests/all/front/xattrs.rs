//! Setting extended attributes with the flags for create and replace.

use super::file;
use crate::common::waiter;
use crate::made::Made;
use std::sync::Barrier;
use zonal_fs::{ATTRIBUTE_MAX, FsError, SetXattr};

#[test]
fn set_xattr_obeys_create_and_replace() {
    let (_made, fs) = Made::new();
    let (waiter, ino) = (waiter(), file(&fs, b"f"));
    let set = |name: &[u8], value: &[u8], when| fs.set_xattr_if(&waiter, ino, (name, value), when);
    assert!(matches!(set(b"user.a", b"1", SetXattr::Replace), Err(FsError::NoAttribute)));
    set(b"user.a", b"2", SetXattr::Create).unwrap();
    assert!(matches!(set(b"user.a", b"3", SetXattr::Create), Err(FsError::AttributeExists)));
    assert_eq!(fs.xattr(ino, b"user.a").unwrap(), b"2");
    set(b"user.a", b"4", SetXattr::Replace).unwrap();
    assert_eq!(fs.xattr(ino, b"user.a").unwrap(), b"4");
    set(b"user.a", b"", SetXattr::Always).unwrap();
    assert_eq!(fs.xattr(ino, b"user.a").unwrap(), b"");
    let missing = ino + 1;
    for when in [SetXattr::Always, SetXattr::Create, SetXattr::Replace] {
        let set = fs.set_xattr_if(&waiter, missing, (b"user.a", b""), when);
        assert!(matches!(set, Err(FsError::NotFound)));
    }
}

#[test]
fn attribute_with_a_name_or_value_too_long_is_refused() {
    let (_made, fs) = Made::new();
    let (waiter, ino) = (waiter(), file(&fs, b"f"));
    for name in [&[b'n'; 256][..], b""] {
        assert!(matches!(fs.set_xattr(&waiter, ino, name, b""), Err(FsError::AttributeName)));
        assert!(matches!(fs.xattr(ino, name), Err(FsError::AttributeName)));
        assert!(matches!(fs.remove_xattr(&waiter, ino, name), Err(FsError::AttributeName)));
    }
    let set = |length| fs.set_xattr(&waiter, ino, &[b'n'; 255], &vec![7; length]);
    assert!(matches!(set(ATTRIBUTE_MAX + 1), Err(FsError::AttributeTooLarge)));
    set(ATTRIBUTE_MAX).unwrap();
    assert_eq!(fs.xattr(ino, &[b'n'; 255]).unwrap().len(), ATTRIBUTE_MAX);
}

#[test]
fn one_of_two_threads_creates_an_attribute() {
    let (_made, fs) = Made::new();
    let ino = file(&fs, b"f");
    for round in 0..100u32 {
        let (name, both) = (format!("user.{round}"), Barrier::new(2));
        let create = |value: &[u8]| {
            both.wait();
            fs.set_xattr_if(&waiter(), ino, (name.as_bytes(), value), SetXattr::Create).is_ok()
        };
        let made = std::thread::scope(|scope| {
            let create = &create;
            let threads = [&b"0"[..], b"1"].map(|value| scope.spawn(move || create(value)));
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(made[0] != made[1], "round {round}: {made:?}");
        let value = fs.xattr(ino, name.as_bytes()).unwrap();
        assert_eq!(value, if made[0] { b"0" } else { b"1" });
    }
}
