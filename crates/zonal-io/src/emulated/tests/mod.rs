//! Tests of the emulated devices through the device interface.

mod badblocks;
mod failures;
mod floors;
mod protocol;
mod ram_data;
mod side_by_side;
mod stress;
mod zone_rules;

use super::{CompleteMode, Emulated, EmulatedOptions, Null, Ram};
use crate::data::{Data, Segment};
use crate::device::{Command, CommandResult, Context, Device, Output, Submitted};
use zonal_core::{DeviceError, Nanos, Op, Sector, ZoneCondition, ZoneDescriptor, ZoneError, ZoneIndex};

/// Eight zones of 64 sectors with a capacity of 48; the first zone is conventional.
fn small() -> EmulatedOptions {
    EmulatedOptions {
        size: 8 * 64 * 512,
        zone_size: 64 * 512,
        zone_capacity: 48 * 512,
        zone_nr_conv: 1,
        ..Default::default()
    }
}

fn polled(options: EmulatedOptions) -> EmulatedOptions {
    EmulatedOptions { complete: CompleteMode::Poll, ..options }
}

fn null(options: &EmulatedOptions) -> Emulated<Null> {
    Emulated::new("null:test", options, Null).unwrap()
}

fn command(op: Op, sector: u64, sectors: u32) -> Command {
    Command::new(op, Sector(sector), sectors)
}

fn ram(options: &EmulatedOptions) -> Emulated<Ram> {
    Emulated::new("ram:test", options, Ram::new(&options.geometry().unwrap())).unwrap()
}

/// Payload of a command that completes before `bytes` is used again.
fn data(bytes: &mut [u8]) -> Data {
    // SAFETY: every test waits for the command before it accesses `bytes` again.
    unsafe { Data::one(Segment::new(bytes.as_mut_ptr(), bytes.len())) }
}

/// Runs a command with the payload `bytes`.
fn transfer(device: &dyn Device, op: Op, sector: u64, bytes: &mut [u8]) -> CommandResult {
    let sectors = (bytes.len() / 512) as u32;
    run(device, &Command { data: data(bytes), ..command(op, sector, sectors) })
}

/// Writes sectors filled with the byte `fill`.
fn write_filled(device: &dyn Device, sector: u64, sectors: usize, fill: u8) -> Result<(), DeviceError> {
    transfer(device, Op::Write, sector, &mut vec![fill; sectors * 512]).map(drop)
}

fn read(device: &dyn Device, sector: u64, sectors: usize) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = vec![0xEE; sectors * 512];
    transfer(device, Op::Read, sector, &mut bytes).map(|_| bytes)
}

/// Fill byte of each sector.
fn read_fills(device: &dyn Device, sector: u64, sectors: usize) -> Vec<u8> {
    let bytes = read(device, sector, sectors).unwrap();
    let fill = |sector: &[u8]| {
        assert!(sector.iter().all(|&b| b == sector[0]), "a sector of mixed content");
        sector[0]
    };
    bytes.chunks_exact(512).map(fill).collect()
}

/// Runs one command to completion, in either completion mode.
fn run(device: &dyn Device, command: &Command) -> CommandResult {
    let mut context = Some(Context::token(7));
    match device.submit(Nanos(0), 0, command, &mut context) {
        Submitted::Done(result) => result,
        Submitted::Busy => panic!("queue is full"),
        Submitted::Accepted => {
            let mut results = Vec::new();
            device.poll(Nanos(u64::MAX), 0, usize::MAX, &mut |c| results.push(c));
            let completed = results.pop().expect("the only command completes");
            assert!(results.is_empty());
            assert_eq!(completed.context.into_token(), 7);
            completed.result
        }
    }
}

fn act(device: &dyn Device, op: Op, sector: u64, sectors: u32) -> Result<(), DeviceError> {
    run(device, &command(op, sector, sectors)).map(drop)
}

fn zone(device: &dyn Device, zone: u64) -> ZoneDescriptor {
    match run(device, &command(Op::Report, zone * 64, 1)) {
        Ok(Output::Zones(zones)) => zones[0],
        other => panic!("{other:?}"),
    }
}

/// Condition and write pointer (in sectors from the zone's start) of a zone.
fn shape(device: &dyn Device, index: u64) -> (ZoneCondition, Option<u64>) {
    let descriptor = zone(device, index);
    (descriptor.condition, descriptor.write_pointer.map(|p| (p - descriptor.start).0))
}

fn refused(error: ZoneError) -> Result<(), DeviceError> {
    Err(DeviceError::Zone(error))
}

const FULL: (ZoneCondition, Option<u64>) = (ZoneCondition::Full, None);
const EMPTY: (ZoneCondition, Option<u64>) = (ZoneCondition::Empty, Some(0));

const fn imp_open(written: u64) -> (ZoneCondition, Option<u64>) {
    (ZoneCondition::ImpOpen, Some(written))
}

const fn closed(written: u64) -> (ZoneCondition, Option<u64>) {
    (ZoneCondition::Closed, Some(written))
}

#[test]
fn geometry_is_reported() {
    let device = null(&small());
    let Ok(Output::Zones(zones)) = run(&device, &command(Op::Report, 3, 100)) else { panic!() };
    assert_eq!(zones.len(), 8);
    assert_eq!((zones[0].condition, zones[0].capacity.0), (ZoneCondition::NotWp, 64));
    assert_eq!((zones[7].start.0, zones[7].capacity.0), (7 * 64, 48));
    let Ok(Output::Zones(zones)) = run(&device, &command(Op::Report, 6 * 64 + 63, 1)) else { panic!() };
    assert_eq!((zones.len(), zones[0].zone), (1, ZoneIndex(6)));
    assert_eq!(act(&device, Op::Report, 8 * 64, 1), Err(DeviceError::OutOfRange));
}
