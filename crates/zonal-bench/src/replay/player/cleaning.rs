//! Requests of the cleaner: live data of a zone is read and written to the end of the log, and the
//! zone is reset.

use super::{Layout, Player, Purpose};
use crate::replay::log::{Log, Move, Run};
use crate::replay::slots::Slots;
use zonal_core::{Op, SECTOR_BYTES, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::volume::Request;

/// Maximum number of runs in flight, enough for reads and writes to overlap.
const RUNS_MAX: usize = 4;

/// Maximum length of a run in sectors: 1 MiB.
const RUN_SECTORS_MAX: u32 = 2048;

/// A run that has been read.
struct Moving {
    run: Run,
    /// Part without a new place.
    rest: Run,
    /// Its data, if any.
    buffer: IoBuf,
    writes: u32,
}

/// Work of the cleaner in flight.
#[derive(Default)]
pub(super) struct Cleaning {
    reads: usize,
    runs: Slots<Moving>,
    /// Runs that still need places, in order.
    unplaced: Vec<u64>,
}

fn log_of(layout: &mut Layout) -> Option<&mut Log> {
    match layout {
        Layout::Log(log) => Some(log),
        Layout::AsIs(_) => None,
    }
}

impl Player<'_> {
    /// Issues the cleaner's requests.
    pub(super) fn clean(&mut self) {
        if self.measured.failure.is_some() {
            return;
        }
        let block_sectors = self.volume.info().block_sectors;
        let max = (self.run_sectors_max() / block_sectors).max(1);
        self.place_runs();
        while self.cleaning.reads + self.cleaning.runs.len() < RUNS_MAX {
            let Some(log) = log_of(&mut self.layout) else { return };
            let Some(run) = log.next_run(max) else { break };
            self.cleaning.reads += 1;
            let sector = log.sector_of(run.zone, run.offset);
            let sectors = run.blocks * block_sectors;
            let buffer = self.buffers.take(sectors);
            self.send(None, Purpose::ReadRun(run), Request::read(sector, sectors, buffer));
        }
        let Some(log) = log_of(&mut self.layout) else { return };
        if let Some(zone) = log.next_reset() {
            let start = log.sector_of(zone, 0);
            self.send(None, Purpose::ResetCleaned(zone), Request::zone(Op::ZoneReset, start));
        }
    }

    fn run_sectors_max(&self) -> u32 {
        let of_writes = if self.rules.appends { self.volume.append_sectors_max() } else { RUN_SECTORS_MAX };
        RUN_SECTORS_MAX.min(self.volume.info().command_sectors_max).min(of_writes)
    }

    pub(super) fn live_read(&mut self, run: Run, bytes: &[u8]) {
        let sectors = run.blocks * self.volume.info().block_sectors;
        let mut buffer = IoBuf::empty();
        if self.rules.has_data {
            let length = sectors as usize * SECTOR_BYTES as usize;
            buffer = self.buffers.take(sectors);
            buffer[..length].copy_from_slice(&bytes[..length]);
        }
        if let Some(log) = log_of(&mut self.layout) {
            log.end_read(run.zone);
        }
        self.cleaning.reads -= 1;
        let key = self.cleaning.runs.insert(Moving { run, rest: run, buffer, writes: 0 });
        self.cleaning.unplaced.push(key);
        self.place_runs();
    }

    /// Writes runs to the end of the log, as far as there is room.
    fn place_runs(&mut self) {
        while let Some(&key) = self.cleaning.unplaced.first() {
            let (Some(log), Some(moving)) = (log_of(&mut self.layout), self.cleaning.runs.get_mut(key))
            else {
                return;
            };
            let Some(moved) = log.begin_move(moving.rest) else { return };
            let block_sectors = self.volume.info().block_sectors;
            let sectors = moved.room.blocks * block_sectors;
            let mut buffer = self.buffers.take(sectors);
            if !moving.buffer.is_empty() {
                let bytes = |blocks: u32| blocks as usize * block_sectors as usize * SECTOR_BYTES as usize;
                let from = bytes(moved.from.offset - moving.run.offset);
                let length = bytes(moved.room.blocks);
                buffer[..length].copy_from_slice(&moving.buffer[from..from + length]);
            }
            moving.writes += 1;
            moving.rest.offset += moved.room.blocks;
            moving.rest.blocks -= moved.room.blocks;
            if moving.rest.blocks == 0 {
                self.cleaning.unplaced.remove(0);
            }
            let request = self.log_write(moved.room, buffer);
            self.send(None, Purpose::Move { moved, run: key }, request);
        }
    }

    pub(super) fn moved(&mut self, moved: &Move, run: u64, offset: u32) {
        let Some(log) = log_of(&mut self.layout) else { return };
        log.end_move(moved, offset);
        let Some(moving) = self.cleaning.runs.get_mut(run) else { return };
        moving.writes -= 1;
        if moving.writes == 0 && moving.rest.blocks == 0 {
            log.end_run(moving.run);
            if let Some(moving) = self.cleaning.runs.remove(run) {
                self.buffers.give_back(moving.buffer);
            }
        }
    }

    pub(super) fn victim_reset(&mut self, zone: ZoneIndex) {
        if let Some(log) = log_of(&mut self.layout) {
            log.end_reset(zone);
        }
    }
}
