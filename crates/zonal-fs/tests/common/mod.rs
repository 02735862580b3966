//! A small file system with its metadata in memory, and a naive one to compare it with.
#![allow(dead_code, reason = "each test uses what it needs")]

pub mod expected;
pub mod interleaved;
pub mod steps;
pub mod watched;

use rustix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use zonal_core::Nanos;
use zonal_fs::format::{Entry, FileKind, Metadata, Position, Superblock};
use zonal_fs::store::Rows;
use zonal_fs::store::backend::{Backend, Memory};
use zonal_fs::waiter::{Bell, Polling, Wait};
use zonal_fs::{
    FileSystem, FsError, MountOptions, NewFile, OpenError, OpenFile, Payload, ROOT, Rename, Seek, SetIds,
    Target, ZeroEnd,
};
use zonal_io::clock::Clock;
use zonal_io::device::Device;
use zonal_io::registry::Registry;
use zonal_io::volume::{Volume, VolumeOptions};

/// A new waiter in real time.
pub fn waiter() -> Polling {
    Polling::new(Clock::start())
}

/// CPU time of this process.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Number of cases: all with `ZONAL_WHOLE`, a sample otherwise.
pub fn cases_of(whole: u64, sample: u64) -> u64 {
    if std::env::var_os("ZONAL_WHOLE").is_some() { whole } else { sample }
}

/// Number from an environment variable, or `usual` if it is not set.
pub fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |v| v.parse().unwrap_or_else(|_| panic!("{name}={v}")))
}

/// Limit for any wait. Most cases take milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// A waiter with a time limit.
pub struct Impatient {
    usual: Polling,
    begin: Instant,
}

/// A new impatient waiter.
pub fn impatient() -> Impatient {
    Impatient { usual: waiter(), begin: Instant::now() }
}

impl Wait for Impatient {
    fn now(&self) -> Nanos {
        self.usual.now()
    }

    fn wall(&self) -> i64 {
        self.usual.wall()
    }

    fn wait(&self, volume: &Volume) {
        assert!(self.begin.elapsed() < PATIENCE, "it waits for ever");
        self.usual.wait(volume);
    }

    fn done(&self) {
        self.usual.done();
    }

    fn may_sleep(&self) -> bool {
        self.usual.may_sleep()
    }

    fn sleep(&self, bell: &Bell) {
        assert!(self.begin.elapsed() < PATIENCE, "it waits for ever");
        self.usual.sleep(bell);
    }
}

/// Runs a scene on a separate thread, and fails if it does not end. Waits cannot be counted in a
/// call that never returns.
pub fn ends(scene: impl FnOnce() + Send + 'static) {
    let (over, end) = mpsc::channel();
    let player = std::thread::spawn(move || {
        scene();
        over.send(()).unwrap();
    });
    match end.recv_timeout(PATIENCE) {
        Ok(()) => {}
        Err(RecvTimeoutError::Timeout) => panic!("the scene does not end"),
        Err(RecvTimeoutError::Disconnected) => resume_unwind(player.join().unwrap_err()),
    }
}

pub fn device(name: &str) -> Arc<dyn Device> {
    Registry::default().open(name).unwrap_or_else(|e| panic!("{e}"))
}

pub fn volume(device: Arc<dyn Device>) -> Arc<Volume> {
    let options = VolumeOptions::default().without_budget();
    Arc::new(Volume::open(device, options).unwrap())
}

/// A superblock for a volume with `reserved` zones ahead of the data zones.
pub fn superblock(volume: &Volume, reserved: u32, unit_blocks: u32) -> Superblock {
    let uuid = *b"0123456789abcdef";
    Superblock::new(uuid, &volume.info().geometry, unit_blocks, Metadata::Beside, reserved)
}

/// A new file system on `volume`.
pub fn make(volume: Arc<Volume>, unit_blocks: u32, options: MountOptions) -> FileSystem {
    let superblock = superblock(&volume, 0, unit_blocks);
    make_with(volume, superblock, Memory::new(), options)
}

pub fn make_with(
    volume: Arc<Volume>,
    superblock: Superblock,
    backend: impl Backend,
    options: MountOptions,
) -> FileSystem {
    let mut rows = Rows::open(backend, 1 << 24).unwrap();
    FileSystem::make(&mut rows, &superblock, &waiter()).unwrap();
    FileSystem::open(volume, rows, superblock, options, true, &waiter()).unwrap()
}

pub fn reopen(
    volume: Arc<Volume>,
    superblock: Superblock,
    backend: impl Backend,
    options: MountOptions,
) -> Result<FileSystem, OpenError> {
    let rows = Rows::open(backend, 1 << 24).map_err(FsError::from)?;
    FileSystem::open(volume, rows, superblock, options, true, &waiter())
}

/// Complete contents of a file system: paths, and the bytes of files.
pub fn contents(fs: &FileSystem) -> Result<BTreeMap<String, Option<Vec<u8>>>, FsError> {
    let mut found = BTreeMap::new();
    let mut todo = vec![(ROOT, String::new())];
    while let Some((directory, path)) = todo.pop() {
        let mut entries = Vec::new();
        fs.list(directory, None, |name, entry| {
            entries.push((String::from_utf8(name.to_vec()).unwrap(), entry));
            ControlFlow::Continue(())
        })?;
        check_positions(fs, directory, &entries)?;
        for (name, entry) in entries {
            let path = format!("{path}/{name}");
            match entry.kind {
                FileKind::Directory => {
                    todo.push((entry.ino, path.clone()));
                    found.insert(path, None);
                }
                FileKind::File => drop(found.insert(path, Some(read_all(fs, entry.ino)?))),
                FileKind::Symlink => drop(found.insert(path, Some(fs.target(entry.ino)?))),
                _ => drop(found.insert(path, Some(Vec::new()))),
            }
        }
    }
    Ok(found)
}

/// Checks that listing a directory by position returns the same names as listing it by name.
fn check_positions(fs: &FileSystem, directory: u64, entries: &[(String, Entry)]) -> Result<(), FsError> {
    let mut listed = Vec::new();
    fs.list_from(directory, Position::START, |position, name, entry| {
        assert_eq!(position, entry.position);
        listed.push((String::from_utf8(name.to_vec()).unwrap(), entry));
        ControlFlow::Continue(())
    })?;
    assert!(listed.is_sorted_by(|a, b| a.1.position < b.1.position), "{listed:?}");
    listed.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(listed, entries);
    Ok(())
}

pub fn read_all(fs: &FileSystem, ino: u64) -> Result<Vec<u8>, FsError> {
    let size = fs.attributes(ino)?.size;
    let mut bytes = vec![0xEE; size as usize + 10];
    let read = fs.read(&impatient(), ino, 0, Target::Bytes(&mut bytes))?;
    // Data in flight may have been lost while `read` waited for it.
    assert_eq!(read, size.min(fs.attributes(ino)?.size));
    bytes.truncate(read as usize);
    Ok(bytes)
}

/// Writes `chunk` to a file over and over, from its start, until no space is left. Returns the end.
pub fn fill_up(fs: &FileSystem, ino: u64, chunk: &[u8]) -> u64 {
    let mut at = 0;
    loop {
        match fs.write(&impatient(), ino, at, Payload::Bytes(chunk)) {
            Ok(written) => at += written,
            Err(error) if error.is_no_space() => return at,
            Err(other) => panic!("{other}"),
        }
    }
}

/// A call on a file system.
#[derive(Clone, Debug)]
pub enum FsStep {
    Create(u8),
    Write(u8, u32, u32),
    Truncate(u8, u32),
    Punch(u8, u32, u32),
    /// Writes zeroes, extending the file if necessary.
    Zero(u8, u32, u32),
    /// Copies from a file and offset to another file and offset.
    Copy(u8, u32, u8, u32, u32),
    Unlink(u8),
    Rename(u8, u8),
    Link(u8, u8),
    Open(u8),
    Close(u8),
    Fsync(u8),
    Sync,
    Maintain,
    Collect,
    /// Sets an attribute of the root, which no model has, to use up space for metadata.
    Load(u8),
    Unload(u8),
}

/// A file system without zones, drive or power cuts.
#[derive(Clone, Debug)]
pub struct Model {
    /// Directory that contains all names.
    pub directory: u64,
    /// File number of each name.
    pub names: BTreeMap<u8, u64>,
    pub files: BTreeMap<u64, Vec<u8>>,
    pub next: u64,
    /// Open files, shared by all clones, which are moments of one file system.
    pub open: Rc<RefCell<Vec<OpenFile>>>,
}

impl Default for Model {
    fn default() -> Model {
        Model {
            directory: ROOT,
            names: BTreeMap::new(),
            files: BTreeMap::new(),
            next: 0,
            open: Rc::default(),
        }
    }
}

impl Model {
    pub fn contents(&self) -> BTreeMap<String, Option<Vec<u8>>> {
        self.names.iter().map(|(name, file)| (format!("/f{name}"), Some(self.files[file].clone()))).collect()
    }

    fn file(&mut self, name: u8) -> Option<&mut Vec<u8>> {
        let file = self.names.get(&name)?;
        self.files.get_mut(file)
    }
}

pub fn name(n: u8) -> Vec<u8> {
    format!("f{n}").into_bytes()
}

/// Pseudo-random bytes that identify their origin by the seed.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut next = next;
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| next()).collect();
    bytes.truncate(length);
    bytes
}

/// Expects an error of one kind. Any other error is returned, for example after a power cut.
fn refused<T>(result: Result<T, FsError>, is_right: impl FnOnce(&FsError) -> bool) -> Result<(), FsError> {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(error) if is_right(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Applies `step` to both, and returns false if the file system had no space. In that case the
/// model is updated to what was written.
pub fn apply(fs: &FileSystem, model: &mut Model, step: &FsStep, seed: u64) -> Result<bool, FsError> {
    let (waiter, root) = (impatient(), model.directory);
    let ino = |n: u8| fs.lookup(root, &name(n));
    match *step {
        FsStep::Create(n) => {
            let made = fs.create(&waiter, root, &name(n), &NewFile::new(FileKind::File, 0o644));
            match model.names.contains_key(&n) {
                true => refused(made, |e| matches!(e, FsError::Exists) || e.is_no_space())?,
                false => {
                    if made.as_ref().is_err_and(FsError::is_no_space) {
                        return Ok(false);
                    }
                    made?;
                    model.next += 1;
                    model.names.insert(n, model.next);
                    model.files.insert(model.next, Vec::new());
                }
            }
        }
        FsStep::Write(n, offset, length) => {
            let Some(file) = model.file(n) else { return Ok(true) };
            let data = bytes(seed, length as usize);
            let result = fs.write(&waiter, ino(n)?, offset.into(), Payload::Bytes(&data));
            let written = match result {
                Ok(written) => written as usize,
                Err(error) if error.is_no_space() => 0,
                Err(other) => return Err(other),
            };
            if written > 0 {
                let end = offset as usize + written;
                file.resize(file.len().max(end), 0);
                file[offset as usize..end].copy_from_slice(&data[..written]);
            }
            return Ok(written == length as usize);
        }
        FsStep::Truncate(n, size) => {
            let Some(file) = model.file(n) else { return Ok(true) };
            match fs.truncate(&waiter, ino(n)?, size.into()) {
                Ok(()) => file.resize(size as usize, 0),
                Err(error) if error.is_no_space() => return Ok(false),
                Err(other) => return Err(other),
            }
        }
        FsStep::Punch(n, offset, length) => {
            let Some(file) = model.file(n) else { return Ok(true) };
            let range = u64::from(offset)..u64::from(offset) + u64::from(length);
            match fs.punch(&waiter, ino(n)?, range.clone()) {
                Ok(()) => {
                    let end = (range.end as usize).min(file.len());
                    if (range.start as usize) < end {
                        file[range.start as usize..end].fill(0);
                    }
                }
                // An unknown part of the range may have been punched.
                Err(error) if error.is_no_space() => {
                    *model.file(n).unwrap() = read_all(fs, ino(n)?)?;
                    return Ok(false);
                }
                Err(other) => return Err(other),
            }
        }
        FsStep::Zero(n, offset, length) => {
            let Some(file) = model.file(n) else { return Ok(true) };
            let range = u64::from(offset)..u64::from(offset) + u64::from(length);
            match fs.zero_range(&waiter, ino(n)?, range.clone(), ZeroEnd::Extend, SetIds::Clear) {
                Ok(()) => {
                    file.resize(file.len().max(range.end as usize), 0);
                    file[range.start as usize..range.end as usize].fill(0);
                }
                Err(error) if error.is_no_space() => {
                    *model.file(n).unwrap() = read_all(fs, ino(n)?)?;
                    return Ok(false);
                }
                Err(other) => return Err(other),
            }
        }
        FsStep::Copy(from, from_offset, to, to_offset, length) => {
            let (Some(source), Some(target)) = (model.file(from).cloned(), model.file(to)) else {
                return Ok(true);
            };
            let start = (from_offset as usize).min(source.len());
            let source = &source[start..(start + length as usize).min(source.len())];
            let places = ((ino(from)?, from_offset.into()), (ino(to)?, to_offset.into()));
            let copied = match fs.copy_range(&waiter, places.0, places.1, length.into(), SetIds::Clear) {
                Ok(copied) => copied as usize,
                Err(FsError::Invalid(_)) if places.0.0 == places.1.0 => return Ok(true),
                Err(error) if error.is_no_space() => 0,
                Err(other) => return Err(other),
            };
            if copied > 0 {
                let end = to_offset as usize + copied;
                target.resize(target.len().max(end), 0);
                target[to_offset as usize..end].copy_from_slice(&source[..copied]);
            }
            if copied < source.len() {
                // A hole may have been made in part.
                *model.file(to).unwrap() = read_all(fs, ino(to)?)?;
            }
            return Ok(copied == source.len());
        }
        FsStep::Unlink(n) => {
            let result = fs.unlink(&waiter, root, &name(n));
            match model.names.remove(&n) {
                Some(file) => {
                    result?;
                    if !model.names.values().any(|f| *f == file) {
                        model.files.remove(&file);
                    }
                }
                None => refused(result, |e| matches!(e, FsError::NotFound))?,
            }
        }
        FsStep::Rename(from, to) => {
            let result = fs.rename(&waiter, (root, &name(from)), (root, &name(to)), Rename::Replace);
            if result.as_ref().is_err_and(FsError::is_no_space) {
                return Ok(false);
            }
            let Some(file) = model.names.get(&from).copied() else {
                refused(result, |e| matches!(e, FsError::NotFound))?;
                return Ok(true);
            };
            result?;
            if model.names.get(&to) != Some(&file) {
                model.names.remove(&from);
                let old = model.names.insert(to, file);
                if let Some(old) = old.filter(|old| !model.names.values().any(|f| f == old)) {
                    model.files.remove(&old);
                }
            }
        }
        FsStep::Link(from, to) => {
            let Some(file) = model.names.get(&from).copied() else { return Ok(true) };
            let result = fs.link(&waiter, ino(from)?, root, &name(to));
            if result.as_ref().is_err_and(FsError::is_no_space) {
                return Ok(false);
            }
            match model.names.contains_key(&to) {
                true => refused(result, |e| matches!(e, FsError::Exists))?,
                false => {
                    result?;
                    model.names.insert(to, file);
                }
            }
        }
        FsStep::Open(n) => {
            if model.names.contains_key(&n) {
                let ino = ino(n)?;
                model.open.borrow_mut().push(fs.open_file(ino)?);
            }
        }
        FsStep::Close(n) => {
            let mut open = model.open.borrow_mut();
            if !open.is_empty() {
                let place = usize::from(n) % open.len();
                let file = open.swap_remove(place);
                // Both ways close it.
                if n % 2 == 0 { file.close(&waiter)? } else { drop(file) }
            }
        }
        FsStep::Fsync(n) => match ino(n) {
            Ok(ino) => fs.fsync(&waiter, ino)?,
            Err(FsError::NotFound) => {}
            Err(other) => return Err(other),
        },
        FsStep::Sync => fs.sync(&waiter)?,
        FsStep::Maintain => drop(fs.background_step(&waiter)?),
        FsStep::Collect => drop(fs.collect(&waiter)?),
        FsStep::Load(n) => match fs.set_xattr(&waiter, root, &name(n), &load(n)) {
            Err(error) if error.is_no_space() => return Ok(false),
            other => other?,
        },
        FsStep::Unload(n) => match fs.remove_xattr(&waiter, root, &name(n)) {
            Err(FsError::NoAttribute) => {}
            other => other?,
        },
    }
    Ok(true)
}

/// Checks that every non-zero byte is in a data range, and the count of files.
pub fn check_ranges(fs: &FileSystem, model: &Model) {
    for (n, file) in &model.names {
        let (ino, bytes) = (fs.lookup(ROOT, &name(*n)).unwrap(), &model.files[file]);
        let mut at = 0;
        while let Ok(hole) = fs.seek(ino, at, Seek::Hole) {
            let end = fs.seek(ino, hole, Seek::Data).unwrap_or(bytes.len() as u64);
            assert!(bytes[hole as usize..end as usize].iter().all(|byte| *byte == 0), "{hole} to {end}");
            at = end;
        }
        assert_eq!(at, bytes.len() as u64);
    }
    // The root, files with names, and open files.
    let open: BTreeSet<u64> = model.open.borrow().iter().map(OpenFile::ino).collect();
    let named: BTreeSet<u64> = model.names.keys().map(|n| fs.lookup(ROOT, &name(*n)).unwrap()).collect();
    assert_eq!(fs.files().unwrap().used, 1 + open.union(&named).count() as u64);
}

/// Value set by [`FsStep::Load`].
pub fn load(n: u8) -> Vec<u8> {
    bytes(n.into(), 3000)
}

/// Waits until nothing is in flight, without making anything durable.
pub fn settle(fs: &FileSystem) {
    let waiter = impatient();
    while !fs.is_quiet() {
        waiter.wait(fs.volume());
    }
}
