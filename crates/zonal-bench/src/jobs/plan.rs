//! Plan of each worker, in sectors of one device: job files resolved against a geometry.
//!
//! # Rounds and groups
//! The jobs of a *round* run concurrently; a job with `stonewall` starts a new round. The jobs of a
//! *group* are reported together; a job with `stonewall` or `new_group` starts a new group.

mod schedule;
mod sharing;

pub(crate) use schedule::{ClonePlace, Schedule};
pub use sharing::{HostRules, Opener, Ordering, ZonesOptions};

use crate::error::PlanError;
use crate::job::{Direction, Extent, Job, JobSpec, PerDirection, Verify, ZoneMode};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use zonal_core::{SECTOR_BYTES, Sector, ZoneIndex};
use zonal_io::device::DeviceInfo;
use zonal_io::volume::WriteMode;

/// Limit on the buffers of all workers of a round, in bytes. Far above any useful value; it keeps a
/// typing error from exhausting memory.
pub const BUFFER_BYTES_MAX: u64 = 64 << 30;

/// Plan of one clone of a job.
#[derive(Debug, Clone)]
pub struct WorkerPlan {
    /// Index of the job in its file.
    pub job: usize,
    /// Index of the clone within its job, from 0.
    pub clone: u32,
    /// Index among all workers, from 0.
    pub number: usize,
    /// Reporting group.
    pub group: u32,
    /// Options of the job.
    pub spec: Arc<JobSpec>,
    /// Range in sectors.
    pub range: Range<u64>,
    /// Zones of this range.
    pub zones: Range<u32>,
    /// Sectors per read; with random sizes, the smallest, of which the others are multiples.
    pub read_sectors: u32,
    /// Sectors per write, likewise.
    pub write_sectors: u32,
    /// Sectors of the largest read and of the largest write.
    pub sectors_max: PerDirection<u32>,
    /// Sectors per pass over the range.
    pub pass_sectors: u64,
    /// Sectors over all passes.
    pub total_sectors: u64,
    /// True if passes continue up to `total_sectors`, because the job has an `io_size`.
    pub is_amount_given: bool,
    /// Seed of its generators.
    pub seed: u64,
    /// True if no other worker of its round writes to its zones.
    pub is_exclusive: bool,
    /// True if it follows fio's rule of zone ownership and shares zones with another worker that
    /// does.
    pub holds_zones: bool,
    /// File for the log of its requests.
    pub iolog: Option<PathBuf>,
    /// True if consecutive writes never cross the end of a zone's capacity.
    pub is_tiling: bool,
}

impl WorkerPlan {
    /// True if it writes.
    pub fn writes(&self) -> bool {
        self.spec.pattern.direction != Direction::Read
    }

    /// True if it reads in its main phase.
    pub fn reads(&self) -> bool {
        self.spec.pattern.direction != Direction::Write
    }

    /// True if it writes blocks that can be verified.
    pub fn writes_verified(&self) -> bool {
        self.spec.verify == Verify::Crc32c && self.writes()
    }

    /// True if it writes at the write pointers of zones.
    pub fn writes_zones(&self) -> bool {
        self.spec.zonemode == ZoneMode::Zbd && self.writes()
    }

    /// True if its reads depend on the write pointers of zones.
    pub fn reads_zones(&self) -> bool {
        self.spec.zonemode == ZoneMode::Zbd && self.reads() && !self.spec.read_beyond_wp
    }

    /// Size of a buffer large enough for every command, in bytes.
    pub fn buffer_bytes(&self) -> u64 {
        u64::from(self.sectors_max.read.max(self.sectors_max.write)) * SECTOR_BYTES
    }

    /// Identity with which it opens zones.
    pub fn opener(&self) -> Opener {
        let max = self.spec.job_max_open_zones.unwrap_or(0);
        Opener { worker: self.number as u32, max, is_exclusive: self.is_exclusive }
    }

    /// True if its block sizes are random.
    pub fn draws_sizes(&self) -> bool {
        self.sectors_max != PerDirection { read: self.read_sectors, write: self.write_sectors }
    }
}

/// Plans of all workers of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Workers in the order of the jobs.
    pub workers: Vec<WorkerPlan>,
    /// Ranges of workers that run concurrently, in order.
    pub rounds: Vec<Range<usize>>,
    /// Maximum number of open zones over all workers; 0 is no limit.
    pub open_max: u32,
    /// True if zone limits are left to the device.
    pub ignores_limits: bool,
    /// Adjustments made to the jobs, for the report.
    pub notes: Vec<String>,
}

/// Returns the default write mode and its reason, if the device's `default` does not suit the jobs:
/// per-zone instead of append if a block is larger than the largest append. A positional write can
/// be split into several commands. An append cannot, because each part would get an address of its
/// own.
pub fn default_of_jobs(
    jobs: &[Job],
    info: &DeviceInfo,
    default: WriteMode,
) -> Option<(WriteMode, &'static str)> {
    match Plan::new(jobs, info, default) {
        Err((_, PlanError::BlockAboveAppend { .. })) => {
            Some((WriteMode::PerZone, "a job's block size exceeds the largest zone append"))
        }
        _ => None,
    }
}

/// Name of a job that does not fit, with the error.
pub type Misfit = (String, PlanError);

impl Plan {
    /// Resolves `jobs` against the device described by `info`, for write mode `mode`.
    ///
    /// # Errors
    /// The first job that does not fit, with the reason.
    pub fn new(jobs: &[Job], info: &DeviceInfo, mode: WriteMode) -> Result<Plan, Misfit> {
        // As in fio, the first job with zonemode=zbd decides for all.
        let first = jobs.iter().find(|job| job.spec.zonemode == ZoneMode::Zbd);
        let ignores_limits = first.is_some_and(|job| job.spec.ignore_zone_limits);
        let open_max = open_max(jobs, info, ignores_limits)?;
        let mut notes = Vec::new();
        let Schedule { clones: workers, rounds } =
            Schedule::new(jobs, |spec, place| resolve(spec, place, info, mode, &mut notes))?;
        let mut plan = Plan { workers, rounds, open_max, ignores_limits, notes };
        check_logs(&plan.workers)?;
        for round in plan.rounds.clone() {
            check_buffers(&plan.workers[round.clone()])?;
            mark_exclusive(&mut plan.workers[round]);
        }
        Ok(plan)
    }
}

impl Plan {
    /// Sets the rules by which workers share zones. fio has no zone appends, so its rule does not
    /// apply to them.
    pub fn set_rules(&mut self, rules: HostRules, mode: WriteMode) {
        let is_kept = rules == HostRules::Fio && mode != WriteMode::Append;
        for round in self.rounds.iter().filter(|_| is_kept) {
            let workers = &mut self.workers[round.clone()];
            let locks = |w: &WorkerPlan| w.writes_zones() || w.reads_zones();
            for index in sharing(workers, locks) {
                workers[index].holds_zones = true;
            }
        }
    }

    /// Options of the zones shared by these workers.
    pub fn zones_options(&self, mode: WriteMode) -> ZonesOptions {
        let writers = || self.workers.iter().filter(|worker| worker.writes());
        let counts = |worker: &WorkerPlan| worker.reads() || worker.spec.zone_reset_frequency.is_some();
        ZonesOptions {
            ordering: match mode {
                WriteMode::Append => Ordering::ByDevice,
                WriteMode::Direct => Ordering::OneInFlight,
                _ => Ordering::BySubmission,
            },
            open_max: self.open_max,
            counts_written: writers().any(counts),
            counts_generations: writers().any(WorkerPlan::writes_verified),
            write_sectors_max: writers().map(|worker| worker.sectors_max.write).max().unwrap_or(0),
            keeps_holds: self.workers.iter().any(|worker| worker.holds_zones),
        }
    }
}

fn resolve(
    spec: &Arc<JobSpec>,
    place: ClonePlace,
    info: &DeviceInfo,
    mode: WriteMode,
    notes: &mut Vec<String>,
) -> Result<WorkerPlan, PlanError> {
    check_files(spec)?;
    check_zone_options(spec, info)?;
    let (min, max) = (spec.block_min(), spec.block_max());
    let read_sectors = block_sectors("bs", min.read, info)?;
    let write_sectors = block_sectors("bs", min.write, info)?;
    let sectors_max = PerDirection {
        read: block_sectors("bsrange", max.read, info)?,
        write: block_sectors("bsrange", max.write, info)?,
    };
    let given = range_of(spec, start_of(spec, place.clone, info)?, info)?;
    let range = sectors_of(spec, &given, info, notes)?;
    check_block(read_or_write(spec, read_sectors, write_sectors), &range)?;
    check_writes(spec, write_sectors, sectors_max.write, &range, info, mode)?;
    if place.clone == 0 && appends_elsewhere(spec, &range, info, mode) {
        notes.push(format!(
            "{}: in mode append without zonemode=zbd, writes go to the write pointers of the zones at their offsets",
            spec.name
        ));
    }
    check_verified(spec, write_sectors, sectors_max, info)?;
    let pass = (range.end - range.start).min((given.end - given.start).div_ceil(SECTOR_BYTES));
    let amount = amount_of(spec, pass, info)?;
    let total = amount.checked_mul(u64::from(spec.loops)).ok_or(PlanError::Overflow { option: "loops" })?;
    let ClonePlace { job, clone, number, group, seed } = place;
    Ok(WorkerPlan {
        job,
        clone,
        number,
        group,
        spec: spec.clone(),
        zones: zones_of(&range, info),
        range,
        read_sectors,
        write_sectors,
        sectors_max,
        // Random overwrites without a map end by amount only.
        pass_sectors: if spec.norandommap && spec.pattern.random { pass.max(amount) } else { pass },
        total_sectors: if spec.time_based { u64::MAX } else { total },
        is_amount_given: spec.io_size != Extent::Fill,
        seed,
        is_exclusive: false,
        holds_zones: false,
        iolog: spec.write_iolog.as_ref().map(PathBuf::from),
        is_tiling: is_tiling(write_sectors, info),
    })
}

/// Converts a range of bytes to sectors: whole blocks, or whole zones if the job writes sequential
/// zones.
fn sectors_of(
    spec: &JobSpec,
    bytes: &Range<u64>,
    info: &DeviceInfo,
    notes: &mut Vec<String>,
) -> Result<Range<u64>, PlanError> {
    let block = u64::from(info.block_sectors);
    let end = bytes.end / SECTOR_BYTES / block * block;
    let mut range = to_sectors("offset", bytes.start, info)?..end;
    if spec.zonemode == ZoneMode::Zbd && spec.pattern.direction != Direction::Read {
        round_to_zones(spec, &mut range, info, notes)?;
    }
    Ok(range)
}

/// Checks that a block of this many sectors fits into the range.
fn check_block(sectors: u32, range: &Range<u64>) -> Result<(), PlanError> {
    let length = range.end - range.start;
    if length < u64::from(sectors) {
        let (block, range) = (u64::from(sectors) * SECTOR_BYTES, length * SECTOR_BYTES);
        return Err(PlanError::BlockAboveRange { block, range });
    }
    Ok(())
}

/// True if blocks fill every zone exactly, starting at its first sector.
fn is_tiling(write_sectors: u32, info: &DeviceInfo) -> bool {
    let geometry = &info.geometry;
    let last = geometry.capacity_of(ZoneIndex(geometry.zones() - 1));
    let tiles = |sectors: u64| sectors.is_multiple_of(u64::from(write_sectors));
    geometry.zone_capacity() == geometry.zone_size() && tiles(geometry.zone_size().0) && tiles(last.into())
}

/// Returns the block size of the job's direction; for a mixed job the larger one.
fn read_or_write(spec: &JobSpec, read: u32, write: u32) -> u32 {
    match spec.pattern.direction {
        Direction::Read => read,
        Direction::Write => write,
        Direction::Mixed { .. } => read.max(write),
    }
}

fn check_files(spec: &JobSpec) -> Result<(), PlanError> {
    let given = [
        ("nrfiles", spec.nrfiles != 1),
        ("filesize", spec.filesize.is_some()),
        ("overwrite", spec.overwrite),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(PlanError::OfFiles { option }),
        None => Ok(()),
    }
}

fn check_zone_options(spec: &JobSpec, info: &DeviceInfo) -> Result<(), PlanError> {
    if spec.zonemode != ZoneMode::Zbd {
        return Ok(());
    }
    let geometry = &info.geometry;
    let stated = [
        ("zonesize", spec.zonesize, geometry.zone_size().bytes()),
        ("zonecapacity", spec.zonecapacity, geometry.zone_capacity().bytes()),
    ];
    for (option, job, device) in stated {
        if let Some(job) = job.filter(|&job| job != device) {
            return Err(PlanError::NotTheDevices { option, job, device });
        }
    }
    Ok(())
}

fn to_sectors(option: &'static str, bytes: u64, info: &DeviceInfo) -> Result<u64, PlanError> {
    let block = u64::from(info.block_sectors) * SECTOR_BYTES;
    if !bytes.is_multiple_of(block) {
        return Err(PlanError::Unaligned { option, bytes, block });
    }
    Ok(bytes / SECTOR_BYTES)
}

fn block_sectors(option: &'static str, bytes: u32, info: &DeviceInfo) -> Result<u32, PlanError> {
    let sectors = to_sectors(option, u64::from(bytes), info)?;
    Ok(u32::try_from(sectors).expect("a 32-bit number of bytes has fewer sectors"))
}

fn smallest_block(spec: &JobSpec) -> u32 {
    let min = spec.block_min();
    min.read.min(min.write)
}

/// First byte of a clone's range, as given by the job.
fn start_of(spec: &JobSpec, clone: u32, info: &DeviceInfo) -> Result<u64, PlanError> {
    let device_bytes = info.geometry.sectors().bytes();
    let zone = info.geometry.zone_size().bytes();
    let bytes = |option, extent: Extent| {
        let fits = extent.bytes(device_bytes, zone);
        fits.ok_or(PlanError::Overflow { option })
    };
    let offset = bytes("offset", spec.offset)?;
    let increment = bytes("offset_increment", spec.offset_increment)?;
    let overflow = PlanError::Overflow { option: "offset_increment" };
    let mut start = increment
        .checked_mul(u64::from(clone))
        .and_then(|n| n.checked_add(offset))
        .ok_or_else(|| overflow.clone())?;
    let has_percent = [spec.offset, spec.offset_increment].iter().any(|e| matches!(e, Extent::Percent(_)));
    if has_percent {
        let block = u64::from(smallest_block(spec));
        start = start.checked_next_multiple_of(block).ok_or(overflow)?;
    }
    if start >= device_bytes {
        return Err(PlanError::OffsetBeyondDevice { clone, offset: start, device_bytes });
    }
    Ok(start)
}

/// Range in bytes, limited by the end of the device.
fn range_of(spec: &JobSpec, start: u64, info: &DeviceInfo) -> Result<Range<u64>, PlanError> {
    let device_bytes = info.geometry.sectors().bytes();
    let left = device_bytes - start;
    let length = match spec.size {
        Extent::Fill => left,
        Extent::Percent(_) => {
            let block = u64::from(smallest_block(spec));
            let share = spec.size.bytes(device_bytes, 0).unwrap_or(left).min(left);
            share / block * block
        }
        extent => {
            let zone = info.geometry.zone_size().bytes();
            extent.bytes(device_bytes, zone).ok_or(PlanError::Overflow { option: "size" })?.min(left)
        }
    };
    Ok(start..start + length)
}

/// Sectors per loop.
fn amount_of(spec: &JobSpec, pass: u64, info: &DeviceInfo) -> Result<u64, PlanError> {
    let zone = info.geometry.zone_size().bytes();
    let bytes = spec.io_size.bytes(pass * SECTOR_BYTES, zone);
    Ok(bytes.ok_or(PlanError::Overflow { option: "io_size" })?.div_ceil(SECTOR_BYTES))
}

/// Rounds the range of a job that writes sequential zones to whole zones: the start up, the end
/// down.
fn round_to_zones(
    spec: &JobSpec,
    range: &mut Range<u64>,
    info: &DeviceInfo,
    notes: &mut Vec<String>,
) -> Result<(), PlanError> {
    let geometry = &info.geometry;
    let zones = zones_of(range, info);
    if range.is_empty() || zones.end <= geometry.conventional_zones() {
        return Ok(());
    }
    let size = geometry.zone_size().0;
    let start = range.start.next_multiple_of(size);
    let end = if range.end == geometry.sectors().0 { range.end } else { range.end / size * size };
    if start >= end {
        return Err(PlanError::NoWholeZone {
            range: (range.end - range.start) * SECTOR_BYTES,
            zone: size * SECTOR_BYTES,
        });
    }
    if start != range.start {
        let (from, to) = (range.start * SECTOR_BYTES, start * SECTOR_BYTES);
        notes.push(format!("{}: rounded offset up from {from} to {to}", spec.name));
    }
    if end != range.end {
        let (from, to) = ((range.end - start) * SECTOR_BYTES, (end - start) * SECTOR_BYTES);
        notes.push(format!("{}: rounded size down from {from} to {to}", spec.name));
    }
    *range = start..end;
    Ok(())
}

/// Zones touched by the range.
fn zones_of(range: &Range<u64>, info: &DeviceInfo) -> Range<u32> {
    let geometry = &info.geometry;
    let first = geometry.zone_of(Sector(range.start)).0;
    let last = geometry.zone_of(Sector(range.end.saturating_sub(1).max(range.start))).0;
    first..(last + 1).min(geometry.zones())
}

fn check_writes(
    spec: &JobSpec,
    smallest: u32,
    largest: u32,
    range: &Range<u64>,
    info: &DeviceInfo,
    mode: WriteMode,
) -> Result<(), PlanError> {
    if spec.pattern.direction == Direction::Read {
        return Ok(());
    }
    let geometry = &info.geometry;
    let bytes = |sectors: u32| u64::from(sectors) * SECTOR_BYTES;
    let sequential = zones_of(range, info).end > geometry.conventional_zones();
    // Only the smallest block has to fit: a larger random one is cut to the space left in its zone.
    if spec.zonemode == ZoneMode::Zbd && sequential && u64::from(smallest) > geometry.zone_capacity().0 {
        let (block, capacity) = (bytes(smallest), geometry.zone_capacity().bytes());
        return Err(PlanError::BlockAboveZone { block, capacity });
    }
    if mode == WriteMode::Append && sequential && largest > info.append_sectors_max {
        if info.append_sectors_max == 0 {
            return Err(PlanError::NoAppend);
        }
        let (block, append) = (bytes(largest), bytes(info.append_sectors_max));
        return Err(PlanError::BlockAboveAppend { block, append });
    }
    Ok(())
}

/// True if positional writes end up elsewhere: they become appends, and do not start at a write
/// pointer.
fn appends_elsewhere(spec: &JobSpec, range: &Range<u64>, info: &DeviceInfo, mode: WriteMode) -> bool {
    let writes = spec.pattern.direction != Direction::Read;
    let sequential = zones_of(range, info).end > info.geometry.conventional_zones();
    mode == WriteMode::Append && spec.zonemode == ZoneMode::None && writes && sequential
}

/// Checks that the job can be verified, which needs blocks of one size that tile the zones.
fn check_verified(
    spec: &JobSpec,
    write_sectors: u32,
    sectors_max: PerDirection<u32>,
    info: &DeviceInfo,
) -> Result<(), PlanError> {
    if spec.verify == Verify::None {
        return Ok(());
    }
    let draws_writes = spec.pattern.direction != Direction::Read && sectors_max.write != write_sectors;
    let draws_reads = spec.pattern.direction != Direction::Write && spec.block_mix.read.is_some();
    if draws_writes || draws_reads {
        return Err(PlanError::VerifiedSizesDiffer);
    }
    let zone = info.geometry.zone_size();
    if spec.pattern.direction != Direction::Read && !zone.0.is_multiple_of(u64::from(write_sectors)) {
        let block = u64::from(write_sectors) * SECTOR_BYTES;
        return Err(PlanError::BlockDoesNotTile { block, zone: zone.bytes() });
    }
    Ok(())
}

/// Maximum number of open zones of the run, from the jobs' options and the device's limits.
fn open_max(jobs: &[Job], info: &DeviceInfo, ignores_limits: bool) -> Result<u32, Misfit> {
    let limit = match (info.open_max, info.active_max) {
        _ if ignores_limits => 0,
        (0, active) => active,
        (open, 0) => open,
        (open, active) => open.min(active),
    };
    let (mut of_run, mut is_asked_for) = (None, false);
    for job in jobs.iter().filter(|job| job.spec.zonemode == ZoneMode::Zbd) {
        let asked = job.spec.max_open_zones.unwrap_or(0);
        let misfit = |error| (job.spec.name.clone(), error);
        if limit != 0 && asked > limit {
            return Err(misfit(PlanError::OpenZonesAboveDevice { asked, limit }));
        }
        match of_run {
            None => {
                of_run = Some(if asked == 0 { limit } else { asked });
                is_asked_for = asked != 0;
            }
            Some(other) if asked != 0 && asked != other && !is_asked_for => {
                return Err(misfit(PlanError::OpenZonesNotInFirst { this: asked, limit: other }));
            }
            Some(other) if asked != 0 && asked != other => {
                return Err(misfit(PlanError::OpenZonesDiffer { this: asked, other }));
            }
            Some(_) => {}
        }
        if of_run == Some(0) && job.spec.job_max_open_zones.is_some() {
            return Err(misfit(PlanError::JobOpenZonesWithoutLimit));
        }
    }
    Ok(of_run.unwrap_or(limit))
}

fn check_buffers(workers: &[WorkerPlan]) -> Result<(), Misfit> {
    let mut bytes = 0u64;
    for worker in workers {
        bytes = bytes.saturating_add(worker.buffer_bytes().saturating_mul(u64::from(worker.spec.iodepth)));
        if bytes > BUFFER_BYTES_MAX {
            let error = PlanError::Buffers { bytes, max: BUFFER_BYTES_MAX };
            return Err((worker.spec.name.clone(), error));
        }
    }
    Ok(())
}

/// Refuses two workers with one log file: each log has its own time base.
fn check_logs(workers: &[WorkerPlan]) -> Result<(), Misfit> {
    let mut seen = BTreeSet::new();
    for worker in workers {
        if let Some(path) = worker.iolog.as_ref().filter(|path| !seen.insert(*path)) {
            let error = PlanError::SharedIolog { path: path.clone() };
            return Err((worker.spec.name.clone(), error));
        }
    }
    Ok(())
}

/// Marks the workers that share no zone with another writer.
fn mark_exclusive(workers: &mut [WorkerPlan]) {
    let sharing = sharing(workers, WorkerPlan::writes_zones);
    for worker in workers.iter_mut().filter(|worker| worker.writes_zones()) {
        worker.is_exclusive = true;
    }
    for index in sharing {
        workers[index].is_exclusive = false;
    }
}

/// Workers of this kind that share a zone with another worker of the kind.
fn sharing(workers: &[WorkerPlan], is_of_kind: impl Fn(&WorkerPlan) -> bool) -> BTreeSet<usize> {
    let mut of_kind: Vec<usize> = (0..workers.len()).filter(|&i| is_of_kind(&workers[i])).collect();
    of_kind.sort_by_key(|&i| workers[i].zones.start);
    let mut found = BTreeSet::new();
    let mut furthest: Option<usize> = None;
    for &i in &of_kind {
        if let Some(before) = furthest {
            if workers[before].zones.end > workers[i].zones.start {
                found.extend([i, before]);
            }
            if workers[before].zones.end >= workers[i].zones.end {
                continue;
            }
        }
        furthest = Some(i);
    }
    found
}

/// Sequential zones among `zones`.
pub fn sequential(zones: &Range<u32>, info: &DeviceInfo) -> impl Iterator<Item = ZoneIndex> + use<> {
    (zones.start.max(info.geometry.conventional_zones())..zones.end).map(ZoneIndex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobFile;
    use zonal_io::emulated::EmulatedOptions;

    /// 64 zones of 1 MiB, two of them conventional.
    fn info() -> DeviceInfo {
        let options =
            EmulatedOptions::default().with_size(64 << 20).with_zone_size(1 << 20).with_zone_nr_conv(2);
        options.info("drive").unwrap()
    }

    fn plan(arguments: &str) -> Plan {
        let jobs = JobFile::parse_inline(arguments.split_whitespace()).unwrap();
        Plan::new(jobs.jobs(), &info(), WriteMode::PerZone).unwrap()
    }

    /// Range of each worker in blocks of 4 KiB.
    fn ranges(arguments: &str) -> Vec<(u64, u64)> {
        let plan = plan(&format!("--name=j --bs=4k {arguments}"));
        plan.workers.iter().map(|worker| (worker.range.start / 8, worker.range.end / 8)).collect()
    }

    #[test]
    fn ranges_are_given_in_bytes_zones_and_percent() {
        const ALL: u64 = 64 * 256;
        assert_eq!(ranges("--rw=read"), [(0, ALL)]);
        assert_eq!(ranges("--rw=read --offset=1M --size=2M"), [(256, 768)]);
        assert_eq!(ranges("--rw=read --zonemode=zbd --offset=3z --size=2z"), [(768, 1280)]);
        assert_eq!(ranges("--rw=read --size=50%"), [(0, ALL / 2)]);
        assert_eq!(ranges("--rw=read --offset=75% --size=50%"), [(ALL * 3 / 4, ALL)]);
    }

    #[test]
    fn range_ends_with_the_device() {
        assert_eq!(ranges("--rw=read --offset=63M --size=10M"), [(63 * 256, 64 * 256)]);
    }

    #[test]
    fn clones_start_an_increment_apart() {
        let found = ranges("--rw=read --size=1M --offset=1M --offset_increment=2M --numjobs=3");
        assert_eq!(found, [(256, 512), (768, 1024), (1280, 1536)]);
    }

    #[test]
    fn size_that_is_no_multiple_of_a_block_is_cut() {
        assert_eq!(ranges("--rw=read --size=10000"), [(0, 2)]);
    }

    #[test]
    fn amounts_follow_from_size_io_size_and_loops() {
        let amounts = |arguments: &str| {
            let plan = plan(&format!("--name=j --bs=4k --rw=read {arguments}"));
            let worker = &plan.workers[0];
            (worker.pass_sectors / 8, worker.total_sectors / 8)
        };
        assert_eq!(amounts("--size=1M"), (256, 256));
        assert_eq!(amounts("--size=1M --loops=3"), (256, 768));
        assert_eq!(amounts("--size=1M --io_size=4M"), (256, 1024));
        assert_eq!(amounts("--size=1M --io_size=25%"), (256, 64));
        assert_eq!(amounts("--size=1M --time_based --runtime=1s").1, u64::MAX / 8);
    }

    #[test]
    fn stonewall_ends_a_round_and_new_group_only_a_group() {
        let plan = plan(
            "--name=a --rw=read --bs=4k --numjobs=2 --name=b --rw=read --bs=4k --new_group --name=c --rw=read --bs=4k \
             --stonewall",
        );
        assert_eq!(plan.rounds, [0..3, 3..4]);
        assert_eq!(plan.workers.iter().map(|w| w.group).collect::<Vec<_>>(), [0, 0, 1, 2]);
        assert_eq!(
            plan.workers.iter().map(|w| (w.job, w.clone)).collect::<Vec<_>>(),
            [(0, 0), (0, 1), (1, 0), (2, 0)]
        );
    }

    #[test]
    fn first_job_with_zones_sets_the_limit_for_all() {
        let zbd = "--zonemode=zbd --rw=write --bs=4k";
        assert_eq!(plan(&format!("--name=a {zbd} --max_open_zones=5 --name=b {zbd}")).open_max, 5);
        assert_eq!(plan(&format!("--name=a {zbd}")).open_max, 0);
    }

    fn misfit(arguments: &str, info: &DeviceInfo) -> PlanError {
        let jobs = JobFile::parse_inline(arguments.split_whitespace()).unwrap();
        Plan::new(jobs.jobs(), info, WriteMode::PerZone).unwrap_err().1
    }

    #[test]
    fn limit_of_a_job_needs_one_of_all() {
        let zbd = "--zonemode=zbd --rw=write --bs=4k";
        let error = misfit(&format!("--name=a {zbd} --job_max_open_zones=2"), &info());
        assert_eq!(error, PlanError::JobOpenZonesWithoutLimit);
        assert_eq!(plan(&format!("--name=a {zbd} --job_max_open_zones=2 --max_open_zones=5")).open_max, 5);
        let limited = DeviceInfo { open_max: 7, active_max: 9, ..info() };
        let jobs = format!("--name=a {zbd} --job_max_open_zones=2");
        let jobs = JobFile::parse_inline(jobs.split_whitespace()).unwrap();
        assert_eq!(Plan::new(jobs.jobs(), &limited, WriteMode::PerZone).unwrap().open_max, 7);
    }

    #[test]
    fn log_of_two_workers_is_refused() {
        let error = misfit("--name=a --rw=read --bs=4k --write_iolog=log --numjobs=2", &info());
        assert_eq!(error, PlanError::SharedIolog { path: "log".into() });
        let jobs = "--name=a --rw=read --write_iolog=log --name=b --rw=read --stonewall --write_iolog=log";
        assert!(matches!(misfit(jobs, &info()), PlanError::SharedIolog { .. }));
    }

    #[test]
    fn limits_of_the_device_can_be_ignored() {
        let limited = DeviceInfo { open_max: 7, active_max: 9, ..info() };
        let zbd = "--zonemode=zbd --rw=write --bs=4k";
        let open_max = |arguments: &str| {
            let jobs = JobFile::parse_inline(arguments.split_whitespace()).unwrap();
            Plan::new(jobs.jobs(), &limited, WriteMode::PerZone).unwrap().open_max
        };
        assert_eq!(open_max(&format!("--name=a {zbd}")), 7);
        assert_eq!(open_max(&format!("--name=a {zbd} --ignore_zone_limits=1")), 0);
        assert_eq!(open_max(&format!("--name=a {zbd} --ignore_zone_limits=1 --max_open_zones=12")), 12);
        let second = format!("--name=a {zbd} --name=b {zbd} --ignore_zone_limits=1");
        assert_eq!(open_max(&second), 7, "the first job decides");
        let error = misfit(&format!("--name=a {zbd} --max_open_zones=12"), &limited);
        assert_eq!(error, PlanError::OpenZonesAboveDevice { asked: 12, limit: 7 });
    }

    #[test]
    fn buffers_beyond_the_bound_are_refused() {
        let arguments = "--name=j --rw=read --bs=1M --iodepth=65536 --numjobs=2";
        let jobs = JobFile::parse_inline(arguments.split_whitespace()).unwrap();
        let (job, error) = Plan::new(jobs.jobs(), &info(), WriteMode::PerZone).unwrap_err();
        assert_eq!(job, "j");
        assert!(matches!(error, PlanError::Buffers { max: BUFFER_BYTES_MAX, .. }));
    }
}
