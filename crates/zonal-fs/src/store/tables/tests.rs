//! Any sequence of commits, merges, failures and openings, against a map.

use super::super::Rows;
use super::super::backend::{Backend, BackendError, Damage, Memory, PAGE, Room, SegmentId, SegmentPlace};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages in memory that become durable with a sync, and fail when told to.
#[derive(Clone, Debug, Default)]
struct Synced(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bytes: Memory,
    durable: Mutex<Memory>,
    syncs: AtomicU64,
    /// Number of syncs until they fail.
    syncs_left: AtomicU64,
    /// Number of writes until the place is full.
    writes_left: AtomicU64,
    /// Pages written since the last sync, and how many of them a sync has room for.
    written: AtomicU64,
    written_max: u64,
    /// Pages that cannot be read.
    lost: Mutex<BTreeSet<u64>>,
    room: Option<Room>,
}

impl Default for Inner {
    fn default() -> Inner {
        Inner {
            bytes: Memory::new(),
            durable: Mutex::default(),
            syncs: AtomicU64::new(0),
            syncs_left: AtomicU64::new(u64::MAX),
            writes_left: AtomicU64::new(u64::MAX),
            written: AtomicU64::new(0),
            written_max: u64::MAX,
            lost: Mutex::default(),
            room: None,
        }
    }
}

fn copy(from: &Memory) -> Memory {
    let (to, len) = (Memory::new(), from.len().unwrap());
    let mut bytes = vec![0; len as usize];
    from.read(0, &mut bytes).unwrap();
    to.set_len(len).unwrap();
    to.write(0, &bytes).unwrap();
    to
}

fn is_spent(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
}

impl Backend for Synced {
    fn len(&self) -> io::Result<u64> {
        self.0.bytes.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let pages = offset / PAGE as u64..(offset + out.len() as u64).div_ceil(PAGE as u64);
        match self.0.lost.lock().range(pages).next() {
            Some(page) => {
                let place = SegmentPlace { segment: SegmentId(7), block: *page as u32 };
                Err(BackendError::Damaged { place, what: "a page", damage: Damage::Checksum }.into())
            }
            None => self.0.bytes.read(offset, out),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.bytes.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.syncs.fetch_add(1, Ordering::Relaxed);
        if self.0.written.swap(0, Ordering::Relaxed) > self.0.written_max {
            return Err(BackendError::Full { needed: 1, usable: 0 }.into());
        }
        if is_spent(&self.0.syncs_left) {
            return Err(io::Error::other("the sync failed"));
        }
        *self.0.durable.lock() = copy(&self.0.bytes);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if is_spent(&self.0.writes_left) {
            return Err(BackendError::Full { needed: 1, usable: 0 }.into());
        }
        self.0.written.fetch_add((data.len() / PAGE) as u64, Ordering::Relaxed);
        self.0.bytes.write(offset, data)
    }

    fn discard(&self, pages: Range<u64>) {
        // A page that is used all the same reads as something else.
        let end = pages.end.min(self.0.bytes.len().unwrap() / PAGE as u64);
        (pages.start..end).for_each(|page| self.0.bytes.write(page * PAGE as u64, &[0xDD; PAGE]).unwrap());
    }

    fn forget_unsynced(&self) {
        let durable = self.0.durable.lock();
        let mut bytes = vec![0; durable.len().unwrap() as usize];
        durable.read(0, &mut bytes).unwrap();
        self.0.bytes.set_len(bytes.len() as u64).unwrap();
        self.0.bytes.write(0, &bytes).unwrap();
    }

    fn room(&self) -> Option<Room> {
        let pages = self.len().unwrap() / PAGE as u64;
        self.0.room.map(|room| Room { pages, ..room })
    }
}

impl Synced {
    fn fail_syncs(&self, after: u64) {
        self.0.syncs_left.store(after, Ordering::Relaxed);
    }

    fn fill(&self, after: u64) {
        self.0.writes_left.store(after, Ordering::Relaxed);
    }

    /// The rows that a cut would leave.
    fn after_cut(&self) -> Rows {
        Rows::open(copy(&self.0.durable.lock()), 1 << 20).unwrap()
    }
}

fn key(number: u32) -> Vec<u8> {
    [b'K'].into_iter().chain(number.to_be_bytes()).collect()
}

fn commit(rows: &mut Rows) {
    let committed = rows.seal().unwrap().commit().unwrap();
    rows.settled(committed);
}

fn all(rows: &Rows) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    rows.scan(&[0], &[255], |key, value| {
        assert!(found.insert(key.to_vec(), value.to_vec()).is_none());
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

#[test]
fn commit_syncs_once_and_is_not_durable_if_the_sync_fails() {
    let place = Synced::default();
    let mut rows = Rows::open(place.clone(), 1 << 20).unwrap();
    for number in 0..300 {
        (0..=number % 40).for_each(|value| rows.put(key(number * 40 + value), vec![7; 100]));
        let before = place.0.syncs.load(Ordering::Relaxed);
        let sealed = rows.seal().unwrap();
        if number % 10 == 9 {
            place.fail_syncs(0);
            assert!(sealed.commit().is_err());
            place.fail_syncs(u64::MAX);
            assert_eq!(place.after_cut().get(&key(number * 40)).unwrap(), None);
            // Its rows are here, and the next commit has them.
            assert!(rows.get(&key(number * 40)).unwrap().is_some());
            let committed = sealed.commit().unwrap();
            rows.settled(committed);
        } else {
            let committed = sealed.commit().unwrap();
            rows.settled(committed);
            assert_eq!(place.0.syncs.load(Ordering::Relaxed), before + 1);
        }
        assert!(place.after_cut().get(&key(number * 40)).unwrap().is_some());
    }
}

#[test]
fn merge_of_all_tables_drops_rows_that_were_deleted_or_replaced() {
    let place = Synced::default();
    let mut rows = Rows::open(place.clone(), 0).unwrap();
    for number in 0..8000 {
        rows.put(key(number % 4000), vec![number as u8; 100]);
        if number % 500 == 499 {
            commit(&mut rows);
        }
    }
    (0..3600).for_each(|number| rows.delete(key(number)));
    commit(&mut rows);
    rows.compactor().run().unwrap();
    // The next commit cuts off what the merge has left free.
    commit(&mut rows);
    let len = place.len().unwrap();
    assert!(len < 3 * 400 * 110, "{len} bytes");
    assert_eq!((all(&rows).len(), all(&place.after_cut()).len()), (400, 400));
}

#[test]
fn commit_gets_through_where_only_its_merges_have_no_room() {
    let place = Synced(Arc::new(Inner { written_max: 16, ..Inner::default() }));
    let mut rows = Rows::open(place.clone(), 1 << 20).unwrap();
    let mut syncs = 0;
    for number in 0..100 {
        (0..100).for_each(|row| rows.put(key(100 * row + number), vec![7; 100]));
        commit(&mut rows);
        syncs += 1;
    }
    assert!(place.0.syncs.load(Ordering::Relaxed) > syncs, "no merge was without room");
    assert_eq!((all(&rows).len(), all(&place.after_cut()).len()), (10_000, 10_000));
}

#[test]
fn readers_of_an_earlier_commit_keep_its_rows() {
    let mut rows = Rows::open(Synced::default(), 0).unwrap();
    (0..2000).for_each(|number| rows.put(key(number), vec![1; 100]));
    commit(&mut rows);
    let before = rows.reader().0.tables();
    for round in 0..20 {
        (0..2000).for_each(|number| rows.put(key(number), vec![round; 100]));
        commit(&mut rows);
        rows.compactor().run().unwrap();
    }
    for number in 0..2000 {
        assert_eq!(before.get(&key(number)).unwrap().unwrap(), vec![1; 100]);
    }
}

#[test]
fn page_that_cannot_be_read_costs_its_own_rows_and_no_others() {
    const ROWS: u32 = 3000;
    let place = Synced::default();
    // Without a cache, so that each page is read when it is needed.
    let mut rows = Rows::open(place.clone(), 0).unwrap();
    (0..ROWS).for_each(|number| rows.put(key(number), vec![7; 40]));
    commit(&mut rows);
    let pages = place.len().unwrap() / PAGE as u64;
    let mut damaged = 0;
    for page in 0..pages {
        place.0.lost.lock().insert(page);
        let rows = Rows::open(place.clone(), 0).unwrap();
        let is_there = |number: &u32| rows.get(&key(*number)).is_ok_and(|value| value.is_some());
        let lost: Vec<u32> = (0..ROWS).filter(|number| !is_there(number)).collect();
        // The rows of a data block, which are neighbours; the root and the index have copies.
        assert!(lost.len() < 100 && lost.windows(2).all(|pair| pair[0] + 1 == pair[1]), "page {page}");
        damaged += u32::from(!lost.is_empty());
        place.0.lost.lock().clear();
    }
    assert!(damaged > 10, "{damaged} of {pages}");
}

#[test]
fn commits_go_on_beside_a_page_that_cannot_be_read() {
    for page in [4, 9, 15] {
        let place = Synced::default();
        let mut rows = Rows::open(place.clone(), 0).unwrap();
        (0..3000).for_each(|number| rows.put(key(number), vec![7; 40]));
        commit(&mut rows);
        place.0.lost.lock().insert(page);
        for round in 0..20 {
            (0..300).for_each(|number| rows.put(key(10 * number + round % 10), vec![8; 40]));
            commit(&mut rows);
        }
        rows.compactor().run().unwrap();
        (0..3000).for_each(|number| assert_eq!(rows.get(&key(number)).unwrap(), Some(vec![8; 40])));
        place.0.lost.lock().clear();
        let rows = Rows::verified(place.clone(), 0).unwrap();
        assert_eq!(all(&rows).len(), 3000);
    }
}

#[test]
fn last_row_is_found_below_many_deleted_ones() {
    let mut rows = Rows::open(Synced::default(), 1 << 20).unwrap();
    (0..3000).for_each(|number| rows.put(key(number), vec![7; 40]));
    commit(&mut rows);
    (100..3000).for_each(|number| rows.delete(key(number)));
    commit(&mut rows);
    assert_eq!(rows.last(&key(0), &key(5000)).unwrap().unwrap().0, key(99));
    assert_eq!(rows.last(&key(50), &key(70)).unwrap().unwrap().0, key(70));
    assert_eq!(rows.last(&key(100), &key(5000)).unwrap(), None);
    rows.put(key(2000), vec![1]);
    assert_eq!(rows.last(&key(0), &key(5000)).unwrap().unwrap().0, key(2000));
}

#[derive(Clone, Debug)]
enum Step {
    Put(u16, usize),
    Delete(u16),
    Commit { syncs: u64, writes: u64 },
    Squeeze { syncs: u64, writes: u64 },
    Open,
    Cut,
}

fn step() -> impl Strategy<Value = Step> {
    // Most succeed.
    let left = || prop_oneof![4 => Just(u64::MAX), 1 => 0..20u64];
    prop_oneof![
        30 => (0..200u16, 0..300usize).prop_map(|(key, len)| Step::Put(key, len)),
        1 => (0..200u16, 3000..20_000usize).prop_map(|(key, len)| Step::Put(key, len)),
        12 => (0..200u16).prop_map(Step::Delete),
        6 => (left(), left()).prop_map(|(syncs, writes)| Step::Commit { syncs, writes }),
        1 => (left(), left()).prop_map(|(syncs, writes)| Step::Squeeze { syncs, writes }),
        1 => Just(Step::Open),
        1 => Just(Step::Cut),
    ]
}

/// Runs steps on rows in a place with room for `limit` pages, or for any number.
fn run(steps: Vec<Step>, limit: Option<u64>) -> Result<(), TestCaseError> {
    let room = limit.map(|limit| Room { pages: 0, limit, ..Room::default() });
    let place = Synced(Arc::new(Inner { room, ..Inner::default() }));
    let mut rows = Rows::open(place.clone(), 1 << 16).unwrap();
    let (mut now, mut durable, mut sealed) = (BTreeMap::new(), BTreeMap::new(), None);
    for (n, step) in steps.into_iter().enumerate() {
        match step {
            Step::Put(number, len) => {
                let mut value = n.to_le_bytes().to_vec();
                value.resize(8 + len, n as u8);
                rows.put(key(number.into()), value.clone());
                now.insert(key(number.into()), value);
            }
            Step::Delete(number) => {
                rows.delete(key(number.into()));
                now.remove(&key(number.into()));
            }
            Step::Commit { syncs, writes } => {
                let (to_commit, after) = match sealed.take() {
                    Some(sealed) => sealed,
                    None => (rows.seal().unwrap(), now.clone()),
                };
                place.fail_syncs(syncs);
                place.fill(writes);
                match to_commit.commit() {
                    Ok(committed) => {
                        rows.settled(committed);
                        durable = after;
                    }
                    // It is tried again later, with what it had.
                    Err(_) => sealed = Some((to_commit, after)),
                }
            }
            Step::Squeeze { syncs, writes } => {
                place.fail_syncs(syncs);
                place.fill(writes);
                let _ = rows.compactor().run();
            }
            Step::Open | Step::Cut => {
                if let Step::Cut = step {
                    place.forget_unsynced();
                }
                drop(sealed.take());
                drop(rows);
                rows = Rows::verified(place.clone(), 1 << 16).unwrap();
                now.clone_from(&durable);
            }
        }
        prop_assert!(all(&rows) == now, "step {n}");
    }
    prop_assert!(all(&place.after_cut()) == durable);
    for number in 0..200 {
        prop_assert_eq!(rows.get(&key(number)).unwrap(), now.get(&key(number)).cloned());
        let last = now.range(..=key(number)).next_back().map(|(key, value)| (key.clone(), value.clone()));
        prop_assert_eq!(rows.last(&key(0), &key(number)).unwrap(), last);
    }
    Ok(())
}

proptest! {
    #[test]
    fn rows_are_those_of_a_map_through_failures_and_cuts(
        steps in prop::collection::vec(step(), 0..400),
        limit in prop_oneof![Just(None), (20..400u64).prop_map(Some)],
    ) {
        run(steps, limit)?;
    }
}
