//! The locks, atomics, queues and thread-locals of this crate, in one place, so that a model checker can stand in for them.
//!
//! With the feature `loom` or `shuttle` it does: see `model` and docs/THREADS.md.

mod short_lock;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod single;
mod slot;
mod watched;

#[cfg(any(feature = "loom", feature = "shuttle"))]
pub mod model;

pub use crossbeam_utils::CachePadded;
pub(crate) use slot::{ENDING_SLOT, is_mine, slot_if_any, thread_slot};
/// For sums that nothing follows from. A model leaves them alone: each would be a question of order in every step.
pub use std::sync::atomic::{AtomicU32 as PlainU32, AtomicU64 as PlainU64};
pub use watched::{Tally, Watched};

#[cfg(any(feature = "loom", feature = "shuttle"))]
pub use model::{
    Arc, ArrayQueue, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Condvar, CountedArc, Local,
    Mutex, MutexGuard, Ordering, RwLock, SegQueue, ShortLock, Single, alloc_zeroed, dealloc, fence,
    waits_for,
};

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub use {
    crossbeam_queue::{ArrayQueue, SegQueue},
    parking_lot::{Condvar, Mutex, MutexGuard, RwLock},
    short_lock::{ShortLock, waits_for},
    single::Single,
    std::alloc::{alloc_zeroed, dealloc},
    std::sync::Arc,
    std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

/// An [`Arc`] whose handles a model counts.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub use std::sync::Arc as CountedArc;

/// Whether a model checker stands in: limits are then as low as they can be without losing what they are limits of.
pub const IS_MODEL: bool = cfg!(any(feature = "loom", feature = "shuttle"));

/// `std::thread_local!`, or a thread of the model's.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
macro_rules! local {
    ($($declarations:tt)*) => { std::thread_local! { $($declarations)* } };
}

#[cfg(any(feature = "loom", feature = "shuttle"))]
macro_rules! local {
    () => {};
    ($(#[$meta:meta])* static $name:ident: $type:ty = const { $init:expr }; $($rest:tt)*) => {
        $crate::sync::local! { $(#[$meta])* static $name: $type = $init; $($rest)* }
    };
    ($(#[$meta:meta])* static $name:ident: $type:ty = $init:expr; $($rest:tt)*) => {
        $(#[$meta])*
        static $name: $crate::sync::Local<$type> = {
            #[cfg(feature = "loom")]
            loom::thread_local! { static INNER: $type = $init }
            #[cfg(feature = "shuttle")]
            shuttle::thread_local! { static INNER: $type = $init }
            $crate::sync::Local(&INNER)
        };
        $crate::sync::local! { $($rest)* }
    };
}

pub(crate) use local;

/// Multiplier that spreads zones over a table: odd, so that it permutes any power-of-two table, and such that neighbours
/// and power-of-two strides land on different cache lines.
const SPREAD: u32 = 0x9E37_79B1;

/// Smallest table: below this, neighbours cannot be kept on different cache lines.
const SPREAD_TABLE_MIN: usize = if IS_MODEL { 2 } else { 128 };

/// One 64-bit word a zone, placed so that zones used together do not share cache lines.
///
/// 8 bytes a zone, rounded up to a power of two of zones.
pub struct WordTable {
    words: Box<[AtomicU64]>,
    mask: u32,
}

impl WordTable {
    /// A table of zeroes for `zones` zones.
    pub fn new(zones: u32) -> WordTable {
        let len = (zones as usize).next_power_of_two().max(SPREAD_TABLE_MIN);
        let words = std::iter::repeat_with(|| AtomicU64::new(0)).take(len).collect();
        WordTable { words, mask: (len - 1) as u32 }
    }

    /// The word of `zone`.
    #[inline]
    pub fn word(&self, zone: u32) -> &AtomicU64 {
        &self.words[(zone.wrapping_mul(SPREAD) & self.mask) as usize]
    }

    /// Bytes that the table takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

/// Spreads `zone` over `2^bits` shards.
#[inline]
pub fn shard_of(zone: u32, bits: u32) -> usize {
    (zone.wrapping_mul(SPREAD) >> (32 - bits)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_table_neighbours_and_strides_keep_off_each_others_cache_line() {
        for zones in [16, 64, 1000, 4096, 112_000, 1_000_000u32] {
            let table = WordTable::new(zones);
            let address = |zone| std::ptr::from_ref(table.word(zone)) as usize;
            let mut strides: Vec<u32> = (1..=16).collect();
            strides.extend((0..20).map(|k| 1 << k));
            strides.extend([zones / 2, zones / 4, zones / 8]);
            for d in strides.into_iter().filter(|d| (1..zones).contains(d)) {
                assert!(address(0).abs_diff(address(d)) >= 64, "{zones} zones: stride {d} shares a line");
            }
        }
    }

    #[test]
    fn word_table_is_a_permutation() {
        let table = WordTable::new(3000);
        for z in 0..3000 {
            table.word(z).fetch_add(1, Ordering::Relaxed);
        }
        assert!((0..3000).all(|z| table.word(z).load(Ordering::Relaxed) == 1));
    }
}
