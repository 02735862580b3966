//! Images of every format version, byte by byte. They have to stay readable forever, and the same
//! work has to produce the same bytes as long as the version is unchanged.
//!
//! A golden file is a properly closed image: its length and its nonzero bytes, as `offset: bytes`
//! in hexadecimal, with `xN` for a line that repeats N times. The image as created, and the image
//! after a power cut, are derived from it. The test never rewrites a golden file; a failure tells
//! where it stored the actual bytes.

use crate::image::drive;
use crate::image::model::Model;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zonal_core::{Op, Personality, ZoneCondition};
use zonal_io::device::Device;
use zonal_io::identity::Identity;
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::image::format::{LEDGER_OFFSET, PAGE_BYTES};
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};

const ZONE: u64 = 16;

const V1: &str = "image-v1.txt";
const V4: &str = "image-v4.txt";

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

/// Work performed on every golden image.
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

/// Bytes per line.
const LINE: usize = 32;

fn dump(bytes: &[u8]) -> String {
    let mut text = format!("length {:#x}\n", bytes.len());
    let lines: Vec<&[u8]> = bytes.chunks(LINE).collect();
    let mut at = 0;
    for same in lines.chunk_by(|a, b| a == b) {
        let offset = at * LINE;
        at += same.len();
        if same[0].iter().all(|byte| *byte == 0) {
            continue;
        }
        write!(text, "{offset:06x}:").unwrap();
        same[0].chunks(4).for_each(|word| {
            text.push(' ');
            word.iter().for_each(|b| write!(text, "{b:02x}").unwrap());
        });
        if same.len() > 1 {
            write!(text, " x{}", same.len()).unwrap();
        }
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
        let (words, times) = words.split_once('x').unwrap_or((words, "1"));
        let digits: String = words.split_whitespace().collect();
        let digits = digits.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).unwrap());
        let line: Vec<u8> = digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect();
        let lines = line.repeat(times.parse().unwrap());
        bytes[offset..offset + lines.len()].copy_from_slice(&lines);
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

/// Opens an image after the work and compares its zones and data.
fn opens(bytes: &[u8]) -> ImageDevice {
    let device = open(&Arc::new(CutBacking::with_bytes(bytes, 1)));
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

/// Image as created: the headers of a golden file only.
fn created(name: &str) -> Vec<u8> {
    let mut bytes = bytes_of(name);
    bytes[LEDGER_OFFSET as usize..].fill(0);
    bytes
}

/// Image after a power cut: the session is open, and a commit of another zone tore the page after
/// its first sector.
fn torn(name: &str, version: u32) -> Vec<u8> {
    let mut bytes = bytes_of(name);
    let slot = if version == 1 { PAGE_BYTES } else { 2 * PAGE_BYTES };
    let [end_of_session, page] = [1, 3].map(|n| LEDGER_OFFSET as usize + n * slot);
    bytes[end_of_session..][..slot].fill(0);
    let (before, after) = bytes.split_at_mut(page);
    let (live, torn) = (&before[page - slot..][..512], &mut after[..512]);
    torn.copy_from_slice(live);
    torn[4..8].copy_from_slice(&0xdead_beef_u32.to_le_bytes());
    torn[16] += 1;
    // Two sectors in zone 5, closed.
    torn[32 + 8 * 5..][..8].copy_from_slice(&(4 << 32 | 2_u64).to_le_bytes());
    bytes
}

/// The work on a newly created image of this version produces the bytes of the golden file.
fn work_gives_the_same(name: &str) {
    let backing = Arc::new(CutBacking::with_bytes(&created(name), 2));
    let device = open(&backing);
    work(&device);
    device.close().unwrap();
    same(name, &backing.bytes());
    opens(&bytes_of(name)).close().unwrap();
}

fn torn_commit_is_not_seen(bytes: &[u8]) {
    let device = opens(bytes);
    let model = Model::new(&device);
    assert_eq!(model.written(5), 0);
    drive::write(&device, drive::command(Op::Write, 5 * ZONE, 2), &[0x61, 0x62]).unwrap();
    device.close().unwrap();
}

#[test]
fn version_1_closed_in_order() {
    work_gives_the_same(V1);
}

#[test]
fn version_1_torn_commit() {
    torn_commit_is_not_seen(&torn(V1, 1));
}

#[test]
fn version_1_has_no_identity_and_keeps_its_header() {
    for bytes in [created(V1), bytes_of(V1), torn(V1, 1)] {
        let backing = Arc::new(CutBacking::with_bytes(&bytes, 1));
        let device = open(&backing);
        assert_eq!((device.header().identity, device.info().identity), (None, None));
        drive::write(&device, drive::command(Op::Write, 6 * ZONE, 2), &[0x71, 0x72]).unwrap();
        device.close().unwrap();
        assert_eq!(backing.bytes()[..8192], bytes[..8192], "opening never converts");
    }
}

#[test]
fn version_1_keeps_no_current_states() {
    let bytes = created(V1);
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
fn version_4_as_created() {
    let backing = Arc::new(CutBacking::new(2));
    options().format(&*backing).unwrap();
    assert!(backing.bytes() == created(V4), "{}", dump(&backing.bytes()));
    let device = open(&backing);
    assert_eq!(device.info().geometry.zones(), 9);
    assert_eq!(device.info().identity.unwrap().to_string(), "676f6c64-656e-2d69-6465-6e7469747921");
}

#[test]
fn version_4_closed_in_order() {
    work_gives_the_same(V4);
}

#[test]
fn version_4_torn_commit() {
    torn_commit_is_not_seen(&torn(V4, 4));
}

/// Power cut after a commit of zones 5 and 6: the page and the data of zone 6 are on the medium,
/// those of zone 5 are not.
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
