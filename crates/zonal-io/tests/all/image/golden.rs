//! Images of every format version, byte by byte: they have to open for ever, and the same work has to give the same
//! bytes while the version is the same.
//!
//! A golden file lists the bytes that are not zero: `offset: bytes` in hexadecimal, and the length. It is not written
//! again by the test; what is found instead is put where a failure says.

use crate::image::drive;
use crate::image::model::Model;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zonal_core::{Op, Personality, ZoneCondition};
use zonal_io::device::Device;
use zonal_io::identity::Identity;
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};

const ZONE: u64 = 16;

fn options() -> ImageOptions {
    ImageOptions::default()
        .with_profile("ufs-zoned".to_owned())
        .with_size(9 * ZONE * 512)
        .with_zone_size(ZONE * 512)
        .with_zone_capacity(12 * 512)
        .with_zone_nr_conv(1)
        .with_zone_max_open(3)
        .with_zone_max_active(4)
        .with_blocksize(1024)
        .with_zone_append_max_sectors(8)
        .with_personality(Personality::Zbc)
        .with_rotational(true)
        .with_creation(*b"golden-creation!")
        .with_identity(Identity::from_bytes(*b"golden-identity!"))
}

fn open(backing: &Arc<CutBacking>) -> ImageDevice {
    let options = OpenOptions::default().with_threads(0);
    ImageDevice::open_backing(Path::new("golden"), backing.clone(), &options).unwrap()
}

/// The work that was done on every golden image.
fn work(device: &ImageDevice) {
    let write = |zone: u64, offset, stamps: &[u64]| {
        let command = drive::command(Op::Write, zone * ZONE + offset, stamps.len() as u32);
        drive::write(device, command, stamps).unwrap();
    };
    write(0, 4, &[0x11, 0x12]);
    write(1, 0, &[0x21, 0x22]);
    write(2, 0, &[0x31; 12]);
    write(3, 0, &[0x41, 0x42]);
    write(4, 0, &[0x51, 0x52]);
    drive::plain(device, Op::Flush, 0, 0).unwrap();
    write(1, 2, &[0x23, 0x24]);
    drive::plain(device, Op::ZoneFinish, 3 * ZONE, 0).unwrap();
    drive::plain(device, Op::ZoneReset, 4 * ZONE, 0).unwrap();
    drive::plain(device, Op::Flush, 0, 0).unwrap();
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn dump(bytes: &[u8]) -> String {
    let mut text = format!("length {:#x}\n", bytes.len());
    for (line, bytes) in bytes.chunks(32).enumerate().filter(|(_, bytes)| bytes.iter().any(|&b| b != 0)) {
        write!(text, "{:06x}:", line * 32).unwrap();
        bytes.chunks(4).for_each(|word| {
            text.push(' ');
            word.iter().for_each(|b| write!(text, "{b:02x}").unwrap());
        });
        text.push('\n');
    }
    text
}

fn undump(text: &str) -> Vec<u8> {
    let mut lines = text.lines();
    let length = lines.next().and_then(|l| l.strip_prefix("length 0x")).unwrap();
    let mut bytes = vec![0; usize::from_str_radix(length, 16).unwrap()];
    for line in lines {
        let (offset, words) = line.split_once(':').unwrap();
        let offset = usize::from_str_radix(offset, 16).unwrap();
        let digits: String = words.split_whitespace().collect();
        for (n, byte) in digits.as_bytes().chunks(2).enumerate() {
            bytes[offset + n] = u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 16).unwrap();
        }
    }
    bytes
}

/// Compares `bytes` with a golden file.
fn same(name: &str, bytes: &[u8]) {
    let (found, expected) = (dump(bytes), std::fs::read_to_string(golden(name)).unwrap_or_default());
    if found != expected {
        let at = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&at, found).unwrap();
        panic!("the bytes differ from {name}; what was found is in {}", at.display());
    }
}

/// Opens a golden file and compares what it says.
fn opens(name: &str) -> ImageDevice {
    let bytes = undump(&std::fs::read_to_string(golden(name)).unwrap());
    let device = open(&Arc::new(CutBacking::with_bytes(&bytes, 1)));
    let header = device.header();
    assert_eq!((header.geometry.zones(), header.geometry.conventional_zones()), (9, 1));
    assert_eq!((header.open_max, header.active_max, header.block_sectors), (3, 4, 2));
    assert_eq!((header.append_sectors_max, header.rotational), (8, true));
    assert_eq!((header.personality, header.profile.as_str()), (Personality::Zbc, "ufs-zoned"));
    let zone = |zone| {
        let found = drive::describe(&device, zone);
        (found.condition, found.write_pointer.map(|p| p.0 - u64::from(zone) * ZONE))
    };
    assert_eq!(zone(0), (ZoneCondition::NotWp, None));
    assert_eq!(zone(1), (ZoneCondition::Closed, Some(4)));
    assert_eq!(zone(2), (ZoneCondition::Full, None));
    assert_eq!(zone(3), (ZoneCondition::Full, None));
    (4..9).for_each(|z| assert_eq!(zone(z), (ZoneCondition::Empty, Some(0))));
    let read = |zone: u64| drive::read(&device, zone * ZONE, 8).unwrap();
    assert_eq!(read(0), [0, 0, 0, 0, 0x11, 0x12, 0, 0]);
    assert_eq!(read(1), [0x21, 0x22, 0x23, 0x24, 0, 0, 0, 0]);
    assert_eq!(read(2), [0x31; 8]);
    assert_eq!(read(3), [0x41, 0x42, 0, 0, 0, 0, 0, 0]);
    assert_eq!(read(4), [0; 8]);
    device
}

fn bytes_of(name: &str) -> Vec<u8> {
    undump(&std::fs::read_to_string(golden(name)).unwrap())
}

/// The work on an image of this version, from its creation on, gives the bytes of the golden file.
fn work_gives_the_same(version: u32) {
    let created = bytes_of(&format!("image-v{version}-created.txt"));
    let backing = Arc::new(CutBacking::with_bytes(&created, 2));
    let device = open(&backing);
    work(&device);
    device.close().unwrap();
    let name = format!("image-v{version}-closed.txt");
    same(&name, &backing.bytes());
    opens(&name).close().unwrap();
}

/// What a power cut left: the session is open, and a commit of one more zone tore the page after its first sector.
fn torn_commit_is_not_seen(version: u32) {
    let name = format!("image-v{version}-torn.txt");
    let device = opens(&name);
    let model = Model::new(&device);
    assert_eq!(model.written(5), 0);
    drive::write(&device, drive::command(Op::Write, 5 * ZONE, 2), &[0x61, 0x62]).unwrap();
    device.close().unwrap();
    assert_eq!(bytes_of(&name).len(), (1 << 20) + 9 * ZONE as usize * 512);
}

#[test]
fn version_1_closed_in_order() {
    work_gives_the_same(1);
}

#[test]
fn version_1_torn_commit() {
    torn_commit_is_not_seen(1);
}

#[test]
fn version_1_has_no_identity_and_keeps_its_header() {
    for name in ["image-v1-created.txt", "image-v1-closed.txt", "image-v1-torn.txt"] {
        let backing = Arc::new(CutBacking::with_bytes(&bytes_of(name), 1));
        let device = open(&backing);
        assert_eq!((device.header().identity, device.info().identity), (None, None), "{name}");
        drive::write(&device, drive::command(Op::Write, 6 * ZONE, 2), &[0x71, 0x72]).unwrap();
        device.close().unwrap();
        assert_eq!(backing.bytes()[..8192], bytes_of(name)[..8192], "{name}: opening never converts");
    }
}

#[test]
fn version_2_closed_in_order() {
    work_gives_the_same(2);
}

#[test]
fn version_2_torn_commit() {
    torn_commit_is_not_seen(2);
}

#[test]
fn version_2_keeps_no_current_states_and_its_header() {
    let bytes = bytes_of("image-v2-created.txt");
    let backing = Arc::new(CutBacking::with_bytes(&bytes, 1));
    let device = open(&backing);
    assert!(!device.header().has_current());
    drive::write(&device, drive::command(Op::Write, 6 * ZONE, 2), &[0x71, 0x72]).unwrap();
    device.abandon();
    let changed = || bytes.iter().zip(backing.bytes()).filter(|(a, b)| **a != *b).count();
    assert_eq!(changed(), 2 * 64, "the data alone: a byte of each word of two sectors");
    let device = open(&backing);
    assert_eq!(drive::describe(&device, 6).condition, ZoneCondition::Empty, "as after a power cut");
}

#[test]
fn version_3_closed_in_order() {
    work_gives_the_same(3);
}

#[test]
fn version_3_torn_commit() {
    torn_commit_is_not_seen(3);
}

#[test]
fn version_4_as_created() {
    let backing = Arc::new(CutBacking::new(2));
    options().format(&*backing).unwrap();
    same("image-v4-created.txt", &backing.bytes());
    let device = open(&backing);
    assert_eq!(device.info().geometry.zones(), 9);
    assert_eq!(device.info().identity.unwrap().to_string(), "676f6c64-656e-2d69-6465-6e7469747921");
}

#[test]
fn version_4_closed_in_order() {
    work_gives_the_same(4);
}

#[test]
fn version_4_torn_commit() {
    torn_commit_is_not_seen(4);
}

/// A power cut after a commit of zones 5 and 6 was written: the page and the data of zone 6 have arrived, that of zone 5 has not.
#[test]
fn version_4_commit_without_the_data_of_a_zone() {
    let backing = Arc::new(CutBacking::with_bytes(&bytes_of("image-v4-lost.txt"), 1));
    for _ in 0..2 {
        let device = open(&backing);
        let condition = |zone| drive::describe(&device, zone).condition;
        assert_eq!([5, 6].map(condition), [ZoneCondition::Empty, ZoneCondition::Closed]);
        assert_eq!(drive::read(&device, 5 * ZONE, 2).unwrap(), [0, 0]);
        assert_eq!(drive::read(&device, 6 * ZONE, 2).unwrap(), [0x71, 0x72]);
        device.close().unwrap();
    }
}
