//! Helper thread of a remote device: the admin queue, and wake-ups for sleeping threads.
//!
//! It sends keep alives, handles events of the controller, and shuts the controller down at the
//! end. The device's own threads read the sockets of I/O queues. The helper only wakes sleeping
//! threads when one of these sockets has input, once for each [`Watch::listen`].

use super::attach::{Admin, KEEP_ALIVE_MS};
use super::device::Shared;
use super::link::{Came, LinkError};
use crate::wire::{GetLogPage, Sqe, admin, cc, command_set, event, fabrics, log, property};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zonal_io::threads;

/// Number of unanswered keep alives after which the controller is lost.
const UNANSWERED_MAX: usize = 3;

/// Interval of keep alives. Answers may be late by the time to keep alive.
const KEEP_ALIVE: Duration = Duration::from_millis(KEEP_ALIVE_MS as u64 / UNANSWERED_MAX as u64);

const BELL: u64 = u64::MAX;
const ADMIN: u64 = u64::MAX - 1;

/// Event sources of the helper.
pub(super) struct Watch {
    epoll: OwnedFd,
    bell: OwnedFd,
    has_to_end: AtomicBool,
    /// Epoll flags that each queue is armed with; cleared when the event fires.
    listens: Vec<AtomicU32>,
}

impl Watch {
    pub(super) fn new(admin: &TcpStream) -> io::Result<Watch> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        epoll::add(&epoll, admin, epoll::EventData::new_u64(ADMIN), epoll::EventFlags::IN)?;
        Ok(Watch { epoll, bell, has_to_end: AtomicBool::new(false), listens: Vec::new() })
    }

    /// Adds the next queue, at first only for hang-ups.
    pub(super) fn add(&mut self, stream: &TcpStream) -> io::Result<()> {
        let place = epoll::EventData::new_u64(self.listens.len() as u64);
        epoll::add(&self.epoll, stream, place, epoll::EventFlags::ONESHOT)?;
        self.listens.push(AtomicU32::new(0));
        Ok(())
    }

    /// Arms one wake-up for input, and for writability if there is unsent output.
    pub(super) fn listen(&self, queue: usize, stream: &TcpStream, has_output: bool) -> io::Result<()> {
        let mut flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ONESHOT;
        flags.set(epoll::EventFlags::OUT, has_output);
        let listens = &self.listens[queue];
        if listens.load(Ordering::SeqCst) == flags.bits() {
            return Ok(());
        }
        listens.store(flags.bits(), Ordering::SeqCst);
        epoll::modify(&self.epoll, stream, epoll::EventData::new_u64(queue as u64), flags)?;
        Ok(())
    }

    /// Wakes the helper to check for changes.
    pub(super) fn wake(&self) {
        // Fails only if the bell is already readable.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    pub(super) fn end(&self) {
        self.has_to_end.store(true, Ordering::Release);
        self.wake();
    }

    /// Starts the helper, which ends when the device is lost or [`end`](Watch::end) is called.
    pub(super) fn start(shared: Arc<Shared>, mut admin: Admin) -> io::Result<JoinHandle<()>> {
        admin.set_nonblocking()?;
        let helper = Helper { shared, admin, pending: Vec::new() };
        threads::spawn("zonal-nvme-host", move || helper.run())
    }
}

/// Admin command in use by the helper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AdminCommand {
    KeepAlive,
    AwaitEvent,
    ReadChangedZones,
    ReadChangedNamespaces,
}

struct Helper {
    shared: Arc<Shared>,
    admin: Admin,
    /// Commands in flight with their identifiers.
    pending: Vec<(u16, AdminCommand)>,
}

/// Bytes read of each log.
const LOG: u32 = 4096;

impl Helper {
    fn run(mut self) {
        let mut next = Instant::now() + KEEP_ALIVE;
        let mut events = Vec::with_capacity(16);
        let mut result = self.send(AdminCommand::AwaitEvent);
        loop {
            if let Err(reason) = &result {
                self.shared.lose(reason);
            }
            if self.shared.is_lost() {
                return;
            }
            if self.shared.watch.has_to_end.load(Ordering::Acquire) {
                return self.shut_down();
            }
            let sleep = Timespec::try_from(next.saturating_duration_since(Instant::now())).ok();
            events.clear();
            // An interrupted wait is treated as a spurious wake-up.
            let _ = epoll::wait(&self.shared.watch.epoll, spare_capacity(&mut events), sleep.as_ref());
            result = Ok(());
            for event in &events {
                result = result.and_then(|()| self.take_event(event.data.u64(), event.flags));
            }
            if Instant::now() >= next {
                next = Instant::now() + KEEP_ALIVE;
                result = result.and_then(|()| self.keep_alive());
            }
        }
    }

    fn take_event(&mut self, place: u64, flags: epoll::EventFlags) -> Result<(), LinkError> {
        match place {
            BELL => {
                let _ = rustix::io::read(&self.shared.watch.bell, &mut [0; 8]);
            }
            ADMIN => return self.take_answers(),
            queue => {
                let queue = queue as usize;
                self.shared.watch.listens[queue].store(0, Ordering::SeqCst);
                // Pairs with the check by a thread that announces its sleep before it looks whether
                // the queue is armed.
                fence(Ordering::SeqCst);
                self.shared.wakeups.ring(queue);
                if flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                    return Err(LinkError::Closed);
                }
            }
        }
        Ok(())
    }

    /// Sends a keep alive, also while answers to earlier ones are late: the controller has a time
    /// limit as well. Fails if too many are unanswered.
    fn keep_alive(&mut self) -> Result<(), LinkError> {
        let unanswered = self.pending.iter().filter(|(_, command)| *command == AdminCommand::KeepAlive);
        if unanswered.count() >= UNANSWERED_MAX {
            return Err(LinkError::Silent);
        }
        self.send(AdminCommand::KeepAlive)
    }

    fn send(&mut self, command: AdminCommand) -> Result<(), LinkError> {
        let nsid = self.shared.nsid();
        let log = |lid, nsid, csi| {
            let mut sqe = Sqe::new(0, 0, [0; 6]).with_data(LOG);
            GetLogPage { lid, len: LOG.into(), offset: 0, csi, retains: false, nsid }.emit(&mut sqe);
            (sqe, vec![0; LOG as usize])
        };
        let (sqe, data) = match command {
            AdminCommand::KeepAlive => (Sqe::new(admin::KEEP_ALIVE, 0, [0; 6]), Vec::new()),
            AdminCommand::AwaitEvent => (Sqe::new(admin::ASYNC_EVENT_REQUEST, 0, [0; 6]), Vec::new()),
            AdminCommand::ReadChangedZones => log(log::ZONES, nsid, command_set::ZNS),
            AdminCommand::ReadChangedNamespaces => log(log::NAMESPACES, u32::MAX, command_set::NVM),
        };
        // Cannot be full: there are more entries than kinds of commands and unanswered keep alives.
        if let Ok(cid) = self.admin.queue.submit(sqe, data) {
            self.pending.push((cid, command));
        }
        self.admin.flush()
    }

    fn take_answers(&mut self) -> Result<(), LinkError> {
        while self.admin.fill()? == Came::Full {}
        while let Some(ended) = self.admin.queue.next_ended() {
            let Some(place) = self.pending.iter().position(|(cid, _)| *cid == ended.cid) else { continue };
            let (_, command) = self.pending.swap_remove(place);
            let log = Some(&ended.data).filter(|_| ended.status.is_ok() && ended.received == LOG);
            match (command, log) {
                (AdminCommand::KeepAlive, _) => {}
                // The controller does not support events.
                (AdminCommand::AwaitEvent, _) if !ended.status.is_ok() => {}
                (AdminCommand::AwaitEvent, _) => self.take_notice(ended.result)?,
                (AdminCommand::ReadChangedZones, Some(log)) => self.note_zones(log),
                (AdminCommand::ReadChangedNamespaces, Some(log)) => self.note_namespaces(log),
                (AdminCommand::ReadChangedZones | AdminCommand::ReadChangedNamespaces, None) => {}
            }
        }
        self.admin.flush()
    }

    /// Handles an event (Base 5.1.2.1). Reading its log re-enables events of that type.
    fn take_notice(&mut self, result: u64) -> Result<(), LinkError> {
        self.send(AdminCommand::AwaitEvent)?;
        match (result & 7, result >> 8 & 0xFF) {
            (event::NOTICE, event::ZONE_CHANGED) => self.send(AdminCommand::ReadChangedZones),
            (event::NOTICE, event::NAMESPACE_CHANGED) => self.send(AdminCommand::ReadChangedNamespaces),
            _ => Ok(()),
        }
    }

    /// Reports changed zones (ZNS 4.1.4.1), or all zones if they were too many to list.
    fn note_zones(&self, log: &[u8]) {
        let zones = self.shared.changed_zones(log);
        if !zones.is_empty() {
            self.shared.notices.note(|changes| zones.into_iter().for_each(|zone| changes.add_zone(zone)));
            self.shared.wakeups.ring_all();
        }
    }

    fn note_namespaces(&self, log: &[u8]) {
        let is_ours = |entry: &[u8]| {
            let nsid = u32::from_le_bytes(entry.try_into().expect("4 bytes"));
            nsid == self.shared.nsid() || nsid == u32::MAX
        };
        if log.chunks_exact(4).any(is_ours) {
            self.shared.notices.note(|changes| (changes.limits, changes.size) = (true, true));
            self.shared.wakeups.ring_all();
        }
    }

    /// Shuts the controller down (Base 3.6.1). A controller that does not respond is abandoned.
    fn shut_down(mut self) {
        let value = cc::SIZES_64_16 | cc::ALL_SETS | cc::ENABLE | cc::SHUTDOWN_NORMAL;
        let command =
            Sqe::new(fabrics::OPCODE, fabrics::PROPERTY_SET.into(), [0, property::CC, value, 0, 0, 0]);
        if self.admin.set_blocking(Duration::from_secs(1)).is_ok() {
            let _ = self.admin.call(command, Vec::new());
        }
    }
}
