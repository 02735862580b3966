//! A whole single-threaded device compared with a model that counts by scanning all zones.

use super::*;
use crate::units::ZoneIndex;
use proptest::prelude::*;

const ZONES: usize = 10;
const CAPACITY: u32 = 8;

struct Device {
    personality: Personality,
    zones: Vec<ZoneState>,
    resources: Resources,
}

impl Device {
    fn new(personality: Personality, limits: Limits) -> Device {
        Device { personality, zones: vec![ZoneState::EMPTY; ZONES], resources: Resources::new(limits) }
    }

    fn apply(&mut self, zone: usize, event: ZoneEvent) -> Result<Option<usize>, ZoneError> {
        let before = self.zones[zone];
        let step = step(self.personality, CAPACITY, before, event)?;
        let victim = self.resources.admit(step.needs)?;
        if let Some(victim) = victim {
            let closed = super::step(
                self.personality,
                CAPACITY,
                self.zones[victim.0 as usize],
                ZoneEvent::ImplicitClose,
            )?;
            self.zones[victim.0 as usize] = closed.state;
            self.resources.evicted(victim, closed.state.condition);
        }
        self.zones[zone] = step.state;
        self.resources.moved(ZoneIndex(zone as u32), before.condition, step.state.condition);
        Ok(victim.map(|v| v.0 as usize))
    }
}

/// Scans all zones each time, and finds its victim by walking on from the last one.
struct Naive {
    zones: Vec<ZoneState>,
    last_victim: usize,
}

impl Naive {
    fn count(&self, what: impl Fn(ZoneCondition) -> bool) -> u32 {
        self.zones.iter().filter(|s| what(s.condition)).count() as u32
    }

    fn victim(&self) -> Option<usize> {
        (1..=ZONES)
            .map(|i| (self.last_victim + i) % ZONES)
            .find(|&z| self.zones[z].condition == ZoneCondition::ImpOpen)
    }

    fn admit(&self, limits: Limits, needs: Needs) -> Result<Option<usize>, ZoneError> {
        let Limits { open_max, active_max } = limits;
        if needs == Needs::Nothing {
            return Ok(None);
        }
        let active = self.count(ZoneCondition::is_active);
        if needs != Needs::Open && active_max != 0 && active == active_max {
            return Err(ZoneError::TooManyActive);
        }
        if needs == Needs::Active {
            return Ok(None);
        }
        if open_max == 0 || self.count(ZoneCondition::is_open) < open_max {
            return Ok(None);
        }
        self.victim().map(Some).ok_or(ZoneError::TooManyOpen)
    }
}

fn events() -> impl Strategy<Value = ZoneEvent> {
    let write = (0..=CAPACITY, 1..=CAPACITY);
    prop_oneof![
        4 => write.clone().prop_map(|(offset, sectors)| ZoneEvent::Write { offset, sectors }),
        6 => (1..=3u32).prop_map(|sectors| ZoneEvent::Append { sectors }),
        3 => write.clone().prop_map(|(offset, sectors)| ZoneEvent::BeginWrite { offset, sectors }),
        3 => Just(ZoneEvent::EndWrite),
        2 => write.prop_map(|(offset, sectors)| ZoneEvent::FailWrite { offset, sectors }),
        4 => Just(ZoneEvent::Open),
        3 => Just(ZoneEvent::Close),
        2 => Just(ZoneEvent::Finish),
        2 => Just(ZoneEvent::Reset),
        1 => Just(ZoneEvent::SetReadOnly),
        1 => Just(ZoneEvent::SetOffline),
        1 => Just(ZoneEvent::Offline),
        2 => Just(ZoneEvent::Restore),
        1 => Just(ZoneEvent::Restart),
    ]
}

fn limits() -> impl Strategy<Value = Limits> {
    (0..=4u32, 0..=6u32)
        .prop_filter("open is at most active", |&(open, active)| active == 0 || open <= active)
        .prop_map(|(open_max, active_max)| Limits { open_max, active_max })
}

proptest! {
    #[test]
    fn h53_counters_are_what_the_zones_say(
        limits in limits(),
        zbc: bool,
        events in prop::collection::vec((0..ZONES, events()), 1..200),
    ) {
        let personality = if zbc { Personality::Zbc } else { Personality::Zns };
        let mut device = Device::new(personality, limits);
        let mut naive = Naive { zones: device.zones.clone(), last_victim: ZONES - 1 };
        for (zone, event) in events {
            let expected = step(personality, CAPACITY, naive.zones[zone], event)
                .and_then(|step| Ok((step, naive.admit(limits, step.needs)?)));
            let outcome = device.apply(zone, event);
            prop_assert_eq!(outcome, expected.map(|(_, victim)| victim));
            if let Ok((step, victim)) = expected {
                if let Some(victim) = victim {
                    prop_assert_eq!(naive.zones[victim].condition, ZoneCondition::ImpOpen);
                    naive.zones[victim] = device.zones[victim];
                    prop_assert!(!naive.zones[victim].condition.is_open());
                    naive.last_victim = victim;
                }
                naive.zones[zone] = step.state;
            }
            prop_assert_eq!(&device.zones, &naive.zones);
            prop_assert_eq!(device.resources.check(device.zones.iter().map(|s| s.condition)), Ok(()));
            prop_assert_eq!(device.resources.open(), naive.count(ZoneCondition::is_open));
            prop_assert_eq!(device.resources.active(), naive.count(ZoneCondition::is_active));
        }
    }

    #[test]
    fn pointer_moves_back_only_by_reset_or_failure(
        zbc: bool,
        events in prop::collection::vec(events(), 1..200),
    ) {
        let personality = if zbc { Personality::Zbc } else { Personality::Zns };
        let mut now = ZoneState::EMPTY;
        for event in events {
            let Ok(step) = step(personality, CAPACITY, now, event) else { continue };
            prop_assert!(step.state.written <= CAPACITY);
            let may_fall = matches!(
                event,
                ZoneEvent::Reset | ZoneEvent::FailWrite { .. } | ZoneEvent::SetOffline | ZoneEvent::Offline
            );
            prop_assert!(may_fall || step.state.written >= now.written, "{:?} {:?}", now, event);
            if let Some(at) = step.placed {
                prop_assert_eq!(at, now.written);
            }
            now = step.state;
        }
    }
}
