//! Where data go: zones and their accounts, open zones, victims, credits. Pure decisions.
//!
//! Owns what the file system decides about space, as values and `&mut self` state machines; the caller holds one lock around
//! them. Owns no device, no file, no map from files to zones, and no clock.
//!
//! - [`zones`]: every [`zone`]'s state and account; which are free, dead, victims ([`load`]: at mount).
//! - [`open`]: which open zone a writer gets.
//! - [`victims`]: which zone is collected, and when there is need.
//! - [`credits`]: which writer may write how much, and which one waits; at what [`pace`].
//! - [`evacuation`]: which zone is collected although it gives no space.
//!
//! # How they go together
//! A writer reserves credits. It chooses an open zone, or opens one, allocates from it, and spends credits. It writes, ends
//! the write in the book, and frees there and in the credits what it overwrote. The collector does the same with its pools.
//! A dead zone is reset when the commit that freed it is durable, and makes its capacity available. [`check`] says what
//! holds between the parts at any time.
//!
//! # Units
//! Blocks of 4 KiB. The book and `available` count headers of units, `extents` and `used` are data alone.

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
use credits::Credits;
use open::{OpenZone, OpenZones};
use victims::{Histogram, Pressure, Reason, needs_gc};
use zonal_core::ZoneIndex;
use zone::ZoneState;
use zones::ZoneBook;

pub use credits::{Reservation, Urgency};
pub use error::{BookError, Finding};
pub use open::{Choice, Lifetime, Opened, Owner};
pub use zones::ZoneOrder;

/// An open zone, to be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenView {
    /// What the list says of it.
    pub open: OpenZone,
    /// Blocks that can be written.
    pub capacity: u32,
    /// Blocks handed out: the write pointer, once all writes have ended.
    pub allocated: u32,
    /// Blocks whose write ended.
    pub written: u32,
    /// Live data blocks.
    pub used: u32,
}

/// Everything about space that is shown. All counts are blocks or zones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statistics {
    /// What users can reserve.
    pub user: Need,
    /// What the collector can reserve.
    pub pool: Need,
    /// Writers in line.
    pub waiting: u32,
    /// Whether the collector has to run, and why.
    pub gc: Option<Reason>,
    /// Zones for data that are not lost.
    pub zones: u32,
    /// Free ones.
    pub free: u32,
    /// Zones that wait for their reset, or that the device is resetting.
    pub dead: u32,
    /// Zones that the device will not write any more.
    pub lost: u32,
    /// Zones that may be open, the collector's included.
    pub open_max: u32,
    /// Open zones.
    pub open: Vec<OpenView>,
    /// Fully written zones by tenths of live data, and zones with nothing to gain.
    pub histogram: Histogram,
    /// Zones by how often they were reset: the most, and its zone.
    pub resets_max: Option<(ZoneIndex, u32)>,
    /// Resets of all zones.
    pub resets: u64,
}

impl Statistics {
    /// What the parts say; `low_space` is the option, in percent.
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

/// What decides now whether the collector runs.
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

/// Fewer writable blocks than this, and writers go at the pace of the collector.
pub fn pace_mark(book: &ZoneBook, open: &OpenZones, credits: &Credits) -> u64 {
    victims::pace_mark(pressure(book, open, credits, 0))
}

/// Checks each part, and what holds between them. The list has exactly the zones that are open in the book, or full with
/// writes in flight. The credits have what the book has, less data in flight.
///
/// # Panics
/// If it does not hold: a bug.
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
    // Data in flight are spent and not live yet.
    assert!(credits.extents <= book.extents, "{credits:?} of {book:?}");
}
