//! `zonal get`.

use super::pipe::{piece_bytes, pipe};
use super::{On, Opened, failed, names};
use crate::exit::{Exit, Failure};
use crate::whole::Whole;
use anyhow::Context;
use clap::Args;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use zonal_fs::format::Kind;
use zonal_fs::waiter::Polling;
use zonal_fs::{BLOCK_BYTES, FileSystem, FsError, Target};

/// Copy a file out of a file system, verified
///
/// The file is there as a whole, with the permissions that it has in the file system, or, if anything fails, as it was before.
#[derive(Args, Debug)]
pub(crate) struct Get {
    #[command(flatten)]
    on: On,
    /// Which file
    path: String,
    /// Where it goes; `-` is standard output
    file: String,
    /// Go on where blocks cannot be read or are not what was written: they become zeroes, each is told, and the exit is 3
    #[arg(long)]
    salvage: bool,
}

pub(crate) fn run(arguments: &Get, out: &mut dyn Write) -> Result<(), Failure> {
    let Get { on, path, file, salvage } = arguments;
    let names = names(path)?.join(&b'/');
    let Opened { fs, waiter } = on.open()?;
    let ino = fs.resolve(&names).map_err(|e| failed(path, e))?;
    let attributes = fs.attributes(ino).map_err(|e| failed(path, e))?;
    if attributes.kind != Kind::File {
        return Err(anyhow::anyhow!("{path}: it is no file with data").into());
    }
    let lost = AtomicU64::new(0);
    let source = Source { fs: &fs, waiter, ino, path, offset: 0, lost: salvage.then_some(&lost) };
    let copy = |out: &mut dyn Write| copy(source, file, out);
    match Place::of(file) {
        Place::Output => copy(out),
        Place::There(path) => {
            copy(&mut File::options().write(true).open(path).with_context(|| file.clone())?)
        }
        Place::New(path) => {
            let mut whole = Whole::create(path).with_context(|| file.clone())?;
            let mode = Permissions::from_mode(attributes.mode.into());
            copy(whole.file()).and_then(|()| {
                // As it is in the file system, which is how it was put.
                whole
                    .file()
                    .set_permissions(mode)
                    .and_then(|()| whole.commit())
                    .with_context(|| file.clone())?;
                Ok(())
            })
        }
    }?;
    match lost.into_inner() {
        0 => Ok(()),
        blocks => Err(Failure {
            exit: Exit::Verify,
            error: anyhow::anyhow!("{path}: {blocks} blocks of 4 KiB are lost, and zeroes in the copy"),
        }),
    }
}

/// Where the bytes go.
enum Place<'a> {
    Output,
    /// What is there and is no file, such as a pipe.
    There(&'a Path),
    /// A file, which is made or replaced.
    New(&'a Path),
}

impl Place<'_> {
    fn of(file: &str) -> Place<'_> {
        let path = Path::new(file);
        match path.metadata() {
            _ if file == "-" => Place::Output,
            Ok(there) if !there.is_file() => Place::There(path),
            _ => Place::New(path),
        }
    }
}

/// A file that is read from its start on.
struct Source<'a> {
    fs: &'a FileSystem,
    waiter: Polling,
    ino: u64,
    path: &'a str,
    offset: u64,
    /// Blocks that were lost, if that is no reason to end.
    lost: Option<&'a AtomicU64>,
}

impl Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Failure> {
        let Source { fs, waiter, ino, path, offset, lost } = self;
        let read = match (fs.read(waiter, *ino, *offset, Target::Bytes(buffer)), *lost) {
            (Err(error), Some(lost)) if is_lost(&error) => self.read_by_blocks(buffer, lost)?,
            (read, _) => read.map_err(|e| failed(path, e))?,
        };
        self.offset += read;
        Ok(read as usize)
    }

    /// Reads each block by itself; those that cannot be are zeroes.
    fn read_by_blocks(&self, buffer: &mut [u8], lost: &AtomicU64) -> Result<u64, Failure> {
        let Source { fs, waiter, ino, path, offset, .. } = self;
        let size = fs.attributes(*ino).map_err(|e| failed(path, e))?.size;
        let length = size.saturating_sub(*offset).min(buffer.len() as u64);
        let blocks = buffer[..length as usize].chunks_mut(BLOCK_BYTES as usize);
        for (at, block) in (*offset..).step_by(BLOCK_BYTES as usize).zip(blocks) {
            match fs.read(waiter, *ino, at, Target::Bytes(block)) {
                Err(error) if is_lost(&error) => {
                    block.fill(0);
                    lost.fetch_add(1, Ordering::Relaxed);
                    // Nobody has to read it.
                    let _ = writeln!(io::stderr(), "{path}: {error}");
                }
                read => drop(read.map_err(|e| failed(path, e))?),
            }
        }
        Ok(length)
    }
}

/// Whether data is not there, or not what was written, and the rest of the file may be.
fn is_lost(error: &FsError) -> bool {
    matches!(
        error,
        FsError::Read { .. } | FsError::Checksum { .. } | FsError::Unit { .. } | FsError::Gone { .. }
    )
}

fn copy(mut source: Source<'_>, file: &str, out: &mut dyn Write) -> Result<(), Failure> {
    let bytes = piece_bytes(source.fs);
    let read = move |buffer: &mut [u8]| source.read(buffer);
    pipe(bytes, read, |piece| Ok(out.write_all(piece).with_context(|| file.to_owned())?))?;
    Ok(out.flush().with_context(|| file.to_owned())?)
}
