//! What other threads ask of a volume while one thread alone knows its time.
//!
//! A run in virtual time is one thread, which tells the volume what the time is. What another thread did to the volume meanwhile
//! would happen at no time, between two steps of the same call. So the other thread posts what is to be done. The thread
//! of the run does it between two of its polls, and the next poll continues in the run's time.
//!
//! While no run attends, the poster does its errand. Both hold the lock then, so that no run begins meanwhile.

use crate::sync::{Arc, AtomicBool, Mutex, Ordering};

/// Something to be done.
type Errand = Box<dyn FnOnce() + Send>;

/// Errands for the thread that runs a volume. Clones are the same list.
#[derive(Clone, Default)]
pub struct Errands(Arc<Posted>);

#[derive(Default)]
struct Posted {
    /// A thread that attends looks at this alone most of the time.
    has_any: AtomicBool,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    is_attended: bool,
    errands: Vec<Errand>,
}

impl Errands {
    /// From now on the caller does the errands, until it drops what it gets.
    pub fn attend(&self) -> Attendance {
        self.0.list.lock().is_attended = true;
        Attendance(self.clone())
    }

    /// Leaves an errand for the thread that attends. If there is none, it is done before this returns.
    pub fn post(&self, errand: impl FnOnce() + Send + 'static) {
        self.0.list.lock().errands.push(Box::new(errand));
        self.0.has_any.store(true, Ordering::Release);
        self.do_unless_attended(|| {});
    }

    /// Does what is posted, and then `last`, unless a thread attends.
    pub fn do_unless_attended(&self, last: impl FnOnce()) {
        let mut list = self.0.list.lock();
        if !list.is_attended {
            list.errands.drain(..).for_each(|errand| errand());
            last();
        }
    }

    /// Takes back what no thread has begun.
    pub fn withdraw(&self) {
        self.0.list.lock().errands.clear();
    }
}

impl std::fmt::Debug for Errands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Errands").finish_non_exhaustive()
    }
}

/// That a thread does the errands.
#[derive(Debug)]
pub struct Attendance(Errands);

impl Attendance {
    /// Does what was posted.
    #[inline]
    pub fn look(&self) {
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

impl Drop for Attendance {
    fn drop(&mut self) {
        self.0.0.list.lock().is_attended = false;
    }
}
