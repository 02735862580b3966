//! Chains resubmitted by the next process after one was killed.

use crate::guest::{DATA, Driver, Guest, NUM, file_of};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use zonal_vhost::memory::map_area;
use zonal_vhost::ring::{InflightQueue, Ring, queue_len};
use zonal_vhost::wire::ring::WRITE;

fn file() -> OwnedFd {
    file_of(queue_len(NUM) as u64)
}

/// New process with the guest's memory, the file, and the front end's base, which is the used
/// index.
fn process(driver: &Driver, file: &OwnedFd) -> Ring {
    let region = map_area(file, 0, queue_len(NUM) as u64).unwrap();
    let log = InflightQueue::new(&region, 0, NUM).unwrap();
    let setup = zonal_vhost::ring::RingSetup { base: driver.used_index(), ..driver.setup() };
    Ring::new(driver.guest.memory(), setup, Some(log)).unwrap()
}

fn offer(driver: &mut Driver) -> u16 {
    let head = driver.chain(&[(DATA, 8, WRITE)]);
    driver.offer(head);
    head
}

fn all(ring: &mut Ring) -> Vec<u16> {
    std::iter::from_fn(|| ring.take().unwrap()).map(|chain| chain.head).collect()
}

#[test]
fn killed_with_requests_in_flight_they_are_submitted_in_order() {
    let (mut driver, file) = (Driver::new(&Guest::new(), 2), file());
    let mut ring = process(&driver, &file);
    let heads: Vec<u16> = (0..6).map(|_| offer(&mut driver)).collect();
    assert_eq!(all(&mut ring), heads);
    // The third and the first have completed, in this order.
    ring.put(heads[2], 0);
    ring.put(heads[0], 0);
    ring.publish();
    let later = offer(&mut driver);
    drop(ring);
    let mut ring = process(&driver, &file);
    let taken = std::iter::from_fn(|| ring.take().unwrap()).map(|chain| (chain.head, chain.is_left));
    // They may have been executed.
    let left = [1, 3, 4, 5].map(|n| (heads[n], true));
    assert!(taken.eq(left.into_iter().chain([(later, false)])));
}

#[test]
fn killed_again_while_the_left_ones_are_taken_their_order_stays() {
    let (mut driver, file) = (Driver::new(&Guest::new(), 2), file());
    let mut ring = process(&driver, &file);
    let heads: Vec<u16> = (0..4).map(|_| offer(&mut driver)).collect();
    assert_eq!(all(&mut ring), heads);
    drop(ring);
    let mut ring = process(&driver, &file);
    assert_eq!(ring.take().unwrap().map(|chain| chain.head), Some(heads[0]));
    drop(ring);
    assert_eq!(all(&mut process(&driver, &file)), heads);
}

#[test]
fn command_without_published_completion_is_resubmitted_after_a_kill() {
    let (mut driver, file) = (Driver::new(&Guest::new(), 2), file());
    let mut ring = process(&driver, &file);
    let head = offer(&mut driver);
    all(&mut ring);
    ring.put(head, 0);
    drop(ring);
    assert_eq!(all(&mut process(&driver, &file)), [head]);
}

#[test]
fn killed_between_index_and_mark_it_is_not_submitted_again() {
    let (mut driver, file) = (Driver::new(&Guest::new(), 2), file());
    let mut ring = process(&driver, &file);
    let heads: Vec<u16> = (0..4).map(|_| offer(&mut driver)).collect();
    all(&mut ring);
    ring.put(heads[3], 0);
    ring.put(heads[1], 0);
    // The process is killed after writing the index.
    driver.guest.write(driver.used_ring() + 2, &2u16.to_le_bytes());
    drop(ring);
    assert_eq!(all(&mut process(&driver, &file)), [heads[0], heads[2]]);
    // The next one, killed as well, leaves the same chains.
    assert_eq!(all(&mut process(&driver, &file)), [heads[0], heads[2]]);
}

#[test]
fn file_that_is_too_short_or_of_another_length_has_no_queue() {
    let region = map_area(&file(), 0, queue_len(NUM) as u64).unwrap();
    assert!(InflightQueue::new(&region, 64, NUM).is_none());
    assert!(InflightQueue::new(&region, 0, 2 * NUM).is_none());
    assert!(InflightQueue::new(&region, 0, 0).is_none());
    assert!(InflightQueue::new(&region, u64::MAX, NUM).is_none());
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Offer,
    Take,
    End(usize),
    Publish,
    KillInPublish,
    Kill,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        3 => Just(Deed::Offer),
        3 => Just(Deed::Take),
        3 => any::<usize>().prop_map(Deed::End),
        3 => Just(Deed::Publish),
        1 => Just(Deed::KillInPublish),
        1 => Just(Deed::Kill),
    ]
}

proptest! {
    /// However often the process is killed, each chain is published once, and none is lost.
    #[test]
    fn each_chain_is_told_once(deeds in prop::collection::vec(deed(), 0..120)) {
        let (mut driver, file) = (Driver::new(&Guest::new(), 2), file());
        let mut ring = process(&driver, &file);
        let (mut with_device, mut taken, mut untold) = (BTreeSet::new(), Vec::new(), 0);
        for deed in deeds.into_iter().chain([Deed::Kill]) {
            match deed {
                Deed::Offer if with_device.len() < usize::from(NUM) => {
                    // A driver uses only free descriptors: find one.
                    let head = (0..NUM).find(|head| !with_device.contains(head)).unwrap();
                    driver.set(head, crate::guest::descriptor(DATA, 8, WRITE, 0));
                    driver.offer(head);
                    with_device.insert(head);
                }
                Deed::Take => taken.extend(ring.take().unwrap().map(|chain| chain.head)),
                Deed::End(n) if !taken.is_empty() => {
                    let head = taken.swap_remove(n % taken.len());
                    ring.put(head, 0);
                    untold += 1;
                }
                Deed::Publish => {
                    ring.publish();
                    untold = 0;
                }
                Deed::Kill | Deed::KillInPublish => {
                    if matches!(deed, Deed::KillInPublish) {
                        let index = driver.used_index().wrapping_add(untold);
                        driver.guest.write(driver.used_ring() + 2, &index.to_le_bytes());
                    }
                    (taken, untold) = (Vec::new(), 0);
                    ring = process(&driver, &file);
                }
                _ => {}
            }
            while let Some((head, _)) = driver.used() {
                prop_assert!(with_device.remove(&head), "{} is told twice", head);
            }
        }
        let left: BTreeSet<u16> = all(&mut ring).into_iter().collect();
        prop_assert_eq!(left, with_device);
    }
}
