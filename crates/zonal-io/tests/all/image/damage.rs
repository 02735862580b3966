//! Invalid images: one clear error that names the file and the fault, and the file stays untouched.

use crate::image::drive;
use crate::image::opening::{Dir, create, open, small};
use std::os::unix::fs::FileExt;
use std::path::Path;
use zonal_core::Op;

const LEDGER: u64 = 8192;
const PAGE: u64 = 4096;
/// A page and its tails.
const SLOT: u64 = 8192;

/// Opens the file, which has to fail with `message` after the path and leave the file unchanged.
fn refused(path: &Path, message: &str) {
    let before = (std::fs::read(path).unwrap(), path.metadata().unwrap().modified().unwrap());
    let error = open(path).err().unwrap_or_else(|| panic!("opened, should say {message:?}")).to_string();
    let expected = format!("{}: {message}", path.display());
    assert!(error.starts_with(&expected), "{error:?} does not begin with {expected:?}");
    let after = (std::fs::read(path).unwrap(), path.metadata().unwrap().modified().unwrap());
    assert!(before == after, "a refused file was touched");
}

/// Closed image with some content, after `damage`.
fn damaged(damage: impl FnOnce(&std::fs::File)) -> (Dir, std::path::PathBuf) {
    let (dir, path) = create(&small());
    let device = open(&path).unwrap();
    drive::write(&device, drive::command(Op::Append, 2048, 2), &[1, 2]).unwrap();
    device.close().unwrap();
    damage(&std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap());
    (dir, path)
}

fn flip(file: &std::fs::File, at: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
}

#[test]
fn foreign_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("some");
    for (bytes, message) in [
        (vec![], "not an image: 0 bytes are too few"),
        (vec![b'x'; 8191], "not an image: 8191 bytes are too few"),
        (vec![0; 1 << 20], "not an image: the file does not begin with"),
        (b"QFI\xfb".repeat(5000), "not an image: the file does not begin with"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        refused(&path, message);
    }
}

#[test]
fn h60_files_of_another_length() {
    let whole = (1 << 20) + (16 << 20);
    for len in [LEDGER, LEDGER + 100, 1 << 20, whole - 512, whole - 1, whole + 1, 2 * whole] {
        let (_dir, path) = damaged(|f| f.set_len(len).unwrap());
        refused(&path, &format!("truncated or extended: the file has {len} bytes, its header says {whole}"));
    }
}

#[test]
fn damaged_headers() {
    let both = |at: u64| damaged(|f| [0, PAGE].iter().for_each(|copy| flip(f, copy + at)));
    let (_dir, path) = both(0);
    refused(&path, "not an image");
    let (_dir, path) = both(9);
    refused(&path, "the image has format version 16388; this program reads versions 1 and 4");
    let (_dir, path) = both(100);
    refused(&path, "damaged header: checksum");
    // The identity.
    let (_dir, path) = both(140);
    refused(&path, "damaged header: checksum");
    // A single valid copy is enough.
    let (_dir, path) = damaged(|f| flip(f, 100));
    assert_eq!(drive::read(&open(&path).unwrap(), 2048, 3).unwrap(), [1, 2, 0]);
}

#[test]
fn damaged_zone_states_of_a_closed_image() {
    // Slots A and B of the page of zones, in a properly closed image: no power cut can cause this.
    for slot in [2, 3] {
        let (_dir, path) = damaged(|f| flip(f, LEDGER + slot * SLOT + 40));
        refused(&path, "zone state page 1: slot");
    }
    let (_dir, path) = damaged(|f| [2, 3].iter().for_each(|slot| flip(f, LEDGER + slot * SLOT + 40)));
    refused(&path, "zone state page 1: both slots are damaged");
    let (_dir, path) = damaged(|f| [0, 1].iter().for_each(|slot| flip(f, LEDGER + slot * SLOT + 40)));
    refused(&path, "zone state page 0: both slots are damaged");
}

#[test]
fn zone_states_copied_from_elsewhere() {
    let (_dir, path) = damaged(|f| {
        let mut page = [0; PAGE as usize];
        f.read_exact_at(&mut page, LEDGER + 2 * SLOT).unwrap();
        f.write_all_at(&page, LEDGER).unwrap();
    });
    refused(&path, "zone state page 0: slot A holds page 1");
    let (_dir, path) = damaged(|f| {
        let mut page = [0; PAGE as usize];
        f.read_exact_at(&mut page, LEDGER + 2 * SLOT).unwrap();
        f.write_all_at(&page, LEDGER + 3 * SLOT).unwrap();
    });
    refused(&path, "zone state page 1: both slots carry sequence number");
}
