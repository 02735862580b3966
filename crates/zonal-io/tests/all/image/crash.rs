//! Power cuts around every call to the backing, checked against the [model](crate::image::model).
//!
//! A case is identified by a number, which determines geometry, workload, time of the power cut,
//! and the data that survives. `ZONAL_CUTS` sets the number of cases, `ZONAL_CUT_SEED` the first
//! one; a failure prints its number.

use crate::image::drive;
use crate::image::model::{Loss, Model};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use zonal_core::{Op, Personality, SECTOR_BYTES, ZoneCondition, ZoneIndex};
use zonal_io::changes::ZoneSetting;
use zonal_io::device::{Command, Device, Output};
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};

/// Power cycles of a case; each starts with the state left by the previous one.
const CYCLES: u32 = 4;

fn options(random: &mut impl Rng) -> ImageOptions {
    // The first geometry has two pages of zones, so that a commit can be torn between pages.
    let (zone, capacity, zones) = match random.random_range(0..4) {
        0 => (8, 8, 600),
        1 => (64, 40, 12),
        _ => (32, 32, 10),
    };
    let limited = random.random_bool(0.5);
    ImageOptions::default()
        .with_size(zones * zone * SECTOR_BYTES)
        .with_zone_size(zone * SECTOR_BYTES)
        .with_zone_capacity(capacity * SECTOR_BYTES)
        .with_zone_nr_conv(random.random_range(0..3))
        .with_zone_max_open(if limited { 3 } else { 0 })
        .with_zone_max_active(if limited { 5 } else { 0 })
        .with_blocksize(512)
        .with_zone_append_max_sectors(u32::MAX)
        .with_personality(if random.random_bool(0.5) { Personality::Zns } else { Personality::Zbc })
        .with_creation([9; 16])
}

struct Case {
    random: Pcg64Mcg,
    backing: Arc<CutBacking>,
    device: ImageDevice,
    model: Model,
    next_stamp: u64,
    /// Zones used by the workload: few, so that they are often reset and filled.
    zones: Vec<u32>,
    /// Bytes that reset zones may keep in the file: none, part of the workload's resets, or all.
    kept_max: u64,
    /// A call of this backing fails or has failed.
    has_failure: bool,
}

fn open(backing: &Arc<CutBacking>, kept_max: u64) -> Result<ImageDevice, String> {
    let options = OpenOptions::default().with_threads(0).with_kept_max(kept_max);
    ImageDevice::open_backing(Path::new("twin"), backing.clone(), &options).map_err(|e| e.to_string())
}

impl Case {
    fn new(seed: u64, unsynced: Range<u64>) -> Case {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let backing = Arc::new(CutBacking::new(random.random()));
        let header = options(&mut random).format(&*backing).unwrap();
        backing.ignore_syncs_of(unsynced);
        let kept_max = [0, 40 * SECTOR_BYTES, u64::MAX][(seed % 3) as usize];
        let device = open(&backing, kept_max).unwrap();
        let all = header.geometry.zones();
        let mut zones: Vec<u32> = (0..6).map(|_| random.random_range(0..all)).collect();
        zones.extend([0, header.geometry.conventional_zones(), all - 1]);
        let model = Model::new(&device);
        Case { random, backing, device, model, next_stamp: 1, zones, kept_max, has_failure: false }
    }

    fn stamps(&mut self, n: u32) -> Vec<u64> {
        let first = self.next_stamp;
        self.next_stamp += u64::from(n);
        (first..self.next_stamp).collect()
    }

    /// Runs cycles of work, loss and check.
    fn run(mut self) -> Result<(), String> {
        for _ in 0..CYCLES {
            // Most cycles take about 100 calls; the cut may also be after all of them.
            let at = self.backing.calls() + self.random.random_range(0..200);
            let event = self.random.random_range(0..8);
            self.has_failure |= event == 0;
            match event {
                0 => self.backing.fail_at(at),
                1..4 => self.backing.kill_at(at),
                _ => self.backing.cut_at(at),
            }
            for _ in 0..self.random.random_range(10..80) {
                self.step()?;
                if !self.backing.is_on() {
                    break;
                }
            }
            self = self.lose()?;
            self.device.zones().check()?;
        }
        Ok(())
    }

    /// Loses power or the process, or closes the image, then opens it again and checks it.
    fn lose(mut self) -> Result<Case, String> {
        let device = self.device;
        let keeps_acked = !self.has_failure;
        let mut loss = Loss::Process { keeps_acked, is_doubtful: device.failure().is_some() };
        if self.backing.is_on() {
            match self.random.random_range(0..3) {
                0 => {
                    let closed = device.close();
                    if closed.is_ok() {
                        self.model.flushed();
                    }
                    loss = Loss::Process { keeps_acked, is_doubtful: closed.is_err() };
                    if self.random.random_bool(0.5) {
                        loss = Loss::Power;
                    }
                }
                1 => device.abandon(),
                _ => {
                    device.abandon();
                    loss = Loss::Power;
                }
            }
        } else {
            device.abandon();
        }
        if self.backing.is_killed() {
            loss = Loss::Process { keeps_acked, is_doubtful: self.backing.revive() };
        }
        if !self.backing.is_on() {
            loss = Loss::Power;
        }
        if loss == Loss::Power {
            self.backing = Arc::new(self.backing.restart(self.random.random()));
            self.has_failure = false;
        }
        self.device =
            open(&self.backing, self.kept_max).map_err(|e| format!("after loss of {loss:?}: {e}"))?;
        self.restore_lost()?;
        self.model.check(&self.device, loss).map_err(|e| format!("after loss of {loss:?}: {e}"))?;
        Ok(self)
    }

    /// Restores zones that were offline when the process was killed.
    fn restore_lost(&mut self) -> Result<(), String> {
        for &zone in &self.zones {
            if drive::describe(&self.device, zone).condition == ZoneCondition::Offline {
                // Only the workload is supposed to fail.
                self.backing.spare();
                let restored = self.device.set_zone(ZoneIndex(zone), ZoneSetting::Restored);
                restored.map_err(|e| format!("zone {zone}: {e}"))?;
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        let geometry = self.device.info().geometry;
        let zone = self.zones[self.random.random_range(0..self.zones.len())];
        let start = geometry.start_of(ZoneIndex(zone)).0;
        let is_conventional = geometry.is_conventional(ZoneIndex(zone));
        match self.random.random_range(0..100) {
            0..60 if is_conventional => self.write_conventional(zone, start),
            0..60 => self.write_sequential(zone, start),
            60..68 => self.flush(),
            68..70 if !is_conventional => self.lose_zone(zone),
            70..82 if !is_conventional => {
                let ops = [Op::ZoneReset, Op::ZoneReset, Op::ZoneFinish, Op::ZoneOpen, Op::ZoneClose];
                let op = ops[self.random.random_range(0..ops.len())];
                self.manage(op, zone, start)
            }
            82 => self.reset_all(),
            _ => self.read(zone, start),
        }
    }

    fn write_conventional(&mut self, zone: u32, start: u64) -> Result<(), String> {
        let size = self.device.info().geometry.size_of(ZoneIndex(zone));
        let offset = self.random.random_range(0..size);
        let sectors = self.random.random_range(1..=(size - offset).min(9));
        let (op, stamps) = if self.random.random_bool(0.8) {
            (Op::Write, self.stamps(sectors))
        } else {
            let op = if self.random.random_bool(0.5) { Op::WriteZeroes } else { Op::Discard };
            (op, vec![0; sectors as usize])
        };
        let fua = self.random.random_bool(0.1);
        let result = self.submit_write(op, start + u64::from(offset), fua, &stamps);
        match result {
            Ok(_) => self.model.wrote(zone, offset, &stamps),
            Err(_) if !self.backing.is_on() => self.model.wrote(zone, offset, &stamps),
            Err(_) => {
                // Only a read shows the content now.
                self.model.failed_conventional(zone, offset, &stamps);
                let found = drive::read(&self.device, start + u64::from(offset), sectors)?;
                self.model.found_conventional(zone, offset, &found);
            }
        }
        if fua && result.is_ok() {
            self.model.durable_range(zone, offset, stamps.len());
        }
        Ok(())
    }

    fn submit_write(&self, op: Op, sector: u64, fua: bool, stamps: &[u64]) -> Result<Output, String> {
        let command = Command { fua, ..drive::command(op, sector, stamps.len() as u32) };
        match op {
            Op::WriteZeroes | Op::Discard => {
                drive::run(&self.device, command, &mut zonal_io::buffer::IoBuf::empty())
            }
            _ => drive::write(&self.device, command, stamps),
        }
        .map_err(|e| e.to_string())
    }

    fn write_sequential(&mut self, zone: u32, start: u64) -> Result<(), String> {
        let capacity = self.device.info().geometry.capacity_of(ZoneIndex(zone));
        let offset = self.model.written(zone);
        let left = capacity - offset;
        if left == 0 {
            return Ok(());
        }
        // A third of the writes fill the zone.
        let sectors =
            if self.random.random_bool(0.3) { left } else { self.random.random_range(1..=left.min(9)) };
        let (op, stamps) = match self.random.random_range(0..10) {
            0 => (Op::WriteZeroes, vec![0; sectors as usize]),
            1..5 => (Op::Append, self.stamps(sectors)),
            _ => (Op::Write, self.stamps(sectors)),
        };
        let fua = self.random.random_bool(0.1);
        let sector = if op == Op::Append { start } else { start + u64::from(offset) };
        let result = self.submit_write(op, sector, fua, &stamps);
        if self.model.is_full(zone) {
            return result.map_or(Ok(()), |_| Err(format!("zone {zone} is full and took a write")));
        }
        match result {
            Ok(output) => {
                if let Output::Appended(at) = output
                    && at.0 != start + u64::from(offset)
                {
                    return Err(format!("zone {zone}: appended at {at}, pointer was {offset}"));
                }
                self.model.wrote(zone, offset, &stamps);
                self.model.acked(zone);
                if fua {
                    self.model.durable(zone);
                }
            }
            Err(_) if !self.backing.is_on() => self.model.wrote(zone, offset, &stamps),
            // A write with FUA that could not be made durable may still have been written.
            Err(_) => {
                let found = drive::describe(&self.device, zone);
                let moved = match (found.write_pointer, found.condition) {
                    (Some(p), _) => p.0 - start == u64::from(offset + sectors),
                    (None, ZoneCondition::Full) => sectors == left && fua,
                    other => return Err(format!("zone {zone}: {other:?} after a failed write")),
                };
                if moved {
                    self.model.wrote(zone, offset, &stamps);
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        if drive::plain(&self.device, Op::Flush, 0, 0).is_ok() {
            self.model.flushed();
        }
        Ok(())
    }

    /// A command may have been executed even if the image failed during it.
    fn manage(&mut self, op: Op, zone: u32, start: u64) -> Result<(), String> {
        let could = self.device.failure().is_none();
        let done = drive::plain(&self.device, op, start, 0);
        let is_empty = || drive::describe(&self.device, zone).condition == ZoneCondition::Empty;
        if done.is_ok() || could && self.device.failure().is_some() {
            match op {
                // Failed before execution.
                Op::ZoneReset if done.is_err() && !is_empty() => {}
                Op::ZoneReset => self.model.reset(zone),
                Op::ZoneFinish => self.model.finished(zone),
                _ => {}
            }
        }
        if done.is_ok() {
            self.model.acked(zone);
        }
        Ok(())
    }

    /// A zone goes offline and is restored before anything becomes durable: in the file this is a
    /// reset.
    fn lose_zone(&mut self, zone: u32) -> Result<(), String> {
        let could = self.device.failure().is_none();
        let set = |to| self.device.set_zone(ZoneIndex(zone), to);
        match set(ZoneSetting::Offline).and_then(|()| set(ZoneSetting::Restored)) {
            Ok(()) => {
                self.model.reset(zone);
                self.model.acked(zone);
            }
            Err(_) if could && self.device.failure().is_some() => {
                self.model.reset(zone);
                // It may be offline, which the model does not support.
                self.backing.kill();
            }
            Err(_) => {}
        }
        Ok(())
    }

    fn reset_all(&mut self) -> Result<(), String> {
        let could = self.device.failure().is_none();
        let done = drive::plain(&self.device, Op::ResetAll, 0, 0);
        let geometry = self.device.info().geometry;
        // The image may fail halfway.
        let is_part = done.is_err() && could && self.device.failure().is_some();
        let is_empty = |zone| drive::describe(&self.device, zone).condition == ZoneCondition::Empty;
        for zone in geometry.conventional_zones()..geometry.zones() {
            if done.is_ok() || is_part && is_empty(zone) {
                self.model.reset(zone);
            }
            if done.is_ok() {
                self.model.acked(zone);
            }
        }
        Ok(())
    }

    fn read(&mut self, zone: u32, start: u64) -> Result<(), String> {
        let size = self.device.info().geometry.size_of(ZoneIndex(zone));
        let expected = self.model.contents(zone, size as usize);
        match drive::read(&self.device, start, size) {
            Ok(found) if found != expected => Err(format!("zone {zone}: read {found:?}, wrote {expected:?}")),
            Err(e) if self.backing.is_on() => Err(e),
            _ => Ok(()),
        }
    }
}

/// Number from the environment.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}={v}")))
}

/// First failing case, with its error.
fn first_failure(cases: Range<u64>, unsynced: &Range<u64>) -> Option<(u64, String)> {
    cases.into_iter().find_map(|seed| Case::new(seed, unsynced.clone()).run().err().map(|e| (seed, e)))
}

#[test]
fn power_cuts_around_every_call_keep_the_promise() {
    let first = number("ZONAL_CUT_SEED", 0);
    let cases = first..first + number("ZONAL_CUTS", 1500);
    if let Some((seed, e)) = first_failure(cases, &(0..0)) {
        panic!("case {seed} (ZONAL_CUT_SEED={seed} ZONAL_CUTS=1 repeats it): {e}");
    }
}

/// Offset of the data in every image of these geometries.
const DATA: u64 = 1 << 20;

#[test]
fn canary_image_that_does_not_sync_is_caught() {
    for (what, lie) in [("nothing", 0..u64::MAX), ("no data", DATA..u64::MAX), ("no zone states", 0..DATA)] {
        assert!(first_failure(0..300, &lie).is_some(), "an image that syncs {what} went unnoticed");
    }
}
