//! Output queue: headers collected in one buffer, data in place.

use crate::wire::{CommonHeader, Cqe, DataHeader, PduKind, TermReq, data_flags, digest};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::rc::Rc;
use zerocopy::little_endian::U16;
use zerocopy::{Immutable, IntoBytes};
use zonal_io::buffer::{BufferPools, IoBuf};

/// Most pieces sent in one call. The host processes the first responses while the next are sent.
const PIECES: usize = 64;

/// Maximum length of a piece of headers. Sent bytes are freed in whole pieces, which matters for a
/// host that always reads part of the output while more is added. Once more sent bytes than this
/// have accumulated, the remaining headers move to the front.
const PIECE_LEN: usize = 16 << 10;

enum OutputPiece {
    /// Number of bytes in the header buffer.
    Headers(usize),
    /// First bytes of a command's data.
    Data(IoBuf, usize),
}

impl OutputPiece {
    fn len(&self) -> usize {
        match self {
            OutputPiece::Headers(len) | OutputPiece::Data(_, len) => *len,
        }
    }
}

/// Output of a connection.
pub struct Output {
    pools: Rc<BufferPools>,
    pieces: VecDeque<OutputPiece>,
    /// All headers back to back, to avoid an allocation per header.
    headers: Vec<u8>,
    /// Start of the first unsent piece of headers.
    headers_at: usize,
    /// Bytes of the first piece already sent.
    sent: usize,
    len: usize,
    /// Total bytes sent.
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

    /// Sets the negotiated digests and data alignment.
    pub(super) fn agree(&mut self, header: bool, data: bool, alignment: usize) {
        (self.has_header_digest, self.has_data_digest, self.alignment) = (header, data, alignment);
    }

    /// Number of unsent bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Total bytes sent.
    pub(super) fn sent_in_all(&self) -> u64 {
        self.sent_in_all
    }

    /// True if everything is sent.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Next pieces to send.
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

    /// Reports that this number of bytes was sent.
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

    /// Adds a PDU that never has digests.
    pub(super) fn plain(&mut self, unit: &(impl IntoBytes + Immutable)) {
        self.push(unit.as_bytes());
    }

    /// Adds a PDU that consists of a header only.
    pub(super) fn header(&mut self, unit: &(impl IntoBytes + Immutable)) {
        let mut bytes = [0; 24];
        let unit = unit.as_bytes();
        bytes[..unit.len()].copy_from_slice(unit);
        self.push_header(&mut bytes, unit.len(), 0);
    }

    /// Adds a header with its digest, and sets the flag and lengths accordingly.
    fn push_header(&mut self, bytes: &mut [u8], len: usize, flags: u8) {
        bytes[1] |= flags;
        if self.has_header_digest {
            bytes[1] |= data_flags::HEADER_DIGEST;
            let whole = u32::from_le_bytes(bytes[4..8].try_into().expect("4 bytes"));
            // With data, the data offset already includes the digest.
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

    /// Adds the first `len` bytes of `buf` as the data of command `cid`. If `is_end`, they imply
    /// success.
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

    /// The host is always slightly late, so there is always unsent output.
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
