//! Verify, offline and discard, on every kind of device and in every write mode.

use std::path::Path;
use std::sync::Arc;
use zonal_core::{
    DeviceError, Nanos, Op, Personality, RequestError, Sector, ZoneCondition, ZoneError, ZoneIndex,
};
use zonal_io::buffer::IoBuf;
use zonal_io::changes::ZoneSetting;
use zonal_io::clock::Clock;
use zonal_io::device::{Command, Device, Output};
use zonal_io::fault::{BadRange, Degraded, Fault, Plan};
use zonal_io::image::ImageOptions;
use zonal_io::registry::Registry;
use zonal_io::volume::{Request, Volume, VolumeOptions, WriteMode, keeps_data, run_alone};

/// Sectors of a zone; the first two zones are conventional.
const ZONE: u64 = 2048;
const ZONES: u64 = 8;

const MODES: [WriteMode; 6] = [
    WriteMode::Direct,
    WriteMode::PerZone,
    WriteMode::Append,
    WriteMode::Pipelined,
    WriteMode::Qd1,
    WriteMode::ZoneLock,
];

fn registry() -> Registry {
    let mut registry = Registry::default();
    zonal_sim::register(&mut registry);
    registry
}

/// One device of each kind, with eight zones of 1 MiB.
fn devices(dir: &Path, personality: Personality) -> Vec<Arc<dyn Device>> {
    let name = match personality {
        Personality::Zns => "zns",
        Personality::Zbc => "zbc",
    };
    let shape = |size: &str, conventional: u32| {
        format!("size={size},zone_size=1M,zone_nr_conv={conventional},personality={name}")
    };
    let (whole, front, rest) = (shape("8M", 2), shape("3M", 2), shape("5M", 0));
    let path = dir.join(name);
    let image = ImageOptions::default()
        .with_size(8 << 20)
        .with_zone_size(1 << 20)
        .with_zone_nr_conv(2)
        .with_personality(personality);
    image.create(&path).unwrap();
    let image = path.display();
    let names = [
        format!("null:{whole}"),
        format!("null:{whole},complete=poll,preserves_write_order=1"),
        format!("ram:{whole}"),
        format!("ram:{whole},complete=poll,submit_queues=2"),
        format!("image:{image},preserves_write_order=1"),
        format!("fault:busy=0.1+ram:{whole}"),
        format!("linear:zone=0,zones=8+ram:{}", shape("9M", 2)),
        format!("concat:[ram:{front}][null:{rest}]"),
        format!("timing:smr-hdd-30t+ram:{whole}"),
        format!("timing:zns-1t+ram:{whole}"),
    ];
    names.iter().map(|name| registry().open(name).unwrap_or_else(|e| panic!("{name}: {e}"))).collect()
}

fn each_device(test: impl Fn(Arc<dyn Device>)) {
    for personality in [Personality::Zns, Personality::Zbc] {
        let dir = tempfile::tempdir().unwrap();
        for device in devices(dir.path(), personality) {
            test(device);
        }
    }
}

/// Runs `test` on a volume in each mode that fits the device.
fn each_volume(test: impl Fn(&Volume, &Clock)) {
    for mode in MODES {
        each_device(|device| {
            if mode.fits(device.info()).is_ok() {
                let options = VolumeOptions::default().with_mode(mode);
                test(&Volume::open(device, options).unwrap(), &Clock::start());
            }
        });
    }
}

fn at(zone: u64, offset: u64) -> Sector {
    Sector(zone * ZONE + offset)
}

fn run(device: &dyn Device, op: Op, sector: Sector, sectors: u32) -> Result<(), DeviceError> {
    let command = Command::new(op, sector, sectors);
    run_alone(device, &command).map(|output| assert_eq!(output, Output::Done))
}

fn condition(device: &dyn Device, zone: u64) -> ZoneCondition {
    zonal_io::volume::report(device, at(zone, 0), 1).unwrap()[0].condition
}

fn call(volume: &Volume, clock: &Clock, request: Request) -> Result<(), RequestError> {
    volume.call(clock, request).result.map(drop)
}

fn filled(sectors: u32, byte: u8) -> IoBuf {
    let mut buf = IoBuf::zeroed(sectors * 512);
    buf.fill(byte);
    buf
}

fn write(volume: &Volume, clock: &Clock, sector: Sector, sectors: u32, byte: u8) {
    call(volume, clock, Request::write(sector, sectors, filled(sectors, byte))).unwrap();
}

#[test]
fn verify_looks_where_a_read_does_and_needs_no_buffer() {
    each_device(|device| {
        let (device, name) = (&*device, device.info().name.clone());
        run(device, Op::WriteZeroes, at(2, 0), 64).unwrap();
        let verify = |sector, sectors| run(device, Op::Verify, sector, sectors);
        for sector in [at(0, 8), at(2, 0), at(2, 40), at(3, 0)] {
            assert_eq!(verify(sector, 64), Ok(()), "{name}");
        }
        assert_eq!(verify(at(2, ZONE - 8), 16), Err(ZoneError::Boundary.into()), "{name}");
        assert_eq!(verify(at(ZONES, 0), 8), Err(DeviceError::OutOfRange), "{name}");
        assert_eq!(verify(at(2, 0), 0), Err(DeviceError::InvalidField), "{name}");
        device.set_zone(ZoneIndex(2), ZoneSetting::ReadOnly).unwrap();
        assert_eq!(verify(at(2, 0), 64), Ok(()), "{name}");
        device.set_zone(ZoneIndex(2), ZoneSetting::Offline).unwrap();
        assert_eq!(verify(at(2, 0), 64), Err(ZoneError::Offline.into()), "{name}");
    });
}

#[test]
fn verify_through_a_volume_is_split_as_a_read_is() {
    each_volume(|volume, clock| {
        let name = &volume.info().name;
        let most = volume.info().verify_sectors_max;
        assert!(most > 0 && u64::from(most) < 3 * ZONE, "{name}");
        // Three zones, conventional and sequential ones, in several commands.
        assert_eq!(call(volume, clock, Request::verify(at(1, 8), 3 * ZONE as u32)), Ok(()), "{name}");
        volume.device().set_zone(ZoneIndex(3), ZoneSetting::Offline).unwrap();
        let offline = RequestError::Device(ZoneError::Offline.into());
        assert_eq!(call(volume, clock, Request::verify(at(1, 8), 3 * ZONE as u32)), Err(offline), "{name}");
        assert_eq!(call(volume, clock, Request::verify(at(1, 8), ZONE as u32)), Ok(()), "{name}");
    });
}

#[test]
fn verify_meets_bad_sectors() {
    let fault =
        Fault::new(registry().open("ram:size=8M,zone_size=1M,zone_nr_conv=2").unwrap(), Plan::default());
    fault.change_bad_blocks(BadRange { is_bad: true, first: 100, last: 107 });
    assert_eq!(run(&fault, Op::Verify, Sector(92), 8), Ok(()));
    assert_eq!(run(&fault, Op::Verify, Sector(92), 16), Err(DeviceError::Medium));
    assert_eq!(run(&fault, Op::Verify, Sector(108), 16), Ok(()));
}

#[test]
fn offline_command_takes_read_only_zones_of_zns_and_is_unknown_to_zbc() {
    each_device(|device| {
        let (device, name) = (&*device, device.info().name.clone());
        let offline = |zone| run(device, Op::ZoneOffline, at(zone, 0), 0);
        run(device, Op::WriteZeroes, at(3, 0), 64).unwrap();
        device.set_zone(ZoneIndex(4), ZoneSetting::ReadOnly).unwrap();
        if device.info().personality == Personality::Zbc {
            for zone in 0..5 {
                assert_eq!(offline(zone), Err(DeviceError::Unsupported), "{name}");
            }
            return;
        }
        assert!(matches!(offline(0), Err(DeviceError::Zone(ZoneError::Conventional))), "{name}");
        for zone in [2, 3] {
            assert_eq!(offline(zone), Err(ZoneError::InvalidTransition.into()), "{name}");
        }
        assert_eq!(run(device, Op::ZoneOffline, at(4, 8), 0), Err(DeviceError::InvalidField), "{name}");
        assert_eq!((offline(4), condition(device, 4)), (Ok(()), ZoneCondition::Offline), "{name}");
        assert_eq!(offline(4), Ok(()), "{name}");
    });
}

#[test]
fn offline_command_takes_a_zone_that_fell_in_front_of_its_device() {
    for (personality, answer) in [("zns", Ok(())), ("zbc", Err(DeviceError::Unsupported))] {
        let name = format!("ram:size=8M,zone_size=1M,personality={personality}");
        let fault = Fault::new(registry().open(&name).unwrap(), Plan::default());
        fault.degrade(ZoneIndex(4), Degraded::ReadOnly).unwrap();
        assert_eq!(run(&fault, Op::ZoneOffline, at(4, 0), 0), answer);
        let after = if answer.is_ok() { ZoneCondition::Offline } else { ZoneCondition::ReadOnly };
        assert_eq!(condition(&fault, 4), after);
    }
}

#[test]
fn writes_after_an_offline_command_fail_with_zone_offline() {
    each_volume(|volume, clock| {
        if volume.info().personality == Personality::Zbc {
            let answer = call(volume, clock, Request::zone(Op::ZoneOffline, at(3, 0)));
            return assert_eq!(answer, Err(RequestError::Device(DeviceError::Unsupported)));
        }
        let name = &volume.info().name;
        write(volume, clock, at(3, 0), 16, 1);
        let refused = Err(RequestError::Device(ZoneError::InvalidTransition.into()));
        assert_eq!(call(volume, clock, Request::zone(Op::ZoneOffline, at(3, 0))), refused, "{name}");
        // Requests that waited for the answer continue.
        write(volume, clock, at(3, 16), 16, 2);
        volume.device().set_zone(ZoneIndex(3), ZoneSetting::ReadOnly).unwrap();
        assert_eq!(call(volume, clock, Request::zone(Op::ZoneOffline, at(3, 0))), Ok(()), "{name}");
        let after = call(volume, clock, Request::write(at(3, 32), 16, filled(16, 3)));
        let offline = match volume.mode().0 {
            WriteMode::Direct => RequestError::Device(ZoneError::Offline.into()),
            _ => RequestError::ZoneOffline { zone: ZoneIndex(3) },
        };
        assert_eq!(after, Err(offline), "{name}");
    });
}

#[test]
fn discarded_sectors_read_as_zeroes_and_their_neighbours_as_before() {
    each_volume(|volume, clock| {
        let name = &volume.info().name;
        let keeps_data = keeps_data(&**volume.device());
        let sectors = 2 * ZONE as u32;
        write(volume, clock, at(0, 0), sectors, 7);
        assert_eq!(call(volume, clock, Request::discard(at(0, 24), sectors - 48)), Ok(()), "{name}");
        let read = volume.call(clock, Request::read(at(0, 0), sectors, filled(sectors, 9)));
        assert_eq!(read.result, Ok(Output::Done), "{name}");
        if keeps_data {
            let fills: Vec<u8> = read.buf.into_buf().chunks(512).map(|sector| sector[0]).collect();
            let n = fills.len();
            assert!(fills[..24].iter().chain(&fills[n - 24..]).all(|&fill| fill == 7), "{name}");
            assert!(fills[24..n - 24].iter().all(|&fill| fill == 0), "{name}");
        }
        write(volume, clock, at(0, 64), 8, 5);
    });
}

#[test]
fn discard_that_reaches_a_sequential_zone_is_refused_and_names_it() {
    each_volume(|volume, clock| {
        let name = &volume.info().name;
        write(volume, clock, at(1, 0), 16, 7);
        for (sector, sectors, zone) in [(at(1, 0), ZONE as u32 + 8, 2), (at(4, 8), 8, 4)] {
            let refused = RequestError::Sequential { zone: ZoneIndex(zone) };
            assert!(refused.to_string().contains(&format!("zone {zone} ")));
            assert_eq!(call(volume, clock, Request::discard(sector, sectors)), Err(refused), "{name}");
        }
        let read = volume.call(clock, Request::read(at(1, 0), 16, filled(16, 7)));
        assert!(read.buf.into_buf().iter().all(|&byte| byte == 7), "{name}: nothing of it was discarded");
        let device = &**volume.device();
        if volume.mode().0 == WriteMode::Direct {
            assert_eq!(run(device, Op::Discard, at(4, 8), 8), Err(ZoneError::Sequential.into()), "{name}");
        }
    });
}

#[test]
fn verify_and_discard_fail_on_devices_without_them() {
    use zonal_check::rig::Rig;
    use zonal_check::script::{self, Script};
    use zonal_io::device::DeviceInfo;
    let info = DeviceInfo { verify_sectors_max: 0, discard_sectors_max: 0, ..script::info() };
    let script = Arc::new(Script::new(info));
    let rig = Rig::on(script, VolumeOptions::default());
    let unsupported = Some(Err(RequestError::Device(DeviceError::Unsupported)));
    for request in [Request::verify(Sector(64), 8), Request::discard(Sector(8), 8)] {
        let token = rig.submit(request);
        assert_eq!(rig.end(token), unsupported);
    }
    assert_eq!(rig.asked(), []);
    assert_eq!(rig.now(), Nanos(0));
}
