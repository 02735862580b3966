//! Bad blocks, zones that are bad from the start, and the limit on the bandwidth.

use super::*;
use crate::badblocks::{BadRange, RANGES_MAX};
use crate::emulated::OptionsError;
use crate::fault::{Fault, Plan};
use crate::linear::Linear;
use std::sync::Arc;
use zonal_core::device::ZoneEvent;

const MEDIUM: Result<(), DeviceError> = Err(DeviceError::Medium);

/// Sectors 75 to 76 are bad: 11 sectors into zone 1.
fn bad() -> EmulatedOptions {
    EmulatedOptions { badblocks: vec![75..=76], blocksize: 1024, ..small() }
}

fn partial() -> EmulatedOptions {
    EmulatedOptions { badblocks_partial_io: true, ..bad() }
}

/// In each mode of completion, with and without several writes in flight.
fn each(options: EmulatedOptions) -> [EmulatedOptions; 3] {
    let ordered = EmulatedOptions { preserves_write_order: true, ..options.clone() };
    [options.clone(), polled(options), ordered]
}

fn append(device: &dyn Device, sector: u64, sectors: usize) -> CommandResult {
    transfer(device, Op::Append, sector, &mut vec![9; sectors * 512])
}

#[test]
fn write_to_a_bad_block_moves_the_pointer_over_what_was_transferred() {
    for (options, good) in each(bad()).map(|o| (o, 0)).into_iter().chain(each(partial()).map(|o| (o, 10))) {
        for device in [Box::new(null(&options)) as Box<dyn Device>, Box::new(ram(&options))] {
            assert_eq!(write_filled(&*device, 64, 16, 1), MEDIUM);
            // Whole blocks of two sectors.
            assert_eq!(shape(&*device, 1), imp_open(good));
            assert_eq!(write_filled(&*device, 64 + good, 10 - good as usize, 2).is_ok(), good == 0);
            assert_eq!(shape(&*device, 1), imp_open(10));
            assert_eq!(write_filled(&*device, 74, 2, 3), MEDIUM);
            assert_eq!(append(&*device, 64, 2), Err(DeviceError::Medium));
            assert_eq!(act(&*device, Op::WriteZeroes, 74, 2), MEDIUM);
            assert_eq!(shape(&*device, 1), imp_open(10), "nowhere beyond");
            assert_eq!(write_filled(&*device, 80, 2, 3), refused(ZoneError::InvalidWrite), "position first");
            assert_eq!(append(&*device, 128, 2), Ok(Output::Appended(Sector(128))), "another zone");
        }
    }
}

#[test]
fn append_to_a_bad_block_moves_the_pointer_over_what_was_transferred() {
    for (options, good) in each(bad()).map(|o| (o, 4)).into_iter().chain(each(partial()).map(|o| (o, 10))) {
        let device = ram(&options);
        assert_eq!(append(&device, 64, 4), Ok(Output::Appended(Sector(64))));
        assert_eq!(append(&device, 64, 16), Err(DeviceError::Medium));
        assert_eq!(shape(&device, 1), imp_open(good));
        assert_eq!(read_fills(&device, 64, good as usize), vec![9; good as usize]);
    }
}

/// Nothing makes a zone full but data up to its capacity.
#[test]
fn last_write_of_a_zone_with_a_bad_end_does_not_fill_it() {
    for (options, good) in each(bad()).map(|o| (o, 0)).into_iter().chain(each(partial()).map(|o| (o, 46))) {
        let device = ram(&EmulatedOptions { badblocks: vec![64 + 46..=64 + 47], ..options });
        for op in [Op::Write, Op::Append] {
            assert_eq!(transfer(&device, op, 64, &mut [5; 48 * 512]).map(drop), MEDIUM);
            assert_eq!(shape(&device, 1), imp_open(good), "{op:?}");
            device.zones().check().unwrap();
            act(&device, Op::ZoneReset, 64, 0).unwrap();
        }
        device.badblocks(Some("-0-511".parse().unwrap())).unwrap();
        assert_eq!(append(&device, 64, 48), Ok(Output::Appended(Sector(64))));
        assert_eq!(shape(&device, 1), FULL);
    }
}

#[test]
fn reads_and_verifies_of_a_bad_block_fail_and_return_what_is_before_it() {
    for (options, good) in [(bad(), 0), (polled(bad()), 0), (partial(), 10), (polled(partial()), 10)] {
        let device = ram(&EmulatedOptions { badblocks: Vec::new(), ..options });
        write_filled(&device, 64, 20, 7).unwrap();
        let add = Some("+75-76".parse().unwrap());
        assert_eq!(device.badblocks(add), Ok(vec![(75, 76)]));
        let mut bytes = vec![0xEE; 20 * 512];
        assert_eq!(transfer(&device, Op::Read, 64, &mut bytes).map(drop), MEDIUM);
        assert!(bytes[..good * 512].iter().all(|&b| b == 7));
        assert!(bytes[good * 512..].iter().all(|&b| b == 0));
        assert_eq!(act(&device, Op::Verify, 64, 20), MEDIUM);
        assert_eq!(read_fills(&device, 64, 10), [7; 10]);
        assert_eq!(act(&device, Op::Verify, 78, 2), Ok(()));
    }
}

#[test]
fn conventional_zone_keeps_what_is_before_the_bad_block() {
    for (options, good) in [(bad(), 0), (partial(), 4)] {
        let device = ram(&EmulatedOptions { badblocks: vec![5..=5], ..options });
        assert_eq!(write_filled(&device, 0, 8, 6), MEDIUM);
        assert_eq!(read_fills(&device, 0, 4), [if good == 4 { 6 } else { 0 }; 4]);
        assert_eq!(read_fills(&device, 6, 2), [0; 2]);
        assert_eq!(act(&device, Op::Discard, 0, 8), Ok(()), "touches no medium");
    }
}

#[test]
fn bad_range_is_cleared_by_its_first_error_if_asked() {
    for options in each(EmulatedOptions { badblocks_once: true, ..bad() }) {
        let device = ram(&options);
        assert_eq!(write_filled(&device, 64, 16, 1), MEDIUM);
        assert_eq!(device.badblocks(None), Ok(Vec::new()));
        assert_eq!(write_filled(&device, 64, 16, 1), Ok(()));
    }
}

#[test]
fn bad_blocks_are_changed_on_a_drive_in_use() {
    let device = null(&bad());
    let change = |text: &str| device.badblocks(Some(text.parse::<BadRange>().unwrap()));
    assert_eq!(change("+80-83"), Ok(vec![(75, 76), (80, 83)]));
    assert_eq!(change("-76-81"), Ok(vec![(75, 75), (82, 83)]));
    assert_eq!(change("+500-512"), Err(DeviceError::OutOfRange));
    assert_eq!(device.badblocks(None), Ok(vec![(75, 75), (82, 83)]));
    assert_eq!(change("-0-511"), Ok(Vec::new()));
    for n in 0..RANGES_MAX as u64 {
        change(&format!("+{}-{}", 2 * n, 2 * n)).unwrap();
    }
    assert_eq!(change("+511-511"), Err(DeviceError::Os(28)));
    assert_eq!(device.badblocks(None).unwrap().len(), RANGES_MAX);
}

#[test]
fn wrappers_translate_bad_blocks() {
    let inner: Arc<dyn Device> = Arc::new(ram(&bad()));
    let plan = Plan::parse("bad_blocks = ['+200-201']").unwrap();
    let fault: Arc<dyn Device> = Arc::new(Fault::new(inner.clone(), plan));
    assert_eq!(fault.badblocks(None), Ok(vec![(75, 76), (200, 201)]));
    // Zones 1 and 2, sectors 64 to 191.
    let range = Linear::range(fault.clone(), 1..3).unwrap();
    assert_eq!(range.badblocks(None), Ok(vec![(11, 12)]));
    assert_eq!(range.badblocks(Some("+127-127".parse().unwrap())), Ok(vec![(11, 12), (127, 127)]));
    assert_eq!(range.badblocks(Some("+128-128".parse().unwrap())), Err(DeviceError::OutOfRange));
    assert_eq!(inner.badblocks(None), Ok(vec![(75, 76), (191, 191)]));
    assert_eq!(fault.badblocks(Some("-0-511".parse().unwrap())), Ok(Vec::new()));
    let two = Linear::concat([inner.clone(), Arc::new(ram(&EmulatedOptions { zone_nr_conv: 0, ..bad() }))])
        .unwrap();
    assert_eq!(two.badblocks(Some("+510-513".parse().unwrap())), Ok(vec![(510, 513), (587, 588)]));
    assert_eq!(inner.badblocks(None), Ok(vec![(510, 511)]));
    /// A device that is not emulated.
    struct Plain(Arc<dyn Device>);
    impl crate::device::Wrapper for Plain {
        fn inner(&self) -> &dyn Device {
            &*self.0
        }
        fn badblocks(&self, _: Option<BadRange>) -> Result<Vec<(u64, u64)>, DeviceError> {
            Err(DeviceError::Unsupported)
        }
    }
    let own = Fault::new(Arc::new(Plain(inner)), Plan::default());
    assert_eq!(Device::badblocks(&own, Some("+64-64".parse().unwrap())), Ok(vec![(64, 64)]));
    assert_eq!(write_filled(&own, 64, 2, 1), MEDIUM, "handled by the wrapper");
}

#[test]
fn zones_are_read_only_or_offline_from_the_start() {
    let options = EmulatedOptions { zone_readonly: vec![1..=2, 4..=4], zone_offline: vec![2..=2], ..small() };
    for device in [ram(&options), ram(&EmulatedOptions { zone_full: true, ..options.clone() })] {
        let conditions = (0..8).map(|zone| shape(&device, zone).0).collect::<Vec<_>>();
        use ZoneCondition::{Empty, Full, NotWp, Offline, ReadOnly};
        let rest = if conditions[3] == Full { Full } else { Empty };
        assert_eq!(conditions, [NotWp, ReadOnly, Offline, rest, ReadOnly, rest, rest, rest]);
        assert_eq!(write_filled(&device, 64, 8, 1), refused(ZoneError::ReadOnly));
        assert_eq!(read(&device, 128, 1), Err(DeviceError::Zone(ZoneError::Offline)));
        assert!(!device.has_changes(), "nothing has changed");
        device.zones().apply(ZoneIndex(4), ZoneEvent::Restore).unwrap();
        assert_eq!(shape(&device, 4).0, rest);
    }
}

#[test]
fn sectors_and_zones_that_are_not_there_are_refused() {
    let error = |options: EmulatedOptions| options.info("x").unwrap_err();
    let conventional = error(EmulatedOptions { zone_readonly: vec![3..=4, 0..=1], ..small() });
    assert_eq!(conventional, OptionsError::NotSequential { option: "zone_readonly", zone: ZoneIndex(0) });
    let beyond = error(EmulatedOptions { zone_offline: vec![7..=8], ..small() });
    assert_eq!(beyond, OptionsError::NotSequential { option: "zone_offline", zone: ZoneIndex(8) });
    let sector = error(EmulatedOptions { badblocks: vec![0..=3, 511..=512], ..small() });
    assert_eq!(sector, OptionsError::NoSector { sector: 512, sectors: 512 });
    let many = (0..=RANGES_MAX as u64).map(|n| 2 * n..=2 * n).collect();
    let many = error(EmulatedOptions { badblocks: many, ..small() });
    assert_eq!(many.to_string(), "number of separate badblocks of 254 is not between 0 and 253");
    let fast = error(EmulatedOptions { mbps: 1_000_001, ..small() });
    assert_eq!(fast.to_string(), "mbps of 1000001 is not between 0 and 1000000");
}

/// 1 MiB/s: eight sectors take 3906250 ns.
#[test]
fn data_arrives_at_the_rate_of_the_link_and_nothing_waits_in_submit() {
    const EIGHT: u64 = 3_906_250;
    let options = EmulatedOptions { mbps: 1, submit_queues: 2, hw_queue_depth: 3, ..small() };
    let device = null(&options);
    let submit = |now: u64, queue: usize, op: Op, sector: u64, sectors: u32| {
        let mut context = Some(Context::token(sector));
        device.submit(Nanos(now), queue, &command(op, sector, sectors), &mut context)
    };
    let poll = |now: u64, queue: usize| {
        let mut done = Vec::new();
        let next = device.poll(Nanos(now), queue, 99, &mut |c| done.push(c.context.into_token()));
        (done, next.map(|next| next.0))
    };
    // Both queues share the link. A refused write and a report take no time.
    assert!(matches!(submit(0, 0, Op::Write, 64, 8), Submitted::Accepted));
    assert!(matches!(submit(0, 0, Op::Write, 190, 8), Submitted::Accepted));
    assert!(matches!(submit(0, 1, Op::Append, 128, 16), Submitted::Accepted));
    assert!(matches!(submit(0, 0, Op::Read, 192, 8), Submitted::Accepted));
    assert!(matches!(submit(0, 0, Op::Read, 200, 8), Submitted::Busy));
    assert_eq!(poll(0, 0), (vec![], Some(EIGHT)));
    assert_eq!(poll(EIGHT - 1, 0), (vec![], Some(EIGHT)));
    assert_eq!(poll(EIGHT, 0), (vec![64, 190], Some(4 * EIGHT)));
    assert_eq!(poll(3 * EIGHT - 1, 1), (vec![], Some(3 * EIGHT)));
    assert_eq!(poll(3 * EIGHT, 1), (vec![128], None));
    assert_eq!(poll(4 * EIGHT, 0), (vec![192], None));
    // Idle time is lost.
    assert!(matches!(submit(100 * EIGHT, 0, Op::Read, 64, 8), Submitted::Accepted));
    assert_eq!(poll(100 * EIGHT, 0), (vec![], Some(101 * EIGHT)));
    // The delay of a completion comes on top.
    let late = null(&EmulatedOptions { completion_nsec: 5, ..options });
    late.submit(Nanos(0), 0, &command(Op::Read, 64, 8), &mut Some(Context::token(1)));
    assert_eq!(late.poll(Nanos(0), 0, 1, &mut |_| panic!("not yet")), Some(Nanos(EIGHT + 5)));
}
