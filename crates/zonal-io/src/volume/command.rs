//! Builds the next command of a request.

use super::pending::{Merged, PendingRequest, ReadBack, RequestStage};
use super::terms::Terms;
use crate::data::{Data, Segment};
use crate::device::{Command, Context, ContextKind};
use zonal_core::{Op, SECTOR_BYTES, Sector, Sectors};

/// Payload for writes of zeroes on devices without write-zeroes, repeated as needed.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

impl Terms {
    /// Attaches a payload of zeroes to a write-zeroes request.
    #[cold]
    pub(super) fn with_zeroes(&self, p: Box<PendingRequest>) -> Context {
        let sectors = self.next_sectors(&p);
        let mut left = sectors as usize * SECTOR_BYTES as usize;
        let mut segments = Vec::with_capacity(left.div_ceil(ZEROES.len()));
        while left > 0 {
            let len = left.min(ZEROES.len());
            segments.push(Segment::new(ZEROES.as_ptr().cast_mut(), len));
            left -= len;
        }
        Context(ContextKind::Merged(Box::new(Merged { parts: vec![p], segments, sectors })))
    }

    /// Largest command of an operation, in sectors.
    #[inline]
    pub(super) fn command_max(&self, op: Op) -> u32 {
        match op {
            Op::Read | Op::Write => self.info.command_sectors_max,
            Op::Append => u32::MAX,
            op => self.rare_command_max(op),
        }
    }

    #[cold]
    fn rare_command_max(&self, op: Op) -> u32 {
        match op {
            Op::WriteZeroes => self.info.write_zeroes_sectors_max,
            Op::Verify => self.info.verify_sectors_max,
            Op::Discard => self.info.discard_sectors_max,
            _ => u32::MAX,
        }
    }

    /// Length of the request's next command, in sectors.
    #[inline]
    pub(super) fn next_sectors(&self, p: &PendingRequest) -> u32 {
        let op = if p.stage == RequestStage::ZeroesAsWrites { Op::Write } else { p.op };
        (p.sectors - p.done).min(self.command_max(op))
    }

    #[inline(always)]
    pub(super) fn command(&self, context: &mut Context) -> Command {
        match &mut context.0 {
            ContextKind::One(p) if p.stage == RequestStage::FlushBehind => {
                Command::new(Op::Flush, Sector(0), 0)
            }
            ContextKind::One(p) => {
                let sectors = self.next_sectors(p);
                let data = match p.op {
                    // SAFETY: the buffer travels with the command in its context and is not touched
                    // until returned.
                    Op::Read | Op::Write | Op::Append => unsafe { p.data(sectors) },
                    _ => Data::NONE,
                };
                // The rest of a torn append has a fixed position.
                let is_write = || self.policy.appends_in_flight_max() == 0 || p.done > 0;
                let op = if p.op == Op::Append && p.plugged && is_write() { Op::Write } else { p.op };
                let sector = p.sector + Sectors(p.done.into());
                Command { fua: self.fua(p), data, ..Command::new(op, sector, sectors) }
            }
            ContextKind::Merged(m) => {
                let first = &m.parts[0];
                let sector = first.sector + Sectors(first.done.into());
                Command {
                    fua: self.fua(first),
                    // SAFETY: the buffers and their list travel with the command in its boxed
                    // context; the zeroes are static, and a write does not modify them.
                    data: unsafe { Data::many(&raw const *m.segments) },
                    ..Command::new(Op::Write, sector, m.sectors)
                }
            }
            ContextKind::Resync(zone, _) => {
                let sector = self.info.geometry.start_of(*zone);
                Command::new(Op::Report, sector, 1)
            }
            ContextKind::ReadBack(r) => self.read_back_command(r),
            ContextKind::Token(_) => panic!("a direct user's context reached a volume"),
        }
    }

    /// True if the command itself makes the write durable: the device has a volatile cache and FUA.
    pub(super) fn fua(&self, p: &PendingRequest) -> bool {
        p.fua && p.op.is_write() && self.info.volatile_cache && self.info.fua
    }

    /// Builds the read command of a read-back.
    fn read_back_command(&self, r: &ReadBack) -> Command {
        let zone = self.info.geometry.zone_of(r.write.token.sector);
        let offset = r.write.at + r.compared;
        let sectors = (r.piece.len() as u64 / SECTOR_BYTES) as u32;
        let sector = self.info.geometry.start_of(zone) + Sectors(offset.into());
        // SAFETY: the buffer travels with the command in its boxed context and is not touched until
        // returned.
        let data = unsafe { Data::one(Segment::new(r.piece.as_ptr(), r.piece.len())) };
        Command { data, ..Command::new(Op::Read, sector, sectors) }
    }
}
