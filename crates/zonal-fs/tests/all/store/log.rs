//! The log: running around its zones, full, with failing zones, damaged, and read while it is
//! written.

use crate::common::watched::Watched;
use crate::store::rig::{SMALL, Shape, UUID, anchor, create, create_at, drive, image, made, open};
use proptest::prelude::*;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zonal_core::{DeviceError, Op, ZoneIndex};
use zonal_fs::drive::Drive;
use zonal_fs::format::{Anchor, Metadata};
use zonal_fs::store::Rows;
use zonal_fs::store::backend::log::begun;
use zonal_fs::store::backend::{Backend, SegmentId, Store};
use zonal_fs::waiter::Polling;
use zonal_io::buffer::IoBuf;
use zonal_io::clock::Clock;
use zonal_io::device::Device;
use zonal_io::fault::{Degraded, Effect, Fault, Ops, Plan, Rule, RulePlace};
use zonal_io::image::backing::Backing;
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::registry::Registry;
use zonal_io::volume::{Request, read_alone};

const PAGE: usize = 4096;

/// A drive in memory with two homes of the superblock, followed by `zones` zones of 64 blocks.
fn ram_with(zones: u32, options: &str) -> Arc<dyn Device> {
    let name = format!("ram:size={}k,zone_size=256k,blocksize=4096{options}", (2 + zones) * 256);
    Registry::default().open(&name).unwrap()
}

/// A drive with two active zones: one for the log, one for a home.
fn ram(zones: u32) -> Arc<dyn Device> {
    ram_with(zones, ",zone_max_open=2,zone_max_active=2")
}

fn all(zones: u32) -> Vec<ZoneIndex> {
    (2..2 + zones).map(ZoneIndex).collect()
}

fn created(device: &Arc<dyn Device>, zones: u32) -> Store {
    create(drive(device.clone()), all(zones)).unwrap()
}

fn opened(device: &Arc<dyn Device>) -> Store {
    open(drive(device.clone())).unwrap()
}

fn content(storage: &dyn Backend) -> Vec<u8> {
    let mut bytes = vec![0; storage.len().unwrap() as usize];
    storage.read(0, &mut bytes).unwrap();
    bytes
}

/// Changes `storage` and `model` in the same way.
fn change(storage: &dyn Backend, model: &mut Vec<u8>, random: &mut impl Rng) {
    if random.random_bool(0.05) {
        let len = random.random_range(60 * PAGE..100 * PAGE);
        storage.set_len(len as u64).unwrap();
        model.resize(len, 0);
    }
    let longest = if random.random_bool(0.1) { 40 * PAGE } else { 2 * PAGE };
    let len = random.random_range(1..longest);
    let at = random.random_range(0..model.len() - len.min(model.len() - 1));
    let end = (at + len).min(model.len());
    random.fill_bytes(&mut model[at..end]);
    storage.write(at as u64, &model[at..end]).unwrap();
}

#[test]
fn log_that_runs_around_its_zones_many_times_keeps_every_byte() {
    let (device, mut random) = (ram(5), Pcg64Mcg::seed_from_u64(1));
    let mut log = created(&device, 5);
    let mut model = vec![0; 80 * PAGE];
    log.set_len(model.len() as u64).unwrap();
    let (mut reset, mut moved) = (0, 0);
    for round in 0..3000 {
        change(&log, &mut model, &mut random);
        if random.random_bool(0.7) {
            log.sync_data().unwrap();
        }
        if round % 100 == 99 {
            assert!(content(&log) == model, "round {round}");
            log.sync_data().unwrap();
            let done = log.statistics();
            (reset, moved) = (reset + done.segments_emptied, moved + done.pages_moved);
            drop(log);
            log = opened(&device);
            assert!(content(&log) == model, "round {round}, opened again");
        }
    }
    assert!(reset > 5 * 30 && moved > 1000, "{reset} resets, {moved} pages moved");
}

#[test]
fn full_log_refuses_pages_and_takes_rewrites_for_ever() {
    for zones in [2, 3, 4, 5, 9] {
        let device = ram(zones);
        let log = created(&device, zones);
        log.set_len(u64::from(zones) * 64 * PAGE as u64).unwrap();
        let mut pages = 0;
        let refused = loop {
            match log.write(pages * PAGE as u64, &[7; PAGE]) {
                Ok(()) => log.sync_data().unwrap(),
                Err(e) => break e,
            }
            pages += 1;
        };
        assert_eq!(refused.kind(), ErrorKind::StorageFull);
        assert!(pages > (u64::from(zones - 2) * 32).max(12), "{pages} pages in {zones} zones");
        let mut random = Pcg64Mcg::seed_from_u64(2);
        let mut stamps = vec![7; pages as usize];
        for round in 0..2000 {
            let page = random.random_range(0..pages);
            stamps[page as usize] = round as u8;
            log.write(page * PAGE as u64, &[round as u8; PAGE]).unwrap();
            log.sync_data().unwrap();
        }
        drop(log);
        let content = content(&opened(&device));
        for (page, stamp) in content.chunks(PAGE).zip(stamps) {
            assert!(page.iter().all(|b| *b == stamp));
        }
    }
}

#[test]
fn batches_as_large_as_are_admitted_get_through_for_ever() {
    for zones in [2, 3, 4, 5, 6, 7, 9] {
        let (device, mut random) = (ram(zones), Pcg64Mcg::seed_from_u64(3));
        let log = created(&device, zones);
        let pages = log.room().usable / 2;
        log.set_len(pages * PAGE as u64).unwrap();
        for round in 0..200u64 {
            let first = random.random_range(0..pages);
            for page in first..random.random_range(first + 1..=pages) {
                if let Err(e) = log.write(page * PAGE as u64, &round.to_le_bytes().repeat(PAGE / 8)) {
                    assert_eq!(e.kind(), ErrorKind::StorageFull);
                    break;
                }
            }
            log.sync_data().unwrap_or_else(|e| panic!("{zones} zones, round {round}: {e} {:?}", log.room()));
        }
    }
}

/// Writes pages until there is no room, and returns their number.
fn fill_pages(log: &Store) -> u64 {
    log.set_len(1 << 40).unwrap();
    for page in 0.. {
        if let Err(e) = log.write(page * PAGE as u64, &[page as u8; PAGE]) {
            assert_eq!(e.kind(), ErrorKind::StorageFull);
            return page;
        }
        if page % 8 == 7 {
            log.sync_data().unwrap();
        }
    }
    unreachable!("it is not full");
}

#[test]
fn full_pieces_go_on_in_free_zones_and_stay_readable() {
    let backing = Arc::new(CutBacking::new(1));
    SMALL.format(&backing);
    let drive = || drive(Arc::new(image(&backing)));
    made(&drive(), None).unwrap();
    let store = open(drive()).unwrap();
    let before = store.room();
    let pages = fill_pages(&store);
    store.sync_data().unwrap();
    // Eight pieces of 255 blocks, and five zones of 256.
    let after = store.room();
    assert_eq!((before.segments, after.segments), (4, 13));
    assert!(pages > 2 * before.usable, "{pages} pages, {before:?}");
    drop(store);
    let store = open(drive()).unwrap();
    for page in 0..pages {
        let mut bytes = [0; PAGE];
        store.read(page * PAGE as u64, &mut bytes).unwrap();
        assert_eq!(bytes, [page as u8; PAGE]);
    }
}

#[test]
fn log_grows_until_no_empty_zone_is_left() {
    let device = ram_with(9, "");
    let store = create(drive(device.clone()), all(2)).unwrap();
    let pages = fill_pages(&store);
    assert_eq!(store.room().segments, 9);
    assert!(pages > 200, "{pages}");
    drop(store);
    assert_eq!(opened(&device).room().segments, 9);
}

fn row(key: u64) -> Vec<u8> {
    [&b"K"[..], &key.to_be_bytes()].concat()
}

/// Fills rows on `storage`, and returns the number of committed ones.
fn fill(storage: Store) -> u64 {
    let mut rows = Rows::open(storage, 1 << 20).unwrap();
    for key in 0.. {
        rows.put(row(key), vec![key as u8; 20_000]);
        match rows.seal().unwrap().commit() {
            Ok(committed) => rows.settled(committed),
            Err(_) => return key,
        }
    }
    unreachable!("it is not full");
}

#[test]
fn rows_on_a_full_log_are_read_when_it_is_opened_again() {
    let device = ram(20);
    let count = fill(created(&device, 20));
    assert!(count > 20, "{count} rows");
    let rows = Rows::open(opened(&device), 1 << 20).unwrap();
    for key in 0..count {
        assert_eq!(rows.get(&row(key)).unwrap().unwrap(), [key as u8; 20_000]);
    }
}

/// A log of six zones on a `fault` device, with some contents.
fn faulty() -> (Arc<Fault>, Store, Vec<u8>) {
    let fault = Arc::new(Fault::new(ram(6), Plan::default()));
    let device: Arc<dyn Device> = fault.clone();
    let log = created(&device, 6);
    let model: Vec<u8> = (0..100 * PAGE).map(|n| (n / 7) as u8).collect();
    log.set_len(model.len() as u64).unwrap();
    log.write(0, &model).unwrap();
    log.sync_data().unwrap();
    (fault, log, model)
}

#[test]
fn failed_write_goes_to_another_zone_and_its_zone_is_reused() {
    for effect in [
        Effect::Refuse(DeviceError::Medium),
        Effect::Fail(DeviceError::Medium),
        Effect::Torn { blocks: Some(1), error: DeviceError::Medium },
    ] {
        let (fault, log, mut model) = faulty();
        let beginnings = || all(6).into_iter().map(|zone| beginning(&fault, zone)).collect::<Vec<_>>();
        let before = beginnings();
        let current = (0..6).max_by_key(|&zone| before[zone]).unwrap();
        fault.inject(Rule::new(effect).on(Ops::WRITES).nth(1).times(1));
        model[..3 * PAGE].fill(9);
        log.write(0, &[9; 3 * PAGE]).unwrap();
        log.sync_data().unwrap();
        assert_eq!((log.statistics().writes_failed, log.room().segments_bad), (1, 0), "{effect:?}");
        rewrite(&log, &mut model);
        assert!(content(&log) == model);
        let after = beginnings();
        assert!(after[current] != before[current], "{effect:?}: {before:?}, {after:?}");
        drop(log);
        let device: Arc<dyn Device> = fault;
        assert!(content(&opened(&device)) == model);
    }
}

/// Number of the beginning in `zone`; 0 if it is empty.
fn beginning(fault: &Arc<Fault>, zone: ZoneIndex) -> u64 {
    let start = fault.info().geometry.start_of(zone);
    let (block, read) = read_alone(&**fault, start, IoBuf::zeroed(PAGE as u32));
    read.unwrap();
    begun(&block, &UUID, SegmentId::zone(zone)).map_or(0, |begun| begun.beginning)
}

#[test]
fn zone_in_which_all_writes_fail_is_the_last_to_be_begun_again() {
    let (fault, log, mut model) = faulty();
    fault.inject(Rule::new(Effect::Refuse(DeviceError::Medium)).on(Ops::WRITES).zone(ZoneIndex(4)));
    rewrite(&log, &mut model);
    assert_eq!(log.statistics().writes_failed, 1);
    assert!(content(&log) == model);
    drop(log);
    let device: Arc<dyn Device> = fault;
    assert!(content(&opened(&device)) == model);
}

#[test]
fn smallest_log_outlives_any_number_of_failures_that_pass() {
    let fault = Arc::new(Fault::new(ram(3), Plan::default()));
    let device: Arc<dyn Device> = fault.clone();
    let log = created(&device, 3);
    let mut model = vec![7; 10 * PAGE];
    log.set_len(model.len() as u64).unwrap();
    log.write(0, &model).unwrap();
    log.sync_data().unwrap();
    fault.inject(Rule::new(Effect::Fail(DeviceError::Medium)).on(Ops::WRITES).every(7));
    fault.inject(Rule::new(Effect::Refuse(DeviceError::Medium)).on(Ops::of(&[Op::ZoneReset])).every(5));
    for round in 0..500 {
        let page = usize::from(round as u8 % 10);
        model[page * PAGE..(page + 1) * PAGE].fill(round as u8);
        log.write((page * PAGE) as u64, &[round as u8; PAGE]).unwrap();
        log.sync_data().unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    assert!(log.statistics().writes_failed > 50, "{:?}", log.statistics());
    assert_eq!(log.room().segments_bad, 0);
    assert!(content(&log) == model);
    drop(log);
    assert!(content(&opened(&device)) == model);
}

/// Rewrites three pages until the log has run around its zones.
fn rewrite(log: &Store, model: &mut [u8]) {
    for round in 0..200 {
        model[90 * PAGE..93 * PAGE].fill(round);
        log.write(90 * PAGE as u64, &[round; 3 * PAGE]).unwrap();
        log.sync_data().unwrap();
    }
}

#[test]
fn zone_that_becomes_read_only_is_evacuated_and_may_go_offline() {
    let (fault, log, mut model) = faulty();
    fault.degrade(ZoneIndex(3), Degraded::ReadOnly).unwrap();
    drop(log);
    let device: Arc<dyn Device> = fault.clone();
    let log = opened(&device);
    assert!(content(&log) == model);
    rewrite(&log, &mut model);
    assert_eq!(log.room().segments_bad, 1);
    fault.degrade(ZoneIndex(3), Degraded::Offline).unwrap();
    assert!(content(&log) == model);
    drop(log);
    assert!(content(&opened(&device)) == model);
}

#[test]
fn offline_zone_loses_only_its_own_pages() {
    let (fault, log, mut model) = faulty();
    fault.degrade(ZoneIndex(3), Degraded::Offline).unwrap();
    rewrite(&log, &mut model);
    let lost = |log: &Store| -> Vec<usize> {
        let is_lost = |page: &usize| log.read((page * PAGE) as u64, &mut [0; PAGE]).is_err();
        (0..100).filter(is_lost).collect()
    };
    let before = lost(&log);
    assert!(!before.is_empty() && before.len() < 64, "{before:?}");
    drop(log);
    let device: Arc<dyn Device> = fault;
    assert_eq!(lost(&opened(&device)), before);
}

/// Blocks are read several at a time, and only one of them cannot be read.
#[test]
fn page_that_cannot_be_read_costs_only_itself_at_an_opening() {
    for block in 4..40 {
        let (fault, log, model) = faulty();
        log.write(0, &model[..PAGE]).unwrap();
        log.sync_data().unwrap();
        drop(log);
        let first = fault.info().geometry.start_of(ZoneIndex(2)).0 + block * 8;
        let place = RulePlace::Sectors(first..=first + 7);
        fault.inject(Rule::new(Effect::Refuse(DeviceError::Medium)).on(Ops::of(&[Op::Read])).at(place));
        let device: Arc<dyn Device> = fault;
        let log = open(drive(device)).unwrap_or_else(|error| panic!("block {block}: {error}"));
        let is_lost = |page: &usize| log.read((page * PAGE) as u64, &mut [0; PAGE]).is_err();
        assert_eq!((0..100).filter(is_lost).count(), 1, "block {block}");
    }
}

#[test]
fn log_with_an_offline_newest_zone_is_not_opened_in_an_older_state() {
    let fault = Arc::new(Fault::new(ram(6), Plan::default()));
    let device: Arc<dyn Device> = fault.clone();
    let log = created(&device, 6);
    log.set_len(2 * PAGE as u64).unwrap();
    log.write(PAGE as u64, &[1; PAGE]).unwrap();
    // Few enough batches that nothing is moved: the zone before the newest is complete without it.
    for round in 0..40 {
        log.write(0, &[round; PAGE]).unwrap();
        log.sync_data().unwrap();
    }
    assert_eq!((log.statistics().segments_begun, log.statistics().segments_emptied), (2, 0));
    drop(log);
    fault.degrade(ZoneIndex(3), Degraded::Offline).unwrap();
    let error = open(drive(fault)).unwrap_err().to_string();
    assert!(error.ends_with("it was put back"), "{error}");
}

#[test]
fn reads_beside_writes_and_resets_find_a_version_that_was_written() {
    const PAGES: u64 = 60;
    let device = ram(4);
    let log = created(&device, 4);
    log.set_len(PAGES * PAGE as u64).unwrap();
    let (synced, written, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let stamp = |page: u64, version: u64| [page, version].map(u64::to_le_bytes).concat().repeat(PAGE / 16);
    std::thread::scope(|scope| {
        let reader = |seed| {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let (log, synced, written, over) = (&log, &synced, &written, &over);
            move || {
                while !over.load(Ordering::Acquire) {
                    let (page, least) = (random.random_range(0..PAGES), synced.load(Ordering::Acquire));
                    let mut bytes = [0; PAGE];
                    log.read(page * PAGE as u64, &mut bytes).unwrap();
                    let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
                    assert!((least..=written.load(Ordering::Acquire)).contains(&version));
                    assert!(version == 0 || bytes[..] == stamp(page, version));
                }
            }
        };
        scope.spawn(reader(1));
        scope.spawn(reader(2));
        for version in 1..200 {
            written.store(version, Ordering::Release);
            for page in 0..PAGES {
                log.write(page * PAGE as u64, &stamp(page, version)).unwrap();
                if page % 16 == 15 {
                    log.sync_data().unwrap();
                }
            }
            log.sync_data().unwrap();
            synced.store(version, Ordering::Release);
        }
        over.store(true, Ordering::Release);
    });
    assert!(log.statistics().segments_emptied > 100);
}

/// Offset of the data in an image of this shape.
const DATA: usize = 1 << 20;

const TINY: Shape = Shape {
    zone_bytes: 256 << 10,
    capacity_bytes: 256 << 10,
    zones: 6,
    conventional: 1,
    block_bytes: 4096,
    active: 1,
};

/// Bytes of an image with a log that has run around, and the state after each of its batches.
fn well_used() -> (Vec<u8>, Vec<Vec<u8>>) {
    let (backing, mut random) = (Arc::new(CutBacking::new(1)), Pcg64Mcg::seed_from_u64(4));
    TINY.format(&backing);
    let log = create(drive(Arc::new(image(&backing))), TINY.log_zones()).unwrap();
    let mut model = vec![0; 80 * PAGE];
    log.set_len(model.len() as u64).unwrap();
    let mut states = vec![Vec::new()];
    for _ in 0..150 {
        change(&log, &mut model, &mut random);
        log.sync_data().unwrap();
        states.push(model.clone());
    }
    backing.sync().unwrap();
    // Before it is closed, as closing names the last batch in the superblock.
    let bytes = backing.bytes();
    drop(log);
    (bytes, states)
}

/// Opens the log in `bytes`. It has to be refused, or to contain only pages of one of `states`,
/// some of them possibly unreadable.
fn judge(bytes: &[u8], states: &[Vec<u8>]) -> Result<(), String> {
    let backing = Arc::new(CutBacking::with_bytes(bytes, 1));
    let Ok(log) = open(drive(Arc::new(image(&backing)))) else {
        return Ok(());
    };
    let len = log.len().unwrap() as usize;
    let is = |state: &&Vec<u8>| {
        state.len() == len
            && state.chunks(PAGE).enumerate().all(|(n, page)| {
                let mut bytes = vec![0; page.len()];
                log.read((n * PAGE) as u64, &mut bytes).is_err() || bytes == page
            })
    };
    if states.iter().any(|state| is(&state)) { Ok(()) } else { Err("neither state nor error".to_owned()) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn log_with_damaged_bytes_is_refused_or_right(
        damages in prop::collection::vec((any::<prop::sample::Index>(), 0..4u8, any::<u8>()), 1..6)
    ) {
        static USED: std::sync::LazyLock<(Vec<u8>, Vec<Vec<u8>>)> = std::sync::LazyLock::new(well_used);
        let (bytes, states) = &*USED;
        // One lost block can cost the last batch. If everything from one block on is lost, the log
        // looks as if it had never got further.
        let loses_many = damages.iter().any(|(_, how, _)| *how == 2);
        let states = if loses_many { &states[..] } else { &states[states.len() - 1 - damages.len()..] };
        let mut bytes = bytes.clone();
        let first = DATA + (256 << 10);
        let blocks = (bytes.len() - first) / PAGE;
        for (block, how, byte) in damages {
            let at = first + block.index(blocks) * PAGE;
            match how {
                0 => bytes[at + usize::from(byte) * 16] ^= 1 | byte,
                1 => bytes[at..at + PAGE].fill(byte),
                2 => {
                    // From there to the end of the zone.
                    let end = at.next_multiple_of(256 << 10);
                    bytes[at..end].fill(byte);
                }
                _ => bytes.copy_within(first..first + PAGE, at),
            }
        }
        prop_assert_eq!(judge(&bytes, states), Ok(()));
    }
}

/// Offsets in the image of the heads in the current zone of a well-used log, except the checkpoint.
fn heads(bytes: &[u8]) -> Vec<usize> {
    let zone = 256 << 10;
    let is_head = |at: &usize| bytes[*at..*at + 8] == *b"zonallog";
    let beginning = |at: usize| u64::from_le_bytes(bytes[at + 32..at + 40].try_into().unwrap());
    let zones = (1..TINY.zones as usize).map(|n| DATA + n * zone).filter(is_head);
    let newest = zones.max_by_key(|&at| beginning(at)).unwrap();
    (newest..newest + zone).step_by(PAGE).skip(1).filter(is_head).collect()
}

#[test]
fn last_batch_with_a_damaged_page_does_not_count() {
    let (mut bytes, states) = well_used();
    let last = heads(&bytes).pop().unwrap();
    bytes[last + PAGE] ^= 1;
    let backing = Arc::new(CutBacking::with_bytes(&bytes, 1));
    let log = open(drive(Arc::new(image(&backing)))).unwrap();
    assert!(content(&log) == states[states.len() - 2]);
    // It continues from there.
    log.write(0, b"on").unwrap();
    log.sync_data().unwrap();
    drop(log);
    let log = open(drive(Arc::new(image(&backing)))).unwrap();
    assert_eq!((&content(&log)[..2], &content(&log)[2..]), (&b"on"[..], &states[states.len() - 2][2..]));
}

#[test]
fn log_with_a_damaged_head_in_its_midst_is_refused() {
    let (bytes, _) = well_used();
    let heads = heads(&bytes);
    assert!(heads.len() > 3);
    for &head in &heads[..heads.len() - 1] {
        let mut bytes = bytes.clone();
        bytes[head + 100] ^= 1;
        let backing = Arc::new(CutBacking::with_bytes(&bytes, 1));
        let opened = open(drive(Arc::new(image(&backing))));
        let place = (head - DATA) / PAGE;
        let begin = format!("metadata: zone {} block {}: a batch of metadata: ", place / 64, place % 64);
        let error = opened.unwrap_err().to_string();
        assert!(error.starts_with(&begin), "{error:?} does not begin with {begin:?}");
    }
}

#[test]
fn h74_zone_is_reset_only_after_its_moved_pages_are_flushed() {
    let watched = Arc::new(Watched::new(ram_with(5, "")));
    let device: Arc<dyn Device> = watched.clone();
    let log = created(&device, 5);
    log.set_len(80 * PAGE as u64).unwrap();
    for round in 0..300 {
        log.write(round * 7 % 78 * PAGE as u64, &[round as u8; 2 * PAGE]).unwrap();
        log.sync_data().unwrap();
    }
    let seen = watched.seen();
    let mut unflushed = 0;
    for command in &seen {
        match command.op {
            Op::Write => unflushed += 1,
            Op::Flush => unflushed = 0,
            Op::ZoneReset => assert_eq!(unflushed, 0, "writes before a reset that are not durable"),
            _ => {}
        }
    }
    assert!(seen.iter().filter(|command| command.op == Op::ZoneReset).count() > 5);
}

#[test]
fn canary_judge_of_damaged_logs_distinguishes_states() {
    let (bytes, states) = well_used();
    let (last, before) = states.split_last().unwrap();
    assert_eq!(judge(&bytes, std::slice::from_ref(last)), Ok(()));
    assert!(judge(&bytes, before).is_err());
}

#[test]
fn segments_that_do_not_suit_a_log_are_refused() {
    let backing = Arc::new(CutBacking::new(1));
    TINY.format(&backing);
    let drive = || drive(Arc::new(image(&backing)));
    let refused = |anchor, metadata| create_at(drive(), anchor, metadata, None).unwrap_err().to_string();
    let of = |zones: &[u32]| anchor(&drive(), zones.iter().map(|&zone| ZoneIndex(zone)).collect());
    let begin = "metadata does not fit: ";
    assert_eq!(
        refused(of(&[1]), Metadata::Logged),
        format!("{begin}a log needs two segments that can be written")
    );
    assert_eq!(refused(of(&[0, 1, 2]), Metadata::Logged), format!("{begin}zone 0 is conventional"));
    assert_eq!(refused(of(&[1, 2, 6]), Metadata::Logged), format!("{begin}zone 6 is not on the drive"));
    let pieces = |pieces, piece_blocks| Anchor { pieces, piece_blocks, ..of(&[]) };
    let beyond = refused(pieces(3, 21), Metadata::Conventional);
    assert_eq!(beyond, format!("{begin}its pieces lie beyond the conventional zones"));
    let small = refused(pieces(3, 15), Metadata::Conventional);
    assert!(small.starts_with(&format!("{begin}segments have 64 KiB at least")), "{small}");
}

#[test]
fn log_that_was_put_back_to_before_its_last_opening_is_refused() {
    let device = ram_with(6, "");
    drop(created(&device, 6));
    let zones = |drive: &Arc<Drive>| -> Vec<u8> {
        let blocks = all(6).into_iter().flat_map(|zone| {
            let start = drive.volume().info().geometry.start_of(zone);
            let read = Request::read(start, 64 * 8, IoBuf::zeroed(64 * PAGE as u32));
            drive.call(&Polling::new(Clock::start()), read).1.to_vec()
        });
        blocks.collect()
    };
    let before = zones(&drive(device.clone()));
    let log = opened(&device);
    log.set_len(PAGE as u64).unwrap();
    log.write(0, &[1; PAGE]).unwrap();
    log.sync_data().unwrap();
    drop(log);
    // Restores the zones: only the first one had any contents.
    let there = drive(device.clone());
    let waiter = Polling::new(Clock::start());
    there.zone(&waiter, Op::ZoneReset, ZoneIndex(2)).unwrap();
    let written =
        before.chunks(PAGE).take(64).rposition(|block| block.iter().any(|byte| *byte != 0)).unwrap() + 1;
    let mut bytes = IoBuf::zeroed((written * PAGE) as u32);
    bytes.copy_from_slice(&before[..written * PAGE]);
    there.write(&waiter, there.volume().info().geometry.start_of(ZoneIndex(2)), bytes).unwrap();
    drop(there);
    let error = open(drive(device)).unwrap_err().to_string();
    assert!(error.contains("it was put back"), "{error}");
}

/// Encoded change of the row `K` and `number`.
fn change_of(number: u32) -> Vec<u8> {
    [&[5, 5, b'K'][..], &number.to_be_bytes(), &number.to_le_bytes()].concat()
}

#[test]
fn log_of_many_batches_of_rows_is_opened_in_linear_time() {
    const BATCHES: u32 = 12_000;
    let device = Registry::default().open("ram:size=1G,zone_size=128M,blocksize=4096").unwrap();
    let log = create(drive(device.clone()), (2..6).map(ZoneIndex).collect()).unwrap();
    (0..BATCHES).for_each(|number| log.append_rows(&[], &change_of(number)).unwrap());
    drop(log);
    let begin = Instant::now();
    let log = open(drive(device)).unwrap();
    // It takes 27 ms, and 1.2 s if each step searches all parts.
    assert!(begin.elapsed() < Duration::from_millis(400), "{:?}", begin.elapsed());
    let rows = Rows::open(log, 1 << 20).unwrap();
    let value = |number: u32| rows.get(&[b"K", &number.to_be_bytes()[..]].concat()).unwrap();
    assert_eq!(value(BATCHES - 1), Some((BATCHES - 1).to_le_bytes().to_vec()));
    assert_eq!(value(BATCHES), None);
}

#[test]
fn damaged_batch_of_rows_matters_only_if_no_table_includes_it() {
    let shape = Shape { zone_bytes: 1 << 20, capacity_bytes: 1 << 20, zones: 8, conventional: 0, ..SMALL };
    for is_included in [false, true] {
        let backing = Arc::new(CutBacking::new(1));
        shape.format(&backing);
        let drive = || drive(Arc::new(image(&backing)));
        let log = create(drive(), (4..8).map(ZoneIndex).collect());
        let mut rows = Rows::open(log.unwrap(), 1 << 20).unwrap();
        let commit = |rows: &mut Rows, key: u8, len: usize| {
            rows.put(vec![b'K', key], vec![0xAB; len]);
            let committed = rows.seal().unwrap().commit().unwrap();
            rows.settled(committed);
        };
        commit(&mut rows, 0, 10);
        commit(&mut rows, 1, 6000);
        let mut bytes = vec![0; backing.len().unwrap() as usize];
        backing.read_at(&mut bytes, 0).unwrap();
        // In the second block of the batch.
        let last = bytes.iter().rposition(|byte| *byte == 0xAB).unwrap();
        if is_included {
            rows.squeeze();
        }
        commit(&mut rows, 2, 10);
        drop(rows);
        backing.write_at(&[0], last as u64).unwrap();
        let opened = open(drive()).map(|log| Rows::open(log, 1 << 20)).unwrap();
        match opened {
            Ok(rows) => {
                assert!(is_included, "rows were lost in silence");
                (0..3).for_each(|key| assert!(rows.get(&[b'K', key]).unwrap().is_some(), "row {key}"));
            }
            Err(error) => {
                assert!(!is_included, "{error}");
                assert!(error.to_string().contains("rows of metadata"), "{error}");
            }
        }
    }
}
