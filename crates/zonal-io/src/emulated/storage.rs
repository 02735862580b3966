//! What keeps, or does not keep, the bytes of an emulated device.

use super::zones::Placed;
use crate::data::Data;
use zonal_core::{DeviceError, ZoneIndex};

/// A range of one zone's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The zone.
    pub zone: ZoneIndex,
    /// Where the range begins, in sectors from the zone's start.
    pub offset: u32,
    /// Length, in sectors.
    pub sectors: u32,
    /// Generation of the zone's data: data of another one is not there for this range. Always 0 in conventional zones.
    pub generation: u32,
}

impl From<&Placed> for Extent {
    fn from(p: &Placed) -> Extent {
        Extent { zone: p.zone, offset: p.offset, sectors: p.sectors, generation: p.generation }
    }
}

/// Bytes of an emulated device.
///
/// Called by many threads at once. In a sequential zone no two writes of one generation get the same sectors, and a
/// read is given only sectors that have been placed; whether their data has arrived yet is for the storage to know.
/// In a conventional zone anything may overlap anything.
pub trait Storage: Send + Sync + 'static {
    /// Whether there are bytes to move. Without, `Data` may be absent and reads leave their buffers untouched.
    const KEEPS_DATA: bool;

    /// Whether it has [`Storage::overwrite`].
    const OVERWRITES: bool = false;

    /// Stores `data`, which has the length of `to`.
    ///
    /// # Errors
    /// If not all of it could be stored.
    fn write(&self, to: Extent, data: &Data) -> Result<(), DeviceError>;

    /// Stores zeroes.
    ///
    /// # Errors
    /// If not all of them could be stored.
    fn write_zeroes(&self, to: Extent) -> Result<(), DeviceError>;

    /// Replaces data that is there, as a misdirected write does, in sequential zones too. A zone of another generation is left alone.
    fn overwrite(&self, _to: Extent, _bytes: &[u8]) {}

    /// Fills the first part of `data`, of the length of `from`; the rest is filled with zeroes by the caller.
    ///
    /// # Errors
    /// If not all of it could be read.
    fn read(&self, from: Extent, data: &Data) -> Result<(), DeviceError>;

    /// Forgets a range of a conventional zone, which reads as zeroes from here on, and gives back the memory that it can.
    fn punch(&self, range: Extent);

    /// The data of `zone` is gone; what is written from now on carries `generation`.
    fn discard(&self, zone: ZoneIndex, generation: u32);
}
