//! Lost and misdirected writes on an aged drive with reused zones: stale blocks, and intact blocks
//! at the wrong address.
//!
//! Every read returns the data of the last sync or an error, also after more writes and the garbage
//! collection of all zones. Here the drive, and the file beside it, are damaged between two
//! openings, including writes from several sessions. In [`faults`] the drive misplaces the writes
//! of a running file system.

mod faults;

use crate::common::{bytes, cases_of, impatient, number, read_all, waiter};
use crate::rebuild::rig::{BLOCK, Rig, UUID, Where, waiters};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use zonal_fs::format::{FileKind, Header};
use zonal_fs::make::open;
use zonal_fs::{FileSystem, FsError, MountOptions, NewFile, Payload, ROOT};
use zonal_io::image::backing::Backing;

const FILES: u64 = 12;
const OPENINGS: u64 = 5;
const WRITES: u64 = 40;

/// Byte offset of sector 0 in an image of this size.
const DATA: usize = 1 << 20;

/// Maximum number of damaged blocks.
const BLOCKS_MAX: usize = 24;

/// Bytes of the drive, and of the file beside it.
type Bytes = [Vec<u8>; 2];

struct History {
    rig: Rig,
    /// Contents after each opening.
    moments: Vec<Bytes>,
    files: BTreeMap<String, Vec<u8>>,
    /// Blocks with metadata, of the drive and of the file.
    used: [Vec<usize>; 2],
    /// First block and number of blocks of each unit on the drive.
    units: Vec<(usize, usize)>,
}

/// Damage to blocks of the drive or of the file: their contents at an earlier moment, or the
/// contents of other blocks.
#[derive(Debug)]
struct Damage {
    side: usize,
    at: usize,
    blocks: usize,
    moment: Option<usize>,
    from: usize,
}

fn all_of(rig: &Rig) -> Bytes {
    let mut drive = vec![0; rig.backing.len().unwrap() as usize];
    rig.backing.read_at(&mut drive, 0).unwrap();
    [drive, rig.beside().map_or_else(Vec::new, |path| std::fs::read(path).unwrap())]
}

impl History {
    fn new(place: Where) -> History {
        History::of(Rig::new(place, 1))
    }

    fn of(rig: Rig) -> History {
        let (mut random, mut files, mut moments) = (Pcg64Mcg::seed_from_u64(3), BTreeMap::new(), Vec::new());
        for opening in 0..OPENINGS {
            let fs = rig.open();
            for n in 0..WRITES {
                let name = format!("f{}", random.random_range(0..FILES));
                let data = bytes(opening << 32 | n, random.random_range(1..300_000));
                write(&fs, &name, &data).unwrap();
                files.insert(name, data);
                fs.sync(&waiter()).unwrap();
                while fs.background_step(&impatient()).unwrap() {}
            }
            drop(fs);
            moments.push(all_of(&rig));
        }
        let now = moments.last().unwrap();
        let is_used = |block: &[u8]| block.iter().any(|byte| *byte != 0);
        let mut used: [Vec<usize>; 2] = now
            .each_ref()
            .map(|all| (0..all.len() / BLOCK).filter(|n| is_used(&all[n * BLOCK..][..BLOCK])).collect());
        let unit = |n: usize| {
            let header = Header::decode(&now[0][n * BLOCK..][..BLOCK], &UUID).ok()?;
            Some((n, 1 + header.blocks() as usize))
        };
        let units: Vec<_> = (DATA / BLOCK..now[0].len() / BLOCK).filter_map(unit).collect();
        // Units are listed separately.
        used[0].retain(|n| {
            *n >= DATA / BLOCK && !units.iter().any(|(at, blocks)| (*at..at + blocks).contains(n))
        });
        History { rig, moments, files, used, units }
    }

    fn draw(&self, seed: u64) -> Damage {
        let random = &mut Pcg64Mcg::seed_from_u64(seed);
        let side = if self.used[1].is_empty() { 0 } else { random.random_range(0..2) };
        let spot = |random: &mut Pcg64Mcg| self.used[side][random.random_range(0..self.used[side].len())];
        let moment = random.random_bool(0.5).then(|| random.random_range(0..self.moments.len() - 1));
        if side == 0 && (self.used[0].is_empty() || random.random_bool(0.5)) {
            let unit = |random: &mut Pcg64Mcg| self.units[random.random_range(0..self.units.len())];
            let ((at, blocks), (from, others)) = (unit(random), unit(random));
            let blocks = if moment.is_none() { others } else { blocks };
            return Damage { side, at, blocks, moment, from };
        }
        let (at, from) = (spot(random), spot(random));
        Damage { side, at, blocks: random.random_range(1..=BLOCKS_MAX), moment, from }
    }

    /// A damaged copy.
    fn damaged(&self, damage: &Damage) -> Rig {
        let &Damage { side, at, blocks, moment, from } = damage;
        let mut now = self.moments.last().unwrap().clone();
        let source = &self.moments[moment.unwrap_or(self.moments.len() - 1)][side];
        let from = if moment.is_some() { at } else { from };
        let end = (at.max(from) + blocks).min(now[side].len() / BLOCK);
        let length = end.saturating_sub(at.max(from)) * BLOCK;
        let mut bytes = source.get(from * BLOCK..).unwrap_or_default().to_vec();
        bytes.resize(length, 0);
        now[side][at * BLOCK..][..length].copy_from_slice(&bytes);
        self.rig.copied(&now[0], &now[1])
    }
}

fn write(fs: &FileSystem, name: &str, data: &[u8]) -> Result<(), FsError> {
    let ino = match fs.resolve(name.as_bytes()) {
        Err(FsError::NotFound) => {
            fs.create(&waiter(), ROOT, name.as_bytes(), &NewFile::new(FileKind::File, 0o644))?
        }
        found => found?,
    };
    fs.truncate(&waiter(), ino, 0)?;
    fs.write(&impatient(), ino, 0, Payload::Bytes(data)).map(drop)
}

/// Reads each file, block by block after an error; true if any read failed.
fn check(fs: &FileSystem, files: &BTreeMap<String, Vec<u8>>, when: &str) -> Result<bool, String> {
    let mut is_told = false;
    for (name, data) in files {
        is_told |= match fs.resolve(name.as_bytes()) {
            Ok(ino) => check_file(fs, (name, ino), data, when)?,
            Err(_) => true,
        };
    }
    Ok(is_told)
}

/// Reads a file, block by block after an error; true if any read failed.
fn check_file(fs: &FileSystem, (name, ino): (&str, u64), data: &[u8], when: &str) -> Result<bool, String> {
    if let Ok(read) = read_all(fs, ino) {
        return if read == *data { Ok(false) } else { Err(format!("{when}: {name} is another one")) };
    }
    for (n, block) in data.chunks(BLOCK).enumerate() {
        let mut into = vec![0; block.len()];
        let read = fs.read(&waiter(), ino, (n * BLOCK) as u64, zonal_fs::Target::Bytes(&mut into));
        if read.is_ok() && into != block {
            return Err(format!("{when}: block {n} of {name} is another one"));
        }
    }
    Ok(true)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    /// No write was misplaced.
    Spared,
    Sound,
    Told,
    Refused,
    /// In the state of the last metadata stored.
    Earlier,
}

fn play(history: &History, damage: &Damage) -> Result<Outcome, String> {
    let rig = history.damaged(damage);
    let reach = || open(&rig.drive(), &waiters(), rig.beside(), MountOptions::default());
    let Ok(fs) = reach() else { return Ok(Outcome::Refused) };
    let is_told = check(&fs, &history.files, "opened")?;
    drop(fs);
    if is_told && rig.try_findings().is_ok_and(|found| found.is_empty()) {
        return Err("fsck is clean, and a reader is told of an error".to_owned());
    }
    let Ok(fs) = reach() else { return Ok(Outcome::Refused) };
    // The collector must not give misplaced data a valid header.
    let later = bytes(77, 50_000);
    let is_synced = write(&fs, "later", &later).and_then(|()| fs.sync(&waiter())).is_ok();
    for _ in 0..40 {
        if !fs.collect(&impatient()).unwrap_or(false) {
            break;
        }
    }
    let _ = fs.sync(&waiter());
    check(&fs, &history.files, "collected")?;
    drop(fs);
    let Ok(fs) = reach() else { return Ok(Outcome::Refused) };
    check(&fs, &history.files, "collected and opened again")?;
    if is_synced {
        check(&fs, &[("later".to_owned(), later)].into(), "later")?;
    }
    Ok(if is_told { Outcome::Told } else { Outcome::Sound })
}

/// Plays the case of each seed, and prints a count of the outcomes.
fn count(what: &str, history: &History, play: impl Fn(u64) -> Result<Outcome, String>) {
    let (first, cases) = (number("ZONAL_SEED", 0), number("ZONAL_CASES", cases_of(3500, 15)));
    let (mut outcomes, mut defects) = (BTreeMap::<Outcome, u64>::new(), Vec::new());
    for seed in first..first + cases {
        match play(seed) {
            Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
            Err(defect) => defects.push(format!("ZONAL_SEED={seed}: {defect}")),
        }
    }
    let place = history.rig.place;
    println!("misplaced: {what}, {place:?}, {cases} cases, {outcomes:?}, {} defects", defects.len());
    assert!(defects.is_empty(), "{} defects: {}", defects.len(), defects[..defects.len().min(10)].join("\n"));
    assert!(cases < 15 || outcomes.contains_key(&Outcome::Told), "{what}: {outcomes:?}");
}

fn campaign(place: Where) {
    let history = History::new(place);
    count("damage", &history, |seed| {
        let damage = history.draw(seed);
        play(&history, &damage).map_err(|defect| format!("{damage:?}: {defect}"))
    });
    faults::campaign(&history);
}

#[test]
fn lost_and_misdirected_writes_are_found_with_metadata_in_zones() {
    campaign(Where::Logged);
}

#[test]
fn lost_and_misdirected_writes_are_found_with_metadata_in_conventional_zones() {
    campaign(Where::Conventional);
}

#[test]
fn lost_and_misdirected_writes_are_found_with_metadata_beside() {
    campaign(Where::Beside);
}
