//! Input parser of a controller or a host: headers one by one, and data directly into the memory of
//! its command.

use crate::wire::{CommonHeader, DataHeader, PduKind, data_flags, digest, term};
use std::ops::Range;
use zerocopy::FromBytes;

/// Longest header with its digest.
const HEADER_MAX: usize = 128 + 4;

/// Smallest block of data that is read directly into place. Smaller blocks are read together with
/// the bytes after them, because a system call per capsule costs more than a copy.
const ROOM_MIN: u32 = 16 << 10;

/// Protocol error that ends the connection.
#[derive(Debug)]
pub(crate) struct Fatal {
    pub(crate) error: u16,
    pub(crate) field: u32,
}

/// Receiving side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Controller,
    Host,
}

impl Side {
    /// True if the peer may send this kind of PDU (TCP 3.6.2).
    fn takes(self, kind: PduKind) -> bool {
        use PduKind::{
            Command, ControllerData, ControllerTerm, HostData, HostTerm, IcReq, IcResp, R2t, Response,
        };
        match kind {
            IcReq | HostTerm | Command | HostData => self == Side::Controller,
            IcResp | ControllerTerm | Response | ControllerData | R2t => self == Side::Host,
        }
    }
}

const fn fatal<T>(error: u16, field: u32) -> Result<T, Fatal> {
    Err(Fatal { error, field })
}

/// Parsed part of the input.
pub(crate) enum Unit {
    /// Header. Its data follows if the connection [begins](Input::begin_data) it.
    Header,
    /// Data of the command in this slot. With a digest, its range and expected value.
    Data { slot: u16, is_sound: Option<(u32, u32, u32)> },
}

#[derive(Clone, Copy)]
struct Data {
    slot: u16,
    /// Range in the command's memory, and position of the next byte.
    from: u32,
    to: u32,
    at: u32,
}

pub(crate) struct Input {
    side: Side,
    header: [u8; HEADER_MAX],
    have: usize,
    is_told: bool,
    has_header_digest: bool,
    has_data_digest: bool,
    /// Bytes between header and data.
    padding: usize,
    data: Option<Data>,
    /// Digest after the data.
    trailer: [u8; 4],
    trailer_have: usize,
}

impl Input {
    pub(crate) fn of(side: Side) -> Input {
        Input {
            side,
            header: [0; HEADER_MAX],
            have: 0,
            is_told: false,
            has_header_digest: false,
            has_data_digest: false,
            padding: 0,
            data: None,
            trailer: [0; 4],
            trailer_have: 0,
        }
    }

    /// Sets the negotiated digests.
    pub(crate) fn agree(&mut self, header: bool, data: bool) {
        (self.has_header_digest, self.has_data_digest) = (header, data);
    }

    /// Last header received.
    pub(crate) fn header(&self) -> &[u8] {
        &self.header
    }

    fn common(&self) -> CommonHeader {
        CommonHeader::read_from_bytes(&self.header[..8]).expect("8 bytes")
    }

    /// Kind of the last header.
    pub(crate) fn kind(&self) -> PduKind {
        PduKind::of(self.common().kind).expect("it was checked")
    }

    pub(crate) fn data_header(&self) -> DataHeader {
        DataHeader::read_from_bytes(&self.header[..24]).expect("24 bytes")
    }

    fn header_digest_len(&self) -> usize {
        match self.common().flags & data_flags::HEADER_DIGEST != 0 {
            true => 4,
            false => 0,
        }
    }

    fn data_digest_len(&self) -> u32 {
        match self.common().flags & data_flags::DATA_DIGEST != 0 {
            true => 4,
            false => 0,
        }
    }

    /// Bytes of data after the last header.
    pub(crate) fn data_len(&self) -> u32 {
        let common = self.common();
        match common.data_offset {
            0 => 0,
            offset => common.len.get().saturating_sub(u32::from(offset) + self.data_digest_len()),
        }
    }

    /// Directs the data of the last header to the command in `slot`, starting at `offset`.
    pub(crate) fn begin_data(&mut self, slot: u16, offset: u32, len: u32) {
        self.data = Some(Data { slot, from: offset, to: offset + len, at: offset });
    }

    /// Destination of the next large block of data.
    pub(crate) fn data_room(&self) -> Option<(u16, Range<usize>)> {
        let data = self.data.filter(|data| self.padding == 0 && data.to - data.at >= ROOM_MIN)?;
        Some((data.slot, data.at as usize..data.to as usize))
    }

    /// Reports that this number of bytes was read into the destination.
    pub(crate) fn fill(&mut self, len: usize) {
        if let Some(data) = &mut self.data {
            data.at = (data.at + len as u32).min(data.to);
        }
    }

    /// Parses `bytes` up to the end of a unit. Data is passed to `put` with slot and position.
    pub(crate) fn next(
        &mut self,
        bytes: &mut &[u8],
        mut put: impl FnMut(u16, usize, &[u8]),
    ) -> Result<Option<Unit>, Fatal> {
        if !self.is_told {
            return match self.take_header(bytes)? {
                true => {
                    self.is_told = true;
                    let common = self.common();
                    let behind = usize::from(common.header_len) + self.header_digest_len();
                    self.padding = usize::from(common.data_offset).saturating_sub(behind);
                    Ok(Some(Unit::Header))
                }
                false => Ok(None),
            };
        }
        let Some(data) = &mut self.data else {
            // No data for a command: the next PDU starts.
            (self.is_told, self.have) = (false, 0);
            return self.next(bytes, put);
        };
        let skipped = self.padding.min(bytes.len());
        self.padding -= skipped;
        *bytes = &bytes[skipped..];
        if self.padding > 0 {
            return Ok(None);
        }
        let len = ((data.to - data.at) as usize).min(bytes.len());
        if len > 0 {
            put(data.slot, data.at as usize, &bytes[..len]);
            data.at += len as u32;
            *bytes = &bytes[len..];
        }
        if data.at < data.to {
            return Ok(None);
        }
        let Data { slot, from, to, .. } = *data;
        let has_digest = self.data_digest_len() > 0;
        if has_digest {
            let len = (4 - self.trailer_have).min(bytes.len());
            self.trailer[self.trailer_have..][..len].copy_from_slice(&bytes[..len]);
            self.trailer_have += len;
            *bytes = &bytes[len..];
            if self.trailer_have < 4 {
                return Ok(None);
            }
        }
        (self.data, self.trailer_have) = (None, 0);
        let is_sound = has_digest.then(|| (from, to, u32::from_le_bytes(self.trailer)));
        Ok(Some(Unit::Data { slot, is_sound }))
    }

    /// Consumes bytes of the header. Returns true when it is complete.
    fn take_header(&mut self, bytes: &mut &[u8]) -> Result<bool, Fatal> {
        if !self.fill_header(bytes, 8) {
            return Ok(false);
        }
        let common = self.common();
        let Some(kind) = PduKind::of(common.kind) else { return fatal(term::HEADER_FIELD, 0) };
        if !self.side.takes(kind) {
            return fatal(term::HEADER_FIELD, 0);
        }
        if usize::from(common.header_len) != kind.header_len() {
            return fatal(term::HEADER_FIELD, 2);
        }
        let has_digests =
            !matches!(kind, PduKind::IcReq | PduKind::IcResp | PduKind::HostTerm | PduKind::ControllerTerm);
        let header_digest = common.flags & data_flags::HEADER_DIGEST != 0;
        let data_digest = common.flags & data_flags::DATA_DIGEST != 0;
        if header_digest != (has_digests && self.has_header_digest) {
            return fatal(term::HEADER_FIELD, 1);
        }
        let end = kind.header_len() + self.header_digest_len();
        let len = common.len.get();
        let offset = u32::from(common.data_offset);
        let has_data = matches!(kind, PduKind::HostData | PduKind::ControllerData)
            || kind == PduKind::Command && offset > 0;
        let is_long_enough = match has_data {
            true => {
                offset as usize >= end
                    && u64::from(len) > u64::from(offset) + u64::from(self.data_digest_len())
            }
            false if matches!(kind, PduKind::HostTerm | PduKind::ControllerTerm) => len as usize >= end,
            false => len as usize == end && offset == 0,
        };
        if has_data && data_digest != self.has_data_digest {
            return fatal(term::HEADER_FIELD, 1);
        }
        if !is_long_enough {
            return fatal(term::HEADER_FIELD, 4);
        }
        if !self.fill_header(bytes, end) {
            return Ok(false);
        }
        let header = &self.header[..kind.header_len()];
        let told = &self.header[kind.header_len()..end];
        if header_digest && digest(header).to_le_bytes() != told {
            return fatal(term::HEADER_DIGEST, 0);
        }
        Ok(true)
    }

    fn fill_header(&mut self, bytes: &mut &[u8], end: usize) -> bool {
        let len = end.saturating_sub(self.have).min(bytes.len());
        self.header[self.have..][..len].copy_from_slice(&bytes[..len]);
        self.have += len;
        *bytes = &bytes[len..];
        self.have >= end
    }
}
