//! Which threads have the file system's lock, so that reads of the drive under it can be counted.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    /// Locks that the thread has.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// The thread has the lock until this is dropped. It stays in its thread.
#[derive(Debug)]
pub(crate) struct Locked(PhantomData<*const ()>);

impl Locked {
    pub(crate) fn begin() -> Locked {
        HELD.set(HELD.get() + 1);
        Locked(PhantomData)
    }

    /// Whether the calling thread has the lock.
    pub(crate) fn is_held() -> bool {
        HELD.get() > 0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
    }
}
