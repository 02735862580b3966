//! `zonal rm`.

use super::ls::entries;
use super::{On, Opened, failed, names};
use crate::exit::Failure;
use clap::Args;
use zonal_fs::format::Kind;
use zonal_fs::{FsError, ROOT};

/// Remove a file or an empty directory from a file system
#[derive(Args, Debug)]
pub(crate) struct Rm {
    #[command(flatten)]
    on: On,
    /// What to remove
    path: String,
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

fn remove(opened: &Opened, parent: u64, name: &[u8], recursive: bool) -> Result<(), FsError> {
    let Opened { fs, waiter } = opened;
    let ino = fs.lookup(parent, name)?;
    if fs.attributes(ino)?.kind != Kind::Directory {
        return fs.unlink(waiter, parent, name);
    }
    if recursive {
        for (name, _) in entries(fs, ino)? {
            remove(opened, ino, name.as_bytes(), true)?;
        }
    }
    fs.rmdir(waiter, parent, name)
}
