//! Single commands without a volume: for opening a volume, and for tools.
//!
//! A device passes a completion to the thread that polls it. If a volume polls the same device,
//! each side reaps completions of the other and hands them over (`handover`). Completions left at
//! the device by a dropped volume or wrapper are discarded here.
//!
//! On a device in virtual or modelled time, these calls advance the time to that of the completion.
//! On a device used by a volume, use [`Volume::call`](super::Volume::call) instead.

use super::handover::{self, DirectCall};
use super::retry::{RETRIES_MAX, is_retried, pause};
use crate::buffer::IoBuf;
use crate::clock::Clock;
use crate::data::{Data, Segment};
use crate::device::{Command, CommandResult, Device, Output, Submitted};
use std::time::Duration;
use zonal_core::{DeviceError, Nanos, Op, SECTOR_BYTES, Sector, ZoneDescriptor, ZoneIndex};

/// Requests a report of zones from a device and waits for it.
///
/// # Errors
/// The device's error.
pub fn report(device: &dyn Device, sector: Sector, zones: u32) -> Result<Box<[ZoneDescriptor]>, DeviceError> {
    let command = Command::new(Op::Report, sector, zones);
    match run_persistently(device, &command)? {
        Output::Zones(zones) => Ok(zones),
        _ => Err(DeviceError::InvalidField),
    }
}

/// Runs one command on a device and waits for its completion.
///
/// # Errors
/// The device's error; [`DeviceError::Busy`] if an idle queue refuses the command eleven times in
/// about 100 ms.
pub fn run_alone(device: &dyn Device, command: &Command) -> Result<Output, DeviceError> {
    answer_alone(device, command, &mut Nanos(0)).unwrap_or(Err(DeviceError::Busy))
}

/// Like [`run_alone`], but `None` if an idle queue keeps refusing the command. Begins at `now`,
/// which is advanced as far as the device asks: virtual devices complete by time.
fn answer_alone(device: &dyn Device, command: &Command, now: &mut Nanos) -> Option<CommandResult> {
    // Before submission: a volume's poll may reap the result at once.
    let call = DirectCall::begin();
    let mut context = Some(call.context());
    let mut refused = 0;
    loop {
        match device.submit(*now, 0, command, &mut context) {
            Submitted::Done(result) => return Some(result),
            Submitted::Accepted => break,
            // No command is in flight to make room.
            Submitted::Busy if device.is_idle(0) => {
                if refused == RETRIES_MAX {
                    return None;
                }
                refused += 1;
                device.wait(0, Duration::from_nanos(pause(refused).0));
            }
            // Full of commands left by others, which are only reaped by polling.
            Submitted::Busy => poll_alone(device, now, &call),
        }
    }
    loop {
        if let Some(result) = call.answer() {
            return Some(result);
        }
        poll_alone(device, now, &call);
    }
}

/// Like [`run_alone`] for a command without side effects: retried after transient errors.
fn run_persistently(device: &dyn Device, command: &Command) -> Result<Output, DeviceError> {
    let mut retries = 0;
    loop {
        let result = answer_alone(device, command, &mut Nanos(0)).ok_or(DeviceError::Busy)?;
        if !is_retried(retries, &result) {
            return result;
        }
        retries += 1;
        device.wait(0, Duration::from_nanos(pause(retries).0));
    }
}

/// Number of reports that [`round_trip`] measures.
const ROUND_TRIPS: u32 = 4;

/// Measures the time in which the device completes a command that has no effect, a report of one
/// zone: the shortest of several, in the device's own time if it is virtual or modelled. 0 if the
/// device reports no zones.
pub fn round_trip(device: &dyn Device) -> Duration {
    let command = Command::new(Op::Report, Sector(0), 1);
    let clock = Clock::start();
    let mut now = Nanos(0);
    let mut once = || {
        let (before, begin) = (now, clock.now());
        let answer = answer_alone(device, &command, &mut now);
        let took = match now.0 - before.0 {
            0 => clock.now().0 - begin.0,
            modelled => modelled,
        };
        matches!(answer, Some(Ok(_))).then_some(Duration::from_nanos(took))
    };
    // A device in virtual time may be ahead, so the first answer only sets the time.
    once();
    (0..ROUND_TRIPS).filter_map(|_| once()).min().unwrap_or_default()
}

/// Longest sleep; bounds the delay until a result reaped by another thread is seen.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// Polls once, and sleeps if nothing completes. A completion is left for its owner, possibly
/// `ours`.
fn poll_alone(device: &dyn Device, now: &mut Nanos, ours: &DirectCall) {
    let mut came = None;
    let due = device.poll(*now, 0, 1, &mut |c| came = Some(c));
    match (came, due) {
        (Some(c), _) => handover::leave(device, c.context, c.result),
        (None, Some(due)) => *now = due.max(*now),
        (None, None) if ours.is_answered() => {}
        (None, None) => device.wait(0, SLEEP_MAX),
    }
}

/// Fills `buf` by a read of its length from a device and waits for the result.
///
/// Returns the buffer together with the device's result.
pub fn read_alone(device: &dyn Device, sector: Sector, buf: IoBuf) -> (IoBuf, Result<(), DeviceError>) {
    // A panic must not free memory that the device may still fill.
    let buf = std::mem::ManuallyDrop::new(buf);
    // SAFETY: the buffer is ours and is neither touched nor freed until `run_alone` has waited for
    // the command to complete.
    let data = unsafe { Data::one(Segment::new(buf.as_ptr(), buf.len())) };
    let sectors = u32::try_from(buf.len() as u64 / SECTOR_BYTES).expect("a buffer is shorter than 4 GiB");
    let result = run_persistently(device, &Command { data, ..Command::new(Op::Read, sector, sectors) });
    (std::mem::ManuallyDrop::into_inner(buf), result.map(|_| ()))
}

/// Maximum of zones probed for a readable one.
const PROBED_ZONES_MAX: u32 = 64;

/// True if reads from `device` fill their buffers. A device that keeps no data leaves them
/// unchanged.
pub fn keeps_data(device: &dyn Device) -> bool {
    let info = device.info();
    let bytes = info.block_sectors * SECTOR_BYTES as u32;
    let is_touched = |zone: u32, canary: u8| {
        let mut buffer = IoBuf::zeroed(bytes);
        buffer.fill(canary);
        let (buffer, result) = read_alone(device, info.geometry.start_of(ZoneIndex(zone)), buffer);
        result.ok().map(|()| buffer.iter().any(|&byte| byte != canary))
    };
    // Data cannot equal both canaries. An offline zone gives no answer.
    let zones = 0..info.geometry.zones().min(PROBED_ZONES_MAX);
    let mut told = zones.filter_map(|zone| Some(is_touched(zone, 0xA5)? || is_touched(zone, 0x5A)?));
    told.next().unwrap_or(true)
}
