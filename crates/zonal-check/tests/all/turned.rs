//! Zones become read-only and offline, and are restored, while requests run: every request ends
//! once, and acknowledged data is there.
//!
//! `ZONAL_TURNS` sets the number of rounds, `ZONAL_TURN_SEED` the first seed.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use zonal_check::rig::{payload, tags};
use zonal_core::{RequestError, Sector, ZoneCondition, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::changes::ZoneSetting;
use zonal_io::clock::Clock;
use zonal_io::device::{Device, Output};
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Ram};
use zonal_io::sync::Mutex;
use zonal_io::volume::{
    Completion, DeviceEvent, Request, Volume, VolumeOptions, WriteMode, read_alone, report,
};

const THREADS: usize = 4;
const REQUESTS: usize = 4000;
const ZONE: u64 = 16384;
/// Zone 0 is conventional. Zones before this one lose no data; the others go offline, too.
const LOSING: u32 = 4;
const ZONES: u32 = 6;
/// Longest time without any progress.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest sleep: a thread that is not woken in time makes no progress.
const SLEEP: Duration = Duration::from_secs(25);

/// Acknowledged writes: first sector, request, sectors.
type Acknowledged = Arc<Mutex<Vec<(Sector, u64, u32)>>>;

struct Writer {
    sent: HashMap<u64, (Option<Sector>, u32)>,
    acknowledged: Acknowledged,
    ended: Arc<AtomicUsize>,
}

impl Writer {
    fn note(&mut self, completion: &Completion) {
        let (at, sectors) = self.sent.remove(&completion.token).expect("a request ends once");
        let at = match (&completion.result, at) {
            (Ok(Output::Appended(at)), None) => Some(*at),
            (Ok(_), at) => at,
            (Err(_), _) => None,
        };
        self.acknowledged.lock().extend(at.map(|at| (at, completion.token, sectors)));
        self.ended.fetch_add(1, Ordering::Release);
    }
}

fn write(volume: &Volume, clock: &Clock, acknowledged: &Acknowledged, thread: u64, seed: u64) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed * 100 + thread);
    let ended = Arc::new(AtomicUsize::new(0));
    let writer = Writer { sent: HashMap::new(), acknowledged: acknowledged.clone(), ended: ended.clone() };
    let writer = Arc::new(Mutex::new(writer));
    let noted = writer.clone();
    let channel = volume.channel(move |completion| noted.lock().note(&completion));
    let drain = |sent: usize, depth: usize| {
        let since = Instant::now();
        while sent - ended.load(Ordering::Acquire) > depth {
            if volume.poll(clock.now()).is_none() {
                volume.wait_unless(SLEEP, || sent - ended.load(Ordering::Acquire) <= depth);
            }
            assert!(since.elapsed() < PATIENCE, "stuck: {:?}", volume.plugs());
        }
    };
    for n in 0..REQUESTS {
        let zone = rng.random_range(1..ZONES);
        let start = Sector(u64::from(zone) * ZONE);
        let sectors = rng.random_range(1..=8u32);
        let token = thread << 32 | n as u64;
        let place = volume.write_pointer(ZoneIndex(zone)).filter(|at| at.0 + 8 <= start.0 + ZONE);
        let (request, at) = match place {
            Some(at) if rng.random_ratio(1, 3) => {
                (Request::write(at, sectors, payload(token, sectors)), Some(at))
            }
            _ => (Request::append(start, sectors, payload(token, sectors)), None),
        };
        writer.lock().sent.insert(token, (at, sectors));
        volume.submit(clock.now(), &channel, request.token(token));
        drain(n + 1, 16);
    }
    drain(REQUESTS, 0);
    assert!(writer.lock().sent.is_empty());
}

fn turn(device: &dyn Device, is_over: &AtomicBool, seed: u64) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    while !is_over.load(Ordering::Acquire) {
        let zone = rng.random_range(1..ZONES);
        let to = match rng.random_range(0..4) {
            0 => ZoneSetting::ReadOnly,
            1 if zone >= LOSING => ZoneSetting::Offline,
            _ => ZoneSetting::Restored,
        };
        // Fails if an offline zone should become read-only, or if the limit keeps a zone from
        // becoming active again.
        let _ = device.set_zone(ZoneIndex(zone), to);
        std::thread::sleep(Duration::from_micros(rng.random_range(0..400)));
    }
}

/// Waits until the volume is at rest, and reads the pending events.
fn rest(
    volume: &Volume,
    clock: &Clock,
    last: &mut HashMap<u32, ZoneCondition>,
    events: &zonal_io::volume::Events,
) {
    let until = Instant::now() + Duration::from_millis(5);
    while volume.poll(clock.now()).is_some() || Instant::now() < until {}
    for event in std::iter::from_fn(|| events.next()) {
        let DeviceEvent::Zone { zone, condition } = event else { panic!("{event:?}") };
        last.insert(zone.0, condition);
    }
}

fn round(mode: WriteMode, complete: CompleteMode, seed: u64) {
    let options = EmulatedOptions::default()
        .with_size(u64::from(ZONES) * ZONE * 512)
        .with_zone_size(ZONE * 512)
        .with_zone_nr_conv(1)
        .with_zone_max_active(if seed.is_multiple_of(2) { 0 } else { 4 })
        .with_max_sectors(16)
        .with_zone_append_max_sectors(8)
        .with_complete(complete)
        .with_hw_queue_depth(4)
        .with_submit_queues(1 + seed as u32 % 3)
        .with_preserves_write_order(seed.is_multiple_of(2));
    let ram = Ram::new(&options.geometry().unwrap());
    let drive = Arc::new(Emulated::new("turned", &options, ram).unwrap());
    let options = VolumeOptions::default().with_mode(mode).with_force(true);
    let volume = Volume::open(drive.clone(), options).unwrap();
    let (clock, events, mut last) = (Clock::start(), volume.events(), HashMap::new());
    let (acknowledged, is_over) = (Acknowledged::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS as u64)
            .map(|thread| {
                scope.spawn({
                    let (volume, clock, acknowledged) = (&volume, &clock, &acknowledged);
                    move || write(volume, clock, acknowledged, thread, seed)
                })
            })
            .collect();
        let head = scope.spawn(|| turn(&*drive, &is_over, seed));
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Ordering::Release);
        head.join().unwrap();
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    for zone in 1..ZONES {
        let _ = drive.set_zone(ZoneIndex(zone), ZoneSetting::ReadOnly);
    }
    rest(&volume, &clock, &mut last, &events);
    for zone in report(&*drive, Sector(0), ZONES).unwrap().iter().skip(1) {
        let worn = [ZoneCondition::ReadOnly, ZoneCondition::Offline].contains(&zone.condition);
        assert!(worn, "{mode}: {zone:?}");
        assert_eq!(
            last.get(&zone.zone.0),
            Some(&zone.condition),
            "{mode}: the last that was told of {}",
            zone.zone
        );
        assert_eq!(volume.write_pointer(zone.zone), None, "{mode}: {}", zone.zone);
    }
    let kept = |at: Sector| at.0 < u64::from(LOSING) * ZONE;
    let acknowledged: Vec<_> = acknowledged.lock().iter().filter(|(at, ..)| kept(*at)).copied().collect();
    assert!(!acknowledged.is_empty(), "{mode}: no write succeeded");
    for (at, token, sectors) in acknowledged {
        let (bytes, result) = read_alone(&*drive, at, IoBuf::zeroed(sectors * 512));
        assert_eq!(result, Ok(()), "{mode}");
        let expected: Vec<_> = (0..u64::from(sectors)).map(|n| (token, n)).collect();
        assert_eq!(tags(&bytes), expected, "{mode}: at {at}");
    }
    drive.zones().check().unwrap();
    // Three of them may be active again under either limit.
    for zone in 1..LOSING {
        drive.set_zone(ZoneIndex(zone), ZoneSetting::Restored).unwrap();
        rest(&volume, &clock, &mut last, &events);
        let start = Sector(u64::from(zone) * ZONE);
        let append = volume.call(&clock, Request::append(start, 4, payload(1, 4))).result;
        let is_full = append == Err(RequestError::ZoneFull { zone: ZoneIndex(zone) });
        assert!(
            append.is_ok() || is_full && last[&zone] == ZoneCondition::Full,
            "{mode}: {append:?}, {last:?}"
        );
    }
    drive.zones().check().unwrap();
    assert_eq!(volume.plugs().iter().map(|p| p.flags + p.pending).sum::<u32>(), 0, "{:?}", volume.plugs());
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}={v}")))
}

#[test]
fn zones_changed_under_load_keep_acknowledged_data() {
    let first = number("ZONAL_TURN_SEED", 0);
    for seed in first..first + number("ZONAL_TURNS", 2) {
        for mode in WriteMode::ALL.into_iter().filter(|mode| *mode != WriteMode::Direct) {
            for complete in [CompleteMode::Inline, CompleteMode::Poll] {
                round(mode, complete, seed);
            }
        }
    }
}
