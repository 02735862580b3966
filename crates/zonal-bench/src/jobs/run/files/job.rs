//! Execution of a clone: lays out its files, then reads and writes them.
//!
//! Writes behave like buffered writes of a program: they return once the data is buffered or in
//! flight, within the file system's limit. A file written by a single write counts as closed before
//! its data is written out, and is placed next to the preceding file. Other files are open while
//! the clone writes them.

use super::plan::{Blocks, Clone};
use crate::job::Direction;
use crate::jobs::workload::{Dir, Purpose, RandomMap, Stream};
use crate::measure::Latency;
use crate::measure::series::SeriesRecorder;
use crate::report::{DirReport, Failure, JobReport};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zonal_core::Nanos;
use zonal_fs::format::FileKind;
use zonal_fs::waiter::Wait;
use zonal_fs::{FileSystem, FsError, NewFile, OpenFile, Payload, ROOT, Target};

/// Maximum size of a call in bytes. Larger reads and writes are split, to keep the buffer small.
const CALL_BYTES: u64 = 4 << 20;

/// A running clone.
pub(super) struct Job {
    plan: Clone,
    fs: FileSystem,
    /// Inode number of each file that has been created.
    files: Vec<Option<u64>>,
    /// Buffer for reads and writes, on a device that keeps data.
    bytes: Option<Vec<u8>>,
    /// Limit on buffered and in-flight bytes, above which writers wait.
    dirty_bytes: u64,
    /// Recorder of the series, if requested.
    pub(super) series: Option<SeriesRecorder>,
    /// Set by the caller to end the run.
    pub(super) interrupt: Option<Arc<AtomicBool>>,
}

/// Results of a clone.
pub(super) struct CloneResult {
    pub(super) report: JobReport,
    /// Number of files created.
    pub(super) files: u64,
}

impl Job {
    pub(super) fn new(plan: Clone, fs: FileSystem, has_data: bool, dirty_bytes: u64) -> Job {
        let bytes = has_data.then(|| {
            let mut stream = plan.random(Purpose::Payload);
            let words = (0..CALL_BYTES / 8).flat_map(|_| stream.bits().to_le_bytes());
            words.collect()
        });
        let files = vec![None; plan.sizes.len()];
        Job { plan, fs, files, bytes, dirty_bytes, series: None, interrupt: None }
    }

    /// Writes all of its files.
    pub(super) fn lay_out(&mut self, waiter: &dyn Wait) -> Result<(), FsError> {
        for index in 0..self.files.len() {
            let ino = self.file(waiter, index)?;
            self.write(waiter, ino, 0, self.plan.sizes[index])?;
        }
        Ok(())
    }

    /// Returns the inode number of a file, which is created if necessary.
    fn file(&mut self, waiter: &dyn Wait, index: usize) -> Result<u64, FsError> {
        if let Some(ino) = self.files[index] {
            return Ok(ino);
        }
        let ino =
            self.fs.create(waiter, ROOT, &self.plan.file(index), &NewFile::new(FileKind::File, 0o644))?;
        self.files[index] = Some(ino);
        Ok(ino)
    }

    fn write(&self, waiter: &dyn Wait, ino: u64, offset: u64, length: u64) -> Result<(), FsError> {
        let mut done = 0;
        while done < length {
            let some = match &self.bytes {
                Some(bytes) => Payload::Bytes(&bytes[..(length - done).min(CALL_BYTES) as usize]),
                None => Payload::Length(length - done),
            };
            let wanted = some.len();
            let written = self.fs.write(waiter, ino, offset + done, some)?;
            done += written;
            if written < wanted {
                return Err(FsError::NoSpace);
            }
        }
        Ok(())
    }

    fn read(&mut self, waiter: &dyn Wait, ino: u64, offset: u64, length: u64) -> Result<(), FsError> {
        let mut done = 0;
        while done < length {
            let some = (length - done).min(CALL_BYTES);
            let target = match &mut self.bytes {
                Some(bytes) => Target::Bytes(&mut bytes[..some as usize]),
                None => Target::Length(some),
            };
            if self.fs.read(waiter, ino, offset + done, target)? < some {
                return Err(FsError::Invalid("a file is shorter than it was written"));
            }
            done += some;
        }
        Ok(())
    }

    /// Runs the job.
    pub(super) fn run(mut self, waiter: &dyn Wait) -> CloneResult {
        let begin = waiter.now();
        let made = self.files.iter().flatten().count();
        let mut tally = Tally::new();
        let result = Pass::new(&self, begin).run(&mut self, waiter, &mut tally);
        let elapsed = since(begin, waiter.now());
        let files = (self.files.iter().flatten().count() - made) as u64;
        let failure = result.err().map(|error| Failure::Files { error: error.to_string() });
        let series = self.series.take().map(|series| Box::new(series.finish()));
        CloneResult { report: JobReport { series, ..self.report(tally, elapsed, failure) }, files }
    }

    fn report(&self, tally: Tally, elapsed: Duration, failure: Option<Failure>) -> JobReport {
        let Tally { mut dirs, clat, flushes, sync, ios } = tally;
        for (dir, latency) in dirs.iter_mut().zip(clat) {
            if dir.ios > 0 {
                dir.runtime = elapsed;
                dir.clat = Some(Box::new(latency));
            }
        }
        JobReport {
            dirs,
            flushes,
            flush_lat: (flushes > 0).then(|| Box::new(sync)),
            errors: failure.is_some().into(),
            failure,
            elapsed,
            depths: [ios, 0, 0, 0, 0, 0, 0],
            ..JobReport::new(&self.plan.spec, self.plan.group, self.plan.seed)
        }
    }
}

fn since(begin: Nanos, now: Nanos) -> Duration {
    Duration::from_nanos(now.0.saturating_sub(begin.0))
}

/// Counts and latencies of a clone.
struct Tally {
    dirs: [DirReport; 2],
    clat: [Latency; 2],
    flushes: u64,
    sync: Latency,
    ios: u64,
}

impl Tally {
    fn new() -> Tally {
        let clat = [Latency::new(), Latency::new()];
        Tally { dirs: Default::default(), clat, flushes: 0, sync: Latency::new(), ios: 0 }
    }

    fn count(&mut self, dir: Dir, bytes: u64, took: Duration) {
        self.dirs[dir as usize].ios += 1;
        self.dirs[dir as usize].bytes += bytes;
        self.clat[dir as usize].record(took.as_nanos() as u64);
        self.ios += 1;
    }
}

/// The next read or write.
#[derive(Clone, Copy)]
struct Next {
    file: usize,
    offset: u64,
    length: u64,
}

/// Position of a clone in its files.
struct Pass {
    begin: Nanos,
    offsets: Stream,
    directions: Stream,
    /// Blocks not done in this pass over all files, unless the job draws with replacement.
    map: Option<RandomMap>,
    /// Sequential position: the file and the offset in it.
    file: usize,
    offset: u64,
    /// The file currently open.
    open: Option<OpenFile>,
    moved: u64,
    since_sync: u32,
    /// Files with recent writes, which may still be in flight, and their bytes.
    recent: VecDeque<(u64, u64)>,
}

impl Pass {
    fn new(job: &Job, begin: Nanos) -> Pass {
        let (offsets, directions) = (job.plan.random(Purpose::Offsets), job.plan.random(Purpose::Directions));
        let (file, offset, open, moved, since_sync) = (0, 0, None, 0, 0);
        let recent = VecDeque::new();
        let map = job.plan.blocks.as_ref().map(Blocks::map);
        Pass { begin, offsets, directions, map, file, offset, open, moved, since_sync, recent }
    }

    fn run(mut self, job: &mut Job, waiter: &dyn Wait, tally: &mut Tally) -> Result<(), FsError> {
        while !self.is_over(job, waiter) {
            self.step(job, waiter, tally)?;
        }
        self.close(waiter)?;
        if job.plan.spec.end_fsync {
            for (ino, _) in std::mem::take(&mut self.recent) {
                self.sync(job, waiter, ino, tally)?;
            }
        }
        Ok(())
    }

    fn is_over(&self, job: &Job, waiter: &dyn Wait) -> bool {
        let spec = &job.plan.spec;
        let is_late = spec.runtime.is_some_and(|runtime| since(self.begin, waiter.now()) >= runtime);
        let is_interrupted = job.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed));
        is_interrupted || is_late || (!spec.time_based && self.moved >= job.plan.amount)
    }

    fn step(&mut self, job: &mut Job, waiter: &dyn Wait, tally: &mut Tally) -> Result<(), FsError> {
        let dir = self.direction(job);
        let next = if job.plan.spec.pattern.random { self.random(job, dir) } else { self.in_order(job, dir) };
        let ino = job.file(waiter, next.file)?;
        let is_whole = next.length == job.plan.sizes[next.file];
        if !is_whole && self.open.as_ref().map(OpenFile::ino) != Some(ino) {
            self.close(waiter)?;
            self.open = Some(job.fs.open_file(ino)?);
        }
        let begin = waiter.now();
        match dir {
            Dir::Read => job.read(waiter, ino, next.offset, next.length)?,
            Dir::Write => job.write(waiter, ino, next.offset, next.length)?,
        }
        let end = waiter.now();
        tally.count(dir, next.length, since(begin, end));
        if let Some(series) = &mut job.series {
            let at = Nanos(end.0.saturating_sub(self.begin.0));
            series.record_flow(dir, at, end.0.saturating_sub(begin.0), next.length);
        }
        self.moved += next.length;
        if dir == Dir::Write { self.wrote(job, waiter, ino, next.length, tally) } else { Ok(()) }
    }

    fn direction(&mut self, job: &Job) -> Dir {
        match job.plan.spec.pattern.direction {
            Direction::Read => Dir::Read,
            Direction::Write => Dir::Write,
            Direction::Mixed { read_percent } if self.directions.below(100) < read_percent.into() => {
                Dir::Read
            }
            Direction::Mixed { .. } => Dir::Write,
        }
    }

    fn block(job: &Job, dir: Dir) -> u64 {
        let size = job.plan.spec.block_size;
        u64::from(if dir == Dir::Read { size.read } else { size.write })
    }

    /// Returns the next block of the file, or of the next file.
    fn in_order(&mut self, job: &Job, dir: Dir) -> Next {
        if self.offset >= job.plan.sizes[self.file] {
            self.file = (self.file + 1) % job.plan.sizes.len();
            self.offset = 0;
        }
        let offset = self.offset;
        let length = Self::block(job, dir).min(job.plan.sizes[self.file] - offset);
        self.offset += length;
        Next { file: self.file, offset, length }
    }

    /// Returns a random block: of all blocks of all files, each once in a pass, or with
    /// `norandommap` of a random file.
    fn random(&mut self, job: &Job, dir: Dir) -> Next {
        if let (Some(blocks), Some(map)) = (&job.plan.blocks, &mut self.map) {
            let drawn = self.offsets.below(map.blocks());
            let block = map.next_free(drawn).unwrap_or_else(|| {
                map.clear();
                drawn
            });
            let (file, offset) = blocks.place(block);
            let left = Self::block(job, dir).min(job.plan.sizes[file] - offset);
            // Cut short where it would run into blocks that are done.
            let free = (1..left.div_ceil(blocks.unit)).take_while(|n| map.is_free(block + n)).count() as u64;
            (0..=free).for_each(|n| map.hit(block + n));
            return Next { file, offset, length: left.min((free + 1) * blocks.unit) };
        }
        let file = self.offsets.below(job.plan.sizes.len() as u64) as usize;
        let (size, block) = (job.plan.sizes[file], Self::block(job, dir));
        let offset = self.offsets.below(size.div_ceil(block)) * block;
        Next { file, offset, length: block.min(size - offset) }
    }

    fn wrote(
        &mut self,
        job: &Job,
        waiter: &dyn Wait,
        ino: u64,
        bytes: u64,
        tally: &mut Tally,
    ) -> Result<(), FsError> {
        match self.recent.back_mut() {
            Some((last, sum)) if *last == ino => *sum += bytes,
            _ => self.recent.push_back((ino, bytes)),
        }
        // Older writes have completed, because the amount in flight is limited.
        while self.recent.iter().skip(1).map(|(_, bytes)| bytes).sum::<u64>() > 2 * job.dirty_bytes {
            self.recent.pop_front();
        }
        let spec = &job.plan.spec;
        self.since_sync += 1;
        let is_due =
            [spec.fsync, spec.fdatasync].into_iter().any(|every| every > 0 && self.since_sync >= every);
        if is_due { self.sync(job, waiter, ino, tally) } else { Ok(()) }
    }

    fn sync(&mut self, job: &Job, waiter: &dyn Wait, ino: u64, tally: &mut Tally) -> Result<(), FsError> {
        let begin = waiter.now();
        job.fs.fsync(waiter, ino)?;
        self.since_sync = 0;
        tally.flushes += 1;
        tally.sync.record(since(begin, waiter.now()).as_nanos() as u64);
        Ok(())
    }

    fn close(&mut self, waiter: &dyn Wait) -> Result<(), FsError> {
        self.open.take().map_or(Ok(()), |file| file.close(waiter))
    }
}
