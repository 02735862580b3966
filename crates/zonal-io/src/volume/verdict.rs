//! What recovery makes of a failed write, as it is put to its zone's queue and told to its caller.

use super::pending::{Pending, ReadBack};
use super::recovery::FailedWrite;
use super::terms::Terms;
use crate::buffer::IoBuf;
use zonal_core::plug::{
    Addressed, Class, Decision, ErrorClass, Failed, Item, Kind, ROUNDS_MAX, Resync, Verdict, WriteKind,
};
use zonal_core::{DeviceError, Op, RequestError, SECTOR_BYTES, ZoneIndex};

impl Terms {
    pub(super) fn failed_write(&self, pending: Box<Pending>, error: DeviceError) -> FailedWrite {
        let native = self.policy.appends_in_flight_max() > 0;
        // The rest of a torn append has a place, which others count on, in every mode.
        let addressed = match pending.op {
            Op::Append if pending.done > 0 => Addressed::Positional,
            Op::Append if native => Addressed::Native,
            Op::Append => Addressed::Emulated,
            _ => Addressed::Positional,
        };
        let (at, sectors) = (pending.at + pending.done, pending.sectors - pending.done);
        Failed { addressed, at, sectors, error, rounds: pending.rounds, token: pending }
    }

    /// A failed write as it waits to be sent again.
    pub(super) fn again(&self, write: FailedWrite) -> Item<Box<Pending>> {
        let mut pending = write.token;
        // It was admitted once: what it waits for now, a full queue included, it has to wait for.
        pending.nowait = false;
        let kind = match pending.op {
            Op::Append if pending.done == 0 => {
                // It gives its place up. It may go out natively, after a switch, and then has to name its zone.
                pending.sector = self.info.geometry.start_of(self.info.geometry.zone_of(pending.sector));
                WriteKind::Append
            }
            _ => self.with_company(WriteKind::At(pending.at + pending.done), &pending),
        };
        let sectors = pending.sectors - pending.done;
        Item { kind: Kind::Write(kind, sectors), mergeable: false, token: pending }
    }

    pub(super) fn verdict_error(
        &self,
        zone: ZoneIndex,
        write: &FailedWrite,
        verdict: &Verdict,
        resync: Resync,
        lost_at: u32,
    ) -> RequestError {
        let &Failed { at: offset, error, .. } = write;
        match verdict.decision {
            Decision::Torn => {
                RequestError::TornAppend { zone, offset: verdict.at, sectors: verdict.covered, error }
            }
            Decision::Lost => RequestError::PredecessorLost { zone, lost_at, offset },
            Decision::Refuse => match resync.class {
                Class::ReadOnly => RequestError::ZoneReadOnly { zone },
                Class::Offline => RequestError::ZoneOffline { zone },
                _ => RequestError::ZoneFull { zone },
            },
            Decision::Unknown => {
                RequestError::FateUnknown { zone, offset, write_pointer: resync.pointer, error }
            }
            Decision::GiveUp => RequestError::GaveUp { zone, offset, rounds: ROUNDS_MAX, error },
            // The rest of a torn append lies where it has to: what was written of it before is garbage, too.
            Decision::Fail if write.token.op == Op::Append && self.is_spoilt_rest(write, resync) => {
                let Pending { at: offset, done, .. } = *write.token;
                RequestError::TornAppend { zone, offset, sectors: done + verdict.covered, error }
            }
            Decision::Fail | Decision::Redrive | Decision::Verify => RequestError::Device(error),
        }
    }

    /// Whether the medium has failed an append of which a part was already in the zone, and is.
    fn is_spoilt_rest(&self, write: &FailedWrite, resync: Resync) -> bool {
        let is_medium = ErrorClass::of(write.error) == ErrorClass::Medium;
        is_medium && write.token.done > 0 && write.at <= resync.pointer
    }

    pub(super) fn next_piece(&self, r: &mut ReadBack) {
        let sectors = (r.covered - r.compared).min(self.info.command_sectors_max);
        let mut piece = IoBuf::zeroed(sectors * SECTOR_BYTES as u32);
        // A device that leaves the buffer as it is must not pass for a device that has the data.
        r.write.token.fill_unlike(r.write.token.done + r.compared, &mut piece);
        r.piece = piece;
    }

    /// Takes the place of a write that goes out again: a partly done write has its own already.
    #[inline]
    pub(super) fn place_again(&self, zone: ZoneIndex, at: u32, pending: &mut Pending) {
        if pending.done == 0 {
            self.place(zone, at, pending);
        } else {
            pending.plugged = true;
        }
    }
}
