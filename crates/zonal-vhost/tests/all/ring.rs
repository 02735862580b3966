//! Rings of conforming and of non-conforming drivers.

use crate::guest::{DATA, Driver, Guest, HIGH, LOW, NUM, REGION, descriptor};
use proptest::prelude::*;
use std::sync::Arc;
use zerocopy::IntoBytes;
use zonal_vhost::ring::{Ring, RingFault, RingSetup};
use zonal_vhost::wire::ring::{INDIRECT, NEXT, WRITE};

fn ring(driver: &Driver) -> Ring {
    Ring::new(driver.guest.memory(), driver.setup(), None).unwrap()
}

/// Fault for chain 0 after `lie` has corrupted it.
fn fault(lie: impl FnOnce(&Driver)) -> RingFault {
    let mut driver = Driver::new(&Guest::new(), 2);
    let mut ring = ring(&driver);
    lie(&driver);
    driver.offer(0);
    match ring.take() {
        Err(fault) => fault,
        Ok(_) => panic!("it is taken"),
    }
}

fn indirect(driver: &Driver, entries: &[zonal_vhost::wire::ring::Descriptor], len: u32, flags: u16) {
    driver.guest.write(driver.room(), entries.as_bytes());
    driver.set(0, descriptor(driver.room(), len, INDIRECT | flags, 1));
}

#[test]
fn chain_that_loops_is_too_long() {
    let direct = fault(|driver| {
        driver.set(0, descriptor(DATA, 8, NEXT, 1));
        driver.set(1, descriptor(DATA, 8, NEXT, 0));
    });
    assert_eq!(direct, RingFault::TooLong { head: 0 });
    let one = fault(|driver| driver.set(0, descriptor(DATA, 8, NEXT, 0)));
    assert_eq!(one, RingFault::TooLong { head: 0 });
    let table = [descriptor(DATA, 8, NEXT, 1), descriptor(DATA, 8, NEXT, 0)];
    assert_eq!(fault(|driver| indirect(driver, &table, 32, 0)), RingFault::TooLong { head: 0 });
}

#[test]
fn chain_of_all_descriptors_is_taken() {
    let mut driver = Driver::new(&Guest::new(), 2);
    let mut ring = ring(&driver);
    let head = driver.chain(&[(DATA, 8, 0); NUM as usize]);
    driver.offer(head);
    assert_eq!(ring.take().unwrap().unwrap().buffers.readable_len(), 8 * u32::from(NUM));
}

#[test]
fn bytes_that_are_not_memory_break_the_ring() {
    let ends = [LOW + REGION, HIGH + REGION].map(|end| (end - 4, 8));
    let others = [(0, 8), (u64::MAX - 3, 8), (u64::MAX, u32::MAX), (HIGH, u32::MAX), (LOW - 1, 1)];
    for (guest, len) in ends.into_iter().chain(others) {
        for flags in [0, WRITE] {
            let fault = fault(|driver| driver.set(0, descriptor(guest, len, flags, 0)));
            assert_eq!(fault, RingFault::OutOfMemory { guest, len });
        }
        let fault = fault(|driver| driver.set(0, descriptor(guest, len / 16 * 16, INDIRECT, 0)));
        let is_refused = matches!(
            fault,
            RingFault::OutOfMemory { .. } | RingFault::Indirect { .. } | RingFault::TooLong { .. }
        );
        assert!(is_refused, "{fault:?}");
    }
}

#[test]
fn bytes_to_read_after_bytes_to_write_break_the_ring() {
    let fault = fault(|driver| {
        driver.set(0, descriptor(DATA, 8, NEXT | WRITE, 1));
        driver.set(1, descriptor(DATA, 8, 0, 0));
    });
    assert_eq!(fault, RingFault::Direction { head: 0 });
}

#[test]
fn descriptor_without_bytes_breaks_the_ring() {
    assert_eq!(fault(|driver| driver.set(0, descriptor(DATA, 0, 0, 0))), RingFault::Empty { head: 0 });
}

#[test]
fn wrong_indirect_tables_break_the_ring() {
    let entry = descriptor(DATA, 8, 0, 0);
    let nested = [descriptor(DATA, 16, INDIRECT, 0)];
    let wrong = RingFault::Indirect { head: 0 };
    assert_eq!(fault(|driver| indirect(driver, &nested, 16, 0)), wrong);
    assert_eq!(fault(|driver| indirect(driver, &[entry], 16, NEXT)), wrong);
    assert_eq!(fault(|driver| indirect(driver, &[entry], 0, 0)), wrong);
    assert_eq!(fault(|driver| indirect(driver, &[entry], 17, 0)), wrong);
    assert_eq!(fault(|driver| indirect(driver, &[entry], 16 * 1025, 0)), RingFault::TooLong { head: 0 });
    let next = [descriptor(DATA, 8, NEXT, 2), entry];
    let beyond = RingFault::DescriptorIndex { index: 2, len: 2 };
    assert_eq!(fault(|driver| indirect(driver, &next, 32, 0)), beyond);
}

#[test]
fn indirect_table_longer_than_the_ring_is_taken() {
    let mut driver = Driver::new(&Guest::new(), 2);
    let mut ring = ring(&driver);
    let flags = |n: u16| if n < 99 { NEXT } else { 0 };
    let table: Vec<_> = (0..100).map(|n| descriptor(DATA, 8, flags(n), n + 1)).collect();
    indirect(&driver, &table, 1600, 0);
    driver.offer(0);
    assert_eq!(ring.take().unwrap().unwrap().buffers.readable_len(), 800);
}

#[test]
fn indirect_table_that_was_not_agreed_breaks_the_ring() {
    let mut driver = Driver::new(&Guest::new(), 2);
    let setup = RingSetup { indirect: false, ..driver.setup() };
    let mut ring = Ring::new(driver.guest.memory(), setup, None).unwrap();
    indirect(&driver, &[descriptor(DATA, 8, 0, 0)], 16, 0);
    driver.offer(0);
    assert_eq!(ring.take().err(), Some(RingFault::Indirect { head: 0 }));
}

#[test]
fn descriptor_index_out_of_range_breaks_the_ring() {
    let next = fault(|driver| driver.set(0, descriptor(DATA, 8, NEXT, NUM)));
    assert_eq!(next, RingFault::DescriptorIndex { index: NUM, len: u32::from(NUM) });
    let mut driver = Driver::new(&Guest::new(), 2);
    let mut ring = ring(&driver);
    driver.offer(u16::MAX);
    assert_eq!(ring.take().err(), Some(RingFault::DescriptorIndex { index: u16::MAX, len: u32::from(NUM) }));
}

#[test]
fn available_index_that_jumps_breaks_the_ring() {
    for to in [NUM + 1, u16::MAX, 0x8000] {
        let driver = Driver::new(&Guest::new(), 2);
        let mut ring = ring(&driver);
        driver.guest.write(driver.available() + 2, &to.to_le_bytes());
        assert_eq!(ring.take().err(), Some(RingFault::AvailableIndex { from: 0, to }));
    }
}

#[test]
fn chain_made_available_twice_breaks_the_ring_until_it_is_back() {
    let mut driver = Driver::new(&Guest::new(), 2);
    let mut ring = ring(&driver);
    let head = driver.chain(&[(DATA, 8, 0)]);
    driver.offer(head);
    let _chain = ring.take().unwrap().unwrap();
    ring.put(head, 0);
    driver.offer(head);
    driver.offer(head);
    assert!(ring.take().unwrap().is_some());
    assert_eq!(ring.take().err(), Some(RingFault::HeadInFlight { head }));
}

#[test]
fn ring_outside_of_memory_or_of_wrong_length_is_none() {
    let guest = Guest::new();
    let setup = Driver::new(&guest, 2).setup();
    let wrong = [
        RingSetup { num: 0, ..setup },
        RingSetup { num: 12, ..setup },
        RingSetup { num: 2048, ..setup },
        RingSetup { descriptors: setup.descriptors + 8, ..setup },
        RingSetup { available: setup.available + 1, ..setup },
        RingSetup { used: setup.used + 2, ..setup },
        RingSetup { used: u64::MAX - 3, ..setup },
        RingSetup { descriptors: LOW, ..setup },
    ];
    for setup in wrong {
        let fault = Ring::new(guest.memory(), setup, None).err();
        assert_eq!(fault, Some(RingFault::NotInMemory), "{setup:?}");
    }
}

#[test]
fn ring_continues_over_the_end_of_its_indices() {
    let mut driver = Driver::at(&Guest::new(), 2, u16::MAX - 2);
    let mut ring = ring(&driver);
    for _ in 0..3 * NUM {
        let head = driver.chain(&[(DATA, 8, WRITE)]);
        driver.offer(head);
        let chain = ring.take().unwrap().unwrap();
        assert!(ring.take().unwrap().is_none());
        ring.put(chain.head, 5);
        assert!(driver.used().is_none());
        ring.publish();
        assert_eq!(driver.used(), Some((head, 5)));
    }
    assert_eq!(ring.base(), u16::MAX.wrapping_sub(2).wrapping_add(3 * NUM));
}

#[test]
fn ring_begins_at_the_used_index_where_that_is_ahead() {
    let guest = Guest::new();
    for (base, used, begins) in [(5, 5, 5), (5, 7, 7), (7, 5, 7), (65535, 2, 2), (5, 5 + NUM + 1, 5)] {
        let driver = Driver::at(&guest, 2, used);
        let setup = RingSetup { base, ..driver.setup() };
        assert_eq!(Ring::new(guest.memory(), setup, None).unwrap().base(), begins, "{base} {used}");
    }
}

/// Rule of the standard: an interrupt is wanted if the entry named by the driver is among those
/// published now.
fn is_among(event: u16, old: u16, new: u16) -> bool {
    (0..new.wrapping_sub(old)).any(|n| old.wrapping_add(n) == event)
}

fn told(guest: &Arc<Guest>, start: u16, count: u16, event: u16) -> bool {
    let mut driver = Driver::at(guest, 2, start);
    let mut ring = ring(&driver);
    for _ in 0..count {
        let head = driver.chain(&[(DATA, 8, WRITE)]);
        driver.offer(head);
        ring.take().unwrap().unwrap();
        ring.put(head, 0);
    }
    driver.listen(event.wrapping_sub(start));
    ring.publish()
}

proptest! {
    #[test]
    fn interrupts_come_where_the_driver_asks(start: u16, count in 0..=NUM, offset in -20i16..20) {
        let guest = Guest::new();
        let event = start.wrapping_add_signed(offset);
        let expected = is_among(event, start, start.wrapping_add(count));
        prop_assert_eq!(told(&guest, start, count, event), expected);
    }
}

#[test]
fn interrupt_without_event_index_follows_the_flag() {
    for flag in [0u16, 1] {
        let mut driver = Driver::new(&Guest::new(), 2);
        driver.event_idx = false;
        let mut ring = ring(&driver);
        driver.guest.write(driver.available(), &flag.to_le_bytes());
        let head = driver.chain(&[(DATA, 8, WRITE)]);
        driver.offer(head);
        ring.take().unwrap().unwrap();
        assert!(!ring.publish());
        ring.put(head, 0);
        assert_eq!(ring.publish(), flag == 0);
    }
}

#[test]
fn listen_requests_a_kick_and_sees_earlier_entries() {
    let mut driver = Driver::at(&Guest::new(), 2, 300);
    let mut ring = ring(&driver);
    assert!(!driver.wants_kick());
    assert!(!ring.listen());
    let head = driver.chain(&[(DATA, 8, 0)]);
    driver.offer(head);
    assert!(driver.wants_kick());
    driver.offer(head);
    assert!(!driver.wants_kick());
    assert!(ring.listen());
}
