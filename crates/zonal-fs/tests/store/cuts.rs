//! Power cuts at any step of transactions, on every kind of storage.
//!
//! A case runs cycles of random transactions, cuts the power in the midst of one, opens what is left, and compares it with
//! what was committed.

use crate::rig::{Access, SMALL, Shape, TIGHT, conventional, drive, image, logged};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use zonal_fs::store::backend::logged::Statistics;
use zonal_fs::store::backend::{Conventional, Logged, Over};
use zonal_io::image::backing::Backing;
use zonal_io::image::backing::twin::CutBacking;

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");

/// Power cycles of a case: what one leaves behind is what the next begins with.
const CYCLES: u32 = 4;

/// Keys that transactions play with: few, so that they are changed often.
const KEYS: u64 = 300;

type Rows = BTreeMap<u64, Vec<u8>>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Storage {
    Plain,
    Conventional,
    Logged,
}

impl Storage {
    fn format(self, shape: Shape, backing: &CutBacking) {
        if self != Storage::Plain {
            shape.format(backing);
        }
    }

    fn reach(self, shape: Shape, backing: &Arc<CutBacking>, access: Access) -> Result<Shared, String> {
        let drive = || drive(Arc::new(image(backing)));
        let storage: Arc<dyn Counted> = match self {
            Storage::Plain => Arc::new(Over::new(backing.clone(), 0)),
            Storage::Conventional => Arc::new(conventional(drive(), access).map_err(|e| e.to_string())?),
            Storage::Logged => {
                Arc::new(logged(drive(), shape.log_zones(), access).map_err(|e| e.to_string())?)
            }
        };
        Ok(Shared(storage))
    }
}

/// A storage that may count what it does.
trait Counted: StorageBackend {
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

impl Counted for Over {}
impl Counted for Conventional {}
impl Counted for Logged {
    fn statistics(&self) -> Statistics {
        Logged::statistics(self)
    }
}

/// A storage that the database has, and the test as well.
#[derive(Clone, Debug)]
struct Shared(Arc<dyn Counted>);

impl StorageBackend for Shared {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read(offset, out)
    }
    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> std::io::Result<()> {
        self.0.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write(offset, data)
    }
}

/// What the cases of a run did, so that a run that did nothing is seen.
#[derive(Default, Debug)]
struct Done {
    transactions: u64,
    cut_in_commit: u64,
    pages_moved: u64,
    zones_reset: u64,
}

struct Case<'a> {
    storage: Storage,
    shape: Shape,
    random: Pcg64Mcg,
    backing: Arc<CutBacking>,
    committed: Rows,
    /// What the transaction in whose commit the power went wanted.
    wanted: Option<Rows>,
    done: &'a mut Done,
}

impl<'a> Case<'a> {
    fn new(storage: Storage, seed: u64, unsynced: Range<u64>, done: &'a mut Done) -> Case<'a> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let backing = Arc::new(CutBacking::new(random.random()));
        let shape = if random.random_bool(0.5) { SMALL } else { TIGHT };
        storage.format(shape, &backing);
        let first = storage.reach(shape, &backing, Access::Create).unwrap();
        drop(open(first).unwrap());
        backing.sync().unwrap();
        backing.ignore_syncs_of(unsynced);
        Case { storage, shape, random, backing, committed: Rows::new(), wanted: None, done }
    }

    fn run(mut self) -> Result<(), String> {
        for _ in 0..CYCLES {
            let longest = [30, 150, 1500][self.random.random_range(0..3)];
            self.backing.cut_at(self.backing.calls() + self.random.random_range(0..longest));
            // The cut may fall into the opening.
            let reached = self.storage.reach(self.shape, &self.backing, Access::Open);
            let opened = reached.and_then(|storage| Ok((storage.clone(), open(storage)?)));
            match opened {
                Ok((storage, database)) => {
                    self.work(&database);
                    let Statistics { pages_moved, zones_reset, .. } = storage.0.statistics();
                    self.done.pages_moved += pages_moved;
                    self.done.zones_reset += zones_reset;
                }
                Err(e) if self.backing.is_on() => return Err(format!("opening without a cut: {e}")),
                Err(_) => {}
            }
            self.backing = Arc::new(self.backing.restart(self.random.random()));
            self.judge()?;
        }
        Ok(())
    }

    /// Transactions until the power goes, or for a while.
    fn work(&mut self, database: &Database) {
        for _ in 0..self.random.random_range(1..250) {
            let mut next = self.committed.clone();
            self.wanted = None;
            if self.transaction(database, &mut next).is_err() {
                self.done.cut_in_commit += u64::from(self.wanted.is_some());
                return;
            }
            self.done.transactions += 1;
            self.committed = next;
        }
    }

    fn transaction(&mut self, database: &Database, next: &mut Rows) -> Result<(), redb::Error> {
        let change = database.begin_write()?;
        {
            let mut table = change.open_table(TABLE)?;
            let (changes, keys, longest) = match self.random.random_range(0..20) {
                0 => (150, KEYS, 500),
                1 => (3, 5, 40_000),
                _ => (8, KEYS, 500),
            };
            for _ in 0..self.random.random_range(0..changes) {
                let key = self.random.random_range(0..keys);
                if self.random.random_bool(0.3) {
                    table.remove(key)?;
                    next.remove(&key);
                } else {
                    let value = value(&mut self.random, longest);
                    table.insert(key, &value[..])?;
                    next.insert(key, value);
                }
            }
        }
        if self.random.random_bool(0.1) {
            *next = self.committed.clone();
            change.abort()?;
            return Ok(());
        }
        self.wanted = Some(next.clone());
        Ok(change.commit()?)
    }

    /// What was committed is there, and nothing of what was not.
    fn judge(&mut self) -> Result<(), String> {
        let found = self.storage.reach(self.shape, &self.backing, Access::Open).and_then(open)?;
        let found = rows(&found).map_err(|e| e.to_string())?;
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

fn open(storage: Shared) -> Result<Database, String> {
    Database::builder().set_cache_size(1 << 20).create_with_backend(storage).map_err(|e| e.to_string())
}

fn rows(database: &Database) -> Result<Rows, redb::Error> {
    let read = database.begin_read()?;
    let table = match read.open_table(TABLE) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Rows::new()),
        other => other?,
    };
    table.iter()?.map(|row| row.map(|(k, v)| (k.value(), v.value().to_vec())).map_err(Into::into)).collect()
}

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}={v}")))
}

fn first_failure(
    storage: Storage,
    seeds: Range<u64>,
    unsynced: Range<u64>,
    done: &mut Done,
) -> Option<(u64, String)> {
    seeds
        .into_iter()
        .find_map(|seed| Case::new(storage, seed, unsynced.clone(), done).run().err().map(|e| (seed, e)))
}

fn cuts(storage: Storage) -> Done {
    let (mut done, first) = (Done::default(), number("ZONAL_CUT_SEED", 0));
    let seeds = first..first + number("ZONAL_CUTS", 40);
    if let Some((seed, e)) = first_failure(storage, seeds, 0..0, &mut done) {
        panic!("{storage:?}, case {seed} (ZONAL_CUT_SEED={seed} ZONAL_CUTS=1 repeats it): {e}");
    }
    println!("{storage:?}: {done:?}");
    done
}

#[test]
fn plain_storage_cut_anywhere_keeps_what_was_committed() {
    cuts(Storage::Plain);
}

#[test]
fn conventional_zones_cut_anywhere_keep_what_was_committed() {
    cuts(Storage::Conventional);
}

#[test]
fn log_cut_anywhere_keeps_what_was_committed() {
    let Done { transactions, cut_in_commit, pages_moved, zones_reset } = cuts(Storage::Logged);
    if number("ZONAL_CUTS", 40) >= 40 {
        assert!(transactions > 1000 && cut_in_commit > 10 && pages_moved > 1000 && zones_reset > 40);
    }
}

#[test]
fn canary_storage_that_does_not_sync_is_caught() {
    for storage in [Storage::Plain, Storage::Conventional, Storage::Logged] {
        assert!(
            first_failure(storage, 0..60, 0..u64::MAX, &mut Done::default()).is_some(),
            "{storage:?} went unnoticed"
        );
    }
}
