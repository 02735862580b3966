//! `zonal ls`: lists files.

use super::{On, Opened, failed, names};
use crate::exit::Failure;
use crate::text::shown;
use crate::value::rounded;
use clap::Args;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use zonal_fs::format::{Attributes, FileKind};
use zonal_fs::{FileSystem, FsError};

/// List files with permissions, links and sizes; with -l also owners and dates
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Ls {
    #[command(flatten)]
    on: On,
    /// Directory or file
    #[arg(default_value = "/")]
    path: OsString,
    /// List subdirectories as well
    #[arg(long, short = 'R')]
    recursive: bool,
    /// Also print numeric owners and groups, modification times in UTC, and targets of symbolic links
    #[arg(long, short, conflicts_with = "json")]
    long: bool,
    /// Print sizes as 4.0K, 1.5M or 2.0G, in powers of 1024
    #[arg(long, short = 'h', conflicts_with = "json")]
    human_readable: bool,
    /// Accepted for compatibility: names that begin with a dot are always listed
    #[arg(long, short = 'a')]
    all: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Format of a listing.
#[derive(Clone, Copy)]
enum Form {
    Short(SizeForm),
    Long(SizeForm),
    Json,
}

/// Format of a size.
type SizeForm = fn(u64) -> String;

pub(crate) fn run(arguments: &Ls, out: &mut dyn Write) -> Result<(), Failure> {
    // All names are listed in any case.
    let Ls { on, path, recursive, long, human_readable, all: _, json, help: _ } = arguments;
    let size: SizeForm = if *human_readable { rounded } else { |bytes| bytes.to_string() };
    let form = match (long, json) {
        (_, true) => Form::Json,
        (true, _) => Form::Long(size),
        _ => Form::Short(size),
    };
    let names = names(path)?;
    let Opened { fs, .. } = on.look()?;
    let from = names.join(&b'/');
    let ino = fs.resolve(&from).map_err(|e| failed(path, e))?;
    let attributes = fs.attributes(ino).map_err(|e| failed(path, e))?;
    if attributes.kind != FileKind::Directory {
        return print(out, &fs, (&from, ino), &attributes, form);
    }
    let mut todo = vec![(ino, Vec::new())];
    let mut seen = HashSet::from([ino]);
    while let Some((directory, prefix)) = todo.pop() {
        let mut below = Vec::new();
        for (name, ino) in entries(&fs, directory).map_err(|e| failed(path, e))? {
            let name = [&prefix[..], &name[..]].concat();
            let attributes = fs.attributes(ino).map_err(|e| failed(OsStr::from_bytes(&name), e))?;
            print(out, &fs, (&name, ino), &attributes, form)?;
            if *recursive && attributes.kind == FileKind::Directory {
                if !seen.insert(ino) {
                    return Err(anyhow::anyhow!(
                        "{}: the directory has a second name; check the file system with `zonal fsck`",
                        shown(&name)
                    )
                    .into());
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

fn print(
    out: &mut dyn Write,
    fs: &FileSystem,
    (name, ino): (&[u8], u64),
    attributes: &Attributes,
    form: Form,
) -> Result<(), Failure> {
    let Attributes { kind, mode, links, size, mtime, uid, gid, .. } = attributes;
    let target = match (kind, form) {
        (FileKind::Symlink, Form::Long(_) | Form::Json) => {
            Some(fs.target(ino).map_err(|e| failed(OsStr::from_bytes(name), e))?)
        }
        _ => None,
    };
    match form {
        Form::Json => {
            let object = serde_json::json!({
                "name": String::from_utf8_lossy(name),
                "kind": format!("{kind:?}").to_lowercase(),
                "mode": format!("{mode:04o}"),
                "links": links,
                "uid": uid,
                "gid": gid,
                "bytes": size,
                "mtime_ns": mtime,
                "target": target.as_deref().map(String::from_utf8_lossy),
            });
            writeln!(out, "{object}")?;
        }
        Form::Short(size_form) => {
            let size = size_form(*size);
            writeln!(out, "{}{} {links:>3} {size:>15} {}", letter(*kind), permissions(*mode), shown(name))?;
        }
        Form::Long(size_form) => {
            let size = size_form(*size);
            let time = time(*mtime);
            let target = target.map_or(String::new(), |target| format!(" -> {}", shown(&target)));
            let permissions = permissions(*mode);
            writeln!(
                out,
                "{}{permissions} {links:>3} {uid:>5} {gid:>5} {size:>15} {time} {}{target}",
                letter(*kind),
                shown(name)
            )?;
        }
    }
    Ok(())
}

/// Formats permissions like `ls`, with set-id and sticky bits.
fn permissions(mode: u16) -> String {
    let of_class = |class: u16, special: u16, set: [char; 2]| {
        let bits = mode >> (3 * class) & 0o7;
        let last = match (mode & special != 0, bits & 1 != 0) {
            (false, true) => 'x',
            (false, false) => '-',
            (true, runs) => set[usize::from(runs)],
        };
        [if bits & 4 != 0 { 'r' } else { '-' }, if bits & 2 != 0 { 'w' } else { '-' }, last]
    };
    let classes =
        [of_class(2, 0o4000, ['S', 's']), of_class(1, 0o2000, ['S', 's']), of_class(0, 0o1000, ['T', 't'])];
    classes.iter().flatten().collect()
}

/// Formats a time in UTC to the minute, or in seconds since 1970 if the year has more than four
/// digits.
fn time(nanos: i64) -> String {
    let seconds = nanos.div_euclid(1_000_000_000);
    match time::OffsetDateTime::from_unix_timestamp(seconds) {
        Ok(at) => {
            let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
            format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", at.hour(), at.minute())
        }
        Err(_) => format!("{seconds:>16}"),
    }
}

fn letter(kind: FileKind) -> char {
    match kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Pipe => 'p',
        FileKind::Socket => 's',
        FileKind::Character => 'c',
        FileKind::Block => 'b',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_those_of_ls() {
        for (mode, expected) in [
            (0o755, "rwxr-xr-x"),
            (0o4755, "rwsr-xr-x"),
            (0o2640, "rw-r-S---"),
            (0o1777, "rwxrwxrwt"),
            (0o7000, "--S--S--T"),
            (0, "---------"),
        ] {
            assert_eq!(permissions(mode), expected);
        }
    }

    #[test]
    fn times_are_utc() {
        for (nanos, expected) in [
            (0, "1970-01-01 00:00"),
            (-1, "1969-12-31 23:59"),
            (981_173_106_789_012_345, "2001-02-03 04:05"),
            (i64::MAX, "2262-04-11 23:47"),
            (i64::MIN, "1677-09-21 00:12"),
        ] {
            assert_eq!(time(nanos), expected);
        }
    }
}
