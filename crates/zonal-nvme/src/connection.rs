//! One connection: a queue of a controller, as bytes in and bytes out.
//!
//! A connection has no socket and reads no clock. Its driver passes input to
//! [`Connection::receive`], calls [`Connection::poll`] to process completions, and sends
//! [`Connection::output`]. It stays on the thread that created it: its requests complete in inboxes
//! of that thread.
//!
//! # Order
//! Positional writes of a connection are submitted to the volume in command order, even if the data
//! of a later one arrives first. A host that sends the writes of a zone in order therefore need not
//! wait between them.
//!
//! # Memory
//! Data occupies memory from the moment it is requested from the host, or a read is submitted,
//! until it is written or sent. A connection starts with
//! [`QUEUE_MEMORY_MIN`](crate::subsystem::QUEUE_MEMORY_MIN) bytes, or the need of one command. The
//! limit grows with the data that its host moves: to a sixteenth of that, at most [`MEMORY_MAX`].
//! Commands beyond it wait, in order. A silent host thus ties up little memory, however much it
//! requests, and responses are not produced for a host that does not read them. Responses of the
//! admin queue count as well, and so do the zone descriptors that a report or an action needs.
//!
//! In-capsule data arrives whether or not there is memory, at most [`IN_CAPSULE`] bytes per queue
//! entry.
//!
//! All connections of a target share another limit
//! ([`TARGET_MEMORY_MAX`](crate::subsystem::TARGET_MEMORY_MAX)). Each queue reserves its initial
//! bytes at connect; without them the connect fails with Connect Controller Busy. When the rest is
//! used up, commands that need more wait, and those with such data in their capsule fail with
//! Command Interrupted. A connection that then holds more than its initial bytes is closed if its
//! host moves nothing for [`STALLED_MAX`].
//!
//! # Time
//! A host has to connect its queue within [`CONNECT_MAX`] of the first poll, however slowly it
//! sends. From then on the keep alive timeout of the controller applies.

mod check;
mod early;
pub(crate) mod input;
mod memory;
mod output;

pub use memory::STALLED_MAX;
pub use output::Output;

use crate::status::Status;
use crate::subsystem::{
    Association, IN_CAPSULE, IoCommand, Namespace, PropertySet, QueueMemory, Reply, Target, ZoneReport,
};
use crate::wire::{
    ConnectData, Cqe, DigestFlags, IcReq, IcResp, PduKind, R2t, Sgl, Sqe, admin, digest, fabrics, io, term,
};
use early::EarlyEnd;
use input::{Input, Side, Unit};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};
use zonal_core::{Nanos, Op, Sector};
use zonal_io::buffer::{BufferPools, IoBuf};
use zonal_io::device;
use zonal_io::volume::{Completion, Inbox, Request};

/// Maximum data of the commands of a connection in memory, except in-capsule data, in bytes.
pub const MEMORY_MAX: usize = 4 << 20;

/// Limit for a host to connect its queue, which takes two responses of the controller.
pub const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Bytes of data of a Connect command (Base 6.3).
const CONNECT_DATA: u32 = size_of::<ConnectData>() as u32;

/// Command in flight.
struct Command {
    sqe: Sqe,
    /// Bytes of data from the host and to the host.
    from_host: u32,
    to_host: u32,
    buf: IoBuf,
    /// Bytes of `buf` that count towards the connection's memory.
    counted: usize,
    /// Bytes of in-capsule data.
    in_capsule: u32,
    stage: CommandStage,
    /// Index of its namespace in the target, once submitted.
    place: u8,
    /// Requests that have not completed.
    left: u32,
    status: Status,
    then: Then,
    /// Set if the command is ended early.
    early: Option<EarlyEnd>,
}

/// Continuation after the requests of a command have completed.
enum Then {
    /// Complete the command.
    Answer,
    /// Encode a zone report for the host.
    Report(ZoneReport),
    /// Start an action on all zones that are affected.
    All(Op),
    /// Continue an action on all zones with the next rounds.
    Rounds(Op, VecDeque<Vec<Sector>>),
    /// Complete an Open of these zones, or close them again if one could not be opened.
    OpenAll(Vec<Sector>),
    /// Complete shutdown number `.0` of the controller.
    Shutdown(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CommandStage {
    /// In-capsule data is arriving.
    Arriving,
    /// Waiting for memory.
    WaitingForMemory,
    /// Data was requested from the host, and this number of bytes has arrived.
    Receiving(u32),
    /// Data complete.
    Ready,
    /// Submitted to the volume, or waiting for an event.
    Submitted,
    /// Completed while the host is still sending data, of which this number of bytes has arrived.
    Discarding(u32),
}

/// Connection of a host: one queue.
#[allow(clippy::redundant_allocation, reason = "the inner count is shared by threads, the outer is not")]
pub struct Connection {
    /// An `Rc` because every command briefly holds a reference, and the inner count is shared
    /// between threads.
    target: Rc<Arc<Target>>,
    local: SocketAddr,
    pools: Rc<BufferPools>,
    input: Input,
    output: Output,
    is_open: bool,
    /// Set once connected.
    queue: Option<Association>,
    /// One per namespace, created on first use.
    inboxes: Vec<Option<Inbox>>,
    commands: Vec<Option<Box<Command>>>,
    free: Vec<u16>,
    in_flight: usize,
    /// Positional writes not yet submitted, in command order.
    writes: VecDeque<u16>,
    waiting_for_memory: VecDeque<u16>,
    memory: usize,
    /// Bytes of in-capsule data of commands in flight.
    in_capsules: usize,
    /// Share of the target's memory, once connected.
    share: Option<QueueMemory>,
    /// Bytes of data received.
    received: u64,
    /// Bytes moved by the host at the last check, and since when that number has not changed.
    moved: (u64, Nanos),
    /// True while a caller up the stack is already resuming commands that waited for memory.
    is_continuing: bool,
    sq_head: u16,
    /// Slots of completed commands with data still arriving.
    discarding: usize,
    /// Disconnect command in progress.
    disconnect: Option<u16>,
    /// Commands that shut the controller down, until their flush starts, with their shutdown
    /// numbers.
    shutdowns: Vec<(u16, u32)>,
    needs_wake_others: bool,
    /// Time of the first poll.
    begun: Option<Nanos>,
    is_over: bool,
}

impl Connection {
    /// Creates a connection accepted at address `local`.
    pub fn new(target: Arc<Target>, local: SocketAddr, pools: Rc<BufferPools>) -> Connection {
        Connection {
            inboxes: target.namespaces().iter().map(|_| None).collect(),
            target: Rc::new(target),
            local,
            output: Output::new(pools.clone()),
            pools,
            input: Input::of(Side::Controller),
            is_open: false,
            queue: None,
            commands: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            writes: VecDeque::new(),
            waiting_for_memory: VecDeque::new(),
            memory: 0,
            in_capsules: 0,
            share: None,
            received: 0,
            moved: (0, Nanos(0)),
            is_continuing: false,
            sq_head: 0,
            discarding: 0,
            disconnect: None,
            shutdowns: Vec::new(),
            needs_wake_others: false,
            begun: None,
            is_over: false,
        }
    }

    /// Output to send.
    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// True if the connection has to be closed once its output is sent.
    pub fn is_over(&self) -> bool {
        self.is_over || self.queue.as_ref().is_some_and(Association::is_over)
    }

    /// Association of the queue, once connected.
    pub fn queue(&self) -> Option<&Association> {
        self.queue.as_ref()
    }

    /// Commands in flight, including outstanding event requests.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Bytes of memory used by commands, except in-capsule data: at most [`MEMORY_MAX`], or the
    /// need of a single command.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// True if a command of an I/O queue is at the volume. Scans all commands.
    pub fn has_requests(&self) -> bool {
        let is_submitted = |command: &Command| command.stage == CommandStage::Submitted;
        self.is_io() && self.commands.iter().flatten().any(|command| is_submitted(command))
    }

    /// Time by which the connection has to be polled, even without input.
    pub fn deadline(&self) -> Option<Nanos> {
        match &self.queue {
            _ if self.is_over() => None,
            None => self.connect_until(),
            Some(queue) if queue.qid() == 0 => queue.controller().keep_alive_until(),
            Some(_) => None,
        }
    }

    fn connect_until(&self) -> Option<Nanos> {
        self.begun.map(|begun| Nanos(begun.0.saturating_add(CONNECT_MAX.as_nanos() as u64)))
    }

    /// Buffer into which the driver may read directly when a large block of data is due; afterwards
    /// it calls [`Connection::has_received`].
    pub fn room(&mut self) -> Option<&mut [u8]> {
        let (slot, range) = self.input.data_room()?;
        let command = self.commands.get_mut(usize::from(slot))?.as_mut()?;
        // Discarded data has no buffer.
        command.buf.get_mut(range)
    }

    /// Reports that this number of bytes was read into the [room](Connection::room).
    pub fn has_received(&mut self, now: Nanos, len: usize) {
        self.input.fill(len);
        self.receive(now, &[]);
    }

    /// Processes input.
    pub fn receive(&mut self, now: Nanos, mut bytes: &[u8]) {
        self.take_units(now, &mut bytes);
        if let Some(queue) = &self.queue {
            queue.controller().touch(now);
        }
    }

    fn take_units(&mut self, now: Nanos, bytes: &mut &[u8]) {
        while !self.is_over() {
            let commands = &mut self.commands;
            let data = |slot: u16, at: usize, from: &[u8]| {
                if let Some(Some(command)) = commands.get_mut(usize::from(slot))
                    && let Some(room) = command.buf.get_mut(at..at + from.len())
                {
                    room.copy_from_slice(from);
                }
            };
            match self.input.next(bytes, data) {
                Ok(Some(unit)) => {
                    self.take_unit(now, unit);
                    // Completions from within a submit are answered at once, while their memory is
                    // in the processor's cache and can serve the next command.
                    self.take_ends(now);
                }
                Ok(None) => return,
                Err(error) => return self.terminate(error.error, error.field),
            }
        }
    }

    /// Ends the connection because of a protocol error of the host (TCP 3.6.2.5).
    fn terminate(&mut self, error: u16, field: u32) {
        self.output.terminate(error, field, self.input.header());
        self.is_over = true;
    }

    fn take_unit(&mut self, now: Nanos, unit: Unit) {
        match unit {
            Unit::Header => self.take_header(now),
            Unit::Data { slot, is_sound } => self.take_data(now, slot, is_sound),
        }
    }

    /// Handles a complete header, already checked against its digest.
    fn take_header(&mut self, now: Nanos) {
        let kind = self.input.kind();
        match (kind, self.is_open) {
            (PduKind::IcReq, false) => self.open(),
            (PduKind::Command, true) => self.take_command(now),
            (PduKind::HostData, true) => self.begin_host_data(),
            (PduKind::HostTerm, _) => self.is_over = true,
            _ => self.terminate(term::SEQUENCE, 0),
        }
    }

    fn open(&mut self) {
        let Ok(request) = IcReq::read_from_bytes(&self.input.header()[..128]) else { return };
        if request.format.get() != 0 {
            return self.terminate(term::UNSUPPORTED, 8);
        }
        if request.alignment > 31 {
            return self.terminate(term::HEADER_FIELD, 10);
        }
        let digests = request.digests & (DigestFlags::HEADER | DigestFlags::DATA);
        let (header, data) = (digests & DigestFlags::HEADER != 0, digests & DigestFlags::DATA != 0);
        let data_max = self.target.transfer_max();
        self.output.plain(&IcResp {
            common: output::common(PduKind::IcResp, 0, 128, 0, 128),
            format: 0.into(),
            alignment: 0,
            digests,
            data_max: data_max.into(),
            reserved: [0; 112],
        });
        self.output.agree(header, data, (usize::from(request.alignment) + 1) * 4);
        self.input.agree(header, data);
        self.is_open = true;
    }

    fn take_command(&mut self, now: Nanos) {
        let Ok(sqe) = Sqe::read_from_bytes(&self.input.header()[8..72]) else { return };
        let in_capsule = self.input.data_len();
        let in_capsule_max = if self.queue.is_none() { 1024 } else { IN_CAPSULE };
        if in_capsule > in_capsule_max {
            return self.terminate(term::DATA_LIMIT, 4);
        }
        let entries = self.queue.as_ref().map_or(1, |queue| usize::from(queue.entries));
        // There may be more free slots than entries: commands that ended early use additional
        // slots.
        let has_entry = self.in_flight < entries;
        let Some(slot) = has_entry.then(|| self.free.pop().or_else(|| self.new_slot(entries))).flatten()
        else {
            // More commands than queue entries, or as many aborted commands with data still
            // outstanding.
            return self.terminate(term::HEADER_FIELD, 8);
        };
        self.sq_head = (self.sq_head + 1) % self.queue.as_ref().map_or(u16::MAX, |queue| queue.entries);
        let (from_host, to_host, mut status) = match self.lengths(&sqe) {
            Ok((from_host, to_host)) => {
                (from_host, to_host, self.check_pointer(&sqe, from_host, to_host, in_capsule))
            }
            Err(status) => (0, 0, Err(status)),
        };
        self.in_capsules += in_capsule as usize;
        if in_capsule > 0 && !self.hold(0) {
            // The data has arrived, and is discarded at once.
            status = status.and(Err(Status::INTERRUPTED));
        }
        let command = Command {
            sqe,
            from_host,
            to_host,
            buf: self.pools.take(in_capsule),
            counted: 0,
            in_capsule,
            stage: if in_capsule > 0 { CommandStage::Arriving } else { CommandStage::Ready },
            place: 0,
            left: 0,
            status: status.err().unwrap_or(Status::SUCCESS),
            then: Then::Answer,
            early: None,
        };
        let is_ordered = command.status.is_ok() && self.is_ordered(&sqe);
        self.commands[usize::from(slot)] = Some(Box::new(command));
        self.in_flight += 1;
        if is_ordered {
            self.writes.push_back(slot);
        }
        if in_capsule > 0 {
            self.input.begin_data(slot, 0, in_capsule);
        } else {
            self.begin(now, slot);
        }
    }

    fn new_slot(&mut self, entries: usize) -> Option<u16> {
        let max = 2 * entries;
        (self.commands.len() < max).then(|| {
            self.commands.push(None);
            (self.commands.len() - 1) as u16
        })
    }

    /// True if the command has to be submitted in command order.
    fn is_ordered(&self, sqe: &Sqe) -> bool {
        self.is_io() && matches!(sqe.opcode, io::WRITE | io::WRITE_ZEROES)
    }

    fn is_io(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.qid() > 0)
    }

    /// Starts a command with a complete capsule.
    fn begin(&mut self, now: Nanos, slot: u16) {
        if !self.command(slot).status.is_ok() {
            return self.answer(now, slot, 0);
        }
        let needs = self.needs(slot);
        if needs == 0 {
            return self.proceed(now, slot);
        }
        if !self.waiting_for_memory.is_empty() || !self.has_memory_for(needs) || !self.hold(needs) {
            self.command(slot).stage = CommandStage::WaitingForMemory;
            return self.waiting_for_memory.push_back(slot);
        }
        self.give_memory(now, slot, needs);
    }

    /// Bytes of memory that a command needs for data outside its capsule and for zone descriptors.
    fn needs(&self, slot: u16) -> usize {
        let Some(command) = &self.commands[usize::from(slot)] else { return 0 };
        let data = match command.sqe.data.kind {
            Sgl::IN_CAPSULE if command.from_host > 0 => 0,
            _ => command.from_host.max(command.to_host) as usize,
        };
        let is_of_zones =
            matches!(command.sqe.opcode, io::ZONE_MANAGEMENT_RECEIVE | io::ZONE_MANAGEMENT_SEND);
        if !is_of_zones || !self.is_io() {
            return data;
        }
        let namespace = self.target.namespace(command.sqe.nsid.get());
        data + namespace.map_or(0, |namespace| namespace.memory_for_zones(&command.sqe))
    }

    /// Assigns memory to a command.
    fn give_memory(&mut self, now: Nanos, slot: u16, needs: usize) {
        self.memory += needs;
        let is_io = self.is_io();
        let command = self.command(slot);
        command.counted = needs;
        let is_asked = command.from_host > 0 && command.sqe.data.kind != Sgl::IN_CAPSULE;
        // The controller produces responses of the admin queue itself, and reports are encoded from
        // descriptors.
        let is_for_data = is_asked || is_io && command.sqe.opcode == io::READ;
        let len = if is_for_data { command.from_host.max(command.to_host) } else { 0 };
        if len > 0 {
            let buf = self.pools.take(len);
            self.command(slot).buf = buf;
        }
        let command = self.command(slot);
        if !is_asked {
            command.stage = CommandStage::Ready;
            return self.proceed(now, slot);
        }
        command.stage = CommandStage::Receiving(0);
        let (cid, len) = (command.sqe.cid, command.from_host);
        self.output.header(&R2t {
            common: output::common(PduKind::R2t, 0, 24, 0, 24),
            command: cid,
            transfer: slot.into(),
            offset: 0.into(),
            len: len.into(),
            reserved: [0; 4],
        });
    }

    /// True if sending output has made work for the next poll.
    pub fn wants_poll(&self) -> bool {
        self.next_with_memory().is_some()
    }

    fn command(&mut self, slot: u16) -> &mut Command {
        self.commands[usize::from(slot)].as_mut().expect("a command has its slot until it is answered")
    }

    /// Handles the header of requested data.
    fn begin_host_data(&mut self) {
        let header = self.input.data_header();
        let (slot, offset, len) = (header.transfer.get(), header.offset.get(), header.len.get());
        let limit = self.target.transfer_max();
        let in_unit = self.input.data_len();
        let Some(Some(command)) = self.commands.get_mut(usize::from(slot)) else {
            return self.terminate(term::HEADER_FIELD, 10);
        };
        let (CommandStage::Receiving(got) | CommandStage::Discarding(got)) = command.stage else {
            return self.terminate(term::HEADER_FIELD, 10);
        };
        let error = match () {
            () if command.sqe.cid != header.command => Some((term::HEADER_FIELD, 8)),
            () if len == 0 || len != in_unit => Some((term::HEADER_FIELD, 16)),
            () if len > limit => Some((term::DATA_LIMIT, 16)),
            () if offset != got || len > command.from_host - got => Some((term::DATA_RANGE, 12)),
            () => None,
        };
        match error {
            Some((error, field)) => self.terminate(error, field),
            None => self.input.begin_data(slot, offset, len),
        }
    }

    /// Handles the end of a block of data.
    fn take_data(&mut self, now: Nanos, slot: u16, is_sound: Option<(u32, u32, u32)>) {
        let len = self.input.data_len();
        self.received += u64::from(len);
        let command = self.command(slot);
        if let CommandStage::Discarding(got) = command.stage {
            return self.discard(slot, got + len);
        }
        if let Some((from, to, expected)) = is_sound
            && digest(&command.buf[from as usize..to as usize]) != expected
            && command.status.is_ok()
        {
            command.status = Status::TRANSIENT_TRANSPORT_ERROR;
        }
        match command.stage {
            CommandStage::Receiving(got) if got + len < command.from_host => {
                command.stage = CommandStage::Receiving(got + len)
            }
            CommandStage::Receiving(_) => {
                command.stage = CommandStage::Ready;
                match command.status.is_ok() {
                    true => self.proceed(now, slot),
                    false => self.answer(now, slot, 0),
                }
            }
            _ => {
                command.stage = CommandStage::Ready;
                self.begin(now, slot);
            }
        }
    }

    /// Records that the data of a completed command has arrived up to `got`.
    fn discard(&mut self, slot: u16, got: u32) {
        let command = self.command(slot);
        command.stage = CommandStage::Discarding(got);
        if got == command.from_host {
            self.commands[usize::from(slot)] = None;
            self.free.push(slot);
            self.discarding -= 1;
        }
    }

    /// Executes a command that has all its data.
    fn proceed(&mut self, now: Nanos, slot: u16) {
        let sqe = self.command(slot).sqe;
        if sqe.opcode == fabrics::OPCODE {
            return self.fabrics(now, slot, &sqe);
        }
        if !self.is_io() {
            return self.admin(now, slot, &sqe);
        }
        if self.is_ordered(&sqe) {
            return self.submit_writes(now);
        }
        self.submit(now, slot);
    }

    fn submit_writes(&mut self, now: Nanos) {
        while let Some(&slot) = self.writes.front() {
            // A write that failed earlier is answered and gone.
            match &self.commands[usize::from(slot)] {
                Some(command) if command.stage == CommandStage::Ready => {}
                Some(_) => return,
                None => {}
            }
            self.writes.pop_front();
            self.submit(now, slot);
        }
    }

    /// Fabrics commands (Base 6).
    fn fabrics(&mut self, now: Nanos, slot: u16, sqe: &Sqe) {
        let is_connect = sqe.nsid.get() as u8 == fabrics::CONNECT;
        let result = match (&self.queue, is_connect) {
            (None, true) => return self.connect(now, slot, sqe),
            (None, false) | (Some(_), true) => Err(Status::SEQUENCE_ERROR),
            (Some(queue), false) => {
                let (offset, is_long) = (sqe.dword(11), sqe.dword(10) & 7 == 1);
                let value = u64::from(sqe.dword(12)) | u64::from(sqe.dword(13)) << 32;
                let controller = queue.controller();
                match sqe.nsid.get() as u8 {
                    fabrics::PROPERTY_GET if queue.qid() == 0 => controller.property(offset, is_long),
                    fabrics::PROPERTY_SET if queue.qid() == 0 => {
                        // A reset or shutdown affects the controller's queues on all threads.
                        self.needs_wake_others = true;
                        match controller.set_property(offset, is_long, value) {
                            Ok(PropertySet::Shutdown) => return self.begin_shutdown(now, slot),
                            set => set.map(|_| 0),
                        }
                    }
                    fabrics::DISCONNECT if sqe.dword(10) as u16 != 0 => Err(Status::CONNECT_FORMAT),
                    fabrics::DISCONNECT if queue.qid() == 0 => Err(Status::INVALID_QUEUE_TYPE),
                    // The first Disconnect is in progress and waits for every other command.
                    fabrics::DISCONNECT if self.disconnect.is_some() => Err(Status::SEQUENCE_ERROR),
                    fabrics::DISCONNECT => {
                        self.begin_disconnect(now, slot);
                        return self.end_disconnect(now);
                    }
                    _ => Err(Status::INVALID_OPCODE),
                }
            }
        };
        self.finish(now, slot, result);
    }

    /// Starts a shutdown, which completes once the I/O queues are drained and all data is durable
    /// (Base 3.6.1).
    fn begin_shutdown(&mut self, now: Nanos, slot: u16) {
        let Some(shutdown) = self.queue.as_ref().map(|queue| queue.controller().shutdown()) else { return };
        // Execution starts here, so a later Abort has no effect.
        self.command(slot).stage = CommandStage::Submitted;
        self.shutdowns.push((slot, shutdown));
        self.continue_shutdown(now);
    }

    /// On an I/O queue, reports to the controller when nothing is at the device. On the admin
    /// queue, flushes once all I/O queues are drained. Returns true if there was anything to do.
    fn continue_shutdown(&mut self, now: Nanos) -> bool {
        let Some(queue) = &self.queue else { return false };
        let (qid, is_draining) = (queue.qid(), queue.controller().is_draining());
        // A connection that is over takes no completions; its host waits for nothing at the device.
        let is_quiet = || self.is_over || !self.has_requests();
        if is_draining && qid > 0 && is_quiet() && queue.controller().has_drained(qid) {
            self.needs_wake_others = true;
            return true;
        }
        if is_draining || self.is_over || self.shutdowns.is_empty() {
            return false;
        }
        for (slot, shutdown) in std::mem::take(&mut self.shutdowns) {
            self.send_all(now, 0, slot, vec![Request::flush()], Then::Shutdown(shutdown));
        }
        true
    }

    fn connect(&mut self, now: Nanos, slot: u16, sqe: &Sqe) {
        let buf = std::mem::take(&mut self.command(slot).buf);
        let len = self.command(slot).from_host as usize;
        let connected = self.target.connect(sqe, &buf[..len.min(buf.len())], self.local, now);
        match connected {
            Ok((queue, share)) => {
                self.share = Some(share);
                let id = queue.controller().id();
                // The Connect command took the first entry.
                self.sq_head = 1 % queue.entries;
                self.queue = Some(queue);
                self.finish(now, slot, Ok(id.into()));
            }
            Err((status, result)) => {
                self.command(slot).status = status;
                self.answer(now, slot, result.into());
            }
        }
    }

    fn admin(&mut self, now: Nanos, slot: u16, sqe: &Sqe) {
        let Some(queue) = &self.queue else { return };
        match queue.controller().clone().admin(sqe) {
            Ok(Reply::Done(result)) => self.finish(now, slot, Ok(result)),
            Ok(Reply::Later) => {
                self.command(slot).stage = CommandStage::Submitted;
                self.needs_wake_others = sqe.opcode == admin::ABORT;
            }
            Ok(Reply::Data(data)) => {
                let len = data.len().min(self.command(slot).to_host as usize);
                let mut buf = self.pools.take(len as u32);
                buf[..len].copy_from_slice(&data[..len]);
                let command = self.command(slot);
                (command.buf, command.to_host) = (buf, len as u32);
                self.answer(now, slot, 0);
            }
            Err(status) => self.finish(now, slot, Err(status)),
        }
    }

    fn namespace_place(&self, nsid: u32) -> Option<usize> {
        self.target.namespaces().iter().position(|namespace| namespace.nsid() == nsid)
    }

    /// Submits a command to the volume.
    fn submit(&mut self, now: Nanos, slot: u16) {
        let target = self.target.clone();
        let Some(queue) = &self.queue else { return };
        if !queue.controller().is_ready() {
            return self.finish(now, slot, Err(Status::SEQUENCE_ERROR));
        }
        if target.is_baseline() {
            return self.answer(now, slot, 0);
        }
        let opcode = self.command(slot).sqe.opcode;
        if io::is_of_zones(opcode) && !self.queue.as_ref().is_some_and(|queue| queue.controller().has_zones())
        {
            return self.finish(now, slot, Err(Status::INVALID_OPCODE));
        }
        let command = self.command(slot);
        let sqe = command.sqe;
        // A flush may address all namespaces, which are one volume.
        let nsid = match (sqe.opcode, sqe.nsid.get()) {
            (io::FLUSH, u32::MAX) => target.namespaces()[0].nsid(),
            (_, nsid) => nsid,
        };
        let Some(place) = self.namespace_place(nsid) else {
            return self.finish(now, slot, Err(Status::INVALID_NAMESPACE));
        };
        let namespace = &target.namespaces()[place];
        let buf = std::mem::take(&mut self.command(slot).buf);
        let (requests, then) = match namespace.command(&sqe, buf) {
            Err(status) => return self.finish(now, slot, Err(status)),
            Ok(IoCommand::One(request)) => {
                let command = self.command(slot);
                (command.stage, command.left, command.place) = (CommandStage::Submitted, 1, place as u8);
                return self.send(now, place, slot, request);
            }
            Ok(IoCommand::Several(requests)) => (requests, Then::Answer),
            Ok(IoCommand::Report(report, request)) => (vec![request], Then::Report(report)),
            Ok(IoCommand::AllZones(op)) => (vec![Request::report(Sector(0), u32::MAX)], Then::All(op)),
        };
        self.send_all(now, place, slot, requests, then);
    }

    /// Starts the next round of an action on all zones.
    fn act_on_all(&mut self, now: Nanos, place: usize, slot: u16, op: Op, mut rounds: VecDeque<Vec<Sector>>) {
        let zones = rounds.pop_front().unwrap_or_default();
        let requests = zones.iter().map(|zone| Request::zone(op, *zone)).collect();
        let then = match op {
            Op::ZoneOpen => Then::OpenAll(zones),
            _ if rounds.is_empty() => Then::Answer,
            _ => Then::Rounds(op, rounds),
        };
        self.send_all(now, place, slot, requests, then);
    }

    fn send_all(&mut self, now: Nanos, place: usize, slot: u16, requests: Vec<Request>, then: Then) {
        let command = self.command(slot);
        command.stage = CommandStage::Submitted;
        (command.left, command.place) = (requests.len() as u32, place as u8);
        command.then = then;
        if requests.is_empty() {
            return self.finish(now, slot, Ok(0));
        }
        for request in requests {
            self.send(now, place, slot, request);
        }
    }

    fn send(&mut self, now: Nanos, place: usize, slot: u16, request: Request) {
        let target = &self.target;
        let inbox = self.inboxes[place].get_or_insert_with(|| target.namespaces()[place].part().inbox());
        target.volume().submit(now, inbox.channel(), request.token(slot.into()));
    }

    /// Processes completions, events and timeouts. Returns true if there was anything to do.
    pub fn poll(&mut self, now: Nanos) -> bool {
        self.begun.get_or_insert(now);
        if self.queue.is_none() && self.connect_until().is_some_and(|until| until <= now) {
            self.is_over = true;
        }
        if self.is_over {
            return self.continue_shutdown(now);
        }
        self.rebalance_memory(now);
        let mut is_busy = self.wants_poll();
        self.continue_waiting(now);
        is_busy |= self.poll_aborts(now);
        is_busy |= self.take_ends(now);
        if let Some(queue) = self.queue.as_ref().filter(|queue| queue.qid() == 0) {
            let controller = queue.controller().clone();
            controller.check_keep_alive(now);
            while let Some((cid, event)) = controller.next_event() {
                if let Some(slot) = self.find_waiting(cid, admin::ASYNC_EVENT_REQUEST) {
                    self.finish(now, slot, event);
                    is_busy = true;
                }
            }
        }
        self.end_disconnect(now);
        is_busy | self.continue_shutdown(now)
    }

    /// Takes completions. Returns true if there was any.
    fn take_ends(&mut self, now: Nanos) -> bool {
        let mut is_busy = false;
        // A connection that is over sends nothing more to its host.
        if self.is_over {
            return false;
        }
        for place in 0..self.inboxes.len() {
            while let Some(completion) = self.inboxes[place].as_ref().and_then(Inbox::take) {
                self.take_end(now, place, completion);
                is_busy = true;
            }
        }
        is_busy
    }

    fn take_end(&mut self, now: Nanos, place: usize, completion: Completion) {
        let slot = completion.token as u16;
        let command = self.command(slot);
        command.left -= 1;
        let is_read = command.to_host > 0;
        let mut result = 0;
        let output = match completion.result {
            Ok(output) => Some(output),
            Err(error) => {
                if command.status.is_ok() {
                    command.status = match &command.early {
                        Some(early) if EarlyEnd::is_reason_of(&error) => early.status,
                        _ => Status::of_request(&error, is_read),
                    };
                }
                None
            }
        };
        if command.left > 0 {
            return;
        }
        let target = self.target.clone();
        let namespace: &Namespace = &target.namespaces()[place];
        let command = self.command(slot);
        match (output, std::mem::replace(&mut command.then, Then::Answer)) {
            (Some(device::Output::Appended(sector)), _) => result = namespace.blocks(sector.0),
            (Some(device::Output::Zones(zones)), Then::Report(report)) => {
                let bytes = namespace.reported(&report, &zones);
                let mut buf = self.pools.take(bytes.len() as u32);
                buf[..bytes.len()].copy_from_slice(&bytes);
                self.command(slot).buf = buf;
            }
            (_, Then::All(_) | Then::Rounds(..)) if command.early.is_some() => {
                let status = command.early.as_ref().map_or(Status::INTERNAL_ERROR, |early| early.status);
                return self.finish(now, slot, Err(status));
            }
            (_, Then::Shutdown(shutdown)) => {
                let is_durable = std::mem::replace(&mut command.status, Status::SUCCESS).is_ok();
                if let Some(queue) = &self.queue {
                    queue.controller().has_shut_down(shutdown, is_durable);
                }
            }
            (Some(device::Output::Zones(zones)), Then::All(op)) => {
                return match namespace.affected_zones(op, &zones) {
                    Ok(rounds) => self.act_on_all(now, place, slot, op, rounds.into()),
                    Err(status) => self.finish(now, slot, Err(status)),
                };
            }
            // Continues after a failed zone: the other zones are processed all the same, and the
            // status is kept.
            (_, Then::Rounds(op, rounds)) => return self.act_on_all(now, place, slot, op, rounds),
            // Other hosts have opened zones meanwhile: undo, so that either all zones are open or
            // none.
            (_, Then::OpenAll(concerned)) if !command.status.is_ok() => {
                // Even after an Abort, which would otherwise block these requests.
                if let Some(early) = &mut command.early {
                    early.withdrawal = None;
                }
                return self.act_on_all(now, place, slot, Op::ZoneClose, [concerned].into());
            }
            // The buffer of a read with its data.
            _ => command.buf = completion.buf.into_buf(),
        }
        self.answer(now, slot, result);
    }

    fn finish(&mut self, now: Nanos, slot: u16, result: Result<u64, Status>) {
        let command = self.command(slot);
        // No data is returned.
        command.to_host = 0;
        match result {
            Ok(result) => self.answer(now, slot, result),
            Err(status) => {
                command.status = status;
                self.answer(now, slot, 0);
            }
        }
    }

    /// Completes a command: sends its data, if any, and its response.
    fn answer(&mut self, now: Nanos, slot: u16, result: u64) {
        let Some(mut command) = self.commands[usize::from(slot)].take() else { return };
        self.in_flight -= 1;
        let Command { sqe, to_host, from_host, counted, status, .. } = *command;
        self.in_capsules -= command.in_capsule as usize;
        let (buf, early) = (std::mem::take(&mut command.buf), command.early.take());
        match command.stage {
            CommandStage::Receiving(got) if got < from_host => {
                command.stage = CommandStage::Discarding(got);
                command.counted = 0;
                self.commands[usize::from(slot)] = Some(command);
                self.discarding += 1;
            }
            _ => self.free.push(slot),
        }
        self.count(&sqe, from_host, to_host, status);
        let has_flow_control = self.queue.as_ref().is_none_or(|queue| queue.has_flow_control);
        let mut is_told = false;
        if status.is_ok() && to_host > 0 {
            // Without flow control the last data PDU can imply success (TCP 3.3.2.2).
            is_told = !has_flow_control && result == 0;
            self.output.data(sqe.cid, buf, to_host, is_told);
        } else {
            self.pools.give(buf);
        }
        if !is_told {
            let cqe = Cqe {
                result: result.into(),
                sq_head: if has_flow_control { self.sq_head } else { 0 }.into(),
                sq: 0.into(),
                cid: sqe.cid,
                status: status.field().into(),
            };
            self.output.response(&cqe);
        }
        if counted > 0 {
            self.memory -= counted;
            self.continue_waiting(now);
        }
        if let Some(early) = early {
            self.complete_aborts(early, status);
        }
        // A failed write must not block the writes behind it.
        if self.writes.contains(&slot) {
            self.writes.retain(|other| *other != slot);
            self.submit_writes(now);
        }
    }

    /// Updates the counters and the error log for a completed command.
    fn count(&self, sqe: &Sqe, from_host: u32, to_host: u32, status: Status) {
        let Some(queue) = &self.queue else { return };
        match (status, sqe.opcode) {
            (Status::SUCCESS, io::READ) if queue.qid() > 0 => queue.counts().add_read(to_host),
            (Status::SUCCESS, io::WRITE | io::ZONE_APPEND) if queue.qid() > 0 => {
                queue.counts().add_write(from_host);
            }
            (Status::SUCCESS, _) => {}
            _ => {
                if matches!(status, Status::WRITE_FAULT | Status::READ_ERROR) {
                    queue.counts().add_media_error();
                }
                queue.controller().note_error(queue.qid(), sqe, status);
            }
        }
    }

    /// Cancels the waiting requests of a connection that is lost, so that no later poll issues
    /// them.
    pub fn cancel(&mut self, now: Nanos) {
        for inbox in self.inboxes.iter().flatten() {
            self.target.volume().cancel(now, inbox.channel());
        }
    }

    /// Closes the connection: [cancels](Connection::cancel) waiting requests and releases the queue
    /// for a new connect. Pending output stays.
    pub fn close(&mut self, now: Nanos) {
        self.cancel(now);
        self.is_over = true;
        self.queue = None;
    }

    /// First bytes of the last header, for messages.
    pub fn last_header(&self) -> &[u8] {
        self.input.header().as_bytes()
    }
}
