//! Sessions without a socket: invalid messages.

use crate::guest::{DATA, Guest};
use std::os::fd::OwnedFd;
use zerocopy::IntoBytes;
use zonal_vhost::memory::MemoryError;
use zonal_vhost::queue::QUEUES_MAX;
use zonal_vhost::session::{FEATURES, FEATURES_OF_PROTOCOL, Message, Outcome, ProtocolError, Session};
use zonal_vhost::wire::message::*;

fn message(request: u32, payload: &[u8], descriptors: Vec<OwnedFd>) -> Message {
    Message { request, flags: VERSION, payload: payload.to_vec(), descriptors }
}

fn take(session: &mut Session, request: u32, payload: &[u8]) -> Result<Outcome, ProtocolError> {
    session.take(message(request, payload, Vec::new()))
}

fn error(request: u32, payload: &[u8]) -> ProtocolError {
    take(&mut Session::default(), request, payload).err().expect("it is wrong")
}

fn file() -> OwnedFd {
    Guest::new().file.try_clone().unwrap()
}

fn number(queue: u32, number: u32) -> Vec<u8> {
    QueueNumber { queue: queue.into(), number: number.into() }.as_bytes().to_vec()
}

#[test]
fn message_of_another_version_or_unknown_ends_the_connection() {
    let other = Message { flags: 2, ..message(request::GET_FEATURES, &[], Vec::new()) };
    assert_eq!(Session::default().take(other).err(), Some(ProtocolError::Version(2)));
    for request in [0, 6, 24, 35, 41, u32::MAX] {
        assert_eq!(error(request, &[0; 8]), ProtocolError::Unknown(request));
    }
}

#[test]
fn payload_of_another_length_ends_the_connection() {
    for (request, len) in [
        (request::SET_FEATURES, 7),
        (request::SET_PROTOCOL_FEATURES, 9),
        (request::SET_NUMBER, 4),
        (request::GET_BASE, 0),
        (request::SET_ADDRESSES, 39),
        (request::SET_KICK, 4),
        (request::SET_MEMORY, 7),
        (request::ADD_REGION, 32),
        (request::REMOVE_REGION, 41),
        (request::GET_INFLIGHT, 12),
    ] {
        assert_eq!(error(request, &vec![0; len]), ProtocolError::Length { request, len });
    }
    // Announced regions that are missing.
    let table = MemoryTable { regions: 3.into(), padding: 0.into() };
    let payload = [table.as_bytes(), Guest::regions().as_bytes()].concat();
    assert!(matches!(error(request::SET_MEMORY, &payload), ProtocolError::Length { .. }));
    let table = MemoryTable { regions: u32::MAX.into(), padding: 0.into() };
    assert!(matches!(error(request::SET_MEMORY, table.as_bytes()), ProtocolError::Length { .. }));
}

#[test]
fn descriptors_that_are_missing_or_too_many_end_the_connection() {
    let features = message(request::GET_FEATURES, &[], vec![file()]);
    let wrong = |descriptors| ProtocolError::Descriptors { request: request::GET_FEATURES, descriptors };
    assert_eq!(Session::default().take(features).err(), Some(wrong(1)));
    for descriptors in [0, 2] {
        let files = (0..descriptors).map(|_| file()).collect();
        let kick = message(request::SET_KICK, &2u64.to_le_bytes(), files);
        let wrong = ProtocolError::Descriptors { request: request::SET_KICK, descriptors };
        assert_eq!(Session::default().take(kick).err(), Some(wrong));
    }
    let table = MemoryTable { regions: 2.into(), padding: 0.into() };
    let payload = [table.as_bytes(), Guest::regions().as_bytes()].concat();
    let memory = message(request::SET_MEMORY, &payload, vec![file()]);
    assert!(matches!(Session::default().take(memory).err(), Some(ProtocolError::Descriptors { .. })));
}

#[test]
fn values_that_cannot_be_end_the_connection() {
    for (request, payload) in [
        (request::SET_NUMBER, number(2, 0)),
        (request::SET_NUMBER, number(2, 12)),
        (request::SET_NUMBER, number(2, 2048)),
        (request::SET_BASE, number(2, 65536)),
        (request::SET_ENABLED, number(2, 2)),
        // Packed rings, and an unsupported protocol feature.
        (request::SET_FEATURES, (1u64 << 34).to_le_bytes().to_vec()),
        (request::SET_PROTOCOL_FEATURES, (1u64 << 5).to_le_bytes().to_vec()),
        // Without a descriptor the ring would have to be polled continuously.
        (request::SET_KICK, (2u64 | NO_DESCRIPTOR).to_le_bytes().to_vec()),
    ] {
        assert!(matches!(error(request, &payload), ProtocolError::Value { .. }), "{request}");
    }
    let queue = u32::from(QUEUES_MAX);
    for request in [request::SET_NUMBER, request::SET_BASE, request::GET_BASE, request::SET_ENABLED] {
        assert_eq!(error(request, &number(queue, 1)), ProtocolError::Queue(queue));
        assert_eq!(error(request, &number(u32::MAX, 1)), ProtocolError::Queue(u32::MAX));
    }
    let inflight = InflightFile { len: 0.into(), offset: 0.into(), queues: 0.into(), num: 1.into() };
    assert_eq!(error(request::GET_INFLIGHT, inflight.as_bytes()), ProtocolError::Queue(0));
}

#[test]
fn queue_without_settings_does_not_start() {
    let kick = message(request::SET_KICK, &2u64.to_le_bytes(), vec![file()]);
    assert_eq!(Session::default().take(kick).err(), Some(ProtocolError::NotSet(2)));
}

#[test]
fn failure_is_acknowledged_where_that_was_agreed() {
    let mut session = Session::default();
    assert!(take(&mut session, request::SET_PROTOCOL_FEATURES, &FEATURES_OF_PROTOCOL.to_le_bytes()).is_ok());
    let waits = |payload: &[u8]| Message {
        flags: VERSION | NEED_REPLY,
        ..message(request::SET_NUMBER, payload, Vec::new())
    };
    for (payload, code) in [(number(2, 12), 1), (number(2, 16), 0)] {
        let reply = session.take(waits(&payload)).unwrap().reply.unwrap();
        assert_eq!(reply.bytes[HEADER_LEN..], [code, 0, 0, 0, 0, 0, 0, 0]);
    }
    // No reply without the flag.
    assert!(take(&mut session, request::SET_NUMBER, &number(2, 16)).unwrap().reply.is_none());
}

#[test]
fn unusable_memory_region_leaves_the_table_unchanged() {
    let mut session = Session::default();
    let add = |session: &mut Session, region: MemoryRegion, file: OwnedFd| {
        let payload = SingleRegion { padding: 0.into(), region };
        session.take(message(request::ADD_REGION, payload.as_bytes(), vec![file]))
    };
    let [low, high] = Guest::regions();
    assert!(add(&mut session, low, file()).is_ok());
    let overlap = Some(ProtocolError::Memory(MemoryError::Overlap { guest: low.guest.get() }));
    assert_eq!(add(&mut session, low, file()).err(), overlap);
    let short = MemoryRegion { len: (1 << 40).into(), ..high };
    assert!(matches!(add(&mut session, short, file()).err(), Some(ProtocolError::Memory(_))));
    assert!(add(&mut session, high, file()).is_ok());
    let remove = |session: &mut Session, region| {
        let payload = SingleRegion { padding: 0.into(), region };
        take(session, request::REMOVE_REGION, payload.as_bytes())
    };
    assert!(remove(&mut session, high).is_ok());
    let gone = Some(ProtocolError::Memory(MemoryError::NotThere { guest: DATA }));
    assert_eq!(remove(&mut session, high).err(), gone);
}

#[test]
fn ring_that_was_never_started_stops_at_once_at_its_base() {
    let mut session = Session::default();
    take(&mut session, request::SET_BASE, &number(3, 77)).unwrap();
    let outcome = take(&mut session, request::GET_BASE, &number(3, 0)).unwrap();
    assert!(outcome.changes.is_empty() && outcome.awaits_base.is_none());
    assert_eq!(outcome.reply.unwrap().bytes[HEADER_LEN..], number(3, 77)[..]);
}

#[test]
fn inflight_file_has_the_announced_length() {
    let mut session = Session::default();
    let asked = InflightFile { len: 0.into(), offset: 0.into(), queues: 3.into(), num: 128.into() };
    let mut payload = asked.as_bytes().to_vec();
    // Padded, as sent by a front end in C.
    payload.resize(24, 0);
    let reply = take(&mut session, request::GET_INFLIGHT, &payload).unwrap().reply.unwrap();
    assert_eq!(reply.bytes.len(), HEADER_LEN + 24);
    let told = u64::from_le_bytes(reply.bytes[HEADER_LEN..HEADER_LEN + 8].try_into().unwrap());
    let file = reply.descriptor.unwrap();
    assert_eq!(rustix::fs::fstat(&*file).unwrap().st_size as u64, told);
    let mut kept =
        message(request::SET_INFLIGHT, &reply.bytes[HEADER_LEN..], vec![file.try_clone().unwrap()]);
    assert!(session.take(kept).is_ok());
    kept = message(request::SET_INFLIGHT, &reply.bytes[HEADER_LEN..], vec![crate::guest::file_of(told - 1)]);
    assert!(matches!(
        session.take(kept).err(),
        Some(ProtocolError::Memory(MemoryError::FileTooShort { .. }))
    ));
}

#[test]
fn features_of_events_that_no_front_end_asks_about_are_borne() {
    for feature in [1, 2, 27] {
        let features = FEATURES | 1 << feature;
        assert!(take(&mut Session::default(), request::SET_FEATURES, &features.to_le_bytes()).is_ok());
    }
}
