//! Power cuts at any step of transactions, on every kind of storage.
//!
//! A case runs cycles of random transactions, cuts the power in the midst of one, opens what is left, and compares it with
//! what was committed.

use crate::rig::{Access, SMALL, conventional, drive, image, logged};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use zonal_fs::store::backend::Over;
use zonal_io::image::backing::Backing;
use zonal_io::image::backing::twin::CutBacking;

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");

/// Power cycles of a case: what one leaves behind is what the next begins with.
const CYCLES: u32 = 4;

/// Keys that transactions play with: few, so that they are changed often.
const KEYS: u64 = 300;

type Rows = BTreeMap<u64, Vec<u8>>;

#[derive(Clone, Copy, Debug)]
enum Storage {
    Plain,
    Conventional,
    Logged,
}

impl Storage {
    fn format(self, backing: &CutBacking) {
        match self {
            Storage::Plain => {}
            _ => SMALL.format(backing),
        }
    }

    fn reach(self, backing: &Arc<CutBacking>, access: Access) -> Result<Box<dyn Shared>, String> {
        let drive = || drive(Arc::new(image(backing)));
        match self {
            Storage::Plain => Ok(Box::new(Over::new(backing.clone(), 0))),
            Storage::Conventional => match conventional(drive(), access) {
                Ok(storage) => Ok(Box::new(storage)),
                Err(e) => Err(e.to_string()),
            },
            Storage::Logged => match logged(drive(), SMALL.log_zones(), access) {
                Ok(storage) => Ok(Box::new(storage)),
                Err(e) => Err(e.to_string()),
            },
        }
    }
}

/// A storage in a box, which the database does not take as it is.
trait Shared: StorageBackend {}
impl<S: StorageBackend> Shared for S {}

#[derive(Debug)]
struct Boxed(Box<dyn Shared>);

impl StorageBackend for Boxed {
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

struct Case {
    storage: Storage,
    random: Pcg64Mcg,
    backing: Arc<CutBacking>,
    committed: Rows,
    /// What the transaction in whose commit the power went wanted.
    wanted: Option<Rows>,
}

impl Case {
    fn new(storage: Storage, seed: u64, unsynced: Range<u64>) -> Case {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let backing = Arc::new(CutBacking::new(random.random()));
        storage.format(&backing);
        if let Ok(first) = storage.reach(&backing, Access::Create) {
            open(first).unwrap();
        }
        backing.sync().unwrap();
        backing.ignore_syncs_of(unsynced);
        Case { storage, random, backing, committed: Rows::new(), wanted: None }
    }

    fn run(mut self) -> Result<(), String> {
        for _ in 0..CYCLES {
            let cut = self.backing.calls() + self.random.random_range(0..120);
            self.backing.cut_at(cut);
            // The cut may fall into the opening.
            let opened = self.storage.reach(&self.backing, Access::Open).and_then(open);
            match opened {
                Ok(database) => self.work(&database),
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
        for _ in 0..self.random.random_range(1..40) {
            let mut next = self.committed.clone();
            self.wanted = None;
            if self.transaction(database, &mut next).is_err() {
                return;
            }
            self.committed = next;
        }
    }

    fn transaction(&mut self, database: &Database, next: &mut Rows) -> Result<(), redb::Error> {
        let change = database.begin_write()?;
        {
            let mut table = change.open_table(TABLE)?;
            let (changes, longest) = match self.random.random_range(0..10) {
                0 => (200, 3000),
                1..3 => (5, 40_000),
                _ => (8, 500),
            };
            for _ in 0..self.random.random_range(0..changes) {
                let key = self.random.random_range(0..KEYS);
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
        let found = self.storage.reach(&self.backing, Access::Open).and_then(open)?;
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

fn open(storage: Box<dyn Shared>) -> Result<Database, String> {
    Database::builder().set_cache_size(1 << 20).create_with_backend(Boxed(storage)).map_err(|e| e.to_string())
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

fn first_failure(storage: Storage, seeds: Range<u64>, unsynced: Range<u64>) -> Option<(u64, String)> {
    seeds
        .into_iter()
        .find_map(|seed| Case::new(storage, seed, unsynced.clone()).run().err().map(|e| (seed, e)))
}

fn cuts(storage: Storage) {
    let first = number("ZONAL_CUT_SEED", 0);
    let seeds = first..first + number("ZONAL_CUTS", 40);
    if let Some((seed, e)) = first_failure(storage, seeds, 0..0) {
        panic!("{storage:?}, case {seed} (ZONAL_CUT_SEED={seed} ZONAL_CUTS=1 repeats it): {e}");
    }
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
    cuts(Storage::Logged);
}

#[test]
fn canary_storage_that_does_not_sync_is_caught() {
    for storage in [Storage::Plain, Storage::Conventional, Storage::Logged] {
        assert!(first_failure(storage, 0..60, 0..u64::MAX).is_some(), "{storage:?} went unnoticed");
    }
}
