//! Metadata per file in bytes, including all pages of tables. `ZONAL_FILES=1000000` and
//! `--nocapture` print the figures of docs/FS.md. The limit is per file, so fewer files show the
//! same.

use crate::common::{device, superblock, volume, waiter};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use zonal_fs::format::FileKind;
use zonal_fs::store::Rows;
use zonal_fs::store::backend::Memory;
use zonal_fs::{FileSystem, MountOptions, NewFile, Payload, ROOT};

/// Names per directory.
const DIRECTORY_FILES: u64 = 1000;

/// Files between two commits.
const COMMIT_FILES: u64 = 10_000;

/// Maximum metadata of a file of one extent, in bytes.
const BYTES_MAX: u64 = 350;

fn files() -> u64 {
    let wanted = std::env::var("ZONAL_FILES").map(|files| files.parse().expect("ZONAL_FILES is a number"));
    wanted.unwrap_or(50_000)
}

/// Metadata per file for `files` files, with names created in this order in each directory.
fn bytes_of_file(files: u64, order: &[u64]) -> u64 {
    let volume = volume(device("null:size=1T,zone_size=256M"));
    let (superblock, memory, waiter) = (superblock(&volume, 0, 256), Memory::new(), waiter());
    let mut rows = Rows::open(memory.clone(), 64 << 20).unwrap();
    FileSystem::make(&mut rows, &superblock, &waiter).unwrap();
    let options = MountOptions::default();
    let fs = FileSystem::open(volume, rows, superblock, options, false, &waiter).unwrap();
    let mut directory = ROOT;
    for n in 0..files {
        let (which, within) = (n / DIRECTORY_FILES, n % DIRECTORY_FILES);
        if within == 0 {
            let name = format!("directory-{which:04}");
            directory =
                fs.create(&waiter, ROOT, name.as_bytes(), &NewFile::new(FileKind::Directory, 0o755)).unwrap();
        }
        let name = format!("file-{:07}", which * DIRECTORY_FILES + order[within as usize]);
        let new = NewFile { uid: 1000, gid: 1000, ..NewFile::new(FileKind::File, 0o644) };
        let ino = fs.create(&waiter, directory, name.as_bytes(), &new).unwrap();
        fs.write(&waiter, ino, 0, Payload::Length(16 << 10)).unwrap();
        if n % COMMIT_FILES == COMMIT_FILES - 1 {
            fs.sync(&waiter).unwrap();
        }
    }
    fs.sync(&waiter).unwrap();
    drop(fs);
    memory.footprint() / files
}

#[test]
fn million_files_of_one_extent_take_at_most_350_bytes_each() {
    let in_order: Vec<u64> = (0..DIRECTORY_FILES).collect();
    let mut in_disorder = in_order.clone();
    in_disorder.shuffle(&mut Pcg64Mcg::seed_from_u64(7));
    for (order, what) in [(in_order, "in order"), (in_disorder, "in no order")] {
        let bytes = bytes_of_file(files(), &order);
        println!("{bytes} bytes of metadata a file, names {what}, {} files", files());
        assert!(bytes <= BYTES_MAX, "{bytes} bytes a file, names {what}");
    }
}
