//! Thread of a server: its queues, and its sleep.

use super::front::Front;
use super::post::{Confirmation, Order};
use super::{Shared, VhostListener};
use crate::queue::{CONTROL, Management, ManagementEnd, Queue};
use crate::ring::RingFault;
use crate::session::{Change, RingStart};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use zonal_core::Nanos;

/// Longest sleep. Bounds the delay until a shutdown request is noticed, however it is made.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// Limit for requests at the device to complete at shutdown.
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// Event sources: a queue number, or one of these.
pub(super) const LISTENER: u64 = u64::MAX;
pub(super) const SOCKET: u64 = u64::MAX - 1;
const NEWS: u64 = u64::MAX - 2;
const BELL: u64 = u64::MAX - 3;

/// Queue with its descriptors.
struct Line {
    queue: Queue,
    kick: Option<Arc<OwnedFd>>,
    call: Option<Arc<OwnedFd>>,
    error: Option<Arc<OwnedFd>>,
    is_stopping: bool,
}

/// Function in progress in the queues of this thread.
struct Managing {
    left: usize,
    has_found: bool,
}

pub(super) struct Thread<'a> {
    shared: &'a Shared,
    number: usize,
    epoll: Rc<OwnedFd>,
    lines: BTreeMap<u16, Line>,
    managing: BTreeMap<u64, Managing>,
    front: Option<Front<'a>>,
}

fn signal(descriptor: &Option<Arc<OwnedFd>>) {
    if let Some(descriptor) = descriptor {
        // Never blocks. Fails only if it is already readable, or is not an eventfd.
        let _ = rustix::io::write(&**descriptor, &1u64.to_ne_bytes());
    }
}

impl<'a> Thread<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        number: usize,
        listener: Option<VhostListener>,
    ) -> io::Result<Thread<'a>> {
        let epoll = Rc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        epoll::add(
            &*epoll,
            shared.post.bell(number),
            epoll::EventData::new_u64(BELL),
            epoll::EventFlags::IN,
        )?;
        let front = listener.map(|listener| Front::new(shared, epoll.clone(), listener)).transpose()?;
        Ok(Thread { shared, number, epoll, lines: BTreeMap::new(), managing: BTreeMap::new(), front })
    }

    pub(super) fn run(mut self) -> io::Result<()> {
        let volume = self.shared.disk.volume().clone();
        let mut news = volume.news()?;
        let of_news = epoll::EventData::new_u64(NEWS);
        epoll::add(&*self.epoll, std::os::fd::AsFd::as_fd(&news), of_news, epoll::EventFlags::IN)?;
        let polls = self.shared.options.polls;
        let mut events = Vec::with_capacity(64);
        let mut ends_since: Option<Nanos> = None;
        loop {
            // One clock reading serves the whole iteration.
            let now = self.shared.clock.now();
            if self.shared.has_to_end.load(Ordering::Acquire) {
                ends_since.get_or_insert(now);
            }
            if !polls {
                news.arm();
            }
            let due = volume.poll(now);
            let is_busy = self.run_once(now, ends_since.is_some());
            if ends_since.is_some_and(|since| self.has_ended(now, since)) {
                return Ok(());
            }
            let sleep = match (is_busy || polls, due) {
                (true, _) => Duration::ZERO,
                (false, None) => SLEEP_MAX,
                (false, Some(due)) => Duration::from_nanos(due.0.saturating_sub(now.0)).min(SLEEP_MAX),
            };
            events.clear();
            self.poll_events(&mut events, sleep)?;
            news.disarm();
            for event in &events {
                self.take_event(event.data.u64());
            }
        }
    }

    fn poll_events(&self, events: &mut Vec<epoll::Event>, sleep: Duration) -> io::Result<()> {
        let sleep = Timespec::try_from(sleep).ok();
        match epoll::wait(&*self.epoll, spare_capacity(events), sleep.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take_event(&mut self, of: u64) {
        match of {
            BELL => {
                let _ = rustix::io::read(self.shared.post.bell(self.number), &mut [0; 8]);
            }
            LISTENER | SOCKET => {
                if let Some(front) = &mut self.front {
                    front.has_news();
                }
            }
            // News of the volume, or a notification by a guest: the next turn checks all queues.
            _ => {}
        }
    }

    /// Makes all possible progress. Returns true if more work can be done at once.
    fn run_once(&mut self, now: Nanos, rests: bool) -> bool {
        for order in self.shared.post.orders(self.number) {
            match order {
                Order::Change(queue, change) => self.change(queue, change),
                Order::Manage(management) => self.manage(now, management, rests),
            }
        }
        if let Some(front) = &mut self.front {
            let control = self.lines.get_mut(&CONTROL).map(|line| &mut line.queue);
            front.take_confirmations(control);
        }
        let mut is_busy = self.turn_queues(now, rests);
        if let Some(front) = &mut self.front {
            if let Some(control) = self.lines.get_mut(&CONTROL) {
                while let Some(management) = control.queue.next_management() {
                    is_busy = true;
                    front.manage(management);
                }
            }
            is_busy |= !rests && front.run_once();
        }
        is_busy
    }

    fn turn_queues(&mut self, now: Nanos, rests: bool) -> bool {
        let mut is_busy = false;
        // A reconnecting front end starts with the control queue, but functions apply to commands
        // that the other queues have yet to take.
        let manages = self.shared.takes_requests();
        for (number, line) in &mut self.lines {
            let turned = line.queue.run_once(now, rests || *number == CONTROL && !manages);
            is_busy |= turned.is_busy;
            if turned.signals {
                signal(&line.call);
            }
            let gauge = &self.shared.gauges[usize::from(*number)];
            if turned.fault.is_some() {
                *gauge.fault.lock() = turned.fault;
                signal(&line.error);
                if turned.fault == Some(RingFault::MemoryLost) {
                    // The first thread closes the connection.
                    self.shared.post.ring(0);
                }
            }
            gauge.in_flight.store(line.queue.in_flight() as u32, Ordering::Relaxed);
            while let Some(end) = line.queue.managed() {
                is_busy = true;
                queue_done(self.shared, &mut self.managing, end);
            }
            if line.is_stopping
                && let Some(base) = line.queue.stopped()
            {
                is_busy = true;
                line.is_stopping = false;
                gauge.is_started.store(false, Ordering::Relaxed);
                line.watch_kick(&self.epoll, *number, None);
                (line.call, line.error) = (None, None);
                self.shared.post.confirm(Confirmation::Stopped(base));
            }
        }
        is_busy
    }

    fn change(&mut self, number: u16, change: Change) {
        let line = self.lines.entry(number).or_insert_with(|| Line {
            queue: Queue::new(number, &self.shared.disk),
            kick: None,
            call: None,
            error: None,
            is_stopping: false,
        });
        match change {
            Change::Start(start) => {
                let gauge = &self.shared.gauges[usize::from(number)];
                gauge.is_started.store(true, Ordering::Relaxed);
                gauge.is_enabled.store(start.is_enabled, Ordering::Relaxed);
                *gauge.fault.lock() = None;
                line.start(&self.epoll, number, *start);
            }
            Change::Stop => {
                line.queue.stop();
                line.is_stopping = true;
                return;
            }
            Change::Enable(is_enabled) => {
                self.shared.gauges[usize::from(number)].is_enabled.store(is_enabled, Ordering::Relaxed);
                line.queue.set_enabled(is_enabled);
            }
            Change::Memory(memory) => line.queue.set_memory(Rc::new((*memory).clone())),
            Change::Kick(kick) => line.watch_kick(&self.epoll, number, Some(kick)),
            Change::Call(call) => {
                line.call = call;
                // Signals in the meantime may have gone to the previous descriptor.
                signal(&line.call);
            }
            Change::Error(error) => line.error = error,
        }
        self.shared.post.confirm(Confirmation::Changed);
    }

    fn manage(&mut self, now: Nanos, management: Management, rests: bool) {
        // The function applies to chains made available before it. Take them now, unless requests
        // of a killed process are left.
        self.turn_queues(now, rests);
        let queues = self.lines.values_mut().filter(|line| line.queue.is_for_requests());
        let mut left = 1;
        for line in queues {
            left += 1;
            line.queue.manage(now, management);
        }
        self.managing.insert(management.id, Managing { left, has_found: false });
        queue_done(self.shared, &mut self.managing, ManagementEnd { id: management.id, has_found: false });
    }

    /// True if a thread asked to end at `since` may abandon remaining work.
    fn has_ended(&self, now: Nanos, since: Nanos) -> bool {
        let requests = self.lines.values().filter(|line| line.queue.is_for_requests());
        let is_idle = requests.map(|line| line.queue.in_flight()).sum::<usize>() == 0;
        is_idle || Duration::from_nanos(now.0.saturating_sub(since.0)) >= DRAIN_MAX
    }
}

/// Counts down the queues that a function waits for.
fn queue_done(shared: &Shared, all: &mut BTreeMap<u64, Managing>, end: ManagementEnd) {
    let Some(managing) = all.get_mut(&end.id) else { return };
    managing.left -= 1;
    managing.has_found |= end.has_found;
    if managing.left == 0 {
        let has_found = managing.has_found;
        all.remove(&end.id);
        shared.post.confirm(Confirmation::Managed(ManagementEnd { id: end.id, has_found }));
    }
}

impl Line {
    fn start(&mut self, epoll: &OwnedFd, number: u16, start: RingStart) {
        let RingStart { memory, setup, log, kick, call, error, is_enabled } = start;
        (self.call, self.error) = (call, error);
        self.watch_kick(epoll, number, Some(kick));
        self.queue.start(Rc::new((*memory).clone()), setup, log);
        self.queue.set_enabled(is_enabled);
        // A killed server may have published a completion without signalling it.
        signal(&self.call);
    }

    /// Watches this descriptor instead of the previous one. Each write to it is an event; it is
    /// never read. A descriptor that epoll cannot watch wakes no thread: the guest then waits for
    /// the next turn.
    fn watch_kick(&mut self, epoll: &OwnedFd, number: u16, kick: Option<Arc<OwnedFd>>) {
        if let Some(before) = std::mem::replace(&mut self.kick, kick) {
            let _ = epoll::delete(epoll, &*before);
        }
        if let Some(kick) = &self.kick {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            let _ = epoll::add(epoll, &**kick, epoll::EventData::new_u64(u64::from(number)), flags);
        }
    }
}
