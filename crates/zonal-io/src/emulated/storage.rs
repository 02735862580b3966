//! Storage of an emulated device.

use super::zones::Placed;
use crate::data::Data;
use zonal_core::{DeviceError, ZoneIndex};

/// Range of one zone's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Zone.
    pub zone: ZoneIndex,
    /// Start, in sectors from the zone's start.
    pub offset: u32,
    /// Length in sectors.
    pub sectors: u32,
    /// Generation of the zone's data; data of other generations does not exist for this range.
    /// Always 0 in conventional zones.
    pub generation: u32,
}

impl From<&Placed> for Extent {
    fn from(p: &Placed) -> Extent {
        Extent { zone: p.zone, offset: p.offset, sectors: p.sectors, generation: p.generation }
    }
}

/// Storage of the bytes of an emulated device.
///
/// Called by many threads concurrently. In a sequential zone no two writes of a generation have
/// sectors in common, and a read gets only sectors that a write was assigned to; the storage
/// decides whether their data is there already. In a conventional zone any accesses may overlap.
pub trait Storage: Send + Sync + 'static {
    /// True if there are bytes to move. Otherwise `Data` may be absent and reads leave their
    /// buffers unchanged.
    const KEEPS_DATA: bool;

    /// True if [`Storage::overwrite`] is implemented.
    const OVERWRITES: bool = false;

    /// Stores `data`, which has the length of `to`.
    ///
    /// # Errors
    /// If some of it could not be stored.
    fn write(&self, to: Extent, data: &Data) -> Result<(), DeviceError>;

    /// Stores zeroes.
    ///
    /// # Errors
    /// If some of them could not be stored.
    fn write_zeroes(&self, to: Extent) -> Result<(), DeviceError>;

    /// Replaces existing data as a misdirected write does, also in sequential zones. Ignored if the
    /// zone has another generation.
    fn overwrite(&self, _to: Extent, _bytes: &[u8]) {}

    /// Fills the first part of `data`, up to the length of `from`; the caller zeroes the rest.
    ///
    /// # Errors
    /// If some of it could not be read.
    fn read(&self, from: Extent, data: &Data) -> Result<(), DeviceError>;

    /// Deallocates a range of a conventional zone, which reads as zeroes afterwards, and frees as
    /// much memory as possible.
    fn punch(&self, range: Extent);

    /// Discards the data of `zone`; later writes have `generation`.
    fn discard(&self, zone: ZoneIndex, generation: u32);
}
