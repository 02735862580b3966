//! Reads that check only a zone's floor agree with its word.

use super::super::zones::{Placed, WriteKind, Zones};
use proptest::prelude::*;
use zonal_core::device::{Limits, ZoneEvent, ZoneState};
use zonal_core::{Geometry, Personality, Sectors, ZoneIndex};

const ZONE: u32 = 4096;

#[derive(Clone, Copy, Debug)]
enum FloorStep {
    Read {
        offset: u32,
        sectors: u32,
    },
    Begin {
        sectors: u32,
    },
    /// Ends the nth write in flight, counted from the oldest.
    End {
        nth: usize,
        arrived: bool,
    },
    Event(ZoneEvent),
}

fn steps() -> impl Strategy<Value = Vec<FloorStep>> {
    let event = prop_oneof![
        4 => Just(ZoneEvent::Reset),
        1 => Just(ZoneEvent::Finish),
        1 => Just(ZoneEvent::Close),
        1 => Just(ZoneEvent::SetReadOnly),
        1 => Just(ZoneEvent::SetOffline),
        1 => Just(ZoneEvent::Restore),
    ];
    let step = prop_oneof![
        6 => (0..ZONE, 1..600u32).prop_map(|(offset, sectors)| FloorStep::Read { offset, sectors }),
        4 => (1..600u32).prop_map(|sectors| FloorStep::Begin { sectors }),
        4 => (0..4usize, any::<bool>()).prop_map(|(nth, arrived)| FloorStep::End { nth, arrived }),
        1 => event.prop_map(FloorStep::Event),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #[test]
    fn readable_says_what_the_state_of_the_zone_says(steps in steps()) {
        let (size, zone) = (Sectors(u64::from(ZONE)), ZoneIndex(0));
        let geometry = Geometry::new(size, size, size, 0).unwrap();
        let zones = Zones::new(geometry, Personality::Zns, Limits::default(), |_| ZoneState::EMPTY);
        let (mut placed, mut generation): (Vec<Placed>, u32) = (Vec::new(), 0);
        for step in steps {
            match step {
                FloorStep::Read { offset, sectors } => {
                    let found = zones.readable(zone, offset, sectors);
                    prop_assert_eq!(found.map(|r| r.data_sectors), zones.state(zone).readable(offset, sectors));
                    prop_assert!(found.is_err() || found.unwrap().generation == generation);
                }
                FloorStep::Begin { sectors } => placed.extend(zones.begin(WriteKind::Append, zone, 0, sectors)),
                FloorStep::End { nth, arrived } => {
                    if nth < placed.len() {
                        let one = placed.remove(nth);
                        zones.end(&one, if arrived { one.sectors } else { 0 });
                        zones.release(one);
                    }
                }
                FloorStep::Event(event) => {
                    if let Ok(happened) = zones.apply_event(zone, event) {
                        generation = happened.generation.unwrap_or(generation);
                    }
                }
            }
        }
    }
}
