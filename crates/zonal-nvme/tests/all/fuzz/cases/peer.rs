//! Host side of one connection. Tracks its commands and checks every PDU of the controller.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zerocopy::{FromBytes, IntoBytes};
use zonal_core::Nanos;
use zonal_nvme::connection::{Connection, MEMORY_MAX};
use zonal_nvme::wire::{
    CommonHeader, Cqe, DataHeader, IcReq, PduKind, R2t, Sgl, Sqe, admin, data_flags, digest, fabrics,
};

/// Allowance above a connection's limit: the data of one command, and headers of unsent output.
const ON_TOP: usize = (1 << 20) + (256 << 10);

/// Command in flight.
#[derive(Debug)]
pub struct Sent {
    pub sqe: Sqe,
    payload: Vec<u8>,
    /// Data received for it.
    received: Vec<u8>,
}

/// Completed command.
#[derive(Debug)]
#[allow(dead_code, reason = "runs of several hosts read it, the cases of one do not")]
pub struct Ended {
    pub sqe: Sqe,
    /// Status as printed by hosts.
    pub status: u16,
    pub result: u64,
    pub data: Vec<u8>,
}

/// Data requested by the controller, and the number of bytes sent. A host sends it even if the
/// command has completed.
pub struct Asked {
    cid: u16,
    transfer: u16,
    data: Vec<u8>,
    sent: u32,
}

/// Counts of commands.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    pub sent: u64,
    pub ended: u64,
    pub succeeded: u64,
}

/// Falsification of completions before the host sees them, to simulate a faulty controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    Twice,
    Never,
    /// The command identifier is changed to another one.
    OtherCommand,
}

/// One completion in this many is eligible for falsification.
const LIE_EVERY: u64 = 4;

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.sent += other.sent;
        self.ended += other.ended;
        self.succeeded += other.succeeded;
    }
}

/// Host side of a connection.
pub struct Peer {
    pub connection: Connection,
    /// Sent by the host and not yet delivered.
    pub wire: VecDeque<u8>,
    received: Vec<u8>,
    header_digest: bool,
    data_digest: bool,
    has_asked: bool,
    is_granted: bool,
    is_terminated: bool,
    /// The host has sent something invalid, so the set of commands in flight is no longer known.
    pub is_wild: bool,
    pub queue: Option<(u16, u16)>,
    entries: usize,
    next_cid: u16,
    pub outstanding: BTreeMap<u16, Sent>,
    /// Outstanding event requests: each completes at most once.
    events: BTreeSet<u16>,
    pub asked: Vec<Asked>,
    bytes_sent: u64,
    /// Completed commands since last taken, if collected.
    pub ended: Option<Vec<Ended>>,
    lie: Option<Lie>,
    pub tally: Tally,
}

fn wrong<T>(what: impl Into<String>) -> Result<T, String> {
    Err(what.into())
}

impl Peer {
    pub fn new(connection: Connection, lie: Option<Lie>) -> Peer {
        Peer {
            connection,
            lie,
            wire: VecDeque::new(),
            received: Vec::new(),
            header_digest: false,
            data_digest: false,
            has_asked: false,
            is_granted: false,
            is_terminated: false,
            is_wild: false,
            queue: None,
            entries: 2,
            next_cid: 0,
            outstanding: BTreeMap::new(),
            events: BTreeSet::new(),
            asked: Vec::new(),
            bytes_sent: 0,
            ended: None,
            tally: Tally::default(),
        }
    }

    /// True if it may send commands.
    pub fn is_granted(&self) -> bool {
        self.is_granted && !self.connection.is_over()
    }

    /// True if commands are outstanding that have to complete.
    pub fn is_waiting(&self) -> bool {
        !self.is_wild && !self.connection.is_over() && !self.outstanding.is_empty()
    }

    /// True if its queue has a free entry.
    pub fn has_entry(&self) -> bool {
        self.outstanding.len() + self.events.len() + 1 < self.entries
    }

    /// Adds bytes to the wire.
    pub fn send(&mut self, bytes: &[u8]) {
        self.wire.extend(bytes);
    }

    /// Sends a connection request.
    pub fn ask_to_open(&mut self, header_digest: bool, data_digest: bool, alignment: u8) {
        if std::mem::replace(&mut self.has_asked, true) {
            // A second request ends the connection and negotiates nothing.
            self.is_wild = true;
        } else {
            (self.header_digest, self.data_digest) = (header_digest, data_digest);
        }
        let request = IcReq {
            common: CommonHeader { kind: 0, flags: 0, header_len: 128, data_offset: 0, len: 128.into() },
            format: 0.into(),
            alignment,
            digests: u8::from(header_digest) | u8::from(data_digest) << 1,
            r2t_max: 0.into(),
            reserved: [0; 112],
        };
        self.send(request.as_bytes());
    }

    /// Sends a command. Its payload is in the capsule if the data pointer says so, and otherwise
    /// sent on request. Returns the identifier.
    pub fn command(&mut self, mut sqe: Sqe, payload: Vec<u8>) -> u16 {
        self.next_cid = self.next_cid.wrapping_add(1);
        sqe.cid = self.next_cid.into();
        let in_capsule = if sqe.data.kind == Sgl::IN_CAPSULE { &payload[..] } else { &[] };
        let unit = self.unit(PduKind::Command, 0, sqe.as_bytes(), in_capsule);
        self.send(&unit);
        self.tally.sent += 1;
        match sqe.opcode == admin::ASYNC_EVENT_REQUEST && self.queue.is_some_and(|(_, qid)| qid == 0) {
            true => drop(self.events.insert(self.next_cid)),
            false => {
                drop(self.outstanding.insert(self.next_cid, Sent { sqe, payload, received: Vec::new() }))
            }
        }
        self.next_cid
    }

    /// Sends the next `len` bytes of requested data, or all of it if `None`.
    pub fn answer(&mut self, place: usize, len: Option<u32>) {
        let Some(asked) = self.asked.get_mut(place) else { return };
        let left = asked.data.len() as u32 - asked.sent;
        let len = len.map_or(left, |len| len.clamp(1, left));
        let header = DataHeader {
            common: CommonHeader::read_from_bytes(&[0; 8]).expect("8 bytes"),
            command: asked.cid.into(),
            transfer: asked.transfer.into(),
            offset: asked.sent.into(),
            len: len.into(),
            reserved: [0; 4],
        };
        let data = asked.data[asked.sent as usize..][..len as usize].to_vec();
        asked.sent += len;
        let is_last = len == left;
        if is_last {
            self.asked.remove(place);
        }
        let flags = if is_last { data_flags::LAST } else { 0 };
        let unit = self.unit(PduKind::HostData, flags, &header.as_bytes()[8..], &data);
        self.send(&unit);
    }

    /// Builds a PDU with its digests.
    pub fn unit(&self, kind: PduKind, flags: u8, header: &[u8], data: &[u8]) -> Vec<u8> {
        let header_digest = if self.header_digest { 4 } else { 0 };
        let data_digest = if self.data_digest && !data.is_empty() { 4 } else { 0 };
        let offset = 8 + header.len() + header_digest;
        let common = CommonHeader {
            kind: kind as u8,
            flags: flags
                | if self.header_digest { data_flags::HEADER_DIGEST } else { 0 }
                | if data_digest > 0 { data_flags::DATA_DIGEST } else { 0 },
            header_len: (8 + header.len()) as u8,
            data_offset: if data.is_empty() { 0 } else { offset as u8 },
            len: ((offset + data.len() + data_digest) as u32).into(),
        };
        let mut bytes = common.as_bytes().to_vec();
        bytes.extend_from_slice(header);
        if self.header_digest {
            let told = digest(&bytes);
            bytes.extend_from_slice(&told.to_le_bytes());
        }
        bytes.extend_from_slice(data);
        if data_digest > 0 {
            bytes.extend_from_slice(&digest(data).to_le_bytes());
        }
        bytes
    }

    /// Delivers up to `len` bytes of the wire, directly into a command's memory where the
    /// connection offers room.
    pub fn deliver(&mut self, now: Nanos, len: usize) {
        let mut left = len.min(self.wire.len());
        while left > 0 && !self.connection.is_over() {
            let mut piece = left;
            match self.connection.room() {
                Some(room) => {
                    piece = piece.min(room.len());
                    self.wire.drain(..piece).zip(room).for_each(|(byte, place)| *place = byte);
                    self.connection.has_received(now, piece);
                }
                None => {
                    let bytes: Vec<u8> = self.wire.drain(..piece).collect();
                    self.connection.receive(now, &bytes);
                }
            }
            self.bytes_sent += piece as u64;
            left -= piece;
        }
    }

    /// Takes up to `len` bytes of output, and checks the complete PDUs.
    pub fn take(&mut self, mut len: usize) -> Result<usize, String> {
        let output = self.connection.output();
        let before = self.received.len();
        while len > 0 && !output.is_empty() {
            let mut taken = 0;
            for slice in output.slices() {
                let piece = slice.len().min(len - taken);
                self.received.extend_from_slice(&slice[..piece]);
                taken += piece;
            }
            if taken == 0 {
                return wrong("there is output, and none of it can be taken");
            }
            output.has_sent(taken);
            len -= taken;
        }
        let taken = self.received.len() - before;
        while self.take_unit()? {}
        Ok(taken)
    }

    fn take_unit(&mut self) -> Result<bool, String> {
        let Ok((common, _)) = CommonHeader::read_from_prefix(&self.received) else { return Ok(false) };
        let len = common.len.get() as usize;
        if !(16..=(1 << 20) + 256).contains(&len) {
            return wrong(format!("a unit of {len} bytes"));
        }
        if self.received.len() < len {
            return Ok(false);
        }
        if self.is_terminated {
            return wrong("a unit follows the end of the connection");
        }
        let unit: Vec<u8> = self.received.drain(..len).collect();
        let kind = PduKind::of(common.kind).ok_or(format!("a unit of kind {}", common.kind))?;
        match (kind, self.is_granted) {
            (PduKind::IcResp, false) => self.is_granted = true,
            (PduKind::ControllerTerm, _) => self.is_terminated = true,
            (PduKind::Response | PduKind::ControllerData | PduKind::R2t, true) => {
                self.check_header_digest(&unit, common)?;
                match kind {
                    PduKind::Response => {
                        let (cqe, _) = Cqe::read_from_prefix(&unit[8..]).map_err(|_| "a short completion")?;
                        self.complete(cqe)?;
                    }
                    PduKind::R2t => self.was_asked(&unit)?,
                    _ => self.take_data(&unit, common)?,
                }
            }
            _ => return wrong(format!("{kind:?} where it may not come")),
        }
        Ok(true)
    }

    fn check_header_digest(&self, unit: &[u8], common: CommonHeader) -> Result<(), String> {
        if self.is_wild {
            return Ok(());
        }
        let has_digest = common.flags & data_flags::HEADER_DIGEST != 0;
        let end = usize::from(common.header_len);
        match has_digest {
            _ if has_digest != self.header_digest => {
                wrong("a header with a digest or without, as was not agreed")
            }
            true if unit[end..end + 4] != digest(&unit[..end]).to_le_bytes() => wrong("a header's digest"),
            _ => Ok(()),
        }
    }

    fn take_data(&mut self, unit: &[u8], common: CommonHeader) -> Result<(), String> {
        let (header, _) = DataHeader::read_from_prefix(unit).map_err(|_| "a short header")?;
        let (at, len) = (usize::from(common.data_offset), header.len.get() as usize);
        let cid = header.command.get();
        if len == 0 || at + len > unit.len() {
            return wrong(format!("{len} bytes at {at} of a unit of {}", unit.len()));
        }
        if self.data_digest && !self.is_wild && digest(&unit[at..at + len]).to_le_bytes() != unit[at + len..]
        {
            return wrong("the digest of data");
        }
        match self.outstanding.get_mut(&cid) {
            Some(command) if header.offset.get() as usize == command.received.len() => {
                command.received.extend_from_slice(&unit[at..at + len]);
            }
            _ if self.is_wild => {}
            _ => return wrong(format!("data of command {cid}, which it has not, or at another place")),
        }
        match common.flags & data_flags::SUCCESS {
            0 => Ok(()),
            _ => self.ended(cid, 0, 0),
        }
    }

    fn was_asked(&mut self, unit: &[u8]) -> Result<(), String> {
        let (r2t, _) = R2t::read_from_prefix(unit).map_err(|_| "a short header")?;
        let (cid, transfer, len) = (r2t.command.get(), r2t.transfer.get(), r2t.len.get());
        match self.outstanding.get_mut(&cid) {
            Some(command) if r2t.offset.get() == 0 && len == command.sqe.data.len.get() && len > 0 => {
                let mut data = std::mem::take(&mut command.payload);
                data.resize(len as usize, 3);
                self.asked.push(Asked { cid, transfer, data, sent: 0 });
                Ok(())
            }
            _ if self.is_wild => Ok(()),
            command => wrong(format!("{len} bytes are asked for of {cid}: {command:?}")),
        }
    }

    fn complete(&mut self, cqe: Cqe) -> Result<(), String> {
        let (cid, status, result) = (cqe.cid.get(), cqe.status.get() >> 1, cqe.result.get());
        let is_due = self.tally.ended % LIE_EVERY == LIE_EVERY - 1 && self.queue.is_some();
        match self.lie.filter(|_| is_due) {
            None => self.ended(cid, status, result),
            Some(Lie::Never) => {
                self.lie = None;
                Ok(())
            }
            Some(Lie::OtherCommand) => self.ended(cid.wrapping_add(1000), status, result),
            Some(Lie::Twice) => {
                self.ended(cid, status, result).and_then(|()| self.ended(cid, status, result))
            }
        }
    }

    fn ended(&mut self, cid: u16, status: u16, result: u64) -> Result<(), String> {
        self.tally.ended += 1;
        self.tally.succeeded += u64::from(status == 0);
        let was_sent = self.outstanding.remove(&cid);
        if was_sent.is_none() && !self.events.remove(&cid) && !self.is_wild {
            return wrong(format!("command {cid} ends twice, or was never sent"));
        }
        // Every completion takes a capsule of at least 72 bytes.
        if self.tally.ended * 72 > self.bytes_sent {
            return wrong(format!("{} ends in {} bytes", self.tally.ended, self.bytes_sent));
        }
        if let Some(sent) = was_sent {
            self.note(sent, status, result)?;
        }
        Ok(())
    }

    fn note(&mut self, sent: Sent, status: u16, result: u64) -> Result<(), String> {
        let Sent { sqe, received: data, .. } = sent;
        if status == 0 && !self.is_wild {
            if data.len() > sqe.data.len.get() as usize {
                return wrong(format!("{} bytes come for {sqe:?}", data.len()));
            }
            let is_connect = sqe.opcode == fabrics::OPCODE && sqe.nsid.get() == u32::from(fabrics::CONNECT);
            if is_connect {
                self.queue = Some((result as u16, (sqe.dword(10) >> 16) as u16));
                self.entries = usize::from(sqe.dword(11) as u16) + 1;
            }
        }
        if let Some(ended) = &mut self.ended {
            ended.push(Ended { sqe, status, result, data });
        }
        Ok(())
    }

    /// Checks the invariants that hold at all times.
    pub fn check_bounds(&mut self) -> Result<(), String> {
        let (memory, unsent) = (self.connection.memory(), self.connection.output().len());
        match memory + unsent <= MEMORY_MAX + ON_TOP {
            true => Ok(()),
            false => wrong(format!("{memory} bytes in memory, and {unsent} not sent")),
        }
    }

    /// Checks the invariants that hold once everything has completed.
    pub fn check_end(&mut self) -> Result<(), String> {
        if self.connection.is_over() || self.is_wild {
            return Ok(());
        }
        let in_flight = self.connection.in_flight();
        if let Some((cid, command)) = self.outstanding.first_key_value() {
            return wrong(format!("command {cid} does not end: {:?}", command.sqe));
        }
        if in_flight > self.events.len().min(4) {
            return wrong(format!("{in_flight} commands are in flight, and none was sent"));
        }
        match self.connection.memory() {
            0 => Ok(()),
            memory => wrong(format!("{memory} bytes of memory, and nothing in flight")),
        }
    }
}
