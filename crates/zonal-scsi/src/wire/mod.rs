//! The formats of commands and of their data: big-endian.
//!
//! On the first level are structures whose fields have the places that the standards give them ([`cdb`], the pages here). On the second are values that mean one thing, however it is said ([`commands`], [`SenseData`], [`Designator`],
//! [`UnmapList`]). All are parsed from bytes and emitted as bytes, for both sides: a disk parses what an initiator emits.

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

/// A command descriptor, filled with zeroes after its own bytes.
pub type Cdb = [u8; 32];

/// The descriptor of a command.
pub fn cdb_of<T: Command>(command: &T) -> Cdb {
    let mut cdb = [0; 32];
    cdb[1..T::LEN - 1].copy_from_slice(command.as_bytes());
    cdb[0] = T::OPCODE;
    cdb[1] |= T::ACTION.unwrap_or(0);
    cdb
}

/// `bits` if they are to be set, or zero.
pub(crate) fn flag(bits: u8, is_set: bool) -> u8 {
    if is_set { bits } else { 0 }
}

/// The fields of a descriptor with the operation code and service action of `T`.
pub fn parse_as<T: Command>(cdb: &Cdb) -> Option<T> {
    let is_action = T::ACTION.is_none_or(|action| action == cdb[1] & 0x1F);
    if cdb[0] == T::OPCODE && is_action { fields_of(cdb) } else { None }
}

/// The fields of a descriptor as those of `T`, with any operation code.
fn fields_of<T: Command>(cdb: &Cdb) -> Option<T> {
    T::read_from_bytes(&cdb[1..T::LEN - 1]).ok()
}

#[cfg(test)]
mod tests;
