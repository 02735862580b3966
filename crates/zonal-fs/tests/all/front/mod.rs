//! What a front of a kernel asks for: calls that do in one step what several would do with gaps between them.

mod files;
mod known;
mod ranges;
mod refused;
mod setattr;
mod xattrs;

use crate::common::waiter;
use zonal_fs::format::FileKind;
use zonal_fs::{FileSystem, NewFile, ROOT};

fn new_file() -> NewFile {
    NewFile::new(FileKind::File, 0o644)
}

fn file(fs: &FileSystem, name: &[u8]) -> u64 {
    fs.create(&waiter(), ROOT, name, &new_file()).unwrap()
}
