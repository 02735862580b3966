//! Writing a directory as an archive.

use super::super::Opened;
use super::super::journey::Journey;
use super::super::kept::{SECOND, skipped, xattrs};
use super::super::ls::entries;
use super::super::pipe::piece_bytes;
use super::{BLOCK, pax};
use crate::exit::Failure;
use crate::interrupt::Interrupted;
use anyhow::Context;
use std::collections::{HashMap, HashSet};
use std::io::Write;
use tar::{EntryType, Header};
use zonal_fs::format::{Attributes, FileKind};
use zonal_fs::{FsError, Seek, Target};

/// Largest numbers that fit into a header.
const SIZE_MAX: u64 = (1 << 33) - 1;
const ID_MAX: u32 = (1 << 21) - 1;

/// Writes the contents of the directory `ino`, and the directory itself as `.`.
pub(super) fn archive(
    opened: &Opened,
    ino: u64,
    out: &mut dyn Write,
    journey: &mut Journey,
) -> Result<(), Failure> {
    let mut archive =
        Archive { opened, out, linked: HashMap::new(), buffer: vec![0; piece_bytes(&opened.fs)] };
    let mut todo = vec![(b".".to_vec(), ino)];
    let mut seen = HashSet::new();
    while let Some((path, ino)) = todo.pop() {
        journey.check()?;
        match archive.entry(&path, ino, journey) {
            Ok(FileKind::Directory) if !seen.insert(ino) => {
                journey.failed(
                    &path,
                    anyhow::anyhow!(
                        "the directory has a second name; check the file system with `zonal fsck`"
                    ),
                )?;
            }
            Ok(FileKind::Directory) => match entries(&opened.fs, ino) {
                Ok(entries) => {
                    let below = entries.into_iter().rev();
                    todo.extend(below.map(|(name, ino)| ([&path[..], b"/", &name].concat(), ino)));
                }
                Err(error) => journey.failed(&path, error.into())?,
            },
            Ok(_) => {}
            Err(Trouble::File(error)) => journey.failed(&path, error.into())?,
            Err(Trouble::Output(error)) if error.is::<Interrupted>() => return Err(error.into()),
            Err(Trouble::Output(error)) => return Err(Journey::ended_by(&path, error)),
        }
    }
    archive.out.write_all(&[0; 2 * BLOCK])?;
    Ok(archive.out.flush()?)
}

struct Archive<'a> {
    opened: &'a Opened,
    out: &'a mut dyn Write,
    /// First path of each file with several names.
    linked: HashMap<u64, Vec<u8>>,
    buffer: Vec<u8>,
}

enum Trouble {
    /// The file cannot be read, and nothing of it is in the archive.
    File(FsError),
    /// The archive cannot be continued.
    Output(anyhow::Error),
}

impl From<FsError> for Trouble {
    fn from(error: FsError) -> Trouble {
        Trouble::File(error)
    }
}

impl Archive<'_> {
    fn entry(&mut self, path: &[u8], ino: u64, journey: &mut Journey) -> Result<FileKind, Trouble> {
        let fs = &self.opened.fs;
        let attributes = fs.attributes(ino)?;
        let first = self.linked.get(&ino).cloned();
        let (kind, link) = match attributes.kind {
            FileKind::Directory => (EntryType::Directory, None),
            FileKind::File | FileKind::Symlink if first.is_some() => (EntryType::Link, first),
            FileKind::Symlink => (EntryType::Symlink, Some(fs.target(ino)?)),
            FileKind::File => (EntryType::Regular, None),
            kind => {
                journey.skipped(path, skipped(kind));
                return Ok(kind);
            }
        };
        let has_data = kind == EntryType::Regular;
        let map = if has_data { self.map(ino, attributes.size)? } else { Vec::new() };
        let stored: u64 = map.iter().map(|(_, length)| length).sum();
        let is_sparse = has_data && stored < attributes.size;
        let mut records = Vec::new();
        for (name, value) in xattrs(fs, ino)? {
            pax::put_xattr(&mut records, &name, &value);
        }
        let mut prefix = Vec::new();
        let mut name = path.to_vec();
        if is_sparse {
            for (key, value) in [("major", "1"), ("minor", "0"), ("realsize", &attributes.size.to_string())] {
                pax::put(&mut records, format!("GNU.sparse.{key}").as_bytes(), value.as_bytes());
            }
            pax::put(&mut records, b"GNU.sparse.name", path);
            name =
                [b"./GNUSparseFile.0/".as_slice(), path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)]
                    .concat();
            // An empty piece at the end carries the size of the file.
            let ranges = map.iter().copied().chain([(attributes.size, 0)]);
            prefix = format!("{}\n", map.len() + 1).into_bytes();
            ranges.for_each(|(at, length)| prefix.extend(format!("{at}\n{length}\n").bytes()));
            prefix.resize(prefix.len().next_multiple_of(BLOCK), 0);
        }
        let size = stored + prefix.len() as u64;
        let mut first = Vec::new();
        let (rest, mut at) = match map.first() {
            // The beginning is read first: damage there is found before the header is written.
            Some((from, length)) => {
                first = self.read(ino, *from, (*length).min(self.buffer.len() as u64) as usize)?.to_vec();
                (map, first.len() as u64)
            }
            None => (map, 0),
        };
        self.header(kind, &name, link.as_deref(), &attributes, size, records).map_err(Trouble::Output)?;
        // The header has promised all of the data, so errors end the archive.
        let damaged = |error: FsError| Trouble::Output(error.into());
        let output = |error: std::io::Error| Trouble::Output(error.into());
        self.out.write_all(&prefix).map_err(output)?;
        self.out.write_all(&first).map_err(output)?;
        for (from, length) in rest {
            while at < length {
                let wanted = (length - at).min(self.buffer.len() as u64) as usize;
                let read = self.read(ino, from + at, wanted).map_err(damaged)?.len();
                self.out.write_all(&self.buffer[..read]).map_err(output)?;
                journey.progress.bytes(read as u64);
                journey.check().map_err(|failure| Trouble::Output(failure.error))?;
                at += read as u64;
            }
            at = 0;
        }
        let padding = size.next_multiple_of(BLOCK as u64) - size;
        self.out.write_all(&[0; BLOCK][..padding as usize]).map_err(output)?;
        if matches!(attributes.kind, FileKind::File | FileKind::Symlink) && attributes.links > 1 {
            self.linked.insert(ino, path.to_vec());
        }
        journey.progress.file();
        Ok(attributes.kind)
    }

    /// Offsets and lengths of the data of a file.
    fn map(&self, ino: u64, size: u64) -> Result<Vec<(u64, u64)>, FsError> {
        let fs = &self.opened.fs;
        let (mut map, mut at) = (Vec::new(), 0);
        while at < size {
            let data = match fs.seek(ino, at, Seek::Data) {
                Err(FsError::NothingThere) => break,
                data => data?,
            };
            at = fs.seek(ino, data, Seek::Hole)?.min(size);
            map.push((data, at - data));
        }
        Ok(map)
    }

    fn read(&mut self, ino: u64, at: u64, length: usize) -> Result<&[u8], FsError> {
        let Opened { fs, waiter } = self.opened;
        let read = fs.read(waiter, ino, at, Target::Bytes(&mut self.buffer[..length]))?;
        // A file system that is opened for reading does not change.
        debug_assert_eq!(read, length as u64);
        Ok(&self.buffer[..length])
    }

    fn header(
        &mut self,
        kind: EntryType,
        path: &[u8],
        link: Option<&[u8]>,
        attributes: &Attributes,
        size: u64,
        mut records: Vec<u8>,
    ) -> anyhow::Result<()> {
        let Attributes { mode, uid, gid, mtime, atime, .. } = *attributes;
        let path = if kind == EntryType::Directory { [path, b"/"].concat() } else { path.to_vec() };
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode.into());
        header.set_uid(uid.min(ID_MAX).into());
        header.set_gid(gid.min(ID_MAX).into());
        header.set_size(size.min(SIZE_MAX));
        header.set_mtime((mtime.div_euclid(SECOND)).clamp(0, SIZE_MAX as i64) as u64);
        let mut number = |key: &str, value: u64, most: u64| {
            if value > most {
                pax::put(&mut records, key.as_bytes(), value.to_string().as_bytes());
            }
        };
        number("uid", uid.into(), ID_MAX.into());
        number("gid", gid.into(), ID_MAX.into());
        number("size", size, SIZE_MAX);
        if mtime < 0 || mtime % SECOND != 0 || mtime / SECOND > SIZE_MAX as i64 {
            pax::put(&mut records, b"mtime", pax::time(mtime).as_bytes());
        }
        pax::put(&mut records, b"atime", pax::time(atime).as_bytes());
        let old = header.as_old_mut();
        for (key, value, field) in
            [("path", Some(&path[..]), &mut old.name), ("linkpath", link, &mut old.linkname)]
        {
            let Some(value) = value else { continue };
            let fits = value.len() <= field.len();
            field[..value.len().min(100)].copy_from_slice(&value[..value.len().min(100)]);
            if !fits || !value.is_ascii() {
                pax::put(&mut records, key.as_bytes(), value);
            }
        }
        header.set_cksum();
        let mut extended = Header::new_ustar();
        extended.set_entry_type(EntryType::XHeader);
        extended.set_size(records.len() as u64);
        extended.set_mode(0o644);
        extended.as_old_mut().name[..9].copy_from_slice(b"./PaxInfo");
        extended.set_cksum();
        records.resize(records.len().next_multiple_of(BLOCK), 0);
        for bytes in [extended.as_bytes(), &records[..], header.as_bytes()] {
            self.out.write_all(bytes).context("standard output")?;
        }
        Ok(())
    }
}
