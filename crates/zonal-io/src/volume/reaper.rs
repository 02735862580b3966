//! Assignment of the device's queues to polls.
//!
//! A thread submits its commands to one queue, its own, which each of its polls reaps. Processing a
//! completion touches the zone, the queue and the requests of the submitter, so reaping another
//! thread's queue moves all these cache lines to another processor. Two threads that reaped all
//! queues in turn reached 0.25 of the rate of two volumes.
//!
//! A submitter may end or sleep with commands at the device. A poll that has found nothing
//! therefore also looks at one other queue, in rotation, and reaps it if it holds commands and no
//! thread has started to reap it for [`STANDING`]. A thread that always finds something in its own
//! queue looks at another one once in [`BUSY_POLLS`] polls.
//!
//! Several threads may share a queue. A thread that sees another one reaping the queue holds back a
//! few times, and finds its completions delivered. If the other thread was preempted, or is in a
//! slow completion function, both reap.
//!
//! A device in virtual time is driven by one thread, which reaps all queues in each poll: it would
//! find completions of other queues late, and the time is not a thread's own. Its own queue is the
//! first, whichever thread it is, so that runs can be repeated.
//!
//! All of this is hints, not locking, since the device protects its queues. No atomic
//! read-modify-write operations are needed.

use super::{Progress, Volume, earliest};
use crate::sync::{AtomicUsize, CachePadded, IS_MODEL, Ordering, PlainU32, PlainU64, local, thread_slot};
use std::cell::Cell;
use zonal_core::Nanos;

/// Maximum of consecutive times that a thread holds back.
const PATIENCE: u32 = if IS_MODEL { 1 } else { 32 };

/// Spin iterations each time: in total some microseconds, the duration of one turn.
const SPINS: u32 = 16;

/// Time without reaping after which other threads reap a queue with commands, in nanoseconds. Much
/// longer than a thread's interval between polls, and no longer than the cost of waking a sleeper.
const STANDING: u64 = 50_000;

/// Consecutive polls without result after which the time limit is ignored, since the clock may
/// stand still. They take about as long.
const FRUITLESS_POLLS: u32 = if IS_MODEL { 2 } else { 1 << 10 };

/// Polls with a result after which another queue is checked nevertheless.
const BUSY_POLLS: u32 = if IS_MODEL { 2 } else { 32 };

local! {
    /// Times this thread has held back since it last reaped.
    static HELD_BACK: Cell<u32> = const { Cell::new(0) };
}

/// No thread reaps the queue.
const NO_THREAD: usize = 0;

/// No deadline.
const NEVER: u64 = u64::MAX;

/// State of the device's queues as seen by a volume's polls.
pub(super) struct Reapers {
    queues: Box<[CachePadded<Queue>]>,
    /// A single thread drives the device.
    virtual_time: bool,
}

struct Queue {
    /// Last thread that started to reap the queue, unless it has finished.
    reaper: AtomicUsize,
    /// Time at which it started.
    reaped_at: PlainU64,
    watch: Watch,
}

/// Position of a queue's threads in their rotation over the other queues. Written without atomic
/// read-modify-write: an update lost in a race is made up by later polls.
struct Watch {
    /// Other queues checked in this rotation.
    looks: PlainU32,
    /// Their earliest deadline, or [`NEVER`].
    due: PlainU64,
    /// Consecutive polls without result.
    fruitless: PlainU32,
    /// Polls with a result since the last check.
    busy: PlainU32,
}

impl Reapers {
    pub(super) fn new(queues: usize, virtual_time: bool) -> Reapers {
        let queue = || Queue {
            reaper: AtomicUsize::new(NO_THREAD),
            reaped_at: PlainU64::new(0),
            watch: Watch {
                looks: PlainU32::new(0),
                due: PlainU64::new(NEVER),
                fruitless: PlainU32::new(0),
                busy: PlainU32::new(0),
            },
        };
        Reapers { queues: (0..queues).map(|_| CachePadded::new(queue())).collect(), virtual_time }
    }

    /// Queue of the calling thread, to which it submits and which its polls reap.
    #[inline]
    pub(super) fn own(&self) -> usize {
        match self.queues.len() {
            1 => 0,
            _ if self.virtual_time => 0,
            n => thread_slot() % n,
        }
    }

    /// True if the calling thread should reap `queue` now; it then has to call [`Reapers::end`].
    #[inline]
    fn begin(&self, now: Nanos, queue: usize) -> bool {
        let Queue { reaper, reaped_at, .. } = &*self.queues[queue];
        let other = reaper.load(Ordering::Relaxed);
        // A completion function may poll recursively.
        if other != NO_THREAD && other != me() && hold_back() {
            return false;
        }
        reaper.store(me(), Ordering::Relaxed);
        reaped_at.store(now.0, Ordering::Relaxed);
        true
    }

    #[inline]
    fn end(&self, queue: usize) {
        let reaper = &self.queues[queue].reaper;
        // A thread that started later is still reaping.
        if reaper.load(Ordering::Relaxed) == me() {
            reaper.store(NO_THREAD, Ordering::Relaxed);
        }
    }

    /// True if a poll of its own queue with this result should also check another queue.
    #[inline]
    fn should_check_other(&self, own: usize, progress: Progress) -> bool {
        let Watch { fruitless, busy, .. } = &self.queues[own].watch;
        match progress {
            Progress::None => {
                fruitless.store(fruitless.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
                true
            }
            Progress::Some => {
                fruitless.store(0, Ordering::Relaxed);
                let polls = busy.load(Ordering::Relaxed) + 1;
                let is_over = polls >= BUSY_POLLS;
                busy.store(if is_over { 0 } else { polls }, Ordering::Relaxed);
                is_over
            }
        }
    }
}

impl Volume {
    /// Reaps the calling thread's queue, and if necessary one of the others.
    #[inline]
    pub(super) fn reap_queues(&self, now: Nanos, progress: &mut Progress, deadline: &mut Option<Nanos>) {
        let own = self.reapers.own();
        *deadline = earliest(*deadline, self.reap_one(now, own, progress));
        if self.terms.info.queues == 1 {
            return;
        }
        if self.reapers.virtual_time {
            for queue in own + 1..self.terms.info.queues {
                *deadline = earliest(*deadline, self.reap_one(now, queue, progress));
            }
        } else if self.reapers.should_check_other(own, *progress) {
            *deadline = earliest(*deadline, self.check_other_queue(now, own, progress));
        }
    }

    #[inline]
    fn reap_one(&self, now: Nanos, queue: usize, progress: &mut Progress) -> Option<Nanos> {
        if !self.reapers.begin(now, queue) {
            return Some(now);
        }
        let due = self.reap(now, queue, progress);
        self.reapers.end(queue);
        due
    }

    /// Checks one queue of other threads, and reaps it if they do not. Returns the time of the next
    /// check: at once until the rotation is complete, then the earliest deadline of any of these
    /// queues.
    fn check_other_queue(&self, now: Nanos, own: usize, progress: &mut Progress) -> Option<Nanos> {
        let others = self.terms.info.queues - 1;
        let Watch { looks, due, fruitless, .. } = &self.reapers.queues[own].watch;
        let look = looks.load(Ordering::Relaxed) as usize % others;
        let other = (own + 1 + look) % self.terms.info.queues;
        if !self.device.is_idle(other) {
            let standing =
                self.reapers.queues[other].reaped_at.load(Ordering::Relaxed).saturating_add(STANDING);
            let is_left = now.0 >= standing || fruitless.load(Ordering::Relaxed) >= FRUITLESS_POLLS;
            let its = if is_left { self.reap_one(now, other, progress) } else { Some(Nanos(standing)) };
            if let Some(its) = its {
                due.store(due.load(Ordering::Relaxed).min(its.0), Ordering::Relaxed);
            }
        }
        if look + 1 < others {
            looks.store(look as u32 + 1, Ordering::Relaxed);
            return Some(now);
        }
        looks.store(0, Ordering::Relaxed);
        let first = due.load(Ordering::Relaxed).min(self.next_standing(own));
        due.store(NEVER, Ordering::Relaxed);
        Some(Nanos(first)).filter(|_| first != NEVER)
    }

    /// Time to check another queue with news that no poll has seen, or [`NEVER`]. Scans all queues
    /// at once: news that arrived after their check in this rotation, before this thread armed,
    /// woke no thread.
    fn next_standing(&self, own: usize) -> u64 {
        let has_news =
            |other: &usize| *other != own && !self.device.is_idle(*other) && self.device.has_news(*other);
        let standing = |other: usize| {
            self.reapers.queues[other].reaped_at.load(Ordering::Relaxed).saturating_add(STANDING)
        };
        (0..self.terms.info.queues).filter(has_news).map(standing).min().unwrap_or(NEVER)
    }
}

#[inline]
fn me() -> usize {
    thread_slot() + 1
}

#[cold]
fn hold_back() -> bool {
    let times = HELD_BACK.get();
    if times == PATIENCE {
        HELD_BACK.set(0);
        return false;
    }
    HELD_BACK.set(times + 1);
    (0..SPINS).for_each(|_| std::hint::spin_loop());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::IoBuf;
    use crate::device::Device;
    use crate::emulated::{CompleteMode, Emulated, EmulatedOptions, Null};
    use crate::sync::{Arc, AtomicBool};
    use crate::volume::{Request, Volume, VolumeOptions};
    use std::sync::mpsc;
    use zonal_core::{Nanos, Sector};

    fn polled() -> Volume {
        let options = EmulatedOptions { size: 1 << 30, complete: CompleteMode::Poll, ..Default::default() };
        let device: Arc<dyn Device> = Arc::new(Emulated::new("null", &options, Null).unwrap());
        Volume::open(device, VolumeOptions::default()).unwrap()
    }

    #[test]
    fn reaper_in_a_queue_others_hold_back_for_a_while() {
        let reapers = Arc::new(Reapers::new(1, false));
        assert!(reapers.begin(Nanos(0), 0));
        assert!(reapers.begin(Nanos(0), 0), "from a completion function");
        std::thread::scope(|s| {
            s.spawn(|| {
                assert!((0..PATIENCE).all(|_| !reapers.begin(Nanos(0), 0)));
                assert!(reapers.begin(Nanos(0), 0));
            });
        });
        reapers.end(0);
        assert!(!reapers.begin(Nanos(0), 0), "the other is still at it");
    }

    fn two_queues() -> Volume {
        let options = EmulatedOptions {
            size: 1 << 30,
            complete: CompleteMode::Poll,
            submit_queues: 2,
            ..Default::default()
        };
        let device: Arc<dyn Device> = Arc::new(Emulated::new("null", &options, Null).unwrap());
        Volume::open(device, VolumeOptions::default()).unwrap()
    }

    /// Runs `work` on a thread of this queue. Threads of other queues live until then, so that
    /// their numbers are not reused.
    fn on_queue(volume: &Volume, queue: usize, work: &(dyn Fn() + Sync)) {
        let run = || match volume.reapers.own() == queue {
            true => work(),
            false => on_queue(volume, queue, work),
        };
        std::thread::scope(|s| s.spawn(run).join().unwrap());
    }

    /// Submits three writes to one zone on a thread of the second queue, which then ends. Returns
    /// the count of completed ones.
    fn leave_behind(volume: &Volume) -> Arc<AtomicUsize> {
        let done = Arc::new(AtomicUsize::new(0));
        on_queue(volume, 1, &|| {
            let counted = done.clone();
            let channel = volume.channel(move |c| {
                assert!(c.result.is_ok(), "{:?}", c.result);
                counted.fetch_add(1, Ordering::Relaxed);
            });
            for _ in 0..3 {
                let append = Request::append(Sector(0), 8, IoBuf::zeroed(4096));
                volume.submit(Nanos(0), &channel, append);
            }
        });
        done
    }

    #[test]
    fn commands_of_a_thread_that_left_are_reaped_after_a_while() {
        let volume = two_queues();
        let done = leave_behind(&volume);
        let count = || done.load(Ordering::Relaxed);
        on_queue(&volume, 0, &|| {
            let mut now = Nanos(STANDING - 1);
            assert_eq!(volume.poll(now), Some(Nanos(STANDING)));
            assert_eq!(count(), 0, "their thread may poll");
            for _ in 0..10 {
                let Some(due) = volume.poll(now) else { break };
                now = now.max(due);
            }
            assert_eq!(count(), 3);
            assert!(now.0 < 4 * STANDING, "{now:?}");
            assert_eq!(volume.poll(now), None, "all queues are empty");
        });
    }

    #[test]
    fn commands_of_a_thread_that_left_are_reaped_while_time_stands() {
        let volume = two_queues();
        let done = leave_behind(&volume);
        on_queue(&volume, 0, &|| {
            (0..3 * FRUITLESS_POLLS).for_each(|_| _ = volume.poll(Nanos(0)));
        });
        assert_eq!(done.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn commands_of_a_thread_that_left_are_reaped_by_a_busy_thread() {
        let volume = two_queues();
        let done = leave_behind(&volume);
        on_queue(&volume, 0, &|| {
            let channel = volume.channel(|_| {});
            for poll in 0..4 * u64::from(BUSY_POLLS) {
                volume.submit(Nanos(0), &channel, Request::report(Sector(0), 1));
                volume.poll(Nanos(STANDING + poll * STANDING));
            }
        });
        assert_eq!(done.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn queue_polled_by_its_own_thread_is_not_reaped_by_others() {
        let volume = two_queues();
        let done = leave_behind(&volume);
        assert!(volume.reapers.begin(Nanos(1000), 1));
        volume.reapers.end(1);
        on_queue(&volume, 0, &|| {
            for _ in 0..FRUITLESS_POLLS / 2 {
                assert_eq!(volume.poll(Nanos(STANDING)), Some(Nanos(1000 + STANDING)));
            }
        });
        assert_eq!(done.load(Ordering::Relaxed), 0);
    }

    /// The reaper stays in a completion function until the other thread is done.
    #[test]
    fn blocked_reaper_does_not_hold_back_completions_of_other_threads() {
        let volume = polled();
        let (held, is_held) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = crate::sync::Mutex::new(released);
        std::thread::scope(|s| {
            s.spawn(|| {
                let channel = volume.channel(move |_| {
                    held.send(()).unwrap();
                    released.lock().recv().unwrap();
                });
                volume.submit(Nanos(0), &channel, Request::report(Sector(0), 1));
                volume.poll(Nanos(0));
            });
            is_held.recv().unwrap();
            let done = Arc::new(AtomicBool::new(false));
            let set = done.clone();
            let channel = volume.channel(move |_| set.store(true, Ordering::Relaxed));
            volume.submit(Nanos(0), &channel, Request::report(Sector(0), 1));
            let polls = (0..2 * PATIENCE).find(|_| {
                volume.poll(Nanos(0));
                done.load(Ordering::Relaxed)
            });
            release.send(()).unwrap();
            assert!(polls.is_some(), "held back for ever");
        });
    }
}
