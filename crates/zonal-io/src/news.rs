//! News: how a thread sleeps until a poll would bring something.
//!
//! A poll finds work for three reasons: a device has an answer, another thread left work behind, or a time has come. The
//! poll itself returns the time. The other two *ring*: a descriptor becomes readable, on which a thread or its event loop
//! sleeps. A ring costs one load while no thread sleeps, and one write of the descriptor while one does.
//!
//! # Contract
//! Arm, look once more, sleep. A thread arms its [`News`], then polls until the poll returns a time in the future or none,
//! then sleeps on the descriptor until that time, and disarms. What came before it armed, the poll finds; what comes later
//! rings. A thread may wake up for nothing.
//!
//! # Queues
//! Each queue of a device has a descriptor of its own, for the threads that reap it. A ring for a queue whose threads are
//! awake wakes no other thread, with one exception: a submitter may have left. So it wakes one thread of another queue. That
//! thread is a looker from its next sleep on: it sleeps for a millisecond at most, and while it does, queues without sleepers
//! ring for no thread. A looker that leaves, or finds that such a queue has rung, hands that on.
//!
//! # Devices of devices
//! A wrapper passes on the [`Wakeups`] of its device. What joins several devices has its own, and arms theirs.

use crate::sync::{Arc, AtomicBool, AtomicUsize, CachePadded, IS_MODEL, Mutex, Ordering, fence};
use std::sync::Weak;
use std::time::Duration;

#[cfg(any(feature = "loom", feature = "shuttle"))]
use modelled as signal;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
use real as signal;
use signal::Signal;

/// How long a queue's commands may stand, if their submitter has left, before a sleeping thread looks at them.
pub(crate) const LEFT: Duration = Duration::from_millis(1);

/// Wakes the threads that sleep until a device, or what stands above it, has news. Handles of one object.
#[derive(Clone)]
pub struct Wakeups(Arc<Shared>);

struct Shared {
    /// Armed handles of all queues, those of what joins this one included: the one thing that a ring reads while no thread
    /// sleeps.
    sleepers: AtomicUsize,
    /// A ring for a queue without sleepers has woken a thread of another one: threads that arm are lookers, which sleep for
    /// [`LEFT`] at most.
    wants_lookers: AtomicBool,
    /// Armed lookers.
    lookers: AtomicUsize,
    /// A queue without sleepers has rung while there were lookers, who were not woken for it.
    is_owed: AtomicBool,
    bells: Box<[CachePadded<Bell>]>,
    /// Armed together with this one.
    children: Box<[Wakeups]>,
    /// What joins this one, and rings when it does.
    parents: Mutex<Vec<Weak<Shared>>>,
}

#[derive(Default)]
struct Bell {
    /// Armed handles of this queue, those of parents included.
    sleepers: AtomicUsize,
    /// Armed handles of this object that are lookers.
    lookers: AtomicUsize,
    state: Mutex<State>,
    signal: Signal,
}

#[derive(Default)]
struct State {
    /// Armed handles of this object alone.
    armed: u32,
    /// The signal was given, and a handle that was armed then still is.
    is_rung: bool,
}

impl Wakeups {
    /// The wake-ups of a device with `queues` queues.
    pub fn new(queues: usize) -> Wakeups {
        Wakeups::joining(queues, [])
    }

    /// The wake-ups of a device with `queues` queues that is made of others: it rings when one of `children` does.
    pub fn joining(queues: usize, children: impl IntoIterator<Item = Wakeups>) -> Wakeups {
        let shared = Arc::new(Shared {
            sleepers: AtomicUsize::new(0),
            wants_lookers: AtomicBool::new(false),
            lookers: AtomicUsize::new(0),
            is_owed: AtomicBool::new(false),
            bells: (0..queues).map(|_| CachePadded::default()).collect(),
            children: children.into_iter().collect(),
            parents: Mutex::default(),
        });
        for child in &shared.children {
            child.0.parents.lock().push(Arc::downgrade(&shared));
        }
        Wakeups(shared)
    }

    /// A handle for a thread of `queue`.
    ///
    /// # Errors
    /// The operating system's, if it gives no descriptor.
    ///
    /// # Panics
    /// If there is no such queue.
    pub fn news(&self, queue: usize) -> std::io::Result<News> {
        self.0.bells[queue].signal.open()?;
        Ok(News { wakeups: self.clone(), queue, is_armed: false, is_looker: false })
    }

    /// `queue` has news. For who has published them under a lock that [`has_news`](crate::device::Device::has_news) takes
    /// too.
    #[inline]
    pub fn ring(&self, queue: usize) {
        if self.0.sleepers.load(Ordering::Relaxed) > 0 {
            self.ring_queue(queue);
        }
    }

    #[cold]
    fn ring_queue(&self, queue: usize) {
        let shared = &*self.0;
        if shared.bells[queue].sleepers.load(Ordering::Acquire) > 0 {
            return shared.ring(queue);
        }
        if shared.lookers.load(Ordering::SeqCst) > 0 {
            shared.is_owed.store(true, Ordering::SeqCst);
            // Those that are still there look soon. The last of them that has gone meanwhile has seen what is owed, or has not,
            // and then this sees that it has gone.
            if shared.lookers.load(Ordering::SeqCst) > 0 {
                return;
            }
        }
        shared.wants_lookers.store(true, Ordering::SeqCst);
        shared.ring_any();
    }

    /// Whether threads of `queue` have to look at the others soon, whatever their poll says.
    #[inline]
    pub(crate) fn has_lookers(&self, queue: usize) -> bool {
        self.0.lookers.load(Ordering::Relaxed) > 0
            && self.0.bells.get(queue).is_some_and(|bell| bell.lookers.load(Ordering::Relaxed) > 0)
    }

    /// Any thread that sleeps is to look, whatever its queue is: for news published without a lock.
    #[inline]
    pub fn ring_all(&self) {
        // A thread arms before it looks, and news are published before this: one of the two sees the other.
        fence(Ordering::SeqCst);
        if self.0.sleepers.load(Ordering::Relaxed) > 0 {
            (0..self.0.bells.len()).for_each(|queue| self.0.ring(queue));
        }
    }

    /// The thread with this number is to look: what it waits for has come.
    #[cold]
    pub(crate) fn ring_one(&self, thread: usize) {
        self.0.ring(thread % self.0.bells.len());
    }

    /// Whether a thread sleeps, or is about to.
    #[inline]
    pub(crate) fn has_sleepers(&self) -> bool {
        self.0.sleepers.load(Ordering::Relaxed) > 0
    }

    /// Sleeps until `queue` rings, or for `timeout`, unless `has_news`, which is asked once a ring would be heard.
    pub fn sleep(&self, queue: usize, timeout: Duration, has_news: impl FnOnce() -> bool) {
        match self.news(queue) {
            Ok(mut news) => {
                news.arm();
                if !has_news() {
                    news.sleep(if news.is_looker { timeout.min(LEFT) } else { timeout });
                }
            }
            // Without a descriptor there is nothing to hear: look again soon.
            Err(_) => std::thread::sleep(timeout.min(LEFT)),
        }
    }
}

impl Shared {
    /// Wakes a thread of any queue.
    fn ring_any(&self) {
        let other = self.bells.iter().position(|bell| bell.sleepers.load(Ordering::Acquire) > 0);
        other.into_iter().for_each(|other| self.ring(other));
    }

    /// A handle of `queue` is armed; whether as a looker. In a model no sleep ends by its time, so none is.
    fn begin_look(&self, queue: usize) -> bool {
        let is_looker = !IS_MODEL && self.bells.len() > 1 && self.wants_lookers.load(Ordering::SeqCst);
        if is_looker {
            self.bells[queue].lookers.fetch_add(1, Ordering::SeqCst);
            self.lookers.fetch_add(1, Ordering::SeqCst);
        }
        is_looker
    }

    /// The thread of a looker is awake, and may never look again: what is owed goes to another one.
    fn end_look(&self, queue: usize) {
        self.bells[queue].lookers.fetch_sub(1, Ordering::SeqCst);
        if self.lookers.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        match self.is_owed.swap(false, Ordering::SeqCst) {
            true => self.ring_any(),
            false => self.wants_lookers.store(false, Ordering::SeqCst),
        }
    }

    /// Gives the signal to the threads that sleep for `queue`.
    fn ring(&self, queue: usize) {
        let Some(bell) = self.bells.get(queue) else { return };
        if bell.sleepers.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut state = bell.state.lock();
        if state.armed > 0 && !state.is_rung {
            state.is_rung = true;
            bell.signal.give();
        }
        drop(state);
        let parents: Vec<_> = self.parents.lock().iter().filter_map(Weak::upgrade).collect();
        parents.into_iter().for_each(|parent| parent.ring(queue));
    }

    fn arm(&self, queue: usize) {
        if let Some(bell) = self.bells.get(queue) {
            bell.sleepers.fetch_add(1, Ordering::SeqCst);
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        self.children.iter().for_each(|child| child.0.arm(queue));
    }

    fn disarm(&self, queue: usize) {
        self.children.iter().for_each(|child| child.0.disarm(queue));
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        if let Some(bell) = self.bells.get(queue) {
            bell.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let me: *const Shared = self;
        for child in &self.children {
            child.0.parents.lock().retain(|parent| !std::ptr::eq(parent.as_ptr(), me));
        }
    }
}

/// A thread's handle: a descriptor that is readable when its next poll would bring something. See the module for the
/// contract.
///
/// For the queue of the thread that made it. Several handles of one queue share the descriptor.
pub struct News {
    wakeups: Wakeups,
    queue: usize,
    is_armed: bool,
    is_looker: bool,
}

impl News {
    fn bell(&self) -> &Bell {
        &self.wakeups.0.bells[self.queue]
    }

    /// From here on news ring. The caller polls once more before it sleeps.
    pub fn arm(&mut self) {
        if !std::mem::replace(&mut self.is_armed, true) {
            self.bell().state.lock().armed += 1;
            self.wakeups.0.arm(self.queue);
            self.is_looker = self.wakeups.0.begin_look(self.queue);
            fence(Ordering::SeqCst);
        }
    }

    /// The thread is awake: from here on it polls, and news do not ring for it.
    pub fn disarm(&mut self) {
        if !std::mem::replace(&mut self.is_armed, false) {
            return;
        }
        self.wakeups.0.disarm(self.queue);
        if std::mem::take(&mut self.is_looker) {
            self.wakeups.0.end_look(self.queue);
        }
        let bell = self.bell();
        let mut state = bell.state.lock();
        state.armed -= 1;
        // Others that heard it as well have to wake up first.
        if state.armed == 0 && std::mem::replace(&mut state.is_rung, false) {
            bell.signal.take_back();
        }
    }

    /// Sleeps until there are news, or for `timeout`. A thread without an event loop calls it instead of one.
    pub fn sleep(&self, timeout: Duration) {
        self.bell().signal.wait(&self.bell().state, |state| state.is_rung, timeout);
    }
}

impl Drop for News {
    fn drop(&mut self) {
        self.disarm();
    }
}

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
impl std::os::fd::AsFd for News {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.bell().signal.descriptor()
    }
}

/// The signal that ships: an event descriptor of the kernel.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod real {
    use super::{Mutex, State};
    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::sync::OnceLock;
    use std::time::Duration;

    #[derive(Default)]
    pub(super) struct Signal(OnceLock<OwnedFd>);

    impl Signal {
        pub(super) fn open(&self) -> std::io::Result<()> {
            if self.0.get().is_none() {
                let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                // Another thread may have been faster: its descriptor is as good.
                let _ = self.0.set(descriptor);
            }
            Ok(())
        }

        pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
            self.0.get().expect("a handle has opened it").as_fd()
        }

        pub(super) fn give(&self) {
            // It fails only where it is readable already.
            let _ = rustix::io::write(self.descriptor(), &1u64.to_ne_bytes());
        }

        pub(super) fn take_back(&self) {
            let _ = rustix::io::read(self.descriptor(), &mut [0; 8]);
        }

        pub(super) fn wait(&self, _: &Mutex<State>, _: impl Fn(&State) -> bool, timeout: Duration) {
            // Longer than any thread lives is for ever.
            let timeout = Timespec::try_from(timeout).ok();
            let descriptor = self.descriptor();
            // An interruption is a wake-up for nothing.
            let _ = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], timeout.as_ref());
        }
    }
}

/// The same for a model, which knows no kernel.
#[cfg(any(feature = "loom", feature = "shuttle"))]
mod modelled {
    use super::{Mutex, State};
    use crate::sync::Condvar;
    use std::time::Duration;

    #[derive(Default)]
    pub(super) struct Signal(Condvar);

    impl Signal {
        pub(super) fn open(&self) -> std::io::Result<()> {
            Ok(())
        }

        pub(super) fn give(&self) {
            self.0.notify_all();
        }

        pub(super) fn take_back(&self) {}

        pub(super) fn wait(&self, state: &Mutex<State>, is_over: impl Fn(&State) -> bool, timeout: Duration) {
            let mut state = state.lock();
            if !is_over(&state) {
                self.0.wait_for(&mut state, timeout);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(20);

    fn is_ringing(news: &News) -> bool {
        let begin = Instant::now();
        news.sleep(Duration::from_millis(1));
        let is_readable = begin.elapsed() < Duration::from_millis(1);
        assert_eq!(is_readable, news.bell().state.lock().is_rung);
        is_readable
    }

    #[test]
    fn ring_before_arming_is_not_heard_after_it_is() {
        let wakeups = Wakeups::new(1);
        let mut news = wakeups.news(0).unwrap();
        wakeups.ring(0);
        news.arm();
        assert!(!is_ringing(&news));
        wakeups.ring(0);
        assert!(is_ringing(&news));
        news.disarm();
        news.arm();
        assert!(!is_ringing(&news), "the signal was taken back");
    }

    #[test]
    fn ring_with_two_handles_stays_until_both_have_disarmed() {
        let wakeups = Wakeups::new(1);
        let [mut one, mut other] = [wakeups.news(0).unwrap(), wakeups.news(0).unwrap()];
        one.arm();
        other.arm();
        wakeups.ring_all();
        one.disarm();
        one.arm();
        assert!(is_ringing(&other));
        one.disarm();
        other.disarm();
        one.arm();
        assert!(!is_ringing(&one));
    }

    #[test]
    fn looker_is_not_woken_and_hands_on_what_it_is_owed() {
        let wakeups = Wakeups::new(3);
        let [mut looker, mut sleeper] = [0, 1].map(|queue| wakeups.news(queue).unwrap());
        sleeper.arm();
        looker.arm();
        wakeups.ring(2);
        assert!(is_ringing(&looker), "the first ring for a queue without sleepers wakes one");
        assert!(!is_ringing(&sleeper));
        looker.disarm();
        looker.arm();
        assert!(wakeups.has_lookers(0), "that one looks again soon");
        wakeups.ring(2);
        assert!(!is_ringing(&looker));
        assert!(!is_ringing(&sleeper));
        looker.disarm();
        assert!(is_ringing(&sleeper), "it may never look again");
        sleeper.disarm();
    }

    #[test]
    fn looker_that_nothing_rings_for_is_a_sleeper_again() {
        let wakeups = Wakeups::new(2);
        let mut news = wakeups.news(0).unwrap();
        for _ in 0..2 {
            news.arm();
            wakeups.ring(1);
            assert!(is_ringing(&news));
            news.disarm();
            news.arm();
            assert!(wakeups.has_lookers(0));
            news.disarm();
            assert!(!wakeups.has_lookers(0));
        }
    }

    #[test]
    fn ring_of_a_child_wakes_who_sleeps_at_its_parent() {
        let children = [Wakeups::new(2), Wakeups::new(1)];
        let parent = Wakeups::joining(1, children.clone());
        let mut news = parent.news(0).unwrap();
        for child in &children {
            news.arm();
            assert!(!is_ringing(&news));
            child.ring(0);
            assert!(is_ringing(&news));
            news.disarm();
            assert!(!child.has_sleepers());
        }
        drop((news, parent));
        assert!(children.iter().all(|child| child.0.parents.lock().is_empty()));
    }

    #[test]
    fn sleeper_is_woken_by_a_ring_and_not_by_time() {
        let wakeups = Wakeups::new(1);
        let begin = Instant::now();
        std::thread::scope(|s| {
            s.spawn(|| {
                while !wakeups.has_sleepers() {
                    std::thread::yield_now();
                }
                wakeups.ring(0);
            });
            wakeups.sleep(0, LONG, || false);
        });
        assert!(begin.elapsed() < LONG);
        assert!(!wakeups.has_sleepers());
    }

    #[test]
    fn sleeper_that_finds_news_does_not_sleep() {
        let begin = Instant::now();
        Wakeups::new(1).sleep(0, LONG, || true);
        assert!(begin.elapsed() < LONG);
    }
}
