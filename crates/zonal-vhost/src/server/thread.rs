//! A thread of a server: its queues, and how it sleeps.

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

/// Longest sleep, so that the end of a server is seen however it is asked for.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// How long what is at the device may take at the server's end.
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// What an event is of: a queue by its number, or one of these.
pub(super) const LISTENER: u64 = u64::MAX;
pub(super) const SOCKET: u64 = u64::MAX - 1;
const NEWS: u64 = u64::MAX - 2;
const BELL: u64 = u64::MAX - 3;

/// A queue and its descriptors.
struct Line {
    queue: Queue,
    kick: Option<Arc<OwnedFd>>,
    call: Option<Arc<OwnedFd>>,
    error: Option<Arc<OwnedFd>>,
    is_stopping: bool,
}

/// A function that the queues of this thread carry out.
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
        // It never waits. Where it fails, it is readable already, or the front end has given something else.
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
            // One reading of the clock serves for the whole turn.
            let now = self.shared.clock.now();
            if self.shared.has_to_end.load(Ordering::Acquire) {
                ends_since.get_or_insert(now);
            }
            if !polls {
                news.arm();
            }
            let due = volume.poll(now);
            let is_busy = self.turn(now, ends_since.is_some());
            if ends_since.is_some_and(|since| self.has_ended(now, since)) {
                return Ok(());
            }
            let sleep = match (is_busy || polls, due) {
                (true, _) => Duration::ZERO,
                (false, None) => SLEEP_MAX,
                (false, Some(due)) => Duration::from_nanos(due.0.saturating_sub(now.0)).min(SLEEP_MAX),
            };
            events.clear();
            self.look_at_events(&mut events, sleep)?;
            news.disarm();
            for event in &events {
                self.take_event(event.data.u64());
            }
        }
    }

    fn look_at_events(&self, events: &mut Vec<epoll::Event>, sleep: Duration) -> io::Result<()> {
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
            // The volume's, or a guest's notification: the next turn looks at all queues.
            _ => {}
        }
    }

    /// Moves on what can. Returns whether there is more to do at once.
    fn turn(&mut self, now: Nanos, rests: bool) -> bool {
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
            is_busy |= !rests && front.turn();
        }
        is_busy
    }

    fn turn_queues(&mut self, now: Nanos, rests: bool) -> bool {
        let mut is_busy = false;
        // A front end that connects again begins with the control queue, and a function is about what the others have yet to take.
        let manages = self.shared.takes_requests();
        for (number, line) in &mut self.lines {
            let turned = line.queue.turn(now, rests || *number == CONTROL && !manages);
            is_busy |= turned.is_busy;
            if turned.signals {
                signal(&line.call);
            }
            let gauge = &self.shared.gauges[usize::from(*number)];
            if turned.fault.is_some() {
                *gauge.fault.lock() = turned.fault;
                signal(&line.error);
                if turned.fault == Some(RingFault::MemoryLost) {
                    // The first thread ends the connection.
                    self.shared.post.ring(0);
                }
            }
            gauge.in_flight.store(line.queue.in_flight() as u32, Ordering::Relaxed);
            while let Some(end) = line.queue.managed() {
                is_busy = true;
                has_managed(self.shared, &mut self.managing, end);
            }
            if line.is_stopping
                && let Some(base) = line.queue.stopped()
            {
                is_busy = true;
                line.is_stopping = false;
                gauge.is_started.store(false, Ordering::Relaxed);
                line.look_for_kicks(&self.epoll, *number, None);
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
            Change::Kick(kick) => line.look_for_kicks(&self.epoll, number, Some(kick)),
            Change::Call(call) => {
                line.call = call;
                // What was told meanwhile may have gone to the one before.
                signal(&line.call);
            }
            Change::Error(error) => line.error = error,
        }
        self.shared.post.confirm(Confirmation::Changed);
    }

    fn manage(&mut self, now: Nanos, management: Management, rests: bool) {
        // What the guest has made available before the function is concerned by it, and is taken now if nothing is left of a killed process.
        self.turn_queues(now, rests);
        let queues = self.lines.values_mut().filter(|line| line.queue.is_for_requests());
        let mut left = 1;
        for line in queues {
            left += 1;
            line.queue.manage(now, management);
        }
        self.managing.insert(management.id, Managing { left, has_found: false });
        has_managed(self.shared, &mut self.managing, ManagementEnd { id: management.id, has_found: false });
    }

    /// Whether this thread may leave what there is, being asked to end `since` then.
    fn has_ended(&self, now: Nanos, since: Nanos) -> bool {
        let requests = self.lines.values().filter(|line| line.queue.is_for_requests());
        let is_idle = requests.map(|line| line.queue.in_flight()).sum::<usize>() == 0;
        is_idle || Duration::from_nanos(now.0.saturating_sub(since.0)) >= DRAIN_MAX
    }
}

/// One queue less that a function waits for.
fn has_managed(shared: &Shared, all: &mut BTreeMap<u64, Managing>, end: ManagementEnd) {
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
        self.look_for_kicks(epoll, number, Some(kick));
        self.queue.start(Rc::new((*memory).clone()), setup, log);
        self.queue.set_enabled(is_enabled);
        // A server that was killed may have shown the guest an end without saying so.
        signal(&self.call);
    }

    /// Wakes the thread by this descriptor, and no longer by the one before it. Each write to it is an event, without a read of it. A
    /// descriptor that the kernel cannot watch wakes no thread: then the guest waits for the next turn of the thread.
    fn look_for_kicks(&mut self, epoll: &OwnedFd, number: u16, kick: Option<Arc<OwnedFd>>) {
        if let Some(before) = std::mem::replace(&mut self.kick, kick) {
            let _ = epoll::delete(epoll, &*before);
        }
        if let Some(kick) = &self.kick {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            let _ = epoll::add(epoll, &**kick, epoll::EventData::new_u64(u64::from(number)), flags);
        }
    }
}
