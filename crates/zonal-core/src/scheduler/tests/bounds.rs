//! The scheduler's guarantees of order and waiting times, for arbitrary arrivals.

use super::model::options;
use super::*;
use proptest::prelude::*;

/// Requests, each with the number dispatched before the next arrival.
fn arrivals() -> impl Strategy<Value = Vec<(RequestKind, u64, usize)>> {
    let kind = prop_oneof![Just(RequestKind::Read), Just(RequestKind::Alone)];
    prop::collection::vec((kind, 0..400u64, 0..2usize), 1..150)
}

proptest! {
    #[test]
    fn writes_that_wait_leave_in_ascending_address_within_a_batch(
        batch in 1..20u32,
        sectors in prop::collection::vec(0..400u64, 1..60),
    ) {
        let options = Options { fifo_batch: batch, ..Options::default() };
        let mut rig = SchedulerRig::new(options, false);
        for sector in sectors {
            rig.insert(RequestKind::Alone, sector, 1, sector);
        }
        let left: Vec<u64> = std::iter::from_fn(|| rig.dispatch()).flat_map(|d| d.parts).collect();
        // Without arrivals in between, expired requests or locked zones, all batches together are
        // in ascending order.
        prop_assert!(left.is_sorted(), "{:?}", left);
    }

    #[test]
    fn writes_of_a_zone_leave_the_lowest_first(options in options(), rotational: bool, arrivals in arrivals()) {
        let mut rig = SchedulerRig::new(options, rotational);
        let mut waiting: BTreeSet<u64> = BTreeSet::new();
        for (kind, sector, leaving) in arrivals {
            rig.now += 300;
            if kind == RequestKind::Alone && waiting.insert(sector) {
                rig.insert(kind, sector, 1, sector);
            }
            for _ in 0..leaving {
                let Some(left) = rig.dispatch() else { break };
                let sector = left.sector.0;
                let start = sector / ZONE_SIZE * ZONE_SIZE;
                prop_assert_eq!(waiting.range(start..).next(), Some(&sector));
                waiting.remove(&sector);
            }
        }
    }

    #[test]
    fn expired_read_that_is_the_oldest_leaves_within_two_batches(
        batch in 1..6u32,
        starved in 1..4u32,
        arrivals in arrivals(),
    ) {
        let options = Options { fifo_batch: batch, writes_starved: starved, ..Options::default() };
        let mut rig = SchedulerRig::new(options, false);
        let mut reads = std::collections::BTreeMap::new();
        let mut waited = (u64::MAX, 0);
        for (token, (kind, sector, leaving)) in (0u64..).zip(arrivals) {
            rig.now += 100;
            rig.insert(kind, sector, 1, token);
            if kind == RequestKind::Read {
                reads.insert(token, rig.now + 500);
            }
            for _ in 0..leaving {
                let oldest = reads.first_key_value().map(|(t, at)| (*t, *at));
                let Some(left) = rig.dispatch() else { break };
                for token in left.parts {
                    reads.remove(&token);
                }
                let expired = oldest.filter(|(token, at)| *at <= rig.now && reads.contains_key(token));
                waited = expired.map_or((u64::MAX, 0), |(t, _)| (t, if waited.0 == t { waited.1 + 1 } else { 1 }));
                prop_assert!(waited.1 < 2 * batch, "read {} was passed {} times", waited.0, waited.1);
            }
        }
    }

    #[test]
    fn write_that_may_go_is_passed_by_bounded_reads(batch in 1..6u32, starved in 0..4u32, arrivals in arrivals()) {
        let options = Options { fifo_batch: batch, writes_starved: starved, ..Options::default() };
        let mut rig = SchedulerRig::new(options, false);
        let (mut writes, mut reads_in_a_row) = (0, 0);
        for (token, (kind, sector, leaving)) in (0u64..).zip(arrivals) {
            rig.insert(kind, sector, 1, token);
            writes += u32::from(kind == RequestKind::Alone);
            for _ in 0..leaving {
                let Some(left) = rig.dispatch() else { break };
                let is_read = left.direction == Direction::Read;
                writes -= u32::from(!is_read);
                reads_in_a_row = if is_read && writes > 0 { reads_in_a_row + 1 } else { 0 };
                // The batch running when the write arrives, and those preferred to it.
                prop_assert!(reads_in_a_row <= (starved + 1) * batch);
            }
        }
    }

    #[test]
    fn nothing_leaves_only_if_no_read_waits_and_every_zone_is_locked(
        options in options(),
        locked in prop::collection::btree_set(0..4u32, 0..4),
        arrivals in arrivals(),
    ) {
        let mut rig = SchedulerRig::new(options, false);
        rig.locked = locked;
        let (mut reads, mut writes) = (0, 0);
        for (kind, sector, leaving) in arrivals {
            rig.insert(kind, sector, 1, ());
            let may_go = !rig.locked.contains(&((sector / ZONE_SIZE) as u32));
            match kind {
                RequestKind::Read => reads += 1,
                _ => writes += u32::from(may_go),
            }
            for _ in 0..leaving {
                match rig.dispatch() {
                    None => prop_assert_eq!((reads, writes), (0, 0)),
                    Some(left) if left.direction == Direction::Read => reads -= left.parts.len() as u32,
                    Some(_) => writes -= 1,
                }
            }
        }
    }
}
