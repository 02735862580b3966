//! Space management: zones and their accounts, open zones, victims, credits. Pure decisions.
//!
//! Owns all decisions about space, as values and `&mut self` state machines. The caller holds one
//! lock around them. Owns no device, no file, no map from files to zones, and no clock.
//!
//! - [`zones`]: state and account of every [`zone`]; free and dead zones, victims ([`load`]: at
//!   mount).
//! - [`open`]: selection of an open zone for a writer.
//! - [`victims`]: when to collect, and which zone.
//! - [`credits`]: space that writers may use, and the line of those that wait; at what [`pace`].
//! - [`evacuation`]: zones that are collected although that gains no space.
//!
//! # Interaction
//! A writer reserves credits, chooses or opens a zone, allocates from it, and spends the credits.
//! After the write it ends the write in the book, and frees the blocks that it overwrote in the
//! book and in the credits. The collector does the same with its pools. A dead zone is reset once
//! the commit that freed it is durable, and its capacity becomes available. [`check`] verifies the
//! invariants between the parts.
//!
//! # Units
//! Blocks of 4 KiB. The book and `available` include the headers of units, `extents` and `used`
//! only data.

pub mod cost;
mod counter;
pub mod credits;
pub mod error;
pub mod evacuation;
pub mod load;
pub mod open;
pub mod pace;
pub mod victims;
pub mod zone;
pub mod zones;

#[cfg(test)]
mod world;

use cost::Need;
use credits::{Credits, Reserve};
use open::{OpenZone, OpenZones};
use victims::{Histogram, Pressure, Reason, needs_gc};
use zonal_core::ZoneIndex;
use zone::ZoneState;
use zones::ZoneBook;

pub use credits::{Reservation, Urgency};
pub use error::{BookError, Finding};
pub use open::{Choice, Lifetime, Opened, Owner};
pub use zones::ZoneOrder;

/// An open zone, for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenView {
    /// Entry in the list of open zones.
    pub open: OpenZone,
    /// Capacity of the zone in blocks.
    pub capacity: u32,
    /// Allocated blocks: the write pointer, once all writes have ended.
    pub allocated: u32,
    /// Blocks with ended writes.
    pub written: u32,
    /// Live data blocks.
    pub used: u32,
}

/// Statistics about space, for display. All counts are blocks or zones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statistics {
    /// Space that users can reserve.
    pub user: Need,
    /// Space that the collector can reserve.
    pub pool: Need,
    /// Number of writers in line.
    pub waiting: u32,
    /// Reason for garbage collection, if it has to run.
    pub gc: Option<Reason>,
    /// Data zones, except lost ones.
    pub zones: u32,
    /// Free zones.
    pub free: u32,
    /// Zones waiting for their reset or being reset.
    pub dead: u32,
    /// Zones that are read-only or offline.
    pub lost: u32,
    /// Maximum number of open zones, the collector's included.
    pub open_max: u32,
    /// Open zones.
    pub open: Vec<OpenView>,
    /// Histogram of fully written zones by tenths of live data, and zones with nothing to gain.
    pub histogram: Histogram,
    /// The most often reset zone, and its number of resets.
    pub resets_max: Option<(ZoneIndex, u32)>,
    /// Total number of resets.
    pub resets: u64,
}

impl Statistics {
    /// Collects the statistics. `low_space` is the option, in percent.
    pub fn of(book: &ZoneBook, open: &OpenZones, credits: &Credits, low_space: u8) -> Statistics {
        let resets = || book.iter().map(|(zone, _)| (zone, book.resets(zone)));
        let lost = book.count(ZoneState::ReadOnly) + book.count(ZoneState::Offline);
        Statistics {
            user: credits.user(),
            pool: credits.pool(),
            waiting: credits.waiting(),
            gc: needs_gc(pressure(book, open, credits, low_space)),
            zones: book.len() - book.count(ZoneState::Reserved) - lost,
            free: book.count(ZoneState::Free),
            dead: book.count(ZoneState::Dead) + book.count(ZoneState::Resetting),
            lost,
            open_max: open.max(),
            open: open.iter().map(|zone| view(book, zone)).collect(),
            histogram: book.histogram(),
            resets_max: resets().filter(|r| r.1 > 0).max_by_key(|r| (r.1, std::cmp::Reverse(r.0))),
            resets: resets().map(|r| u64::from(r.1)).sum(),
        }
    }
}

fn view(book: &ZoneBook, open: &OpenZone) -> OpenView {
    let zone = book.zone(open.opened.zone).expect("an open zone is in the book");
    OpenView {
        open: *open,
        capacity: zone.capacity,
        allocated: zone.allocated,
        written: zone.written,
        used: zone.used,
    }
}

/// Inputs of the decision whether to collect.
pub fn pressure(book: &ZoneBook, open: &OpenZones, credits: &Credits, low_space: u8) -> Pressure {
    let user = credits.user();
    Pressure {
        reclaimable: book.has_victim(),
        available: user.available,
        free: user.extents,
        zone_blocks: book.zone_blocks(),
        open_max: open.max(),
        waiting: credits.wanted(),
        low_space,
    }
}

/// Number of writable blocks below which writers are paced by the collector.
pub fn pace_mark(book: &ZoneBook, open: &OpenZones, credits: &Credits) -> u64 {
    victims::pace_mark(pressure(book, open, credits, 0))
}

/// Returns the credits of a book without writes in flight.
pub fn initial_credits(book: &ZoneBook, reserve: Reserve) -> Credits {
    let mut credits = Credits::new(book.totals(), reserve);
    // Blocks freed later pay it back first.
    credits.lost(Need { extents: book.debt(), available: 0 });
    credits
}

/// Checks each part, and the invariants between them. The list contains exactly the zones that are
/// open in the book, or full with writes in flight. The credits equal the totals of the book minus
/// data in flight.
///
/// # Panics
/// If an invariant is violated: a bug.
pub fn check(book: &ZoneBook, open: &OpenZones, credits: &Credits) {
    book.check();
    open.check();
    credits.check();
    for (zone, account) in book.iter() {
        let is_open = account.state == ZoneState::Open;
        let is_ending = account.state == ZoneState::Full && !account.is_settled();
        let listed = open.get(zone);
        assert_eq!(listed.is_some(), is_open || is_ending, "zone {zone}: {account:?}, {listed:?}");
        assert!(listed.is_none_or(|z| z.has_room == is_open), "zone {zone}: {account:?}, {listed:?}");
    }
    let (credits, book) = (credits.total(), book.totals());
    assert_eq!(credits.available, book.available, "credits and book differ");
    // Data in flight is spent but not live yet.
    assert!(credits.extents <= book.extents, "{credits:?} of {book:?}");
}
