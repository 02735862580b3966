use super::*;
use zonal_core::device::Limits;
use zonal_core::{Geometry, Sectors, ZoneCondition};

const ZONE: ZoneIndex = ZoneIndex(1);

/// A medium without bad blocks.
fn whole(placed: &Placed) -> u32 {
    placed.sectors
}

fn zones() -> Zones {
    let geometry = Geometry::new(Sectors(256), Sectors(64), Sectors(32), 0).unwrap();
    Zones::new(geometry, Personality::Zns, Limits::default(), |_| ZoneState::EMPTY)
}

fn answer(ticket: u64) -> Answer {
    Answer { ticket, queue: 0, due: Nanos(0), context: Context::token(ticket), fua: false }
}

fn append(flights: &WritesInFlight, zones: &Zones, sectors: u32) -> Placed {
    let placed = flights.begin(zones, WriteKind::Append, (ZONE, 0), sectors, whole).unwrap();
    assert_eq!(flights.start(&placed), Start::Transfer);
    placed
}

fn restarted(flights: &WritesInFlight, zones: &Zones) -> ZoneState {
    super::restarted(Personality::Zns, zones.geometry().capacity_of(ZONE), flights.state(zones, ZONE))
}

fn tickets(ended: &[EndedWrite]) -> Vec<u64> {
    ended.iter().map(|l| l.answer.ticket).collect()
}

const FAILED: Result<(), DeviceError> = Err(DeviceError::Medium);

#[test]
fn write_lands_only_behind_those_before_it() {
    let (flights, zones) = (WritesInFlight::new(), zones());
    let [a, b, c] = [4, 8, 2].map(|n| append(&flights, &zones, n));
    assert_eq!(zones.state(ZONE).written, 14);
    assert_eq!(flights.state(&zones, ZONE).written, 0);
    assert_eq!(tickets(&flights.end(&zones, &b, answer(2), Ok(()), |_| Ok(()))), [0; 0]);
    assert_eq!(flights.state(&zones, ZONE).written, 0);
    assert_eq!(tickets(&flights.end(&zones, &a, answer(1), Ok(()), |_| Ok(()))), [1, 2]);
    assert_eq!(flights.state(&zones, ZONE).written, 12);
    assert_eq!(tickets(&flights.end(&zones, &c, answer(3), Ok(()), |_| Ok(()))), [3]);
    assert_eq!(flights.state(&zones, ZONE).written, 14);
    assert!(flights.lock(ZONE).is_empty());
}

#[test]
fn zone_becomes_full_only_once_its_data_has_landed() {
    let (flights, zones) = (WritesInFlight::new(), zones());
    let [a, b] = [16, 16].map(|n| append(&flights, &zones, n));
    let refused = flights.begin(&zones, WriteKind::Append, (ZONE, 0), 1, whole);
    assert_eq!(refused, Err(ZoneError::Full), "all room is given away");
    flights.end(&zones, &b, answer(2), Ok(()), |_| Ok(()));
    assert_eq!(zones.state(ZONE).condition, ZoneCondition::ImpOpen);
    flights.end(&zones, &a, answer(1), Ok(()), |_| Ok(()));
    assert_eq!(zones.state(ZONE), ZoneState::full(32));
}

#[test]
fn h61_failed_last_write_gives_its_room_back() {
    let (flights, zones) = (WritesInFlight::new(), zones());
    let [a, b] = [16, 16].map(|n| append(&flights, &zones, n));
    flights.end(&zones, &a, answer(1), Ok(()), |_| Ok(()));
    let ended = flights.end(&zones, &b, answer(2), Err(DeviceError::Medium.into()), |_| Ok(()));
    assert_eq!((tickets(&ended), ended[0].result), (vec![2], FAILED));
    let closed = ZoneState { condition: ZoneCondition::ImpOpen, written: 16 };
    assert_eq!(zones.state(ZONE), closed);
    let again = append(&flights, &zones, 16);
    assert_eq!(again.offset, 16);
    flights.end(&zones, &again, answer(3), Ok(()), |_| Ok(()));
    assert_eq!(zones.state(ZONE), ZoneState::full(32));
}

#[test]
fn reset_makes_waiting_writes_stale() {
    let (flights, zones) = (WritesInFlight::new(), zones());
    let old = flights.begin(&zones, WriteKind::Append, (ZONE, 0), 4, whole).unwrap();
    let mut voided = None;
    flights.happen(&zones, ZONE, ZoneEvent::Reset, |written| voided = Some(written), |_| Ok(())).unwrap();
    assert_eq!(voided, Some(4));
    assert_eq!(flights.start(&old), Start::Stale);
    let new = append(&flights, &zones, 8);
    assert_eq!(new.offset, 0);
    assert_eq!(tickets(&flights.end(&zones, &new, answer(2), Ok(()), |_| Ok(()))), [0; 0]);
    assert_eq!(tickets(&flights.end(&zones, &old, answer(1), Ok(()), |_| Ok(()))), [1, 2]);
    assert_eq!(flights.state(&zones, ZONE).written, 8);
}

#[test]
fn transfer_after_reset_waits_for_the_one_before() {
    let (flights, zones) = (WritesInFlight::new(), zones());
    let old = append(&flights, &zones, 4);
    flights.happen(&zones, ZONE, ZoneEvent::Reset, |_| {}, |_| Ok(())).unwrap();
    let new = flights.begin(&zones, WriteKind::Exclusive, (ZONE, 0), 8, whole).unwrap();
    std::thread::scope(|s| {
        let started = s.spawn(|| flights.start(&new));
        std::thread::sleep(std::time::Duration::from_millis(10));
        assert!(!started.is_finished());
        flights.end(&zones, &old, answer(1), Err(DeviceError::Medium.into()), |_| Ok(()));
        assert_eq!(started.join().unwrap(), Start::Transfer);
    });
    assert_eq!(flights.state(&zones, ZONE).written, 0, "placed, and not arrived");
    assert_eq!(tickets(&flights.end(&zones, &new, answer(2), Ok(()), |_| Ok(()))), [2]);
    assert_eq!(flights.state(&zones, ZONE).written, 8);
}

#[test]
fn finish_with_a_write_in_flight_records_only_landed_data() {
    let (flights, zones) = (WritesInFlight::new(), zones());
    let first = append(&flights, &zones, 4);
    flights.end(&zones, &first, answer(1), Ok(()), |_| Ok(()));
    let second = append(&flights, &zones, 4);
    flights.happen(&zones, ZONE, ZoneEvent::Finish, |_| {}, |_| Ok(())).unwrap();
    let full_at = |written| ZoneState { condition: ZoneCondition::Full, written };
    assert_eq!(restarted(&flights, &zones), full_at(4));
    flights.end(&zones, &second, answer(2), Ok(()), |_| Ok(()));
    assert_eq!(restarted(&flights, &zones), full_at(8));
}

#[test]
fn restart_closes_open_zones_and_empties_unwritten_ones() {
    let (flights, zones) = (WritesInFlight::new(), zones());
    flights.happen(&zones, ZONE, ZoneEvent::Open, |_| {}, |_| Ok(())).unwrap();
    assert_eq!(restarted(&flights, &zones), ZoneState::EMPTY);
    let write = append(&flights, &zones, 4);
    assert_eq!(restarted(&flights, &zones), ZoneState::EMPTY);
    flights.end(&zones, &write, answer(1), Ok(()), |_| Ok(()));
    let closed = ZoneState { condition: ZoneCondition::Closed, written: 4 };
    assert_eq!(restarted(&flights, &zones), closed);
}

#[test]
fn zone_state_with_landed_writes_is_recorded_before_completion() {
    let (flights, zones) = (WritesInFlight::new(), zones());
    let (first, second) = (append(&flights, &zones, 4), append(&flights, &zones, 4));
    let early = flights.end(&zones, &second, answer(2), Ok(()), |_| panic!("the first has not arrived"));
    assert!(early.is_empty());
    let third = append(&flights, &zones, 4);
    let mut noted = Vec::new();
    let note = |state: ZoneState| {
        noted.push(state.written);
        Err(DeviceError::Medium)
    };
    let ended = flights.end(&zones, &first, answer(1), Ok(()), note);
    assert_eq!(noted, [8], "without what is still in flight");
    assert!(ended.iter().all(|write| write.result == FAILED), "not told as done: {ended:?}");
    flights.end(&zones, &third, answer(3), Ok(()), |_| Ok(()));
    let finished = flights.happen(
        &zones,
        ZONE,
        ZoneEvent::Finish,
        |_| {},
        |state| {
            assert_eq!(state, ZoneState { condition: ZoneCondition::Full, written: 12 });
            FAILED
        },
    );
    assert_eq!(finished, Err(DeviceError::Medium));
}
