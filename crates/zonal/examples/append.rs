//! Four threads append records to one zone, each with many in flight. The drive, or the write path
//! if the drive has no zone append, chooses the position of each record and returns it.
//! `cargo run -p zonal --example append`.

use std::sync::mpsc;
use zonal::volume::Backoff;
use zonal::{Clock, IoBuf, Output, Request, Sector, Volume, VolumeOptions};

const THREADS: u8 = 4;
const RECORDS: usize = 250;
/// Bytes of a record: one block of the drive.
const RECORD: u32 = 4096;

/// Appends `RECORDS` records of one thread to the zone at sector 0, all at once. Returns their
/// positions.
fn append(volume: &Volume, clock: &Clock, thread: u8) -> Vec<Sector> {
    let (tell, told) = mpsc::channel();
    let channel = volume.channel(move |end| _ = tell.send(end.result));
    for _ in 0..RECORDS {
        let mut record = IoBuf::zeroed(RECORD);
        record.fill(thread);
        volume.submit(clock.now(), &channel, Request::append(Sector(0), RECORD / 512, record));
    }
    let (mut places, mut backoff) = (Vec::new(), Backoff::default());
    while places.len() < RECORDS {
        let due = volume.poll(clock.now());
        let before = places.len();
        for result in told.try_iter() {
            let Ok(Output::Appended(place)) = result else {
                panic!("an append ends with its place: {result:?}")
            };
            places.push(place);
        }
        // With nothing else to do, the thread waits until a poll may find something, or until the
        // time that the last poll returned.
        match places.len() > before {
            true => backoff.reset(),
            false => backoff.pause(volume, clock.now(), due),
        }
    }
    places
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Drive in memory with four queues, which completes commands later, in polls.
    let device = zonal::open("ram:size=64M,zone_size=16M,submit_queues=4,complete=poll")?;
    let volume = Volume::open(device, VolumeOptions::default())?;
    let clock = Clock::start();
    let places: Vec<Vec<Sector>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let volume = &volume;
                    let clock = &clock;
                    move || append(volume, clock, thread)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread ends well")).collect()
    });
    for (thread, places) in (0..THREADS).zip(&places) {
        for place in places {
            let read = volume.call(&clock, Request::read(*place, RECORD / 512, IoBuf::zeroed(RECORD)));
            read.result?;
            assert!(
                read.buf.into_buf().iter().all(|byte| *byte == thread),
                "the record of thread {thread} at {place:?}"
            );
        }
    }
    println!(
        "{} records of {THREADS} threads in one zone, mode {}",
        places.concat().len(),
        volume.mode().0.name()
    );
    Ok(())
}

#[test]
fn records_of_all_threads_are_at_their_returned_addresses() {
    main().unwrap();
}
