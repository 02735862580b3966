//! Appends in flight to a zone with a bad block: none gets a place behind it, so that the zone has
//! no hole in which older data could be read.

use super::drive::{command, describe, plain, read, write};
use std::sync::Barrier;
use std::thread::scope;
use std::time::Duration;
use zonal_core::{DeviceError, Nanos, Op, Sector};
use zonal_io::badblocks::BadRange;
use zonal_io::buffer::IoBuf;
use zonal_io::data::{Data, Segment};
use zonal_io::device::{Command, CommandResult, Context, Device, Output, Submitted};
use zonal_io::image::ImageOptions;
use zonal_io::registry::Registry;

const APPENDS: usize = 4;
const SECTORS: u32 = 16;
/// In the middle of the third append.
const BAD: BadRange = BadRange { is_bad: true, first: 40, last: 47 };

/// Appends 4 x 16 sectors, in each round after a reset, and checks that two of them fail.
fn each_round_ends_at_the_bad_block(device: &dyn Device, append: impl Fn(u64) -> Vec<CommandResult>) {
    for round in 1..150 {
        assert_eq!(plain(device, Op::ZoneReset, 0, 0), Ok(Output::Done));
        let results = append(round);
        let placed = |result: &&CommandResult| matches!(result, Ok(Output::Appended(at)) if at.0 < 32);
        let failed = results.iter().filter(|result| **result == Err(DeviceError::Medium)).count();
        assert_eq!((results.iter().filter(placed).count(), failed), (2, 2), "round {round}: {results:?}");
        assert_eq!(describe(device, 0).write_pointer, Some(Sector(32)), "round {round}");
        let stamps = read(device, 0, 32).unwrap();
        assert!(stamps.iter().all(|&stamp| stamp == round), "round {round}: {stamps:?}");
    }
}

#[test]
fn appends_in_flight_to_an_image_get_no_place_behind_a_bad_block() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    ImageOptions::default().with_size(1 << 20).with_zone_size(1 << 18).create(&path).unwrap();
    let device = Registry::default().open(&format!("image:{},threads=3", path.display())).unwrap();
    device.badblocks(Some(BAD)).unwrap();
    each_round_ends_at_the_bad_block(&*device, |round| {
        let mut buffer = IoBuf::zeroed(SECTORS * 512);
        buffer.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&round.to_le_bytes()));
        // SAFETY: the buffer outlives the commands, which complete before this returns.
        let data = unsafe { Data::one(Segment::new(buffer.as_ptr(), buffer.len())) };
        let mut results = Vec::new();
        for n in 0..APPENDS {
            let append = Command { data, ..command(Op::Append, 0, SECTORS) };
            match device.submit(Nanos(0), 0, &append, &mut Some(Context::token(n as u64))) {
                Submitted::Done(result) => results.push(result),
                Submitted::Accepted => {}
                Submitted::Busy => panic!("busy with {n} commands"),
            }
        }
        while results.len() < APPENDS {
            let before = results.len();
            device.poll(Nanos(0), 0, APPENDS, &mut |completed| results.push(completed.result));
            if results.len() == before {
                device.wait(0, Duration::from_secs(1));
            }
        }
        results
    });
}

#[test]
fn appends_of_several_threads_get_no_place_behind_a_bad_block() {
    let name = format!("ram:size=1M,zone_size=256k,badblocks={}-{}", BAD.first, BAD.last);
    let device = Registry::default().open(&name).unwrap();
    each_round_ends_at_the_bad_block(&*device, |round| {
        let start = Barrier::new(APPENDS);
        let append = || {
            start.wait();
            write(&*device, command(Op::Append, 0, SECTORS), &[round; SECTORS as usize])
        };
        scope(|threads| {
            let threads: Vec<_> = (0..APPENDS).map(|_| threads.spawn(append)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    });
}
