//! Driver for one command at a time, with a payload that identifies its writer.
//!
//! Every written sector carries a stamp, a unique number; 0 means never written.

use std::time::Duration;
use zonal_core::{Nanos, Op, Sector, ZoneDescriptor};
use zonal_io::buffer::IoBuf;
use zonal_io::data::{Data, Segment};
use zonal_io::device::{Command, CommandResult, Context, Device, Output, Submitted};

pub const SECTOR: usize = 512;

/// Submits `command` with `buffer` as its payload and waits for the result.
pub fn run(device: &dyn Device, command: Command, buffer: &mut IoBuf) -> CommandResult {
    // SAFETY: the buffer outlives the command, which completes before this returns.
    let data = unsafe { Data::one(Segment::new(buffer.as_ptr(), buffer.len())) };
    let command = Command { data: if buffer.is_empty() { Data::NONE } else { data }, ..command };
    match device.submit(Nanos(0), 0, &command, &mut Some(Context::token(0))) {
        Submitted::Done(result) => return result,
        Submitted::Busy => panic!("busy with one command"),
        Submitted::Accepted => {}
    }
    loop {
        let mut answer = None;
        device.poll(Nanos(0), 0, 1, &mut |c| answer = Some(c.result));
        match answer {
            Some(result) => return result,
            None => device.wait(0, Duration::from_secs(1)),
        }
    }
}

pub fn command(op: Op, sector: u64, sectors: u32) -> Command {
    Command::new(op, Sector(sector), sectors)
}

/// Runs a command without payload.
pub fn plain(device: &dyn Device, op: Op, sector: u64, sectors: u32) -> CommandResult {
    run(device, command(op, sector, sectors), &mut IoBuf::empty())
}

/// Runs a write or append with one stamp per sector.
pub fn write(device: &dyn Device, command: Command, stamps: &[u64]) -> CommandResult {
    let mut buffer = IoBuf::zeroed((stamps.len() * SECTOR) as u32);
    for (sector, stamp) in buffer.chunks_exact_mut(SECTOR).zip(stamps) {
        sector.chunks_exact_mut(8).for_each(|b| b.copy_from_slice(&stamp.to_le_bytes()));
    }
    run(device, command, &mut buffer)
}

/// Reads the stamps of `sectors` sectors from `sector`.
pub fn read(device: &dyn Device, sector: u64, sectors: u32) -> Result<Vec<u64>, String> {
    let mut buffer = IoBuf::zeroed(sectors * SECTOR as u32);
    buffer.fill(0xEE);
    run(device, command(Op::Read, sector, sectors), &mut buffer)
        .map_err(|e| format!("read {sector}+{sectors}: {e}"))?;
    let stamps = buffer.chunks_exact(SECTOR).map(|bytes| {
        let words = bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap()));
        let mut words = words.collect::<Vec<_>>();
        words.dedup();
        if let [stamp] = words[..] { Ok(stamp) } else { Err(format!("a sector torn within: {words:x?}")) }
    });
    stamps.collect()
}

/// Reports zone number `zone`.
pub fn describe(device: &dyn Device, zone: u32) -> ZoneDescriptor {
    let start = device.info().geometry.start_of(zonal_core::ZoneIndex(zone));
    match plain(device, Op::Report, start.0, 1) {
        Ok(Output::Zones(zones)) => zones[0],
        other => panic!("report: {other:?}"),
    }
}
