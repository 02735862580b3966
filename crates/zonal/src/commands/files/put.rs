//! `zonal put`.

use super::pipe::{piece_bytes, pipe};
use super::{On, Opened, failed, names};
use crate::exit::Failure;
use anyhow::Context;
use clap::Args;
use std::fs::File;
use std::io::{self, Read};
use zonal_fs::format::Kind;
use zonal_fs::{FsError, NewFile, Payload, ROOT, Rename};

/// What a name begins with that a file has for a moment before it takes the place of another.
const SPARE: &str = ".zonal-put.";

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
    let Opened { fs, waiter } = &opened;
    let new = NewFile::new(Kind::File, mode);
    let new = fs.create_unnamed(waiter, &new).map_err(|e| failed(path, e))?;
    let ino = new.ino();
    let copied = copy(&opened, ino, &names.join(&b'/'), &mut *source).map_err(|e| match e {
        Trouble::Read(e) => anyhow::Error::new(e).context(file.clone()).into(),
        Trouble::Fs(e) => failed(path, e),
    });
    let placed = copied.and_then(|()| place(&opened, ino, parent, name).map_err(|e| failed(path, e)));
    // What got no name goes with this. The first error is the one to tell.
    let closed = new.close(waiter).and_then(|()| fs.sync(waiter));
    placed.and_then(|()| closed.map_err(|e| failed(path, e)))
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

/// Gives a file its name, in one commit with all that it takes.
fn place(opened: &Opened, ino: u64, parent: u64, name: &[u8]) -> Result<(), FsError> {
    let Opened { fs, waiter } = opened;
    match fs.link(waiter, ino, parent, name) {
        Err(FsError::Exists) => {}
        other => return other,
    }
    let mut number = 0u64;
    loop {
        let spare = format!("{SPARE}{number}").into_bytes();
        match fs.link(waiter, ino, parent, &spare) {
            Err(FsError::Exists) => number += 1,
            linked => {
                linked?;
                let replaced = fs.rename(waiter, (parent, &spare), (parent, name), Rename::Replace);
                return replaced.or_else(|error| fs.unlink(waiter, parent, &spare).and(Err(error)));
            }
        }
    }
}

fn copy(opened: &Opened, ino: u64, path: &[u8], source: &mut (dyn Read + Send)) -> Result<(), Trouble> {
    let Opened { fs, waiter } = opened;
    fs.announce(ino, path).map_err(Trouble::Fs)?;
    let mut offset = 0;
    let read = |buffer: &mut [u8]| fill(source, buffer).map_err(Trouble::Read);
    pipe(piece_bytes(fs), read, |piece| {
        let written = fs.write(waiter, ino, offset, Payload::Bytes(piece)).map_err(Trouble::Fs)?;
        offset += written;
        if written < piece.len() as u64 { Err(Trouble::Fs(FsError::NoSpace)) } else { Ok(()) }
    })?;
    fs.fsync(waiter, ino).map_err(Trouble::Fs)
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
