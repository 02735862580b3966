//! Calls for a kernel front end: they combine steps that would leave gaps if made separately.

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
