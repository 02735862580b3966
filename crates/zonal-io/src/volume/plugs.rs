//! The plugs of a volume's zones: a word each, and in shards the queues of those that wait.
//!
//! # Who may touch what
//! - A zone's word: any thread by compare-exchange while the zone does not wait; while it waits, only the holder of its shard.
//! - A zone's queue: the holder of its shard. A queue exists only while its zone waits.

use super::shard::Shard;
use crate::sync::{CachePadded, IS_MODEL, Ordering, ShortLock, Tally, WordTable, shard_of, waits_for};
use std::ops::Range;
use zonal_core::plug::{Admission, Word};
use zonal_core::{Geometry, RequestError, ZoneIndex};

const SHARD_BITS: u32 = if IS_MODEL { 1 } else { 6 };

/// See the module.
pub(super) struct Plugs {
    geometry: Geometry,
    words: WordTable,
    shards: Box<[CachePadded<ShortLock<Shard>>]>,
    /// Exchanges of words that failed.
    retries: Tally,
}

/// What a look at a zone's word comes to: see [`Plugs::admit`].
pub(super) enum Look<T> {
    /// The word changes to this, unless another thread was faster.
    Change(Word, T),
    /// It stays.
    Leave(T),
    /// This is the word now.
    Again(Word),
}

/// What a write is told that names its place or lets the zone choose it.
pub(super) enum Admitted {
    /// It goes out, to this offset.
    At(u32),
    Refused(RequestError),
    Waits,
    /// The mode has changed: the write has to ask as that one has it.
    OtherMode,
}

impl Admitted {
    /// The plug's answer, as a step of [`Plugs::admit`].
    #[inline(always)]
    pub(super) fn look(admission: Admission) -> Look<Admitted> {
        match admission {
            Admission::Issue(next, at) => Look::Change(next, Admitted::At(at)),
            Admission::Refuse(error) => Look::Leave(Admitted::Refused(error)),
            Admission::Wait => Look::Leave(Admitted::Waits),
        }
    }
}

impl Plugs {
    /// One for each zone of a drive. Their words are still to be set.
    pub(super) fn new(geometry: Geometry) -> Plugs {
        Plugs {
            geometry,
            words: WordTable::new(geometry.zones()),
            shards: std::iter::repeat_with(Default::default).take(1 << SHARD_BITS).collect(),
            retries: Tally::default(),
        }
    }

    /// Sectors that may be written of a zone.
    pub(super) fn capacity_of(&self, zone: ZoneIndex) -> u32 {
        self.geometry.capacity_of(zone)
    }

    /// Bytes that they take, whether they are in use or not.
    pub(super) fn bytes(&self) -> usize {
        self.words.bytes() + self.shards.len() * size_of::<CachePadded<ShortLock<Shard>>>()
    }

    /// Times that a shard was found locked.
    pub(super) fn waits(&self) -> u64 {
        self.shards.iter().map(|shard| u64::from(waits_for(shard))).sum()
    }

    /// Changes of a word that another thread's came before.
    pub(super) fn retries(&self) -> u64 {
        self.retries.sum()
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = &ShortLock<Shard>> {
        self.shards.iter().map(|shard| &**shard)
    }

    /// The loop in which every write is admitted: `look` decides on the zone's word, again and again while other threads change it.
    #[inline(always)]
    pub(super) fn admit<T>(
        &self,
        zone: ZoneIndex,
        mut word: Word,
        mut look: impl FnMut(Word) -> Look<T>,
    ) -> T {
        loop {
            match look(word) {
                Look::Change(next, answer) => match self.exchange(zone, word, next) {
                    Ok(()) => return answer,
                    Err(seen) => word = seen,
                },
                Look::Leave(answer) => return answer,
                Look::Again(seen) => word = seen,
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

    /// Replaces `old` unless another thread was faster.
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

    /// The word after `change`, for the holder of the zone's shard, who stores it if it waits.
    ///
    /// While a zone waits no other thread changes its word, so the store that ends the step is enough.
    #[inline]
    pub(super) fn change(&self, zone: ZoneIndex, change: impl Fn(Word) -> Word) -> Word {
        let word = self.load(zone);
        if word.waits() { change(word) } else { self.update(zone, change) }
    }

    /// Changes the word while other threads may be changing it.
    pub(super) fn update(&self, zone: ZoneIndex, change: impl Fn(Word) -> Word) -> Word {
        self.admit(zone, self.load(zone), |word| {
            let next = change(word);
            Look::Change(next, next)
        })
    }

    /// Sets the word; only for the holder of the shard of a zone that waits.
    pub(super) fn store(&self, zone: ZoneIndex, word: Word) {
        self.words.word(zone.0).store(word.0, Ordering::Release);
    }

    /// Completes a write of a zone that does not wait.
    #[inline(always)]
    pub(super) fn complete_unqueued(&self, zone: ZoneIndex) -> bool {
        self.change_unqueued(zone, Word::completed)
    }

    /// The write of `zone` that was being issued has reached the device. Returns whether others wait: then the word is
    /// not to be changed here, and the caller has to do that with the shard's lock.
    pub(super) fn has_arrived(&self, zone: ZoneIndex) -> bool {
        !self.change_unqueued(zone, Word::has_issued)
    }

    /// Changes the word unless the zone waits; returns whether it did.
    #[inline(always)]
    fn change_unqueued(&self, zone: ZoneIndex, change: impl Fn(Word) -> Word) -> bool {
        self.admit(zone, self.load(zone), |word| match word.waits() {
            true => Look::Leave(false),
            false => Look::Change(change(word), true),
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
