//! One command at a time, without a volume: for the opening of one, and for tools.
//!
//! A device hands a completion to the thread that polls it. On a device that a volume polls, each of the two reaps what the
//! other waits for, and hands it over (`handover`). What a dropped volume or wrapper has left at the device comes out here
//! and is let go.
//!
//! A device in virtual or modelled time is brought by these calls to the time of their answer. On a device that a volume
//! uses, [`Volume::call`](super::Volume::call) is the way.

use super::handover::{self, Errand};
use super::retry::{RETRIES_MAX, is_retried, pause};
use crate::buffer::IoBuf;
use crate::data::{Data, Segment};
use crate::device::{Command, CommandResult, Device, Output, Submitted};
use std::time::Duration;
use zonal_core::{DeviceError, Nanos, Op, SECTOR_BYTES, Sector, ZoneDescriptor, ZoneIndex};

/// Asks a device for zones, and waits for the answer.
///
/// # Errors
/// The device's answer.
pub fn report(device: &dyn Device, sector: Sector, zones: u32) -> Result<Box<[ZoneDescriptor]>, DeviceError> {
    let command = Command::new(Op::Report, sector, zones);
    match run_persistently(device, &command)? {
        Output::Zones(zones) => Ok(zones),
        _ => Err(DeviceError::InvalidField),
    }
}

/// Runs one command on a device, and waits for its answer.
///
/// # Errors
/// The device's answer; [`DeviceError::Busy`] if an idle queue refuses the command eleven times in about 100 ms.
pub fn run_alone(device: &dyn Device, command: &Command) -> Result<Output, DeviceError> {
    answer_alone(device, command).unwrap_or(Err(DeviceError::Busy))
}

/// The same; `None` if an idle queue refuses the command for good.
fn answer_alone(device: &dyn Device, command: &Command) -> Option<CommandResult> {
    // Before the command goes out: a volume's poll may have the answer at once.
    let errand = Errand::begin();
    let mut context = Some(errand.context());
    // Virtual devices complete by time: let it run as far as they ask.
    let mut now = Nanos(0);
    let mut refused = 0;
    loop {
        match device.submit(now, 0, command, &mut context) {
            Submitted::Done(result) => return Some(result),
            Submitted::Accepted => break,
            // No command is there whose end makes room.
            Submitted::Busy if device.is_idle(0) => {
                if refused == RETRIES_MAX {
                    return None;
                }
                refused += 1;
                device.wait(0, Duration::from_nanos(pause(refused).0));
            }
            // Full of what others have left there: it comes out only to a thread that asks.
            Submitted::Busy => poll_alone(device, &mut now, &errand),
        }
    }
    loop {
        if let Some(result) = errand.answer() {
            return Some(result);
        }
        poll_alone(device, &mut now, &errand);
    }
}

/// The same for a command that changes nothing: it is sent again after an answer that may be another the next time.
fn run_persistently(device: &dyn Device, command: &Command) -> Result<Output, DeviceError> {
    let mut retries = 0;
    loop {
        let result = answer_alone(device, command).ok_or(DeviceError::Busy)?;
        if !is_retried(retries, &result) {
            return result;
        }
        retries += 1;
        device.wait(0, Duration::from_nanos(pause(retries).0));
    }
}

/// Longest sleep: bounds how late an answer is seen that another thread has reaped.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// Polls once, and waits where that brings nothing. What comes out is left for its owner, which may be `ours`.
fn poll_alone(device: &dyn Device, now: &mut Nanos, ours: &Errand) {
    let mut came = None;
    let due = device.poll(*now, 0, 1, &mut |c| came = Some(c));
    match (came, due) {
        (Some(c), _) => handover::leave(device, c.context, c.result),
        (None, Some(due)) => *now = due.max(*now),
        (None, None) if ours.is_answered() => {}
        (None, None) => device.wait(0, SLEEP_MAX),
    }
}

/// Fills `buf`, whose length is that of the read, from a device, and waits for its answer.
///
/// Returns the buffer with the device's answer.
pub fn read_alone(device: &dyn Device, sector: Sector, buf: IoBuf) -> (IoBuf, Result<(), DeviceError>) {
    // A panic must not free what the device may still fill.
    let buf = std::mem::ManuallyDrop::new(buf);
    // SAFETY: the buffer is ours, and it is neither touched nor freed until the command has completed, which
    // `run_alone` waits for.
    let data = unsafe { Data::one(Segment::new(buf.as_ptr(), buf.len())) };
    let sectors = u32::try_from(buf.len() as u64 / SECTOR_BYTES).expect("a buffer is shorter than 4 GiB");
    let result = run_persistently(device, &Command { data, ..Command::new(Op::Read, sector, sectors) });
    (std::mem::ManuallyDrop::into_inner(buf), result.map(|_| ()))
}

/// Zones tried to find a readable one.
const PROBED_ZONES_MAX: u32 = 64;

/// Whether reads from `device` fill their buffers. A device that keeps no data leaves them as
/// they were.
pub fn keeps_data(device: &dyn Device) -> bool {
    let info = device.info();
    let bytes = info.block_sectors * SECTOR_BYTES as u32;
    let is_touched = |zone: u32, canary: u8| {
        let mut buffer = IoBuf::zeroed(bytes);
        buffer.fill(canary);
        let (buffer, result) = read_alone(device, info.geometry.start_of(ZoneIndex(zone)), buffer);
        result.ok().map(|()| buffer.iter().any(|&byte| byte != canary))
    };
    // Data that happens to be the one canary is not the other. An offline zone tells nothing.
    let zones = 0..info.geometry.zones().min(PROBED_ZONES_MAX);
    let mut told = zones.filter_map(|zone| Some(is_touched(zone, 0xA5)? || is_touched(zone, 0x5A)?));
    told.next().unwrap_or(true)
}
