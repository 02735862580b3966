//! `zonal get`.

use super::pipe::{piece_bytes, pipe};
use super::{On, Opened, failed, names};
use crate::exit::Failure;
use crate::whole::Whole;
use anyhow::Context;
use clap::Args;
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use zonal_fs::format::Kind;
use zonal_fs::waiter::Polling;
use zonal_fs::{FileSystem, Target};

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
}

pub(crate) fn run(arguments: &Get, out: &mut dyn Write) -> Result<(), Failure> {
    let Get { on, path, file } = arguments;
    let names = names(path)?.join(&b'/');
    let Opened { fs, waiter } = on.open()?;
    let ino = fs.resolve(&names).map_err(|e| failed(path, e))?;
    let attributes = fs.attributes(ino).map_err(|e| failed(path, e))?;
    if attributes.kind != Kind::File {
        return Err(anyhow::anyhow!("{path}: it is no file with data").into());
    }
    let copy = |out: &mut dyn Write| copy(&fs, waiter, ino, (path, file), out);
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

fn copy(
    fs: &FileSystem,
    waiter: Polling,
    ino: u64,
    (path, file): (&str, &str),
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut offset = 0;
    let read = move |buffer: &mut [u8]| {
        let read = fs.read(&waiter, ino, offset, Target::Bytes(buffer)).map_err(|e| failed(path, e))?;
        offset += read;
        Ok::<usize, Failure>(read as usize)
    };
    pipe(piece_bytes(fs), read, |piece| Ok(out.write_all(piece).with_context(|| file.to_owned())?))?;
    Ok(out.flush().with_context(|| file.to_owned())?)
}
