//! Volumes with several callers: common clock, blocking calls, direct users of the device, changes
//! of options.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use zonal_core::plug::ParkOptions;
use zonal_core::{Nanos, Op, RequestError, Sector};
use zonal_io::buffer::IoBuf;
use zonal_io::clock::Clock;
use zonal_io::control::VolumeFacts;
use zonal_io::registry::Registry;
use zonal_io::volume::{
    Driver, OptionKey, Qd1Quantum, Request, SetBy, SetError, SwitchError, Volume, VolumeOptions, WriteMode,
    drive, report,
};

const ZONE: u64 = 2048;
const PARK_TIME: Duration = Duration::from_millis(10);

fn volume(device: &str, options: VolumeOptions) -> Arc<Volume> {
    Arc::new(Volume::open(Registry::default().open(device).unwrap(), options).unwrap())
}

fn polled(mode: WriteMode) -> Arc<Volume> {
    let options = VolumeOptions::default().with_mode(mode);
    volume("null:size=64M,zone_size=1M,complete=poll", options)
}

fn write(zone: u64, at: u64, sectors: u32) -> Request {
    Request::write(Sector(zone * ZONE + at), sectors, IoBuf::zeroed(sectors * 512))
}

/// Time until a write ahead of the write pointer fails, by `clock`, while a driver polls.
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
    let park = Some(ParkOptions::default().with_time(Nanos(PARK_TIME.as_nanos() as u64)));
    let options = VolumeOptions::default().with_park(park);
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

/// Deadline of parked writes in the tests of [`Volume::wait`]: far off, since time stands still in
/// them.
const FAR: Nanos = Nanos(1_000_000_000_000);

/// Volume without a deadline, as the last poll of the calling thread returned.
fn volume_polled_without_deadline() -> Arc<Volume> {
    let park = Some(ParkOptions::default().with_time(FAR));
    let volume = volume("null:size=64M,zone_size=1M", VolumeOptions::default().with_park(park));
    assert_eq!(volume.poll(Nanos(0)), None);
    volume
}

/// Parks a write, which gives the volume a deadline.
fn park(volume: &Volume) {
    volume.submit(Nanos(0), &volume.channel(drop), write(3, 8, 8));
}

/// Duration of a wait with a timeout of ten seconds.
fn time_of_wait(volume: &Volume) -> Duration {
    let begin = Instant::now();
    volume.wait(Duration::from_secs(10));
    begin.elapsed()
}

#[test]
fn earlier_deadline_shortens_the_sleep_of_a_thread() {
    let volume = volume_polled_without_deadline();
    scope(|threads| threads.spawn(|| park(&volume)).join().unwrap());
    let took = time_of_wait(&volume);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(volume.poll(Nanos(0)), Some(FAR));
}

/// A poll returns its deadline only to its own thread, even if another thread has the same queue.
#[test]
fn earlier_deadline_returned_to_another_thread_shortens_the_sleep() {
    let volume = volume_polled_without_deadline();
    scope(|threads| {
        let other = || {
            park(&volume);
            assert_eq!(volume.poll(Nanos(0)), Some(FAR));
        };
        threads.spawn(other).join().unwrap();
    });
    let took = time_of_wait(&volume);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn thread_that_polled_the_earliest_deadline_is_not_woken_early() {
    let volume = volume_polled_without_deadline();
    park(&volume);
    assert_eq!(volume.poll(Nanos(0)), Some(FAR));
    for _ in 0..3 {
        let begin = Instant::now();
        volume.wait(Duration::from_millis(20));
        assert!(begin.elapsed() >= Duration::from_millis(20), "woken for nothing");
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
    // The device completes in order, so these are reaped first.
    report(&**volume.device(), Sector(0), 4).unwrap();
    assert!(ended.try_recv().is_err(), "no poll of the volume has delivered them");
    volume.poll(Nanos(1));
    assert!(ended.try_iter().take(4).filter(Result::is_ok).count() == 4);
}

/// A result may be stored before or after its owner looks: here always before, and by another
/// thread.
#[test]
fn answer_that_another_poller_has_reaped_is_found() {
    let volume = polled(WriteMode::PerZone);
    let (clock, is_over) = (Clock::start(), AtomicBool::new(false));
    scope(|threads| {
        let poller = threads.spawn(|| {
            // Without pauses, so it reaps nearly every completion.
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
        assert!(read.result.is_ok() && read.buf.into_buf().iter().all(|&byte| byte == 7));
        let refused = volume.call(&clock, Request::zone(Op::ZoneReset, Sector(1))).result;
        assert!(refused.is_err(), "{device}");
    }
}

/// Polls until the requested mode and window are in force.
fn settle(volume: &Volume, clock: Clock, is_settled: impl Fn(&VolumeOptions) -> bool) {
    let is_over = AtomicBool::new(false);
    scope(|threads| {
        threads.spawn(|| drive(volume, &is_over, || clock.now()));
        let begin = Instant::now();
        while !is_settled(&volume.options()) {
            assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", volume.options());
            sleep(Duration::from_millis(1));
        }
        is_over.store(true, Ordering::Release);
    });
}

#[test]
fn options_of_a_running_volume_change() {
    let (volume, clock) = (polled(WriteMode::PerZone), Clock::start());
    let by = |key| volume.options().setters.of(key);
    assert_eq!(by(OptionKey::Window), SetBy::Default);
    volume
        .set_options(&"window=3 merge=no qd1_quantum=1M,2ms nr_requests=7 force=yes".parse().unwrap())
        .unwrap();
    let options = volume.options();
    assert_eq!((options.window, options.merge, options.nr_requests, options.force), (3, false, 7, true));
    assert_eq!(options.qd1_quantum, Qd1Quantum { bytes: 1 << 20, time: Nanos(2_000_000) });
    assert_eq!((by(OptionKey::Window), by(OptionKey::Park)), (SetBy::Running, SetBy::Default));
    // In mode pipelined the window waits for commands in flight, and the reason of the mode stays.
    volume.set_options(&"mode=pipelined window=4".parse().unwrap()).unwrap();
    settle(&volume, clock, |o| (o.mode, o.window) == (Some(WriteMode::Pipelined), 4));
    volume.set_options(&"window=5".parse().unwrap()).unwrap();
    settle(&volume, clock, |o| o.window == 5);
    let facts = VolumeFacts::of(&volume);
    let window = facts.options.iter().find(|o| o.name == "window").unwrap();
    assert_eq!((window.value.as_str(), window.set_by.as_str()), ("5", "set while running"));

    let refused = |text: &str| volume.set_options(&text.parse().unwrap()).unwrap_err();
    assert_eq!(refused("budget=none merge=yes"), SetError::Budget);
    assert_eq!(refused("mode=direct merge=yes"), SetError::Mode(SwitchError::Direct));
    assert!(!volume.options().merge, "a refusal changes nothing");
}

#[test]
fn window_changes_while_writes_are_in_flight() {
    let options = VolumeOptions::default().with_mode(WriteMode::Pipelined).with_force(true);
    let volume = volume("null:size=64M,zone_size=1M,complete=poll", options);
    let (clock, is_over) = (Clock::start(), AtomicBool::new(false));
    let (sender, ended) = mpsc::channel();
    let channel = volume.channel(move |completion| drop(sender.send(completion.result)));
    scope(|threads| {
        threads.spawn(|| drive(&volume, &is_over, || clock.now()));
        for n in 0..2000 {
            volume.submit(clock.now(), &channel, write(1, n, 1));
            if n % 50 == 0 {
                volume.set_options(&format!("window={}", 1 + n % 16).parse().unwrap()).unwrap();
            }
        }
        let results: Vec<_> =
            (0..2000).map(|_| ended.recv_timeout(Duration::from_secs(20)).unwrap()).collect();
        assert!(results.iter().all(Result::is_ok));
        is_over.store(true, Ordering::Release);
    });
}

#[test]
fn merging_stops_when_it_is_switched_off() {
    let (volume, clock) = (polled(WriteMode::PerZone), Clock::start());
    let merged = |volume: &Volume| {
        let before = volume.statistics().merged;
        let zone = if before == 0 { 1 } else { 2 };
        let channel = volume.channel(|completion| drop(completion.result.unwrap()));
        (0..8).for_each(|n| volume.submit(clock.now(), &channel, write(zone, n, 1)));
        // Completes after the earlier writes.
        volume.call(&clock, write(zone, 8, 1)).result.unwrap();
        volume.statistics().merged - before
    };
    assert!(merged(&volume) > 0);
    volume.set_options(&"merge=no".parse().unwrap()).unwrap();
    assert_eq!(merged(&volume), 0);
}

#[test]
fn disabling_parking_does_not_affect_already_parked_writes() {
    let volume = volume("null:size=64M,zone_size=1M", VolumeOptions::default());
    let clock = Clock::start();
    let (sender, ended) = mpsc::channel();
    let channel = volume.channel(move |completion| drop(sender.send(completion.result)));
    volume.submit(clock.now(), &channel, write(1, 8, 8));
    volume.set_options(&"park=none".parse().unwrap()).unwrap();
    volume.submit(clock.now(), &channel, write(2, 8, 8));
    let refused = ended.try_recv().unwrap();
    assert!(matches!(refused, Err(RequestError::NotAtWritePointer { .. })), "{refused:?}");
    volume.call(&clock, write(1, 0, 8)).result.unwrap();
    assert!(ended.recv_timeout(Duration::from_secs(5)).unwrap().is_ok(), "its predecessor came");
}

#[test]
fn shortened_parking_time_applies_to_already_parked_writes() {
    let volume = volume("null:size=64M,zone_size=1M", VolumeOptions::default());
    let clock = Clock::start();
    let (sender, ended) = mpsc::channel();
    let channel = volume.channel(move |completion| drop(sender.send(completion.result)));
    volume.set_options(&"park=1M,1000s".parse().unwrap()).unwrap();
    volume.submit(clock.now(), &channel, write(3, 8, 8));
    volume.set_options(&"park=1M,10ms".parse().unwrap()).unwrap();
    let _driver = Driver::start(volume.clone(), clock).unwrap();
    assert!(ended.recv_timeout(Duration::from_secs(5)).unwrap().is_err());
}
