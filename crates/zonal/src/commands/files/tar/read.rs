//! Extracting an archive into a directory.

use super::super::journey::Journey;
use super::super::kept::{Xattr, is_of_attribute, set_xattrs, skipped};
use super::super::put_tree::{UNNAMED_MAX, Unnamed, enter, name_all, replace_link};
use super::super::{Opened, pipe::piece_bytes};
use super::pax::Records;
use super::{BLOCK, PIECES_MAX};
use crate::exit::Failure;
use anyhow::{Context, anyhow, bail};
use std::collections::HashSet;
use std::io::Read;
use tar::{EntryType, GnuExtSparseHeader, Header};
use zonal_fs::format::FileKind;
use zonal_fs::{Changes, FsError, NewFile, Payload, SetIds, SetTime};

/// Maximum bytes of records and of long names.
const RECORDS_MAX: u64 = 1 << 20;

/// Maximum bytes read after the end of an archive: a record of GNU tar, which has 10 KiB unless its
/// user sets another size.
const RECORD_MAX: usize = 1 << 20;

/// Extraction of an archive into a directory.
pub(super) struct Extract<'a> {
    opened: &'a Opened,
    root: u64,
    /// Path of the directory.
    at: Vec<u8>,
    /// Times to set for directories once their contents are complete.
    directories: Vec<(u64, Vec<u8>, Changes)>,
    /// Copied files that are not linked yet.
    unnamed: Vec<Unnamed>,
    /// Their paths from the directory.
    paths: HashSet<Vec<u8>>,
    buffer: Vec<u8>,
}

/// Properties of a file.
struct Kept {
    changes: Changes,
    xattrs: Vec<Xattr>,
}

/// Archive that is being read.
struct Input<'a> {
    from: &'a mut dyn Read,
    at: u64,
    /// Header that was read ahead: the next block.
    header: Option<[u8; BLOCK]>,
}

/// Invalid header, or a header with impossible values. The position of the next header is unknown.
#[derive(Debug, thiserror::Error)]
#[error("byte {at} of the archive: {what}")]
struct NoHeader {
    at: u64,
    what: String,
}

impl<'a> Input<'a> {
    fn new(from: &'a mut dyn Read) -> Input<'a> {
        Input { from, at: 0, header: None }
    }

    /// Reads the next block; `None` at the end of the archive.
    fn header(&mut self) -> anyhow::Result<Option<[u8; BLOCK]>> {
        if self.header.is_some() {
            self.at += BLOCK as u64;
            return Ok(self.header.take());
        }
        let mut block = [0; BLOCK];
        Ok(self.block(&mut block)?.then_some(block))
    }

    /// Skips to the next header.
    fn pass_to_header(&mut self, journey: &Journey) -> Result<(), Failure> {
        while let Some(block) = self.header()? {
            journey.check()?;
            if is_header(&block) {
                self.at -= BLOCK as u64;
                self.header = Some(block);
                break;
            }
        }
        Ok(())
    }

    /// Reads all of `into`; returns false at the end of the archive.
    fn block(&mut self, into: &mut [u8]) -> anyhow::Result<bool> {
        let mut length = 0;
        while length < into.len() {
            match self.from.read(&mut into[length..]) {
                Ok(0) if length == 0 => return Ok(false),
                Ok(0) => {
                    bail!("truncated archive: unexpected end at byte {}", self.at + length as u64)
                }
                Ok(read) => length += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot read the archive"),
            }
        }
        self.at += length as u64;
        Ok(true)
    }

    fn exact(&mut self, into: &mut [u8]) -> anyhow::Result<()> {
        match into.is_empty() || self.block(into)? {
            true => Ok(()),
            false => bail!("truncated archive: unexpected end at byte {}", self.at),
        }
    }

    /// Reads `size` bytes, at most `most`, and the padding of the last block.
    fn text(&mut self, size: u64, most: u64) -> anyhow::Result<Vec<u8>> {
        if size > most {
            let what = format!("{size} bytes of a name or of records; the maximum is {most}");
            return Err(NoHeader { at: self.at, what }.into());
        }
        let mut text = vec![0; (size as usize).next_multiple_of(BLOCK)];
        self.exact(&mut text)?;
        text.truncate(size as usize);
        Ok(text)
    }

    fn skip(&mut self, bytes: u64, buffer: &mut [u8]) -> anyhow::Result<()> {
        let mut left = bytes;
        while left > 0 {
            let length = left.min(buffer.len() as u64) as usize;
            self.exact(&mut buffer[..length])?;
            left -= length as u64;
        }
        Ok(())
    }
}

/// File of an archive, without its data.
struct Entry {
    kind: EntryType,
    path: Vec<u8>,
    link: Vec<u8>,
    /// Bytes in the archive.
    size: u64,
    kept: Kept,
    /// Size of a sparse file, and the offsets and lengths of its data.
    sparse: Option<(u64, Vec<(u64, u64)>)>,
    /// True if the map precedes the data.
    has_map_in_data: bool,
    /// Reason why it cannot be copied, if the archive is invalid.
    problem: Option<String>,
}

impl<'a> Extract<'a> {
    pub(super) fn new(opened: &'a Opened, root: u64, at: Vec<u8>) -> Extract<'a> {
        let buffer = vec![0; piece_bytes(&opened.fs)];
        let (directories, unnamed) = (Vec::new(), Vec::new());
        Extract { opened, root, at, directories, unnamed, paths: HashSet::new(), buffer }
    }

    /// Extracts everything in `from` into the directory.
    pub(super) fn all(mut self, from: &mut dyn Read, journey: &mut Journey) -> Result<(), Failure> {
        let mut input = Input::new(from);
        let read = self.entries(&mut input, journey);
        let named = self.name_all(journey);
        // Even after a truncated archive, so that the extracted directories have their times.
        let Opened { fs, waiter } = self.opened;
        for (ino, path, times) in self.directories.iter().rev() {
            if let Err(error) = fs.set_attributes(waiter, *ino, times) {
                journey.failed(path, error.into())?;
            }
        }
        read.and(named)
    }

    /// Links the copied files.
    fn name_all(&mut self, journey: &mut Journey) -> Result<(), Failure> {
        self.paths.clear();
        name_all(self.opened, &mut self.unnamed, |path, error| journey.failed(path, error))
    }

    /// True if a file that is not linked yet has this path, or is a parent of it.
    fn needs_names(&self, names: &[&[u8]]) -> bool {
        !self.paths.is_empty() && (1..=names.len()).any(|n| self.paths.contains(&names[..n].join(&b'/')))
    }

    fn entries(&mut self, input: &mut Input<'_>, journey: &mut Journey) -> Result<(), Failure> {
        let mut general = Records::default();
        loop {
            journey.check()?;
            let entry = match next(input, &mut general) {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                // Input without a header at the beginning is not an archive. After an invalid
                // header later on, there may be more files.
                Err(error) if error.downcast_ref().is_some_and(|NoHeader { at, .. }| *at > 0) => {
                    journey.failed_with(&format!("{error}; skipping to the next header"));
                    input.pass_to_header(journey)?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let end = input.at + entry.size.next_multiple_of(BLOCK as u64);
            let is_link = entry.kind == EntryType::Link;
            if self.unnamed.len() >= UNNAMED_MAX
                || is_link
                || Self::names(&entry.path).is_ok_and(|names| self.needs_names(&names))
            {
                self.name_all(journey)?;
            }
            match self.entry(input, &entry, journey) {
                Ok(()) => journey.progress.file(),
                Err(error) => journey.failed(&entry.path, error)?,
            }
            input.skip(end.saturating_sub(input.at), &mut self.buffer)?;
        }
        // The program that writes the archive pads its last record, and must be able to end.
        let mut left = RECORD_MAX / BLOCK;
        while left > 0 && input.block(&mut self.buffer[..BLOCK]).unwrap_or(false) {
            left -= 1;
        }
        Ok(())
    }

    /// Names of a path. Fails if it leads out of the directory.
    fn names(path: &[u8]) -> anyhow::Result<Vec<&[u8]>> {
        let names = path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
        let names: Vec<&[u8]> = names.collect();
        if names.contains(&&b".."[..]) {
            bail!("a path with .. leads out of the directory")
        } else {
            Ok(names)
        }
    }

    fn entry(&mut self, input: &mut Input<'_>, entry: &Entry, journey: &mut Journey) -> anyhow::Result<()> {
        let opened = self.opened;
        let names = Self::names(&entry.path)?;
        if let Some(problem) = &entry.problem {
            bail!("{problem}");
        }
        // Directories in incremental archives of GNU tar have a list of names as data.
        let is_directory = entry.kind.is_dir()
            || entry.kind.as_byte() == b'D'
            || entry.kind.is_file() && entry.path.ends_with(b"/");
        let (directories, name) = match names.split_last() {
            Some((name, directories)) if !is_directory => (directories, *name),
            None if !is_directory => bail!("no file name"),
            _ => (&names[..], &b""[..]),
        };
        let parent = directories.iter().try_fold(self.root, |at, name| enter(opened, at, name, 0o755));
        match entry.kind {
            _ if is_directory => {
                let ino = parent?;
                let kept = self.keep(ino, &entry.kept);
                let Changes { mtime, atime, .. } = entry.kept.changes;
                self.directories.push((
                    ino,
                    entry.path.clone(),
                    Changes { mtime, atime, ..Changes::default() },
                ));
                kept?;
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.file(input, entry, parent?, name, journey)?;
            }
            EntryType::Link => {
                let target = Self::names(&entry.link)?;
                let found = target.iter().try_fold(self.root, |at, name| opened.fs.lookup(at, name));
                let ino = found.with_context(|| format!("{}", entry.link.escape_ascii()))?;
                opened.fs.link_over(&opened.waiter, ino, parent?, name)?;
            }
            EntryType::Symlink => {
                let ino = replace_link(opened, parent?, name, entry.link.clone())?;
                self.keep(ino, &entry.kept)?;
            }
            EntryType::Fifo => journey.skipped(&entry.path, skipped(FileKind::Pipe)),
            EntryType::Char | EntryType::Block => journey.skipped(&entry.path, skipped(FileKind::Character)),
            kind if kind.as_byte() == b'M' => bail!("the rest of a file that begins in another volume"),
            // POSIX requires that unknown types are extracted as regular files.
            kind => {
                let what =
                    format!("unknown type {:?}, extracted as a regular file", char::from(kind.as_byte()));
                journey.noted(&entry.path, &what);
                self.file(input, entry, parent?, name, journey)?;
            }
        }
        Ok(())
    }

    fn keep(&self, ino: u64, kept: &Kept) -> anyhow::Result<()> {
        let Opened { fs, waiter } = self.opened;
        fs.set_attributes(waiter, ino, &kept.changes)?;
        set_xattrs(fs, waiter, ino, &kept.xattrs)
    }

    /// Extracts a regular file. It is linked once it is complete, together with others.
    fn file(
        &mut self,
        input: &mut Input<'_>,
        entry: &Entry,
        parent: u64,
        name: &[u8],
        journey: &mut Journey,
    ) -> anyhow::Result<()> {
        let Opened { fs, waiter } = self.opened;
        let mut left = entry.size;
        let (size, map) = match &entry.sparse {
            None => (entry.size, vec![(0, entry.size)]),
            Some((size, _)) if entry.has_map_in_data => (*size, map_of_data(input, &mut left)?),
            Some((size, map)) => (*size, map.clone()),
        };
        let stored = map.iter().try_fold(0u64, |sum, (_, length)| sum.checked_add(*length));
        let is_within = map.iter().all(|(at, length)| at.checked_add(*length).is_some_and(|end| end <= size));
        if stored != Some(left) || !is_within {
            bail!("the map of the sparse file contradicts its size");
        }
        let new = fs.create_unnamed(waiter, &NewFile::new(FileKind::File, 0o600))?;
        let ino = new.ino();
        let slash: &[u8] = if self.at.is_empty() { b"" } else { b"/" };
        fs.announce(ino, &[&self.at[..], slash, &Self::names(&entry.path)?.join(&b'/')].concat())?;
        let mut copy = || -> anyhow::Result<()> {
            for (at, length) in &map {
                let mut done = 0;
                while done < *length {
                    journey.check().map_err(|failure| failure.error)?;
                    let wanted = (length - done).min(self.buffer.len() as u64) as usize;
                    input.exact(&mut self.buffer[..wanted])?;
                    if fs.write(waiter, ino, at + done, Payload::Bytes(&self.buffer[..wanted]))?
                        < wanted as u64
                    {
                        return Err(FsError::NoSpace.into());
                    }
                    done += wanted as u64;
                    journey.progress.bytes(wanted as u64);
                }
            }
            // An empty piece, which ends most maps, does not extend the file.
            let written = map.iter().filter(|(_, length)| *length > 0).map(|(at, length)| at + length).max();
            if written.unwrap_or(0) < size {
                let changes = Changes { size: Some(size), set_ids: SetIds::Keep, ..Changes::default() };
                fs.set_attributes(waiter, ino, &changes)?;
            }
            Ok(())
        };
        let copied = copy().and_then(|()| {
            new.send(waiter)?;
            match self.keep(ino, &entry.kept) {
                Err(error) if !is_of_attribute(&error) => Err(error),
                kept => Ok(kept),
            }
        });
        match copied {
            Ok(kept) => {
                self.paths.insert(Self::names(&entry.path)?.join(&b'/'));
                let (name, path) = (name.to_vec(), entry.path.clone());
                self.unnamed.push(Unnamed { file: new, parent, name, path, kept });
                Ok(())
            }
            Err(error) => {
                // Closing removes the file. The first error is reported.
                let _ = new.close(waiter);
                Err(error)
            }
        }
    }
}

/// Reads the map at the beginning of a sparse file's data: decimal numbers, one per line. `left`
/// becomes the length of the data after it.
fn map_of_data(input: &mut Input<'_>, left: &mut u64) -> anyhow::Result<Vec<(u64, u64)>> {
    let mut text = Vec::new();
    let mut numbers: Vec<u64> = Vec::new();
    let wrong = || anyhow!("the map of the sparse file is invalid");
    loop {
        let mut block = [0; BLOCK];
        *left = left.checked_sub(BLOCK as u64).ok_or_else(wrong)?;
        input.exact(&mut block)?;
        text.extend_from_slice(&block);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).take(end).collect();
            let number = std::str::from_utf8(&line).ok().and_then(|line| line.parse().ok());
            numbers.push(number.ok_or_else(wrong)?);
            let pieces = numbers[0];
            if pieces > PIECES_MAX {
                return Err(wrong());
            }
            if numbers.len() as u64 == 1 + 2 * pieces {
                return Ok(numbers[1..].chunks_exact(2).map(|pair| (pair[0], pair[1])).collect());
            }
        }
        // A line has one number of at most twenty digits, so a block without a newline is not a
        // map.
        if text.len() >= BLOCK {
            return Err(wrong());
        }
    }
}

/// Parses headers, records and maps of arbitrary bytes, and returns the number of files.
///
/// # Panics
/// If a file takes more than the archive has, or the position of an error is outside of it, which
/// is a bug.
pub(crate) fn fuzz(bytes: &[u8]) -> usize {
    let (mut from, mut general, mut files) = (bytes, Records::default(), 0);
    let mut buffer = vec![0; 1 << 16];
    let mut input = Input::new(&mut from);
    loop {
        let entry = match next(&mut input, &mut general) {
            Ok(Some(entry)) => entry,
            Ok(None) => return files,
            Err(error) => {
                if let Some(NoHeader { at, .. }) = error.downcast_ref() {
                    assert!(*at <= bytes.len() as u64, "{error}");
                }
                return files;
            }
        };
        files += 1;
        let end = input.at.checked_add(entry.size.next_multiple_of(BLOCK as u64)).expect("a place");
        let mut left = entry.size;
        if entry.has_map_in_data {
            let _ = map_of_data(&mut input, &mut left);
        }
        assert!(input.at <= bytes.len() as u64);
        if input.skip(end.saturating_sub(input.at), &mut buffer).is_err() {
            return files;
        }
    }
}

/// Reads the next file of an archive, with the headers before its own; `None` at the end.
fn next(input: &mut Input<'_>, general: &mut Records) -> anyhow::Result<Option<Entry>> {
    let mut records = general.clone();
    let (mut long_name, mut long_link) = (None, None);
    loop {
        let begin = input.at;
        let Some(block) = input.header()?.filter(|block| block.iter().any(|byte| *byte != 0)) else {
            return Ok(None);
        };
        let wrong = |what: &str| NoHeader { at: begin, what: what.to_owned() };
        if !is_header(&block) {
            return Err(wrong("not a tar header").into());
        }
        let header = Header::from_byte_slice(&block);
        let fields = header.as_old();
        let sized = number(&fields.size, header.entry_size()).ok_or_else(|| wrong("invalid size"))?;
        match header.entry_type() {
            // Label of the archive, in the formats of GNU tar.
            kind if kind.as_byte() == b'V' => {
                input.text(sized, RECORDS_MAX)?;
                continue;
            }
            // Solaris uses another letter for them.
            kind if kind == EntryType::XHeader || kind.as_byte() == b'X' => {
                if let Err(what) = records.add(&input.text(sized, RECORDS_MAX)?) {
                    records.problem.get_or_insert(what);
                }
                continue;
            }
            EntryType::XGlobalHeader => {
                general.add(&input.text(sized, RECORDS_MAX)?).map_err(|what| wrong(&what))?;
                if let Some(problem) = general.problem.take() {
                    return Err(wrong(&problem).into());
                }
                records = general.clone();
                continue;
            }
            EntryType::GNULongName => {
                long_name = Some(without_zeroes(input.text(sized, RECORDS_MAX)?));
                continue;
            }
            EntryType::GNULongLink => {
                long_link = Some(without_zeroes(input.text(sized, RECORDS_MAX)?));
                continue;
            }
            _ => {}
        }
        let path = records
            .sparse_path
            .take()
            .or_else(|| records.path.take())
            .or(long_name)
            .unwrap_or_else(|| header.path_bytes().into_owned());
        let link = records.link.take().or(long_link);
        let link =
            link.or_else(|| header.link_name_bytes().map(|link| link.into_owned())).unwrap_or_default();
        let kind = header.entry_type();
        // Links have no data, whatever their size field says.
        let has_data = !matches!(kind, EntryType::Link | EntryType::Symlink | EntryType::Directory);
        let size = if has_data { records.size.unwrap_or(sized) } else { 0 };
        if size > i64::MAX as u64 {
            return Err(wrong("file too large").into());
        }
        let mtime = records.mtime.or_else(|| {
            // A field that is not octal is a signed number of 64 bits.
            let seconds = number(&fields.mtime, header.mtime())? as i64;
            Some(seconds.saturating_mul(1_000_000_000))
        });
        let mut id = |name: &str, field: &[u8], id: std::io::Result<u64>| {
            let id = number(field, id).and_then(|id| u32::try_from(id).ok());
            if id.is_none() {
                records.problem.get_or_insert(format!("invalid {name}"));
            }
            id.unwrap_or(0)
        };
        let uid = records.uid.unwrap_or_else(|| id("uid", &fields.uid, header.uid()));
        let gid = records.gid.unwrap_or_else(|| id("gid", &fields.gid, header.gid()));
        let changes = Changes {
            mode: Some((header.mode().unwrap_or(0o644) & 0o7777) as u16),
            uid: Some(uid),
            gid: Some(gid),
            mtime: mtime.map(SetTime::At),
            atime: records.atime.or(mtime).map(SetTime::At),
            set_ids: SetIds::Keep,
            ..Changes::default()
        };
        let mut sparse = records.real_size.map(|size| (size, records.map));
        if kind == EntryType::GNUSparse {
            sparse =
                Some(old_map(input, header).map_err(|error| wrong(&format!("a sparse file: {error:#}")))?);
        }
        let kept = Kept { changes, xattrs: records.xattrs };
        let has_map_in_data = records.has_map_in_data && sparse.is_some();
        let problem = records.problem;
        return Ok(Some(Entry { kind, path, link, size, kept, sparse, has_map_in_data, problem }));
    }
}

/// True if a block has the checksum of a header.
fn is_header(block: &[u8; BLOCK]) -> bool {
    let Ok(told) = Header::from_byte_slice(block).cksum() else { return false };
    // The field of the checksum counts as blanks.
    let bytes = || block[..148].iter().chain(&[b' '; 8]).chain(&block[156..]);
    let unsigned: i64 = bytes().map(|byte| i64::from(*byte)).sum();
    // Some old programs, such as that of SunOS, summed signed bytes.
    let signed: i64 = bytes().map(|byte| i64::from(*byte as i8)).sum();
    [unsigned, signed].contains(&i64::from(told))
}

/// Number in a field of a header; a blank field is 0, as in other programs.
fn number(field: &[u8], parsed: std::io::Result<u64>) -> Option<u64> {
    if field.iter().all(|byte| matches!(byte, 0 | b' ')) { Some(0) } else { parsed.ok() }
}

/// Reads the map of a sparse file in GNU tar's own format: in its header, and in the blocks after
/// it.
fn old_map(input: &mut Input<'_>, header: &Header) -> anyhow::Result<(u64, Vec<(u64, u64)>)> {
    let gnu = header.as_gnu().context("not in the format of GNU tar")?;
    let size = gnu.real_size()?;
    let mut map = Vec::new();
    let mut add = |pieces: &[tar::GnuSparseHeader]| -> anyhow::Result<()> {
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            map.push((piece.offset()?, piece.length()?));
        }
        if map.len() as u64 > PIECES_MAX { bail!("too many pieces") } else { Ok(()) }
    };
    add(&gnu.sparse)?;
    let mut is_extended = gnu.is_extended();
    while is_extended {
        let mut more = GnuExtSparseHeader::new();
        input.exact(more.as_mut_bytes())?;
        add(more.sparse())?;
        is_extended = more.is_extended();
    }
    Ok((size, map))
}

/// Cuts a long name at its first zero.
fn without_zeroes(mut name: Vec<u8>) -> Vec<u8> {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    name.truncate(end);
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;
    use tar::Builder;

    /// Sets the checksum of a header.
    fn sum(header: &mut [u8]) {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }

    fn header(kind: EntryType, size: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o644);
        header.set_mtime(1_700_000_000);
        header
    }

    /// Archive with all kinds of headers: long names, records, links, and sparse files with a map
    /// in all three places.
    fn archive() -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        let long = "long/".repeat(50) + "name";
        builder.append_data(&mut header(EntryType::Regular, 700), "file", &[7; 700][..]).unwrap();
        builder.append_data(&mut header(EntryType::Regular, 0), &long, &[][..]).unwrap();
        builder.append_link(&mut header(EntryType::Symlink, 0), "link", &long).unwrap();
        builder.append_link(&mut header(EntryType::Link, 0), "hard", "file").unwrap();
        builder.append_data(&mut header(EntryType::Directory, 0), "directory/", &[][..]).unwrap();
        let records: [(&str, &[u8]); 6] = [
            ("path", b"other"),
            ("mtime", b"-1.5"),
            ("uid", b"100000"),
            ("SCHILY.xattr.user.a", b"b\0c"),
            ("GNU.sparse.realsize", b"100000"),
            ("GNU.sparse.map", b"0,512,8192,100"),
        ];
        builder.append_pax_extensions(records).unwrap();
        builder.append_data(&mut header(EntryType::Regular, 612), "sparse", &[5; 612][..]).unwrap();
        let records: [(&str, &[u8]); 4] = [
            ("GNU.sparse.major", b"1"),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", b"sparse too"),
            ("GNU.sparse.realsize", b"100000"),
        ];
        builder.append_pax_extensions(records).unwrap();
        let mut data = b"2\n0\n512\n8192\n100\n".to_vec();
        data.resize(512 + 612, 0);
        builder.append_data(&mut header(EntryType::Regular, 1124), "sparse2", &data[..]).unwrap();
        let mut old = header(EntryType::GNUSparse, 512);
        let gnu = old.as_gnu_mut().unwrap();
        gnu.sparse[0].offset[..12].copy_from_slice(b"00000010000\0");
        gnu.sparse[0].numbytes[..12].copy_from_slice(b"00000001000\0");
        gnu.realsize[..12].copy_from_slice(b"00000020000\0");
        gnu.isextended = [1];
        gnu.name[..4].copy_from_slice(b"old\0");
        sum(old.as_mut_bytes());
        let mut bytes = builder.into_inner().unwrap();
        // The end is added below.
        bytes.truncate(bytes.len() - 2 * BLOCK);
        bytes.extend(old.as_bytes());
        bytes.extend(GnuExtSparseHeader::new().as_bytes());
        bytes.extend([3; 512]);
        bytes.extend([0; 2 * BLOCK]);
        bytes
    }

    #[test]
    fn archive_of_any_bytes_is_read_or_refused() {
        let sound = archive();
        assert_eq!(fuzz(&sound), 8);
        let mut refused = 0;
        for seed in 0..20_000 {
            let mut chance = Pcg64Mcg::seed_from_u64(seed);
            let mut bytes = sound.clone();
            for _ in 0..chance.random_range(1..6) {
                let blocks = bytes.len() / BLOCK;
                let block = chance.random_range(0..blocks) * BLOCK;
                match chance.random_range(0..5) {
                    // In a header, whose checksum is corrected.
                    0 | 1 => {
                        let at = block + chance.random_range(0..BLOCK);
                        bytes[at] = chance.random();
                        sum(&mut bytes[block..block + BLOCK]);
                    }
                    2 => bytes[block + chance.random_range(0..BLOCK)] ^= 1 << chance.random_range(0..8),
                    3 => bytes.truncate(block.max(BLOCK)),
                    _ => {
                        let other = chance.random_range(0..blocks) * BLOCK;
                        bytes.copy_within(other..other + BLOCK, block);
                    }
                }
            }
            refused += u32::from(fuzz(&bytes) < 8);
        }
        assert!((5_000..20_000).contains(&refused), "{refused} had fewer files");
    }

    #[test]
    fn map_of_data_without_an_end_of_line_is_refused_before_all_of_it_is_read() {
        let bytes = vec![b'1'; 64 * BLOCK];
        let (mut from, mut left) = (&bytes[..], bytes.len() as u64);
        let mut input = Input::new(&mut from);
        assert!(map_of_data(&mut input, &mut left).is_err());
        assert_eq!(input.at, BLOCK as u64);
    }
}
