use super::*;
use crate::data::{Data, Segment};
use crate::device::Output;
use crate::emulated::{CompleteMode, Emulated, EmulatedOptions, Null, Ram};
use crate::fault::{Degraded, Effect, Fault, Ops, Plan, Rule, Settling};
use crate::registry::Registry;
use crate::trace::{Trace, TraceLog};
use crate::volume::{self, Request, Volume, VolumeOptions, run_alone};
use proptest::prelude::*;
use zonal_core::{Personality, Sector, ZoneCondition};

/// Eight zones of 64 sectors, with a capacity of 48.
fn options() -> EmulatedOptions {
    EmulatedOptions {
        size: 8 * 64 * 512,
        zone_size: 64 * 512,
        zone_capacity: 48 * 512,
        hw_queue_depth: 8,
        ..Default::default()
    }
}

fn polled() -> EmulatedOptions {
    EmulatedOptions { complete: CompleteMode::Poll, completion_nsec: 10, ..options() }
}

fn null(options: &EmulatedOptions) -> Arc<dyn Device> {
    Arc::new(Emulated::new("null", options, Null).unwrap())
}

fn ram(options: &EmulatedOptions) -> Arc<dyn Device> {
    Arc::new(Emulated::new("ram", options, Ram::new(&options.geometry().unwrap())).unwrap())
}

fn traced(device: Arc<dyn Device>) -> (Arc<dyn Device>, TraceLog) {
    let (trace, log) = Trace::to_memory(device);
    (Arc::new(trace), log)
}

fn concat(options: &[EmulatedOptions]) -> Result<Linear, LinearError> {
    Linear::concat(options.iter().map(null))
}

fn command(op: Op, sector: u64, sectors: u32) -> Command {
    Command::new(op, Sector(sector), sectors)
}

#[test]
fn each_device_inside_is_a_spindle_of_its_own() {
    let row = |devices: u32| Arc::new(concat(&vec![options(); devices as usize]).unwrap());
    let spindles = |device: &Linear| device.info().spindles.iter().map(|zone| zone.0).collect::<Vec<_>>();
    assert_eq!(spindles(&row(1)), [0; 0]);
    assert_eq!(spindles(&row(3)), [8, 16]);
    // A range has only the spindles of its zones.
    assert_eq!(spindles(&Linear::range(row(3), 8..16).unwrap()), [0; 0]);
    assert_eq!(spindles(&Linear::range(row(3), 7..17).unwrap()), [1, 9]);
    assert_eq!(spindles(&Linear::concat([row(2) as Arc<dyn Device>, row(1)]).unwrap()), [8, 16]);
}

/// Runs a command to completion on sectors filled with `fill`, and returns their final fill bytes
/// as well.
fn run(device: &dyn Device, op: Op, sector: u64, sectors: u32, fill: u8) -> (CommandResult, Vec<u8>) {
    let mut bytes = vec![fill; if op == Op::Report { 0 } else { sectors as usize * 512 }];
    // SAFETY: the bytes outlive the command, because this waits for its completion.
    let data = unsafe { Data::one(Segment::new(bytes.as_mut_ptr(), bytes.len())) };
    let result = run_alone(device, &Command { data, ..command(op, sector, sectors) });
    (result, bytes.chunks(512).map(|s| s[0]).collect())
}

fn write(device: &dyn Device, sector: u64, sectors: u32, fill: u8) -> Result<(), DeviceError> {
    run(device, Op::Write, sector, sectors, fill).0.map(drop)
}

fn act(device: &dyn Device, op: Op, sector: u64) -> Result<(), DeviceError> {
    run(device, op, sector, 0, 0).0.map(drop)
}

/// Index, start, condition and write pointer of the zones from `sector` on.
fn report(device: &dyn Device, sector: u64, zones: u32) -> Vec<(u32, u64, ZoneCondition, Option<u64>)> {
    let zones = volume::report(device, Sector(sector), zones).unwrap();
    zones.iter().map(|z| (z.zone.0, z.start.0, z.condition, z.write_pointer.map(|p| p.0))).collect()
}

fn pointers(device: &dyn Device) -> Vec<u64> {
    let zones = volume::report(device, Sector(0), u32::MAX).unwrap();
    zones.iter().map(|z| z.write_pointer.map_or(99, |p| p.0 - z.start.0)).collect()
}

const EMPTY: ZoneCondition = ZoneCondition::Empty;
const OPEN: ZoneCondition = ZoneCondition::ImpOpen;

#[test]
fn range_translates_addresses_both_ways() {
    for options in [options(), polled()] {
        let device = Linear::range(ram(&options), 3..6).unwrap();
        assert_eq!((device.info().geometry.zones(), device.info().geometry.sectors().0), (3, 3 * 64));
        assert_eq!(write(&device, 64, 4, 1), Ok(()));
        assert_eq!(run(&device, Op::Append, 64, 2, 2).0, Ok(Output::Appended(Sector(68))));
        assert_eq!(run(&device, Op::Read, 64, 7, 9).1, [1, 1, 1, 1, 2, 2, 0]);
        assert_eq!(report(&device, 70, 100), [(1, 64, OPEN, Some(70)), (2, 128, EMPTY, Some(128))]);
        assert_eq!(report(&device, 0, 1), [(0, 0, EMPTY, Some(0))]);
        assert_eq!(act(&device, Op::ZoneFinish, 128), Ok(()));
        assert_eq!(report(&device, 128, 9), [(2, 128, ZoneCondition::Full, None)]);
        let inside = &*device.pieces[0].device;
        assert_eq!(pointers(inside), [0, 0, 0, 0, 6, 99, 0, 0]);
    }
}

#[test]
fn commands_outside_the_range_do_not_reach_the_device() {
    let (inside, log) = traced(ram(&options()));
    let device = Linear::range(inside, 3..6).unwrap();
    for op in [Op::Read, Op::Write, Op::Append, Op::ZoneReset, Op::Report] {
        assert_eq!(run(&device, op, 3 * 64, 1, 1).0, Err(DeviceError::OutOfRange), "{op:?}");
        assert_eq!(run(&device, op, u64::MAX, 1, 1).0, Err(DeviceError::OutOfRange), "{op:?}");
    }
    for op in [Op::Read, Op::Write] {
        assert_eq!(run(&device, op, 3 * 64 - 1, 2, 1).0, Err(DeviceError::OutOfRange));
    }
    assert!(log.records().is_empty());
}

#[test]
fn reset_of_all_zones_of_a_range_leaves_the_others_alone() {
    for options in [options(), EmulatedOptions { hw_queue_depth: 1, ..polled() }] {
        let inside = ram(&options);
        for zone in 0..8 {
            write(&*inside, zone * 64, 4, 1).unwrap();
        }
        act(&*inside, Op::ZoneFinish, 4 * 64).unwrap();
        let device = Linear::range(inside.clone(), 3..6).unwrap();
        assert_eq!(act(&device, Op::ResetAll, 0), Ok(()));
        assert_eq!(pointers(&*inside), [4, 4, 4, 0, 0, 0, 4, 4]);
    }
}

#[test]
fn reset_of_all_zones_of_a_whole_device_is_one_command() {
    let (a, log_a) = traced(ram(&options()));
    let (b, log_b) = traced(ram(&options()));
    let device = Linear::concat([a, b]).unwrap();
    write(&device, 0, 4, 1).unwrap();
    write(&device, 9 * 64, 4, 1).unwrap();
    assert_eq!(act(&device, Op::ResetAll, 0), Ok(()));
    assert_eq!(pointers(&device), [0; 16]);
    assert_eq!((log_a.commands(Op::ResetAll), log_b.commands(Op::ResetAll)), (1, 1));
    assert_eq!((log_a.commands(Op::ZoneReset), log_b.commands(Op::ZoneReset)), (0, 0));
}

#[test]
fn concatenation_spreads_commands_and_gathers_reports() {
    for options in [options(), polled()] {
        let small = EmulatedOptions { size: 3 * 64 * 512, ..options.clone() };
        let device = Linear::concat([ram(&small), ram(&options), ram(&small)]).unwrap();
        assert_eq!(device.info().geometry.zones(), 14);
        for zone in 0..14u64 {
            assert_eq!(write(&device, zone * 64, 2 + zone as u32, zone as u8), Ok(()));
            let at = Sector(zone * 64 + 2 + zone);
            assert_eq!(run(&device, Op::Append, zone * 64, 1, 77).0, Ok(Output::Appended(at)));
        }
        assert_eq!(pointers(&device), (0..14).map(|z| z + 3).collect::<Vec<_>>());
        assert_eq!(report(&device, 2 * 64 + 5, 2), [(2, 128, OPEN, Some(133)), (3, 192, OPEN, Some(198))]);
        assert_eq!(report(&device, 10 * 64, 99).len(), 4);
        assert_eq!(report(&device, 0, 0), []);
        assert_eq!(run(&device, Op::Read, 12 * 64, 14, 9).1[..2], [12, 12]);
        assert_eq!(pointers(&*device.pieces[1].device), (3..11).map(|z| z + 3).collect::<Vec<_>>());
    }
}

#[test]
fn command_across_two_devices_is_refused() {
    let device = concat(&[options(), options()]).unwrap();
    for op in [Op::Read, Op::Write] {
        assert_eq!(run(&device, op, 8 * 64 - 1, 2, 1).0, Err(ZoneError::Boundary.into()));
    }
}

#[test]
fn flush_reaches_every_device_and_fails_with_the_first_that_fails() {
    for options in [options(), polled()] {
        let (a, log_a) = traced(ram(&options));
        let (b, log_b) = traced(ram(&options));
        let failing = Rule::new(Effect::Refuse(DeviceError::Medium)).on(Ops::of(&[Op::Flush])).nth(2);
        let a: Arc<dyn Device> = Arc::new(Fault::new(a, Plan::of(1, [failing])));
        let device = Linear::concat([a, b]).unwrap();
        assert_eq!(act(&device, Op::Flush, 0), Ok(()));
        assert_eq!((log_a.commands(Op::Flush), log_b.commands(Op::Flush)), (1, 1));
        assert_eq!(act(&device, Op::Flush, 0), Err(DeviceError::Medium));
    }
}

#[test]
fn limits_are_the_smallest_and_order_is_everybodys() {
    let a = EmulatedOptions {
        zone_max_open: 4,
        zone_max_active: 6,
        max_sectors: 32,
        zone_append_max_sectors: 16,
        write_zeroes_max_sectors: 24,
        blocksize: 512,
        submit_queues: 3,
        preserves_write_order: true,
        ..options()
    };
    let b = EmulatedOptions {
        zone_max_open: 3,
        zone_max_active: 0,
        max_sectors: 30,
        zone_append_max_sectors: 29,
        blocksize: 4096,
        submit_queues: 2,
        preserves_write_order: true,
        rotational: true,
        fua: false,
        ..options()
    };
    let device = concat(&[a.clone(), b.clone()]).unwrap();
    let info = device.info();
    assert_eq!((info.open_max, info.active_max, info.block_sectors), (3, 6, 8));
    assert_eq!((info.command_sectors_max, info.append_sectors_max), (24, 16));
    assert_eq!((info.write_zeroes_sectors_max, info.queues), (24, 2));
    assert!(info.keeps_order && info.rotational && !info.fua);
    let unordered = EmulatedOptions { preserves_write_order: false, ..b };
    assert!(!concat(&[a.clone(), unordered]).unwrap().info().keeps_order);
    let without = EmulatedOptions { zone_append_max_sectors: 0, write_zeroes_max_sectors: 0, ..options() };
    let device = concat(&[a, without]).unwrap();
    assert_eq!((device.info().append_sectors_max, device.info().write_zeroes_sectors_max), (0, 0));
}

#[test]
fn limits_that_the_zones_of_a_range_cannot_reach_are_none() {
    let options = EmulatedOptions { zone_max_open: 4, zone_max_active: 6, zone_nr_conv: 1, ..options() };
    let limits = |zones| {
        let device = Linear::range(null(&options), zones).unwrap();
        (device.info().open_max, device.info().active_max)
    };
    assert_eq!(limits(0..8), (4, 6));
    assert_eq!(limits(0..7), (4, 0));
    assert_eq!(limits(0..5), (0, 0));
}

#[test]
fn devices_that_do_not_fit_are_refused_one_by_one() {
    let wrong = |others: &[EmulatedOptions]| concat(others).err().unwrap().to_string();
    let base = options;
    let size = EmulatedOptions { zone_size: 128 * 512, ..base() };
    assert_eq!(wrong(&[base(), size]), "null has zones of 128 sectors, null of 64");
    let capacity = EmulatedOptions { zone_capacity: 40 * 512, ..base() };
    assert!(wrong(&[base(), capacity]).contains("capacity of 40 sectors, null of 48"));
    let personality = EmulatedOptions { personality: Personality::Zbc, ..base() };
    assert!(wrong(&[base(), personality]).contains("follows Zbc"));
    let conventional = EmulatedOptions { zone_nr_conv: 2, ..base() };
    assert!(wrong(&[base(), conventional.clone()]).contains("precede all sequential"));
    assert!(concat(&[conventional, base()]).is_ok());
    let whole = EmulatedOptions { zone_capacity: 0, ..base() };
    let smaller = EmulatedOptions { size: (7 * 64 + 8) * 512, ..whole.clone() };
    assert!(wrong(&[smaller.clone(), whole.clone()]).contains("smaller zone"));
    let device = concat(&[whole, smaller]).unwrap();
    assert_eq!(device.info().geometry.size_of(ZoneIndex(15)), 8);
    assert_eq!(wrong(&[]), LinearError::Nothing.to_string());
    let one = null(&base());
    assert!(matches!(Linear::concat([one.clone(), one]), Err(LinearError::Twice { .. })));
}

#[test]
fn ranges_that_are_none_are_refused() {
    let options = EmulatedOptions { zone_nr_conv: 2, ..options() };
    let wrong = |zones| Linear::range(null(&options), zones).err().unwrap();
    for zones in [0..9, 8..9, 3..3, 9..12] {
        assert!(matches!(wrong(zones), LinearError::Range { zones: 8, .. }));
    }
    assert!(matches!(wrong(0..2), LinearError::Geometry(_)), "no sequential zone is left");
    let device = Linear::range(null(&options), 1..4).unwrap();
    assert_eq!(device.info().geometry.conventional_zones(), 1);
}

#[test]
fn reset_all_of_a_range_skips_zones_that_cannot_be_reset() {
    let fault = Arc::new(Fault::new(ram(&options()), Plan::default()));
    let device = Linear::range(fault.clone(), 2..8).unwrap();
    for zone in 0..6 {
        write(&device, zone * 64, 4, 1).unwrap();
    }
    fault.degrade(ZoneIndex(3), Degraded::ReadOnly).unwrap();
    assert_eq!(act(&device, Op::ResetAll, 0), Ok(()));
    assert_eq!(pointers(&device), [0, 99, 0, 0, 0, 0]);
    fault.inject(Rule::new(Effect::Refuse(DeviceError::Medium)).on(Ops::of(&[Op::ZoneReset])));
    write(&device, 0, 4, 1).unwrap();
    assert_eq!(act(&device, Op::ResetAll, 0), Err(DeviceError::Medium));
}

#[test]
fn zone_is_settled_at_its_own_device() {
    let plan = Plan {
        settling: Settling::Never,
        ..Plan::of(1, [Rule::new(Effect::Refuse(DeviceError::TimedOut)).nth(1)])
    };
    let fault: Arc<dyn Device> = Arc::new(Fault::new(null(&options()), plan));
    let device = Linear::concat([null(&options()), fault]).unwrap();
    assert_eq!(write(&device, 10 * 64, 4, 1), Err(DeviceError::TimedOut));
    assert_eq!(device.settle(Nanos(0), ZoneIndex(2)), Settled::Yes);
    assert_eq!(device.settle(Nanos(0), ZoneIndex(10)), Settled::Never(DeviceError::Aborted));
}

#[test]
fn polls_take_devices_in_turn() {
    let device = Linear::concat([ram(&polled()), ram(&polled())]).unwrap();
    for n in 0..6u64 {
        let mut context = Some(Context::token(n));
        let submitted = device.submit(Nanos(0), 0, &command(Op::Report, (n % 2) * 8 * 64, 1), &mut context);
        assert!(matches!(submitted, Submitted::Accepted));
    }
    let mut tokens = Vec::new();
    let mut once = |now| device.poll(Nanos(now), 0, 1, &mut |c| tokens.push(c.context.into_token()));
    assert_eq!(once(9), Some(Nanos(10)));
    for _ in 0..5 {
        assert_eq!(once(10), Some(Nanos(10)));
    }
    once(10);
    assert_eq!(tokens.len(), 6);
    assert_ne!(tokens[0] % 2, tokens[1] % 2, "one device starves the other: {tokens:?}");
}

#[test]
fn task_interrupted_by_a_full_queue_continues_later() {
    let narrow = EmulatedOptions { hw_queue_depth: 1, ..polled() };
    let device = Linear::concat([null(&options()), null(&narrow)]).unwrap();
    let submit = |token: u64, command: Command| {
        let mut context = Some(Context::token(token));
        device.submit(Nanos(0), 0, &command, &mut context)
    };
    assert!(matches!(submit(1, command(Op::Report, 8 * 64, 1)), Submitted::Accepted));
    // The first device answers inline, the second is busy.
    assert!(matches!(submit(2, command(Op::Flush, 0, 0)), Submitted::Accepted));
    // A command that arrives now has to wait for it.
    assert!(matches!(submit(3, command(Op::Flush, 0, 0)), Submitted::Busy));
    let mut tokens = Vec::new();
    let mut poll = |now| device.poll(Nanos(now), 0, 9, &mut |c| tokens.push(c.context.into_token()));
    assert_eq!(poll(0), Some(Nanos(10)), "time has to pass: a full queue is no reason to look at once");
    assert!(poll(10).is_some());
    poll(20);
    assert_eq!(tokens, [1, 2]);
}

#[test]
fn volume_writes_through_a_concatenation() {
    for options in [options(), polled()] {
        let device = Arc::new(Linear::concat([ram(&options), ram(&options)]).unwrap());
        let volume = Arc::new(Volume::open(device.clone(), VolumeOptions::default()).unwrap());
        let ends = Arc::new(Mutex::new(Vec::new()));
        let noted = ends.clone();
        let channel = volume.channel(move |c| noted.lock().push((c.token, c.result)));
        for n in 0..32u64 {
            let mut buf = crate::buffer::IoBuf::zeroed(2 * 512);
            buf.fill(n as u8);
            let request = Request::append(Sector((n % 16) * 64), 2, buf);
            volume.submit(Nanos(0), &channel, request.token(n));
        }
        let mut now = 0;
        while ends.lock().len() < 32 {
            now += 10;
            assert!(now < 10_000, "stuck");
            volume.poll(Nanos(now));
        }
        for (token, result) in ends.lock().iter() {
            let Ok(Output::Appended(at)) = result else { panic!("{result:?}") };
            assert_eq!(at.0 / 64, token % 16);
            assert_eq!(run(&*device, Op::Read, at.0, 2, 0xEE).1, [*token as u8; 2]);
        }
    }
}

#[test]
fn volume_that_passes_a_reset_of_all_zones_on_reaches_its_range_only() {
    for options in [options(), polled()] {
        let inside = ram(&options);
        (0..8).for_each(|zone| write(&*inside, zone * 64, 4, 1).unwrap());
        let device = Arc::new(Linear::range(inside.clone(), 3..6).unwrap());
        let direct = VolumeOptions { mode: Some(volume::WriteMode::Direct), ..VolumeOptions::default() };
        let volume = Arc::new(Volume::open(device, direct).unwrap());
        let ended = Arc::new(AtomicUsize::new(0));
        let noted = ended.clone();
        let channel = volume.channel(move |c| {
            assert_eq!(c.result, Ok(Output::Done));
            noted.fetch_add(1, Ordering::Relaxed);
        });
        volume.submit(Nanos(0), &channel, Request::reset_all());
        let mut now = 0;
        while ended.load(Ordering::Relaxed) == 0 {
            now += 10;
            assert!(now < 10_000, "stuck");
            volume.poll(Nanos(now));
        }
        drop(volume);
        assert_eq!(pointers(&*inside), [4, 4, 4, 0, 0, 0, 4, 4]);
    }
}

#[test]
fn names_lead_to_ranges_and_concatenations() {
    let open = |name: &str| Registry::default().open(name);
    let small = "null:size=1M,zone_size=64k";
    let zones = |name: &str| open(name).unwrap_or_else(|e| panic!("{e}")).info().geometry.zones();
    assert_eq!(zones(&format!("linear:zone=4,zones=8+{small}")), 8);
    assert_eq!(zones(&format!("linear:zone=4+{small}")), 12);
    assert_eq!(zones(&format!("concat:[{small}][fault:torn=0.1+{small}]")), 32);
    let nested = format!("linear:zone=8,zones=16+concat:[{small}][concat:[{small}][{small}]]");
    assert_eq!((zones(&nested), open(&nested).unwrap().info().name.as_str()), (16, nested.as_str()));
    for (name, place, about) in [
        (format!("linear:zone=16+{small}"), "linear:zone=16", "are not on null"),
        (format!("linear:zone=3,zones=0+{small}"), "linear:zone=3,zones=0", "are not on null"),
        (format!("linear:zones=4294967295+{small}"), "linear:zones=4294967295", "are not on null"),
        (format!("concat:[{small}][null:siz=3]"), "siz", "did you mean \"size\"?"),
        (format!("concat:[{small}][null:size=1M,zone_size=128k]"), "", "zones of 256 sectors"),
        (format!("concat:[{small}]x"), "x", "in brackets"),
        (format!("concat:[{small}"), "[null:size=1M,zone_size=64k", "in brackets"),
        ("concat".to_owned(), "", "in brackets"),
        ("concat:[]".to_owned(), "", "is empty"),
        ("concat:]".to_owned(), "]", "in brackets"),
        ("concat:[missing.img]".to_owned(), "missing.img", "missing.img"),
        (format!("{}null{}", "concat:[".repeat(20), "]".repeat(20)), "", "nested"),
    ] {
        let error = open(&name).err().unwrap_or_else(|| panic!("{name} is fine"));
        assert_eq!(error.name(), name);
        assert!(error.to_string().contains(about), "{name}: {error}");
        assert!(place.is_empty() || &name[error.place()] == place, "{name}: {error}");
    }
}

proptest! {
    /// Compares a concatenation of ranges with one device of the same zones.
    #[test]
    fn pieces_behave_like_one_device(
        steps in prop::collection::vec((0..8u8, 0..12u64, 0..64u64, 1..20u32), 1..60),
        cuts in (1..4u32, 1..4u32),
    ) {
        let geometry = |zones: u32| EmulatedOptions { size: u64::from(zones) * 64 * 512, ..options() };
        let one = ram(&geometry(12));
        let part = |before: u32, zones: u32| -> Arc<dyn Device> {
            Arc::new(Linear::range(ram(&geometry(before + zones + 1)), before..before + zones).unwrap())
        };
        let (a, b) = cuts;
        let pieces = Linear::concat([part(0, a), part(2, b), part(1, 12 - a - b)]).unwrap();
        let boundaries = [u64::from(a) * 64, u64::from(a + b) * 64];
        for (n, (what, zone, offset, sectors)) in steps.into_iter().enumerate() {
            let start = zone * 64;
            let (op, sector, sectors) = match what {
                0 => (Op::Read, start + offset, sectors),
                1 => (Op::Append, start, sectors),
                2 => (Op::ZoneReset, start, 0),
                3 => (Op::ZoneFinish, start, 0),
                4 => (Op::ZoneClose, start, 0),
                5 if offset < 4 => (Op::ResetAll, 0, 0),
                _ => {
                    let at = volume::report(&*one, Sector(start), 1).unwrap()[0].write_pointer;
                    (Op::Write, at.map_or(start, |p| p.0), sectors)
                }
            };
            // A command that leaves its zone is refused either way, with the zone's error or the
            // boundary's.
            let crosses = boundaries.iter().any(|&b| sector < b && sector + u64::from(sectors) > b);
            let (expected, bytes) = run(&*one, op, sector, sectors, n as u8);
            let (found, found_bytes) = run(&pieces, op, sector, sectors, n as u8);
            if crosses {
                prop_assert!(expected.is_err() && found.is_err());
            } else {
                prop_assert_eq!((expected, bytes), (found, found_bytes));
            }
        }
        prop_assert_eq!(report(&*one, 0, 99), report(&pieces, 0, 99));
        prop_assert_eq!(report(&*one, 65, 7), report(&pieces, 65, 7));
    }
}
