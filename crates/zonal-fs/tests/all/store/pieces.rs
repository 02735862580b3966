//! Substitutes for a write pointer if a segment is a piece of the conventional zones.

use crate::store::rig::{SMALL, UUID, drive, image, made, open, waiters};
use std::collections::BTreeSet;
use std::sync::Arc;
use zonal_core::{DeviceError, Nanos, Sector};
use zonal_fs::format::crc32c;
use zonal_fs::store::backend::log::begun;
use zonal_fs::store::backend::{Backend, SegmentId, Store};
use zonal_fs::superblocks;
use zonal_io::buffer::IoBuf;
use zonal_io::fault::{Carried, Effect, Fault, Late, Ops, Plan, Rule, RulePlace, Settling};
use zonal_io::image::backing::Backing;
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::registry::Registry;
use zonal_io::volume::read_alone;

const PAGE: usize = 4096;

/// Offset of the data in an image of [`SMALL`].
const DATA: usize = 1 << 20;

/// A drive with a store in pieces.
fn formatted() -> Arc<CutBacking> {
    let backing = Arc::new(CutBacking::new(1));
    SMALL.format(&backing);
    made(&drive(Arc::new(image(&backing))), None).unwrap();
    backing
}

fn opened(backing: &Arc<CutBacking>) -> Store {
    open(drive(Arc::new(image(backing)))).unwrap()
}

/// Writes one page, of `pages` in turn, as a separate batch.
fn batch(log: &Store, number: u64, pages: u64) -> std::io::Result<()> {
    let at = number % pages * PAGE as u64;
    log.set_len(log.len()?.max(at + PAGE as u64))?;
    log.write(at, &[number as u8; PAGE])?;
    log.sync_data()
}

/// The beginning of each piece, according to its first block if that is a valid head.
fn beginnings(bytes: &[u8], piece_blocks: u32) -> Vec<Option<u64>> {
    let pieces = (0..8_u32).map(|n| {
        let at = DATA + (4 + (n * piece_blocks) as usize) * PAGE;
        begun(&bytes[at..at + PAGE], &UUID, SegmentId::conventional(n)).ok().map(|begun| begun.beginning)
    });
    pieces.collect()
}

/// Beginnings named by valid heads of this kind in `bytes`; kind 1 is a checkpoint, 2 a part.
fn named(bytes: &[u8], kind: u8) -> BTreeSet<u64> {
    let number = |head: &[u8], at| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
    let is_sound = |head: &[u8]| number(head, 4088) >> 32 == u64::from(crc32c(&head[..4092]));
    let heads = bytes[DATA..].chunks_exact(PAGE);
    let heads = heads.filter(|head| head.starts_with(b"zonallog") && head[12] == kind && is_sound(head));
    heads.map(|head| number(head, 32)).collect()
}

/// The highest number in any valid head in `bytes`, whether or not it is current.
fn highest(bytes: &[u8]) -> u64 {
    [1, 2].iter().filter_map(|kind| named(bytes, *kind).pop_last()).max().unwrap_or(0)
}

#[test]
fn heads_of_earlier_beginnings_are_no_continuation_of_a_piece() {
    let (backing, mut number) = (formatted(), 0);
    let mut log = opened(&backing);
    // Batches of one page each, so that heads of earlier beginnings are where the next ones will
    // be.
    let mut write = |log: &Store| {
        number += 1;
        batch(log, number, 8).unwrap();
    };
    while log.statistics().segments_begun < 60 {
        write(&log);
    }
    for _ in 0..20 {
        write(&log);
    }
    drop(log);
    let mut begun = 0;
    for _ in 0..40 {
        log = opened(&backing);
        write(&log);
        begun += log.statistics().segments_begun;
        drop(log);
    }
    assert_eq!(begun, 0, "segments were begun by 40 batches of one page, one an opening");
}

/// State of a drive just before the batch that increases the log's statistic `change`, and the
/// number of that batch. The batches before it write one page each, of `pages` in turn.
fn before(pages: u64, change: impl Fn(&Store) -> u64) -> (Vec<u8>, u64) {
    let run = |batches: u64| {
        let backing = formatted();
        let log = opened(&backing);
        let at = change(&log);
        let stopped = (0..batches).find(|&number| {
            batch(&log, number, pages).unwrap();
            change(&log) > at
        });
        drop(log);
        backing.sync().unwrap();
        (backing.bytes(), stopped)
    };
    let last = run(u64::MAX).1.unwrap();
    (run(last).0, last)
}

/// Result of a power cut at this call of the backing, counted from the start of batch `number`.
fn cut(bytes: &[u8], number: u64, pages: u64, call: u64, seed: u64) -> Arc<CutBacking> {
    let backing = Arc::new(CutBacking::with_bytes(bytes, seed));
    let log = opened(&backing);
    backing.cut_at(backing.calls() + call);
    let failed = (number..).find(|&number| batch(&log, number, pages).is_err());
    assert!(failed.is_some() && !backing.is_on());
    drop(log);
    Arc::new(backing.restart(seed))
}

/// Slow: damages every head in turn.
#[test]
fn number_in_any_head_is_not_given_again() {
    let (bytes, number) = before(8, |log| log.statistics().segments_begun);
    let mut torn = 0;
    for (call, seed) in (0..12).flat_map(|call| (0..16).map(move |seed| (call, seed))) {
        let backing = cut(&bytes, number, 8, call, seed);
        let found = highest(&backing.bytes());
        torn += u32::from(found > highest(&bytes));
        // Opening reads the checkpoints of all segments, but not the parts of a segment with a lost
        // checkpoint.
        let (checkpoints, parts) = (named(&backing.bytes(), 1), named(&backing.bytes(), 2));
        let unseen: Vec<_> = parts.difference(&checkpoints).collect();
        assert!(unseen.is_empty(), "call {call}, seed {seed}: {unseen:?} in parts alone");
        let log = opened(&backing);
        let begun = (number..).find(|&number| {
            batch(&log, number, 8).unwrap();
            log.statistics().segments_begun > 0
        });
        let next = named(&backing.bytes(), 1).pop_last();
        assert!(next > Some(found), "call {call}, seed {seed}, batch {begun:?}: {next:?} again");
    }
    assert!(torn > 20, "{torn} heads that cuts left");
}

#[test]
fn piece_is_named_before_it_is_begun() {
    let (bytes, number) = before(u64::MAX, |log| log.statistics().segments_taken);
    // Pieces in use, and pieces named by the superblock, after a cut.
    let pieces = |call, seed| {
        let backing = cut(&bytes, number, u64::MAX, call, seed);
        let drive = drive(Arc::new(image(&backing)));
        let anchor = superblocks::find(&drive, &*waiters()()).unwrap().copy.anchor;
        let begun = beginnings(&backing.bytes(), anchor.piece_blocks);
        (begun.iter().rposition(Option::is_some).unwrap() as u32 + 1, anchor.pieces)
    };
    let before = pieces(0, 0).0;
    let about = (0..).step_by(20).find(|&call| pieces(call, 0).0 > before).unwrap();
    let mut cases = [0, 0];
    for (call, seed) in (about - 20..about + 5).flat_map(|call| (0..8).map(move |seed| (call, seed))) {
        let (begun, named) = pieces(call, seed);
        assert!(begun <= named, "call {call}, seed {seed}: of {begun} pieces {named} are named");
        cases[usize::from(begun > before)] += 1;
    }
    assert!(cases[0] > 20 && cases[1] > 20, "before and after the beginning: {cases:?}");
}

#[test]
fn piece_in_which_a_write_timed_out_is_left_until_the_next_opening() {
    let ram = Registry::default().open("ram:size=13m,zone_size=1m,blocksize=4096,zone_nr_conv=8").unwrap();
    let plan = Plan { settling: Settling::Never, ..Plan::default() };
    let fault = Arc::new(Fault::new(ram, plan));
    let drive = || drive(fault.clone());
    made(&drive(), None).unwrap();
    let anchor = superblocks::find(&drive(), &*waiters()()).unwrap().copy.anchor;
    let log = open(drive()).unwrap();
    // Number of the beginning in each piece.
    let beginnings = || -> Vec<Option<u64>> {
        let beginning = |n| {
            let at = Sector((4 + u64::from(n * anchor.piece_blocks)) * 8);
            let (block, read) = read_alone(&*fault, at, IoBuf::zeroed(PAGE as u32));
            read.unwrap();
            begun(&block, &UUID, SegmentId::conventional(n)).ok().map(|begun| begun.beginning)
        };
        (0..anchor.pieces).map(beginning).collect()
    };
    // Zone 1, which the drive will not settle, contains no copy of the superblock.
    let (mut number, late) = (0, 1);
    while beginnings().iter().max() != beginnings().get(late) {
        batch(&log, number, 8).unwrap();
        number += 1;
    }
    let before = beginnings();
    fault.inject(Rule::new(Effect::Fail(DeviceError::TimedOut)).on(Ops::WRITES).nth(1).times(1));
    for number in number..number + 3000 {
        batch(&log, number, 8).unwrap();
    }
    // The end of piece 0 is in the same zone, where nothing is written any more.
    assert_eq!((log.statistics().writes_failed, log.room().segments_bad), (2, 1));
    assert!(log.statistics().segments_begun > 20);
    assert_eq!(beginnings()[late], before[late], "a late write would lie over a segment in use");
    drop(log);
    assert_eq!(open(drive()).unwrap().room().segments_bad, 0);
}

/// A late write of an old update over a newer one would hide the segments taken since.
#[test]
fn updates_of_the_superblock_that_time_out_never_replace_newer_ones() {
    let ram = Registry::default().open("ram:size=13m,zone_size=1m,blocksize=4096,zone_nr_conv=8").unwrap();
    let fault = Arc::new(Fault::new(ram, Plan::default()));
    let drive = || drive(fault.clone());
    made(&drive(), None).unwrap();
    let pieces = || superblocks::find(&drive(), &*waiters()()).unwrap().copy.anchor.pieces;
    let (before, log) = (pieces(), open(drive()).unwrap());
    let carried = Carried::Late(Late::AfterReport);
    let late = [0..=15, 16..=31].map(|turn| {
        let time_out = Rule::new(Effect::TimeOut { after: Nanos(1000), carried });
        fault.inject(time_out.on(Ops::WRITES).at(RulePlace::Sectors(turn)).times(1))
    });
    let last = (0..).find(|&number| {
        batch(&log, number, u64::MAX).unwrap();
        log.statistics().segments_taken == 3
    });
    assert_eq!(late.map(|rule| fault.fired(rule)), [1, 1]);
    drop(log);
    // Late writes that were not settled are executed after the report of this opening.
    assert_eq!(pieces(), before + 3);
    let (log, mut page) = (open(drive()).unwrap(), [0; PAGE]);
    log.read(last.unwrap() * PAGE as u64, &mut page).unwrap();
    assert_eq!(page, [last.unwrap() as u8; PAGE]);
}
