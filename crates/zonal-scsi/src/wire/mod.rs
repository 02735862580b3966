//! The formats of commands and of their data: big-endian.
//!
//! On the first level are structures whose fields have the places that the standards give them ([`layout`], [`cdb`], the pages
//! here). On the second are values that mean one thing, however it is said ([`commands`], [`SenseData`], [`Designator`],
//! [`UnmapList`]). All are parsed from bytes and emitted as bytes, for both sides: a disk parses what an initiator emits.

pub mod cdb;
pub mod commands;
pub mod layout;
mod lists;
mod pages;
mod sense;

pub use cdb::{
    Inquiry, LogSense, ModeSelect6, ModeSelect10, ModeSense6, ModeSense10, ReadCapacity10, ReadCapacity16,
    ReportLuns, ReportOperations, ReportTaskManagement, ReportZones, RequestSense, StartStopUnit,
    TestUnitReady, Unmap,
};
pub use commands::{
    ByteCheck, Read, SynchronizeCache, Verify, Write, WriteSame, ZoneAction, ZoneOut, parse_as,
};
pub use layout::{CommandLayout, Field, FieldPlace, Layout};
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
pub fn cdb_of<T: CommandLayout>(command: &T) -> Cdb {
    let mut cdb = [0; 32];
    command.put(&mut cdb);
    cdb[0] = T::OPCODE;
    cdb[1] |= T::ACTION.unwrap_or(0);
    cdb
}

#[cfg(test)]
mod tests;
