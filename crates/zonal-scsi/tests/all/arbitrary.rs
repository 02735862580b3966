//! Arbitrary descriptors with arbitrary memory: each task is answered once, and memory beyond the
//! answer's length is unchanged.

mod cases;

use crate::rig::{DRIVE, DRIVE_4K, GAPS};
use cases::{Given, check};
use proptest::prelude::*;
use zonal_scsi::Cdb;
use zonal_scsi::wire::{UnmapList, UnmapRange};

/// Supported operation codes, and some unsupported ones.
const CODES: [u8; 32] = [
    0x00, 0x03, 0x12, 0x15, 0x1A, 0x1B, 0x1E, 0x25, 0x28, 0x2A, 0x2F, 0x35, 0x41, 0x42, 0x4D, 0x55, 0x5A,
    0x88, 0x8A, 0x8F, 0x91, 0x93, 0x94, 0x95, 0x9E, 0xA0, 0xA3, 0xA8, 0xAA, 0xAF, 0x08, 0x7F,
];

/// Descriptors with mostly valid fields, so that many are executed.
fn likely() -> impl Strategy<Value = Cdb> {
    // Blocks per zone, for both block sizes.
    let lba = (0..17u64, prop::sample::select(&[256u64, 2048][..]), 0..3u64);
    let count = prop_oneof![4 => 0..6u32, 1 => 0..40u32];
    let bits = prop_oneof![3 => Just([0u8, 0]), 1 => any::<[u8; 2]>()];
    let codes = prop_oneof![
        2 => prop::sample::select(&CODES[..]),
        1 => prop::sample::select(&[0x2A, 0x8A, 0x88, 0x94, 0x95, 0x42, 0x93][..]),
    ];
    (codes, lba, count, bits, 0..5u8).prop_map(|(code, (zone, blocks, offset), count, [one, last], small)| {
        let lba = zone * blocks + offset;
        let mut cdb = [0; 32];
        cdb[0] = code;
        cdb[1] = one & 0x1B;
        match code >> 5 {
            0 => (cdb[2], cdb[4]) = (if code == 0x1A { 0x3F } else { last }, count as u8),
            4 => {
                cdb[2..10].copy_from_slice(&lba.to_be_bytes());
                cdb[10..14].copy_from_slice(&count.to_be_bytes());
                match code {
                    0x94 => (cdb[1], cdb[14]) = (small, one & 1),
                    // More than one descriptor.
                    0x95 => (cdb[12], cdb[14]) = (small, last & 0x87),
                    0x9E => {
                        cdb[1] = 0x10;
                        cdb[2..10].fill(0);
                    }
                    _ => {}
                }
            }
            5 if matches!(code, 0xA0 | 0xA3) => {
                cdb[1] = if code == 0xA3 { 0x0C + (one & 1) } else { 0 };
                (cdb[2], cdb[9]) = (small & 3, 64);
            }
            5 => {
                cdb[2..6].copy_from_slice(&(lba as u32).to_be_bytes());
                cdb[6..10].copy_from_slice(&count.to_be_bytes());
            }
            2 if matches!(code, 0x42 | 0x4D | 0x55 | 0x5A) => {
                cdb[2] = if code == 0x5A { 0x08 } else { 0 };
                cdb[8] = 8 + 16 * small;
            }
            _ => {
                cdb[2..6].copy_from_slice(&(lba as u32).to_be_bytes());
                cdb[7..9].copy_from_slice(&(count as u16).to_be_bytes());
            }
        }
        cdb
    })
}

fn given() -> impl Strategy<Value = Given> {
    let anything = (prop::sample::select(&CODES[..]), any::<[u8; 32]>()).prop_map(|(code, mut cdb)| {
        cdb[0] = code;
        cdb
    });
    let cdb = prop_oneof![8 => likely(), 1 => anything, 1 => any::<[u8; 32]>()];
    let list = prop::collection::vec((0..40_000u64, 0..3000u32), 0..4).prop_map(|ranges| {
        UnmapList { ranges: ranges.into_iter().map(|(lba, blocks)| UnmapRange { lba, blocks }).collect() }
            .emit()
    });
    let bytes = (prop::sample::select(&[0usize, 1, 511, 512, 513, 4096, 20_000][..]), any::<u8>());
    let out = prop_oneof![3 => bytes.prop_map(|(len, byte)| vec![byte; len]), 1 => list];
    let len = prop::sample::select(&[0usize, 3, 36, 64, 512, 700, 4096, 20_480, 70_000][..]);
    let lun = prop_oneof![20 => Just(0u16), 1 => any::<u16>()];
    let cancels = prop_oneof![5 => Just(None), 1 => (0..40u64).prop_map(Some)];
    (lun, cdb, out, len, cancels, any::<bool>()).prop_map(|(lun, cdb, out, len, cancels, polls)| Given {
        lun,
        cdb,
        out,
        len,
        cancels,
        polls,
    })
}

proptest! {
    #[test]
    fn any_commands_with_any_memory_are_answered_once(
        device in 0..4usize, all in prop::collection::vec(given(), 1..40),
    ) {
        let slow = format!("{GAPS},complete=poll,hw_queue_depth=2,zone_max_open=2,zone_nr_conv=3");
        check([DRIVE, DRIVE_4K, GAPS, &slow][device], &all);
    }
}
