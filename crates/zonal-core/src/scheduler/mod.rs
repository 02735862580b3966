//! Deadline scheduler for drives whose zones are locked by the write at the device.
//!
//! How Linux kept the writes of a zone in order before zone write plugging: `mq-deadline` sorts what waits and gives out
//! at most one write a zone. The thread that issues it locks the zone until the write has completed. Here it is the
//! baseline that plugs are compared with.
//!
//! Owns the requests that wait, in two lanes, reads and writes, each sorted by address and by arrival. Owns no lock:
//! [`Scheduler::dispatch`] asks its caller which zones are locked, and the caller locks the zone of the write it gets.
//! Owns no payload and no clock.
//!
//! # The rules, and where they are
//! | rule of mq-deadline | here |
//! |---|---|
//! | a request joins a waiting request that it continues or precedes, up to the largest command; the join keeps the older's deadline | [`Scheduler::insert`], `lane` |
//! | a batch continues in ascending address, `fifo_batch` requests at most, reads or writes and not both | `Scheduler::batched` |
//! | at a batch's end reads go first, until they have done so `writes_starved` times while a write could have gone | `Scheduler::direction` |
//! | a new batch continues from the last address of its direction, unless the oldest has expired or nothing lies after it | `Scheduler::first_of_batch` |
//! | a write whose zone is locked is passed over, in address order and in order of arrival | `pick` |
//! | the oldest write stands for its zone: what goes is the zone's lowest | `pick` |
//! | on a rotational drive a run of adjacent writes is passed over as a whole, and never entered in its middle by age | `pick` |
//!
//! # Invariants
//! - A request leaves once: dispatched, or taken back by [`Scheduler::remove_zone`].
//! - Of the writes of a sequential zone the lowest leaves first.
//! - While a read waits, `dispatch` answers one. A write is held back only by its zone's lock, or on a rotational drive
//!   by that of the zone where its run begins.
//! - With `writes_starved` of 1 or more, an expired read that is the oldest leaves within `2 * fifo_batch` requests.
//!
//! # What differs from Linux, and why
//! There is one priority, so that nothing ages between priorities. Nothing is put back at the head: a caller that cannot
//! issue what it got keeps it. The neighbour that a request continues is found by address and not through a hash of ends,
//! which is the same while requests do not overlap. Linux also moves a write to a place before the later one of its
//! zone that came earlier; the rule that the oldest stands for its zone has the same effect and hides no deadline.
//!
//! ```
//! use zonal_core::scheduler::{Direction, Limits, Options, Request, Scheduler};
//! use zonal_core::{Nanos, Sector, Sectors, ZoneIndex};
//!
//! let limits = Limits { zone_size: Sectors(1 << 16), sectors_max: Sectors(1024), rotational: true };
//! let mut scheduler = Scheduler::new(Options::default(), limits);
//! for (sector, token) in [(8, 'b'), (0, 'a')] {
//!     let (sector, zone) = (Sector(sector), Some(ZoneIndex(0)));
//!     let request =
//!         Request { direction: Direction::Write, sector, sectors: Sectors(8), zone, mergeable: true, token };
//!     scheduler.insert(Nanos(0), request);
//! }
//! assert!(scheduler.dispatch(Nanos(1), |zone| zone == ZoneIndex(0)).is_none());
//! let write = scheduler.dispatch(Nanos(1), |_| false).unwrap();
//! assert_eq!((write.sector, write.sectors), (Sector(0), Sectors(16)));
//! assert_eq!(write.parts.into_iter().collect::<String>(), "ab");
//! ```

mod deadline;
mod lane;
mod options;
mod parts;
mod pick;

pub use deadline::{Dispatched, Inserted, Request, Scheduler};
pub use options::{Limits, OptionError, Options};
pub use parts::Parts;

/// Which way data goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

#[cfg(test)]
mod tests;
