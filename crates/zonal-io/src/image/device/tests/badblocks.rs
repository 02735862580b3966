//! Bad blocks, zones that are bad from the start, and the limit on the bandwidth.

use super::*;
use crate::badblocks::{BadBlocks, RANGES_MAX};
use crate::image::format::{Session, bad_blocks, session_words};

const MEDIUM: CommandResult = Err(DeviceError::Medium);

/// Start of zone 2.
const TWO: u64 = 2 * ZONE;

fn made(options: &ImageOptions) -> Arc<CutBacking> {
    let backing = Arc::new(CutBacking::new(1));
    options.format(&*backing).unwrap();
    backing
}

/// Sectors 11 and 12 of zone 2 are bad.
fn bad(once: bool, partial_io: bool) -> Arc<CutBacking> {
    let badblocks = BadBlocks { once, partial_io, ..BadBlocks::new([TWO + 11..=TWO + 12]) };
    made(&ImageOptions { badblocks, blocksize: Some(1024), ..options() })
}

fn change(device: &ImageDevice, text: &str) -> Vec<(u64, u64)> {
    device.badblocks(Some(text.parse().unwrap())).unwrap()
}

fn listed(device: &ImageDevice) -> Vec<(u64, u64)> {
    device.badblocks(None).unwrap()
}

#[test]
fn commands_stop_in_front_of_a_bad_block() {
    for (partial_io, good) in [(false, 0), (true, 10)] {
        for threads in [0, 2] {
            let device = open_with(
                &bad(false, partial_io),
                &OpenOptions { threads, preserves_write_order: Some(true), ..Default::default() },
            );
            for op in [Op::Write, Op::Append, Op::WriteZeroes] {
                assert_eq!(with_bytes(&device, &command(op, TWO, 16), 3), MEDIUM);
                assert_eq!(zone(&device, 2), (ZoneCondition::ImpOpen, Some(good)), "{op:?}");
                assert_eq!(
                    read(&device, TWO, 10),
                    [if good == 0 || op == Op::WriteZeroes { 0 } else { 3 }; 10]
                );
                assert_eq!(manage(&device, Op::ZoneReset, 2), DONE);
            }
            let mut buffer = IoBuf::zeroed(16 * 512);
            buffer.fill(0xEE);
            assert_eq!(
                run(&device, &Command { data: data(&mut buffer), ..command(Op::Read, TWO, 16) }),
                MEDIUM
            );
            assert_eq!(run(&device, &command(Op::Verify, TWO + 10, 2)), MEDIUM);
            assert_eq!(run(&device, &command(Op::Verify, TWO, 10)), DONE);
            // The zone is usable once the sectors are good.
            assert_eq!(change(&device, &format!("-0-{}", 16 * ZONE - 1)), []);
            assert_eq!(write(&device, TWO, 48, 4), DONE);
            assert_eq!(zone(&device, 2), (ZoneCondition::Full, None));
        }
    }
}

#[test]
fn conventional_zone_keeps_what_is_before_the_bad_block() {
    let device = open(&bad(false, true));
    change(&device, "+5-5");
    assert_eq!(write(&device, 0, 8, 1), MEDIUM);
    assert_eq!(read(&device, 0, 4), [1; 4]);
    assert_eq!(read(&device, 6, 2), [0; 2]);
    assert_eq!(run(&device, &command(Op::Discard, 0, 8)), DONE);
    assert_eq!(read(&device, 0, 4), [0; 4]);
}

#[test]
fn changes_of_bad_blocks_are_durable_at_once_and_cleared_ranges_after_a_flush() {
    let backing = bad(true, true);
    let device = open(&backing);
    assert_eq!(listed(&device), [(TWO + 11, TWO + 12)]);
    assert_eq!(write(&device, TWO, 16, 3), MEDIUM);
    assert_eq!(listed(&device), [], "cleared by the error");
    assert_eq!(flush(&device), DONE);
    change(&device, "+700-703");
    device.abandon();
    let backing = Arc::new(backing.restart(1));
    let device = open(&backing);
    assert_eq!(listed(&device), [(700, 703)]);
    assert_eq!(zone(&device, 2), (ZoneCondition::Closed, Some(10)));
    // A clean close makes it durable as well, also without any other change.
    change(&device, "-700-701");
    device.close().unwrap();
    let device = open(&backing);
    assert_eq!(listed(&device), [(702, 703)]);
    let reader = open_with(&backing, &OpenOptions { mode: OpenMode::Reading, ..Default::default() });
    assert_eq!(listed(&reader), [(702, 703)]);
    let add = Some("+1-1".parse().unwrap());
    assert_eq!(reader.badblocks(add), Err(DeviceError::OpenedForReading));
    assert_eq!(device.badblocks(Some("+1-1024".parse().unwrap())), Err(DeviceError::OutOfRange));
}

/// Power fails in any call of a flush that changes them.
#[test]
fn bad_blocks_are_old_or_new_after_a_power_cut() {
    let (old, new) = (vec![(TWO + 11, TWO + 12)], vec![(8, 15), (TWO + 11, TWO + 12)]);
    let mut acknowledged = false;
    for call in 1.. {
        let backing = bad(false, false);
        let device = open(&backing);
        // The session may be open already.
        if call % 2 == 0 {
            assert_eq!(write(&device, TWO, 2, 3), DONE);
            assert_eq!(flush(&device), DONE);
        }
        change(&device, "+8-15");
        backing.cut_at(backing.calls() + call / 2);
        let flushed = flush(&device);
        acknowledged = flushed == DONE && backing.is_on();
        device.abandon();
        backing.cut();
        let device = open(&Arc::new(backing.restart(call)));
        let found = listed(&device);
        assert!(found == new || found == old && flushed != DONE, "call {call}: {found:?}, {flushed:?}");
        if acknowledged {
            break;
        }
    }
    assert!(acknowledged);
}

#[test]
fn session_page_has_all_ranges_or_is_refused() {
    let geometry = options().header().unwrap().geometry;
    let ranges = (0..RANGES_MAX as u64).map(|n| 4 * n..=4 * n + 1);
    let all = BadBlocks { once: true, ..BadBlocks::new(ranges) };
    for bad in [all, BadBlocks { partial_io: true, ..BadBlocks::default() }] {
        let words = session_words(Session::Open, &bad);
        assert_eq!(bad_blocks(&geometry, &words), Ok(bad));
    }
    let words = session_words(Session::Closed, &BadBlocks::new([8..=15]));
    for (word, value) in [(1, 254), (1, 1 << 34), (2, 16), (3, 1024)] {
        let mut damaged = words;
        damaged[word] = value;
        assert!(bad_blocks(&geometry, &damaged).is_err(), "word {word}: {value}");
    }
}

#[test]
fn zones_are_read_only_or_offline_from_the_start() {
    let options = ImageOptions { zone_readonly: vec![3..=4], zone_offline: vec![6..=6], ..options() };
    let device = open(&made(&options));
    let conditions = (2..8).map(|n| zone(&device, n).0).collect::<Vec<_>>();
    use ZoneCondition::{Empty, Offline, ReadOnly};
    assert_eq!(conditions, [Empty, ReadOnly, ReadOnly, Empty, Offline, Empty]);
    assert_eq!(write(&device, 3 * ZONE, 2, 1), Err(ZoneError::ReadOnly.into()));
    let mut full = vec![zonal_core::device::ZoneState::EMPTY; 16];
    full[..2].fill(zonal_core::device::ZoneState::CONVENTIONAL);
    full[3..7].fill(zonal_core::device::ZoneState::full(48));
    let device = open(&made(&ImageOptions { states: full, ..options.clone() }));
    assert_eq!(zone(&device, 5).0, ZoneCondition::Full);
    assert_eq!(read(&device, 3 * ZONE, 2), [0; 2]);
    assert_eq!(device.set_zone(ZoneIndex(3), ZoneSetting::Restored), Ok(()));
    assert_eq!(zone(&device, 3).0, ZoneCondition::Full);
    assert_eq!(device.set_zone(ZoneIndex(6), ZoneSetting::Restored), Ok(()));
    assert_eq!(zone(&device, 6).0, Empty);
    for (options, error) in [
        (
            ImageOptions { zone_readonly: vec![1..=2], ..options.clone() },
            "zone_readonly: zone 1 is not a sequential",
        ),
        (
            ImageOptions { zone_offline: vec![15..=16], ..options.clone() },
            "zone_offline: zone 16 is not a sequential",
        ),
        (
            ImageOptions { badblocks: BadBlocks::new([1024..=1024]), ..options },
            "sector 1024 is beyond the end",
        ),
    ] {
        let refused = options.format(&CutBacking::new(1)).unwrap_err().to_string();
        assert!(refused.contains(error), "{refused}");
    }
}

/// 1 MiB/s: eight sectors take 3906250 ns.
#[test]
fn data_arrives_at_the_rate_of_the_link() {
    const EIGHT: u64 = 3_906_250;
    for threads in [0, 1] {
        let device = open_with(&backing(), &OpenOptions { mbps: 1, threads, ..Default::default() });
        let mut buffer = IoBuf::zeroed(8 * 512);
        let mut submit = |token: u64, op: Op, sector: u64| {
            let command = Command { data: data(&mut buffer), ..command(op, sector, 8) };
            let submitted = device.submit(Nanos(0), 0, &command, &mut Some(Context::token(token)));
            assert!(matches!(submitted, Submitted::Accepted), "{op:?}");
        };
        submit(1, Op::Write, TWO);
        submit(2, Op::Read, 0);
        let arrived_at = |now: u64| {
            let mut arrived = Vec::new();
            device.poll(Nanos(now), 0, 9, &mut |c| arrived.push(c.context.into_token()));
            arrived
        };
        // A helper thread may be late.
        let waited_for = |now: u64| loop {
            match arrived_at(now) {
                none if none.is_empty() => std::thread::yield_now(),
                some => return some,
            }
        };
        assert!((0..100).all(|_| arrived_at(EIGHT - 1).is_empty()), "{threads}");
        assert_eq!(waited_for(2 * EIGHT - 1), [1], "{threads}");
        assert!((0..100).all(|_| arrived_at(2 * EIGHT - 1).is_empty()), "{threads}");
        assert_eq!(waited_for(2 * EIGHT), [2], "{threads}");
    }
}
