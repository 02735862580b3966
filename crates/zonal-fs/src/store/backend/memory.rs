//! Bytes in memory, for simulated drives, whose metadata costs no drive time, and for tests.
//!
//! Small commits are rows in memory, as in a log: the file system does as much of its own as on a drive.
//!
//! Handles share the bytes, so that rows can be closed and opened again on them.

use super::log::BatchRows;
use super::paged::PAGE;
use super::room::Backend;
use crate::format::UnitPlace;
use parking_lot::RwLock;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are allocated together; what was never written takes none.
const CHUNK: usize = PAGE;

/// Bytes of rows that are kept beside the pages.
const ROWS_MAX: usize = 4 << 20;

/// Bytes in memory, shared by its clones.
#[derive(Clone, Default)]
pub struct Memory(Arc<RwLock<Bytes>>);

#[derive(Default)]
struct Bytes {
    len: u64,
    chunks: Vec<Option<Box<[u8]>>>,
    rows: VecDeque<(u64, Arc<[u8]>)>,
    rows_bytes: usize,
    /// Number of the last batch of rows.
    batch: u64,
}

impl Memory {
    /// No bytes.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Bytes of memory in use.
    pub fn footprint(&self) -> u64 {
        let bytes = self.0.read();
        bytes.chunks.iter().flatten().count() as u64 * CHUNK as u64 + bytes.rows_bytes as u64
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.0.read().len)
    }
}

impl Bytes {
    /// Calls `each` with chunk, offset in it, bytes before it and bytes in it for each chunk of a range.
    fn pieces(
        &self,
        offset: u64,
        len: usize,
        mut each: impl FnMut(usize, usize, usize, usize),
    ) -> io::Result<()> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let (chunk, within) = ((at / CHUNK as u64) as usize, (at % CHUNK as u64) as usize);
            let n = (CHUNK - within).min(len - done);
            each(chunk, within, done, n);
            done += n;
        }
        Ok(())
    }

    fn set_len(&mut self, len: u64) {
        self.chunks.resize_with(len.div_ceil(CHUNK as u64) as usize, || None);
        let within = (len % CHUNK as u64) as usize;
        // What is cut off may come back, and is zeroes then.
        if let (true, Some(Some(last))) = (within > 0 && len < self.len, self.chunks.last_mut()) {
            last[within..].fill(0);
        }
        self.len = len;
    }
}

impl Backend for Memory {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.read().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.read();
        bytes.pieces(offset, out.len(), |chunk, within, done, n| match &bytes.chunks[chunk] {
            Some(chunk) => out[done..done + n].copy_from_slice(&chunk[within..within + n]),
            None => out[done..done + n].fill(0),
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.write().set_len(len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn row_room(&self) -> usize {
        ROWS_MAX.saturating_sub(self.0.read().rows_bytes)
    }

    fn append_rows(&self, _units: &[UnitPlace], rows: &[u8]) -> io::Result<()> {
        let mut bytes = self.0.write();
        bytes.batch += 1;
        bytes.rows_bytes += rows.len();
        let batch = (bytes.batch, rows.into());
        bytes.rows.push_back(batch);
        Ok(())
    }

    fn rows(&self) -> Vec<BatchRows> {
        self.0.read().rows.iter().map(|(batch, rows)| (*batch, Ok(rows.clone()))).collect()
    }

    fn last_rows(&self) -> u64 {
        self.0.read().rows.back().map_or(0, |(batch, _)| *batch)
    }

    fn forget_rows(&self, batch: u64) {
        let mut bytes = self.0.write();
        while let Some((_, rows)) = bytes.rows.pop_front_if(|(number, _)| *number <= batch) {
            bytes.rows_bytes -= rows.len();
        }
    }

    fn discard(&self, pages: Range<u64>) {
        let mut bytes = self.0.write();
        let count = bytes.chunks.len();
        bytes.chunks[(pages.start as usize).min(count)..(pages.end as usize).min(count)].fill(None);
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.0.write();
        let mut chunks = std::mem::take(&mut bytes.chunks);
        let result = bytes.pieces(offset, data.len(), |chunk, within, done, n| {
            let chunk = chunks[chunk].get_or_insert_with(|| vec![0; CHUNK].into());
            chunk[within..within + n].copy_from_slice(&data[done..done + n]);
        });
        bytes.chunks = chunks;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_cut_off_and_grown_again_are_zeroes() {
        let memory = Memory::new();
        memory.set_len(200_000).unwrap();
        memory.write(65_000, &[7; 100_000]).unwrap();
        memory.set_len(70_000).unwrap();
        memory.set_len(200_000).unwrap();
        let mut back = vec![1; 200_000];
        memory.read(0, &mut back).unwrap();
        assert!(back[65_000..70_000].iter().all(|&b| b == 7));
        assert!(back[..65_000].iter().chain(&back[70_000..]).all(|&b| b == 0));
        assert_eq!(memory.footprint(), 3 * CHUNK as u64);
    }

    #[test]
    fn bytes_past_the_end_are_refused() {
        let memory = Memory::new();
        memory.set_len(10).unwrap();
        assert!(memory.write(9, &[1, 2]).is_err());
        assert!(memory.read(u64::MAX, &mut [0; 2]).is_err());
        assert!(memory.read(9, &mut [0]).is_ok());
    }
}
