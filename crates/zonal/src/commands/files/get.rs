//! `zonal get` and `zonal cat`: copy files out of a file system.

use super::get_tree::{GetTree, copy_out};
use super::journey::Journey;
use super::kept::{keep_on_host, xattrs};
use super::pipe::{piece_bytes, pipe};
use super::salvage::{self, Lost};
use super::{On, Opened, failed, names};
use crate::atomic_file::AtomicFile;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupted;
use crate::text::shown_word;
use anyhow::Context;
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use zonal_fs::format::{Attributes, FileKind};
use zonal_fs::waiter::Polling;
use zonal_fs::{FileSystem, FsError};
use zonal_io::clock::Clock;
use zonal_io::image::is_image;
use zonal_io::standard::{self, Stream};

/// Copy a file, or with -r a directory, out of a file system, verified
///
/// The file gets the permissions, times, extended attributes and holes that it has in the file
/// system, and for root also the owner. It replaces an existing file only once it is complete: if
/// anything fails, or a signal ends the command, FILE is as it was before. The exit code is 3 if
/// data is damaged. If FILE ends with a slash, it is a directory, and the file goes there under its
/// own name. Images, block devices and metadata files are never replaced.
///
/// With -r, FILE becomes the directory; if it exists, the two are merged. Hard and symbolic links
/// are preserved, and no link is followed. Pipes, sockets and devices are skipped with a warning. A
/// file that cannot be copied is reported, the others are copied, and the exit code is 1, or 3 if
/// data is damaged. Each file appears only once it is complete.
#[derive(Args, Debug)]
pub(crate) struct Get {
    #[command(flatten)]
    on: On,
    /// File to copy
    path: OsString,
    /// Destination, or `-` for standard output
    file: OsString,
    /// Write zeroes for blocks that are unreadable or damaged; each is reported, and the exit code
    /// is 3
    #[arg(long)]
    salvage: bool,
    /// Copy a directory with its contents
    #[arg(long, short)]
    recursive: bool,
}

/// Print files of a file system, verified
///
/// The command stops at the first error. The exit code is 3 if data is damaged.
#[derive(Args, Debug)]
pub(crate) struct Cat {
    #[command(flatten)]
    on: On,
    /// Files to print
    #[arg(required = true)]
    paths: Vec<OsString>,
}

pub(crate) fn run_cat(arguments: &Cat, out: &mut dyn Write) -> Result<(), Failure> {
    standard::check(Stream::Output)?;
    let Opened { fs, .. } = arguments.on.look()?;
    for path in &arguments.paths {
        let (ino, waiter) = (file_at(&fs, path)?.0, Polling::new(Clock::start()));
        let source = Source { fs: &fs, waiter, ino, path, offset: 0, lost: None };
        copy(source, OsStr::new("-"), out)?;
    }
    Ok(())
}

/// Finds the regular file at a path.
fn file_at(fs: &FileSystem, path: &OsStr) -> Result<(u64, Attributes), Failure> {
    let ino = fs.resolve(&names(path)?.join(&b'/')).map_err(|e| failed(path, e))?;
    let attributes = fs.attributes(ino).map_err(|e| failed(path, e))?;
    match attributes.kind {
        FileKind::File => Ok((ino, attributes)),
        FileKind::Directory => {
            Err(anyhow::anyhow!("{}: is a directory; use `zonal get -r` to copy it", shown_word(path)).into())
        }
        _ => Err(anyhow::anyhow!("{}: not a regular file", shown_word(path)).into()),
    }
}

pub(crate) fn run(arguments: &Get, out: &mut dyn Write) -> Result<(), Failure> {
    let Get { on, path, file, salvage, recursive } = arguments;
    let mut target = PathBuf::from(file);
    if file.as_bytes().ends_with(b"/") {
        // The root has no name of its own, so its contents go there.
        target.extend(names(path)?.last().map(|own| OsStr::from_bytes(own)));
        let above = if names(path)?.is_empty() { None } else { target.parent() };
        above.map_or(Ok(()), std::fs::create_dir_all).with_context(|| shown_word(file))?;
    }
    if *recursive && file == "-" {
        return Err(Failure::usage(
            "-: a directory cannot be written to standard output; use `zonal tar --create`",
        ));
    }
    let opened = on.look()?;
    if *recursive {
        let names = names(path)?.join(&b'/');
        let ino = opened.fs.resolve(&names).map_err(|e| failed(path, e))?;
        if opened.fs.attributes(ino).map_err(|e| failed(path, e))?.kind == FileKind::Directory {
            return GetTree::new(&opened, names, *salvage)?.get(ino, &target);
        }
    }
    let file = &target.into_os_string();
    let place = OutputPlace::of(file, on.metadata.as_deref())?;
    let Opened { fs, waiter } = opened;
    let (ino, attributes) = file_at(&fs, path)?;
    let lost = Lost::default();
    let lost_if_wanted = salvage.then_some(&lost);
    let source = Source { fs: &fs, waiter, ino, path, offset: 0, lost: lost_if_wanted };
    match place {
        OutputPlace::Output => copy(source, file, out),
        OutputPlace::Stream(path) => {
            let mut stream = File::options().write(true).open(path).with_context(|| shown_word(file))?;
            copy(source, file, &mut stream)
        }
        OutputPlace::File(to) => {
            // From now on a signal is an error like any other, and leaves nothing of the new file.
            let mut journey = Journey::begin("get", format!("{} is unchanged", shown_word(file)))?;
            let mut whole = AtomicFile::create(to, 0o600).with_context(|| shown_word(file))?;
            journey.progress.expect(attributes.size);
            let mut buffer = vec![0; piece_bytes(&fs)];
            let from = (ino, attributes.size);
            let copied = copy_out(&fs, from, &*whole.file(), &mut buffer, lost_if_wanted, |bytes| {
                journey.lost(path.as_bytes(), &lost);
                journey.progress.bytes(bytes);
                journey.check()
            });
            copied.map_err(|error| match error.downcast::<FsError>() {
                Ok(error) => failed(path, error),
                Err(error) if error.is::<Interrupted>() => error.into(),
                Err(error) => error.context(shown_word(file)).into(),
            })?;
            journey.check()?;
            // The properties in the file system are those of the file that was put there.
            let kept = xattrs(&fs, ino).map_err(|e| failed(path, e))?;
            keep_on_host(&*whole.file(), &attributes, &kept).with_context(|| shown_word(file))?;
            Ok(whole.commit().with_context(|| shown_word(file))?)
        }
    }?;
    match lost.blocks() {
        0 => Ok(()),
        blocks => Err(Failure {
            exit: Exit::Verify,
            error: anyhow::anyhow!("{}: {}", shown_word(path), salvage::lost(blocks)),
        }),
    }
}

/// Destination of the data.
#[derive(Debug)]
enum OutputPlace<'a> {
    Output,
    /// Something that takes a stream of bytes and keeps none, such as a pipe or a terminal.
    Stream(&'a Path),
    /// File that is created or replaced.
    File(&'a Path),
}

/// First bytes of a metadata file.
const METADATA_MAGIC: &[u8] = b"zonal-db";

impl OutputPlace<'_> {
    /// Fails if the file at the destination must not be replaced. `metadata` is the metadata file
    /// in use.
    fn of<'a>(file: &'a OsStr, metadata: Option<&Path>) -> Result<OutputPlace<'a>, Failure> {
        let path = Path::new(file);
        let refused = |why: &str| Err(Failure::usage(format!("{}: {why}", shown_word(file))));
        if file == "-" {
            standard::check(Stream::Output)?;
            return Ok(OutputPlace::Output);
        }
        let there = match path.metadata() {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(OutputPlace::File(path)),
            Err(error) => return Err(anyhow::Error::new(error).context(shown_word(file)).into()),
        };
        let kind = there.file_type();
        if kind.is_block_device() {
            return refused("a block device, which is never replaced");
        }
        if kind.is_dir() {
            return refused("is a directory; append the name of the file");
        }
        if !kind.is_file() {
            return Ok(OutputPlace::Stream(path));
        }
        let is_it = |other: Metadata| (other.dev(), other.ino()) == (there.dev(), there.ino());
        if metadata.is_some_and(|metadata| metadata.metadata().is_ok_and(is_it)) {
            return refused("the metadata of the file system, which is never replaced");
        }
        match begins_with(path, METADATA_MAGIC) {
            _ if is_image(path) => refused("an image, which is never replaced"),
            Ok(true) => refused("metadata of a file system, which is never replaced"),
            Ok(false) => Ok(OutputPlace::File(path)),
            Err(error) => refused(&format!("cannot determine if it is an image: {error}")),
        }
    }
}

fn begins_with(path: &Path, magic: &[u8]) -> io::Result<bool> {
    let mut begin = Vec::new();
    File::open(path)?.take(magic.len() as u64).read_to_end(&mut begin)?;
    Ok(begin == magic)
}

/// File that is read sequentially.
struct Source<'a> {
    fs: &'a FileSystem,
    waiter: Polling,
    ino: u64,
    path: &'a OsStr,
    offset: u64,
    /// Collects lost blocks; if `None`, they are an error.
    lost: Option<&'a Lost>,
}

impl Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Failure> {
        let Source { fs, waiter, ino, path, offset, lost } = self;
        let read = salvage::read(fs, waiter, (*ino, *offset), buffer, *lost).map_err(|e| failed(path, e))?;
        self.offset += read;
        Ok(read as usize)
    }
}

fn copy(mut source: Source<'_>, file: &OsStr, out: &mut dyn Write) -> Result<(), Failure> {
    let bytes = piece_bytes(source.fs);
    let (path, lost) = (source.path, source.lost);
    let read = move |buffer: &mut [u8]| source.read(buffer);
    pipe(bytes, read, |piece| {
        lost.iter().for_each(|lost| lost.tell(path.as_bytes(), || {}));
        Ok(out.write_all(piece).with_context(|| shown_word(file))?)
    })?;
    Ok(out.flush().with_context(|| shown_word(file))?)
}
