//! Plans of jobs on files: the files of each clone, and the amount it transfers.

use crate::error::PlanError;
use crate::job::{Direction, Extent, Job, JobSpec, PerDirection, Verify, ZoneMode};
use crate::jobs::plan::{ClonePlace, Misfit, Schedule};
use crate::jobs::run::options::FilesOptions;
use crate::jobs::workload::{Purpose, RandomMap, Stream};
use std::sync::Arc;

/// Maximum number of files of all jobs. Names and sizes are kept in memory.
const FILES_MAX: u64 = 100_000_000;

/// One clone of a job.
#[derive(Clone, Debug)]
pub(super) struct Clone {
    pub(super) spec: Arc<JobSpec>,
    /// Index of the clone within its job.
    pub(super) clone: u32,
    /// Index among all clones.
    pub(super) number: usize,
    pub(super) group: u32,
    pub(super) seed: u64,
    /// Bytes of each of its files.
    pub(super) sizes: Arc<[u64]>,
    /// Bytes to transfer.
    pub(super) amount: u64,
    /// True if its files are written before it starts.
    pub(super) is_laid_out: bool,
    /// Blocks that a random job transfers once in each pass; `None` with `norandommap`.
    pub(super) blocks: Option<Blocks>,
}

/// Numbers of the blocks of several files, in units of the smaller of the job's block sizes.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    /// Bytes of a block. The last one of a file may be shorter.
    pub(super) unit: u64,
    /// Number of the first block of each file, and the number of all blocks.
    starts: Arc<[u64]>,
}

impl Blocks {
    fn new(unit: u64, sizes: &[u64]) -> Result<Blocks, PlanError> {
        let mut next = 0;
        let first = std::iter::once(0);
        let starts = first.chain(sizes.iter().map(|size| {
            next += size.div_ceil(unit);
            next
        }));
        let blocks = Blocks { unit, starts: starts.collect() };
        RandomMap::check(blocks.count())?;
        Ok(blocks)
    }

    fn count(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// Map in which no block is done.
    pub(super) fn map(&self) -> RandomMap {
        RandomMap::new(self.count()).expect("the plan has checked the number of blocks")
    }

    /// File of a block, and its offset there in bytes.
    pub(super) fn place(&self, block: u64) -> (usize, u64) {
        let file = self.starts.partition_point(|start| *start <= block) - 1;
        (file, (block - self.starts[file]) * self.unit)
    }
}

impl Clone {
    /// Name of file `index`, in fio's format.
    pub(super) fn file(&self, index: usize) -> Vec<u8> {
        format!("{}.{}.{index}", self.spec.name, self.clone).into_bytes()
    }

    pub(super) fn random(&self, purpose: Purpose) -> Stream {
        Stream::new(self.seed, self.number as u64, 0, purpose)
    }
}

/// Base for relative sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes available to files.
    pub(super) bytes: u64,
    pub(super) zone_bytes: u64,
}

/// Assigns files to clones and clones to rounds.
pub(super) fn plan(jobs: &[Job], room: Room, options: &FilesOptions) -> Result<Schedule<Clone>, Misfit> {
    let writers = jobs.iter().map(|job| u64::from(job.spec.numjobs)).sum();
    let share = Share { room, writers, fill_percent: options.fill_percent };
    Schedule::new(jobs, |spec, place| resolve(spec, place, share))
}

/// A clone's share of the file system.
#[derive(Clone, Copy)]
struct Share {
    room: Room,
    writers: u64,
    fill_percent: Option<u8>,
}

fn resolve(spec: &Arc<JobSpec>, place: ClonePlace, share: Share) -> Result<Clone, PlanError> {
    check(spec)?;
    let ClonePlace { clone, number, group, seed, .. } = place;
    let sizes = sizes(spec, place, share)?;
    let all: u64 = sizes.iter().sum();
    let bytes = |extent: Extent, whole: u64, option| {
        extent.bytes(whole, share.room.zone_bytes).ok_or(PlanError::Overflow { option })
    };
    let size = match (spec.size, spec.filesize) {
        (Extent::Fill, _) | (_, None) => all,
        (size, Some(_)) => bytes(size, all, "size")?,
    };
    let amount = bytes(spec.io_size, size, "io_size")?;
    let is_laid_out =
        spec.overwrite || share.fill_percent.is_some() || spec.pattern.direction != Direction::Write;
    let unit = match spec.pattern.direction {
        Direction::Read => spec.block_size.read,
        Direction::Write => spec.block_size.write,
        Direction::Mixed { .. } => spec.block_size.read.min(spec.block_size.write),
    };
    let is_mapped = spec.pattern.random && !spec.norandommap;
    let blocks = is_mapped.then(|| Blocks::new(unit.into(), &sizes)).transpose()?;
    let spec = spec.clone();
    Ok(Clone { spec, clone, number, group, seed, sizes: sizes.into(), amount, is_laid_out, blocks })
}

/// Refuses options that jobs on files do not support.
fn check(spec: &JobSpec) -> Result<(), PlanError> {
    let wrong = [
        ("zonemode", spec.zonemode != ZoneMode::None),
        ("verify", spec.verify != Verify::None),
        ("bsrange and bssplit", spec.block_mix != PerDirection::default()),
        ("offset", spec.offset != Extent::Bytes(0) || spec.offset_increment != Extent::Bytes(0)),
        ("iodepth", spec.iodepth != 1),
        ("loops", spec.loops != 1),
        ("write_iolog", spec.write_iolog.is_some()),
        ("rate, thinktime and ramp_time", spec.pace != JobSpec::default().pace),
    ];
    match wrong.into_iter().find(|(_, is_wrong)| *is_wrong) {
        Some((option, _)) => Err(PlanError::NotOfFiles { option }),
        None => Ok(()),
    }
}

/// Bytes of each file. Sizes are drawn until the clone has its share of the file system or the
/// number of files it asks for.
fn sizes(spec: &JobSpec, place: ClonePlace, share: Share) -> Result<Vec<u64>, PlanError> {
    let room = share.room;
    let (min, max) = match (spec.filesize, spec.size) {
        (Some(sizes), _) => sizes,
        (None, Extent::Fill) => return Err(PlanError::NoFileSize),
        (None, size) => {
            let bytes = size.bytes(room.bytes, room.zone_bytes);
            let each = bytes.ok_or(PlanError::Overflow { option: "size" })? / u64::from(spec.nrfiles);
            (each.max(1), each.max(1))
        }
    };
    let fill = share.fill_percent.map(|percent| {
        u64::try_from(u128::from(room.bytes) * u128::from(percent) / 100).unwrap_or(u64::MAX) / share.writers
    });
    let mut stream = Stream::new(place.seed, place.number as u64, 0, Purpose::Payload);
    let (mut sizes, mut sum) = (Vec::new(), 0u64);
    loop {
        let is_enough = match fill {
            Some(fill) => sum.saturating_add(min + (max - min) / 2) > fill && !sizes.is_empty(),
            None => sizes.len() as u64 >= u64::from(spec.nrfiles),
        };
        if is_enough {
            return Ok(sizes);
        }
        let size = min + stream.below(max - min + 1);
        sum = sum.saturating_add(size);
        sizes.push(size);
        if sum > room.bytes || sizes.len() as u64 > FILES_MAX {
            return Err(PlanError::FilesAboveRoom { files: sum, room: room.bytes });
        }
    }
}
