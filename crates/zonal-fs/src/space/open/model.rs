//! Random writers, compared with the rules of the choice, each checked on its own.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Call {
    /// A write of a user, with the zone of an earlier write, by index, if there was one.
    User {
        earlier: usize,
        hint: Lifetime,
        packing: Packing,
        free: u32,
    },
    Gc {
        free: u32,
    },
    /// The zone at this index of the list has no room any more.
    Fill(usize),
    /// The writes to the zone at this index of the list have ended.
    Remove(usize),
}

fn call() -> impl Strategy<Value = Call> {
    let hint = prop::sample::select(Lifetime::ALL.to_vec());
    let packing = prop_oneof![Just(Packing::Spread), Just(Packing::Tight)];
    prop_oneof![
        6 => (0..8usize, hint, packing, 0..4u32)
            .prop_map(|(earlier, hint, packing, free)| Call::User { earlier, hint, packing, free }),
        2 => (0..3u32).prop_map(|free| Call::Gc { free }),
        1 => (0..8usize).prop_map(Call::Fill),
        1 => (0..8usize).prop_map(Call::Remove),
    ]
}

/// Expected choice for a user: the first rule that applies.
fn expected(
    zones: &[OpenZone],
    max: u32,
    cached: Option<Opened>,
    hint: Lifetime,
    packing: Packing,
    free: u32,
) -> Choice {
    let users: Vec<&OpenZone> = zones.iter().filter(|z| z.owner == Owner::User).collect();
    let room: Vec<&OpenZone> = users.iter().copied().filter(|z| z.has_room).collect();
    let of = |least: Score| room.iter().filter(move |z| score(z.hint, hint) >= least);
    let may_open = (users.len() as u32) + 1 < max && free > 1;
    let lines = [
        room.iter().find(|z| Some(z.opened) == cached).map(|z| Choice::Zone(z.opened)),
        of(Score::Good).next().map(|z| Choice::Zone(z.opened)),
        of(Score::Ok).next_back().filter(|_| packing == Packing::Tight).map(|z| Choice::Zone(z.opened)),
        may_open.then_some(Choice::OpenNew),
        of(Score::Ok).next().map(|z| Choice::Zone(z.opened)),
        room.first().map(|z| Choice::Zone(z.opened)),
    ];
    lines.into_iter().flatten().next().unwrap_or(Choice::Wait)
}

fn expected_for_gc(zones: &[OpenZone], free: u32) -> Choice {
    let own = zones.iter().find(|z| z.owner == Owner::Gc);
    match own {
        Some(zone) if zone.has_room => Choice::Zone(zone.opened),
        None if free >= 1 => Choice::OpenNew,
        _ => Choice::Wait,
    }
}

/// The list after a user got `choice`.
fn used(mut zones: Vec<OpenZone>, cached: Option<Opened>, hint: Lifetime, choice: Choice) -> Vec<OpenZone> {
    if let Choice::Zone(opened) = choice
        && cached != Some(opened)
    {
        zones.sort_by_key(|z| z.opened == opened);
        let last = zones.last_mut().unwrap();
        last.hint = if last.hint == Lifetime::NotSet { hint } else { last.hint };
    }
    zones
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn choice_is_the_first_line_that_applies(
        max in 2..7u32,
        calls in prop::collection::vec(call(), 0..120),
    ) {
        let mut open = OpenZones::new(max);
        let mut earlier: Vec<Opened> = Vec::new();
        let mut fresh = 0;
        for call in calls {
            let before = open.zones.clone();
            let at = |place: usize| before.get(place).map(|z| z.opened.zone);
            match call {
                Call::User { earlier: place, hint, packing, free } => {
                    let cached = earlier.iter().rev().nth(place).copied();
                    let choice = open.choose(PlacementRequest::User { cached, hint, packing }, free);
                    prop_assert_eq!(choice, expected(&before, max, cached, hint, packing, free));
                    prop_assert_eq!(&open.zones, &used(before, cached, hint, choice));
                    match choice {
                        Choice::Zone(opened) => earlier.push(opened),
                        // Only nine indexes, so that zones are reused and openings have to be
                        // distinguished.
                        Choice::OpenNew => {
                            while open.get(ZoneIndex(fresh % 9)).is_some() {
                                fresh += 1;
                            }
                            earlier.push(open.open(ZoneIndex(fresh % 9), hint, Owner::User));
                        }
                        Choice::Wait => {}
                    }
                }
                Call::Gc { free } => {
                    let choice = open.choose(PlacementRequest::Gc, free);
                    prop_assert_eq!(choice, expected_for_gc(&before, free));
                    prop_assert_eq!(&open.zones, &before);
                    if choice == Choice::OpenNew {
                        while open.get(ZoneIndex(fresh % 9)).is_some() {
                            fresh += 1;
                        }
                        earlier.push(open.open(ZoneIndex(fresh % 9), Lifetime::NotSet, Owner::Gc));
                    }
                }
                Call::Fill(place) => at(place).into_iter().for_each(|zone| open.filled(zone)),
                Call::Remove(place) => at(place).into_iter().for_each(|zone| assert!(open.remove(zone))),
            }
            open.check();
            prop_assert!(open.zones.len() as u32 <= max);
        }
    }

    #[test]
    fn mount_keeps_the_limit_and_leaves_the_collector_a_zone(
        blocks in prop::collection::vec(1..50u32, 0..12),
        max in 2..8u32,
        free in 0..3u32,
    ) {
        let partial = || blocks.iter().enumerate().map(|(zone, &blocks)| (ZoneIndex(zone as u32), blocks));
        let plan = plan_mount(partial(), max, free);
        let kept: Vec<_> = partial().filter(|z| !plan.finish.contains(&z.0)).collect();
        prop_assert_eq!(kept.len(), blocks.len().min(max as usize));
        let fullest = kept.iter().map(|z| z.1).max().unwrap_or(0);
        prop_assert!(partial().all(|z| kept.contains(&z) || z.1 >= fullest), "the fullest are finished");
        let mut open = OpenZones::new(max);
        open.remount(kept.iter().map(|z| z.0), plan.steal);
        open.check();
        if let Some(zone) = plan.steal {
            let least = kept.iter().map(|z| z.1).min();
            prop_assert_eq!(kept.iter().find(|z| z.0 == zone).map(|z| z.1), least);
        }
        let can_collect = open.choose(PlacementRequest::Gc, free) != Choice::Wait;
        prop_assert_eq!(can_collect, free > 0 || !kept.is_empty());
    }
}
