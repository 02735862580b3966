//! A part of a volume behaves like a volume on a device of these zones alone, and does not touch
//! the zones around it.

use parking_lot::Mutex;
use proptest::prelude::*;
use std::sync::Arc;
use zonal_check::rig::{in_pieces, payload, tags};
use zonal_core::{Nanos, Op, RequestError, Sector, ZoneCondition, ZoneIndex};
use zonal_io::clock::Clock;
use zonal_io::device::{Device, Output};
use zonal_io::linear::Linear;
use zonal_io::registry::Registry;
use zonal_io::volume::{Channel, Completion, Inbox, Part, Request, Volume, VolumeOptions, WriteMode};

const ZONES: u32 = 4;
const ZONE: u64 = 128;
const FIRST: u32 = 3;

/// Eight zones of 64 KiB, of which the first `conventional` are conventional. Two may be open:
/// fewer than any part here has, so that a volume on these zones alone keeps a budget, too.
fn device(conventional: u32, complete: &str) -> Arc<dyn Device> {
    let name = format!(
        "ram:size=512K,zone_size=64K,zone_capacity=48K,zone_nr_conv={conventional},blocksize=512,zone_max_open=2,\
         zone_max_active=2,complete={complete}"
    );
    Registry::default().open(&name).unwrap()
}

fn options(mode: WriteMode) -> VolumeOptions {
    VolumeOptions::default().with_mode(mode).without_park()
}

fn part(mode: WriteMode, conventional: u32, complete: &str) -> Part {
    let volume = Volume::open(device(conventional, complete), options(mode)).unwrap();
    Part::new(Arc::new(volume), FIRST..FIRST + ZONES).unwrap()
}

/// Comparable result of a request: its number, its answer, and the data it read.
type End = (u64, Result<Output, RequestError>, Vec<(u64, u64)>);

fn end(completion: Completion) -> End {
    let Completion { token, result, buf } = completion;
    (token, result, tags(&buf.into_buf()))
}

/// Request that is submitted to both.
#[derive(Clone, Debug)]
struct Ask {
    op: Op,
    sector: u64,
    sectors: u32,
    /// Polls after it.
    polls: u32,
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let op = prop::sample::select(vec![
        Op::Read,
        Op::Write,
        Op::Write,
        Op::WriteZeroes,
        Op::Append,
        Op::Append,
        Op::Report,
        Op::ZoneReset,
        Op::ZoneFinish,
        Op::ZoneOpen,
        Op::ZoneClose,
        Op::Flush,
        Op::ResetAll,
    ]);
    // Includes requests across zones, beyond the part, and beyond the device.
    let sector = prop_oneof![
        8 => (0..u64::from(ZONES) + 2, 0..5u64).prop_map(|(zone, step)| zone * ZONE + step * 8),
        2 => (0..u64::from(ZONES)).prop_map(|zone| zone * ZONE + ZONE - 8),
        1 => Just(u64::MAX - 7),
    ];
    let ask = (op, sector, 0..20u32, 0..3u32).prop_map(|(op, sector, sectors, polls)| Ask {
        op,
        sector,
        sectors,
        polls,
    });
    prop::collection::vec(ask, 1..60)
}

fn request(ask: &Ask, token: u64) -> Request {
    let Ask { op, sector, sectors, .. } = *ask;
    let sector = Sector(sector);
    let bytes = || in_pieces(payload(token, sectors.max(1)), token);
    let request = match op {
        Op::Read => Request::read(sector, sectors, in_pieces(payload(0, sectors.max(1)), token)),
        Op::Write => Request::write(sector, sectors, bytes()),
        Op::Append => Request::append(sector, sectors, bytes()),
        Op::WriteZeroes => Request::write_zeroes(sector, sectors),
        Op::Report => Request::report(sector, sectors),
        Op::Flush => Request::flush(),
        Op::ResetAll => Request::reset_all(),
        op => Request::zone(op, sector),
    };
    request.token(token)
}

/// Submits all requests, and returns their results in order.
fn ends(volume: &Volume, channel: &Channel, taken: &Mutex<Vec<End>>, asks: &[Ask]) -> Vec<End> {
    for (ask, token) in asks.iter().zip(1..) {
        volume.submit(Nanos(0), channel, request(ask, token));
        // A part resets all of its zones with several commands, so the number of polls differs.
        match ask.op {
            Op::ResetAll => settle(volume),
            _ => (0..ask.polls).for_each(|_| _ = volume.poll(Nanos(0))),
        }
    }
    settle(volume);
    let mut ends = std::mem::take(&mut *taken.lock());
    ends.sort_by_key(|(token, ..)| *token);
    ends
}

fn settle(volume: &Volume) {
    let mut now = Nanos(0);
    for _ in 0..10_000 {
        let Some(due) = volume.poll(now) else { return };
        now = now.max(due);
    }
    panic!("the volume does not come to rest");
}

fn collecting() -> (Arc<Mutex<Vec<End>>>, impl Fn(Completion) + Send + Sync + 'static) {
    let ends: Arc<Mutex<Vec<End>>> = Arc::default();
    let into = ends.clone();
    (ends, move |completion| into.lock().push(end(completion)))
}

fn modes() -> impl Strategy<Value = WriteMode> {
    prop::sample::select(vec![WriteMode::PerZone, WriteMode::Append, WriteMode::Qd1, WriteMode::ZoneLock])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn part_does_what_a_device_of_these_zones_does(
        asks in asks(), mode in modes(), conventional in 0..5u32, polled: bool, deferred: bool,
    ) {
        let complete = if polled { "poll" } else { "inline" };
        let part = part(mode, conventional, complete);
        let alone = Linear::range(device(conventional, complete), FIRST..FIRST + ZONES).unwrap();
        prop_assert_eq!(format!("{:?}", part.info()), format!("{:?}", alone.info()));
        let alone = Volume::open(Arc::new(alone), options(mode)).unwrap();

        let (of_part, complete) = collecting();
        let channel = if deferred { part.deferred_channel(complete) } else { part.channel(complete) };
        let (of_alone, complete) = collecting();
        let there = if deferred { alone.deferred_channel(complete) } else { alone.channel(complete) };
        let ours = ends(part.volume(), &channel, &of_part, &asks);
        let theirs = ends(&alone, &there, &of_alone, &asks);
        prop_assert_eq!(ours.len(), asks.len());
        for ((ours, theirs), ask) in ours.iter().zip(&theirs).zip(&asks) {
            prop_assert_eq!(ours, theirs, "{:?}", ask);
        }
        for zone in (0..ZONES + 1).map(ZoneIndex) {
            let there = if zone.0 < ZONES { alone.write_pointer(zone) } else { None };
            prop_assert_eq!(part.write_pointer(zone), there);
        }
        let failed = ours.iter().filter(|(_, result, _)| result.is_err()).count() as u64;
        let counted = part.statistics();
        prop_assert_eq!((counted.requests, counted.failed), (asks.len() as u64, failed));
        prop_assert_eq!(counted.sectors, alone.statistics().sectors);
        // Nothing outside of the part has been written.
        let clock = Clock::start();
        let zones = part.volume().report(&clock, Sector(0), 8).unwrap();
        for zone in zones.iter().filter(|z| !part.zones().contains(&z.zone.0)) {
            let untouched = matches!(zone.condition, ZoneCondition::Empty | ZoneCondition::NotWp);
            prop_assert!(untouched, "{:?}", zone);
        }
    }
}

fn take_all(part: &Part, inbox: &Inbox, number: usize) -> Vec<End> {
    let mut ends = Vec::new();
    let mut now = Nanos(0);
    while ends.len() < number {
        now = part.volume().poll(now).map_or(now, |due| due.max(now));
        ends.extend(std::iter::from_fn(|| inbox.take()).map(end));
    }
    ends
}

#[test]
fn inbox_of_a_part_has_its_addresses() {
    let part = part(WriteMode::PerZone, 1, "poll");
    let inbox = part.inbox();
    let start = Sector(2 * ZONE);
    part.submit(Nanos(0), inbox.channel(), Request::append(start, 8, payload(1, 8)).token(1));
    let beyond = Request::append(Sector(u64::from(ZONES) * ZONE), 8, payload(2, 8));
    part.submit(Nanos(0), inbox.channel(), beyond.token(2));
    let mut ends = take_all(&part, &inbox, 2);
    ends.sort_by_key(|(token, ..)| *token);
    assert_eq!(ends[0].1, Ok(Output::Appended(start)));
    assert_eq!(ends[1].1, Err(RequestError::OutOfRange { sector: Sector(u64::from(ZONES) * ZONE) }));
    let zones = part.report(&Clock::start(), Sector(0), 99).unwrap();
    assert_eq!(zones.iter().map(|zone| zone.zone.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(zones[2].write_pointer, Some(start + zonal_core::Sectors(8)));
}

#[test]
fn cancelling_a_part_s_channel_leaves_other_parts_alone() {
    let volume = Arc::new(Volume::open(device(0, "poll"), options(WriteMode::PerZone)).unwrap());
    let [one, other] = [0..4, 4..8].map(|zones| Part::new(volume.clone(), zones).unwrap());
    let inboxes = [one.inbox(), other.inbox()];
    for token in 0..3 {
        for (part, inbox) in [&one, &other].into_iter().zip(&inboxes) {
            let write = Request::write(Sector(token * 8), 8, payload(token, 8)).token(token);
            part.submit(Nanos(0), inbox.channel(), write);
        }
    }
    volume.cancel(Nanos(0), inboxes[0].channel());
    let cancelled = take_all(&one, &inboxes[0], 3);
    assert_eq!(cancelled.iter().filter(|end| end.1 == Err(RequestError::Cancelled)).count(), 2);
    assert!(take_all(&other, &inboxes[1], 3).iter().all(|end| end.1.is_ok()));
    one.submit(Nanos(0), inboxes[0].channel(), Request::flush());
    assert_eq!(inboxes[0].take().unwrap().result, Err(RequestError::Cancelled));
    assert_eq!(one.statistics().failed, 3);
}

#[test]
fn part_with_nonexistent_zones_is_refused() {
    let volume = Arc::new(Volume::open(device(0, "poll"), options(WriteMode::PerZone)).unwrap());
    for zones in [0..9, 8..9, 3..3] {
        let error = Part::new(volume.clone(), zones).err().expect("the volume has eight zones");
        assert!(error.to_string().contains("which has 8"), "{error}");
    }
}

#[test]
fn channel_of_another_volume_s_part_is_refused() {
    let (one, other) = (part(WriteMode::PerZone, 0, "poll"), part(WriteMode::PerZone, 0, "poll"));
    let inbox = one.inbox();
    other.submit(Nanos(0), inbox.channel(), Request::flush());
    assert!(matches!(inbox.take().unwrap().result, Err(RequestError::Invalid(_))));
}

#[test]
fn reset_of_all_zones_of_a_part_leaves_other_parts_alone() {
    let volume = Arc::new(Volume::open(device(0, "inline"), options(WriteMode::PerZone)).unwrap());
    let [one, other] = [0..4, 4..8].map(|zones| Part::new(volume.clone(), zones).unwrap());
    let clock = Clock::start();
    for part in [&one, &other] {
        assert!(part.call(&clock, Request::append(Sector(0), 8, payload(1, 8))).result.is_ok());
    }
    assert_eq!(one.call(&clock, Request::reset_all()).result, Ok(Output::Done));
    assert_eq!(one.write_pointer(ZoneIndex(0)), Some(Sector(0)));
    assert_eq!(other.write_pointer(ZoneIndex(0)), Some(Sector(8)));
}

/// The second half of each write, or all of it, is beyond the end of the first zone.
#[test]
fn write_across_zones_is_refused_only_by_drive_parts() {
    use zonal_io::volume::PartKind::{Drive, Range};
    for mode in
        [WriteMode::PerZone, WriteMode::Append, WriteMode::Qd1, WriteMode::ZoneLock, WriteMode::Direct]
    {
        for (kind, is_taken) in [(Range, true), (Drive, false)] {
            let device = Registry::default().open("ram:size=512K,zone_size=64K").unwrap();
            let part =
                Part::with(Arc::new(Volume::open(device, options(mode)).unwrap()), 2..6, kind).unwrap();
            let clock = Clock::start();
            let fill = ZONE as u32 - 8;
            assert!(part.call(&clock, Request::write(Sector(0), fill, payload(1, fill))).result.is_ok());
            for request in [
                Request::write(Sector(ZONE - 8), 16, payload(2, 16)),
                Request::write_zeroes(Sector(ZONE - 8), 16),
            ] {
                let result = part.call(&clock, request).result;
                assert_eq!(result.is_ok(), is_taken, "{mode} {kind:?}: {result:?}");
                if is_taken {
                    break;
                }
                let zones = part.report(&clock, Sector(0), 2).unwrap();
                assert_eq!(zones[0].write_pointer, Some(Sector(ZONE - 8)), "{mode}");
                assert_eq!(zones[1].write_pointer, Some(Sector(ZONE)), "{mode}");
            }
            // Reads may cross zones.
            assert!(part.call(&clock, Request::read(Sector(ZONE - 8), 16, payload(0, 16))).result.is_ok());
        }
    }
}
