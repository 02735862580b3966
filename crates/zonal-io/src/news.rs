//! News: lets a thread sleep until a poll would make progress.
//!
//! A poll finds work for three reasons: a device has a completion, another thread left work, or a
//! deadline has passed. The poll itself returns the deadline. The other two *ring*: a descriptor
//! becomes readable, on which a thread or its event loop sleeps. A ring costs one load while no
//! thread sleeps, and one write to the descriptor otherwise.
//!
//! # Contract
//! Arm, check once more, sleep. A thread arms its [`News`], then polls until the poll returns a
//! time in the future or none, then sleeps on the descriptor until that time, and disarms. The poll
//! finds news from before the arming; later news ring. Spurious wakeups are possible.
//!
//! # Queues
//! A handle belongs to the queue that its thread reaps, and has its own descriptor, so a thread
//! that is slow to wake up does not keep others awake. A ring wakes the sleepers of its queue. A
//! queue without sleepers may have awake threads, but its submitter may also have ended, so its
//! ring wakes the sleepers of another queue. The next thread to sleep becomes a looker: it sleeps
//! for a millisecond at most, and meanwhile rings of queues without sleepers wake nobody. If such a
//! queue has rung during that time, another thread is woken and becomes the next looker.
//!
//! # Watched descriptors
//! A device that the kernel notifies through a descriptor lets the sleepers of its queue watch it
//! as well ([`Wakeups::watching`]), which saves a thread that waits for it and rings. The
//! descriptor is readable from a completion on until the device has read it, in a poll before it
//! looks for completions.
//!
//! # Stacked devices
//! A wrapper passes on the [`Wakeups`] of its device. A device that joins several has its own, and
//! arms theirs.

use crate::sync::{Arc, AtomicBool, AtomicUsize, CachePadded, IS_MODEL, Mutex, Ordering, fence};
use std::sync::Weak;
use std::time::Duration;

#[cfg(any(feature = "loom", feature = "shuttle"))]
use modelled as signal;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
use real as signal;
use signal::Signal;

/// Time after which a sleeping thread looks at commands of a queue that their submitter may have
/// left.
pub(crate) const LEFT: Duration = Duration::from_millis(1);

/// Wakes threads that sleep until a device, or a volume on it, has news. Clones share the state.
#[derive(Clone)]
pub struct Wakeups(Arc<Shared>);

struct Shared {
    /// Armed handles of all queues, including those of parents; the only field that a ring reads
    /// while no thread sleeps.
    sleepers: AtomicUsize,
    /// A ring for a queue without sleepers has woken those of another queue: the next thread that
    /// arms becomes a looker, which sleeps for [`LEFT`] at most.
    wants_looker: AtomicBool,
    /// Armed lookers, including those of parents.
    lookers: AtomicUsize,
    /// A queue without sleepers has rung while there were lookers, which were not woken.
    is_owed: AtomicBool,
    bells: Box<[CachePadded<Bell>]>,
    /// Armed together with this one.
    children: Box<[Wakeups]>,
    /// Objects that join this one, and ring when it does.
    parents: Mutex<Vec<Weak<Shared>>>,
}

#[derive(Default)]
struct Bell {
    /// Descriptor that the sleepers of this queue watch.
    watched: Option<Arc<signal::Watched>>,
    /// Armed handles of this queue, including those of parents.
    sleepers: AtomicUsize,
    /// Armed lookers of this queue, including those of parents.
    lookers: AtomicUsize,
    state: Mutex<NewsState>,
}

#[derive(Default)]
struct NewsState {
    /// Handles of this object alone.
    armed: Vec<Armed>,
    /// Signals of dropped handles, for reuse: a descriptor costs a system call.
    idle: Vec<Arc<Signal>>,
}

impl NewsState {
    fn is_rung(&self, signal: &Arc<Signal>) -> bool {
        self.armed.iter().any(|armed| armed.is_rung && Arc::ptr_eq(&armed.signal, signal))
    }
}

struct Armed {
    signal: Arc<Signal>,
    /// True once the signal was sent.
    is_rung: bool,
}

/// Maximum of idle descriptors per queue.
const IDLE_MAX: usize = 64;

impl Wakeups {
    /// Creates the wakeups of a device with `queues` queues.
    pub fn new(queues: usize) -> Wakeups {
        Wakeups::joining(queues, [])
    }

    /// Creates the wakeups of a device with `queues` queues that is made of others: it rings when
    /// one of `children` does.
    pub fn joining(queues: usize, children: impl IntoIterator<Item = Wakeups>) -> Wakeups {
        Wakeups::with_bells((0..queues).map(|_| CachePadded::default()).collect(), children)
    }

    fn with_bells(bells: Box<[CachePadded<Bell>]>, children: impl IntoIterator<Item = Wakeups>) -> Wakeups {
        let shared = Arc::new(Shared {
            sleepers: AtomicUsize::new(0),
            wants_looker: AtomicBool::new(false),
            lookers: AtomicUsize::new(0),
            is_owed: AtomicBool::new(false),
            bells,
            children: children.into_iter().collect(),
            parents: Mutex::default(),
        });
        for child in &shared.children {
            child.0.parents.lock().push(Arc::downgrade(&shared));
        }
        Wakeups(shared)
    }

    /// Creates the wakeups of a device with a descriptor for each queue, which becomes readable when
    /// the queue has completions. See the module documentation.
    #[cfg(not(any(feature = "loom", feature = "shuttle")))]
    pub fn watching(descriptors: impl IntoIterator<Item = std::os::fd::OwnedFd>) -> Wakeups {
        let bell = |fd| CachePadded::new(Bell { watched: Some(Arc::new(fd)), ..Bell::default() });
        Wakeups::with_bells(descriptors.into_iter().map(bell).collect(), [])
    }

    /// Creates a handle for a thread of `queue`.
    ///
    /// # Errors
    /// The operating system's error, if it cannot create a descriptor.
    ///
    /// # Panics
    /// If the queue does not exist.
    pub fn news(&self, queue: usize) -> std::io::Result<News> {
        let idle = self.0.bells[queue].state.lock().idle.pop();
        let open = || {
            let mut watched = Vec::new();
            self.0.watched(queue, &mut watched);
            Signal::open(watched).map(Arc::new)
        };
        let signal = idle.map_or_else(open, Ok)?;
        Ok(News { wakeups: self.clone(), queue, signal, is_armed: false, is_looker: false })
    }

    /// Signals news of `queue`. For callers that have published them under a lock that
    /// [`has_news`](crate::device::Device::has_news) takes too.
    #[inline]
    pub fn ring(&self, queue: usize) {
        if self.0.sleepers.load(Ordering::Relaxed) > 0 {
            self.ring_queue(queue);
        }
    }

    /// Signals that `queue` has commands in flight of which a descriptor will tell only those who
    /// watch it: wakes a thread of another queue if none sleeps for this one.
    pub fn ring_others(&self, queue: usize) {
        if self.has_sleepers() && self.0.bells[queue].sleepers.load(Ordering::Acquire) == 0 {
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
            // Remaining lookers will check soon. If the last one has left meanwhile, either it has
            // seen `is_owed`, or its departure is visible here.
            if shared.lookers.load(Ordering::SeqCst) > 0 {
                return;
            }
        }
        shared.wants_looker.store(true, Ordering::SeqCst);
        shared.ring_any();
    }

    /// True if threads of `queue` have to check the other queues soon, whatever their poll returns.
    #[inline]
    pub(crate) fn has_lookers(&self, queue: usize) -> bool {
        self.0.lookers.load(Ordering::Relaxed) > 0
            && self.0.bells.get(queue).is_some_and(|bell| bell.lookers.load(Ordering::Relaxed) > 0)
    }

    /// Wakes all sleeping threads, whatever their queue. For news published without a lock.
    #[inline]
    pub fn ring_all(&self) {
        // A thread arms before it checks, and news are published before this fence: one of the two
        // sees the other.
        fence(Ordering::SeqCst);
        if self.0.sleepers.load(Ordering::Relaxed) > 0 {
            (0..self.0.bells.len()).for_each(|queue| self.0.ring(queue));
        }
    }

    /// Wakes the sleepers of this thread's queue, since its completion is there.
    #[cold]
    pub(crate) fn ring_one(&self, thread: usize) {
        self.0.ring(thread % self.0.bells.len());
    }

    /// True if a thread sleeps or is about to. A device that is notified through a descriptor
    /// listens to it only then.
    #[inline]
    pub fn has_sleepers(&self) -> bool {
        self.0.sleepers.load(Ordering::Relaxed) > 0
    }

    /// Sleeps until `queue` rings, or for `timeout`. `timeout` is called after arming; `None` means
    /// that there are news already.
    pub fn sleep(&self, queue: usize, timeout: impl FnOnce() -> Option<Duration>) {
        let Ok(mut news) = self.news(queue) else {
            // Without a descriptor no ring can be received: check again soon.
            return timeout().into_iter().for_each(|timeout| std::thread::sleep(timeout.min(LEFT)));
        };
        news.arm();
        if let Some(timeout) = timeout() {
            news.sleep(if news.is_looker { timeout.min(LEFT) } else { timeout });
        }
        // The thread may be done and never check other queues.
        if news.end() {
            self.0.hand_on();
        }
    }
}

impl Shared {
    /// Descriptors that a sleeper of `queue` watches, also those of children.
    fn watched(&self, queue: usize, into: &mut Vec<Arc<signal::Watched>>) {
        into.extend(self.bells.get(queue).and_then(|bell| bell.watched.clone()));
        self.children.iter().for_each(|child| child.0.watched(queue, into));
    }

    /// Wakes the sleepers of one queue, whichever.
    fn ring_any(&self) {
        let other = self.bells.iter().position(|bell| bell.sleepers.load(Ordering::SeqCst) > 0);
        other.into_iter().for_each(|other| self.ring(other));
    }

    /// Called when a handle of `queue` is armed; returns true if it becomes a looker, here and in
    /// children. Never in a model, where sleeps have no timeout.
    fn begin_look(&self, queue: usize) -> bool {
        let may_look = !IS_MODEL && self.bells.len() > 1;
        let is_looker = may_look && self.take_look();
        if is_looker {
            self.look(queue);
        }
        is_looker
    }

    /// Returns true if a looker is wanted, and clears the flag. One is enough: several would see
    /// each other and look forever.
    fn take_look(&self) -> bool {
        let is_wanted =
            self.wants_looker.load(Ordering::SeqCst) && self.wants_looker.swap(false, Ordering::SeqCst);
        self.children.iter().fold(is_wanted, |is_wanted, child| child.0.take_look() || is_wanted)
    }

    fn look(&self, queue: usize) {
        if let Some(bell) = self.bells.get(queue) {
            bell.lookers.fetch_add(1, Ordering::SeqCst);
        }
        self.lookers.fetch_add(1, Ordering::SeqCst);
        self.children.iter().for_each(|child| child.0.look(queue));
    }

    /// Ends a looker. Its thread may never check again, so pending rings go to another thread.
    fn end_look(&self, queue: usize) {
        if let Some(bell) = self.bells.get(queue) {
            bell.lookers.fetch_sub(1, Ordering::SeqCst);
        }
        let is_last = self.lookers.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && self.is_owed.swap(false, Ordering::SeqCst) {
            self.wants_looker.store(true, Ordering::SeqCst);
            self.ring_any();
        }
        self.children.iter().for_each(|child| child.0.end_look(queue));
    }

    /// Called by a woken thread that may not check: wakes another one if a looker is still wanted.
    fn hand_on(&self) {
        if self.wants_looker.load(Ordering::SeqCst) {
            self.ring_any();
        }
        self.children.iter().for_each(|child| child.0.hand_on());
    }

    /// Signals the threads that sleep for `queue`.
    fn ring(&self, queue: usize) {
        let Some(bell) = self.bells.get(queue) else { return };
        if bell.sleepers.load(Ordering::Acquire) == 0 {
            return;
        }
        for armed in bell.state.lock().armed.iter_mut().filter(|armed| !armed.is_rung) {
            armed.is_rung = true;
            armed.signal.give();
        }
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

/// Handle of a thread: a descriptor that becomes readable when the thread's next poll would make
/// progress. See the module documentation for the contract.
///
/// Belongs to the queue of the thread that created it.
pub struct News {
    wakeups: Wakeups,
    queue: usize,
    signal: Arc<Signal>,
    is_armed: bool,
    is_looker: bool,
}

impl News {
    fn bell(&self) -> &Bell {
        &self.wakeups.0.bells[self.queue]
    }

    /// Enables rings for this handle. The caller polls once more before it sleeps.
    pub fn arm(&mut self) {
        if !std::mem::replace(&mut self.is_armed, true) {
            self.bell().state.lock().armed.push(Armed { signal: self.signal.clone(), is_rung: false });
            self.wakeups.0.arm(self.queue);
            self.is_looker = self.wakeups.0.begin_look(self.queue);
            fence(Ordering::SeqCst);
        }
    }

    /// Disables rings for this handle; the thread is awake and polls.
    pub fn disarm(&mut self) {
        self.end();
    }

    /// Disarms; returns true if it was rung.
    fn end(&mut self) -> bool {
        if !std::mem::replace(&mut self.is_armed, false) {
            return false;
        }
        self.wakeups.0.disarm(self.queue);
        if std::mem::take(&mut self.is_looker) {
            self.wakeups.0.end_look(self.queue);
        }
        let mut state = self.bell().state.lock();
        let place = state.armed.iter().position(|armed| Arc::ptr_eq(&armed.signal, &self.signal));
        let is_rung = place.is_some_and(|place| state.armed.swap_remove(place).is_rung);
        drop(state);
        // No ring refers to it from here on.
        if is_rung {
            self.signal.take_back();
        }
        is_rung
    }

    /// Sleeps until there are news, or for `timeout`. For threads without an event loop.
    pub fn sleep(&self, timeout: Duration) {
        self.signal.wait(&self.bell().state, |state| state.is_rung(&self.signal), timeout);
    }
}

impl Drop for News {
    fn drop(&mut self) {
        self.disarm();
        let mut state = self.bell().state.lock();
        if state.idle.len() < IDLE_MAX {
            state.idle.push(self.signal.clone());
        }
    }
}

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
impl std::os::fd::AsFd for News {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.signal.descriptor()
    }
}

/// Production signal: an eventfd, and the descriptors that are watched beside it.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod real {
    use super::{Arc, Mutex, NewsState};
    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::time::Duration;

    pub(super) type Watched = OwnedFd;

    pub(super) struct Signal {
        bell: OwnedFd,
        watched: Vec<Arc<Watched>>,
        /// All of them as one descriptor, if there are several.
        joined: Option<OwnedFd>,
    }

    impl Signal {
        pub(super) fn open(watched: Vec<Arc<Watched>>) -> std::io::Result<Signal> {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let mut joined = None;
            if !watched.is_empty() {
                let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
                for fd in watched.iter().map(|fd| fd.as_fd()).chain([bell.as_fd()]) {
                    epoll::add(&all, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
                }
                joined = Some(all);
            }
            Ok(Signal { bell, watched, joined })
        }

        pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
            self.joined.as_ref().unwrap_or(&self.bell).as_fd()
        }

        pub(super) fn give(&self) {
            // Fails only if the descriptor is already readable.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }

        pub(super) fn take_back(&self) {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }

        pub(super) fn wait(&self, _: &Mutex<NewsState>, _: impl Fn(&NewsState) -> bool, timeout: Duration) {
            // A timeout too large for `Timespec` is infinite.
            let timeout = Timespec::try_from(timeout).ok();
            let all = self.watched.iter().map(|fd| fd.as_fd()).chain([self.bell.as_fd()]);
            let mut all: Vec<PollFd<'_>> =
                all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            // An interruption is a spurious wakeup.
            let _ = poll(&mut all, timeout.as_ref());
        }
    }
}

/// Signal for models, which have no kernel.
#[cfg(any(feature = "loom", feature = "shuttle"))]
mod modelled {
    use super::{Arc, Mutex, NewsState};
    use crate::sync::Condvar;
    use std::time::Duration;

    /// No descriptor: there is none in a model.
    pub(super) enum Watched {}

    #[derive(Default)]
    pub(super) struct Signal(Condvar);

    impl Signal {
        pub(super) fn open(_: Vec<Arc<Watched>>) -> std::io::Result<Signal> {
            Ok(Signal::default())
        }

        pub(super) fn give(&self) {
            self.0.notify_all();
        }

        pub(super) fn take_back(&self) {}

        pub(super) fn wait(
            &self,
            state: &Mutex<NewsState>,
            is_over: impl Fn(&NewsState) -> bool,
            timeout: Duration,
        ) {
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
        assert_eq!(is_readable, news.bell().state.lock().is_rung(&news.signal));
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
    fn handle_that_is_slow_to_wake_up_keeps_no_other_awake() {
        let wakeups = Wakeups::new(1);
        let [mut one, mut other] = [wakeups.news(0).unwrap(), wakeups.news(0).unwrap()];
        one.arm();
        other.arm();
        wakeups.ring_all();
        one.disarm();
        one.arm();
        assert!(!is_ringing(&one));
        assert!(is_ringing(&other));
        wakeups.ring_all();
        assert!(is_ringing(&one));
        one.disarm();
        other.disarm();
        drop(one);
        let mut next = wakeups.news(0).unwrap();
        next.arm();
        assert!(!is_ringing(&next));
    }

    #[test]
    fn looker_is_not_woken_but_passes_its_wakeup_on() {
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
    fn sleepers_that_take_turns_do_not_keep_each_other_looking() {
        let wakeups = Wakeups::new(3);
        let mut news = [0, 1].map(|queue| wakeups.news(queue).unwrap());
        news.iter_mut().for_each(News::arm);
        wakeups.ring(2);
        for _ in 0..3 {
            for one in &mut news {
                one.disarm();
                one.arm();
            }
        }
        assert!(!wakeups.has_lookers(0) && !wakeups.has_lookers(1));
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
            wakeups.sleep(0, || Some(LONG));
        });
        assert!(begin.elapsed() < LONG);
        assert!(!wakeups.has_sleepers());
    }

    #[test]
    fn commands_of_a_queue_that_nobody_watches_wake_another_queue() {
        let wakeups = Wakeups::new(2);
        let mut news = wakeups.news(0).unwrap();
        news.arm();
        wakeups.ring_others(0);
        assert!(!is_ringing(&news), "it watches the descriptor of its own queue");
        wakeups.ring_others(1);
        assert!(is_ringing(&news));
    }

    #[test]
    fn sleeper_of_a_parent_is_woken_by_a_watched_descriptor() {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let fd = rustix::event::eventfd(0, flags).unwrap();
        let device = fd.try_clone().unwrap();
        let watching = Wakeups::watching([fd]);
        let parent = Wakeups::joining(1, [watching.clone()]);
        for wakeups in [&watching, &parent] {
            let is_readable = |news: &News| {
                let mut one = [rustix::event::PollFd::new(news, rustix::event::PollFlags::IN)];
                let begin = Instant::now();
                news.sleep(Duration::from_millis(1));
                let slept = begin.elapsed() >= Duration::from_millis(1);
                let ready = rustix::event::poll(&mut one, Some(&Default::default())).unwrap() > 0;
                assert_eq!(ready, !slept, "thread and event loop see the same");
                ready
            };
            let mut news = wakeups.news(0).unwrap();
            news.arm();
            assert!(!is_readable(&news));
            rustix::io::write(&device, &1u64.to_ne_bytes()).unwrap();
            assert!(is_readable(&news) && is_readable(&news), "until the device reads it");
            rustix::io::read(&device, &mut [0; 8]).unwrap();
            assert!(!is_readable(&news));
            wakeups.ring(0);
            assert!(is_readable(&news));
        }
    }

    #[test]
    fn sleeper_that_finds_news_does_not_sleep() {
        let begin = Instant::now();
        Wakeups::new(1).sleep(0, || None);
        assert!(begin.elapsed() < LONG);
    }
}
