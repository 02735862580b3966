//! One connection: a queue of a controller, as bytes in and bytes out.
//!
//! A connection has no socket and reads no clock. Its driver gives it what has come ([`Connection::receive`]), lets it look for
//! what has ended ([`Connection::poll`]), and sends what it has to say ([`Connection::output`]). It stays on the thread that
//! made it: its requests end in inboxes of that thread.
//!
//! # Order
//! Positional writes of a connection go to the volume in the order of their commands, also where the data of a later one are there
//! first. So a host that sends the writes of a zone in order needs to wait for none.
//!
//! # Memory
//! Data are in memory from the moment that the host is asked for them, or that a read is submitted, until they are written or
//! sent. A connection has [`QUEUE_MEMORY_MIN`](crate::subsystem::QUEUE_MEMORY_MIN) bytes at first, or one command's, and more as its
//! host moves data: a sixteenth of that, up to [`MEMORY_MAX`]. Other commands wait, in order. So a silent host holds little, however
//! much it asks for. A host that takes no answers gets no more of them made. Answers of the admin queue count like those of others, and so do the
//! descriptors of zones that a report or an action goes over.
//!
//! Data in capsules come whether there is memory or not, at most [`IN_CAPSULE`] bytes for each entry of the queue.
//!
//! All connections of a target have a bound as well ([`TARGET_MEMORY_MAX`](crate::subsystem::TARGET_MEMORY_MAX)). Of that each queue has
//! its first bytes from its connect on, or its connect ends with Connect Controller Busy. Where the rest is used up, commands that need
//! more wait, and those with such data in their capsule end with Command Interrupted. A connection that holds more than its first bytes
//! then, and whose host moves nothing for [`STALLED_MAX`], is closed.
//!
//! # Time
//! A host connects its queue within [`CONNECT_MAX`] of the first poll, however slowly its bytes come. From then on the controller's
//! time to keep alive is the bound.

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

/// Bytes of data that the commands of a connection have at once at most, but for those in capsules.
pub const MEMORY_MAX: usize = 4 << 20;

/// How long a host has to connect its queue. That takes it two answers of the controller.
pub const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Bytes of data that come with a connect command (Base 6.3).
const CONNECT_DATA: u32 = size_of::<ConnectData>() as u32;

/// A command that has no completion yet.
struct Command {
    sqe: Sqe,
    /// Bytes from the host, and to it.
    from_host: u32,
    to_host: u32,
    buf: IoBuf,
    /// Bytes of `buf` that count as the connection's memory.
    counted: usize,
    /// Bytes of data in its capsule.
    in_capsule: u32,
    stage: CommandStage,
    /// Of its namespace among the target's, once it is submitted.
    place: u8,
    /// Requests of it that have not ended.
    left: u32,
    status: Status,
    then: Then,
    /// Why it ends before its time, if it is to.
    early: Option<EarlyEnd>,
}

/// What the end of a command's requests is for.
enum Then {
    /// Its own end.
    Answer,
    /// A report for the host.
    Report(ZoneReport),
    /// The zones that an action on all concerns.
    All(Op),
    /// The next rounds of an action on all.
    Rounds(Op, VecDeque<Vec<Sector>>),
    /// These zones are open, or closed again if one could not be opened.
    OpenAll(Vec<Sector>),
    /// The controller's shutdown, of this number.
    Shutdown(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CommandStage {
    /// The data in its capsule are coming.
    Arriving,
    /// It waits for memory.
    WaitingForMemory,
    /// The host was asked for its data, of which this number of bytes has come.
    Receiving(u32),
    /// Its data are there.
    Ready,
    /// With the volume, or waiting for an event.
    Submitted,
    /// It has ended, and the host is still sending its data, of which this number of bytes has come.
    Discarding(u32),
}

/// A connection. See the module.
#[allow(clippy::redundant_allocation, reason = "the inner count is shared by threads, the outer one is not")]
pub struct Connection {
    /// Counted here as well: for each command it is held for a moment, and the count inside is shared by threads.
    target: Rc<Arc<Target>>,
    local: SocketAddr,
    pools: Rc<BufferPools>,
    input: Input,
    output: Output,
    is_open: bool,
    /// Its association, once it is connected.
    queue: Option<Association>,
    /// Of each namespace, once it is used.
    inboxes: Vec<Option<Inbox>>,
    commands: Vec<Option<Box<Command>>>,
    free: Vec<u16>,
    in_flight: usize,
    /// Positional writes that are not submitted yet, in the order of their commands.
    writes: VecDeque<u16>,
    waiting_for_memory: VecDeque<u16>,
    memory: usize,
    /// Bytes of data in capsules of commands without a completion.
    in_capsules: usize,
    /// What it holds of the target's memory, once it is connected.
    share: Option<QueueMemory>,
    /// Bytes of data that have come.
    received: u64,
    /// What its host had moved when that was last looked at, and since when it has been this.
    moved: (u64, Nanos),
    /// Whether commands that waited for memory are being continued, by a caller of this one.
    is_continuing: bool,
    sq_head: u16,
    /// Slots of commands that have ended and whose data are coming.
    discarding: usize,
    /// The command that deletes the queue.
    disconnect: Option<u16>,
    /// Commands that shut the controller down, until their flush begins, and which shutdown each is.
    shutdowns: Vec<(u16, u32)>,
    wakes_others: bool,
    /// When it was polled first.
    begun: Option<Nanos>,
    is_over: bool,
}

impl Connection {
    /// A connection that a host has just made, to `local`.
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
            wakes_others: false,
            begun: None,
            is_over: false,
        }
    }

    /// What it has to send.
    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// Whether it is to be closed once its output is sent.
    pub fn is_over(&self) -> bool {
        self.is_over || self.queue.as_ref().is_some_and(Association::is_over)
    }

    /// Its queue, once it is connected.
    pub fn queue(&self) -> Option<&Association> {
        self.queue.as_ref()
    }

    /// Commands without a completion, those that wait for events included.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Bytes of memory that its commands have, but for data in capsules: at most [`MEMORY_MAX`], or one command's.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Whether a command of an I/O queue is with the volume. It looks at all commands.
    pub fn has_requests(&self) -> bool {
        let is_submitted = |command: &Command| command.stage == CommandStage::Submitted;
        self.is_io() && self.commands.iter().flatten().any(|command| is_submitted(command))
    }

    /// Until when it has to be polled at the latest, whatever comes.
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

    /// Where the driver may put the next bytes that come, if they are many bytes of data; then it calls
    /// [`Connection::has_received`].
    pub fn room(&mut self) -> Option<&mut [u8]> {
        let (slot, range) = self.input.data_room()?;
        let command = self.commands.get_mut(usize::from(slot))?.as_mut()?;
        // There is none for what is discarded.
        command.buf.get_mut(range)
    }

    /// This number of bytes was put into the [room](Connection::room).
    pub fn has_received(&mut self, now: Nanos, len: usize) {
        self.input.fill(len);
        self.receive(now, &[]);
    }

    /// Takes bytes that have come.
    pub fn receive(&mut self, now: Nanos, mut bytes: &[u8]) {
        self.take_units(now, &mut bytes);
        if let Some(queue) = &self.queue {
            queue.controller().hear(now);
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
                    // What has ended inside a submit is answered at once: its memory is in the processor's cache, and serves the
                    // next command.
                    self.take_ends(now);
                }
                Ok(None) => return,
                Err(error) => return self.terminate(error.error, error.field),
            }
        }
    }

    /// Ends the connection because of an error of the host's (TCP 3.6.2.5).
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

    /// A header is there, and checked against its digest.
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
        // Slots that are free again may be more than these: commands that have ended early had some beside them.
        let has_entry = self.in_flight < entries;
        let Some(slot) = has_entry.then(|| self.free.pop().or_else(|| self.new_slot(entries))).flatten()
        else {
            // More commands than the queue has entries, or as many again that were aborted and whose data have not come.
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
            // Its data have come, and are thrown away at once.
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

    /// Whether the command goes to the volume in the order of its kind.
    fn is_ordered(&self, sqe: &Sqe) -> bool {
        self.is_io() && matches!(sqe.opcode, io::WRITE | io::WRITE_ZEROES)
    }

    fn is_io(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.qid() > 0)
    }

    /// A command whose capsule is there.
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

    /// Bytes of memory that a command needs: for data that are not in its capsule, and for descriptors of zones.
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

    /// Gives a command its memory.
    fn give_memory(&mut self, now: Nanos, slot: u16, needs: usize) {
        self.memory += needs;
        let is_io = self.is_io();
        let command = self.command(slot);
        command.counted = needs;
        let is_asked = command.from_host > 0 && command.sqe.data.kind != Sgl::IN_CAPSULE;
        // The controller makes the admin queue's answers itself, and reports are made of their descriptors.
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

    /// Whether the next poll has something to do because output was sent.
    pub fn wants_poll(&self) -> bool {
        self.next_with_memory().is_some()
    }

    fn command(&mut self, slot: u16) -> &mut Command {
        self.commands[usize::from(slot)].as_mut().expect("a command has its slot until it is answered")
    }

    /// A header of data that the host was asked for.
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

    /// Data of a command are there.
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

    /// Up to `got` the data of a command have come that has ended.
    fn discard(&mut self, slot: u16, got: u32) {
        let command = self.command(slot);
        command.stage = CommandStage::Discarding(got);
        if got == command.from_host {
            self.commands[usize::from(slot)] = None;
            self.free.push(slot);
            self.discarding -= 1;
        }
    }

    /// A command that has all it needs.
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
            // A write that has failed before is answered and gone.
            match &self.commands[usize::from(slot)] {
                Some(command) if command.stage == CommandStage::Ready => {}
                Some(_) => return,
                None => {}
            }
            self.writes.pop_front();
            self.submit(now, slot);
        }
    }

    /// Base 6.
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
                        // A reset or shutdown concerns the controller's queues on all threads.
                        self.wakes_others = true;
                        match controller.set_property(offset, is_long, value) {
                            Ok(PropertySet::Shutdown) => return self.begin_shutdown(now, slot),
                            set => set.map(|_| 0),
                        }
                    }
                    fabrics::DISCONNECT if sqe.dword(10) as u16 != 0 => Err(Status::CONNECT_FORMAT),
                    fabrics::DISCONNECT if queue.qid() == 0 => Err(Status::INVALID_QUEUE_TYPE),
                    // The first one is under way, and waits for every other command.
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

    /// A shutdown is over once what the I/O queues have at the device has ended, and all data are durable (Base 3.6.1).
    fn begin_shutdown(&mut self, now: Nanos, slot: u16) {
        let Some(shutdown) = self.queue.as_ref().map(|queue| queue.controller().shutdown()) else { return };
        // It is carried out from here on: an Abort comes too late.
        self.command(slot).stage = CommandStage::Submitted;
        self.shutdowns.push((slot, shutdown));
        self.continue_shutdown(now);
    }

    /// Of an I/O queue: tells the controller when nothing is at the device. Of the admin queue: flushes when all have. Whether
    /// there was something to do.
    fn continue_shutdown(&mut self, now: Nanos) -> bool {
        let Some(queue) = &self.queue else { return false };
        let (qid, is_draining) = (queue.qid(), queue.controller().is_draining());
        // A connection that is over takes no ends: its host waits for nothing at the device.
        let is_quiet = || self.is_over || !self.has_requests();
        if is_draining && qid > 0 && is_quiet() && queue.controller().has_drained(qid) {
            self.wakes_others = true;
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
                // The connect command itself was one.
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
                self.wakes_others = sqe.opcode == admin::ABORT;
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

    /// Hands a command to the volume.
    fn submit(&mut self, now: Nanos, slot: u16) {
        let target = self.target.clone();
        let Some(queue) = &self.queue else { return };
        if !queue.controller().is_ready() {
            return self.finish(now, slot, Err(Status::SEQUENCE_ERROR));
        }
        if target.is_floor() {
            return self.answer(now, slot, 0);
        }
        let opcode = self.command(slot).sqe.opcode;
        if io::is_of_zones(opcode) && !self.queue.as_ref().is_some_and(|queue| queue.controller().has_zones())
        {
            return self.finish(now, slot, Err(Status::INVALID_OPCODE));
        }
        let command = self.command(slot);
        let sqe = command.sqe;
        // A flush may be of all namespaces: they are one volume.
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

    /// Begins the first of these rounds of an action on all zones.
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

    /// Looks for requests that have ended, for events, and at the time. Returns whether there was something.
    pub fn poll(&mut self, now: Nanos) -> bool {
        self.begun.get_or_insert(now);
        if self.queue.is_none() && self.connect_until().is_some_and(|until| until <= now) {
            self.is_over = true;
        }
        if self.is_over {
            return self.continue_shutdown(now);
        }
        self.look_at_share(now);
        let mut is_busy = self.wants_poll();
        self.continue_waiting(now);
        is_busy |= self.look_at_aborts(now);
        is_busy |= self.take_ends(now);
        if let Some(queue) = self.queue.as_ref().filter(|queue| queue.qid() == 0) {
            let controller = queue.controller().clone();
            controller.look_at_time(now);
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

    /// Takes what has ended. Returns whether there was something.
    fn take_ends(&mut self, now: Nanos) -> bool {
        let mut is_busy = false;
        // A connection that is over takes none: its host is told no more.
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
                return match namespace.concerned(op, &zones) {
                    Ok(rounds) => self.act_on_all(now, place, slot, op, rounds.into()),
                    Err(status) => self.finish(now, slot, Err(status)),
                };
            }
            // Also after a zone that failed: the others are acted on all the same, and its status is kept.
            (_, Then::Rounds(op, rounds)) => return self.act_on_all(now, place, slot, op, rounds),
            // Other hosts have opened zones meanwhile: all or none.
            (_, Then::OpenAll(concerned)) if !command.status.is_ok() => {
                // Also after an Abort, which would keep these requests back.
                if let Some(early) = &mut command.early {
                    early.withdrawal = None;
                }
                return self.act_on_all(now, place, slot, Op::ZoneClose, [concerned].into());
            }
            // The data of a read have come back.
            _ => command.buf = completion.buf.into_buf(),
        }
        self.answer(now, slot, result);
    }

    fn finish(&mut self, now: Nanos, slot: u16, result: Result<u64, Status>) {
        let command = self.command(slot);
        // No data go with it.
        command.to_host = 0;
        match result {
            Ok(result) => self.answer(now, slot, result),
            Err(status) => {
                command.status = status;
                self.answer(now, slot, 0);
            }
        }
    }

    /// Sends a command's end, and its data before that.
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
            // Without flow control the last data may stand for the end (TCP 3.3.2.2).
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
            self.tell_aborts(early, status);
        }
        // A write that has failed is not in the way of others.
        if self.writes.contains(&slot) {
            self.writes.retain(|other| *other != slot);
            self.submit_writes(now);
        }
    }

    /// Counts a command that has ended.
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

    /// Requests of this connection that wait are ended, and issued by no later poll: for a connection that is lost.
    pub fn cancel(&mut self, now: Nanos) {
        for inbox in self.inboxes.iter().flatten() {
            self.target.volume().cancel(now, inbox.channel());
        }
    }

    /// Ends it, for its side: [cancels](Connection::cancel) what waits, and leaves its queue, which then may be connected again. What it
    /// has to send stays.
    pub fn close(&mut self, now: Nanos) {
        self.cancel(now);
        self.is_over = true;
        self.queue = None;
    }

    /// The first bytes of the last header, for messages.
    pub fn last_header(&self) -> &[u8] {
        self.input.header().as_bytes()
    }
}
