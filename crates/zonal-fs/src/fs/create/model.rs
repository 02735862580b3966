//! Model of threads that create names and a thread that opens the directory, under random
//! schedules. Rows read by a creator before it has the lock count only if no other thread has
//! created a name in between, and the opened directory in memory is never older than the published
//! one. See docs/THREADS.md for how to run it.

use shuttle::thread::spawn;
use shuttle::{check_pct, check_random};
use zonal_io::sync::model::{Canary, is_broken, with_canary};
use zonal_io::sync::{Arc, AtomicU64, Mutex, Ordering};

const SCHEDULES: usize = 4000;

/// Maximum number of preemptions in a PCT schedule.
const PCT_DEPTH: usize = 4;

const THREADS: u64 = 3;

/// Directory: its lock, rows and version.
#[derive(Default)]
struct Model {
    making: Mutex<()>,
    /// Next position, and the existing names.
    rows: Mutex<(u64, Vec<u64>)>,
    version: AtomicU64,
    /// Next position in memory, once the directory was opened.
    node: Mutex<Option<u64>>,
    /// Counts rows published without the core.
    published: AtomicU64,
}

impl Model {
    fn look(&self, name: u64) -> (u64, bool) {
        let node = *self.node.lock();
        let rows = self.rows.lock();
        (node.unwrap_or(rows.0), rows.1.contains(&name))
    }

    /// Models [`Nodes::get`](crate::fs::node::Nodes::get).
    fn open(&self) {
        loop {
            let published = self.published.load(Ordering::SeqCst);
            let next = self.rows.lock().0;
            let mut node = self.node.lock();
            if node.is_some() {
                return;
            }
            if is_broken(Canary::Unlooked) || self.published.load(Ordering::SeqCst) == published {
                *node = Some(next);
                return;
            }
        }
    }

    /// Models [`Nodes::note_published`](crate::fs::node::Nodes::note_published).
    fn note_published(&self, next: u64) {
        let mut node = self.node.lock();
        self.published.fetch_add(1, Ordering::SeqCst);
        if let Some(there) = &mut *node {
            *there = next;
        }
    }

    fn raise(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Models [`Shared::create_or`](crate::fs::core::Shared::create_or). Returns the position of
    /// the created name.
    fn make(&self, name: u64) -> Option<u64> {
        let version = self.version.load(Ordering::SeqCst);
        let seen = self.look(name);
        let _making = self.making.lock();
        let is_same = self.version.load(Ordering::SeqCst) == version;
        let (position, is_there) = if is_same { seen } else { self.look(name) };
        if is_there {
            return None;
        }
        if is_broken(Canary::Early) {
            self.raise();
        }
        {
            let mut rows = self.rows.lock();
            rows.0 = position + 1;
            rows.1.push(name);
        }
        self.note_published(position + 1);
        if !is_broken(Canary::Early) {
            self.raise();
        }
        Some(position)
    }
}

/// Runs threads that each create a common name and one of their own.
fn names() {
    let model = Arc::new(Model::default());
    let makers = (1..=THREADS).map(|own| {
        let model = model.clone();
        spawn(move || [model.make(0), model.make(own)])
    });
    let makers: Vec<_> = makers.collect();
    let opener = {
        let model = model.clone();
        spawn(move || model.open())
    };
    let made = makers.into_iter().map(|maker| maker.join().unwrap());
    let [common, own] = made.fold([Vec::new(), Vec::new()], |[mut common, mut own], [one, other]| {
        common.extend(one);
        own.extend(other);
        [common, own]
    });
    opener.join().unwrap();
    assert_eq!((common.len() as u64, own.len() as u64), (1, THREADS));
    assert_eq!(*model.node.lock(), Some(THREADS + 1), "what is in memory is what is published");
    let mut positions = [common, own].concat();
    positions.sort_unstable();
    assert!(positions.into_iter().eq(0..=THREADS), "each name has a position of its own");
}

fn explore() {
    check_random(names, SCHEDULES / 2);
    check_pct(names, SCHEDULES / 2, PCT_DEPTH);
}

#[test]
fn name_that_threads_make_at_once_is_made_once() {
    explore();
    // On threads of their own, because a failed check leaves state behind.
    for canary in [Canary::Early, Canary::Unlooked] {
        assert!(std::thread::spawn(move || with_canary(canary, explore)).join().is_err(), "{canary:?}");
    }
}
