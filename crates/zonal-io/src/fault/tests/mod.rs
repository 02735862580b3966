//! Each fault on a `ram` device; then many threads, a volume, an image, and nested wrappers.

mod compose;
mod errors;
mod misplaced;
mod order;
mod power;
mod time_outs;
mod zones;

use super::*;
use crate::data::{Data, Segment};
use crate::device::Output;
use crate::emulated::{CompleteMode, Emulated, EmulatedOptions, Ram};
use crate::registry::Registry;
use crate::volume::run_alone;
use zonal_core::{DeviceError, Op, Sector, ZoneCondition, ZoneError};

/// First sector of the zone that most tests write to.
const START: u64 = 64;

/// Eight zones of 64 sectors, the first conventional, and blocks of two sectors.
fn options() -> EmulatedOptions {
    EmulatedOptions {
        size: 8 * 64 * 512,
        zone_size: 64 * 512,
        zone_nr_conv: 1,
        blocksize: 1024,
        hw_queue_depth: 8,
        ..Default::default()
    }
}

fn polled() -> EmulatedOptions {
    EmulatedOptions { complete: CompleteMode::Poll, ..options() }
}

fn ram(options: &EmulatedOptions) -> Arc<dyn Device> {
    Arc::new(Emulated::new("ram", options, Ram::new(&options.geometry().unwrap())).unwrap())
}

/// Fault device on `ram` with this rule.
fn faulty(rule: Rule) -> Fault {
    Fault::new(ram(&options()), Plan::of(1, [rule]))
}

/// Fault devices in both completion modes.
fn both(rule: Rule) -> [Fault; 2] {
    [options(), polled()].map(|o| Fault::new(ram(&o), Plan::of(1, [rule.clone()])))
}

fn refuse(error: DeviceError) -> Rule {
    Rule::new(Effect::Refuse(error))
}

fn command(op: Op, sector: u64, sectors: u32) -> Command {
    Command::new(op, Sector(sector), sectors)
}

/// Runs a command to completion, advancing time as needed, on sectors filled with `fill`.
fn run(device: &dyn Device, op: Op, sector: u64, sectors: u32, fill: u8) -> CommandResult {
    let mut bytes = vec![fill; sectors as usize * 512];
    // SAFETY: the bytes outlive the command, because this waits for its completion.
    let data = unsafe { Data::one(Segment::new(bytes.as_mut_ptr(), bytes.len())) };
    run_alone(device, &Command { data, ..command(op, sector, sectors) })
}

fn write(device: &dyn Device, sector: u64, sectors: u32, fill: u8) -> Result<(), DeviceError> {
    run(device, Op::Write, sector, sectors, fill).map(drop)
}

fn append(device: &dyn Device, zone: u64, sectors: u32, fill: u8) -> Result<u64, DeviceError> {
    match run(device, Op::Append, zone, sectors, fill)? {
        Output::Appended(at) => Ok(at.0),
        other => panic!("{other:?}"),
    }
}

fn act(device: &dyn Device, op: Op, sector: u64) -> Result<(), DeviceError> {
    run_alone(device, &command(op, sector, u32::from(op == Op::Report))).map(drop)
}

/// First byte of each sector.
fn fills(device: &dyn Device, sector: u64, sectors: u32) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = vec![0xEE; sectors as usize * 512];
    // SAFETY: the bytes outlive the command, because this waits for its completion.
    let data = unsafe { Data::one(Segment::new(bytes.as_mut_ptr(), bytes.len())) };
    run_alone(device, &Command { data, ..command(Op::Read, sector, sectors) })?;
    Ok(bytes.chunks_exact(512).map(|s| s[0]).collect())
}

/// Condition of a zone, and its write pointer in sectors from its start.
fn shape(device: &dyn Device, zone: u64) -> (ZoneCondition, Option<u64>) {
    match run_alone(device, &command(Op::Report, zone * 64, 1)) {
        Ok(Output::Zones(zones)) => {
            (zones[0].condition, zones[0].write_pointer.map(|p| p.0 - zones[0].start.0))
        }
        other => panic!("{other:?}"),
    }
}

/// Host with several commands in flight; their bytes live until it is dropped.
struct Host<'d> {
    device: &'d dyn Device,
    bytes: Vec<Vec<u8>>,
}

impl<'d> Host<'d> {
    fn new(device: &'d dyn Device) -> Host<'d> {
        Host { device, bytes: Vec::new() }
    }

    /// Submits a command on sectors filled with `token`.
    fn submit(&mut self, now: u64, token: u64, op: Op, sector: u64, sectors: u32) -> Submitted {
        let mut bytes = vec![token as u8; sectors as usize * 512];
        // SAFETY: the bytes are stored below, and the heap memory of a vector does not move.
        let data = unsafe { Data::one(Segment::new(bytes.as_mut_ptr(), bytes.len())) };
        self.bytes.push(bytes);
        let mut context = Some(Context::token(token));
        let command = Command { data, ..command(op, sector, sectors) };
        let submitted = self.device.submit(Nanos(now), 0, &command, &mut context);
        let is_pending = matches!(submitted, Submitted::Accepted);
        assert_eq!(context.map(Context::into_token), (!is_pending).then_some(token));
        submitted
    }

    fn pends(&mut self, now: u64, token: u64, op: Op, sector: u64, sectors: u32) {
        assert!(matches!(self.submit(now, token, op, sector, sectors), Submitted::Accepted));
    }

    /// Tokens and answers at this time, and the time of the next poll.
    fn poll(&self, now: u64) -> (Vec<(u64, CommandResult)>, Option<u64>) {
        let mut out = Vec::new();
        let due = self.device.poll(Nanos(now), 0, usize::MAX, &mut |c| {
            out.push((c.context.into_token(), c.result));
        });
        (out, due.map(|d| d.0))
    }

    fn tokens(&self, now: u64) -> Vec<u64> {
        self.poll(now).0.into_iter().map(|(token, _)| token).collect()
    }
}

const DONE: CommandResult = Ok(Output::Done);

#[test]
fn device_without_rules_is_the_device() {
    for device in [options(), polled()].map(|o| Fault::new(ram(&o), Plan::default())) {
        assert_eq!(write(&device, START, 4, 1), Ok(()));
        assert_eq!(append(&device, START, 2, 2), Ok(START + 4));
        assert_eq!(fills(&device, START, 8), Ok(vec![1, 1, 1, 1, 2, 2, 0, 0]));
        assert_eq!(act(&device, Op::ResetAll, 0), Ok(()));
        assert_eq!(shape(&device, 1), (ZoneCondition::Empty, Some(0)));
        assert_eq!(device.settle(Nanos(0), ZoneIndex(1)), Settled::Yes);
        assert!(device.is_transparent());
    }
}

#[test]
fn seed_and_submissions_decide_everything() {
    let plan = |seed| {
        let text = "[rates]\nmedium = 0.2\ntorn = 0.2\nattention = 0.1\ntime-out = 0.1\nreorder = 0.3";
        Plan { seed, ..Plan::parse(text).unwrap() }
    };
    let course = |seed| {
        let device = Fault::new(ram(&polled()), plan(seed));
        let mut told: Vec<String> = Vec::new();
        for n in 0..200u64 {
            let zone = 1 + n % 7;
            let result = match n % 5 {
                0 => act(&device, Op::ZoneReset, zone * 64).map(|()| 0),
                1 => append(&device, zone * 64, 4, n as u8),
                _ => write(&device, zone * 64, 4, n as u8).map(|()| 0),
            };
            told.push(format!("{result:?}"));
        }
        let states: Vec<_> = (1..8).map(|z| shape(&*device.inner, z)).collect();
        (told, states)
    };
    assert_eq!(course(5), course(5));
    assert_ne!(course(5), course(6));
}
