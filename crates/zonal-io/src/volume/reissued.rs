//! Writes that a killed server left unanswered, and that the next server receives again.
//!
//! Such a write may have been executed in whole or in part. It then begins below its zone's write
//! pointer, so the drive would refuse it. The data at its position is read and compared: if it
//! matches, only the rest is written, and the write succeeds. Otherwise it is left to the drive to
//! refuse. The front decides which requests may be reissued ones; comparing any other write would
//! hide an error.

use super::{Part, Request};
use crate::buffer::{IoBuf, IoBufs};
use zonal_core::{Sector, Sectors};

/// Write that begins below its zone's write pointer, and the length of the overlap.
///
/// ```
/// use std::sync::Arc;
/// use zonal_core::{Nanos, Sector};
/// use zonal_io::buffer::{IoBuf, IoBufs};
/// use zonal_io::clock::Clock;
/// use zonal_io::registry::Registry;
/// use zonal_io::volume::{Part, ReissuedWrite, Remaining, Request, Volume, VolumeOptions};
///
/// let device = Registry::default().open("ram:size=64M,zone_size=1M")?;
/// let part = Part::new(Arc::new(Volume::open(device, VolumeOptions::default())?), 0..64)?;
/// let clock = Clock::start();
/// part.call(&clock, Request::write(Sector(0), 8, IoBuf::copied(&[7; 4096])));
/// // The first 8 sectors of this write of 16 are there.
/// let data = IoBufs::from(IoBuf::copied(&[7; 8192]));
/// let write = ReissuedWrite::of(&part, Sector(0), 16, false).expect("it begins below the pointer");
/// let held = part.call(&clock, write.read(IoBuf::zeroed(4096))).buf.into_buf();
/// assert_eq!(write.remaining(Some(&held), &data), Remaining::Rest { done: 4096 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReissuedWrite {
    sector: Sector,
    sectors: u32,
    /// Sectors below the write pointer, at least 1.
    below: u32,
    fua: bool,
}

/// Work that remains for a [`ReissuedWrite`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remaining {
    /// The data is complete, and as durable as requested.
    Nothing,
    /// The data is complete; a flush makes it durable.
    Flush,
    /// The data differs: submit the write, for the drive to refuse.
    Everything,
    /// Write the data from byte `done`.
    Rest {
        /// Bytes already written.
        done: usize,
    },
}

impl ReissuedWrite {
    /// Returns the write of `sectors` from `sector` if it lies in a sequential zone and begins
    /// below the write pointer.
    pub fn of(part: &Part, sector: Sector, sectors: u32, fua: bool) -> Option<ReissuedWrite> {
        let geometry = &part.info().geometry;
        if sectors == 0 || !geometry.contains(sector, Sectors(sectors.into())) {
            return None;
        }
        let pointer = part.write_pointer(geometry.zone_of(sector))?.0;
        let below = pointer.checked_sub(sector.0).filter(|&below| below > 0)?;
        Some(ReissuedWrite { sector, sectors, below: u64::from(sectors).min(below) as u32, fua })
    }

    /// Length of the overlap in bytes.
    pub const fn held_len(&self) -> u32 {
        self.below * 512
    }

    /// Request that reads the overlap into a buffer of at least [`ReissuedWrite::held_len`] bytes.
    pub fn read(&self, into: IoBuf) -> Request {
        Request::read(self.sector, self.below, into)
    }

    /// Length of the whole write in bytes.
    pub const fn bytes(&self) -> u32 {
        self.sectors * 512
    }

    /// Request for the whole write.
    pub fn whole(&self, data: impl Into<IoBufs>) -> Request {
        self.as_asked(Request::write(self.sector, self.sectors, data))
    }

    /// Request for the missing rest, if any, with its `data`.
    pub fn rest(&self, data: impl Into<IoBufs>) -> Option<Request> {
        let (sector, sectors) = (Sector(self.sector.0 + u64::from(self.below)), self.sectors - self.below);
        (sectors > 0).then(|| self.as_asked(Request::write(sector, sectors, data)))
    }

    fn as_asked(&self, request: Request) -> Request {
        if self.fua { request.fua() } else { request }
    }

    /// Compares the overlap with the data. `held` is `None` if it could not be read.
    pub fn remaining(&self, held: Option<&[u8]>, data: &IoBufs) -> Remaining {
        let done = self.held_len() as usize;
        let is_there = held.and_then(|held| held.get(..done)).is_some_and(|held| begins_with(data, held));
        match is_there {
            false => Remaining::Everything,
            true if self.below < self.sectors => Remaining::Rest { done },
            true if self.fua => Remaining::Flush,
            true => Remaining::Nothing,
        }
    }
}

/// True if `data` begins with these bytes.
fn begins_with(data: &IoBufs, mut held: &[u8]) -> bool {
    for piece in data.pieces() {
        let (here, rest) = held.split_at(piece.len().min(held.len()));
        if *here != piece[..here.len()] {
            return false;
        }
        held = rest;
    }
    held.is_empty()
}

/// Copies the bytes of `data` from `done`.
pub fn copied_from(data: &IoBufs, mut done: usize) -> IoBuf {
    let mut rest = IoBuf::zeroed((data.len() - done) as u32);
    let mut left = &mut rest[..];
    for piece in data.pieces() {
        let skipped = piece.len().min(done);
        done -= skipped;
        let piece = &piece[skipped..];
        let (here, after) = left.split_at_mut(piece.len().min(left.len()));
        here.copy_from_slice(&piece[..here.len()]);
        left = after;
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(bytes: &[u8], len: usize) -> IoBufs {
        IoBufs::from(bytes.chunks(len).map(IoBuf::copied).collect::<Vec<_>>())
    }

    fn write(sectors: u32, below: u32, fua: bool) -> ReissuedWrite {
        ReissuedWrite { sector: Sector(8), sectors, below, fua }
    }

    #[test]
    fn held_bytes_are_compared_across_pieces() {
        let bytes: Vec<u8> = (0..2048).map(|n| (n / 7) as u8).collect();
        for len in [1, 100, 512, 600, 4096] {
            let data = pieces(&bytes, len);
            assert_eq!(write(4, 4, false).remaining(Some(&bytes), &data), Remaining::Nothing);
            let rest = Remaining::Rest { done: 1536 };
            assert_eq!(write(4, 3, true).remaining(Some(&bytes[..1536]), &data), rest);
            assert_eq!(copied_from(&data, 1536)[..], bytes[1536..]);
            let mut other = bytes.clone();
            other[1535] ^= 1;
            assert_eq!(write(4, 3, true).remaining(Some(&other), &data), Remaining::Everything);
        }
    }

    #[test]
    fn unreadable_or_short_data_counts_as_unwritten() {
        let data = pieces(&[0; 1024], 512);
        assert_eq!(write(2, 2, false).remaining(None, &data), Remaining::Everything);
        assert_eq!(write(2, 2, false).remaining(Some(&[0; 1000]), &data), Remaining::Everything);
        assert_eq!(
            write(4, 4, false).remaining(Some(&[0; 2048]), &data),
            Remaining::Everything,
            "data are short"
        );
        assert_eq!(write(2, 2, true).remaining(Some(&[0; 1024]), &data), Remaining::Flush);
    }
}
