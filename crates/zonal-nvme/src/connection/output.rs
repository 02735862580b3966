//! What is to be sent: headers put together, and data where they lie.

use crate::wire::{CommonHeader, Cqe, DataHeader, PduKind, TermReq, data_flags, digest};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::rc::Rc;
use zerocopy::little_endian::U16;
use zerocopy::{Immutable, IntoBytes};
use zonal_io::buffer::{BufferPools, IoBuf};

/// Pieces that are sent in one call at most: the host takes the first answers while the next are sent.
const PIECES: usize = 64;

/// Headers are one piece up to this number of bytes. Where a host takes a part of what there is, and more comes all the time,
/// bytes that are sent are given back by whole pieces. Beyond this number of them, the headers after them move to the front.
const PIECE_LEN: usize = 16 << 10;

enum OutputPiece {
    /// This number of bytes of the headers.
    Headers(usize),
    /// The first bytes of a command's data.
    Data(IoBuf, usize),
}

impl OutputPiece {
    fn len(&self) -> usize {
        match self {
            OutputPiece::Headers(len) | OutputPiece::Data(_, len) => *len,
        }
    }
}

/// What a connection has to send.
pub struct Output {
    pools: Rc<BufferPools>,
    pieces: VecDeque<OutputPiece>,
    /// All headers, one after the other: without memory of their own they cost no allocation.
    headers: Vec<u8>,
    /// Where the headers of the first piece that has some begin.
    headers_at: usize,
    /// Bytes of the first piece that are sent.
    sent: usize,
    len: usize,
    /// Bytes that were sent in all.
    sent_in_all: u64,
    has_header_digest: bool,
    has_data_digest: bool,
    alignment: usize,
}

pub(super) fn common(kind: PduKind, flags: u8, header_len: u8, data_offset: u8, len: u32) -> CommonHeader {
    CommonHeader { kind: kind as u8, flags, header_len, data_offset, len: len.into() }
}

impl Output {
    pub(super) fn new(pools: Rc<BufferPools>) -> Output {
        Output {
            pools,
            pieces: VecDeque::new(),
            headers: Vec::new(),
            headers_at: 0,
            sent: 0,
            len: 0,
            sent_in_all: 0,
            has_header_digest: false,
            has_data_digest: false,
            alignment: 0,
        }
    }

    /// From here on units have these digests, and data this alignment.
    pub(super) fn agree(&mut self, header: bool, data: bool, alignment: usize) {
        (self.has_header_digest, self.has_data_digest, self.alignment) = (header, data, alignment);
    }

    /// Bytes that are not sent.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes that were sent in all.
    pub(super) fn sent_in_all(&self) -> u64 {
        self.sent_in_all
    }

    /// Whether all is sent.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What to send next.
    pub fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut headers = &self.headers[self.headers_at..];
        let mut skip = self.sent;
        let slice = |piece| {
            let bytes = match piece {
                &OutputPiece::Headers(len) => {
                    let (first, rest) = headers.split_at(len);
                    headers = rest;
                    first
                }
                OutputPiece::Data(buf, len) => &buf[..*len],
            };
            IoSlice::new(&bytes[std::mem::take(&mut skip)..])
        };
        self.pieces.iter().take(PIECES).map(slice).collect()
    }

    /// This number of bytes is sent.
    pub fn has_sent(&mut self, mut len: usize) {
        self.len -= len;
        self.sent_in_all += len as u64;
        while let Some(first) = self.pieces.front() {
            let left = first.len() - self.sent;
            if len < left {
                self.sent += len;
                break;
            }
            len -= left;
            self.sent = 0;
            match self.pieces.pop_front() {
                Some(OutputPiece::Headers(len)) => self.headers_at += len,
                Some(OutputPiece::Data(buf, _)) => self.pools.give(buf),
                None => {}
            }
        }
        if self.headers_at == self.headers.len() || self.headers_at > PIECE_LEN {
            self.headers.drain(..self.headers_at);
            self.headers_at = 0;
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        self.headers.extend_from_slice(bytes);
        match self.pieces.back_mut() {
            Some(OutputPiece::Headers(len)) if *len < PIECE_LEN => *len += bytes.len(),
            _ => self.pieces.push_back(OutputPiece::Headers(bytes.len())),
        }
    }

    /// A unit that never has digests.
    pub(super) fn plain(&mut self, unit: &(impl IntoBytes + Immutable)) {
        self.push(unit.as_bytes());
    }

    /// A unit that is a header alone.
    pub(super) fn header(&mut self, unit: &(impl IntoBytes + Immutable)) {
        let mut bytes = [0; 24];
        let unit = unit.as_bytes();
        bytes[..unit.len()].copy_from_slice(unit);
        self.push_header(&mut bytes, unit.len(), 0);
    }

    /// A header with its digest, and the flag and lengths that this takes.
    fn push_header(&mut self, bytes: &mut [u8], len: usize, flags: u8) {
        bytes[1] |= flags;
        if self.has_header_digest {
            bytes[1] |= data_flags::HEADER_DIGEST;
            let whole = u32::from_le_bytes(bytes[4..8].try_into().expect("4 bytes"));
            // Where data follow, their place has counted the digest.
            if bytes[3] == 0 {
                bytes[4..8].copy_from_slice(&(whole + 4).to_le_bytes());
            }
        }
        let told = digest_if(self.has_header_digest, &bytes[..len]);
        self.push(&bytes[..len]);
        if let Some(told) = told {
            self.push(&told);
        }
    }

    pub(super) fn response(&mut self, cqe: &Cqe) {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(common(PduKind::Response, 0, 24, 0, 24).as_bytes());
        bytes[8..].copy_from_slice(cqe.as_bytes());
        self.push_header(&mut bytes, 24, 0);
    }

    /// The first `len` bytes of `buf` as the data of command `cid`; if `is_end`, they stand for its end.
    pub(super) fn data(&mut self, cid: U16, buf: IoBuf, len: u32, is_end: bool) {
        let header: usize = 24 + if self.has_header_digest { 4 } else { 0 };
        let offset = header.next_multiple_of(self.alignment.max(4)) as u8;
        let digest_len = if self.has_data_digest { 4 } else { 0 };
        let mut flags = data_flags::LAST;
        if is_end {
            flags |= data_flags::SUCCESS;
        }
        if self.has_data_digest {
            flags |= data_flags::DATA_DIGEST;
        }
        let unit = DataHeader {
            common: common(PduKind::ControllerData, flags, 24, offset, u32::from(offset) + len + digest_len),
            command: cid,
            transfer: 0.into(),
            offset: 0.into(),
            len: len.into(),
            reserved: [0; 4],
        };
        let mut bytes = [0; 24];
        bytes.copy_from_slice(unit.as_bytes());
        self.push_header(&mut bytes, 24, 0);
        self.push(&[0; 128][..usize::from(offset) - header]);
        let told = digest_if(self.has_data_digest, &buf[..len as usize]);
        self.len += len as usize;
        self.pieces.push_back(OutputPiece::Data(buf, len as usize));
        if let Some(told) = told {
            self.push(&told);
        }
    }

    pub(super) fn terminate(&mut self, error: u16, field: u32, wrong: &[u8]) {
        let wrong = &wrong[..24];
        self.plain(&TermReq {
            common: common(PduKind::ControllerTerm, 0, 24, 0, 24 + wrong.len() as u32),
            error: error.into(),
            field: field.into(),
            reserved: [0; 10],
        });
        self.push(wrong);
    }
}

fn digest_if(is_wanted: bool, bytes: &[u8]) -> Option<[u8; 4]> {
    is_wanted.then(|| digest(bytes).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its host is always a little late: there is always something unsent.
    #[test]
    fn host_that_is_late_keeps_no_more_than_is_unsent() {
        let mut output = Output::new(Rc::default());
        for _ in 0..100_000 {
            output.push(&[0; 24]);
            if output.len() > 1000 {
                output.has_sent(24);
            }
        }
        let held = output.headers.len();
        assert!(held <= output.len() + 2 * PIECE_LEN + 24, "{held} bytes for {}", output.len());
    }
}
