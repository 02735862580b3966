//! Locks of the file system that a thread has. Counts reads of the drive under them, and checks their order.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// The locks, in the order in which a thread takes them. It never takes a lock that comes before another that it
/// has, nor a second of one kind. Builds with debug assertions check that, and so do all tests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Rank {
    /// Of all names: shared by threads that make some, or of a thread that changes any.
    Names,
    /// Of a directory, whose names are made.
    Directory,
    /// Of the core.
    Core,
    /// Of a file in memory.
    File,
    /// Of the space.
    Space,
    /// Of the units in flight.
    Units,
    /// Of parts of the layers of rows.
    Rows,
    /// Of extents in memory.
    Extents,
    /// Of what the changes of rows come to.
    Counts,
}

/// While a thread has a lock up to this one it reads no row from the drive.
const LAST_WITHOUT_READS: Rank = Rank::Core;

thread_local! {
    /// Locks of each rank that the thread has, in four bits each.
    static HELD: Cell<u64> = const { Cell::new(0) };
}

/// The thread has a lock until this is dropped. It stays in its thread.
#[derive(Debug)]
pub(crate) struct Locked(Rank, PhantomData<*const ()>);

impl Locked {
    /// A thread is about to take a lock.
    ///
    /// # Panics
    /// With debug assertions, if it has a later lock.
    pub(crate) fn begin(rank: Rank) -> Locked {
        if is_noted(rank) {
            let held = HELD.get();
            debug_assert!(
                held < one(rank),
                "{rank:?} comes before a lock that the thread has, or is one: {held:x}"
            );
            HELD.set(held + one(rank));
        }
        Locked(rank, PhantomData)
    }

    /// True if the calling thread has a lock under which it reads no row from the drive.
    pub(crate) fn is_held() -> bool {
        HELD.get() & (one(LAST_WITHOUT_READS) * 0x10 - 1) != 0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if is_noted(self.0) {
            HELD.set(HELD.get() - one(self.0));
        }
    }
}

/// A lock of a rank among those that a thread has.
const fn one(rank: Rank) -> u64 {
    1 << (4 * rank as u64)
}

/// True if a lock of this rank is noted: always where reads under it are counted, and for the order only where that is checked.
fn is_noted(rank: Rank) -> bool {
    cfg!(debug_assertions) || rank <= LAST_WITHOUT_READS
}

/// A guard of a lock that has a rank.
#[derive(Debug)]
pub(crate) struct InOrder<G> {
    guard: G,
    _locked: Locked,
}

impl<G> InOrder<G> {
    /// Takes a lock.
    pub(crate) fn lock(rank: Rank, lock: impl FnOnce() -> G) -> InOrder<G> {
        let locked = Locked::begin(rank);
        InOrder { guard: lock(), _locked: locked }
    }

    /// A part of what the guard guards.
    pub(crate) fn map<H>(self, part: impl FnOnce(G) -> H) -> InOrder<H> {
        let InOrder { guard, _locked } = self;
        InOrder { guard: part(guard), _locked }
    }

    /// Like `map`, or `None` if `part` returns that.
    pub(crate) fn filter_map<H>(self, part: impl FnOnce(G) -> Option<H>) -> Option<InOrder<H>> {
        let InOrder { guard, _locked } = self;
        part(guard).map(|guard| InOrder { guard, _locked })
    }

    /// The guard itself.
    pub(crate) fn guard_mut(&mut self) -> &mut G {
        &mut self.guard
    }
}

impl<G: Deref> Deref for InOrder<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for InOrder<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_in_their_order_are_counted_and_left() {
        let names = Locked::begin(Rank::Names);
        let core = Locked::begin(Rank::Core);
        let file = Locked::begin(Rank::File);
        drop((core, file));
        assert!(Locked::is_held());
        drop(Locked::begin(Rank::Directory));
        drop(names);
        assert!(!Locked::is_held());
        let rows = Locked::begin(Rank::Rows);
        assert!(!Locked::is_held());
        drop(rows);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "Core comes before a lock that the thread has")]
    fn lock_out_of_its_order_is_found() {
        let _file = Locked::begin(Rank::File);
        let _core = Locked::begin(Rank::Core);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "File comes before a lock that the thread has")]
    fn second_lock_of_a_kind_is_found() {
        let _one = Locked::begin(Rank::File);
        let _other = Locked::begin(Rank::File);
    }
}
