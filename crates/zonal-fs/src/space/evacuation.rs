//! Evacuation of zones that became read-only, while they can still be read.
//!
//! Such a zone is never reset, so evacuating it costs space and gains none. It uses users' space,
//! because that is where its data was accounted. The collector evacuates while users still have a
//! zone to write to, and not while it has to gain space. Until then the data stays in place, and
//! the status reports it.

use super::cost::Need;
use super::credits::Credits;
use super::victims::{COPY_WASTE, Reason};
use super::zone::Zone;
use super::zones::ZoneBook;
use zonal_core::ZoneIndex;

/// The next zone to collect, and why, if there is a `reason` to collect or a read-only zone to
/// evacuate.
pub fn to_collect(book: &ZoneBook, credits: &Credits, reason: Option<Reason>) -> Option<(ZoneIndex, Reason)> {
    let evacuee = || evacuee(book, credits).map(|zone| (zone, Reason::ReadOnlyZone));
    let victim = reason.and_then(|reason| Some((book.victim()?, reason)));
    match reason {
        // If there is no need for space, evacuation is more urgent.
        None | Some(Reason::Forced) => evacuee().or(victim),
        Some(_) => victim.or_else(evacuee),
    }
}

/// A read-only zone with data that fits elsewhere.
fn evacuee(book: &ZoneBook, credits: &Credits) -> Option<ZoneIndex> {
    let has_room = |account: &Zone| {
        let Need { extents, available } = credits.user();
        let blocks = book.blocks_for(account.used) + COPY_WASTE;
        extents >= account.used.into() && available >= u64::from(blocks) + u64::from(book.zone_blocks())
    };
    book.evacuees().find(|(_, account)| has_room(account)).map(|(zone, _)| zone)
}

#[cfg(test)]
mod tests {
    use super::super::credits::Reserve;
    use super::super::load::ZoneAtMount;
    use super::super::zone::Pin;
    use super::*;
    use zonal_core::ZoneCondition;

    const LOW: Reason = Reason::Low { available: 0, wanted: 1 };

    /// A book of zones of 100 blocks, each with a condition and live blocks.
    fn book(zones: &[(ZoneCondition, u32)]) -> ZoneBook {
        let found = |&(condition, used)| ZoneAtMount::Data { capacity: 100, pointer: 100, condition, used };
        ZoneBook::load(8, zones.iter().map(found)).unwrap()
    }

    fn credits(extents: u64, available: u64) -> Credits {
        Credits::new(Need { extents, available }, Reserve::default())
    }

    #[test]
    fn read_only_zone_is_collected_before_victims_unless_space_is_short() {
        use ZoneCondition::{Full, Offline, ReadOnly};
        let book = book(&[(Full, 10), (Offline, 20), (ReadOnly, 0), (ReadOnly, 50)]);
        let credits = credits(1000, 1000);
        let (victim, read_only) = (ZoneIndex(0), ZoneIndex(3));
        assert_eq!(to_collect(&book, &credits, None), Some((read_only, Reason::ReadOnlyZone)));
        assert_eq!(
            to_collect(&book, &credits, Some(Reason::Forced)),
            Some((read_only, Reason::ReadOnlyZone))
        );
        assert_eq!(to_collect(&book, &credits, Some(LOW)), Some((victim, LOW)));
    }

    #[test]
    fn read_only_zone_waits_for_room_that_users_can_spare() {
        let book = book(&[(ZoneCondition::ReadOnly, 50), (ZoneCondition::ReadOnly, 7)]);
        let next = |extents, available| to_collect(&book, &credits(extents, available), Some(LOW));
        // 50 blocks in units of 7 take 8 headers, 3 may be wasted, and 100 are left for users.
        assert_eq!(next(50, 161), Some((ZoneIndex(0), Reason::ReadOnlyZone)));
        assert_eq!(next(50, 160), Some((ZoneIndex(1), Reason::ReadOnlyZone)));
        assert_eq!(next(49, 161), Some((ZoneIndex(1), Reason::ReadOnlyZone)));
        assert_eq!(next(6, 161), None);
        assert_eq!(next(50, 110), None);
    }

    #[test]
    fn zone_that_is_evacuated_is_not_chosen_again() {
        let mut book = book(&[(ZoneCondition::ReadOnly, 50)]);
        let zone = ZoneIndex(0);
        book.pin(zone, Pin::Copy).unwrap();
        assert_eq!(to_collect(&book, &credits(1000, 1000), None), None);
        book.unpin(zone, Pin::Copy).unwrap();
        assert_eq!(to_collect(&book, &credits(1000, 1000), None), Some((zone, Reason::ReadOnlyZone)));
        book.free(zone, 50, 1).unwrap();
        assert_eq!(to_collect(&book, &credits(1000, 1000), None), None);
    }
}
