//! What can happen to a zone, and what that does to its word.
//!
//! Everything that a zone's plug hears of comes as a [`PlugEvent`]. It is applied under the lock of the zone's shard; what the
//! zone does next is not decided here but asked of its queue afterwards (`turn`).

use super::pending::PendingRequest;
use super::recovery::Lost;
use super::turn::Turn;
use super::verdict::try_again_for_slot;
use super::{Shard, Volume};
use crate::device::CommandResult;
use zonal_core::plug::{Item, RequestKind, Word, WriteKind};
use zonal_core::{DeviceError, RequestError, ZoneIndex};

/// What happened to a zone.
pub(super) enum PlugEvent {
    /// A write succeeded.
    Completed,
    /// A write succeeded, but what was to follow it may not.
    Broken(Box<PendingRequest>),
    /// A command failed: the pointer is not known.
    Failed(Lost),
    /// A write failed in a way that its next stage mends, as soon as the pointer is known.
    Retry(Box<PendingRequest>),
    /// A command of this many sectors met a full queue and was withdrawn.
    Withdrawn(u32),
    /// The device said where the zone stands.
    Resynced(CommandResult),
    /// A reset or finish ended; where the zone stands if it succeeded.
    Managed(Option<u32>),
    /// The zone's offline command succeeded.
    TakenOffline,
    /// A reset or finish failed and may have been executed, or, if it timed out, may still be.
    ManagedInDoubt(DeviceError),
    /// The device has settled what timed out, or cannot.
    Settled(Result<(), DeviceError>),
    /// A covered write was read back: whether it is lost, and what of it is to be sent again.
    ReadBack { lost: bool, rest: Option<Item<Box<PendingRequest>>> },
    /// The zone waits for a slot that it will not get.
    NoSlot(RequestError),
    /// A write without a slot may try again.
    TryAgain { counts: bool },
    /// Nothing.
    Kick,
    /// The zone has got the token.
    Turn,
    /// A write of a window has reached the device.
    Arrived,
}

impl PlugEvent {
    /// Whether a write has ended with it: in mode `qd1` the token comes along.
    pub(super) fn brings_token(&self) -> bool {
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

    /// Whether it may decide what becomes of writes that have failed: those that wait in front of the volume have to learn of it.
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
    /// Brings an event to the zone's word. With the result waiting, the word is the shard holder's.
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
                // A thread that found the queue empty while the chain ran may have let the zone stop waiting. No write
                // may come between the end of this write and the return of those that were to follow it.
                let word = self.plugs.change(zone, |w| w.completed().waiting());
                self.unchain(zone, word, behind, shard, turn)
            }
            PlugEvent::Failed(lost) => self.keep_failed(zone, lost, shard, turn),
            // A zone that was to be opened by it was not: what it holds has to be asked for.
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
                if error.may_come_late() { queue.unsettle(word) } else { queue.distrust(word) }
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
