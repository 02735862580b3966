//! Invariants for arbitrary guests and front ends. The fuzz targets `vring` and `vhost_message` run
//! their own cases, and the tests next to this module seeded ones.

use crate::guest::{DATA, DEVICE, Driver, Guest, NUM, disk, file_of};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use zonal_core::Nanos;
use zonal_scsi::Disk;
use zonal_vhost::connection::Assembler;
use zonal_vhost::memory::map_area;
use zonal_vhost::queue::{Management, ManagementEnd, QUEUES_MAX, Queue};
use zonal_vhost::ring::{InflightQueue, RingSetup};
use zonal_vhost::session::{Change, Message, Outcome, RingStart, Session};
use zonal_vhost::wire::message::{DESCRIPTORS_MAX, HEADER_LEN, NEED_REPLY, VERSION};
use zonal_vhost::wire::ring::Descriptor;

/// Size of the file for inflight I/O tracking, in bytes.
pub const LOG_LEN: u64 = 4096;

/// Action of a guest or of the server of its queue.
#[derive(Clone, Debug)]
pub enum Deed {
    /// Set an entry of the descriptor table.
    Set(u16, Descriptor),
    /// Set the next entry of the available ring.
    Offer(u16),
    /// Set the index of the available ring.
    Index(u16),
    /// Write bytes to an address of the low region.
    Bytes(u64, Vec<u8>),
    Turn,
    Poll,
    /// Request a task management function.
    Manage(u32),
    /// Set the memory to both regions, or only the low one.
    Memory(bool),
    Restart(RingRestart),
    Ask(Ask),
    /// Write bytes at an offset of the file for inflight I/O tracking.
    Log(u64, Vec<u8>),
}

/// Restart of a ring after the queue has stopped.
#[derive(Clone, Copy, Debug)]
pub struct RingRestart {
    /// Index of both rings.
    pub index: u16,
    /// Base given by the front end.
    pub base: u16,
    pub event_idx: bool,
    pub indirect: bool,
    /// True to record requests in flight.
    pub has_log: bool,
}

impl RingRestart {
    fn setup(&self, driver: &Driver) -> RingSetup {
        let RingRestart { base, event_idx, indirect, .. } = *self;
        RingSetup { base, event_idx, indirect, ..driver.setup() }
    }
}

/// Command with a well-formed header and response.
#[derive(Clone, Debug)]
pub struct Ask {
    /// At most 32 bytes.
    pub cdb: Vec<u8>,
    /// Bytes of data from the guest.
    pub out: u32,
    /// Buffer size for data to the guest.
    pub into: u32,
    pub is_indirect: bool,
}

impl Ask {
    fn offer(&self, driver: &mut Driver) {
        let data = |len: u32| if len == 0 { Vec::new() } else { vec![(DATA, len)] };
        let (out, into) = (data(self.out), data(self.into));
        match self.is_indirect {
            true => driver.indirect_command(0, &self.cdb, &out, &into),
            false => driver.command(0, &self.cdb, &out, &into),
        };
    }
}

/// Runs the actions on queue `number`, which has to stop in the end.
pub fn run(number: u16, deeds: Vec<Deed>) {
    let disk = disk(DEVICE);
    let guest = Guest::new();
    let mut driver = Driver::new(&guest, 2);
    let mut queue = Queue::new(number, &disk);
    let mut now = 0;
    let all = guest.memory();
    let part = Rc::new(all.without(&Guest::regions()[1]).unwrap());
    let log = file_of(LOG_LEN);
    queue.start(all.clone(), driver.setup(), None);
    queue.set_enabled(true);
    for deed in deeds {
        now += 1;
        match deed {
            Deed::Set(index, entry) => driver.set(index, entry),
            Deed::Offer(head) => driver.offer(head),
            Deed::Index(index) => guest.write(driver.available() + 2, &index.to_le_bytes()),
            Deed::Bytes(address, bytes) => guest.write(address, &bytes),
            Deed::Turn => drop(queue.run_once(Nanos(now), false)),
            Deed::Poll => {
                disk.volume().poll(Nanos(now));
                queue.run_once(Nanos(now), false);
            }
            Deed::Manage(function) => {
                queue.manage(Nanos(now), Management { id: now, function, lun: 0, tag: 0 });
                end_managements(&mut queue);
            }
            Deed::Memory(is_all) => queue.set_memory(if is_all { all.clone() } else { part.clone() }),
            Deed::Ask(ask) => ask.offer(&mut driver),
            Deed::Log(offset, bytes) => {
                let room = (LOG_LEN - offset) as usize;
                rustix::io::pwrite(&log, &bytes[..bytes.len().min(room)], offset).unwrap();
            }
            Deed::Restart(restart) => {
                stop(&mut queue, &disk, &mut now);
                driver = Driver::at(&guest, 2, restart.index);
                driver.event_idx = restart.event_idx;
                let log = restart.has_log.then(|| map_area(&log, 0, LOG_LEN).unwrap());
                let log = log.map(|region| InflightQueue::new(&region, 0, NUM).unwrap());
                queue.start(all.clone(), restart.setup(&driver), log);
            }
        }
    }
    stop(&mut queue, &disk, &mut now);
}

/// Stops the queue, which must succeed. Returns the base for continuing.
fn stop(queue: &mut Queue, disk: &Disk, now: &mut u64) -> u16 {
    queue.stop();
    for _ in 0..1000 {
        *now += 1;
        disk.volume().poll(Nanos(*now));
        queue.run_once(Nanos(*now), false);
        end_managements(queue);
        if let Some(base) = queue.stopped() {
            assert_eq!(queue.in_flight(), 0);
            return base;
        }
    }
    panic!("{} requests stay in flight", queue.in_flight());
}

/// Completes each task management function at once, without a matching command.
fn end_managements(queue: &mut Queue) {
    while let Some(Management { id, .. }) = queue.next_management() {
        queue.end_management(ManagementEnd { id, has_found: false });
    }
}

/// Feeds the bytes of a connection in pieces of `cut` bytes.
pub fn stream(bytes: &[u8], cut: usize) {
    let mut front_end = FrontEnd::new();
    let mut assembler = Assembler::default();
    for piece in bytes.chunks(cut) {
        let mut left = piece;
        while !left.is_empty() {
            let (here, rest) = left.split_at(assembler.wanted().min(left.len()));
            left = rest;
            let Ok(message) = assembler.put(here, Vec::new()) else { return };
            if message.is_some_and(|message| !front_end.send(message)) {
                return;
            }
        }
    }
}

/// Well-formed message.
#[derive(Clone, Debug)]
pub struct Given {
    pub request: u32,
    /// True if the front end expects a reply.
    pub waits: bool,
    pub payload: Vec<u8>,
    /// Files sent along, each less than [`FILES`].
    pub files: Vec<u8>,
}

/// Files of a front end: guest memory, a page, an empty file, and an eventfd.
pub const FILES: u8 = 4;

/// Processes the messages, except those that would end the connection.
pub fn messages(all: impl IntoIterator<Item = Given>) {
    let mut front_end = FrontEnd::new();
    for Given { request, waits, payload, files } in all {
        let flags = VERSION | if waits { NEED_REPLY } else { 0 };
        let descriptors = files.iter().take(DESCRIPTORS_MAX).map(|file| front_end.file(*file)).collect();
        front_end.send(Message { request, flags, payload, descriptors });
    }
    front_end.leave();
}

/// Front end without a socket, with the queues that it controls.
struct FrontEnd {
    session: Session,
    guest: Arc<Guest>,
    disk: Arc<Disk>,
    queues: BTreeMap<u16, Queue>,
    now: u64,
}

impl FrontEnd {
    fn new() -> FrontEnd {
        let (session, guest, disk) = (Session::default(), Guest::new(), disk(DEVICE));
        let mut driver = Driver::new(&guest, 2);
        // A ring with a command, for messages that set its addresses.
        driver.command(0, &[0], &[], &[]);
        FrontEnd { session, guest, disk, queues: BTreeMap::new(), now: 0 }
    }

    fn file(&self, which: u8) -> OwnedFd {
        match which {
            0 => self.guest.file.try_clone().unwrap(),
            1 => file_of(4096),
            2 => file_of(0),
            _ => Driver::new(&Guest::new(), 2).kick,
        }
    }

    /// Processes a message. Returns false if the connection ends.
    fn send(&mut self, message: Message) -> bool {
        let Ok(outcome) = self.session.take(message) else { return false };
        let Outcome { changes, reply, awaits_base } = outcome;
        assert!(reply.is_none_or(|reply| reply.bytes.len() > HEADER_LEN));
        let mut base = None;
        for (number, change) in changes {
            assert!(number < QUEUES_MAX);
            base = self.change(number, change).or(base);
        }
        if let Some(number) = awaits_base {
            let base = base.expect("the queue that is awaited stops");
            assert!(self.session.stopped(number, base).bytes.len() > HEADER_LEN);
        }
        self.turn();
        true
    }

    /// Changes a queue. Returns the base for continuing if it stops.
    fn change(&mut self, number: u16, change: Change) -> Option<u16> {
        let queue = self.queues.entry(number).or_insert_with(|| Queue::new(number, &self.disk));
        match change {
            Change::Start(start) => {
                let RingStart { memory, setup, log, is_enabled, .. } = *start;
                queue.start(Rc::new((*memory).clone()), setup, log);
                queue.set_enabled(is_enabled);
            }
            Change::Stop => return Some(stop(queue, &self.disk, &mut self.now)),
            Change::Enable(is_enabled) => queue.set_enabled(is_enabled),
            Change::Memory(memory) => queue.set_memory(Rc::new((*memory).clone())),
            Change::Kick(_) | Change::Call(_) | Change::Error(_) => {}
        }
        None
    }

    fn turn(&mut self) {
        self.now += 1;
        for queue in self.queues.values_mut() {
            queue.run_once(Nanos(self.now), false);
            end_managements(queue);
        }
        self.disk.volume().poll(Nanos(self.now));
    }

    fn leave(mut self) {
        for (number, change) in self.session.close() {
            self.change(number, change);
        }
        assert!(self.queues.values().all(|queue| queue.in_flight() == 0));
    }
}
