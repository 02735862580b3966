//! Power cuts at any step of transactions, on every kind of storage.
//!
//! A case runs cycles of random transactions, cuts the power in the middle of one, opens what is
//! left, and compares it with the committed rows.

use crate::common::number;
use crate::store::rig::{
    SMALL, Shape, StorePlace, TIGHT, UUID, anchor, create_at, drive, image, open as open_store, try_image,
    waiters,
};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use zonal_fs::format::{Anchor, Metadata};
use zonal_fs::store::backend::log::{Access as Reach, Statistics};
use zonal_fs::store::backend::{Store, StoreFile};
use zonal_fs::store::{Rows, StoreError};
use zonal_fs::superblocks;
use zonal_io::image::backing::Backing;
use zonal_io::image::backing::twin::CutBacking;

/// Power cycles of a case. Each continues with the result of the previous one.
const CYCLES: u32 = 4;

/// Number of keys. Few, so that they are changed often.
const KEYS: u64 = 2500;

/// Without conventional zones: the superblock is in two zones in turn.
const PLAIN: Shape = Shape {
    zone_bytes: 1 << 20,
    capacity_bytes: 1 << 20,
    zones: 8,
    conventional: 0,
    block_bytes: 4096,
    active: 5,
};

type Map = BTreeMap<u64, Vec<u8>>;

/// The devices that lose power: a drive, and the file beside it.
#[derive(Clone)]
struct Power {
    drive: Arc<CutBacking>,
    file: Arc<CutBacking>,
}

impl Power {
    fn new(random: &mut Pcg64Mcg) -> Power {
        let backing = |seed| Arc::new(CutBacking::new(seed));
        Power { drive: backing(random.random()), file: backing(random.random()) }
    }

    /// The file beside the drive, as if made by another process.
    fn store_file(&self) -> StoreFile {
        StoreFile::over(self.file.clone(), &UUID).unwrap()
    }

    fn create(&self, place: StorePlace, shape: Shape) -> Result<Arc<Store>, String> {
        shape.format(&self.drive);
        let drive = drive(Arc::new(image(&self.drive)));
        let (anchor, metadata, file) = match place {
            StorePlace::Zones => (anchor(&drive, shape.log_zones()), Metadata::Logged, None),
            StorePlace::Conventional => {
                let anchor = Anchor { pieces: 3, piece_blocks: 250, ..anchor(&drive, Vec::new()) };
                (anchor, Metadata::Conventional, None)
            }
            StorePlace::File => {
                let anchor = Anchor { pieces: 3, piece_blocks: 200, ..anchor(&drive, Vec::new()) };
                (anchor, Metadata::Beside, Some(StoreFile::create(self.file.clone(), &UUID).unwrap()))
            }
        };
        let store = create_at(drive, anchor, metadata, file).map_err(|e| e.to_string())?;
        Ok(Arc::new(store))
    }

    fn reach(&self, place: StorePlace) -> Result<Arc<Store>, String> {
        let drive = drive(Arc::new(try_image(&self.drive).map_err(|e| e.to_string())?));
        let store = match place {
            StorePlace::File => {
                let found = superblocks::find(&drive, &*waiters()()).map_err(|e| e.to_string())?;
                let file = Some(self.store_file());
                let reach = Reach { drive, waiters: waiters(), file };
                Store::open(reach, &found).map_err(|e| e.to_string())?
            }
            _ => open_store(drive).map_err(|e| e.to_string())?,
        };
        Ok(Arc::new(store))
    }

    fn all(&self) -> [&Arc<CutBacking>; 2] {
        [&self.drive, &self.file]
    }

    fn is_on(&self) -> bool {
        self.all().iter().all(|backing| backing.is_on())
    }

    fn restart(&self, random: &mut Pcg64Mcg) -> Power {
        self.all().iter().for_each(|backing| backing.cut());
        let mut restart = |backing: &CutBacking| Arc::new(backing.restart(random.random()));
        Power { drive: restart(&self.drive), file: restart(&self.file) }
    }
}

/// Statistics of a run, to detect a run that did nothing.
#[derive(Default, Debug)]
struct Done {
    transactions: u64,
    cut_in_commit: u64,
    pages_moved: u64,
    segments_emptied: u64,
    segments_taken: u64,
}

struct Case<'a> {
    place: StorePlace,
    random: Pcg64Mcg,
    power: Power,
    committed: Map,
    /// Rows of the transaction that was being committed at the power cut.
    wanted: Option<Map>,
    done: &'a mut Done,
}

impl<'a> Case<'a> {
    fn new(place: StorePlace, seed: u64, unsynced: Range<u64>, done: &'a mut Done) -> Case<'a> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let power = Power::new(&mut random);
        let shapes = [SMALL, TIGHT, PLAIN];
        let shape = match place {
            StorePlace::Conventional => shapes[random.random_range(0..2)],
            _ => shapes[random.random_range(0..3)],
        };
        drop(open(power.create(place, shape).unwrap()).unwrap());
        for backing in power.all() {
            backing.sync().unwrap();
            backing.ignore_syncs_of(unsynced.clone());
        }
        Case { place, random, power, committed: Map::new(), wanted: None, done }
    }

    fn run(mut self) -> Result<(), String> {
        for _ in 0..CYCLES {
            // A write to the drive is two calls: its data, and the zone's current state.
            let longest = [60, 300, 3000][self.random.random_range(0..3)];
            let in_file = self.place == StorePlace::File && self.random.random_bool(0.8);
            let backing = self.power.all()[usize::from(in_file)];
            backing.cut_at(backing.calls() + self.random.random_range(0..longest));
            // The cut may happen during the opening.
            let reached = self.power.reach(self.place);
            let opened = reached.and_then(|storage| Ok((storage.clone(), open(storage)?)));
            match opened {
                Ok((storage, mut rows)) => {
                    self.work(&mut rows);
                    let Statistics { pages_moved, segments_emptied, segments_taken, .. } =
                        storage.statistics();
                    self.done.pages_moved += pages_moved;
                    self.done.segments_emptied += segments_emptied;
                    self.done.segments_taken += segments_taken;
                }
                Err(e) if self.power.is_on() => return Err(format!("opening without a cut: {e}")),
                Err(_) => {}
            }
            self.power = self.power.restart(&mut self.random);
            self.judge()?;
        }
        Ok(())
    }

    /// Transactions until the power is cut, or a limited number.
    fn work(&mut self, rows: &mut Rows) {
        for _ in 0..self.random.random_range(1..250) {
            let mut next = self.committed.clone();
            self.wanted = None;
            if self.transaction(rows, &mut next).is_err() {
                self.done.cut_in_commit += u64::from(self.wanted.is_some());
                return;
            }
            self.done.transactions += 1;
            self.committed = next;
        }
    }

    fn transaction(&mut self, rows: &mut Rows, next: &mut Map) -> Result<(), StoreError> {
        let (changes, keys, longest) = match self.random.random_range(0..20) {
            0 => (800, KEYS, 500),
            1 => (3, 5, 40_000),
            _ => (8, KEYS, 500),
        };
        for _ in 0..self.random.random_range(0..changes) {
            let key = self.random.random_range(0..keys);
            if self.random.random_bool(0.3) {
                rows.delete(row(key));
                next.remove(&key);
            } else {
                let value = value(&mut self.random, longest);
                rows.put(row(key), value.clone());
                next.insert(key, value);
            }
        }
        // Most others go to the log.
        if self.random.random_bool(0.1) {
            rows.squeeze();
        }
        self.wanted = Some(next.clone());
        let committed = rows.seal().expect("nothing is sealed").commit()?;
        rows.settled(committed);
        Ok(())
    }

    /// Checks that all committed rows are there, and nothing uncommitted.
    fn judge(&mut self) -> Result<(), String> {
        let found = self.power.reach(self.place).and_then(open)?;
        let found = all(&found).map_err(|e| e.to_string())?;
        if found != self.committed && Some(&found) != self.wanted.as_ref() {
            return Err(format!("{} rows found, {} committed", found.len(), self.committed.len()));
        }
        self.committed = found;
        self.wanted = None;
        Ok(())
    }
}

fn value(random: &mut impl Rng, longest: usize) -> Vec<u8> {
    let mut value = vec![0; random.random_range(0..longest)];
    random.fill_bytes(&mut value);
    value
}

fn row(key: u64) -> Vec<u8> {
    [&b"K"[..], &key.to_be_bytes()].concat()
}

fn open(storage: Arc<Store>) -> Result<Rows, String> {
    Rows::open_shared(storage, 1 << 20).map_err(|e| e.to_string())
}

fn all(rows: &Rows) -> Result<Map, StoreError> {
    let mut found = Map::new();
    rows.scan(b"K", b"L", |key, value| {
        found.insert(u64::from_be_bytes(key[1..].try_into().unwrap()), value.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn first_failure(
    place: StorePlace,
    seeds: Range<u64>,
    unsynced: Range<u64>,
    done: &mut Done,
) -> Option<(u64, String)> {
    seeds
        .into_iter()
        .find_map(|seed| Case::new(place, seed, unsynced.clone(), done).run().err().map(|e| (seed, e)))
}

fn cuts(place: StorePlace) {
    let (mut done, first) = (Done::default(), number("ZONAL_CUT_SEED", 0));
    let cases = number("ZONAL_CUTS", 40);
    if let Some((seed, e)) = first_failure(place, first..first + cases, 0..0, &mut done) {
        panic!("{place:?}, case {seed} (ZONAL_CUT_SEED={seed} ZONAL_CUTS=1 repeats it): {e}");
    }
    println!("{place:?}: {done:?}");
    let Done { transactions, cut_in_commit, pages_moved, segments_emptied, .. } = done;
    if cases >= 40 {
        assert!(transactions > 1000 && cut_in_commit > 10 && pages_moved > 1000 && segments_emptied > 40);
    }
}

#[test]
fn file_beside_cut_anywhere_keeps_committed_rows() {
    cuts(StorePlace::File);
}

#[test]
fn conventional_zones_cut_anywhere_keep_committed_rows() {
    cuts(StorePlace::Conventional);
}

#[test]
fn zones_cut_anywhere_keep_committed_rows() {
    cuts(StorePlace::Zones);
}

/// A cut in the midst of growth leaves a piece in the file that the superblock does not name.
#[test]
fn piece_that_a_cut_left_unnamed_is_taken_once() {
    let mut random = Pcg64Mcg::seed_from_u64(5);
    let power = Power::new(&mut random);
    drop(open(power.create(StorePlace::File, SMALL).unwrap()).unwrap());
    power.file.set_len(power.file.len().unwrap() + 200 * 4096).unwrap();
    let mut expected = Map::new();
    let store = power.reach(StorePlace::File).unwrap();
    let mut rows = open(store.clone()).unwrap();
    for number in 0.. {
        for key in 20 * number..20 * (number + 1) {
            let value = vec![random.random(); 400];
            rows.put([&b"K"[..], &u64::to_be_bytes(key)].concat(), value.clone());
            expected.insert(key, value);
        }
        let committed = rows.seal().unwrap().commit().unwrap();
        rows.settled(committed);
        if store.statistics().segments_taken == 2 {
            break;
        }
    }
    assert_eq!(all(&rows).unwrap(), expected);
    drop((rows, store));
    let rows = open(power.reach(StorePlace::File).unwrap()).unwrap();
    assert_eq!(all(&rows).unwrap(), expected);
}

#[test]
fn canary_storage_that_does_not_sync_is_caught() {
    for place in StorePlace::ALL {
        let failure = first_failure(place, 0..60, 0..u64::MAX, &mut Done::default());
        assert!(failure.is_some(), "{place:?} went unnoticed");
    }
}
