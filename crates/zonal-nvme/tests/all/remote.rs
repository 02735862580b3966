//! Remote drive as a device: against a server over sockets, and its queue against invalid input
//! from a controller.

use crate::host;
use crate::host::{NQN, target};
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zonal_core::{DeviceError, Op, RequestError, Sector, ZoneCondition, ZoneError, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::changes::{Changes, ZoneSetting};
use zonal_io::clock::Clock;
use zonal_io::device::conformance::{Options, check};
use zonal_io::device::{Command, Device, Output};
use zonal_io::registry::Registry;
use zonal_io::volume::{Request, Volume, VolumeOptions, WriteMode, report, run_alone};
use zonal_nvme::host::{HostOptions, HostQueue, OUTPUT_MAX};
use zonal_nvme::server::{Server, ServerOptions};
use zonal_nvme::subsystem::Target;
use zonal_nvme::wire::{Sqe, io};

const RAM: &str = "ram:size=64M,zone_size=4M,zone_capacity=3M,zone_nr_conv=2,zone_max_open=2,zone_max_active=3,blocksize=4096";
const SLOW: &str = "ram:size=64M,zone_size=4M,blocksize=4096,completion_nsec=300000000";
/// Sectors per zone and per block.
const ZONE: u64 = 8192;
const CAPACITY: u64 = 6144;
const BLOCK: u32 = 8;

struct Served {
    server: Option<Server>,
    target: Arc<Target>,
    address: SocketAddr,
}

impl Served {
    fn start(device: &str) -> Served {
        let target = target(device);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = ServerOptions::default().with_threads(2).with_polls(false);
        let has_to_end = Arc::new(AtomicBool::new(false));
        let server = Server::start(target.clone(), listener, Clock::start(), options, has_to_end).unwrap();
        Served { address: server.address(), server: Some(server), target }
    }

    fn name(&self, options: &str) -> String {
        format!("nvme-tcp://{}/{NQN}{options}", self.address)
    }

    fn open(&self, options: &str) -> Arc<dyn Device> {
        registry().open(&self.name(options)).unwrap()
    }

    fn end(&mut self) {
        if let Some(server) = self.server.take() {
            server.end();
            server.join().unwrap();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    zonal_nvme::host::register(&mut registry);
    registry
}

#[test]
fn remote_drive_conforms() {
    for device in [RAM, "ram:size=24M,zone_size=1M,complete=poll,zone_max_open=4"] {
        let served = Served::start(device);
        let report = check(&*served.open(""), &Options { steps: 200, ..Options::default() });
        assert!(report.is_conformant(), "{report}");
    }
}

/// Sends single requests, which reach the device unchanged.
struct Caller {
    volume: Volume,
    clock: Clock,
}

impl Caller {
    fn new(device: Arc<dyn Device>) -> Caller {
        let options = VolumeOptions::default().with_mode(WriteMode::Direct);
        Caller { volume: Volume::open(device, options).unwrap(), clock: Clock::start() }
    }

    fn call(&self, request: Request) -> Result<Output, RequestError> {
        self.volume.call(&self.clock, request).result
    }

    fn write(&self, sector: u64, sectors: u32) -> Result<Output, RequestError> {
        self.call(Request::write(Sector(sector), sectors, payload(sector, sectors)))
    }

    fn append(&self, zone: u64, sectors: u32) -> Result<Output, RequestError> {
        self.call(Request::append(Sector(zone * ZONE), sectors, payload(zone * ZONE, sectors)))
    }

    fn zone(&self, op: Op, zone: u64) -> Result<Output, RequestError> {
        self.call(Request::zone(op, Sector(zone * ZONE)))
    }

    fn read(&self, sector: u64, sectors: u32) -> Vec<u8> {
        let mut buf = IoBuf::zeroed(sectors * 512);
        buf.fill(0xEE);
        let finished = self.volume.call(&self.clock, Request::read(Sector(sector), sectors, buf));
        finished.result.unwrap();
        finished.buf.into_buf().to_vec()
    }

    fn condition(&self, zone: u64) -> ZoneCondition {
        report(&**self.volume.device(), Sector(zone * ZONE), 1).unwrap()[0].condition
    }
}

fn payload(sector: u64, sectors: u32) -> IoBuf {
    let mut buf = IoBuf::zeroed(sectors * 512);
    for (n, byte) in buf.iter_mut().enumerate() {
        *byte = (n / 13 + sector as usize) as u8;
    }
    buf
}

const DONE: Result<Output, RequestError> = Ok(Output::Done);

fn failed<T>(error: impl Into<DeviceError>) -> Result<T, RequestError> {
    Err(RequestError::Device(error.into()))
}

#[test]
fn remote_drive_has_the_facts_of_the_served_one() {
    let served = Served::start(RAM);
    let device = served.open(",submit_queues=3,hw_queue_depth=16");
    let info = device.info();
    assert_eq!((info.name.as_str(), info.queues), (&*served.name(",submit_queues=3,hw_queue_depth=16"), 3));
    assert_eq!(info.identity.map(|identity| identity.to_string()).as_deref(), Some(host::UUID));
    let geometry = info.geometry;
    assert_eq!((geometry.zones(), geometry.conventional_zones()), (14, 0));
    assert_eq!((geometry.zone_size().0, geometry.zone_capacity().0), (ZONE, CAPACITY));
    assert_eq!((info.block_sectors, info.open_max, info.active_max), (BLOCK, 2, 3));
    assert_eq!((info.command_sectors_max, info.append_sectors_max), (2048, 2048));
    assert!(info.write_zeroes_sectors_max > 0 && info.verify_sectors_max > 0 && info.fua);
    assert!(!info.volatile_cache && !info.rotational && !info.read_only && !info.keeps_order);
    assert_eq!(info.discard_sectors_max, 0);
    let conventional = served.open(",nsid=2,preserves_write_order=1");
    let info = conventional.info();
    assert_eq!((info.geometry.sectors().0, info.geometry.sequential_zones()), (2 * ZONE, 0));
    assert!(info.discard_sectors_max > 0 && info.append_sectors_max == 0 && info.keeps_order);
    let rest = Served::start("null:size=64M,zone_size=4M,rotational=1,fua=0");
    let device = rest.open("");
    let info = device.info();
    assert_eq!((info.block_sectors, info.open_max, info.active_max, info.rotational), (1, 0, 0, true));
}

#[test]
fn every_operation_works_on_a_remote_drive() {
    for options in
        ["", ",header_digest=1", ",data_digest=1", ",header_digest=1,data_digest=1,submit_queues=2"]
    {
        let served = Served::start(RAM);
        let caller = Caller::new(served.open(options));
        // In-capsule data, and more than fits in a capsule.
        assert_eq!((caller.write(0, 8), caller.write(8, 2048)), (DONE, DONE));
        assert_eq!(caller.read(0, 8), payload(0, 8).to_vec());
        assert_eq!(caller.read(8, 2048), payload(8, 2048).to_vec());
        assert_eq!(caller.append(1, 16), Ok(Output::Appended(Sector(ZONE))));
        assert_eq!(caller.append(1, 64), Ok(Output::Appended(Sector(ZONE + 16))));
        assert_eq!(caller.read(ZONE + 16, 64), payload(ZONE, 64).to_vec());
        assert_eq!(caller.call(Request::flush()), DONE);
        assert_eq!(caller.call(Request::write_zeroes(Sector(ZONE + 80), 24)), DONE);
        assert!(caller.read(ZONE + 80, 24).iter().all(|byte| *byte == 0));
        assert_eq!(caller.call(Request::verify(Sector(0), 512)), DONE);
        let write = Request::write(Sector(ZONE + 104), 8, payload(1, 8)).fua();
        assert_eq!(caller.call(write), DONE);
        for (op, condition) in [
            (Op::ZoneClose, ZoneCondition::Closed),
            (Op::ZoneOpen, ZoneCondition::ExpOpen),
            (Op::ZoneFinish, ZoneCondition::Full),
            (Op::ZoneReset, ZoneCondition::Empty),
        ] {
            assert_eq!((caller.zone(op, 1), caller.condition(1)), (DONE, condition), "{op:?}");
        }
        assert_eq!(caller.condition(0), ZoneCondition::ImpOpen);
        assert_eq!(caller.call(Request::reset_all()), DONE);
        assert_eq!(caller.condition(0), ZoneCondition::Empty);
    }
}

#[test]
fn ordinary_namespace_is_written_anywhere() {
    let served = Served::start(RAM);
    let caller = Caller::new(served.open(",nsid=2"));
    for sector in [ZONE + 8, 0, 8 * 77] {
        assert_eq!(caller.write(sector, 8), DONE);
        assert_eq!(caller.read(sector, 8), payload(sector, 8).to_vec());
    }
    assert_eq!(caller.call(Request::discard(Sector(0), 8)), DONE);
    assert!(caller.read(0, 8).iter().all(|byte| *byte == 0));
    assert_eq!(caller.read(8 * 77, 8), payload(8 * 77, 8).to_vec());
    let device = caller.volume.device();
    let zones = report(&**device, Sector(0), 10).unwrap();
    assert_eq!((zones.len(), zones[0].condition), (1, ZoneCondition::NotWp));
    let all = report(&**device, Sector(1 << 40), 1);
    assert_eq!(all.unwrap_err(), DeviceError::OutOfRange);
    assert_eq!(run(&**device, Op::ZoneReset, 0), Err(ZoneError::Conventional.into()));
}

fn run(device: &dyn Device, op: Op, sector: u64) -> Result<Output, DeviceError> {
    let sectors = if op == Op::Verify { BLOCK } else { 0 };
    run_alone(device, &Command::new(op, Sector(sector), sectors))
}

#[test]
fn refusals_are_mapped_to_device_errors() {
    let served = Served::start(RAM);
    let caller = Caller::new(served.open(""));
    assert_eq!(caller.write(8, 8), failed(ZoneError::InvalidWrite));
    assert_eq!(caller.zone(Op::ZoneClose, 0), failed(ZoneError::InvalidTransition));
    assert_eq!(caller.zone(Op::ZoneFinish, 0), DONE);
    assert_eq!(caller.append(0, 8), failed(ZoneError::Full));
    assert_eq!((caller.zone(Op::ZoneOpen, 1), caller.zone(Op::ZoneOpen, 2)), (DONE, DONE));
    assert_eq!(caller.append(3, 8), failed(ZoneError::TooManyOpen));
    assert_eq!(
        (caller.zone(Op::ZoneClose, 1), caller.append(3, 8)),
        (DONE, Ok(Output::Appended(Sector(3 * ZONE))))
    );
    assert_eq!(caller.append(4, 8), failed(ZoneError::TooManyActive));
    let device = &**caller.volume.device();
    assert_eq!(run(device, Op::Verify, 14 * ZONE), Err(DeviceError::OutOfRange));
    assert_eq!(run(device, Op::ZoneReset, 14 * ZONE), Err(DeviceError::OutOfRange));
    assert_eq!(run(device, Op::ZoneReset, 1), Err(DeviceError::InvalidField));
    assert_eq!(run(device, Op::Discard, 0), Err(ZoneError::Sequential.into()));
    assert_eq!(run(device, Op::Read, 0), Err(DeviceError::InvalidField), "a read without memory");
    let drive = served.target.volume().device();
    drive.set_zone(ZoneIndex(2 + 5), ZoneSetting::ReadOnly).unwrap();
    drive.set_zone(ZoneIndex(2 + 6), ZoneSetting::Offline).unwrap();
    assert_eq!(caller.append(5, 8), failed(ZoneError::ReadOnly));
    assert_eq!(run(device, Op::Verify, 6 * ZONE), Err(ZoneError::Offline.into()));
    assert_eq!((caller.zone(Op::ZoneOffline, 5), caller.condition(5)), (DONE, ZoneCondition::Offline));
}

#[test]
fn report_of_more_zones_than_a_command_fetches_has_all() {
    let served = Served::start("null:size=20G,zone_size=1M");
    let device = served.open("");
    run(&*device, Op::ZoneFinish, 20_000 * 2048).unwrap();
    let zones = report(&*device, Sector(2048), u32::MAX).unwrap();
    assert_eq!(zones.len(), 20 * 1024 - 1);
    assert!(zones.iter().zip(1..).all(|(zone, n)| zone.zone == ZoneIndex(n)));
    let full: Vec<_> = zones.iter().filter(|zone| zone.condition == ZoneCondition::Full).collect();
    assert_eq!(full.iter().map(|zone| zone.zone.0).collect::<Vec<_>>(), [20_000]);
    assert_eq!(report(&*device, Sector(5000), 3).unwrap().len(), 3);
}

#[test]
fn drive_that_is_opened_for_reading_refuses_changes() {
    let served = Served::start(RAM);
    Caller::new(served.open("")).write(0, 8).unwrap();
    let device = registry().open_to_read(&served.name("")).unwrap();
    assert!(device.info().read_only);
    for op in [Op::Write, Op::Append, Op::WriteZeroes, Op::ZoneReset, Op::ResetAll, Op::Discard] {
        assert_eq!(run(&*device, op, 0), Err(DeviceError::OpenedForReading), "{op:?}");
    }
    assert_eq!(
        (run(&*device, Op::Flush, 0), run(&*device, Op::Verify, 0)),
        (Ok(Output::Done), Ok(Output::Done))
    );
    assert_eq!(report(&*device, Sector(0), 1).unwrap()[0].condition, ZoneCondition::ImpOpen);
}

#[test]
fn attach_errors_state_the_cause() {
    let served = Served::start("null:size=64M,zone_size=4M");
    let refused = |name: &str| registry().open(name).err().unwrap().to_string();
    let said = refused(&served.name(",nsid=7"));
    assert!(said.contains("there is no namespace 7"), "{said}");
    let said = refused(&format!("nvme-tcp://{}/nqn.2020-01.b:other", served.address));
    assert!(said.contains("the controller refused the connection: status 0x4182"), "{said}");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let said = refused(&format!("nvme-tcp://{free}/{NQN}"));
    assert!(said.contains(&format!("cannot connect to {free}")), "{said}");
    for name in [
        "nvme-tcp:",
        "nvme-tcp://",
        "nvme-tcp://localhost:1/nqn",
        "nvme-tcp://[::1]:1/",
        "nvme-tcp://127.0.0.1/nqn",
    ] {
        assert!(registry().parse(name).is_err(), "{name}");
    }
    assert!(registry().parse("nvme-tcp://[::1]:4420/nqn.2020-01.b:other,nsid=0").is_err());
    assert!(registry().parse("nvme-tcp://[::1]:4420/nqn.2020-01.b:other,nsid=4").is_ok());
}

#[test]
fn zone_change_is_reported_to_the_host() {
    let served = Served::start(RAM);
    let device = served.open("");
    served.target.volume().device().set_zone(ZoneIndex(2 + 3), ZoneSetting::ReadOnly).unwrap();
    let since = Instant::now();
    while !device.has_changes() {
        assert!(since.elapsed() < Duration::from_secs(20), "it is not told");
        device.wait(0, Duration::from_millis(10));
    }
    let mut changes = Changes::default();
    device.take_changes(&mut changes);
    assert_eq!(changes.zones.into_keys().collect::<Vec<_>>(), [ZoneIndex(3)]);
}

/// Only the response can wake it: every other wake-up is due much later than the device completes.
#[test]
fn thread_that_sleeps_is_woken_by_an_answer() {
    let served = Served::start(SLOW);
    let device = served.open("");
    let volume = Volume::open(device, VolumeOptions::default()).unwrap();
    let clock = Clock::start();
    let inbox = volume.inbox();
    let since = Instant::now();
    volume.submit(clock.now(), inbox.channel(), Request::write(Sector(0), 8, payload(0, 8)));
    let mut news = volume.news().unwrap();
    let mut wakes = 0;
    let completion = loop {
        news.arm();
        volume.poll(clock.now());
        if let Some(completion) = inbox.take() {
            break completion;
        }
        news.sleep(Duration::from_secs(10));
        news.disarm();
        wakes += 1;
    };
    assert_eq!(completion.result, DONE);
    assert!((Duration::from_millis(300)..Duration::from_secs(5)).contains(&since.elapsed()));
    assert!(wakes < 20, "woken {wakes} times for one answer");
}

/// Starts a relay in front of a server. Holds back the server's answers while `is_held`.
fn relay(to: SocketAddr, is_held: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for host in listener.incoming() {
            let (host, server) = (host.unwrap(), TcpStream::connect(to).unwrap());
            let ways =
                [(host.try_clone().unwrap(), server.try_clone().unwrap(), false), (server, host, true)];
            for (mut from, mut to, is_answer) in ways {
                let is_held = is_held.clone();
                std::thread::spawn(move || {
                    let mut bytes = [0; 65536];
                    while let Ok(len @ 1..) = from.read(&mut bytes) {
                        while is_answer && is_held.load(Ordering::Acquire) {
                            std::thread::sleep(Duration::from_millis(10));
                        }
                        if to.write_all(&bytes[..len]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    address
}

/// An overloaded machine or network may delay answers by seconds.
#[test]
fn controller_that_answers_late_is_not_lost_and_a_silent_one_is() {
    let served = Served::start(RAM);
    let is_held = Arc::new(AtomicBool::new(false));
    let address = relay(served.address, is_held.clone());
    let device = registry().open(&format!("nvme-tcp://{address}/{NQN}")).unwrap();
    // Two intervals of keep alives, and some more.
    is_held.store(true, Ordering::Release);
    std::thread::sleep(Duration::from_secs(12));
    is_held.store(false, Ordering::Release);
    assert_eq!(report(&*device, Sector(0), 1).unwrap().len(), 1);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(device.gone_because(), None);
    is_held.store(true, Ordering::Release);
    let since = Instant::now();
    while device.gone_because().is_none() {
        assert!(since.elapsed() < Duration::from_secs(60), "it is not given up");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(since.elapsed() > Duration::from_secs(10), "after {:?}", since.elapsed());
    let said = device.gone_because().unwrap();
    assert!(said.contains("does not answer keep alives"), "{said}");
    assert_eq!(report(&*device, Sector(0), 1), Err(DeviceError::Gone));
    is_held.store(false, Ordering::Release);
}

fn queue() -> HostQueue<Vec<u8>> {
    HostQueue::new(8, HostOptions::default().with_header_digest(true).with_data_digest(true).with_unit_max(0))
}

/// Connection response with these digests and this PDU limit.
fn granted(digests: u8, data_max: u32) -> Vec<u8> {
    let mut unit = vec![0; 128];
    unit[..8].copy_from_slice(&[1, 0, 128, 0, 128, 0, 0, 0]);
    unit[11] = digests;
    unit[12..16].copy_from_slice(&data_max.to_le_bytes());
    unit
}

/// R2T for a range of command 0.
fn r2t(from: u32, len: u32) -> Vec<u8> {
    let mut unit = vec![9, 0, 24, 0, 24, 0, 0, 0, 0, 0, 5, 0];
    unit.extend([from.to_le_bytes(), len.to_le_bytes()].concat());
    unit.extend([0; 4]);
    unit
}

#[test]
fn output_stays_bounded_however_much_is_asked_for() {
    let mut queue = queue();
    queue.receive(&granted(0, 1 << 20)).unwrap();
    let sent = queue.output().len();
    queue.has_sent(sent);
    let data = vec![7; 64 << 20];
    assert_eq!(queue.submit(Sqe::new(io::WRITE, 1, [0; 6]).with_data(64 << 20), data), Ok(0));
    queue.receive(&r2t(0, 64 << 20)).unwrap();
    let mut total = 0;
    while !queue.output().is_empty() {
        let len = queue.output().len();
        assert!(len <= OUTPUT_MAX + (128 << 10) + 24, "{len}");
        queue.has_sent(len / 2 + 1);
        total += len / 2 + 1;
    }
    assert_eq!(total, 72 + (64 << 20) + 512 * 24);
}

#[test]
fn units_that_a_controller_may_not_send_end_the_queue() {
    let ended_with = |units: &[Vec<u8>]| {
        let mut queue = queue();
        let mut result = queue.receive(&granted(0, 8192));
        queue.submit(Sqe::new(io::WRITE, 1, [0; 6]).with_data(4096), vec![1; 4096]).unwrap();
        for unit in units {
            result = result.and_then(|()| queue.receive(unit));
        }
        let first = result.err().map(|error| error.to_string());
        assert_eq!(queue.receive(&[]).is_err(), first.is_some(), "it stays at its end");
        (first, queue.take_all().count())
    };
    assert_eq!(ended_with(&[r2t(0, 4096)]), (None, 1));
    for (units, error) in [
        (vec![r2t(0, 4097)], 4),
        (vec![r2t(u32::MAX, 4096)], 4),
        (vec![r2t(0, 0)], 4),
        (vec![granted(0, 8192)], 2),
        (vec![vec![5, 0, 24, 0, 25, 0, 0, 0]], 1),
        (vec![vec![4, 0, 72, 0, 72, 0, 0, 0]], 1),
        (vec![[vec![5, 0, 24, 0, 24, 0, 0, 0], vec![3; 16]].concat()], 1),
        (
            vec![
                [vec![7, 0, 24, 24, 28, 0, 0, 0], vec![0; 4], vec![1, 0, 0, 0, 4, 0, 0, 0], vec![0; 8]]
                    .concat(),
            ],
            4,
        ),
    ] {
        let (said, left) = ended_with(&units);
        let said = said.unwrap_or_else(|| panic!("{units:?} is taken"));
        assert!(said.contains(&format!("error {error} ")), "{units:?}: {said}");
        assert_eq!(left, 1, "the command in flight");
    }
    assert!(queue().receive(&granted(0, 4095)).is_err());
    let mut plain: HostQueue<Vec<u8>> = HostQueue::new(1, HostOptions::default());
    assert!(plain.receive(&granted(3, 4096)).is_err(), "digests that were not asked for");
}

proptest! {
    #[test]
    fn bytes_of_any_kind_neither_panic_nor_end_a_command_twice(
        digests in 0u8..4,
        units in proptest::collection::vec((0usize..10, proptest::collection::vec(any::<u8>(), 0..160)), 0..40),
        step in 1usize..200,
    ) {
        let mut queue = queue();
        queue.receive(&granted(digests, 4096)).unwrap();
        for n in 0..6 {
            let sqe = if n % 2 == 0 { Sqe::new(io::READ, 1, [0; 6]) } else { Sqe::new(io::WRITE, 1, [0; 6]) };
            queue.submit(sqe.with_data(64), vec![n; 64]).unwrap();
        }
        let mut bytes = Vec::new();
        for (kind, mut unit) in units {
            // Half of them start like valid PDUs of a controller.
            if let (Some(head), true) = (unit.get_mut(..8), kind < 10) {
                let start: [u8; 8] = [[5, 0, 24, 0, 24, 0, 0, 0], [7, 12, 24, 24, 32, 0, 0, 0], [9, 0, 24, 0, 24, 0, 0, 0]][kind % 3];
                head.copy_from_slice(&start);
            }
            bytes.extend(unit);
        }
        let mut ended = 0;
        for piece in bytes.chunks(step) {
            let result = queue.receive(piece);
            ended += std::iter::from_fn(|| queue.next_ended()).count();
            if result.is_err() {
                break;
            }
        }
        prop_assert_eq!(ended + queue.take_all().count(), 6);
    }
}
