//! What was acknowledged where, until it is checked.
//!
//! # Two kinds of zones
//! - *Sequential*: a place is written once a generation, so an entry is a run of blocks: place, number and generation of
//!   the first, and how many. Blocks in a row cost one entry, scattered ones one each.
//! - *Conventional*: a place may be overwritten, also by writes in flight at the same time. An entry is one write with
//!   the moments of its submission and completion. A block may be that of any write that was not over before another
//!   to the same place began.
//!
//! # Bound
//! All recorders of a run together keep at most [`RECORDS_MAX`] entries (of 32 bytes at most); then the job fails.

use super::{Expected, Ticket};
use crate::run::plan::WorkerPlan;
use crate::workload::{Io, Zones};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zonal_core::{Geometry, Sector};

/// Entries of all recorders of a run: half a gigabyte.
pub const RECORDS_MAX: u64 = 16 << 20;

/// What the recorders of a run share.
#[derive(Debug, Default)]
pub struct Record {
    events: AtomicU64,
    entries: AtomicU64,
}

/// Blocks in a row, written in a sequential zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First sector.
    pub sector: u64,
    /// Number of the first block; each next one is one higher.
    pub id: u64,
    /// Generation of the zone.
    pub generation: u32,
    /// How many blocks.
    pub blocks: u32,
}

/// One write to a conventional zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overwrite {
    /// First sector.
    pub sector: u64,
    /// Number of the block.
    pub id: u64,
    /// When it was submitted, in the order of events.
    pub begun: u64,
    /// When it was acknowledged; `u64::MAX` if it failed, so that it may be there or not.
    pub ended: u64,
}

/// Record of one worker.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Record>,
    max: u64,
    /// Name of the job.
    pub job: String,
    /// Seed of the job.
    pub seed: u64,
    /// Sectors of a block.
    pub sectors: u32,
    pub(super) runs: Vec<Run>,
    pub(super) overwrites: Vec<Overwrite>,
    /// Entries of earlier passes.
    earlier: (usize, usize),
}

impl Recorder {
    /// An empty record for a worker.
    pub fn new(plan: &WorkerPlan, shared: Arc<Record>) -> Recorder {
        Recorder {
            shared,
            max: RECORDS_MAX,
            job: plan.spec.name.clone(),
            seed: plan.seed,
            sectors: plan.write_sectors,
            runs: Vec::new(),
            overwrites: Vec::new(),
            earlier: (0, 0),
        }
    }

    /// The next moment in the order of events of all recorders.
    pub fn event(&self) -> u64 {
        self.shared.events.fetch_add(1, Ordering::AcqRel)
    }

    /// A write was acknowledged at `at`.
    ///
    /// # Errors
    /// The bound, if it is reached. The write is not recorded.
    pub fn acknowledged(
        &mut self,
        at: Sector,
        io: &Io,
        ticket: &Ticket,
        geometry: &Geometry,
    ) -> Result<(), u64> {
        debug_assert_eq!(io.sectors, self.sectors);
        if geometry.is_conventional(geometry.zone_of(at)) {
            self.make_room()?;
            let ended = self.event();
            let overwrite = Overwrite { sector: at.0, id: ticket.id, begun: ticket.begun, ended };
            self.overwrites.push(overwrite);
            return Ok(());
        }
        let one = Run { sector: at.0, id: ticket.id, generation: ticket.generation, blocks: 1 };
        let sectors = u64::from(self.sectors);
        let joined = self.runs[self.earlier.0..].last_mut().is_some_and(|last| last.join(&one, sectors));
        if joined {
            self.join_last_two();
            return Ok(());
        }
        self.make_room()?;
        self.runs.push(one);
        Ok(())
    }

    fn make_room(&self) -> Result<(), u64> {
        if self.shared.entries.fetch_add(1, Ordering::Relaxed) < self.max {
            return Ok(());
        }
        self.shared.entries.fetch_sub(1, Ordering::Relaxed);
        Err(self.max)
    }

    /// Completions of a batch come last first: what they leave apart meets here.
    fn join_last_two(&mut self) {
        let of_pass = &mut self.runs[self.earlier.0..];
        if let [.., before, last] = of_pass
            && before.join(last, u64::from(self.sectors))
        {
            self.runs.pop();
            self.shared.entries.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A write failed: its place may hold it or what was there.
    pub fn failed(&mut self, io: &Io, ticket: &Ticket, geometry: &Geometry) {
        // In a sequential zone whatever is acknowledged later for the place is recorded; nothing is owed for this.
        if geometry.is_conventional(geometry.zone_of(io.sector)) && self.make_room().is_ok() {
            let (sector, id, begun) = (io.sector.0, ticket.id, ticket.begun);
            self.overwrites.push(Overwrite { sector, id, begun, ended: u64::MAX });
        }
    }

    /// What the present pass wrote and no reset has taken since.
    pub fn of_pass<'a>(&'a self, zones: &'a Zones) -> impl Iterator<Item = (Sector, Expected)> + 'a {
        let geometry = zones.geometry();
        let runs = self.runs[self.earlier.0..].iter().flat_map(|run| run.blocks(u64::from(self.sectors)));
        let runs = runs.map(|(sector, id, generation)| {
            let (id, generation, seed) = (Some(id), Some(generation), Some(self.seed));
            (sector, Expected { sector, id, generation, seed })
        });
        let is_there = move |(sector, expected): &(Sector, Expected)| {
            expected.generation == Some(zones.generation(geometry.zone_of(*sector)))
        };
        // Which of several writes a place holds is for the final check to say.
        let acknowledged = self.overwrites[self.earlier.1..].iter().filter(|o| o.ended != u64::MAX);
        let overwrites = acknowledged.map(|o| {
            let sector = Sector(o.sector);
            (sector, Expected { sector, id: None, generation: None, seed: None })
        });
        runs.filter(is_there).chain(overwrites)
    }

    /// The pass is over.
    pub fn end_pass(&mut self) {
        self.earlier = (self.runs.len(), self.overwrites.len());
    }

    #[cfg(test)]
    pub(super) fn with_max(mut self, max: u64) -> Recorder {
        self.max = max;
        self
    }
}

impl Run {
    /// Takes `next` in if it lies directly behind or before this run.
    fn join(&mut self, next: &Run, sectors: u64) -> bool {
        let is_behind = |a: &Run, b: &Run| {
            a.sector + u64::from(a.blocks) * sectors == b.sector && a.id + u64::from(a.blocks) == b.id
        };
        let Some(blocks) = self.blocks.checked_add(next.blocks) else { return false };
        if self.generation != next.generation {
            return false;
        }
        if is_behind(next, self) {
            (self.sector, self.id) = (next.sector, next.id);
        } else if !is_behind(self, next) {
            return false;
        }
        self.blocks = blocks;
        true
    }

    /// Place, number and generation of each block.
    pub(super) fn blocks(&self, sectors: u64) -> impl Iterator<Item = (Sector, u64, u32)> + use<> {
        let run = *self;
        (0..u64::from(run.blocks))
            .map(move |n| (Sector(run.sector + n * sectors), run.id + n, run.generation))
    }
}
