//! Formats of commands and their data, big-endian.
//!
//! The lower level consists of structures with the field layout of the standards ([`cdb`], the
//! pages here). The upper level consists of values with one meaning, independent of their encoding
//! ([`commands`], [`SenseData`], [`Designator`], [`UnmapList`]). All are parsed from and emitted as
//! bytes, for both sides: a disk parses what an initiator emits.

pub mod cdb;
pub mod commands;
mod layout;
mod lists;
mod pages;
mod sense;

pub use cdb::{
    Command, Inquiry, LogSense, ModeSelect6, ModeSelect10, ModeSense6, ModeSense10, ReadCapacity10,
    ReadCapacity16, ReportLuns, ReportOperations, ReportTaskManagement, ReportZones, RequestSense,
    StartStopUnit, TestUnitReady, Unmap, bits,
};
pub use commands::{ByteCheck, Read, SynchronizeCache, Verify, Write, WriteSame, ZoneAction, ZoneOut};
pub use lists::{Association, CodeSet, Designator, UnmapList, UnmapRange};
pub use pages::{
    BlockCharacteristics, BlockDescriptor, BlockLimits, BlockProvisioning, CachingPage, Capacity10,
    Capacity16, ControlPage, InquiryData, LogHeader, LongBlockDescriptor, LunList, ModeHeader6, ModeHeader10,
    OperationEntry, OperationTimeouts, ReportHeader, ReportedZone, SupportedOperation, TaskManagement,
    UnmapDescriptor, UnmapHeader, VpdHeader, ZonedCharacteristics, padded, vpd,
};
pub use sense::{FieldPointer, SenseData};

/// Command descriptor, padded with zeroes.
pub type Cdb = [u8; 32];

/// Encodes a command as a descriptor.
pub fn cdb_of<T: Command>(command: &T) -> Cdb {
    let mut cdb = [0; 32];
    cdb[1..T::LEN - 1].copy_from_slice(command.as_bytes());
    cdb[0] = T::OPCODE;
    cdb[1] |= T::ACTION.unwrap_or(0);
    cdb
}

/// Returns `bits` if `is_set`, zero otherwise.
pub(crate) fn flag(bits: u8, is_set: bool) -> u8 {
    if is_set { bits } else { 0 }
}

/// Parses a descriptor with the operation code and service action of `T`.
pub fn parse_as<T: Command>(cdb: &Cdb) -> Option<T> {
    let is_action = T::ACTION.is_none_or(|action| action == cdb[1] & 0x1F);
    if cdb[0] == T::OPCODE && is_action { fields_of(cdb) } else { None }
}

/// Parses the fields of `T` from a descriptor with any operation code.
fn fields_of<T: Command>(cdb: &Cdb) -> Option<T> {
    T::read_from_bytes(&cdb[1..T::LEN - 1]).ok()
}

#[cfg(test)]
mod tests;
