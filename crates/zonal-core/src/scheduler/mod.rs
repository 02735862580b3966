//! Deadline scheduler for drives with zones locked by the write at the device.
//!
//! This is how Linux kept the writes of a zone in order before zone write plugging: `mq-deadline`
//! sorts waiting requests and dispatches at most one write per zone. The issuing thread locks the
//! zone until the write has completed. Here it is the baseline for comparison with plugs.
//!
//! Owns the waiting requests, in two lanes for reads and writes, each sorted by address and by
//! arrival. Owns no locks: [`Scheduler::dispatch`] asks its caller which zones are locked, and the
//! caller locks the zone of a dispatched write. Owns no payload and no clock.
//!
//! # Rules and their implementation
//! | rule of mq-deadline | here |
//! |---|---|
//! | a request is merged with an adjacent waiting one, up to the largest command; the result keeps the older deadline | [`Scheduler::insert`], `lane` |
//! | a batch continues in ascending order of address, with at most `fifo_batch` requests, either reads or writes | `Scheduler::batched` |
//! | at the end of a batch reads are preferred, at most `writes_starved` times while a write could be issued | `Scheduler::direction` |
//! | a new batch continues from the last address of its direction, unless the oldest request has expired or none follows | `Scheduler::first_of_batch` |
//! | a write in a locked zone is skipped, in order of address and in order of arrival | `pick` |
//! | the oldest write represents its zone: the zone's lowest write is dispatched | `pick` |
//! | on a rotational drive a run of adjacent writes is skipped as a whole, and never entered in the middle by age | `pick` |
//!
//! # Invariants
//! - A request leaves exactly once: dispatched, or removed by [`Scheduler::remove_zone`].
//! - Of the writes of a sequential zone the lowest leaves first.
//! - While a read waits, `dispatch` returns a request. A write is blocked only by its zone's lock,
//!   or on a rotational drive by the lock of the zone at the start of its run.
//! - With `writes_starved` of 1 or more, an expired read that is the oldest leaves within `2 *
//!   fifo_batch` requests.
//!
//! # Differences from Linux
//! There is only one priority, and so no ageing between priorities. Nothing is requeued at the
//! head: a caller that cannot issue a dispatched request keeps it. Adjacent requests are found by
//! address, not through a hash of their ends; the result is the same unless requests overlap. Linux
//! also moves a write in front of an earlier one of its zone with a higher address. The rule that
//! the oldest write represents its zone has the same effect and hides no deadline.
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

/// Direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

#[cfg(test)]
mod tests;
