//! Work on a volume, posted by other threads to the thread that drives its time.
//!
//! A run in virtual time is one thread, which passes the time to the volume. If another thread
//! acted on the volume, this would happen at an undefined time, between two steps of one call. So
//! it posts an errand instead, which the run's thread executes between two polls.
//!
//! While no run attends, posted errands are executed by the posting thread. It holds the lock
//! meanwhile, so no run can begin.

use crate::sync::{Arc, AtomicBool, Mutex, Ordering};

/// A piece of work.
type Errand = Box<dyn FnOnce() + Send>;

/// Errands for the thread that runs a volume. Clones share one list.
#[derive(Clone, Default)]
pub struct Errands(Arc<Posted>);

#[derive(Default)]
struct Posted {
    /// Usually the only field read by an attending thread.
    has_any: AtomicBool,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    is_attended: bool,
    errands: Vec<Errand>,
}

impl Errands {
    /// Makes the caller execute the errands until it drops the returned value.
    pub fn attend(&self) -> ErrandGuard {
        self.0.list.lock().is_attended = true;
        ErrandGuard(self.clone())
    }

    /// Posts an errand for the attending thread. If there is none, it is executed before this
    /// returns.
    pub fn post(&self, errand: impl FnOnce() + Send + 'static) {
        self.0.list.lock().errands.push(Box::new(errand));
        self.0.has_any.store(true, Ordering::Release);
        self.do_unless_attended(|| {});
    }

    /// Executes posted errands, then `last`, unless a thread attends.
    pub fn do_unless_attended(&self, last: impl FnOnce()) {
        let mut list = self.0.list.lock();
        if !list.is_attended {
            list.errands.drain(..).for_each(|errand| errand());
            last();
        }
    }

    /// Withdraws errands that have not been started.
    pub fn withdraw(&self) {
        self.0.list.lock().errands.clear();
    }
}

impl std::fmt::Debug for Errands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Errands").finish_non_exhaustive()
    }
}

/// Held by the thread that executes the errands.
#[derive(Debug)]
pub struct ErrandGuard(Errands);

impl ErrandGuard {
    /// Executes posted errands.
    #[inline]
    pub fn run_pending(&self) {
        if self.0.0.has_any.load(Ordering::Relaxed) {
            self.work();
        }
    }

    #[cold]
    fn work(&self) {
        let errands = {
            let mut list = self.0.0.list.lock();
            self.0.0.has_any.store(false, Ordering::Relaxed);
            std::mem::take(&mut list.errands)
        };
        errands.into_iter().for_each(|errand| errand());
    }
}

impl Drop for ErrandGuard {
    fn drop(&mut self) {
        self.0.0.list.lock().is_attended = false;
    }
}
