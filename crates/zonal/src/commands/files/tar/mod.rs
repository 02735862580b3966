//! `zonal tar`: directory trees as tar archives.
//!
//! Archives are written in the POSIX (pax) format, with extended attributes and sparse files as in
//! GNU tar. These are also read, as are older formats, and the long names and sparse files of GNU
//! tar.

mod pax;
mod read;
mod write;

pub(crate) use read::fuzz;

use super::journey::Journey;
use super::{OnToWrite, failed, names};
use crate::exit::Failure;
use clap::Args;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use zonal_fs::format::FileKind;
use zonal_fs::{FsError, ROOT};
use zonal_io::standard::{self, Stream};

/// Write a directory as a tar archive, or extract one
///
/// Archives are written to standard output, and read from standard input. Times to the nanosecond,
/// owners, permissions, extended attributes, hard and symbolic links and holes are kept. Pipes,
/// sockets and devices are skipped with a warning. GNU tar reads the archives with
/// `--xattrs --xattrs-include='*'`.
///
/// Nothing is extracted outside of the directory: a name with `..` is refused, leading slashes are
/// ignored, and no link is followed. A file that cannot be copied is reported, the others are
/// copied, and the exit code is 1, or 3 if data is damaged. After an invalid header, extraction
/// continues with the next valid one. An entry of an unknown type is extracted as a regular file,
/// with a warning. Damage in the middle of a file ends the archive that is written, because its
/// header has promised all of the data.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct Tar {
    #[command(flatten)]
    on: OnToWrite,
    /// Directory; with -x it is created if missing
    #[arg(default_value = "/")]
    path: OsString,
    /// Write an archive to standard output
    #[arg(long, short, group = "what")]
    create: bool,
    /// Read an archive from standard input
    #[arg(long, short = 'x', group = "what")]
    extract: bool,
}

/// Maximum number of pieces of a sparse file.
const PIECES_MAX: u64 = 1 << 20;

/// Bytes of a block.
const BLOCK: usize = 512;

pub(crate) fn run(arguments: &Tar, out: &mut dyn Write) -> Result<(), Failure> {
    let Tar { on, path, create, .. } = arguments;
    let names = names(path)?;
    standard::check(if *create { Stream::Output } else { Stream::Input })?;
    let mut journey = Journey::of_many("tar")?;
    if *create {
        let opened = on.on.look()?;
        let ino = opened.fs.resolve(&names.join(&b'/')).map_err(|e| failed(path, e))?;
        if opened.fs.attributes(ino).map_err(|e| failed(path, e))?.kind != FileKind::Directory {
            return Err(failed(path, FsError::NotDirectory));
        }
        journey.expect_tree(&opened.fs, ino)?;
        write::archive(&opened, ino, out, &mut journey)?;
        return journey.end();
    }
    let input = io::stdin().as_fd().try_clone_to_owned().and_then(|input| File::from(input).metadata());
    journey.progress.expect(input.ok().filter(|input| input.is_file()).map_or(0, |input| input.len()));
    let opened = on.open()?;
    let made = names.iter().try_fold(ROOT, |at, name| super::put_tree::enter(&opened, at, name, 0o755));
    let root = made.map_err(|e| failed(path, e))?;
    let read =
        read::Extract::new(&opened, root, names.join(&b'/')).all(&mut io::stdin().lock(), &mut journey);
    let synced = opened.fs.sync(&opened.waiter);
    read?;
    journey.end()?;
    synced.map_err(|e| failed(path, e))
}
