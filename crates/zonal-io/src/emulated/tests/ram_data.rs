//! Data kept by the memory device.

use super::*;
use crate::changes::ZoneSetting;
use crate::emulated::{Extent, Storage};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Four zones of 1 MiB, the first conventional, so that commands span chunks.
fn large() -> EmulatedOptions {
    EmulatedOptions { size: 4 << 20, zone_size: 1 << 20, zone_nr_conv: 1, ..Default::default() }
}

#[test]
fn read_returns_written_data_and_zeroes_above_the_write_pointer() {
    let d = ram(&small());
    write_filled(&d, 64, 4, 1).unwrap();
    write_filled(&d, 68, 4, 2).unwrap();
    assert_eq!(read_fills(&d, 64, 12), [1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0]);
    assert_eq!(read_fills(&d, 128, 4), [0; 4]);
    assert_eq!(read_fills(&d, 64 + 48, 16), [0; 16], "beyond the capacity there is nothing");
}

#[test]
fn append_returns_the_address_of_its_data() {
    let d = ram(&small());
    write_filled(&d, 64, 4, 1).unwrap();
    let appended = transfer(&d, Op::Append, 64, &mut [2; 1024]);
    assert_eq!(appended, Ok(Output::Appended(Sector(68))));
    assert_eq!(read_fills(&d, 66, 6), [1, 1, 2, 2, 0, 0]);
}

#[test]
fn payload_of_the_wrong_length_is_refused() {
    let d = ram(&small());
    let mut bytes = [0; 1024];
    for op in [Op::Write, Op::Append, Op::Read] {
        let short = Command { data: data(&mut bytes), ..command(op, 64, 4) };
        assert_eq!(run(&d, &short).map(drop), Err(DeviceError::InvalidField));
    }
    assert_eq!(shape(&d, 1), EMPTY);
}

#[test]
fn payload_in_pieces_is_stored_in_order() {
    let d = ram(&small());
    let (mut a, mut b, mut c) = ([1u8; 512 * 3], [2u8; 100], [2u8; 412]);
    let segments = [
        Segment::new(a.as_mut_ptr(), a.len()),
        Segment::new(b.as_mut_ptr(), b.len()),
        Segment::new(c.as_mut_ptr(), c.len()),
    ];
    // SAFETY: the command completes before the buffers are used again.
    let pieces = unsafe { Data::many(&segments) };
    run(&d, &Command { data: pieces, ..command(Op::Write, 64, 4) }).unwrap();
    assert_eq!(read_fills(&d, 64, 4), [1, 1, 1, 2]);
    a.fill(9);
    run(&d, &Command { data: pieces, ..command(Op::Read, 64, 4) }).unwrap();
    assert_eq!((a[0], a[1535], b[99], c[411]), (1, 1, 2, 2));
}

#[test]
fn zone_that_is_written_again_in_part_shows_nothing_of_its_earlier_generations() {
    let d = ram(&large());
    let (zone, sectors) = (2048, 2048);
    for generation in 1..=20u8 {
        // Whole chunks, part of a chunk, and single sectors in the middle of one.
        let written = match generation % 4 {
            0 => sectors,
            1 => 1,
            2 => 130,
            _ => 128 * 3 + 7,
        };
        write_filled(&d, zone, written, generation).unwrap();
        let found = read_fills(&d, zone, sectors);
        assert!(found[..written].iter().all(|&fill| fill == generation), "{generation}");
        assert!(found[written..].iter().all(|&fill| fill == 0), "{generation}: stale bytes");
        act(&d, Op::ZoneReset, zone, 0).unwrap();
        assert!(read_fills(&d, zone, sectors).iter().all(|&fill| fill == 0), "{generation}: after its reset");
    }
}

#[test]
fn write_zeroes_reads_as_zeroes() {
    let d = ram(&small());
    write_filled(&d, 64, 4, 1).unwrap();
    act(&d, Op::WriteZeroes, 68, 4).unwrap();
    write_filled(&d, 72, 4, 3).unwrap();
    assert_eq!(read_fills(&d, 64, 12), [1, 1, 1, 1, 0, 0, 0, 0, 3, 3, 3, 3]);
}

#[test]
fn conventional_zone_is_rewritten_anywhere() {
    let d = ram(&large());
    assert_eq!(read_fills(&d, 126, 4), [0; 4]);
    write_filled(&d, 126, 4, 1).unwrap();
    write_filled(&d, 127, 1, 2).unwrap();
    act(&d, Op::WriteZeroes, 128, 1).unwrap();
    assert_eq!(read_fills(&d, 125, 6), [0, 1, 2, 0, 1, 0]);
}

#[test]
fn reset_drops_the_data() {
    let d = ram(&small());
    write_filled(&d, 64, 8, 1).unwrap();
    act(&d, Op::ZoneReset, 64, 0).unwrap();
    assert_eq!(read_fills(&d, 64, 8), [0; 8]);
    write_filled(&d, 64, 4, 2).unwrap();
    assert_eq!(read_fills(&d, 64, 8), [2, 2, 2, 2, 0, 0, 0, 0]);
    act(&d, Op::ResetAll, 0, 0).unwrap();
    assert_eq!(read_fills(&d, 64, 8), [0; 8]);
}

#[test]
fn finished_and_read_only_zones_keep_their_data() {
    let d = ram(&small());
    write_filled(&d, 64, 4, 1).unwrap();
    act(&d, Op::ZoneFinish, 64, 0).unwrap();
    assert_eq!(read_fills(&d, 64, 6), [1, 1, 1, 1, 0, 0]);
    d.set_zone(ZoneIndex(1), ZoneSetting::ReadOnly).unwrap();
    assert_eq!(read_fills(&d, 64, 6), [1, 1, 1, 1, 0, 0]);
    d.set_zone(ZoneIndex(1), ZoneSetting::Offline).unwrap();
    assert_eq!(read(&d, 64, 6), Err(ZoneError::Offline.into()));
}

fn extent(offset: u32, sectors: u32, generation: u32) -> Extent {
    Extent { zone: ZoneIndex(1), offset, sectors, generation }
}

#[test]
fn late_write_of_a_past_generation_leaves_no_trace() {
    let ram = Ram::new(&small().geometry().unwrap());
    let bytes = |fill| vec![fill; 8 * 512];
    ram.write(extent(0, 8, 4), &data(&mut bytes(4))).unwrap();
    ram.discard(ZoneIndex(1), 5);
    ram.write(extent(0, 8, 5), &data(&mut bytes(5))).unwrap();
    ram.write(extent(0, 8, 4), &data(&mut bytes(4))).unwrap();
    // The discard of the reset may be called after the first write of the next generation.
    ram.discard(ZoneIndex(1), 5);
    let mut seen = bytes(9);
    ram.read(extent(0, 8, 5), &data(&mut seen)).unwrap();
    assert_eq!(seen, bytes(5));
    ram.read(extent(0, 8, 4), &data(&mut seen)).unwrap();
    assert_eq!(seen, bytes(0));
}

#[test]
fn sector_is_written_once_a_generation() {
    let ram = Ram::new(&small().geometry().unwrap());
    let mut bytes = vec![1; 8 * 512];
    ram.write(extent(0, 8, 0), &data(&mut bytes)).unwrap();
    assert_eq!(ram.write(extent(7, 8, 0), &data(&mut bytes)), Err(DeviceError::InvalidField));
}

/// Freed chunks go to the next writer with their old bytes, which a lock-free reader must not
/// return.
#[test]
fn h51_reader_without_a_lock_finds_no_bytes_of_an_earlier_life() {
    const LIVES: u8 = 250;
    let d = ram(&large());
    let life = AtomicU8::new(1);
    std::thread::scope(|s| {
        s.spawn(|| {
            for n in 1..=LIVES {
                write_filled(&d, 2048, 2048, n).unwrap();
                act(&d, Op::ZoneReset, 2048, 0).unwrap();
                life.store(n + 1, Ordering::SeqCst);
            }
        });
        loop {
            let first = life.load(Ordering::SeqCst);
            // Sectors that a writer copies last.
            let fills = read_fills(&d, 2 * 2048 - 4, 4);
            let lives = first..=life.load(Ordering::SeqCst);
            assert!(fills.iter().all(|f| *f == 0 || lives.contains(f)), "{fills:?} in {lives:?}");
            if first > LIVES {
                break;
            }
        }
    });
}

/// Two sectors per write, so that the values of a pair show whether a read was torn.
#[test]
fn readers_see_acknowledged_writes_and_never_torn_sectors_while_zones_are_reset() {
    let d = ram(&large());
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        for reader in 0..2 {
            let (d, over) = (&d, &over);
            s.spawn(move || {
                let mut rng = Pcg64::seed_from_u64(reader);
                while !over.load(Ordering::Relaxed) {
                    let zone = rng.random_range(1..4);
                    let at = zone * 2048 + rng.random_range(0..1900);
                    for fill in read_fills(d, at, 140) {
                        assert!(fill == 0 || u64::from(fill) % 4 == zone, "data of another zone");
                    }
                }
            });
        }
        let writers: Vec<_> = (1..4u64)
            .map(|zone| {
                let d = &d;
                s.spawn(move || {
                    let mut rng = Pcg64::seed_from_u64(100 + zone);
                    for round in 0..6 {
                        let fill = (round * 4 + 4) as u8 + zone as u8;
                        let mut at = 0;
                        while at < 2048 {
                            let sectors = rng.random_range(1..=300u64).min(2048 - at);
                            write_filled(d, zone * 2048 + at, sectors as usize, fill).unwrap();
                            let back = read_fills(d, zone * 2048 + at, sectors as usize);
                            assert!(back.iter().all(|&b| b == fill));
                            at += sectors;
                        }
                        act(d, Op::ZoneReset, zone * 2048, 0).unwrap();
                        assert!(read_fills(d, zone * 2048, 2048).iter().all(|&b| b == 0));
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|w| w.join().unwrap());
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn appends_of_many_threads_keep_their_data() {
    let d = ram(&large());
    std::thread::scope(|s| {
        for t in 1..=4u8 {
            let d = &d;
            s.spawn(move || {
                for zone in 1..4u64 {
                    loop {
                        match transfer(d, Op::Append, zone * 2048, &mut [t; 3 * 512]) {
                            Ok(Output::Appended(at)) => assert_eq!(read_fills(d, at.0, 3), [t; 3]),
                            Err(DeviceError::Zone(_)) => break,
                            other => panic!("{other:?}"),
                        }
                    }
                }
            });
        }
    });
    for zone in 1..4u64 {
        let fills = read_fills(&d, zone * 2048, 2046);
        assert!(fills.chunks_exact(3).all(|c| c[0] != 0 && c == [c[0]; 3]));
        assert_eq!(read_fills(&d, zone * 2048 + 2046, 2), [0, 0]);
    }
}

#[derive(Clone, Debug)]
enum Action {
    Write { zone: u64, sectors: u64, fill: u8 },
    WriteZeroes { zone: u64, sectors: u64 },
    Rewrite { at: u64, sectors: u64, fill: u8 },
    Reset { zone: u64 },
    Read { at: u64, sectors: u64 },
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        6 => (1..4u64, 1..400u64, 1..255u8).prop_map(|(zone, sectors, fill)| Action::Write { zone, sectors, fill }),
        1 => (1..4u64, 1..400u64).prop_map(|(zone, sectors)| Action::WriteZeroes { zone, sectors }),
        2 => (0..2048u64, 1..200u64, 0..255u8).prop_map(|(at, sectors, fill)| Action::Rewrite { at, sectors, fill }),
        1 => (1..4u64).prop_map(|zone| Action::Reset { zone }),
        4 => (0..4 * 2048u64, 1..400u64).prop_map(|(at, sectors)| Action::Read { at, sectors }),
    ];
    prop::collection::vec(action, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Compares the device with a plain array of one byte per sector.
    #[test]
    fn memory_is_what_an_array_would_hold(actions in actions()) {
        let d = ram(&large());
        let mut model = vec![0u8; 4 * 2048];
        let mut pointers = [0u64; 4];
        for action in actions {
            match action {
                Action::Write { zone, sectors, .. } | Action::WriteZeroes { zone, sectors } => {
                    let at = zone * 2048 + pointers[zone as usize];
                    let sectors = sectors.min(2048 - pointers[zone as usize]);
                    if sectors == 0 {
                        continue;
                    }
                    let fill = if let Action::Write { fill, .. } = action { fill } else { 0 };
                    match action {
                        Action::Write { .. } => write_filled(&d, at, sectors as usize, fill).unwrap(),
                        _ => act(&d, Op::WriteZeroes, at, sectors as u32).unwrap(),
                    }
                    model[at as usize..][..sectors as usize].fill(fill);
                    pointers[zone as usize] += sectors;
                }
                Action::Rewrite { at, sectors, fill } => {
                    let sectors = sectors.min(2048 - at) as usize;
                    write_filled(&d, at, sectors, fill).unwrap();
                    model[at as usize..][..sectors].fill(fill);
                }
                Action::Reset { zone } => {
                    act(&d, Op::ZoneReset, zone * 2048, 0).unwrap();
                    model[zone as usize * 2048..][..2048].fill(0);
                    pointers[zone as usize] = 0;
                }
                Action::Read { at, sectors } => {
                    let sectors = sectors.min(2048 - at % 2048) as usize;
                    prop_assert_eq!(read_fills(&d, at, sectors), &model[at as usize..][..sectors]);
                }
            }
        }
    }
}
