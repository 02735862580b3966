//! Counters, cheap enough for the hot path: each thread adds to its own line without atomic
//! read-modify-write.

use crate::sync::{CachePadded, Ordering, PlainU64, thread_slot};
use std::sync::Arc;

/// Number of lines. Threads beyond that share the last one and add to it atomically.
const LINES: usize = 64;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident $field:ident,)*) => {
        /// Index of a counter.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub(crate) enum Counter { $($name,)* }

        /// Sums of the counters since the volume was opened.
        ///
        /// Read while other threads count, so related figures may differ by the requests in flight.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
        pub struct Statistics {
            $($(#[$doc])* pub $field: u64,)*
            /// Contended locks of the write path.
            pub plug_waits: u64,
            /// Updates of a zone's plug that lost a race.
            pub plug_retries: u64,
            /// Contended locks of the device, as far as it counts them.
            pub device_waits: u64,
            /// Like [`Self::plug_retries`], for the zone states in the device.
            pub device_retries: u64,
            /// Commands whose data the device copied because of the alignment of their memory.
            #[serde(default)]
            pub device_copies: u64,
        }

        const COUNTERS: usize = [$(Counter::$name),*].len();

        impl Statistics {
            fn from_sums(sums: [u64; COUNTERS]) -> Statistics {
                Statistics { $($field: sums[Counter::$name as usize],)* ..Statistics::default() }
            }
        }

        impl Statistics {
            /// Returns the difference to an earlier sum of the same volume.
            pub fn since(self, earlier: Statistics) -> Statistics {
                Statistics {
                    $($field: self.$field.saturating_sub(earlier.$field),)*
                    plug_waits: self.plug_waits.saturating_sub(earlier.plug_waits),
                    plug_retries: self.plug_retries.saturating_sub(earlier.plug_retries),
                    device_waits: self.device_waits.saturating_sub(earlier.device_waits),
                    device_retries: self.device_retries.saturating_sub(earlier.device_retries),
                    device_copies: self.device_copies.saturating_sub(earlier.device_copies),
                }
            }
        }

        /// Adds the sums of another volume.
        impl std::ops::AddAssign for Statistics {
            fn add_assign(&mut self, other: Statistics) {
                $(self.$field += other.$field;)*
                self.plug_waits += other.plug_waits;
                self.plug_retries += other.plug_retries;
                self.device_waits += other.device_waits;
                self.device_retries += other.device_retries;
                self.device_copies += other.device_copies;
            }
        }
    };
}

counters! {
    /// Requests submitted.
    Requests requests,
    /// Sectors of these requests.
    Sectors sectors,
    /// Commands accepted by the device.
    Commands commands,
    /// Writes that waited in a plug.
    Queued queued,
    /// Writes merged into another's command.
    Merged merged,
    /// Requests that ended with an error. A request that spans zones counts once, however many
    /// parts fail.
    Failed failed,
    /// Commands refused by a full device queue.
    Busy busy,
    /// Reports of zones after a failed write.
    Resyncs resyncs,
    /// Failed writes resubmitted, counted each time.
    Redriven redriven,
    /// Failed writes read back because the write pointer was past their start.
    ReadBack read_back,
    /// Of these, writes found complete.
    Verified verified,
    /// Writes that arrived before their predecessors and waited for them.
    Parked parked,
    /// Waits of a zone for a slot.
    SlotWaits slot_waits,
    /// Zones closed or finished to make room for others, counted each time.
    Evicted evicted,
}

/// Counters of a volume. Clones share them.
#[derive(Clone)]
pub(crate) struct Counters {
    lines: Arc<[CachePadded<[PlainU64; COUNTERS]>]>,
}

impl Counters {
    pub(crate) fn new() -> Counters {
        let lines = std::iter::repeat_with(Default::default).take(LINES).collect();
        Counters { lines }
    }

    /// Line of the calling thread.
    #[inline(always)]
    pub(crate) fn line(&self) -> Line<'_> {
        let slot = thread_slot();
        let own = slot < LINES - 1;
        Line { counters: &self.lines[if own { slot } else { LINES - 1 }], own }
    }

    pub(crate) fn sum(&self) -> Statistics {
        let mut sums = [0; COUNTERS];
        for line in self.lines.iter() {
            for (sum, counter) in sums.iter_mut().zip(line.iter()) {
                *sum += counter.load(Ordering::Relaxed);
            }
        }
        Statistics::from_sums(sums)
    }
}

/// Counters of one thread.
pub(crate) struct Line<'a> {
    counters: &'a [PlainU64; COUNTERS],
    own: bool,
}

impl Line<'_> {
    /// Counts a request of this length in sectors.
    #[inline]
    pub(crate) fn add_request(&self, sectors: u32) {
        let [requests, all] = [Counter::Requests, Counter::Sectors].map(|c| &self.counters[c as usize]);
        if self.own {
            requests.store(requests.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            all.store(all.load(Ordering::Relaxed) + u64::from(sectors), Ordering::Relaxed);
        } else {
            requests.fetch_add(1, Ordering::Relaxed);
            all.fetch_add(sectors.into(), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        let c = &self.counters[counter as usize];
        if self.own {
            // Only this thread writes the line, so no update is lost.
            c.store(c.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        } else {
            c.fetch_add(n, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_more_threads_than_lines_lose_nothing() {
        let counters = Counters::new();
        std::thread::scope(|s| {
            for _ in 0..2 * LINES {
                s.spawn(|| (0..1000).for_each(|_| counters.line().add(Counter::Queued, 2)));
            }
        });
        assert_eq!(counters.sum().queued, 2 * LINES as u64 * 2000);
    }
}
