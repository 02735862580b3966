//! Plugs of a volume's zones: a word for each zone, and sharded queues of waiting writes.
//!
//! # Access rules
//! - A zone's word: any thread by compare-exchange while the zone has no waiters; with waiters,
//!   only the holder of its shard's lock.
//! - A zone's queue: the holder of its shard's lock. A queue exists only while its zone has
//!   waiters.

use super::shard::Shard;
use crate::sync::{CachePadded, IS_MODEL, Ordering, ShortLock, Tally, WordTable, shard_of, waits_for};
use std::ops::Range;
use zonal_core::plug::{Admission, Word};
use zonal_core::{Geometry, RequestError, ZoneIndex};

const SHARD_BITS: u32 = if IS_MODEL { 1 } else { 6 };

pub(super) struct Plugs {
    geometry: Geometry,
    words: WordTable,
    shards: Box<[CachePadded<ShortLock<Shard>>]>,
    /// Failed compare-exchanges of words.
    retries: Tally,
}

/// Decision on a zone's word: see [`Plugs::admit`].
pub(super) enum Decision<T> {
    /// Replace the word; decide again if another thread has changed it.
    Change(Word, T),
    /// Leave the word unchanged.
    Leave(T),
    /// Decide again with this word.
    Again(Word),
}

/// Answer to a write, positional or append.
pub(super) enum Admitted {
    /// Issue at this offset.
    At(u32),
    Refused(RequestError),
    Waits,
    /// The mode has changed: the write has to ask again under the new mode.
    OtherMode,
}

impl Admitted {
    /// Converts the plug's answer to a step of [`Plugs::admit`].
    #[inline(always)]
    pub(super) fn decision(admission: Admission) -> Decision<Admitted> {
        match admission {
            Admission::Issue(next, at) => Decision::Change(next, Admitted::At(at)),
            Admission::Refuse(error) => Decision::Leave(Admitted::Refused(error)),
            Admission::Wait => Decision::Leave(Admitted::Waits),
        }
    }
}

impl Plugs {
    /// Builds the plugs of a drive; the caller initializes the words.
    pub(super) fn new(geometry: Geometry) -> Plugs {
        Plugs {
            geometry,
            words: WordTable::new(geometry.zones()),
            shards: std::iter::repeat_with(Default::default).take(1 << SHARD_BITS).collect(),
            retries: Tally::default(),
        }
    }

    /// Writable sectors of a zone.
    pub(super) fn capacity_of(&self, zone: ZoneIndex) -> u32 {
        self.geometry.capacity_of(zone)
    }

    /// Memory in bytes, used and unused zones alike.
    pub(super) fn bytes(&self) -> usize {
        self.words.bytes() + self.shards.len() * size_of::<CachePadded<ShortLock<Shard>>>()
    }

    /// Number of contended shard locks.
    pub(super) fn waits(&self) -> u64 {
        self.shards.iter().map(|shard| u64::from(waits_for(shard))).sum()
    }

    /// Number of word updates that lost a race.
    pub(super) fn retries(&self) -> u64 {
        self.retries.sum()
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = &ShortLock<Shard>> {
        self.shards.iter().map(|shard| &**shard)
    }

    /// Admission loop of every write: `decide` is called with the zone's word, again after each lost
    /// race.
    #[inline(always)]
    pub(super) fn admit<T>(
        &self,
        zone: ZoneIndex,
        mut word: Word,
        mut decide: impl FnMut(Word) -> Decision<T>,
    ) -> T {
        loop {
            match decide(word) {
                Decision::Change(next, answer) => match self.exchange(zone, word, next) {
                    Ok(()) => return answer,
                    Err(seen) => word = seen,
                },
                Decision::Leave(answer) => return answer,
                Decision::Again(seen) => word = seen,
            }
        }
    }

    pub(super) fn shard(&self, zone: ZoneIndex) -> &ShortLock<Shard> {
        &self.shards[shard_of(zone.0, SHARD_BITS)]
    }

    #[inline]
    pub(super) fn load(&self, zone: ZoneIndex) -> Word {
        Word(self.words.word(zone.0).load(Ordering::Acquire))
    }

    /// Replaces `old`, or returns the current word if another thread has changed it.
    #[inline(always)]
    pub(super) fn exchange(&self, zone: ZoneIndex, old: Word, new: Word) -> Result<(), Word> {
        let word = self.words.word(zone.0);
        match word.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(seen) => {
                self.retries.add_one();
                Err(Word(seen))
            }
        }
    }

    /// Returns the word after `change`, for the holder of the shard's lock, who stores it if the
    /// zone has waiters.
    ///
    /// Other threads do not change the word of a zone with waiters, so the final store of a step
    /// suffices.
    #[inline]
    pub(super) fn change(&self, zone: ZoneIndex, change: impl Fn(Word) -> Word) -> Word {
        let word = self.load(zone);
        if word.waits() { change(word) } else { self.update(zone, change) }
    }

    /// Changes the word while other threads may change it too.
    pub(super) fn update(&self, zone: ZoneIndex, change: impl Fn(Word) -> Word) -> Word {
        self.admit(zone, self.load(zone), |word| {
            let next = change(word);
            Decision::Change(next, next)
        })
    }

    /// Stores the word. Only for the holder of the shard's lock, for a zone with waiters.
    pub(super) fn store(&self, zone: ZoneIndex, word: Word) {
        self.words.word(zone.0).store(word.0, Ordering::Release);
    }

    /// Completes a write of a zone without waiters; returns false, with no change, if it has any.
    #[inline(always)]
    pub(super) fn complete_unqueued(&self, zone: ZoneIndex) -> bool {
        self.change_unqueued(zone, Word::completed)
    }

    /// Notes that the write of `zone` being issued has reached the device. Returns true if the zone
    /// has waiters: the word is then unchanged, and the caller has to update it under the shard's
    /// lock.
    pub(super) fn has_arrived(&self, zone: ZoneIndex) -> bool {
        !self.change_unqueued(zone, Word::has_issued)
    }

    /// Changes the word unless the zone has waiters; returns true if it was changed.
    #[inline(always)]
    fn change_unqueued(&self, zone: ZoneIndex, change: impl Fn(Word) -> Word) -> bool {
        self.admit(zone, self.load(zone), |word| match word.waits() {
            true => Decision::Leave(false),
            false => Decision::Change(change(word), true),
        })
    }

    pub(super) fn sequential_range(&self) -> Range<u32> {
        let geometry = &self.geometry;
        geometry.conventional_zones()..geometry.zones()
    }

    pub(super) fn sequential_zones(&self) -> impl Iterator<Item = ZoneIndex> + use<> {
        self.sequential_range().map(ZoneIndex)
    }
}
