use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use zonal_io::device::Device;
use zonal_io::emulated::{Emulated, EmulatedOptions, Null};
use zonal_io::volume::report;

/// 16 zones of 64 blocks of 4 KiB.
fn log(options: LogOptions, device: EmulatedOptions) -> Result<Log, LogError> {
    let device = device.with_size(4 << 20).with_zone_size(256 << 10).with_blocksize(4096);
    let device = Emulated::new("null", &device, Null).unwrap();
    let zones = report(&device, Sector(0), 16).unwrap();
    Log::new(device.info(), &zones, options)
}

fn plain() -> Log {
    log(LogOptions::default(), EmulatedOptions::default()).unwrap()
}

#[test]
fn disk_size_excludes_the_reserve() {
    let log = plain();
    assert_eq!((log.log_zones, log.reserve_zones, log.disk_blocks), (16, 5, 11 * 64));
}

#[test]
fn reserve_zones_and_limits_that_do_not_do_are_refused() {
    let of = |options, device| log(options, device).err();
    let (options, device) = (LogOptions::default(), EmulatedOptions::default());
    let reserve = |n| LogOptions { reserve_zones: Some(n), ..options };
    assert_eq!(of(reserve(4), device.clone()), Some(LogError::Reserve { reserve: 4, open: 1, needed: 5 }));
    assert_eq!(of(reserve(16), device.clone()), Some(LogError::TooSmall { zones: 16, needed: 17 }));
    assert_eq!(of(reserve(15), device.clone()), None);
    let open = |open_zones| LogOptions { open_zones, ..options };
    let limited = device.with_zone_max_open(3);
    assert_eq!(of(open(3), limited.clone()), Some(LogError::Limit { open: 3, left: 3 }));
    assert_eq!(of(open(2), limited), None);
}

#[test]
fn write_that_ends_later_than_a_newer_one_is_garbage() {
    let mut log = plain();
    let (old, new) = (log.begin_write(0, 7, 1).unwrap(), log.begin_write(0, 7, 1).unwrap());
    assert_eq!(log.find(7, 1), Err(new.number));
    // They swap places, as appends may.
    log.end_write(&new, 0);
    log.end_write(&old, 1);
    log.check();
    assert_eq!(log.find(7, 1), Ok(vec![Extent { block: 7, blocks: 1, at: Some((ZoneIndex(0), 0)) }]));
}

#[test]
fn next_zone_is_not_opened_before_the_limit_allows_it() {
    let device = EmulatedOptions::default().with_zone_max_open(2);
    let mut log = log(LogOptions::default(), device).unwrap();
    let (first, second) = (log.begin_write(0, 0, 64).unwrap(), log.begin_write(0, 64, 64).unwrap());
    assert_eq!(log.begin_write(0, 128, 1), None);
    log.end_write(&first, 0);
    assert_eq!(log.begin_write(0, 128, 1).unwrap().room.zone, ZoneIndex(2));
    log.end_write(&second, 0);
}

#[test]
fn zone_is_not_reset_while_it_is_read() {
    let mut log = plain();
    // The first block of each zone but the last stays live.
    for block in 0..14 {
        let piece = log.begin_write(0, block, 64).unwrap();
        log.end_write(&piece, piece.room.offset);
    }
    let run = log.next_run(64).unwrap();
    assert_eq!(run.blocks, 1);
    let moved = log.begin_move(run).unwrap();
    log.end_move(&moved, moved.room.offset);
    log.end_run(run);
    assert_eq!((log.next_run(64), log.next_reset()), (None, None), "the read of the run is not over");
    log.end_read(run.zone);
    assert_eq!(log.next_reset(), Some(ZoneIndex(0)));
    assert_eq!(log.next_reset(), None, "once");
    log.end_reset(ZoneIndex(0));
    log.check();
    assert_eq!(log.account, Account { written: 14 * 64, moved: 1, cleaned: 1 });
}

#[derive(Clone, Debug)]
enum LogStep {
    Write(u64, u32),
    Discard(u64, u64),
    /// Completes the write in flight with this index, modulo their number.
    End(usize),
    Clean,
}

fn step() -> impl Strategy<Value = LogStep> {
    prop_oneof![
        6 => (0..11u64 * 64 - 20, 1..20u32).prop_map(|(block, blocks)| LogStep::Write(block, blocks)),
        1 => (0..11u64 * 64 - 20, 1..20u64).prop_map(|(block, blocks)| LogStep::Discard(block, blocks)),
        6 => any::<usize>().prop_map(LogStep::End),
        2 => Just(LogStep::Clean),
    ]
}

/// Model of a device that keeps the content of each place and the last version of each block.
#[derive(Default)]
struct Model {
    flash: HashMap<(u32, u32), (u64, u64)>,
    newest: HashMap<u64, u64>,
    under_way: Vec<(WritePiece, u64)>,
}

impl Model {
    fn write(&mut self, log: &mut Log, version: u64, mut block: u64, mut blocks: u32) {
        while blocks > 0 {
            let Some(piece) = log.begin_write(version as u32, block, blocks) else {
                // Complete a write that may be in the way, or let the cleaner make room.
                assert!(self.end(log, 0) || self.clean(log), "a log that is stuck");
                continue;
            };
            (0..piece.room.blocks).for_each(|n| {
                self.newest.insert(block + u64::from(n), version);
            });
            self.under_way.push((piece, version));
            block += u64::from(piece.room.blocks);
            blocks -= piece.room.blocks;
        }
    }

    fn end(&mut self, log: &mut Log, which: usize) -> bool {
        if self.under_way.is_empty() {
            return false;
        }
        let (piece, version) = self.under_way.swap_remove(which % self.under_way.len());
        let Room { zone, offset, blocks } = piece.room;
        for n in 0..blocks {
            let before = self.flash.insert((zone.0, offset + n), (piece.block + u64::from(n), version));
            assert_eq!(before, None, "written twice");
        }
        log.end_write(&piece, offset);
        true
    }

    /// Moves one run or resets a zone. True if there was something to do.
    fn clean(&mut self, log: &mut Log) -> bool {
        if let Some(zone) = log.next_reset() {
            self.flash.retain(|(z, _), _| *z != zone.0);
            log.end_reset(zone);
            return true;
        }
        let Some(run) = log.next_run(9) else {
            return log.next_reset().is_some_and(|zone| {
                self.flash.retain(|(z, _), _| *z != zone.0);
                log.end_reset(zone);
                true
            });
        };
        let mut rest = run;
        while rest.blocks > 0 {
            let moved = log.begin_move(rest).expect("the cleaner has room");
            let Room { zone, offset, blocks } = moved.room;
            for n in 0..blocks {
                let data = self.flash[&(run.zone.0, moved.from.offset + n)];
                assert_eq!(self.flash.insert((zone.0, offset + n), data), None, "written twice");
            }
            log.end_move(&moved, offset);
            rest = Run { offset: rest.offset + blocks, blocks: rest.blocks - blocks, ..rest };
        }
        log.end_run(run);
        log.end_read(run.zone);
        true
    }

    /// Checks that every block of the disk has its last written version.
    fn check(&self, log: &Log) {
        log.check();
        for block in 0..log.disk_blocks {
            let Ok(extents) = log.find(block, 1) else { continue };
            let found = extents[0].at.map(|(zone, offset)| self.flash[&(zone.0, offset)]);
            assert_eq!(found, self.newest.get(&block).map(|&version| (block, version)), "block {block}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn every_block_reads_as_it_was_last_written(
        steps in prop::collection::vec(step(), 1..400),
        open_zones in 1..=3u32,
        fill in any::<bool>(),
    ) {
        let mut log = log(LogOptions { open_zones, reserve_zones: None }, EmulatedOptions::default()).unwrap();
        let mut model = Model::default();
        if fill {
            let blocks = log.disk_blocks as u32;
            model.write(&mut log, 0, 0, blocks);
        }
        for (version, step) in (1..).zip(steps) {
            match step {
                LogStep::Write(block, blocks) => {
                    let block = block.min(log.disk_blocks - u64::from(blocks));
                    model.write(&mut log, version, block, blocks);
                }
                LogStep::Discard(block, blocks) => {
                    log.discard(block, blocks);
                    (block..block + blocks).for_each(|block| { model.newest.remove(&block); });
                }
                LogStep::End(which) => { model.end(&mut log, which); }
                LogStep::Clean => { model.clean(&mut log); }
            }
            model.check(&log);
        }
    }
}
