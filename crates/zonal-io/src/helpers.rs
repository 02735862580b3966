//! Work for helper threads: calls that block, which a device must not make in `submit` and `poll`.

use crate::sync::{Condvar, Mutex};
use std::collections::VecDeque;

/// Queue of jobs in the order in which they were added, for any number of helper threads.
///
/// ```
/// use std::sync::Arc;
/// use zonal_io::{helpers::Jobs, threads};
///
/// let jobs = Arc::new(Jobs::default());
/// let theirs = jobs.clone();
/// let helper = threads::spawn("helper", move || std::iter::from_fn(|| theirs.next()).sum::<u32>())?;
/// jobs.add(1);
/// jobs.add(2);
/// jobs.end();
/// assert_eq!(helper.join().unwrap(), 3);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Jobs<J> {
    state: Mutex<State<J>>,
    added: Condvar,
}

struct State<J> {
    waiting: VecDeque<J>,
    /// No more jobs will be added.
    is_ending: bool,
}

impl<J> Default for Jobs<J> {
    fn default() -> Jobs<J> {
        Jobs {
            state: Mutex::new(State { waiting: VecDeque::new(), is_ending: false }),
            added: Condvar::new(),
        }
    }
}

impl<J> Jobs<J> {
    /// Adds a job and wakes a helper thread.
    pub fn add(&self, job: J) {
        self.state.lock().waiting.push_back(job);
        self.added.notify_one();
    }

    /// Returns the next job, after waiting for one. `None` once there are no more and
    /// [`Jobs::end`] was called.
    pub fn next(&self) -> Option<J> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.waiting.pop_front() {
                return Some(job);
            }
            if state.is_ending {
                return None;
            }
            self.added.wait(&mut state);
        }
    }

    /// True if no job waits for a helper thread.
    pub fn is_empty(&self) -> bool {
        self.state.lock().waiting.is_empty()
    }

    /// Lets the helper threads end once all jobs are done.
    pub fn end(&self) {
        self.state.lock().is_ending = true;
        self.added.notify_all();
    }

    /// Drops the jobs that no thread has begun.
    pub fn discard(&self) {
        self.state.lock().waiting.clear();
    }
}
