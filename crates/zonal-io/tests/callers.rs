//! A volume with several callers: their common time, calls that wait, direct users beside them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use zonal_core::plug::ParkOptions;
use zonal_core::{Nanos, Op, RequestError, Sector};
use zonal_io::buffer::IoBuf;
use zonal_io::clock::Clock;
use zonal_io::registry::Registry;
use zonal_io::volume::{Driver, Request, Volume, VolumeOptions, WriteMode, report};

const ZONE: u64 = 2048;
const PARK_TIME: Duration = Duration::from_millis(10);

fn volume(device: &str, options: VolumeOptions) -> Arc<Volume> {
    Arc::new(Volume::open(Registry::default().open(device).unwrap(), options).unwrap())
}

fn polled(mode: WriteMode) -> Arc<Volume> {
    let options = VolumeOptions { mode: Some(mode), ..VolumeOptions::default() };
    volume("null:size=64M,zone_size=1M,complete=poll", options)
}

fn write(zone: u64, at: u64, sectors: u32) -> Request {
    Request::write(Sector(zone * ZONE + at), sectors, IoBuf::zeroed(sectors * 512))
}

/// How long a write ahead of the pointer takes to fail, by `clock`, while a driver polls.
fn time_of_parked_write(volume: &Volume, clock: Clock) -> Duration {
    let (sender, ended) = mpsc::channel();
    let channel = volume.channel(move |completion| drop(sender.send(completion.result)));
    let begin = Instant::now();
    volume.submit(clock.now(), &channel, write(3, 8, 8));
    let result = ended.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(matches!(result, Err(RequestError::PredecessorMissing { .. })), "{result:?}");
    begin.elapsed()
}

#[test]
fn parked_write_ends_in_time_whenever_driver_and_clock_began() {
    let park = Some(ParkOptions { time: Nanos(PARK_TIME.as_nanos() as u64), ..ParkOptions::default() });
    let options = VolumeOptions { park, ..VolumeOptions::default() };
    let apart = Duration::from_millis(1500);
    for is_clock_first in [true, false] {
        let volume = volume("null:size=64M,zone_size=1M", options);
        let clock = Clock::start();
        if is_clock_first {
            sleep(apart);
        }
        let driver = Driver::start(volume.clone(), clock).unwrap();
        if !is_clock_first {
            sleep(apart);
        }
        let took = time_of_parked_write(&volume, clock);
        assert!((PARK_TIME..Duration::from_secs(1)).contains(&took), "{is_clock_first}: {took:?}");
        drop(driver);
    }
}

#[test]
fn direct_user_beside_a_driver_is_answered() {
    let volume = polled(WriteMode::PerZone);
    let clock = Clock::start();
    let _driver = Driver::start(volume.clone(), clock).unwrap();
    for _ in 0..1000 {
        assert_eq!(report(&**volume.device(), Sector(0), 4).unwrap().len(), 4);
    }
}

#[test]
fn direct_users_take_nothing_from_writers() {
    let volume = polled(WriteMode::PerZone);
    let (clock, is_over) = (Clock::start(), AtomicBool::new(false));
    scope(|threads| {
        let writers: Vec<_> = (0..2)
            .map(|zone| {
                let volume = &volume;
                threads.spawn(move || {
                    for n in 0..1000 {
                        volume.call(&clock, write(zone, n, 1)).result.unwrap();
                    }
                })
            })
            .collect();
        let reporters: Vec<_> = (0..2)
            .map(|_| {
                let (volume, is_over) = (&volume, &is_over);
                threads.spawn(move || {
                    let mut reports = 0;
                    while !is_over.load(Ordering::Acquire) || reports < 100 {
                        assert_eq!(report(&**volume.device(), Sector(0), 4).unwrap().len(), 4);
                        reports += 1;
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|w| w.join().unwrap());
        is_over.store(true, Ordering::Release);
        reporters.into_iter().for_each(|r| r.join().unwrap());
    });
    let zones = volume.report(&clock, Sector(0), 2).unwrap();
    assert_eq!(
        [zones[0].write_pointer, zones[1].write_pointer],
        [Some(Sector(1000)), Some(Sector(ZONE + 1000))]
    );
}

#[test]
fn completions_that_a_direct_user_reaps_reach_the_volume() {
    let volume = polled(WriteMode::PerZone);
    let (sender, ended) = mpsc::channel();
    let channel = volume.channel(move |completion| drop(sender.send(completion.result)));
    (0..4).for_each(|zone| volume.submit(Nanos(0), &channel, write(zone, 0, 1)));
    // The device answers in order, so these come out first.
    report(&**volume.device(), Sector(0), 4).unwrap();
    assert!(ended.try_recv().is_err(), "no poll of the volume has delivered them");
    volume.poll(Nanos(1));
    assert!(ended.try_iter().take(4).filter(Result::is_ok).count() == 4);
}

/// The answer of one call may come before or after its owner looks: here always before, and by another thread.
#[test]
fn answer_that_another_poller_has_reaped_is_found() {
    let volume = polled(WriteMode::PerZone);
    let (clock, is_over) = (Clock::start(), AtomicBool::new(false));
    scope(|threads| {
        let poller = threads.spawn(|| {
            // Without a pause: it has nearly every completion.
            while !is_over.load(Ordering::Acquire) {
                volume.poll(clock.now());
            }
        });
        (0..200).for_each(|_| drop(report(&**volume.device(), Sector(0), 4).unwrap()));
        is_over.store(true, Ordering::Release);
        poller.join().unwrap();
    });
}

#[test]
fn call_waits_for_its_end_and_gives_the_buffer_back() {
    for device in ["ram:size=64M,zone_size=1M", "ram:size=64M,zone_size=1M,complete=poll"] {
        let (volume, clock) = (volume(device, VolumeOptions::default()), Clock::start());
        let mut buf = IoBuf::zeroed(512);
        buf.fill(7);
        let written = volume.call(&clock, Request::write(Sector(0), 1, buf).token(5));
        assert_eq!((written.token, written.buf.len()), (5, 512));
        let read = volume.call(&clock, Request::read(Sector(0), 1, IoBuf::zeroed(512)));
        assert!(read.result.is_ok() && read.buf.iter().all(|&byte| byte == 7));
        let refused = volume.call(&clock, Request::zone(Op::ZoneReset, Sector(1))).result;
        assert!(refused.is_err(), "{device}");
    }
}
