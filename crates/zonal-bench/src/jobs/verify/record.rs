//! Record of acknowledged writes, kept until they are checked.
//!
//! # Two kinds of zones
//! - *Sequential*: a place is written once per generation, so an entry is a run of blocks: place,
//!   number and generation of the first one, and the count. Consecutive blocks share one entry;
//!   scattered ones need one each.
//! - *Conventional*: a place may be overwritten, even by concurrent writes. An entry is one write
//!   with the event numbers of its submission and completion. The place may hold any write that had
//!   not completed before the last acknowledged one was submitted.
//!
//! # Limit
//! All recorders of a run together keep at most [`RECORDS_MAX`] entries, of at most 32 bytes each.
//! Beyond that, the job fails.

use super::Ticket;
use crate::jobs::plan::WorkerPlan;
use crate::jobs::workload::{Io, Zones};
use crate::report::Expected;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zonal_core::{Geometry, Sector};

/// Maximum number of entries of all recorders of a run: half a gigabyte.
pub const RECORDS_MAX: u64 = 16 << 20;

/// State shared by the recorders of a run.
#[derive(Debug, Default)]
pub struct Record {
    events: AtomicU64,
    entries: AtomicU64,
}

/// Consecutive blocks in one sequential zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First sector.
    pub sector: u64,
    /// Number of the first block. Numbers increase by one per block.
    pub id: u64,
    /// Generation of the zone.
    pub generation: u32,
    /// Number of blocks.
    pub blocks: u32,
}

/// One write to a conventional zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overwrite {
    /// First sector.
    pub sector: u64,
    /// Number of the block.
    pub id: u64,
    /// Event number of its submission.
    pub begun: u64,
    /// Event number of its acknowledgement; `u64::MAX` if it failed, so that it may or may not be
    /// on the medium.
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
    /// Numbers of runs and overwrites of earlier passes.
    earlier: (usize, usize),
}

impl Recorder {
    /// Creates an empty record for a worker.
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

    /// Returns the next event number, common to all recorders.
    pub fn event(&self) -> u64 {
        self.shared.events.fetch_add(1, Ordering::AcqRel)
    }

    /// Records a write that was acknowledged at `at`.
    ///
    /// # Errors
    /// The limit, if it is reached. The write is then not recorded.
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
        let zone_of = |run: &Run| geometry.zone_of(Sector(run.sector));
        let last = self.runs[self.earlier.0..].last_mut().filter(|last| zone_of(last) == zone_of(&one));
        if last.is_some_and(|last| last.join(&one, sectors)) {
            self.join_last_two(geometry);
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

    /// Joins the last two runs if they are contiguous. The completions of a batch arrive in reverse
    /// order, so gaps close here.
    fn join_last_two(&mut self, geometry: &Geometry) {
        let zone_of = |run: &Run| geometry.zone_of(Sector(run.sector));
        let of_pass = &mut self.runs[self.earlier.0..];
        if let [.., before, last] = of_pass
            && zone_of(before) == zone_of(last)
            && before.join(last, u64::from(self.sectors))
        {
            self.runs.pop();
            self.shared.entries.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Records a failed write: its place may hold the new or the old data.
    pub fn failed(&mut self, io: &Io, ticket: &Ticket, geometry: &Geometry) {
        // In a sequential zone nothing is recorded: only acknowledged writes have to be there.
        if geometry.is_conventional(geometry.zone_of(io.sector)) && self.make_room().is_ok() {
            let (sector, id, begun) = (io.sector.0, ticket.id, ticket.begun);
            self.overwrites.push(Overwrite { sector, id, begun, ended: u64::MAX });
        }
    }

    /// Returns the blocks of the current pass that were not reset since.
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
        // If a place has several writes, only the final check can tell which of them it has to
        // hold.
        let acknowledged = self.overwrites[self.earlier.1..].iter().filter(|o| o.ended != u64::MAX);
        let overwrites = acknowledged.map(|o| {
            let sector = Sector(o.sector);
            (sector, Expected { sector, id: None, generation: None, seed: None })
        });
        runs.filter(is_there).chain(overwrites)
    }

    /// Ends the pass.
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
    /// Absorbs `next` if it lies directly before or after this run.
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

    /// Returns place, number and generation of each block.
    pub(super) fn blocks(&self, sectors: u64) -> impl Iterator<Item = (Sector, u64, u32)> + use<> {
        let run = *self;
        (0..u64::from(run.blocks))
            .map(move |n| (Sector(run.sector + n * sectors), run.id + n, run.generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobFile;
    use crate::jobs::plan::Plan;
    use crate::jobs::workload::{Dir, Placing};
    use zonal_core::Sectors;
    use zonal_io::emulated::EmulatedOptions;
    use zonal_io::volume::WriteMode;

    fn geometry() -> Geometry {
        Geometry::new(Sectors(1024), Sectors(128), Sectors(0), 1).unwrap()
    }

    fn recorder(shared: &Arc<Record>) -> Recorder {
        let jobs = JobFile::parse_inline(["--name=j", "--rw=write", "--bs=4k"]).unwrap();
        let options = EmulatedOptions::default().with_size(512 << 10).with_zone_size(64 << 10);
        let plan = Plan::new(jobs.jobs(), &options.info("x").unwrap(), WriteMode::PerZone).unwrap();
        Recorder::new(&plan.workers[0], shared.clone())
    }

    fn write(recorder: &mut Recorder, at: u64, id: u64, generation: u32) -> Result<(), u64> {
        let sector = Sector(at);
        let io = Io { dir: Dir::Write, placing: Placing::At, sector, sectors: 8, ..Io::NONE };
        let begun = recorder.event();
        let ticket = Ticket { id, generation, begun, expected: None };
        recorder.acknowledged(sector, &io, &ticket, &geometry())
    }

    #[test]
    fn consecutive_blocks_take_one_entry_in_any_order() {
        let mut recorder = recorder(&Arc::default());
        // Two batches, each in reverse order, as a worker receives them.
        for n in [3, 2, 1, 0, 7, 6, 5, 4] {
            write(&mut recorder, 128 + n * 8, 100 + n, 0).unwrap();
        }
        assert_eq!(recorder.runs, [Run { sector: 128, id: 100, generation: 0, blocks: 8 }]);
        assert_eq!(recorder.shared.entries.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn runs_end_with_their_zone_generation_and_numbers() {
        let mut recorder = recorder(&Arc::default());
        write(&mut recorder, 248, 1, 0).unwrap();
        write(&mut recorder, 256, 2, 0).unwrap();
        write(&mut recorder, 264, 3, 1).unwrap();
        write(&mut recorder, 272, 5, 1).unwrap();
        assert_eq!(recorder.runs.len(), 4, "another zone, another generation, a gap in the numbers");
    }

    #[test]
    fn bound_is_over_all_recorders() {
        let shared = Arc::default();
        let (mut a, mut b) = (recorder(&shared).with_max(3), recorder(&shared).with_max(3));
        write(&mut a, 128, 1, 0).unwrap();
        write(&mut b, 256, 2, 0).unwrap();
        write(&mut a, 0, 3, 0).unwrap();
        assert_eq!(write(&mut b, 512, 9, 0), Err(3));
        assert_eq!(write(&mut b, 264, 3, 0), Ok(()), "what joins a run needs no room");
        assert_eq!(shared.entries.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn conventional_zones_keep_every_write_with_its_moments() {
        let mut recorder = recorder(&Arc::default());
        write(&mut recorder, 8, 1, 0).unwrap();
        write(&mut recorder, 8, 2, 0).unwrap();
        let [first, second] = recorder.overwrites.as_slice() else { panic!() };
        assert!(first.begun < first.ended && first.ended < second.begun && second.begun < second.ended);
    }
}
