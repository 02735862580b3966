//! Storage that keeps no data.

use super::storage::{Extent, Storage};
use crate::data::Data;
use zonal_core::{DeviceError, ZoneIndex};

/// Storage that keeps nothing: writes only move write pointers, and reads leave the buffer
/// unchanged, also above the write pointer.
///
/// Filling the buffers would cost more than the rest of this device's I/O path, which exists to
/// measure that path.
#[derive(Clone, Copy, Default, Debug)]
pub struct Null;

impl Storage for Null {
    const KEEPS_DATA: bool = false;

    fn write(&self, _: Extent, _: &Data) -> Result<(), DeviceError> {
        Ok(())
    }

    fn write_zeroes(&self, _: Extent) -> Result<(), DeviceError> {
        Ok(())
    }

    fn read(&self, _: Extent, _: &Data) -> Result<(), DeviceError> {
        Ok(())
    }

    fn punch(&self, _: Extent) {}

    fn discard(&self, _: ZoneIndex, _: u32) {}
}
