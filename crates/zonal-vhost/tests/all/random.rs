//! Random bytes from a guest or a front end: nothing panics, everything completes, and a queue can
//! stop.

mod cases;

use crate::guest::{HIGH, LOW, NUM, descriptor};
use cases::{Ask, Deed, FILES, Given, LOG_LEN, RingRestart};
use proptest::prelude::*;
use zonal_vhost::queue::CONTROL;
use zonal_vhost::wire::ring::Descriptor;

/// Address that is often in memory, and often near its edges.
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

/// Well-formed command.
fn command() -> impl Strategy<Value = Ask> {
    let cdb =
        (prop::sample::select(&[0x00u8, 0x12, 0x88, 0x8A, 0x93, 0x94, 0x95][..]), 0..16_384u32, 0..5u32);
    (cdb, 0..4u32, 0..4u32, any::<bool>()).prop_map(|((code, lba, count), out, into, is_indirect)| {
        let mut cdb = [0; 16];
        cdb[0] = code;
        cdb[6..10].copy_from_slice(&lba.to_be_bytes());
        cdb[10..14].copy_from_slice(&count.to_be_bytes());
        Ask { cdb: cdb.to_vec(), out: 4096 * out, into: 4096 * into, is_indirect }
    })
}

fn restart() -> impl Strategy<Value = RingRestart> {
    let index = prop_oneof![4 => Just(0), 1 => any::<u16>()];
    (index.clone(), index, any::<[bool; 3]>()).prop_map(|(index, base, [event_idx, indirect, has_log])| {
        RingRestart { index, base, event_idx, indirect, has_log }
    })
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
        3 => command().prop_map(Deed::Ask),
        1 => (0..LOG_LEN, prop::collection::vec(any::<u8>(), 1..32))
            .prop_map(|(offset, bytes)| Deed::Log(offset, bytes)),
        1 => restart().prop_map(Deed::Restart),
    ]
}

proptest! {

    #[test]
    fn requests_of_random_rings_end(deeds in prop::collection::vec(deed(), 0..100)) {
        cases::run(2, deeds);
    }

    #[test]
    fn functions_of_random_rings_end(deeds in prop::collection::vec(deed(), 0..100)) {
        cases::run(CONTROL, deeds);
    }

    /// Arbitrary bytes, in arbitrary pieces.
    #[test]
    fn random_stream_of_messages_ends_or_is_answered(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 1..40usize) {
        cases::stream(&bytes, cut);
    }

    /// Well-formed messages with arbitrary contents.
    #[test]
    fn random_messages_change_only_queues_that_are_there(
        messages in prop::collection::vec(
            (0..42u32, any::<bool>(), prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => 0..4u8, 1 => any::<u8>()], 0..6),
             prop::sample::select(vec![0usize, 8, 8, 8, 12, 20, 24, 40, 40, 72, 264]), prop::collection::vec(0..FILES, 0..3)),
            0..40,
        )
    ) {
        let given = messages.into_iter().map(|(request, waits, mut payload, len, files)| {
            payload.resize(len, 0);
            Given { request, waits, payload, files }
        });
        cases::messages(given);
    }
}
