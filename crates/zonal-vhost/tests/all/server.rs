//! Server at its socket: guests on several queues, front ends that leave, and isolation between
//! clients.

use crate::front::FrontEnd;
use crate::guest::{DATA, DEVICE, Driver, Guest, REGION, disk, management, read, unsealed_file_of, write};
use rustix::fs::ftruncate;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use zerocopy::IntoBytes;
use zonal_io::clock::Clock;
use zonal_scsi::Disk;
use zonal_vhost::ring::RingFault;
use zonal_vhost::server::{VhostListener, VhostOptions, VhostServer};
use zonal_vhost::wire::message::{InflightFile, NEED_REPLY, SingleRegion, request};
use zonal_vhost::wire::scsi::{RESPONSE_LEN, function, response};

const BLOCK: u32 = 4096;

struct Served {
    server: VhostServer,
    path: PathBuf,
    _directory: TempDir,
}

fn serve(disk: &Arc<Disk>, threads: usize) -> Served {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vhost");
    let listener = VhostListener::bind(&path).unwrap();
    let options = VhostOptions::default().with_threads(threads);
    let has_to_end = Arc::new(AtomicBool::new(false));
    let server = VhostServer::start(disk.clone(), listener, Clock::start(), options, has_to_end).unwrap();
    Served { server, path, _directory: directory }
}

impl Served {
    fn end(self) {
        self.server.end();
        self.server.join().unwrap();
        assert!(!self.path.exists());
    }
}

/// Waits for a condition set by another thread.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Front end with queue 2, and its driver.
fn attach(served: &Served, guest: &Arc<Guest>) -> (FrontEnd, Driver) {
    let mut front = FrontEnd::connect(&served.path);
    front.begin(guest);
    let driver = Driver::new(guest, 2);
    front.start(2, &driver, 0);
    (front, driver)
}

fn call(driver: &mut Driver, cdb: &[u8], out: &[(u64, u32)], into: &[(u64, u32)]) -> u8 {
    let head = driver.command(1, cdb, out, into);
    driver.kick();
    let (ended, answer) = driver.answer();
    assert_eq!((ended, answer.response), (head, response::OK));
    answer.status
}

#[test]
fn guest_writes_and_reads_back_and_stops() {
    let served = serve(&disk(DEVICE), 1);
    let guest = Guest::new();
    let (mut front, mut driver) = attach(&served, &guest);
    let bytes: Vec<u8> = (0..8192u32).map(|n| (n / 3) as u8).collect();
    guest.write(DATA, &bytes);
    assert_eq!(call(&mut driver, &write(0, 2), &[(DATA, 8192)], &[]), 0);
    assert_eq!(call(&mut driver, &read(0, 2), &[], &[(DATA + 0x4000, 8192)]), 0);
    assert!(guest.read(DATA + 0x4000, 8192) == bytes);
    assert_eq!(served.server.queues().len(), 1);
    assert_eq!(front.stop(2), 2);
    assert!(served.server.queues().is_empty());
    // It restarts where it stopped.
    front.start(2, &driver, 2);
    assert_eq!(call(&mut driver, &read(0, 1), &[], &[(DATA, BLOCK)]), 0);
    served.end();
}

/// A reconnecting front end starts with the control queue.
#[test]
fn function_waits_until_the_queues_of_requests_are_enabled() {
    let served = serve(&disk(DEVICE), 2);
    let guest = Guest::new();
    let mut front = FrontEnd::connect(&served.path);
    front.begin(&guest);
    let (mut control, mut requests) = (Driver::new(&guest, 0), Driver::new(&guest, 2));
    requests.command(1, &read(0, 1), &[], &[(DATA, BLOCK)]);
    control.control(&management(function::LOGICAL_UNIT_RESET, 0), 1);
    front.start(0, &control, 0);
    control.kick();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(control.used_index(), 0, "commands of before have not been taken");
    front.start(2, &requests, 0);
    control.wait();
    assert_eq!(requests.used_index(), 1, "a command of before ends after the function");
    served.end();
}

/// Each queue writes sequentially to its own zone, and reads it back.
fn fill_zone(mut driver: Driver, n: u64) {
    let zone = (n + 1) * 256;
    let place = DATA + n * 0x1_0000;
    for lba in 0..200 {
        let bytes = [(lba as u8) ^ (n as u8); BLOCK as usize];
        driver.guest.write(place, &bytes);
        assert_eq!(call(&mut driver, &write(zone + lba, 1), &[(place, BLOCK)], &[]), 0);
    }
    for lba in (0..200).step_by(8) {
        let heads: Vec<u16> = (0..8)
            .map(|k| {
                let into = [(place + k * 4096, BLOCK)];
                driver.indirect_command(k, &read(zone + lba + k, 1), &[], &into)
            })
            .collect();
        driver.kick();
        let mut ended: Vec<u16> = heads.iter().map(|_| driver.answer().0).collect();
        ended.sort();
        let mut expected = heads;
        expected.sort();
        assert_eq!(ended, expected);
        for k in 0..8 {
            let bytes = driver.guest.read(place + k * 4096, BLOCK as usize);
            assert!(bytes.iter().all(|byte| *byte == ((lba + k) as u8) ^ (n as u8)));
        }
    }
}

#[test]
fn queues_on_several_threads_serve_several_processors() {
    let served = serve(&disk(DEVICE), 2);
    let guest = Guest::new();
    let mut front = FrontEnd::connect(&served.path);
    front.begin(&guest);
    let drivers: Vec<Driver> = (2..6).map(|number| Driver::new(&guest, number)).collect();
    (2..).zip(&drivers).for_each(|(number, driver)| front.start(number, driver, 0));
    std::thread::scope(|scope| {
        for (n, driver) in drivers.into_iter().enumerate() {
            scope.spawn(move || fill_zone(driver, n as u64));
        }
    });
    assert_eq!(served.server.queues().iter().map(|queue| queue.number).collect::<Vec<_>>(), [2, 3, 4, 5]);
    served.end();
}

#[test]
fn broken_ring_is_reported_and_others_are_served() {
    let served = serve(&disk(DEVICE), 2);
    let guest = Guest::new();
    let (mut front, mut driver) = attach(&served, &guest);
    let mut broken = Driver::new(&guest, 3);
    let flags = rustix::event::EventfdFlags::NONBLOCK;
    let told = rustix::event::eventfd(0, flags).unwrap();
    assert!(front.ask(request::SET_ERROR, &3u64.to_le_bytes(), &[told.as_fd()]));
    front.start(3, &broken, 0);
    broken.offer(500);
    broken.kick();
    until("it is told", || rustix::io::read(&told, &mut [0; 8]).is_ok());
    let facts = served.server.queues();
    assert_eq!(facts[1].fault, Some(RingFault::DescriptorIndex { index: 500, len: 16 }));
    assert_eq!(call(&mut driver, &read(0, 1), &[], &[(DATA, BLOCK)]), 0);
    // Device reset: the ring stops and restarts at zero.
    front.stop(3);
    let mut fresh = Driver::new(&guest, 3);
    front.start(3, &fresh, 0);
    assert_eq!(call(&mut fresh, &read(0, 1), &[], &[(DATA, BLOCK)]), 0);
    assert_eq!(served.server.queues()[1].fault, None);
    served.end();
}

#[test]
fn front_end_that_connects_again_continues() {
    let served = serve(&disk(DEVICE), 2);
    let guest = Guest::new();
    let (front, mut driver) = attach(&served, &guest);
    assert_eq!(call(&mut driver, &read(0, 1), &[], &[(DATA, BLOCK)]), 0);
    drop(front);
    // Made available while no front end is connected.
    let head = driver.command(5, &read(1, 1), &[], &[(DATA, BLOCK)]);
    let mut front = FrontEnd::connect(&served.path);
    front.begin(&guest);
    front.start(2, &driver, driver.used_index());
    assert_eq!(driver.answer().0, head);
    assert_eq!(call(&mut driver, &read(0, 1), &[], &[(DATA, BLOCK)]), 0);
    served.end();
}

#[test]
fn next_server_serves_the_guest_of_the_one_before() {
    let disk = disk(DEVICE);
    let guest = Guest::new();
    let served = serve(&disk, 1);
    let (front, mut driver) = attach(&served, &guest);
    guest.write(DATA, &[7; BLOCK as usize]);
    assert_eq!(call(&mut driver, &write(0, 1), &[(DATA, BLOCK)], &[]), 0);
    served.end();
    drop(front);
    let served = serve(&disk, 2);
    let mut front = FrontEnd::connect(&served.path);
    front.begin(&guest);
    front.start(2, &driver, driver.used_index());
    assert_eq!(call(&mut driver, &read(0, 1), &[], &[(DATA + 4096, BLOCK)]), 0);
    assert_eq!(guest.read(DATA + 4096, 4096), [7; 4096]);
    served.end();
}

#[test]
fn second_front_end_waits_for_the_first_to_leave() {
    let served = serve(&disk(DEVICE), 1);
    let guest = Guest::new();
    let (front, _driver) = attach(&served, &guest);
    let mut second = FrontEnd::connect(&served.path);
    second.send(request::GET_FEATURES, 0, &[], &[]);
    let short = Some(Duration::from_millis(100));
    second.socket.set_read_timeout(short).unwrap();
    let mut byte = [0; 1];
    assert!(std::io::Read::read(&mut second.socket, &mut byte).is_err());
    second.socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    drop(front);
    second.reply(request::GET_FEATURES);
    served.end();
}

#[test]
fn message_that_is_wrong_ends_its_connection_alone() {
    let served = serve(&disk(DEVICE), 1);
    for (request, payload) in
        [(99, vec![]), (request::SET_NUMBER, vec![0; 3]), (request::GET_BASE, vec![255; 8])]
    {
        let mut front = FrontEnd::connect(&served.path);
        front.send(request, 0, &payload, &[]);
        assert!(front.is_closed(), "{request}");
    }
    let mut front = FrontEnd::connect(&served.path);
    std::io::Write::write_all(&mut front.socket, &[0xFF; 64]).unwrap();
    assert!(front.is_closed());
    let guest = Guest::new();
    let (_front, mut driver) = attach(&served, &guest);
    assert_eq!(call(&mut driver, &read(0, 1), &[], &[(DATA, BLOCK)]), 0);
    served.end();
}

#[test]
fn task_management_reaches_queues_of_all_threads() {
    let served = serve(&disk(DEVICE), 2);
    let guest = Guest::new();
    let (mut front, _driver) = attach(&served, &guest);
    let other = Driver::new(&guest, 3);
    front.start(3, &other, 0);
    let mut control = Driver::new(&guest, 0);
    front.start(0, &control, 0);
    for (what, expected) in [
        (function::ABORT_TASK, response::OK),
        (function::LOGICAL_UNIT_RESET, response::OK),
        (function::I_T_NEXUS_RESET, response::OK),
        (function::QUERY_TASK_SET, response::OK),
        (function::CLEAR_ACA, response::FUNCTION_REJECTED),
    ] {
        let at = control.control(&management(what, 1), 1);
        control.kick();
        assert_eq!(control.wait().1, 1);
        assert_eq!(guest.read(at, 1), [expected]);
    }
    assert_eq!((front.stop(0), front.stop(3)), (5, 0));
    served.end();
}

#[test]
fn memory_regions_can_be_added_and_removed_under_load() {
    let served = serve(&disk(DEVICE), 2);
    let guest = Guest::new();
    let (mut front, mut driver) = attach(&served, &guest);
    let high = SingleRegion { padding: 0.into(), region: Guest::regions()[1] };
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            // In the low region, which is not removed.
            let room = driver.room();
            for _ in 0..300 {
                assert_eq!(call(&mut driver, &read(0, 1), &[], &[(room, BLOCK)]), 0);
            }
        });
        while !worker.is_finished() {
            assert!(front.ask(request::REMOVE_REGION, high.as_bytes(), &[]));
            assert!(!front.ask(request::REMOVE_REGION, high.as_bytes(), &[]));
            assert!(front.ask(request::ADD_REGION, high.as_bytes(), &[guest.file.as_fd()]));
        }
    });
    assert_eq!(call(&mut driver, &read(0, 1), &[], &[(DATA, BLOCK)]), 0);
    served.end();
}

#[test]
fn descriptors_that_are_no_eventfds_do_no_harm() {
    let served = serve(&disk(DEVICE), 1);
    let guest = Guest::new();
    let mut front = FrontEnd::connect(&served.path);
    front.begin(&guest);
    let mut driver = Driver::new(&guest, 2);
    // A regular file cannot be watched, and a full socket cannot be written.
    let (mut near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    while std::io::Write::write(&mut near, &[0; 4096]).is_ok() {}
    near.set_nonblocking(false).unwrap();
    driver.call = near.into();
    let kick = std::mem::replace(&mut driver.kick, crate::guest::file_of(8));
    front.start(2, &driver, 0);
    driver.command(1, &read(0, 1), &[], &[(DATA, BLOCK)]);
    assert!(front.ask(request::SET_KICK, &2u64.to_le_bytes(), &[kick.as_fd()]));
    until("it is served", || driver.used_index() == 1);
    assert_eq!(front.stop(2), 1);
    served.end();
}

/// Acts like a front end that keeps the inflight file.
#[test]
fn requests_that_are_marked_as_in_flight_are_submitted_again() {
    let served = serve(&disk(DEVICE), 1);
    let guest = Guest::new();
    let mut front = FrontEnd::connect(&served.path);
    front.begin(&guest);
    let asked = InflightFile { len: 0.into(), offset: 0.into(), queues: 3.into(), num: 16.into() };
    front.send(request::GET_INFLIGHT, 0, asked.as_bytes(), &[]);
    let (payload, file) = front.reply(request::GET_INFLIGHT);
    let file = file.unwrap();
    assert!(front.ask(request::SET_INFLIGHT, &payload, &[file.as_fd()]));
    let mut driver = Driver::new(&guest, 2);
    front.start(2, &driver, 0);
    assert_eq!(call(&mut driver, &read(0, 1), &[], &[(DATA, BLOCK)]), 0);
    drop(front);
    until("it has left", || !served.server.is_connected() && served.server.queues().is_empty());
    // A previous process has taken two commands and published the completion of the second.
    let first = driver.command(1, &read(2, 1), &[], &[(DATA, BLOCK)]);
    let second = driver.command(2, &read(3, 1), &[], &[(DATA + 4096, BLOCK)]);
    let stride = zonal_vhost::ring::queue_len(16) as u64;
    rustix::io::pwrite(&file, &[1], 2 * stride + 16 + 16 * u64::from(first)).unwrap();
    guest.write(driver.used_ring() + 4 + 8, &u32::from(second).to_le_bytes());
    guest.write(driver.used_ring() + 2, &2u16.to_le_bytes());
    rustix::io::pwrite(&file, &2u16.to_le_bytes(), 2 * stride + 14).unwrap();
    let mut front = FrontEnd::connect(&served.path);
    front.begin(&guest);
    assert!(front.ask(request::SET_INFLIGHT, &payload, &[file.as_fd()]));
    front.start(2, &driver, driver.used_index());
    assert_eq!(driver.wait().0, second);
    let (head, answer) = driver.answer();
    assert_eq!((head, answer.written), (first, RESPONSE_LEN as u32 + BLOCK));
    assert_eq!(front.stop(2), 3);
    served.end();
}

#[test]
fn front_end_that_reads_no_answers_does_not_stop_guests() {
    let served = serve(&disk(DEVICE), 1);
    let guest = Guest::new();
    let (front, mut driver) = attach(&served, &guest);
    front.socket.set_nonblocking(true).unwrap();
    let header = zonal_vhost::wire::message::Header {
        request: request::GET_FEATURES.into(),
        flags: (1 | NEED_REPLY).into(),
        len: 0.into(),
    };
    let socket = &front.socket;
    // Until neither side accepts more.
    let (mut sent, mut rests) = (0, 0);
    while rests < 20 {
        match std::io::Write::write(&mut &*socket, header.as_bytes()) {
            Ok(_) => (sent, rests) = (sent + 1, 0),
            Err(_) => {
                rests += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    assert!(sent > 100);
    assert_eq!(call(&mut driver, &read(0, 1), &[], &[(DATA, BLOCK)]), 0);
    served.end();
}

/// Each command at this device takes 50 ms.
const SLOW: &str = "ram:size=64M,zone_size=1M,zone_nr_conv=1,completion_nsec=50000000,blocksize=4096";

/// Starts a read and waits until it is in flight.
fn read_in_flight(served: &Served, driver: &mut Driver) -> u16 {
    let head = driver.command(7, &read(0, 1), &[], &[(DATA, BLOCK)]);
    driver.kick();
    until("it is in flight", || served.server.queues()[0].in_flight == 1);
    head
}

#[test]
fn stop_waits_for_commands_at_the_device() {
    let served = serve(&disk(SLOW), 2);
    let guest = Guest::new();
    let (mut front, mut driver) = attach(&served, &guest);
    let head = read_in_flight(&served, &mut driver);
    assert_eq!(front.stop(2), 1);
    assert_eq!(driver.used().map(|used| used.0), Some(head));
    served.end();
}

#[test]
fn front_end_that_leaves_with_requests_in_flight_finds_their_ends() {
    let served = serve(&disk(SLOW), 2);
    let guest = Guest::new();
    let (front, mut driver) = attach(&served, &guest);
    let head = read_in_flight(&served, &mut driver);
    // It reads the used index at this moment, and the request completes later.
    let base = driver.used_index();
    drop(front);
    let mut front = FrontEnd::connect(&served.path);
    front.begin(&guest);
    front.start(2, &driver, base);
    assert_eq!((base, driver.wait().0), (0, head));
    assert_eq!(call(&mut driver, &read(0, 1), &[], &[(DATA, BLOCK)]), 0);
    assert_eq!(driver.used_index(), 2);
    served.end();
}

#[test]
fn server_shutdown_waits_for_commands_in_flight_and_completes_them() {
    let served = serve(&disk(SLOW), 2);
    let guest = Guest::new();
    let (mut front, mut driver) = attach(&served, &guest);
    let head = read_in_flight(&served, &mut driver);
    served.end();
    assert_eq!(driver.used().map(|used| used.0), Some(head));
    assert!(front.is_closed());
}

#[test]
fn abort_of_a_write_that_waits_is_answered_after_the_write() {
    // The first write stays at the device until the Abort has arrived, even on a busy machine.
    let served = serve(&disk(&SLOW.replace("=50", "=500")), 2);
    let guest = Guest::new();
    let (mut front, mut driver) = attach(&served, &guest);
    let mut control = Driver::new(&guest, 0);
    front.start(0, &control, 0);
    let heads = [0, 1].map(|n| driver.command(n, &write(256 + n, 1), &[(DATA, BLOCK)], &[]));
    driver.kick();
    let at = control.control(&management(function::ABORT_TASK, 1), 1);
    control.kick();
    control.wait();
    assert_eq!(guest.read(at, 1), [response::OK]);
    // The waiting write was aborted, and the one at the device completed normally.
    let mut ends = [driver.answer(), driver.answer()];
    ends.sort_by_key(|end| end.0);
    assert_eq!(ends.iter().map(|end| end.0).collect::<Vec<_>>(), heads);
    assert_eq!((ends[0].1.status, ends[1].1.response), (0, response::ABORTED));
    served.end();
}

#[test]
fn memory_that_leaves_with_requests_in_flight_is_written_all_the_same() {
    let served = serve(&disk(SLOW), 2);
    let guest = Guest::new();
    let (mut front, mut driver) = attach(&served, &guest);
    let head = read_in_flight(&served, &mut driver);
    let high = SingleRegion { padding: 0.into(), region: Guest::regions()[1] };
    assert!(front.ask(request::REMOVE_REGION, high.as_bytes(), &[]));
    let (ended, answer) = driver.answer();
    assert_eq!((ended, answer.status, answer.written), (head, 0, RESPONSE_LEN as u32 + BLOCK));
    served.end();
}

/// Truncates a file of guest memory while a read is in flight. The disk of another guest is
/// unaffected, and the server accepts a new front end afterwards.
fn truncate_in_flight(has_log: bool, cut: impl Fn(&Guest, &OwnedFd, &OwnedFd)) {
    let disk = disk(SLOW);
    let (served, other) = (serve(&disk, 2), serve(&disk, 1));
    let good = Guest::new();
    let (_good, mut good_driver) = attach(&other, &good);
    let guest = Arc::new(Guest { file: unsealed_file_of(2 * REGION) });
    let (data, log) = (unsealed_file_of(REGION), unsealed_file_of(1 << 16));
    let mut front = FrontEnd::connect(&served.path);
    front.begin(&guest);
    front.memory([&guest.file, &data]);
    if has_log {
        let facts =
            InflightFile { len: (1 << 16).into(), offset: 0.into(), queues: 4.into(), num: 16.into() };
        assert!(front.ask(request::SET_INFLIGHT, facts.as_bytes(), &[log.as_fd()]));
    }
    // On the second thread, while the first owns the socket.
    let mut driver = Driver::new(&guest, 3);
    front.start(3, &driver, 0);
    read_in_flight(&served, &mut driver);
    cut(&guest, &data, &log);
    let has_ring = rustix::fs::fstat(&guest.file).unwrap().st_size as u64 == 2 * REGION;
    if has_ring {
        // The device may have completed all of the first read.
        driver.command(8, &read(0, 1), &[], &[(DATA, BLOCK)]);
    }
    driver.kick();
    until("the connection has ended", || !served.server.is_connected());
    assert!(front.is_closed());
    assert!(!has_ring || driver.used_index() <= 1, "a request without its memory has ended well");
    assert_eq!(call(&mut good_driver, &read(0, 1), &[], &[(DATA, BLOCK)]), 0);
    let (_front, mut driver) = attach(&served, &Guest::new());
    assert_eq!(call(&mut driver, &read(0, 1), &[], &[(DATA, BLOCK)]), 0);
    served.end();
    other.end();
}

#[test]
fn guest_that_truncates_its_memory_loses_its_connection_alone() {
    truncate_in_flight(false, |guest, _, _| ftruncate(&guest.file, 0).unwrap());
}

#[test]
fn read_into_truncated_memory_is_not_completed_to_the_guest() {
    truncate_in_flight(false, |_, data, _| ftruncate(data, 0).unwrap());
}

#[test]
fn marks_of_requests_in_flight_that_are_truncated_end_the_connection_alone() {
    truncate_in_flight(true, |_, _, log| ftruncate(log, 0).unwrap());
}

#[test]
fn task_management_reaches_commands_on_other_threads() {
    let served = serve(&disk(SLOW), 2);
    let guest = Guest::new();
    let (mut front, _driver) = attach(&served, &guest);
    let mut other = Driver::new(&guest, 3);
    front.start(3, &other, 0);
    let mut control = Driver::new(&guest, 0);
    front.start(0, &control, 0);
    // Made available before the function, without a notification to its thread.
    other.command(9, &read(0, 1), &[], &[(DATA, BLOCK)]);
    let at = control.control(&management(function::QUERY_TASK, 9), 1);
    control.kick();
    control.wait();
    assert_eq!(guest.read(at, 1), [response::FUNCTION_SUCCEEDED]);
    let at = control.control(&management(function::ABORT_TASK, 9), 1);
    control.kick();
    control.wait();
    assert_eq!((guest.read(at, 1), other.used_index()), (vec![response::OK], 1));
    served.end();
}

#[test]
fn memory_region_added_while_a_ring_runs_is_used() {
    let served = serve(&disk(DEVICE), 1);
    let guest = Guest::new();
    let mut front = FrontEnd::connect(&served.path);
    front.begin(&guest);
    let high = SingleRegion { padding: 0.into(), region: Guest::regions()[1] };
    assert!(front.ask(request::REMOVE_REGION, high.as_bytes(), &[]));
    let mut driver = Driver::new(&guest, 2);
    front.start(2, &driver, 0);
    assert!(front.ask(request::ADD_REGION, high.as_bytes(), &[guest.file.as_fd()]));
    assert_eq!(call(&mut driver, &read(0, 1), &[], &[(DATA, BLOCK)]), 0);
    assert!(front.ask(request::REMOVE_REGION, high.as_bytes(), &[]));
    driver.command(1, &read(0, 1), &[], &[(DATA, BLOCK)]);
    driver.kick();
    let gone = Some(RingFault::OutOfMemory { guest: DATA, len: BLOCK });
    until("the ring is broken", || served.server.queues()[0].fault == gone);
    served.end();
}

/// Deterministic pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// Overwrites tables, rings and requests of queue 2 while the server reads them.
fn scribble(guest: &Guest, driver: &Driver, numbers: &mut Numbers) {
    for _ in 0..400 {
        let at = driver.table() + numbers.next(0x6000);
        match numbers.next(4) {
            0 => guest.write(at & !15, &(DATA + numbers.next(0x1_0000)).to_le_bytes()),
            1 => guest.write(driver.available() + 2, &(numbers.next(32) as u16).to_le_bytes()),
            2 => guest.write(
                driver.available() + 4 + 2 * numbers.next(16),
                &(numbers.next(16) as u16).to_le_bytes(),
            ),
            _ => guest.write(at, &[numbers.next(256) as u8; 3]),
        }
        driver.kick();
    }
}

#[test]
fn guest_that_scribbles_over_its_rings_harms_itself_alone() {
    let served = serve(&disk(DEVICE), 2);
    let guest = Guest::new();
    let (mut front, _) = attach(&served, &guest);
    front.stop(2);
    let mut good = Driver::new(&guest, 3);
    front.start(3, &good, 0);
    let mut numbers = Numbers(0x5EED_0000_0001);
    for _ in 0..20 {
        guest.write(Driver::new(&guest, 2).table(), &[0; 0x6000]);
        let driver = Driver::new(&guest, 2);
        front.start(2, &driver, 0);
        scribble(&guest, &driver, &mut numbers);
        assert_eq!(call(&mut good, &read(0, 1), &[], &[(DATA + 0x20_0000, BLOCK)]), 0);
        front.stop(2);
    }
    served.end();
}
