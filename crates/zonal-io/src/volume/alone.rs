//! One command at a time, on a device that nobody else uses: for whoever opens one, and for tools.
//!
//! A device hands a completion to whoever polls it, so that whoever polls one in use takes what others wait for.

use crate::buffer::IoBuf;
use crate::data::{Data, Segment};
use crate::device::{Command, Context, Device, Output, Submitted};
use std::time::Duration;
use zonal_core::{DeviceError, Nanos, Op, SECTOR_BYTES, Sector, ZoneDescriptor};

/// Asks an otherwise idle device for zones, and waits for the answer.
///
/// # Errors
/// The device's answer.
///
/// # Panics
/// If somebody else uses the device at the same time: their completions would be lost.
pub fn report(device: &dyn Device, sector: Sector, zones: u32) -> Result<Box<[ZoneDescriptor]>, DeviceError> {
    let command = Command { op: Op::Report, fua: false, sectors: zones, sector, data: Data::NONE };
    match run_alone(device, &command)? {
        Output::Zones(zones) => Ok(zones),
        _ => Err(DeviceError::InvalidField),
    }
}

/// Runs one command on an otherwise idle device, and waits for its answer.
///
/// # Errors
/// The device's answer.
///
/// # Panics
/// If somebody else uses the device at the same time: their completions would be lost.
pub fn run_alone(device: &dyn Device, command: &Command) -> Result<Output, DeviceError> {
    const TOKEN: u64 = u64::MAX;
    let mut context = Some(Context::token(TOKEN));
    // Virtual devices complete by time: let it run as far as they ask.
    let mut now = Nanos(0);
    loop {
        match device.submit(now, 0, command, &mut context) {
            Submitted::Done(result) => return result,
            Submitted::Pending => break,
            Submitted::Busy => device.wait(Duration::from_millis(1)),
        }
    }
    let mut answer = None;
    loop {
        let due = device.poll(now, 0, 1, &mut |c| answer = Some((c.context.into_token(), c.result)));
        match (answer.take(), due) {
            (Some((token, result)), _) => {
                assert_eq!(token, TOKEN, "the device is in use");
                return result;
            }
            (None, Some(due)) => now = due.max(now),
            (None, None) => device.wait(Duration::from_millis(10)),
        }
    }
}

/// Fills `buf`, whose length is that of the read, from an otherwise idle device, and waits for its answer.
///
/// Returns the buffer with the device's answer.
///
/// # Panics
/// If somebody else uses the device at the same time: their completions would be lost. The buffer is then leaked.
pub fn read_alone(device: &dyn Device, sector: Sector, buf: IoBuf) -> (IoBuf, Result<(), DeviceError>) {
    // A panic must not free what the device may still fill.
    let buf = std::mem::ManuallyDrop::new(buf);
    // SAFETY: the buffer is ours, and it is neither touched nor freed until the command has completed, which
    // `run_alone` waits for.
    let data = unsafe { Data::one(Segment::new(buf.as_ptr(), buf.len())) };
    let sectors = u32::try_from(buf.len() as u64 / SECTOR_BYTES).expect("a buffer is shorter than 4 GiB");
    let result = run_alone(device, &Command { op: Op::Read, fua: false, sectors, sector, data });
    (std::mem::ManuallyDrop::into_inner(buf), result.map(|_| ()))
}
