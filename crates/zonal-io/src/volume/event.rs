//! Events of a zone, and their effect on its word.
//!
//! Every change of a zone reaches its plug as a [`PlugEvent`], which is applied under the lock of
//! the zone's shard. The next step of the zone is decided afterwards, by its queue (`turn`).

use super::pending::PendingRequest;
use super::recovery::Lost;
use super::turn::Turn;
use super::verdict::try_again_for_slot;
use super::{Shard, Volume};
use crate::device::CommandResult;
use zonal_core::plug::{Item, RequestKind, Word, WriteKind};
use zonal_core::{DeviceError, RequestError, ZoneIndex};

/// Event of a zone.
pub(super) enum PlugEvent {
    /// A write succeeded.
    Completed,
    /// A write of a chain succeeded, but the writes behind it cannot be issued.
    Broken(Box<PendingRequest>),
    /// A command failed, so the write pointer is unknown.
    Failed(Lost),
    /// A write failed, but can be repeated in its next stage once the write pointer is known.
    Retry(Box<PendingRequest>),
    /// A command of this many sectors met a full queue and was withdrawn.
    Withdrawn(u32),
    /// The device reported the zone, or failed to.
    Resynced(CommandResult),
    /// A reset or finish ended; the new write pointer if it succeeded.
    Managed(Option<u32>),
    /// The zone's offline command succeeded.
    TakenOffline,
    /// A reset or finish failed. It may have been executed, or, if it timed out, may still be.
    ManagedInDoubt(DeviceError),
    /// The device has settled the timed-out commands, or cannot.
    Settled(Result<(), DeviceError>),
    /// A covered write was read back. `lost` if it is lost; `rest` is the part to resubmit.
    ReadBack { lost: bool, rest: Option<Item<Box<PendingRequest>>> },
    /// The zone waits for a slot but is denied one.
    NoSlot(RequestError),
    /// A write without a slot may try again. `counts` as for `try_again_for_slot`.
    TryAgain { counts: bool },
    /// Try to continue.
    Kick,
    /// The zone has received the token.
    Turn,
    /// A write of a window has reached the device.
    Arrived,
}

impl PlugEvent {
    /// True if the event ends a write, so in mode `qd1` it returns the token.
    pub(super) fn returns_token(&self) -> bool {
        match self {
            PlugEvent::Resynced(_)
            | PlugEvent::Managed(_)
            | PlugEvent::TakenOffline
            | PlugEvent::ManagedInDoubt(_)
            | PlugEvent::Settled(_)
            | PlugEvent::ReadBack { .. }
            | PlugEvent::NoSlot(_)
            | PlugEvent::TryAgain { .. }
            | PlugEvent::Kick
            | PlugEvent::Turn
            | PlugEvent::Arrived => false,
            PlugEvent::Completed
            | PlugEvent::Broken(_)
            | PlugEvent::Failed(_)
            | PlugEvent::Retry(_)
            | PlugEvent::Withdrawn(_) => true,
        }
    }

    /// True if the event may decide the fate of failed writes, of which the writes in front of the
    /// volume have to be informed.
    pub(super) fn decides(&self) -> bool {
        matches!(
            self,
            PlugEvent::Resynced(_)
                | PlugEvent::Settled(_)
                | PlugEvent::ReadBack { .. }
                | PlugEvent::TryAgain { .. }
        )
    }
}

impl Volume {
    /// Applies an event to the zone's word. If the zone waits afterwards, only the holder of the
    /// shard's lock may change the word.
    pub(super) fn apply(
        &self,
        zone: ZoneIndex,
        event: PlugEvent,
        shard: &mut Shard,
        turn: &mut Turn,
    ) -> Word {
        match event {
            PlugEvent::Kick | PlugEvent::Turn => self.plugs.load(zone),
            PlugEvent::Completed => self.plugs.change(zone, Word::completed),
            PlugEvent::Arrived => self.arrived(zone),
            PlugEvent::Broken(behind) => {
                // A thread that found the queue empty during the chain may have cleared the wait
                // state. No write may be admitted between the end of this write and the return of
                // those behind it.
                let word = self.plugs.change(zone, |w| w.completed().waiting());
                self.unchain(zone, word, behind, shard, turn)
            }
            PlugEvent::Failed(lost) => self.keep_failed(zone, lost, shard, turn),
            // The command would have opened the zone but did not, so the zone's slots have to be
            // reread.
            PlugEvent::Withdrawn(sectors) if self.slots.are_counted() => {
                self.plugs.change(zone, |w| w.unissued(sectors).recovering())
            }
            PlugEvent::Withdrawn(sectors) => self.plugs.change(zone, |w| w.unissued(sectors)),
            PlugEvent::Retry(mut pending) => {
                pending.plugged = false;
                let mut word = self.plugs.change(zone, |w| w.completed().recovering());
                if let Some(behind) = pending.behind.take() {
                    word = self.unchain(zone, word, behind, shard, turn);
                }
                let offset = self.terms.info.geometry.offset_of(pending.sector);
                let kind = RequestKind::Write(WriteKind::Alone(offset), pending.sectors);
                shard.queue(zone).push_front(word, Item { kind, mergeable: false, token: pending })
            }
            PlugEvent::Managed(pointer) => {
                let word = shard.queue(zone).managed(self.plugs.load(zone), pointer);
                self.slots.follow(zone, word)
            }
            PlugEvent::TakenOffline => {
                let word = shard.queue(zone).managed(self.plugs.load(zone), None);
                let word = word.taken_offline(self.terms.info.geometry.capacity_of(zone));
                self.slots.follow(zone, word)
            }
            PlugEvent::ManagedInDoubt(error) => {
                let queue = shard.queue(zone);
                let word = queue.managed(self.plugs.load(zone), None);
                if error.may_execute_late() { queue.unsettle(word) } else { queue.invalidate_pointer(word) }
            }
            PlugEvent::Resynced(result) => self.resynced(zone, result, shard, turn),
            PlugEvent::Settled(answer) => self.was_settled(zone, answer, shard, turn),
            PlugEvent::ReadBack { lost, rest } => {
                let (word, queue) = (self.plugs.load(zone), shard.queue(zone));
                queue.was_read_back(word, lost);
                if lost {
                    turn.loses_write();
                }
                rest.map_or(word, |item| queue.push_front(word, item))
            }
            PlugEvent::NoSlot(error) => self.was_denied(zone, error, shard, turn),
            PlugEvent::TryAgain { counts } => {
                let word = self.plugs.load(zone);
                if word.waits() {
                    try_again_for_slot(zone, word, counts, shard.queue(zone), turn);
                }
                word
            }
        }
    }
}
