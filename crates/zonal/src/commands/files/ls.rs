//! `zonal ls`.

use super::{On, Opened, failed, names};
use crate::exit::Failure;
use crate::text::shown;
use clap::Args;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use zonal_fs::format::{Attributes, Kind};
use zonal_fs::{FileSystem, FsError};

/// List files of a file system: permissions, links, bytes, and names
#[derive(Args, Debug)]
pub(crate) struct Ls {
    #[command(flatten)]
    on: On,
    /// A directory, or a file
    #[arg(default_value = "/")]
    path: OsString,
    /// Directories with all that is in them
    #[arg(long, short = 'R')]
    recursive: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Ls, out: &mut dyn Write) -> Result<(), Failure> {
    let Ls { on, path, recursive, json } = arguments;
    let names = names(path)?;
    let Opened { fs, .. } = on.look()?;
    let from = names.join(&b'/');
    let ino = fs.resolve(&from).map_err(|e| failed(path, e))?;
    let attributes = fs.attributes(ino).map_err(|e| failed(path, e))?;
    if attributes.kind != Kind::Directory {
        return print(out, &from, &attributes, *json);
    }
    let mut todo = vec![(ino, Vec::new())];
    let mut seen = HashSet::from([ino]);
    while let Some((directory, prefix)) = todo.pop() {
        let mut below = Vec::new();
        for (name, ino) in entries(&fs, directory).map_err(|e| failed(path, e))? {
            let name = [&prefix[..], &name[..]].concat();
            let attributes = fs.attributes(ino).map_err(|e| failed(OsStr::from_bytes(&name), e))?;
            print(out, &name, &attributes, *json)?;
            if *recursive && attributes.kind == Kind::Directory {
                if !seen.insert(ino) {
                    return Err(anyhow::anyhow!("{}: the directory has another name", shown(&name)).into());
                }
                below.push((ino, [&name[..], b"/"].concat()));
            }
        }
        todo.extend(below.into_iter().rev());
    }
    Ok(())
}

pub(super) fn entries(fs: &FileSystem, directory: u64) -> Result<Vec<(Vec<u8>, u64)>, FsError> {
    let mut entries = Vec::new();
    fs.list(directory, None, |name, entry| {
        entries.push((name.to_vec(), entry.ino));
        ControlFlow::Continue(())
    })?;
    Ok(entries)
}

fn print(out: &mut dyn Write, name: &[u8], attributes: &Attributes, json: bool) -> Result<(), Failure> {
    let Attributes { kind, mode, links, size, mtime, .. } = attributes;
    if json {
        let object = serde_json::json!({
            "name": String::from_utf8_lossy(name),
            "kind": format!("{kind:?}").to_lowercase(),
            "mode": format!("{mode:04o}"),
            "links": links,
            "bytes": size,
            "mtime_ns": mtime,
        });
        return Ok(writeln!(out, "{object}")?);
    }
    let permissions: String =
        (0..9).rev().map(|bit| if mode >> bit & 1 == 1 { ['x', 'w', 'r'][bit % 3] } else { '-' }).collect();
    Ok(writeln!(out, "{}{permissions} {links:>3} {size:>15} {}", letter(*kind), shown(name))?)
}

fn letter(kind: Kind) -> char {
    match kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Pipe => 'p',
        Kind::Socket => 's',
        Kind::Character => 'c',
        Kind::Block => 'b',
    }
}
