//! One queue of a host: bytes in, bytes out, without a socket or a clock.
//!
//! The driver sends [`HostQueue::output`], passes input to [`HostQueue::receive`], and takes
//! completions from [`HostQueue::next_ended`]. The queue owns the caller's data from submission to
//! completion.
//!
//! # Data
//! Data for the controller travels in the capsule, or the controller requests it (TCP 3.3.2).
//! Requested data is copied to the output in pieces, so the output stays below [`OUTPUT_MAX`] plus
//! one PDU, however much the controller requests.
//!
//! # Errors
//! A protocol violation by the controller ends the queue. [`HostQueue::receive`] returns the
//! reason, and the output ends with a termination request to the controller.

use crate::connection::input::{Fatal, Input, Side, Unit};
use crate::status::Status;
use crate::wire::{
    CommonHeader, Cqe, DataHeader, IcReq, IcResp, PduKind, R2t, Sgl, Sqe, TermReq, data_flags, digest, term,
};
use std::collections::VecDeque;
use std::ops::Range;
use zerocopy::{FromBytes, IntoBytes};

/// Output that is assembled ahead of sending, plus at most one PDU.
pub const OUTPUT_MAX: usize = 256 << 10;

/// Maximum data per PDU, unless the controller allows less.
const UNIT_MAX: u32 = 128 << 10;

/// Data memory of a command, along with anything else that the caller wants back at completion.
pub trait HostData {
    /// Bytes of data for the controller.
    fn send_len(&self) -> usize;

    /// Maximum bytes of data from the controller.
    fn receive_len(&self) -> usize;

    /// Calls `take` for the pieces of this range, in order.
    fn for_each(&self, range: Range<usize>, take: &mut dyn FnMut(&[u8]));

    /// Stores received bytes at this position, within [`HostData::receive_len`].
    fn put(&mut self, at: usize, bytes: &[u8]);
}

/// Connection options of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct HostOptions {
    /// True to use header digests if the controller supports them.
    pub header_digest: bool,
    /// True to use data digests if the controller supports them.
    pub data_digest: bool,
    /// Maximum data per PDU in bytes; 0 means the limit of the controller.
    pub unit_max: u32,
}

zonal_core::setters! {
    HostOptions
    /// True to use header digests if the controller supports them.
    with_header_digest header_digest: bool;
    /// True to use data digests if the controller supports them.
    with_data_digest data_digest: bool;
    /// Maximum data per PDU in bytes; 0 means the limit of the controller.
    with_unit_max unit_max: u32;
}

/// Completed command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended<D> {
    /// Command identifier.
    pub cid: u16,
    /// Status of the completion.
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// Bytes of data received, from the start.
    pub received: u32,
    /// Data passed to [`HostQueue::submit`].
    pub data: D,
}

/// Reason why a queue is unusable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QueueError {
    /// The controller violated the protocol, with the fatal error status (TCP 3.6.2.4) and the
    /// location.
    #[error("the controller broke the protocol: error {error} at byte {field} of a header")]
    Protocol {
        /// Status from [`term`].
        error: u16,
        /// Offset of the invalid field, if any.
        field: u32,
    },
    /// The controller terminated the connection with this status.
    #[error("the controller ended the connection with error {0}")]
    Terminated(u16),
}

impl From<Fatal> for QueueError {
    fn from(Fatal { error, field }: Fatal) -> QueueError {
        QueueError::Protocol { error, field }
    }
}

struct Busy<D> {
    data: D,
    received: u32,
    /// An error if received data did not match its digest.
    status: Status,
    /// The header of data still arriving implied the completion.
    ends_with_data: bool,
}

/// Data requested by the controller and not yet in the output.
struct Transfer {
    cid: u16,
    number: u16,
    at: u32,
    end: u32,
}

/// Queue of a host, without a socket.
pub struct HostQueue<D> {
    input: Input,
    options: HostOptions,
    is_open: bool,
    /// Alignment of data from the host, in bytes.
    alignment: usize,
    output: Vec<u8>,
    sent: usize,
    transfers: VecDeque<Transfer>,
    commands: Vec<Option<Busy<D>>>,
    /// Free command identifiers. The one free for longest is used next, so that a duplicate
    /// response of the controller is detected.
    free: VecDeque<u16>,
    ended: VecDeque<Ended<D>>,
    error: Option<QueueError>,
}

const fn common(kind: PduKind, len: u32) -> CommonHeader {
    CommonHeader {
        kind: kind as u8,
        flags: 0,
        header_len: kind.header_len() as u8,
        data_offset: 0,
        len: zerocopy::little_endian::U32::new(len),
    }
}

impl<D: HostData> HostQueue<D> {
    /// Creates a queue for this number of commands. The output starts with the connection request.
    pub fn new(entries: u16, options: HostOptions) -> HostQueue<D> {
        let request = IcReq {
            common: common(PduKind::IcReq, 128),
            format: 0.into(),
            alignment: 0,
            digests: u8::from(options.header_digest) | u8::from(options.data_digest) << 1,
            r2t_max: 0.into(),
            reserved: [0; 112],
        };
        HostQueue {
            input: Input::of(Side::Host),
            options,
            is_open: false,
            alignment: 4,
            output: request.as_bytes().to_vec(),
            sent: 0,
            transfers: VecDeque::new(),
            commands: (0..entries).map(|_| None).collect(),
            free: (0..entries).collect(),
            ended: VecDeque::new(),
            error: None,
        }
    }

    /// True once the controller has accepted the connection. Commands can be sent only then.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// True for header digests and for data digests, if in use.
    pub fn digests(&self) -> (bool, bool) {
        (self.options.header_digest, self.options.data_digest)
    }

    /// Commands in flight.
    pub fn in_flight(&self) -> usize {
        self.commands.len() - self.free.len()
    }

    /// True if no command can be sent at present.
    pub fn is_full(&self) -> bool {
        self.free.is_empty() || !self.is_open
    }

    /// Reason why the queue is unusable.
    pub fn error(&self) -> Option<QueueError> {
        self.error
    }

    /// Next bytes to send.
    pub fn output(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// Reports that this number of bytes was sent.
    pub fn has_sent(&mut self, len: usize) {
        self.sent += len;
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
        self.continue_transfers();
    }

    /// Sends `command` under the identifier returned. Data is sent in the capsule if the data
    /// pointer says so.
    ///
    /// # Errors
    /// Returns `data` if the queue is [full](HostQueue::is_full).
    pub fn submit(&mut self, mut command: Sqe, data: D) -> Result<u16, D> {
        if self.is_full() {
            return Err(data);
        }
        let Some(cid) = self.free.pop_front() else { return Err(data) };
        command.cid = cid.into();
        let len = if command.data.kind == Sgl::IN_CAPSULE { data.send_len() } else { 0 };
        self.put_unit(PduKind::Command, 0, command.as_bytes(), &data, 0..len);
        let busy = Busy { data, received: 0, status: Status::SUCCESS, ends_with_data: false };
        self.commands[usize::from(cid)] = Some(busy);
        Ok(cid)
    }

    /// Adds a PDU to the output with its digests. `header` is the part after the common header.
    fn put_unit(&mut self, kind: PduKind, flags: u8, header: &[u8], data: &D, range: Range<usize>) {
        let HostOptions { header_digest, data_digest, .. } = self.options;
        let has_data_digest = data_digest && !range.is_empty();
        let header_end = kind.header_len() + if header_digest { 4 } else { 0 };
        let offset = if range.is_empty() { header_end } else { header_end.next_multiple_of(self.alignment) };
        let len = offset + range.len() + if has_data_digest { 4 } else { 0 };
        let common = CommonHeader {
            flags: flags
                | if header_digest { data_flags::HEADER_DIGEST } else { 0 }
                | if has_data_digest { data_flags::DATA_DIGEST } else { 0 },
            data_offset: if range.is_empty() { 0 } else { offset as u8 },
            ..common(kind, len as u32)
        };
        let output = &mut self.output;
        output.reserve(len);
        let start = output.len();
        output.extend_from_slice(common.as_bytes());
        output.extend_from_slice(header);
        if header_digest {
            let told = digest(&output[start..]);
            output.extend_from_slice(&told.to_le_bytes());
        }
        output.resize(start + offset, 0);
        data.for_each(range, &mut |piece| output.extend_from_slice(piece));
        if has_data_digest {
            let told = digest(&output[start + offset..]);
            output.extend_from_slice(&told.to_le_bytes());
        }
    }

    fn continue_transfers(&mut self) {
        while self.output.len() - self.sent < OUTPUT_MAX {
            let Some(transfer) = self.transfers.front_mut() else { return };
            let (cid, number, from) = (transfer.cid, transfer.number, transfer.at);
            let to = transfer.end.min(from.saturating_add(self.options.unit_max));
            transfer.at = to;
            let is_last = to == transfer.end;
            if is_last {
                self.transfers.pop_front();
            }
            let Some(busy) = self.commands[usize::from(cid)].take() else { continue };
            let header = DataHeader {
                common: common(PduKind::HostData, 0),
                command: cid.into(),
                transfer: number.into(),
                offset: from.into(),
                len: (to - from).into(),
                reserved: [0; 4],
            };
            let flags = if is_last { data_flags::LAST } else { 0 };
            let range = from as usize..to as usize;
            self.put_unit(PduKind::HostData, flags, &header.as_bytes()[8..], &busy.data, range);
            self.commands[usize::from(cid)] = Some(busy);
        }
    }

    /// Processes input.
    ///
    /// # Errors
    /// [`QueueError`], after which the queue is unusable. [`HostQueue::take_all`] returns the data
    /// of the commands in flight.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<(), QueueError> {
        while self.error.is_none() {
            let commands = &mut self.commands;
            let put = |slot: u16, at: usize, from: &[u8]| {
                if let Some(Some(busy)) = commands.get_mut(usize::from(slot)) {
                    busy.data.put(at, from);
                }
            };
            let taken = match self.input.next(&mut bytes, put) {
                Ok(None) => return Ok(()),
                Ok(Some(Unit::Header)) => self.take_header(),
                Ok(Some(Unit::Data { slot, is_sound })) => {
                    self.take_data(slot, is_sound);
                    Ok(())
                }
                Err(fatal) => Err(fatal.into()),
            };
            if let Err(error) = taken {
                self.end_with(error);
            }
        }
        self.error.map_or(Ok(()), Err)
    }

    /// Ends the queue, and terminates the connection if the controller is at fault (TCP 3.6.2.4).
    fn end_with(&mut self, error: QueueError) {
        self.error = Some(error);
        self.transfers.clear();
        if let QueueError::Protocol { error, field } = error {
            let wrong = &self.input.header()[..24];
            let unit = TermReq {
                common: CommonHeader {
                    len: (24 + wrong.len() as u32).into(),
                    ..common(PduKind::HostTerm, 0)
                },
                error: error.into(),
                field: field.into(),
                reserved: [0; 10],
            };
            self.output.extend_from_slice(unit.as_bytes());
            self.output.extend_from_slice(wrong);
        }
    }

    fn take_header(&mut self) -> Result<(), QueueError> {
        match (self.input.kind(), self.is_open) {
            (PduKind::IcResp, false) => self.open(),
            (PduKind::Response, true) => self.take_response(),
            (PduKind::ControllerData, true) => self.begin_data(),
            (PduKind::R2t, true) => self.take_r2t(),
            (PduKind::ControllerTerm, _) => {
                let header = self.input.header();
                Err(QueueError::Terminated(u16::from_le_bytes([header[8], header[9]])))
            }
            _ => protocol(term::SEQUENCE, 0),
        }
    }

    /// Handles the connection response (TCP 3.6.2.3).
    fn open(&mut self) -> Result<(), QueueError> {
        let Ok(granted) = IcResp::read_from_bytes(&self.input.header()[..128]) else {
            return protocol(term::HEADER_FIELD, 0);
        };
        let HostOptions { header_digest, data_digest, unit_max } = &mut self.options;
        let asked = u8::from(*header_digest) | u8::from(*data_digest) << 1;
        let data_max = granted.data_max.get();
        match () {
            () if granted.format.get() != 0 => return protocol(term::UNSUPPORTED, 8),
            () if granted.alignment > 31 => return protocol(term::HEADER_FIELD, 10),
            () if granted.digests & !asked != 0 => return protocol(term::HEADER_FIELD, 11),
            () if data_max < 4096 => return protocol(term::HEADER_FIELD, 12),
            () => {}
        }
        (*header_digest, *data_digest) = (granted.digests & 1 != 0, granted.digests & 2 != 0);
        *unit_max = if *unit_max == 0 { UNIT_MAX } else { *unit_max }.min(data_max);
        self.alignment = (usize::from(granted.alignment) + 1) * 4;
        self.input.agree(*header_digest, *data_digest);
        self.is_open = true;
        Ok(())
    }

    fn busy(&mut self, cid: u16, field: u32) -> Result<&mut Busy<D>, QueueError> {
        let busy = self.commands.get_mut(usize::from(cid)).and_then(Option::as_mut);
        busy.ok_or(QueueError::Protocol { error: term::HEADER_FIELD, field })
    }

    fn take_response(&mut self) -> Result<(), QueueError> {
        let Ok(cqe) = Cqe::read_from_bytes(&self.input.header()[8..24]) else {
            return protocol(term::HEADER_FIELD, 8);
        };
        let cid = cqe.cid.get();
        let told = self.busy(cid, 20)?.status;
        let status = Status::from_field(cqe.status.get());
        self.end(cid, if told.is_ok() { status } else { told }, cqe.result.get());
        Ok(())
    }

    fn end(&mut self, cid: u16, status: Status, result: u64) {
        let Some(Busy { data, received, .. }) = self.commands[usize::from(cid)].take() else { return };
        self.free.push_back(cid);
        // A controller may fail a command after requesting its data.
        self.transfers.retain(|transfer| transfer.cid != cid);
        self.ended.push_back(Ended { cid, status, result, received, data });
    }

    /// Handles the header of data. The data of a command arrives in order (TCP 3.3.2.1).
    fn begin_data(&mut self) -> Result<(), QueueError> {
        let header = self.input.data_header();
        let (in_unit, cid) = (self.input.data_len(), header.command.get());
        let (offset, len) = (header.offset.get(), header.len.get());
        let flags = header.common.flags;
        let busy = self.busy(cid, 8)?;
        let room = busy.data.receive_len().saturating_sub(busy.received as usize);
        match () {
            () if len == 0 || len != in_unit => return protocol(term::HEADER_FIELD, 16),
            () if offset != busy.received || len as usize > room => return protocol(term::DATA_RANGE, 12),
            () => {}
        }
        busy.ends_with_data = flags & data_flags::SUCCESS != 0;
        if busy.ends_with_data && flags & data_flags::LAST == 0 {
            return protocol(term::HEADER_FIELD, 1);
        }
        self.input.begin_data(cid, offset, len);
        Ok(())
    }

    fn take_data(&mut self, cid: u16, is_sound: Option<(u32, u32, u32)>) {
        let len = self.input.data_len();
        let Ok(busy) = self.busy(cid, 8) else { return };
        busy.received += len;
        if let Some((from, to, expected)) = is_sound
            && digest_of(&busy.data, from as usize..to as usize) != expected
        {
            busy.status = Status::TRANSIENT_TRANSPORT_ERROR;
        }
        if busy.ends_with_data {
            let status = busy.status;
            self.end(cid, status, 0);
        }
    }

    /// Handles a request for data (TCP 3.6.2.8).
    fn take_r2t(&mut self) -> Result<(), QueueError> {
        let Ok(unit) = R2t::read_from_bytes(&self.input.header()[..24]) else {
            return protocol(term::HEADER_FIELD, 0);
        };
        let (cid, at, len) = (unit.command.get(), unit.offset.get(), unit.len.get());
        let has = self.busy(cid, 8)?.data.send_len();
        let end = at.checked_add(len).filter(|end| len > 0 && *end as usize <= has);
        let Some(end) = end else { return protocol(term::DATA_RANGE, 16) };
        // Only one R2T at a time was negotiated: see `r2t_max` above.
        if self.transfers.iter().any(|transfer| transfer.cid == cid) {
            return protocol(term::R2T_LIMIT, 0);
        }
        self.transfers.push_back(Transfer { cid, number: unit.transfer.get(), at, end });
        self.continue_transfers();
        Ok(())
    }

    /// Takes the next completed command, in order of completion.
    pub fn next_ended(&mut self) -> Option<Ended<D>> {
        self.ended.pop_front()
    }

    /// Takes the data of all commands in flight, after the connection is lost.
    pub fn take_all(&mut self) -> impl Iterator<Item = D> {
        self.transfers.clear();
        let taken = self.commands.iter_mut().filter_map(Option::take).map(|busy| busy.data);
        let taken = taken.collect::<Vec<_>>();
        self.free = (0..self.commands.len() as u16).collect();
        taken.into_iter()
    }
}

const fn protocol<T>(error: u16, field: u32) -> Result<T, QueueError> {
    Err(QueueError::Protocol { error, field })
}

fn digest_of(data: &impl HostData, range: Range<usize>) -> u32 {
    let mut whole = Vec::new();
    data.for_each(range, &mut |piece| whole.extend_from_slice(piece));
    digest(&whole)
}

impl HostData for Vec<u8> {
    fn send_len(&self) -> usize {
        self.len()
    }

    fn receive_len(&self) -> usize {
        self.len()
    }

    fn for_each(&self, range: Range<usize>, take: &mut dyn FnMut(&[u8])) {
        take(&self[range]);
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
