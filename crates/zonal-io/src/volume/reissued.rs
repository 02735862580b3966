//! Writes that a killed server has left without an answer, and that the next one gets again.
//!
//! Such a write may have been carried out, in whole or in part. Then it begins below its zone's pointer, and the drive would
//! refuse it. What the zone holds in its place is read and compared with the data: if that is the same, only the rest is written,
//! and the write has succeeded. Otherwise the drive has its say. A front decides which of its requests may be of this kind: a write
//! that is compared without that reason would pass for one of this kind, and be no error.

use super::{Part, Request};
use crate::buffer::{IoBuf, IoBufs};
use zonal_core::{Sector, Sectors};

/// A write that begins below its zone's pointer, and what the zone holds of it.
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
    /// Of these, those below the pointer, which are more than none.
    below: u32,
    fua: bool,
}

/// What is to be done of a [`ReissuedWrite`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remaining {
    /// All is there, and as durable as was asked for.
    Nothing,
    /// All is there, and a flush makes it durable.
    Flush,
    /// What is there is something else: the write is the drive's to refuse.
    Everything,
    /// The data from byte `done` on.
    Rest {
        /// Bytes that are there.
        done: usize,
    },
}

impl ReissuedWrite {
    /// The write of `sectors` from `sector` on, if it lies in a sequential zone and begins below the pointer.
    pub fn of(part: &Part, sector: Sector, sectors: u32, fua: bool) -> Option<ReissuedWrite> {
        let geometry = &part.info().geometry;
        if sectors == 0 || !geometry.contains(sector, Sectors(sectors.into())) {
            return None;
        }
        let pointer = part.write_pointer(geometry.zone_of(sector))?.0;
        let below = pointer.checked_sub(sector.0).filter(|&below| below > 0)?;
        Some(ReissuedWrite { sector, sectors, below: u64::from(sectors).min(below) as u32, fua })
    }

    /// Bytes that its zone holds in its place.
    pub const fn held_len(&self) -> u32 {
        self.below * 512
    }

    /// The request for what its zone holds, into at least [`ReissuedWrite::held_len`] bytes.
    pub fn read(&self, into: IoBuf) -> Request {
        Request::read(self.sector, self.below, into)
    }

    /// Bytes of the whole write.
    pub const fn bytes(&self) -> u32 {
        self.sectors * 512
    }

    /// The write itself.
    pub fn whole(&self, data: impl Into<IoBufs>) -> Request {
        self.as_asked(Request::write(self.sector, self.sectors, data))
    }

    /// The write of what is missing, if something is; `data` are that.
    pub fn rest(&self, data: impl Into<IoBufs>) -> Option<Request> {
        let (sector, sectors) = (Sector(self.sector.0 + u64::from(self.below)), self.sectors - self.below);
        (sectors > 0).then(|| self.as_asked(Request::write(sector, sectors, data)))
    }

    fn as_asked(&self, request: Request) -> Request {
        if self.fua { request.fua() } else { request }
    }

    /// What is to be done, once the zone's bytes were read; `None` if they could not be.
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

/// Whether the first bytes of `data` are these.
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

/// The bytes of `data` from `done` on, in memory of their own.
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
    fn what_could_not_be_read_or_is_short_is_not_there() {
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
