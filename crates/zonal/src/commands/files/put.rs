//! `zonal put`: copies files into a file system.

use super::pipe::{piece_bytes, pipe};
use super::put_tree::{PutTree, enter};
use super::{OnToWrite, Opened, failed, names, own};
use crate::exit::Failure;
use crate::interrupt::Interrupted;
use crate::text::shown_word;
use anyhow::Context;
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use zonal_fs::format::FileKind;
use zonal_fs::{FileSystem, FsError, Payload, ROOT};
use zonal_io::standard::{self, Stream};

/// Copy a file, or with -r a directory, into a file system
///
/// Missing directories of PATH are created. If PATH ends with a slash, it is a directory, and the
/// file goes there under its own name. The file keeps its permissions, owner, extended attributes
/// and holes, and the times of its last read and change. It replaces an existing file only once it
/// is complete: if anything fails, or a signal ends the command, an existing file stays as it was.
/// When the command ends, the file is durable.
///
/// With -r, PATH becomes the directory; if it exists, the two are merged. Hard and symbolic links
/// are preserved. Pipes, sockets and devices are skipped with a warning. A file that cannot be
/// copied is reported, the others are copied, and the exit code is 1. Each file appears only once
/// it is complete; all are durable when the command ends.
#[derive(Args, Debug)]
pub(crate) struct Put {
    #[command(flatten)]
    on: OnToWrite,
    /// File to copy, or `-` for standard input
    file: OsString,
    /// Destination in the file system
    path: OsString,
    /// Copy a directory with its contents
    #[arg(long, short)]
    recursive: bool,
}

pub(crate) fn run(arguments: &Put) -> Result<(), Failure> {
    let Put { on, file, path, recursive } = arguments;
    let mut names = names(path)?;
    let is_input = file == "-";
    if is_input {
        standard::check(Stream::Input)?;
    }
    // `a/.` stands for the contents of the directory `a`.
    let is_content = file == "." || file.as_bytes().ends_with(b"/.");
    let nameless = || Failure::usage(format!("{}: no file name; append one to the path", shown_word(path)));
    let own_name = if is_input || is_content { None } else { Path::new(file).file_name() };
    if path.as_bytes().ends_with(b"/") {
        match own_name {
            Some(own_name) => names.push(own_name.as_bytes()),
            None if *recursive && is_content => {}
            None => return Err(nameless()),
        }
    }
    let source = if is_input { None } else { Some(Path::new(file)) };
    let kind = source.map(|source| source.metadata().with_context(|| shown_word(file))).transpose()?;
    let is_directory = kind.as_ref().is_some_and(|kind| kind.is_dir());
    if is_directory && !recursive {
        return Err(anyhow::anyhow!(
            "{}: Is a directory; use -r to copy it with its contents",
            shown_word(file)
        )
        .into());
    }
    let Some((name, directories)) = names.split_last().filter(|_| !is_directory) else {
        let (Some(source), true) = (source, is_directory) else {
            return Err(nameless());
        };
        let opened = on.open()?;
        let made = names.iter().try_fold(ROOT, |at, name| enter(&opened, at, name, 0o755));
        let ino = made.map_err(|e| failed(path, e))?;
        let tree = PutTree::new(&opened)?;
        tree.expect_tree(source);
        let put = tree.put_directory(source, ino, &names.join(&b'/'));
        let synced = opened.fs.sync(&opened.waiter);
        return put.and_then(|()| synced.map_err(|e| failed(path, e)));
    };
    let opened = on.open()?;
    let Opened { fs, waiter } = &opened;
    check(fs, directories, name).map_err(|e| failed(path, e))?;
    let place = || directories.iter().try_fold(ROOT, |at, name| enter(&opened, at, name, 0o755));
    let put = match (source, kind) {
        (Some(source), Some(kind)) if kind.is_file() => {
            PutTree::of_one(&opened)?.put_file(source, &names.join(&b'/'), place).map_err(|error| {
                let error = match error.downcast::<FsError>() {
                    Ok(error) => return failed(path, error),
                    Err(error) => error,
                };
                // An interruption describes the state itself.
                if error.is::<Interrupted>() { error.into() } else { error.context(shown_word(file)).into() }
            })
        }
        _ => stream(&opened, source, (path, &names.join(&b'/')), || Ok((place()?, name.to_vec()))),
    };
    put.and_then(|()| fs.sync(waiter).map_err(|e| failed(path, e)))
}

/// Copies standard input, a pipe or a device.
fn stream(
    opened: &Opened,
    source: Option<&Path>,
    (path, full): (&OsStr, &[u8]),
    place: impl Fn() -> Result<(u64, Vec<u8>), FsError>,
) -> Result<(), Failure> {
    let Opened { fs, waiter } = opened;
    let mut from: Box<dyn Read + Send> = match source {
        None => Box::new(io::stdin()),
        Some(source) => Box::new(File::open(source).with_context(|| shown_word(source.as_os_str()))?),
    };
    // The file gets its name once it is complete, so a killed command leaves nothing.
    let new = fs.create_unnamed(waiter, &own(FileKind::File, 0o644)).map_err(|e| failed(path, e))?;
    let copied = copy(opened, new.ino(), full, &mut *from).map_err(|e| match e {
        Trouble::Read(e) => {
            anyhow::Error::new(e).context(shown_word(source.map_or(OsStr::new("-"), Path::as_os_str))).into()
        }
        Trouble::Fs(e) => failed(path, e),
    });
    let placed = copied.and_then(|()| {
        let (parent, name) = place().map_err(|e| failed(path, e))?;
        fs.link_over(waiter, new.ino(), parent, &name).map_err(|e| failed(path, e))
    });
    // Closing removes a file that was not linked. The first error is reported.
    let closed = new.close(waiter);
    placed.and_then(|()| closed.map_err(|e| failed(path, e)))
}

/// Fails if the file cannot be placed as things are, before all of it is copied.
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
    if there.kind == FileKind::Directory { Err(FsError::IsDirectory) } else { Ok(()) }
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

/// Reads until the buffer is full or the input ends.
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
