//! Writes of a running file system that are lost or misdirected by the drive: data, metadata and
//! superblocks.
//!
//! Every read returns the last written data or an error: immediately, after the file system is
//! reopened on a drive that no longer fails, and after more writes and garbage collection of all
//! zones.
//!
//! # An undetectable loss
//! If a drive loses or overwrites the last batches of metadata, and also loses every superblock
//! update that names them, nothing on it is newer than the previous batch. That is equivalent to a
//! power failure at that time, so the files may be in the state of that batch. A file changed
//! between the last sync and that batch may have any part of the change.

use super::{FILES, History, Outcome, Where, all_of, check_file, write};
use crate::common::{bytes, impatient, read_all, waiter};
use crate::rebuild::rig::{BLOCK, Rig, UUID, waiters};
use parking_lot::Mutex;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zonal_core::Nanos;
use zonal_fs::format::Header;
use zonal_fs::make::{MakeOptions, open};
use zonal_fs::{FileSystem, FsError, MountOptions, ROOT};
use zonal_io::device::{Command, Context, Device, Landing, Submitted, Wrapper};
use zonal_io::fault::{Fault, Plan};
use zonal_io::owner::ZONAL_MAGIC;

/// Counts commands that write metadata.
struct Metadata {
    inner: Arc<dyn Device>,
    /// Commands with a head of the log that were executed in place.
    stored: AtomicU64,
    misplaced: AtomicU64,
    /// The last command, if it was a superblock update and in place.
    superblock: Mutex<Option<u64>>,
    /// Blocks of heads and units since the last batch.
    blocks: Mutex<Vec<u64>>,
}

/// Hash of a block's contents.
fn hash(block: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    block.hash(&mut hasher);
    hasher.finish()
}

impl Metadata {
    fn counts(&self) -> (u64, u64) {
        (self.stored.load(Ordering::Relaxed), self.misplaced.load(Ordering::Relaxed))
    }
}

impl Wrapper for Metadata {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        if command.op.is_write() {
            let (mut is_unit, mut is_head, mut superblock) = (false, false, None);
            command.data.for_each(|at, piece| {
                is_unit |= at == 0 && piece.len() >= BLOCK && Header::decode(&piece[..BLOCK], &UUID).is_ok();
                let superblocks = piece.chunks(BLOCK).filter(|block| block.starts_with(&ZONAL_MAGIC));
                superblock = superblocks.map(hash).next_back().or(superblock);
                is_head |= piece.chunks(BLOCK).any(|block| block.starts_with(b"zonallog"));
            });
            if !is_unit {
                *self.superblock.lock() = superblock.filter(|_| command.landing == Landing::InPlace);
            }
            // A batch lists the units that it needs, so that they are parts of it.
            match command.landing {
                Landing::InPlace if is_head || is_unit => {
                    self.stored.fetch_add(u64::from(is_head), Ordering::Relaxed);
                    let mut blocks = self.blocks.lock();
                    command.data.for_each(|_, piece| blocks.extend(piece.chunks(BLOCK).map(hash)));
                }
                Landing::InPlace => {}
                _ => drop(self.misplaced.fetch_add(1, Ordering::Relaxed)),
            }
        }
        self.inner.submit(now, queue, command, context)
    }
}

/// A name, after the last calls.
#[derive(Clone, Debug)]
enum State {
    File(Rc<Vec<u8>>),
    Absent,
    /// A call failed.
    Doubtful,
}

type States = BTreeMap<String, State>;

/// Compares all files with `states`; true if any read failed.
fn check(fs: &FileSystem, states: &States, when: &str) -> Result<bool, String> {
    let mut is_told = false;
    for (name, state) in states {
        let found = fs.resolve(name.as_bytes());
        match (state, found) {
            (State::Doubtful, found) => drop(found.and_then(|ino| read_all(fs, ino))),
            (State::Absent, Ok(_)) => return Err(format!("{when}: {name} is there again")),
            (State::File(_), Err(FsError::NotFound)) => return Err(format!("{when}: {name} is gone")),
            (State::Absent, Err(FsError::NotFound)) => {}
            (_, Err(_)) => is_told = true,
            (State::File(data), Ok(ino)) => is_told |= check_file(fs, (name, ino), data, when)?,
        }
    }
    Ok(is_told)
}

struct Session<'a> {
    fs: &'a FileSystem,
    random: Pcg64Mcg,
    metadata: Arc<Metadata>,
    states: States,
    /// Names changed since the last sync.
    changed: BTreeSet<String>,
    synced: States,
    batches: Vec<Batches>,
    /// Counters at the last batch.
    noted: (u64, u64),
}

/// States after a call that stored batches of metadata, and the number of misplaced commands before
/// and after it.
struct Batches {
    states: States,
    misplaced: [u64; 2],
    blocks: Vec<u64>,
}

impl Session<'_> {
    fn step(&mut self) -> Result<(), String> {
        self.change();
        self.note();
        match self.random.random_range(0..4) {
            0 => check(self.fs, &self.states, "at work").map(drop),
            _ => Ok(()),
        }
    }

    fn change(&mut self) {
        let name = format!("f{}", self.random.random_range(0..FILES));
        match self.random.random_range(0..10) {
            0..6 => {
                let data = bytes(self.random.next_u64(), self.random.random_range(1..200_000));
                let written = write(self.fs, &name, &data);
                self.set(name, written.map(|()| State::File(Rc::new(data))));
            }
            6 => match self.fs.unlink(&waiter(), ROOT, name.as_bytes()) {
                Err(FsError::NotFound) => {}
                removed => self.set(name, removed.map(|()| State::Absent)),
            },
            7..9 => self.sync(|fs| fs.sync(&waiter())),
            _ => {
                let _ = self.fs.collect(&impatient());
                while self.fs.background_step(&impatient()).unwrap_or(false) {}
            }
        }
    }

    /// Records the batches since the last note.
    fn note(&mut self) {
        let now = self.metadata.counts();
        if now.0 > self.noted.0 {
            let (_, misplaced) = std::mem::replace(&mut self.noted, now);
            let mut states = self.synced.clone();
            states.extend(self.changed.iter().map(|name| (name.clone(), State::Doubtful)));
            let blocks = std::mem::take(&mut *self.metadata.blocks.lock());
            self.batches.push(Batches { states, misplaced: [misplaced, now.1], blocks });
        }
    }

    fn set(&mut self, name: String, state: Result<State, FsError>) {
        self.changed.insert(name.clone());
        self.states.insert(name, state.unwrap_or(State::Doubtful));
    }

    fn sync(&mut self, sync: impl FnOnce(&FileSystem) -> Result<(), FsError>) {
        if sync(self.fs).is_err() {
            let doubtful = self.changed.iter().map(|name| (name.clone(), State::Doubtful));
            self.states.extend(doubtful);
            return;
        }
        // If a part of the last batch was misplaced, the previous one may contain any part of the
        // changes.
        if self.metadata.counts().1 != self.noted.1 {
            self.note();
        }
        self.changed.clear();
        self.synced = self.states.clone();
        self.note();
    }
}

/// Rules for one place on the drive, or for all of it.
fn plan(place: Where, random: &mut Pcg64Mcg) -> String {
    let mut plan = format!("seed = {}\n", random.random_range(0..1 << 20));
    for _ in 0..random.random_range(1..3) {
        let fault = ["lost", "misdirected"][random.random_range(0..2)];
        let often = match random.random_range(0..4) {
            0 => format!("nth = {}", random.random_range(1..60)),
            1 => format!("skip = {}\nevery = 7\ncount = 3", random.random_range(0..40)),
            2 => format!("rate = \"1/{}\"", random.random_range(2..20)),
            _ => format!("skip = {}", random.random_range(10..100)),
        };
        let first = if place == Where::Conventional { 15 } else { 1 };
        let zones = match random.random_range(0..4) {
            0 => format!("zones = \"0-{first}\"\n"),
            1 => format!("zones = \"{}-\"\n", first + 1),
            _ => String::new(),
        };
        plan += &format!("[[rule]]\non = \"writes\"\n{zones}{often}\nfault = \"{fault}\"\n");
    }
    plan
}

fn play(history: &History, rig: &Rig, plan: &str, seed: u64) -> Result<Outcome, String> {
    let (mut fault, mut metadata) = (None, None);
    let drive = rig.reach_through(|device| {
        let counting = Arc::new(Metadata {
            inner: device,
            stored: AtomicU64::new(0),
            misplaced: AtomicU64::new(0),
            superblock: Mutex::default(),
            blocks: Mutex::default(),
        });
        let faulty = Arc::new(Fault::new(counting.clone(), Plan::parse(plan).unwrap()));
        (fault, metadata) = (Some(faulty.clone()), Some(counting));
        faulty
    })?;
    let (fault, metadata) = (fault.unwrap(), metadata.unwrap());
    let options = MountOptions::default().with_cache_bytes(1 << 20);
    let Ok(fs) = open(&drive, &waiters(), rig.beside(), options) else { return Ok(Outcome::Refused) };
    let names = (0..FILES).map(|n| format!("f{n}"));
    let states: States = names
        .map(|name| {
            let file = history.files.get(&name);
            (name, file.map_or(State::Absent, |data| State::File(Rc::new(data.clone()))))
        })
        .collect();
    let mut session = Session {
        fs: &fs,
        random: Pcg64Mcg::seed_from_u64(seed),
        noted: metadata.counts(),
        batches: vec![Batches {
            states: states.clone(),
            misplaced: [metadata.counts().1; 2],
            blocks: Vec::new(),
        }],
        metadata,
        synced: states.clone(),
        states,
        changed: BTreeSet::new(),
    };
    for _ in 0..session.random.random_range(5..40) {
        session.step()?;
    }
    session.sync(|fs| fs.finish(&waiter()));
    let Session { metadata, mut states, batches, .. } = session;
    drop(fs);
    drop(drive);
    let mut misplaced = metadata.counts().1;
    let fired: u64 = fault.fired_each().iter().sum();
    drop(fault);

    // The drive no longer fails from here on.
    let reach = || open(&rig.drive(), &waiters(), rig.beside(), MountOptions::default());
    let Ok(fs) = reach() else { return Ok(Outcome::Refused) };
    let mut outcome = if fired == 0 { Outcome::Spared } else { Outcome::Sound };
    let is_told = match check(&fs, &states, "opened") {
        Ok(is_told) => is_told,
        Err(wrong) => {
            let there: HashSet<u64> = all_of(rig)[0].chunks(BLOCK).map(hash).collect();
            if metadata.superblock.lock().is_some_and(|superblock| there.contains(&superblock)) {
                return Err(format!("{wrong}, though the superblock was stored last"));
            }
            // In a file beside the drive no batch is lost. A batch is valid unless a part of it was
            // misplaced or overwritten.
            let mut unnoticeable = batches.into_iter().rev().take_while(|batches| {
                let is_last = misplaced > batches.misplaced[0] && rig.beside().is_none();
                let is_whole = batches.misplaced[0] == batches.misplaced[1]
                    && batches.blocks.iter().all(|block| there.contains(block));
                if is_whole {
                    misplaced = 0;
                }
                is_last
            });
            let found =
                unnoticeable.find_map(|earlier| Some((check(&fs, &earlier.states, "").ok()?, earlier)));
            let Some((is_told, earlier)) = found else { return Err(wrong) };
            (outcome, states) = (Outcome::Earlier, earlier.states);
            is_told
        }
    };
    drop(fs);
    if is_told && rig.try_findings().is_ok_and(|found| found.is_empty()) {
        return Err("fsck is clean, and a reader is told of an error".to_owned());
    }
    let Ok(fs) = reach() else { return Ok(Outcome::Refused) };
    let later = bytes(77, 50_000);
    let is_synced = write(&fs, "later", &later).and_then(|()| fs.sync(&waiter())).is_ok();
    let later = if is_synced { State::File(Rc::new(later)) } else { State::Doubtful };
    states.insert("later".to_owned(), later);
    for _ in 0..40 {
        if !fs.collect(&impatient()).unwrap_or(false) {
            break;
        }
    }
    let _ = fs.sync(&waiter());
    check(&fs, &states, "collected")?;
    drop(fs);
    let Ok(fs) = reach() else { return Ok(Outcome::Refused) };
    check(&fs, &states, "collected and opened again")?;
    Ok(if is_told && outcome != Outcome::Earlier { Outcome::Told } else { outcome })
}

/// Plays the case of a seed.
fn case(history: &History, seed: u64) -> Result<Outcome, String> {
    let [drive, file] = history.moments.last().unwrap();
    let plan = plan(history.rig.place, &mut Pcg64Mcg::seed_from_u64(seed));
    let rig = history.rig.copied(drive, file);
    let played = catch_unwind(AssertUnwindSafe(|| play(history, &rig, &plan, seed)));
    played.unwrap_or_else(|_| Err("a panic".to_owned())).map_err(|defect| format!("{defect}\n{plan}"))
}

pub fn campaign(history: &History) {
    super::count("faults", history, |seed| case(history, seed));
}

/// A canary: without checksums headers are not compared, and the campaign has to find wrong bytes.
#[test]
fn campaign_finds_wrong_bytes_of_a_file_system_without_checksums() {
    let options = MakeOptions::default().with_is_unsummed(true);
    let history = History::of(Rig::with(Where::Beside, 1, options));
    let is_wrong = |seed| case(&history, seed).is_err_and(|defect| defect.contains("is another one"));
    assert!((0..15).any(is_wrong));
}
