//! `zonal get`.

use super::pipe::{piece_bytes, pipe};
use super::{On, Opened, failed, names};
use crate::exit::Failure;
use anyhow::Context;
use clap::Args;
use std::fs::File;
use std::io::Write;
use zonal_fs::Target;
use zonal_fs::format::Kind;

/// Copy a file out of a file system, verified
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
    let mut created;
    let out: &mut dyn Write = match file.as_str() {
        "-" => out,
        _ => {
            created = File::create(file).with_context(|| file.clone())?;
            &mut created
        }
    };
    let mut offset = 0;
    let bytes = piece_bytes(&fs);
    let read = move |buffer: &mut [u8]| {
        let read = fs.read(&waiter, ino, offset, Target::Bytes(buffer)).map_err(|e| failed(path, e))?;
        offset += read;
        Ok::<usize, Failure>(read as usize)
    };
    pipe(bytes, read, |piece| Ok(out.write_all(piece).with_context(|| file.clone())?))?;
    Ok(out.flush().with_context(|| file.clone())?)
}
