//! `zonal put`.

use super::pipe::{piece_bytes, pipe};
use super::{On, Opened, failed, names};
use crate::exit::Failure;
use anyhow::Context;
use clap::Args;
use std::fs::File;
use std::io::{self, Read};
use zonal_fs::format::Kind;
use zonal_fs::{Changes, FsError, NewFile, Payload, ROOT, Rename};

/// What the name of a file begins with while it is put.
const UNFINISHED: &str = ".zonal-put.";

/// Copy a file into a file system, replacing what has its name
///
/// Directories that are missing on the way are made. The file is there as a whole or, if anything fails, not at all; when the
/// command ends it is durable.
#[derive(Args, Debug)]
pub(crate) struct Put {
    #[command(flatten)]
    on: On,
    /// File to copy; `-` is standard input
    file: String,
    /// Where it goes
    path: String,
}

pub(crate) fn run(arguments: &Put) -> Result<(), Failure> {
    let Put { on, file, path } = arguments;
    let names = names(path)?;
    let Some((name, directories)) = names.split_last() else {
        return Err(Failure::usage(format!("{path}: a file needs a name")));
    };
    let (mut source, mode): (Box<dyn Read + Send>, u16) = match file.as_str() {
        "-" => (Box::new(io::stdin()), 0o644),
        _ => {
            let opened = File::open(file).with_context(|| file.clone())?;
            let mode = mode(&opened.metadata().with_context(|| file.clone())?);
            (Box::new(opened), mode)
        }
    };
    let opened = on.open()?;
    let parent = directories.iter().try_fold(ROOT, |at, name| enter(&opened, at, name));
    let parent = parent.map_err(|e| failed(path, e))?;
    let unfinished = free_name(&opened, parent).map_err(|e| failed(path, e))?;
    let copied =
        copy(&opened, (parent, &unfinished), &names.join(&b'/'), (&mut *source, mode)).map_err(|e| match e {
            Trouble::Read(e) => anyhow::Error::new(e).context(file.clone()).into(),
            Trouble::Fs(e) => failed(path, e),
        });
    let Opened { fs, waiter } = &opened;
    let placed = copied.and_then(|()| {
        let place = fs.rename(waiter, (parent, &unfinished), (parent, name), Rename::Replace);
        place.and_then(|()| fs.sync(waiter)).map_err(|e| failed(path, e))
    });
    if placed.is_err() {
        // The first error is the one to tell.
        let _ = fs.unlink(waiter, parent, &unfinished).and_then(|()| fs.sync(waiter));
    }
    placed
}

#[cfg(unix)]
fn mode(metadata: &std::fs::Metadata) -> u16 {
    use std::os::unix::fs::PermissionsExt;
    (metadata.permissions().mode() & 0o7777) as u16
}

/// The directory of this name, made if it is missing.
fn enter(opened: &Opened, parent: u64, name: &[u8]) -> Result<u64, FsError> {
    match opened.fs.lookup(parent, name) {
        Err(FsError::NotFound) => {
            opened.fs.create(&opened.waiter, parent, name, &NewFile::new(Kind::Directory, 0o755))
        }
        other => other,
    }
}

enum Trouble {
    Read(io::Error),
    Fs(FsError),
}

/// A name in a directory that nobody has. A put whose machine went down may have left one behind.
fn free_name(opened: &Opened, parent: u64) -> Result<Vec<u8>, FsError> {
    let mut number = 0u64;
    loop {
        let name = format!("{UNFINISHED}{number}").into_bytes();
        match opened.fs.lookup(parent, &name) {
            Err(FsError::NotFound) => return Ok(name),
            other => drop(other?),
        }
        number += 1;
    }
}

fn copy(
    opened: &Opened,
    (parent, name): (u64, &[u8]),
    path: &[u8],
    (source, mode): (&mut (dyn Read + Send), u16),
) -> Result<(), Trouble> {
    let Opened { fs, waiter } = opened;
    let ino = fs.create(waiter, parent, name, &NewFile::new(Kind::File, mode)).map_err(Trouble::Fs)?;
    fs.announce(ino, path).map_err(Trouble::Fs)?;
    let mut offset = 0;
    let read = |buffer: &mut [u8]| fill(source, buffer).map_err(Trouble::Read);
    pipe(piece_bytes(fs), read, |piece| {
        let written = fs.write(waiter, ino, offset, Payload::Bytes(piece)).map_err(Trouble::Fs)?;
        offset += written;
        if written < piece.len() as u64 { Err(Trouble::Fs(FsError::NoSpace)) } else { Ok(()) }
    })?;
    let changes = Changes { mode: Some(mode), ..Changes::default() };
    fs.set_attributes(waiter, ino, &changes).and_then(|()| fs.fsync(waiter, ino)).map_err(Trouble::Fs)
}

/// Reads until the buffer is full or nothing is left.
fn fill(source: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match source.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(length)
}
