//! `zonal rm`: removes files and directories.

use super::ls::entries;
use super::{OnToWrite, Opened, failed, names};
use crate::exit::Failure;
use crate::text::shown_word;
use clap::Args;
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use zonal_fs::format::FileKind;
use zonal_fs::{FsError, ROOT};

/// Remove files and empty directories, or with -r whole directories
///
/// The command stops at the first error. Files removed before it stay removed.
#[derive(Args, Debug)]
pub(crate) struct Rm {
    #[command(flatten)]
    on: OnToWrite,
    /// Paths to remove
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Remove directories with everything in them
    #[arg(long, short, short_alias = 'R')]
    recursive: bool,
    /// Ignore paths that do not exist
    #[arg(long, short)]
    force: bool,
}

pub(crate) fn run(arguments: &Rm) -> Result<(), Failure> {
    let Rm { on, paths, recursive, force } = arguments;
    let named = paths.iter().map(|path| Ok((path, names(path)?))).collect::<Result<Vec<_>, Failure>>()?;
    if named.iter().any(|(_, names)| names.is_empty()) {
        return Err(Failure::usage("the root directory cannot be removed; name what is in it"));
    }
    // As rm does: `DIR/.` is nearly always a mistake for the contents of DIR.
    let is_dot = |path: &&OsString| {
        path.as_bytes().split(|byte| *byte == b'/').rfind(|name| !name.is_empty()) == Some(b".")
    };
    if let Some(path) = paths.iter().find(is_dot) {
        return Err(Failure::usage(format!(
            "{}: refusing to remove '.'; name the directory",
            shown_word(path)
        )));
    }
    let opened = on.open()?;
    let mut removed = Ok(());
    for (path, names) in &named {
        let (name, directories) = names.split_last().expect("none of them is the root");
        let parent = directories.iter().try_fold(ROOT, |at, name| opened.fs.lookup(at, name));
        removed = match parent.and_then(|parent| remove(&opened, parent, name, *recursive)) {
            Err(FsError::NotFound) if *force => Ok(()),
            Err(FsError::NotEmpty) if !recursive => Err(anyhow::anyhow!(
                "{}: directory not empty; use -r to remove it with its contents",
                shown_word(path)
            )
            .into()),
            removed => removed.map_err(|e| failed(path, e)),
        };
        if removed.is_err() {
            break;
        }
    }
    // Files that were removed before an error stay removed.
    let synced = opened.fs.sync(&opened.waiter).map_err(|e| failed(&paths[0], e));
    removed.and(synced)
}

/// Removes a name; if it is a directory, first everything in it.
fn remove(opened: &Opened, parent: u64, name: &[u8], recursive: bool) -> Result<(), FsError> {
    let Opened { fs, waiter } = opened;
    let mut todo = vec![(parent, name.to_vec())];
    // A directory is visited twice: full, then empty. A third visit means that it contains itself.
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
