//! A model around a real device in real time: data, order, errors and limits of the device, at the
//! speed of the model.
//!
//! The speed of a loaded machine is unknown, so a run may take longer than expected, but never
//! less.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zonal_core::{DeviceError, Nanos, Op, RequestError, SECTOR_BYTES, Sector, ZoneError, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::device::{Device, Output};
use zonal_io::emulated::{Emulated, EmulatedOptions, Null};
use zonal_io::fault::{Fault, InFlight, Plan};
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};
use zonal_io::sync::Mutex;
use zonal_io::volume::{Channel, Request, Volume, VolumeOptions, WriteMode};
use zonal_sim::{Job, Model, Profile, Timed};

const MIB: u64 = 1 << 20;
/// Sectors per write.
const BLOCK: u32 = 512;
/// Maximum wait for anything, after which a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

fn model(profile: &str, device: &dyn Device) -> Box<dyn Model> {
    Profile::open(profile, &[]).unwrap().model(device.info().geometry)
}

fn timed(profile: &str, inner: Arc<dyn Device>) -> Arc<Timed> {
    let model = model(profile, &*inner);
    Arc::new(Timed::new(inner, model))
}

fn create(path: &Path) {
    let options = ImageOptions::default().with_size(64 * MIB).with_zone_size(16 * MIB);
    options.create(path).unwrap();
}

fn image(path: &Path) -> Arc<dyn Device> {
    Arc::new(ImageDevice::open(path, &OpenOptions::default()).unwrap())
}

fn null(options: EmulatedOptions) -> Arc<dyn Device> {
    let options = options.with_size(64 * MIB).with_zone_size(16 * MIB);
    Arc::new(Emulated::new("null", &options, Null).unwrap())
}

type Ends = Vec<(u64, Result<Output, RequestError>, IoBuf)>;

/// A volume in real time, with the results of its requests.
struct Host {
    volume: Volume,
    channel: Channel,
    begin: Instant,
    ends: Arc<Mutex<Ends>>,
    given: u64,
}

impl Host {
    fn new(device: Arc<dyn Device>, mode: WriteMode) -> Host {
        let options = VolumeOptions::default().with_mode(mode).with_merge(false);
        let volume = Volume::open(device, options).unwrap();
        let ends: Arc<Mutex<Ends>> = Arc::default();
        let all = ends.clone();
        let channel = volume.channel(move |c| all.lock().push((c.token, c.result, c.buf.into_buf())));
        Host { volume, channel, begin: Instant::now(), ends, given: 0 }
    }

    fn now(&self) -> Nanos {
        Nanos(self.begin.elapsed().as_nanos() as u64)
    }

    fn submit(&mut self, request: Request) {
        self.volume.submit(self.now(), &self.channel, request.token(self.given));
        self.given += 1;
    }

    fn ended(&self) -> u64 {
        self.ends.lock().len() as u64
    }

    /// Polls until `ended` requests have completed.
    fn wait_for(&self, ended: u64) {
        let begin = Instant::now();
        while self.ended() < ended {
            assert!(begin.elapsed() < PATIENCE, "{} of {ended} have ended", self.ended());
            self.volume.poll(self.now());
            std::thread::yield_now();
        }
    }

    /// Writes `count` blocks of the zone at `start`, up to `depth` at a time. Returns the time it
    /// took.
    fn fill(&mut self, start: u64, count: u64, depth: u64) -> Duration {
        let begin = Instant::now();
        let before = self.given;
        for n in 0..count {
            self.wait_for((self.given + 1).saturating_sub(depth));
            let at = start + n * u64::from(BLOCK);
            self.submit(Request::write(Sector(at), BLOCK, block(at)));
        }
        self.wait_for(before + count);
        begin.elapsed()
    }

    fn take(&self) -> Ends {
        std::mem::take(&mut self.ends.lock())
    }
}

/// Test data for a position.
fn block(at: u64) -> IoBuf {
    let mut buf = IoBuf::zeroed(BLOCK * SECTOR_BYTES as u32);
    buf.chunks_exact_mut(8).zip(at * 64..).for_each(|(word, n)| word.copy_from_slice(&n.to_le_bytes()));
    buf
}

/// Completion time of the same writes in the model alone, with a host that takes no time.
fn alone(model: &mut dyn Model, start: u64, count: u64, depth: u64) -> Duration {
    let (mut given, mut ended, mut now) = (0, 0, Nanos(0));
    while ended < count {
        while given < count && given - ended < depth {
            let sector = Sector(start + given * u64::from(BLOCK));
            let job = Job { op: Op::Write, sector, sectors: BLOCK, fua: false, refused: false };
            model.submit(now, given as u32 % 32, &job);
            given += 1;
        }
        now = model.next().unwrap();
        model.run(now, &mut |_, _| ended += 1);
    }
    Duration::from_nanos(now.0)
}

/// A delay of the head by a moment may cost a full rotation. Since that is due to the machine's
/// load, the test may retry.
#[test]
fn image_in_a_disks_time_takes_as_long_as_the_disk_and_keeps_its_data() {
    const COUNT: u64 = 64;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("slow.zonal");
    let mut tries = Vec::new();
    for _ in 0..20 {
        let _ = std::fs::remove_file(&path);
        create(&path);
        let disk = timed("smr-hdd-30t", image(&path));
        let expected = alone(&mut *model("smr-hdd-30t", &*disk), 0, COUNT, 8);
        let mut host = Host::new(disk.clone(), WriteMode::PerZone);
        let took = host.fill(0, COUNT, 8);
        let ends = host.take();
        assert!(ends.iter().all(|(_, result, _)| *result == Ok(Output::Done)), "{ends:?}");
        assert!(ends.iter().map(|(token, ..)| *token).eq(0..COUNT), "a zone's writes end in order");
        // The cache holds the data not yet on the medium; the head spent its time on the rest.
        let totals = disk.totals();
        let is_on_medium = totals.written as f64 / (totals.written + totals.held) as f64;
        let at_least = Duration::from_nanos(totals.transferring).mul_f64(is_on_medium);
        // The initial angle of the disk is random.
        let turn = Duration::from_micros(8334);
        assert!(took >= at_least && took + turn >= expected, "{took:?} for {at_least:?}, {expected:?}");
        read_back(&mut host, COUNT);
        tries.push((took, expected));
        if took < expected.mul_f64(1.5) {
            return;
        }
    }
    panic!("much slower than the disk each time: {tries:?}");
}

fn read_back(host: &mut Host, count: u64) {
    let before = host.given;
    for n in 0..count {
        let buf = IoBuf::zeroed(BLOCK * SECTOR_BYTES as u32);
        host.submit(Request::read(Sector(n * u64::from(BLOCK)), BLOCK, buf));
        host.wait_for(n + 1);
    }
    for (token, result, buf) in host.take() {
        let at = (token - before) * u64::from(BLOCK);
        assert!(result == Ok(Output::Done) && *buf == *block(at), "sector {at}: {result:?}");
    }
}

/// Nothing rotates, so a delay never makes it faster: the bound is strict.
#[test]
fn null_device_in_a_flash_drives_time_is_never_faster_than_the_drive() {
    for (profile, depth) in [("ufs-zoned", 1), ("zns-1t", 1), ("zns-1t", 16)] {
        let drive = timed(profile, null(EmulatedOptions::default()));
        // One write per zone is at the drive, however many wait.
        let expected = alone(&mut *model(profile, &*drive), 0, 60, 1);
        let took = Host::new(drive, WriteMode::PerZone).fill(0, 60, depth);
        assert!(took >= expected, "{profile} at depth {depth}: {took:?} for {expected:?}");
    }
}

/// A reset takes longer the more data is in the zone, also if the data is older than the simulation.
#[test]
fn reset_of_a_zone_with_older_data_takes_its_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.zonal");
    create(&path);
    Host::new(image(&path), WriteMode::PerZone).fill(0, 32, 8);
    let mut registry = zonal_io::registry::Registry::default();
    zonal_sim::register(&mut registry);
    let mut host =
        Host::new(registry.open(&format!("timing:zns-1t+{}", path.display())).unwrap(), WriteMode::PerZone);
    let begin = Instant::now();
    host.submit(Request::zone(Op::ZoneReset, Sector(0)));
    host.wait_for(1);
    // 5 to 16.2 ms; the zone is full to a half.
    assert!(begin.elapsed() >= Duration::from_micros(10_600), "{:?}", begin.elapsed());
}

/// The device completes an append later, so that its place is not known when the model begins it.
#[test]
fn reset_of_a_zone_filled_by_appends_takes_its_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("appended.zonal");
    create(&path);
    let mut host = Host::new(timed("zns-1t", image(&path)), WriteMode::Append);
    for n in 0..32 {
        host.submit(Request::append(Sector(0), BLOCK, block(n)));
    }
    host.wait_for(32);
    let begin = Instant::now();
    host.submit(Request::zone(Op::ZoneReset, Sector(0)));
    host.wait_for(33);
    // 5 to 16.2 ms; the zone is full to a half.
    assert!(begin.elapsed() >= Duration::from_micros(10_600), "{:?}", begin.elapsed());
}

/// Appends to the last zone that was filled before, and appends that do not fit into it.
#[test]
fn appends_to_the_last_zone_stay_within_the_drive() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("last.zonal");
    create(&path);
    for profile in ["smr-hdd-26t", "zns-1t"] {
        let device = timed(profile, image(&path));
        let geometry = device.info().geometry;
        let last = geometry.start_of(ZoneIndex(geometry.zones() - 1));
        let fits = geometry.zone_capacity().0 / u64::from(BLOCK);
        let mut host = Host::new(device, WriteMode::Append);
        for _ in 0..3 {
            for n in 0..fits + 4 {
                host.submit(Request::append(last, BLOCK, block(n)));
            }
            host.wait_for(host.given);
            host.submit(Request::zone(Op::ZoneReset, last));
            host.wait_for(host.given);
        }
    }
}

#[test]
fn limits_and_errors_of_the_inner_device_are_passed_on_in_the_drives_time() {
    let options = EmulatedOptions::default().with_zone_max_open(2).with_zone_max_active(2);
    let inner = null(options);
    let drive = timed("zns-1t", inner.clone());
    assert!(!drive.insight().virtual_time);
    let (own, inner) = (drive.info(), inner.info());
    assert_eq!(
        (own.open_max, own.active_max, own.geometry),
        (inner.open_max, inner.active_max, inner.geometry)
    );
    let mut host = Host::new(drive, WriteMode::Direct);
    let zone = 16 * MIB / SECTOR_BYTES;
    for at in [0, zone, 2 * zone, u64::from(2 * BLOCK), u64::from(BLOCK)] {
        host.submit(Request::write(Sector(at), BLOCK, block(at)));
        assert_eq!(host.ended() + 1, host.given, "what is refused is not answered at once either");
        host.wait_for(host.given);
    }
    let refused = |error| Err(RequestError::Device(DeviceError::Zone(error)));
    let results: Vec<_> = host.take().into_iter().map(|(_, result, _)| result).collect();
    let (active, place) = (ZoneError::TooManyActive, ZoneError::InvalidWrite);
    assert_eq!(
        results,
        [Ok(Output::Done), Ok(Output::Done), refused(active), refused(place), Ok(Output::Done)]
    );
}

#[test]
fn power_cut_ends_each_waiting_command_once_and_keeps_finished_writes() {
    const COUNT: u64 = 24;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cut.zonal");
    create(&path);
    let fault = Arc::new(Fault::new(image(&path), Plan::default()));
    let mut host = Host::new(timed("smr-hdd-30t", fault.clone()), WriteMode::PerZone);
    for n in 0..COUNT {
        let at = n * u64::from(BLOCK);
        host.submit(Request::write(Sector(at), BLOCK, block(at)));
    }
    host.wait_for(4);
    fault.power_cut(InFlight::Fail);
    host.wait_for(COUNT);
    for _ in 0..100 {
        host.volume.poll(host.now());
    }
    let ends = host.take();
    let mut tokens: Vec<u64> = ends.iter().map(|(token, ..)| *token).collect();
    tokens.sort_unstable();
    assert!(tokens.iter().copied().eq(0..COUNT), "each ends once: {tokens:?}");
    let done = ends.iter().filter(|(_, result, _)| result.is_ok()).count() as u64;
    assert!((4..COUNT).contains(&done), "{done} were done when the power was cut");
    fault.restore();
    host.given = 0;
    read_back(&mut host, done);
}

#[test]
fn device_closed_while_commands_wait_opens_again_with_all_that_was_answered() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("closed.zonal");
    create(&path);
    let mut host = Host::new(timed("smr-hdd-30t", image(&path)), WriteMode::PerZone);
    for n in 0..24 {
        let at = n * u64::from(BLOCK);
        host.submit(Request::write(Sector(at), BLOCK, block(at)));
    }
    host.wait_for(4);
    let done = host.take().len() as u64;
    assert!(done < 24, "none waits");
    let ends = host.ends.clone();
    drop(host);
    assert!(ends.lock().iter().all(|(_, result, _)| result.is_ok()), "who is dropped tells no lies");
    let device = image(&path);
    let mut host = Host::new(device, WriteMode::PerZone);
    read_back(&mut host, done);
}
