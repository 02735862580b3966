//! Checks of a command before its zone is consulted, in the same order for all devices.
//!
//! Length, alignment and payload are checked first ([`DeviceError::InvalidField`]), then the range
//! ([`DeviceError::OutOfRange`]), then everything that depends on the zone.

use super::zones::WriteKind;
use crate::device::{Command, DeviceInfo};
use zonal_core::device::ZoneAction;
use zonal_core::{DeviceError, Geometry, Op, SECTOR_BYTES, Sectors, ZoneError, ZoneIndex};

/// Payload requirement of reads and writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// The payload has to match the number of sectors, because the device keeps data.
    Needed,
    /// The device ignores the payload.
    Ignored,
}

/// Zone and offset of a command that transfers at most `sectors_max` sectors.
#[inline]
fn locate(
    info: &DeviceInfo,
    command: &Command,
    sectors_max: u32,
    payload: Payload,
) -> Result<(ZoneIndex, u32), DeviceError> {
    let Command { sector, sectors, .. } = *command;
    let misaligned = (sector.0 | u64::from(sectors)) & u64::from(info.block_sectors - 1);
    if sectors == 0 || sectors > sectors_max || misaligned != 0 {
        return Err(DeviceError::InvalidField);
    }
    let needs_payload = payload == Payload::Needed && command.op != Op::WriteZeroes;
    if needs_payload && command.data.len() as u64 != u64::from(sectors) * SECTOR_BYTES {
        return Err(DeviceError::InvalidField);
    }
    if !info.geometry.contains(sector, Sectors(u64::from(sectors))) {
        return Err(DeviceError::OutOfRange);
    }
    Ok((info.geometry.zone_of(sector), info.geometry.offset_of(sector)))
}

/// Zone and offset of a read.
///
/// # Errors
/// The reason why the command is refused.
#[inline]
pub fn locate_read(
    info: &DeviceInfo,
    command: &Command,
    payload: Payload,
) -> Result<(ZoneIndex, u32), DeviceError> {
    locate(info, command, info.command_sectors_max, payload)
}

/// Zone and offset of a verify.
pub(crate) fn locate_verify(info: &DeviceInfo, command: &Command) -> Result<(ZoneIndex, u32), DeviceError> {
    locate(info, command, info.verify_sectors_max, Payload::Ignored)
}

/// Zone and offset of a discard, which has to stay in one conventional zone.
pub(crate) fn locate_discard(info: &DeviceInfo, command: &Command) -> Result<(ZoneIndex, u32), DeviceError> {
    let sectors_max = info.geometry.zone_size().0 as u32;
    let (zone, offset) = locate(info, command, sectors_max, Payload::Ignored)?;
    if !info.geometry.is_conventional(zone) {
        return Err(ZoneError::Sequential.into());
    }
    fits_zone(&info.geometry, zone, offset, command.sectors)?;
    Ok((zone, offset))
}

/// Zone and action of a zone command.
///
/// # Errors
/// The reason why the command is refused.
pub fn locate_action(info: &DeviceInfo, command: &Command) -> Result<(ZoneIndex, ZoneAction), DeviceError> {
    let action = ZoneAction::of(command.op).filter(|action| action.is_in(info.personality));
    let action = action.ok_or(DeviceError::Unsupported)?;
    Ok((locate_zone(&info.geometry, command)?, action))
}

/// Zone and offset of a write, with or without payload.
///
/// # Errors
/// The reason why the command is refused.
#[inline]
pub fn locate_write(
    info: &DeviceInfo,
    command: &Command,
    payload: Payload,
) -> Result<(ZoneIndex, u32), DeviceError> {
    let sectors_max = match (command.op, info.write_zeroes_sectors_max) {
        (Op::WriteZeroes, 0) => return Err(DeviceError::Unsupported),
        (Op::WriteZeroes, max) => max,
        _ => info.command_sectors_max,
    };
    locate(info, command, sectors_max, payload)
}

/// Zone of an append.
pub(crate) fn locate_append(
    info: &DeviceInfo,
    command: &Command,
    payload: Payload,
) -> Result<ZoneIndex, DeviceError> {
    if info.append_sectors_max == 0 {
        return Err(DeviceError::Unsupported);
    }
    let (zone, offset) = locate(info, command, info.append_sectors_max, payload)?;
    if info.geometry.is_conventional(zone) {
        return Err(ZoneError::Conventional.into());
    }
    if offset == 0 { Ok(zone) } else { Err(DeviceError::InvalidField) }
}

/// Zone of a zone command, which has to give the zone's start.
fn locate_zone(geometry: &Geometry, command: &Command) -> Result<ZoneIndex, DeviceError> {
    if command.sector.0 >= geometry.sectors().0 {
        return Err(DeviceError::OutOfRange);
    }
    if geometry.offset_of(command.sector) != 0 {
        return Err(DeviceError::InvalidField);
    }
    Ok(geometry.zone_of(command.sector))
}

/// Checks that a read, or a write to a conventional zone, does not cross into the next zone.
///
/// # Errors
/// [`ZoneError::Boundary`].
#[inline]
pub fn fits_zone(geometry: &Geometry, zone: ZoneIndex, offset: u32, sectors: u32) -> Result<(), ZoneError> {
    let left = geometry.size_of(zone) - offset;
    if sectors <= left { Ok(()) } else { Err(ZoneError::Boundary) }
}

/// Kind of a positional write on this device.
#[inline]
pub(crate) const fn write_kind(info: &DeviceInfo) -> WriteKind {
    if info.keeps_order { WriteKind::Pipelined } else { WriteKind::Exclusive }
}
