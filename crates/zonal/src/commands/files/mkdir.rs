//! `zonal mkdir` and `zonal mv`: make directories, and rename files.

use super::put_tree::enter;
use super::{OnToWrite, Opened, failed, names, own};
use crate::exit::Failure;
use crate::text::shown_word;
use clap::Args;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use zonal_fs::format::FileKind;
use zonal_fs::{FsError, ROOT, Rename};

/// Make a directory in a file system
#[derive(Args, Debug)]
pub(crate) struct Mkdir {
    #[command(flatten)]
    on: OnToWrite,
    /// Directory to make
    path: OsString,
    /// Also make missing parents; an existing directory is not an error
    #[arg(long, short)]
    parents: bool,
}

/// Rename or move a file or a directory in a file system
///
/// If TO is an existing directory, the file goes there under its own name; if TO ends with a slash,
/// it must be one. An existing file is replaced in one step.
#[derive(Args, Debug)]
pub(crate) struct Mv {
    #[command(flatten)]
    on: OnToWrite,
    /// File or directory to move
    from: OsString,
    /// Destination
    to: OsString,
}

pub(crate) fn run(arguments: &Mkdir) -> Result<(), Failure> {
    let Mkdir { on, path, parents } = arguments;
    let names = names(path)?;
    let opened = on.open()?;
    let Opened { fs, waiter } = &opened;
    let made = match (names.split_last(), parents) {
        (_, true) => names.iter().try_fold(ROOT, |at, name| enter(&opened, at, name, 0o755)).map(drop),
        (None, false) => Err(FsError::Exists),
        (Some((name, directories)), false) => {
            let new = own(FileKind::Directory, 0o755);
            let parent = directories.iter().try_fold(ROOT, |at, name| fs.lookup(at, name));
            parent.and_then(|parent| fs.create(waiter, parent, name, &new)).map(drop)
        }
    };
    made.and_then(|()| fs.sync(waiter)).map_err(|e| failed(path, e))
}

pub(crate) fn run_mv(arguments: &Mv) -> Result<(), Failure> {
    let Mv { on, from, to } = arguments;
    let (source, mut target) = (names(from)?, names(to)?);
    let Some((name, directories)) = source.split_last() else {
        return Err(Failure::usage("the root cannot be moved"));
    };
    let opened = on.open()?;
    let Opened { fs, waiter } = &opened;
    let at = |names: &[&[u8]]| names.iter().try_fold(ROOT, |at, name| fs.lookup(at, name));
    let parent = at(directories).map_err(|e| failed(from, e))?;
    fs.lookup(parent, name).map_err(|e| failed(from, e))?;
    let there = at(&target).and_then(|ino| fs.attributes(ino));
    let is_directory = there.is_ok_and(|there| there.kind == FileKind::Directory);
    if to.as_bytes().ends_with(b"/") && !is_directory {
        return Err(anyhow::anyhow!("{}: no such directory", shown_word(to)).into());
    }
    if is_directory {
        target.push(name);
    }
    let Some((new_name, directories)) = target.split_last() else {
        return Err(Failure::usage("the root cannot be replaced"));
    };
    let moved = at(directories)
        .and_then(|new_parent| fs.rename(waiter, (parent, name), (new_parent, new_name), Rename::Replace));
    moved.and_then(|()| fs.sync(waiter)).map_err(|e| failed(to, e))
}
