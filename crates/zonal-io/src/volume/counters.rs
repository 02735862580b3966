//! Live counters, cheap enough for the hot path: a thread adds to a line of its own, without a locked operation.

use crate::sync::{CachePadded, Ordering, PlainU64, thread_slot};
use std::sync::Arc;

/// Threads with a line of their own; later ones share the last line with locked additions.
const LINES: usize = 64;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident $field:ident,)*) => {
        /// What is counted.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub(crate) enum Counter { $($name,)* }

        /// A sum of the live counters, from the volume's opening on.
        ///
        /// Taken while others count, so figures that belong together may differ by what is in flight.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
        pub struct Statistics {
            $($(#[$doc])* pub $field: u64,)*
            /// Times that a lock of the write path was found taken.
            pub plug_waits: u64,
            /// Changes of a zone's plug that another thread's came before.
            pub plug_retries: u64,
            /// Times that a lock of the device was found taken, as far as it counts them.
            pub device_waits: u64,
            /// As [`Self::plug_retries`], of the zones' states in the device.
            pub device_retries: u64,
        }

        const COUNTERS: usize = [$(Counter::$name),*].len();

        impl Statistics {
            fn from_sums(sums: [u64; COUNTERS]) -> Statistics {
                Statistics { $($field: sums[Counter::$name as usize],)* ..Statistics::default() }
            }
        }

        impl Statistics {
            /// What was counted since an earlier sum of the same volume.
            pub fn since(self, earlier: Statistics) -> Statistics {
                Statistics {
                    $($field: self.$field.saturating_sub(earlier.$field),)*
                    plug_waits: self.plug_waits.saturating_sub(earlier.plug_waits),
                    plug_retries: self.plug_retries.saturating_sub(earlier.plug_retries),
                    device_waits: self.device_waits.saturating_sub(earlier.device_waits),
                    device_retries: self.device_retries.saturating_sub(earlier.device_retries),
                }
            }
        }

        /// What several volumes counted.
        impl std::ops::AddAssign for Statistics {
            fn add_assign(&mut self, other: Statistics) {
                $(self.$field += other.$field;)*
                self.plug_waits += other.plug_waits;
                self.plug_retries += other.plug_retries;
                self.device_waits += other.device_waits;
                self.device_retries += other.device_retries;
            }
        }
    };
}

counters! {
    /// Requests submitted.
    Requests requests,
    /// Sectors of these requests.
    Sectors sectors,
    /// Commands that the device took.
    Commands commands,
    /// Writes that waited in a plug.
    Queued queued,
    /// Writes that shared another's command.
    Merged merged,
    /// Requests that ended with an error; a request across zones counts once, however many of its parts fail.
    Failed failed,
    /// Times that the device's queue was full.
    Busy busy,
    /// Zones that were asked for their pointer after a failed write.
    Resyncs resyncs,
    /// Failed writes that were sent again, each time.
    Redriven redriven,
    /// Failed writes that were read back, because the zone's pointer had passed them.
    ReadBack read_back,
    /// Those of them that were found, whole.
    Verified verified,
    /// Writes that came before their predecessors and waited for them.
    Parked parked,
    /// Zones that had to wait for an open or active slot, each time.
    SlotWaits slot_waits,
    /// Zones closed or finished to make room for others, each time.
    Evicted evicted,
}

/// Clones count together.
#[derive(Clone)]
pub(crate) struct Counters {
    lines: Arc<[CachePadded<[PlainU64; COUNTERS]>]>,
}

impl Counters {
    pub(crate) fn new() -> Counters {
        let lines = std::iter::repeat_with(Default::default).take(LINES).collect();
        Counters { lines }
    }

    /// The calling thread's line.
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

/// One thread's counters.
pub(crate) struct Line<'a> {
    counters: &'a [PlainU64; COUNTERS],
    own: bool,
}

impl Line<'_> {
    /// Counts a request of this length, in sectors.
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
            // Only this thread writes the line, so nothing is lost between load and store.
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
