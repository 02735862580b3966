//! `zonal rm`.

use super::ls::entries;
use super::{OnToWrite, Opened, failed, names};
use crate::exit::Failure;
use clap::Args;
use std::collections::HashSet;
use std::ffi::OsString;
use zonal_fs::format::FileKind;
use zonal_fs::{FsError, ROOT};

/// Remove a file or an empty directory from a file system
#[derive(Args, Debug)]
pub(crate) struct Rm {
    #[command(flatten)]
    on: OnToWrite,
    /// What to remove
    path: OsString,
    /// A directory with all that is in it
    #[arg(long, short)]
    recursive: bool,
}

pub(crate) fn run(arguments: &Rm) -> Result<(), Failure> {
    let Rm { on, path, recursive } = arguments;
    let names = names(path)?;
    let Some((name, directories)) = names.split_last() else {
        return Err(Failure::usage("the root cannot be removed"));
    };
    let opened = on.open()?;
    let parent = directories.iter().try_fold(ROOT, |at, name| opened.fs.lookup(at, name));
    let removed = parent.and_then(|parent| remove(&opened, parent, name, *recursive));
    removed.and_then(|()| opened.fs.sync(&opened.waiter)).map_err(|e| failed(path, e))
}

/// Takes a name away, and before it all that is in its directory, however deep that is.
fn remove(opened: &Opened, parent: u64, name: &[u8], recursive: bool) -> Result<(), FsError> {
    let Opened { fs, waiter } = opened;
    let mut todo = vec![(parent, name.to_vec())];
    // Each directory comes twice: with what is in it, and empty. A third time means that it lies within itself.
    let mut seen = HashSet::new();
    while let Some((parent, name)) = todo.pop() {
        let ino = fs.lookup(parent, &name)?;
        if fs.attributes(ino)?.kind != FileKind::Directory {
            fs.unlink(waiter, parent, &name)?;
        } else if recursive && seen.insert(ino) {
            todo.push((parent, name));
            todo.extend(entries(fs, ino)?.into_iter().rev().map(|(name, _)| (ino, name)));
        } else {
            fs.rmdir(waiter, parent, &name)?;
        }
    }
    Ok(())
}
