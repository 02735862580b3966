//! Random bytes where a guest or a front end writes: nothing panics, everything ends, and a queue can stop.

use crate::guest::{DEVICE, Driver, Guest, HIGH, LOW, NUM, descriptor, disk};
use proptest::prelude::*;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use zonal_core::Nanos;
use zonal_vhost::connection::Assembler;
use zonal_vhost::queue::{CONTROL, Management, Queue};
use zonal_vhost::session::{Message, Session};
use zonal_vhost::wire::message::{DESCRIPTORS_MAX, HEADER_LEN, VERSION};
use zonal_vhost::wire::ring::Descriptor;

/// An address that is often in memory, and often near its edges.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0..0x40_0000u64).prop_map(|offset| LOW + offset),
        4 => (0..0x40_0000u64).prop_map(|offset| HIGH + offset),
        1 => (0..64u64).prop_map(|offset| LOW + 0x40_0000 - 32 + offset),
        1 => any::<u64>(),
    ]
}

fn len() -> impl Strategy<Value = u32> {
    prop_oneof![2 => 1..256u32, 2 => (1..16u32).prop_map(|n| 4096 * n), 1 => any::<u32>(), 1 => Just(16 * 4)]
}

fn entry() -> impl Strategy<Value = Descriptor> {
    let flags = prop_oneof![4 => 0..4u16, 1 => 0..8u16, 1 => any::<u16>()];
    let next = prop_oneof![8 => 0..NUM, 1 => any::<u16>()];
    (address(), len(), flags, next)
        .prop_map(|(address, len, flags, next)| descriptor(address, len, flags, next))
}

#[derive(Clone, Debug)]
enum Deed {
    Set(u16, Descriptor),
    Offer(u16),
    Index(u16),
    Bytes(u64, Vec<u8>),
    Turn,
    Poll,
    Manage(u32),
    Memory(bool),
    Restart,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        6 => (0..NUM, entry()).prop_map(|(index, entry)| Deed::Set(index, entry)),
        6 => prop_oneof![8 => 0..NUM, 1 => any::<u16>()].prop_map(Deed::Offer),
        1 => any::<u16>().prop_map(Deed::Index),
        2 => (0..0x3_0000u64, prop::collection::vec(any::<u8>(), 1..64))
            .prop_map(|(offset, bytes)| Deed::Bytes(LOW + 0x2_0000 + offset, bytes)),
        6 => Just(Deed::Turn),
        3 => Just(Deed::Poll),
        1 => (0..8u32).prop_map(Deed::Manage),
        1 => any::<bool>().prop_map(Deed::Memory),
        1 => Just(Deed::Restart),
    ]
}

fn run(number: u16, deeds: Vec<Deed>) {
    let disk = disk(DEVICE);
    let guest = Guest::new();
    let mut driver = Driver::new(&guest, 2);
    let mut queue = Queue::new(number, &disk);
    let mut now = 0;
    let all = guest.memory();
    let part = Rc::new(all.without(&Guest::regions()[1]).unwrap());
    queue.start(all.clone(), driver.setup(), None);
    queue.set_enabled(true);
    for deed in deeds {
        now += 1;
        match deed {
            Deed::Set(index, entry) => driver.set(index, entry),
            Deed::Offer(head) => driver.offer(head),
            Deed::Index(index) => guest.write(driver.available() + 2, &index.to_le_bytes()),
            Deed::Bytes(address, bytes) => guest.write(address, &bytes),
            Deed::Turn => drop(queue.turn(Nanos(now), false)),
            Deed::Poll => {
                disk.volume().poll(Nanos(now));
                queue.turn(Nanos(now), false);
            }
            Deed::Manage(function) => {
                queue.manage(Nanos(now), Management { id: now, function, lun: 0, tag: 0 });
                while let Some(management) = queue.next_management() {
                    let id = management.id;
                    queue.end_management(zonal_vhost::queue::ManagementEnd { id, has_found: false });
                }
            }
            Deed::Memory(is_all) => queue.set_memory(if is_all { all.clone() } else { part.clone() }),
            Deed::Restart => {
                stop(&mut queue, &disk, &mut now);
                driver = Driver::new(&guest, 2);
                queue.start(all.clone(), driver.setup(), None);
            }
        }
    }
    stop(&mut queue, &disk, &mut now);
}

/// It always stops.
fn stop(queue: &mut Queue, disk: &zonal_scsi::Disk, now: &mut u64) {
    queue.stop();
    for _ in 0..1000 {
        *now += 1;
        disk.volume().poll(Nanos(*now));
        queue.turn(Nanos(*now), false);
        while let Some(management) = queue.next_management() {
            let id = management.id;
            queue.end_management(zonal_vhost::queue::ManagementEnd { id, has_found: false });
        }
        if queue.stopped().is_some() {
            assert_eq!(queue.in_flight(), 0);
            return;
        }
    }
    panic!("{} requests stay in flight", queue.in_flight());
}

fn file() -> OwnedFd {
    crate::session::file_of(4096)
}

proptest! {

    #[test]
    fn requests_of_random_rings_end(deeds in prop::collection::vec(deed(), 0..100)) {
        run(2, deeds);
    }

    #[test]
    fn functions_of_random_rings_end(deeds in prop::collection::vec(deed(), 0..100)) {
        run(CONTROL, deeds);
    }

    /// Any bytes, in any pieces.
    #[test]
    fn random_stream_of_messages_ends_or_is_answered(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 1..40usize) {
        let (mut assembler, mut session) = (Assembler::default(), Session::default());
        'stream: for piece in bytes.chunks(cut) {
            let mut left = piece;
            while !left.is_empty() {
                let (here, rest) = left.split_at(assembler.wanted().min(left.len()));
                left = rest;
                let Ok(message) = assembler.put(here, Vec::new()) else { break 'stream };
                if message.is_some_and(|message| session.take(message).is_err()) {
                    break 'stream;
                }
            }
        }
    }

    /// Messages of the right form, with any contents.
    #[test]
    fn random_messages_change_only_queues_that_are_there(
        messages in prop::collection::vec(
            (0..42u32, any::<bool>(), prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => 0..4u8, 1 => any::<u8>()], 0..6),
             prop::sample::select(vec![0usize, 8, 8, 8, 12, 20, 24, 40, 40, 72, 264]), 0..3usize),
            0..40,
        )
    ) {
        let mut session = Session::default();
        for (request, waits, head, len, files) in messages {
            let mut payload = head;
            payload.resize(len, 0);
            let flags = VERSION | if waits { 8 } else { 0 };
            let descriptors = (0..files.min(DESCRIPTORS_MAX)).map(|_| file()).collect();
            let Ok(outcome) = session.take(Message { request, flags, payload, descriptors }) else { continue };
            for (queue, _) in outcome.changes {
                prop_assert!(queue < zonal_vhost::queue::QUEUES_MAX);
            }
            if let Some(reply) = outcome.reply {
                prop_assert!(reply.bytes.len() > HEADER_LEN);
            }
        }
    }
}
