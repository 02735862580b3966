//! Full drives: a call fails for lack of space only if nothing will free some, and changes nothing
//! then.

use crate::common::{bytes, device, impatient, make, read_all, settle, volume};
use std::sync::Arc;
use zonal_core::{Nanos, Op};
use zonal_fs::format::FileKind;
use zonal_fs::{FileSystem, FsError, MountOptions, NewFile, Payload, ROOT};
use zonal_io::device::Device;
use zonal_io::fault::{Effect, Fault, Ops, Plan, Rule};

const BLOCK: usize = 4096;

/// Data blocks of a unit.
const UNIT: usize = 7;

fn file(fs: &FileSystem, name: &str) -> u64 {
    fs.create(&impatient(), ROOT, name.as_bytes(), &NewFile::new(FileKind::File, 0o644)).unwrap()
}

fn write(fs: &FileSystem, ino: u64, data: &[u8]) {
    assert_eq!(fs.write(&impatient(), ino, 0, Payload::Bytes(data)).unwrap(), data.len() as u64);
}

/// Writes a file until no space is left.
fn fill(fs: &FileSystem) {
    let (ino, unit, mut at) = (file(fs, "filler"), bytes(99, UNIT * BLOCK), 0);
    loop {
        match fs.write(&impatient(), ino, at, Payload::Bytes(&unit)) {
            Ok(written) => at += written,
            Err(FsError::NoSpace) => break,
            Err(other) => panic!("{other}"),
        }
    }
    fs.sync(&impatient()).unwrap();
}

/// The space that a write needs is that of the blocks that another one in flight, or in a write
/// buffer, overwrites.
#[test]
fn write_waits_for_space_that_those_in_flight_will_free() {
    for is_open in [true, false] {
        let ram = device("ram:size=6M,zone_size=256K,blocksize=4096");
        let fault = Arc::new(Fault::new(ram, Plan::default()));
        let inner: Arc<dyn Device> = fault.clone();
        let fs = make(volume(inner), 8, MountOptions::default());
        let files: Vec<u64> = (0..4).map(|n| file(&fs, &format!("f{n}"))).collect();
        files.iter().for_each(|ino| write(&fs, *ino, &bytes(*ino, 6 * BLOCK)));
        write(&fs, file(&fs, "spare"), &bytes(1, 6 * BLOCK));
        fill(&fs);
        fs.unlink(&impatient(), ROOT, b"spare").unwrap();
        settle(&fs);
        assert_eq!(fs.usage().free, 6, "{is_open}");
        fault.inject(Rule::new(Effect::Delay(Nanos(50_000_000))).on(Ops::of(&[Op::Append])));
        let mut open = Vec::new();
        for ino in &files {
            open.extend(is_open.then(|| fs.open_file(*ino).unwrap()));
            write(&fs, *ino, &bytes(ino + 10, 6 * BLOCK));
        }
        fs.sync(&impatient()).unwrap();
        for ino in &files {
            assert!(read_all(&fs, *ino).unwrap() == bytes(ino + 10, 6 * BLOCK), "{is_open}: {ino}");
        }
        drop(open);
        settle(&fs);
        fs.check();
    }
}
