//! Directory entries, packed into the reply to `READDIR` or `READDIRPLUS`.

use super::layout::{Dirent, EntryOut};
use zerocopy::IntoBytes;

/// Alignment of records.
const ALIGN: usize = 8;

/// Names packed into one reply.
#[derive(Debug)]
pub struct Names<'a> {
    into: &'a mut Vec<u8>,
    end: usize,
}

impl<'a> Names<'a> {
    /// Appends names to `into`, at most `size` bytes.
    pub fn new(into: &'a mut Vec<u8>, size: usize) -> Names<'a> {
        let end = into.len() + size;
        Names { into, end }
    }

    /// Length of the record for a name of `length` bytes.
    pub fn record(length: usize, with_entry: bool) -> usize {
        let entry = if with_entry { size_of::<EntryOut>() } else { 0 };
        (entry + size_of::<Dirent>() + length).next_multiple_of(ALIGN)
    }

    /// True if a name of `length` bytes fits.
    pub fn fits(&self, length: usize, with_entry: bool) -> bool {
        self.into.len() + Names::record(length, with_entry) <= self.end
    }

    /// Packs a name, which must [fit](Names::fits). `next` is the position after it, and `mode` has
    /// the type of its file.
    pub fn put(&mut self, ino: u64, next: u64, mode: u32, name: &[u8], entry: Option<&EntryOut>) {
        if let Some(entry) = entry {
            self.into.extend_from_slice(entry.as_bytes());
        }
        let dirent = Dirent { ino, off: next, namelen: name.len() as u32, kind: (mode >> 12) & 0o17 };
        self.into.extend_from_slice(dirent.as_bytes());
        self.into.extend_from_slice(name);
        let padding = name.len().next_multiple_of(ALIGN) - name.len();
        self.into.extend_from_slice(&[0; ALIGN][..padding]);
    }
}
