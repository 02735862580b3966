//! `zonal put`.

use super::pipe::{piece_bytes, pipe};
use super::{OnToWrite, Opened, failed, names};
use crate::exit::Failure;
use crate::text::shown_word;
use anyhow::Context;
use clap::Args;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use zonal_fs::format::Kind;
use zonal_fs::{Changes, FileSystem, FsError, NewFile, Payload, ROOT, SetTime};

/// Copy a file into a file system, replacing what has its name
///
/// One file: a directory is refused. Directories that are missing on the way are made. The file keeps its permissions, and the times of
/// its last read and change. It is there as a whole or, if anything fails or a signal ends the
/// command, not at all, and what had its name is as it was; when the command ends it is durable.
#[derive(Args, Debug)]
pub(crate) struct Put {
    #[command(flatten)]
    on: OnToWrite,
    /// File to copy; `-` is standard input
    file: OsString,
    /// Where it goes
    path: OsString,
}

pub(crate) fn run(arguments: &Put) -> Result<(), Failure> {
    let Put { on, file, path } = arguments;
    let names = names(path)?;
    let Some((name, directories)) = names.split_last() else {
        return Err(Failure::usage(format!("{}: a file needs a name", shown_word(path))));
    };
    let (mut source, kept): (Box<dyn Read + Send>, Changes) = match file.as_bytes() {
        b"-" => (Box::new(io::stdin()), Changes { mode: Some(0o644), ..Changes::default() }),
        _ => {
            let opened = File::open(file).with_context(|| shown_word(file))?;
            let kept = kept(&opened.metadata().with_context(|| shown_word(file))?);
            (Box::new(opened), kept)
        }
    };
    let opened = on.open()?;
    let Opened { fs, waiter } = &opened;
    check(fs, directories, name).map_err(|e| failed(path, e))?;
    // Until it is whole it has no name: of a command that is killed nothing is left.
    let new = fs.create_unnamed(waiter, &NewFile::new(Kind::File, 0o600)).map_err(|e| failed(path, e))?;
    let copied = copy(&opened, new.ino(), &names.join(&b'/'), &mut *source).map_err(|e| match e {
        Trouble::Read(e) => anyhow::Error::new(e).context(shown_word(file)).into(),
        Trouble::Fs(e) => failed(path, e),
    });
    let placed = copied.and_then(|()| {
        // Writes change the times, and take set-id bits away.
        let kept = fs.set_attributes(waiter, new.ino(), &kept);
        kept.and_then(|_| place(&opened, new.ino(), directories, name)).map_err(|e| failed(path, e))
    });
    // What got no name goes with this. The first error is the one to tell.
    let closed = new.close(waiter).and_then(|()| fs.sync(waiter));
    placed.and_then(|()| closed.map_err(|e| failed(path, e)))
}

/// What the copy keeps of the file, apart from its bytes.
fn kept(metadata: &Metadata) -> Changes {
    // A time that does not fit is the first or the last that does.
    let time = |seconds: i64, nanos: i64| {
        Some(SetTime::At(seconds.saturating_mul(1_000_000_000).saturating_add(nanos)))
    };
    Changes {
        mode: Some((metadata.mode() & 0o7777) as u16),
        atime: time(metadata.atime(), metadata.atime_nsec()),
        mtime: time(metadata.mtime(), metadata.mtime_nsec()),
        ..Changes::default()
    }
}

/// An error if the file cannot have its place, as things are: that is said before all of it is copied.
fn check(fs: &FileSystem, directories: &[&[u8]], name: &[u8]) -> Result<(), FsError> {
    let mut at = ROOT;
    for directory in directories {
        match fs.lookup(at, directory) {
            Err(FsError::NotFound) => return Ok(()),
            found => at = found?,
        }
    }
    let there = match fs.lookup(at, name) {
        Err(FsError::NotFound) => return Ok(()),
        found => fs.attributes(found?)?,
    };
    if there.kind == Kind::Directory { Err(FsError::IsDirectory) } else { Ok(()) }
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

/// Gives a file its name, in place of another's, and makes the directories that are missing.
fn place(opened: &Opened, ino: u64, directories: &[&[u8]], name: &[u8]) -> Result<(), FsError> {
    let parent = directories.iter().try_fold(ROOT, |at, name| enter(opened, at, name))?;
    opened.fs.link_over(&opened.waiter, ino, parent, name)
}

enum Trouble {
    Read(io::Error),
    Fs(FsError),
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
