//! Queues without a server: commands, data and task management.

use crate::guest::{
    DATA, DEVICE, Driver, Guest, NUM, REGION, Response, disk, file_of, management, read, write,
};
use std::sync::Arc;
use zonal_core::Nanos;
use zonal_scsi::Disk;
use zonal_vhost::memory::map_area;
use zonal_vhost::queue::{CONTROL, EVENTS, Queue};
use zonal_vhost::ring::{InflightQueue, Ring, RingFault, RingSetup, queue_len};
use zonal_vhost::wire::ring::WRITE;
use zonal_vhost::wire::scsi::{HEADER_LEN, RESPONSE_LEN, function, response};

const NOW: Nanos = Nanos(0);
const BLOCK: u32 = 4096;

/// Queue 0 or 2 of a disk, with its driver.
struct Rig {
    disk: Arc<Disk>,
    queue: Queue,
    driver: Driver,
}

impl Rig {
    fn new(number: u16) -> Rig {
        Rig::of(disk(DEVICE), Driver::new(&Guest::new(), number), number)
    }

    fn of(disk: Arc<Disk>, driver: Driver, number: u16) -> Rig {
        let mut queue = Queue::new(number, &disk);
        queue.start(driver.guest.memory(), driver.setup(), None);
        queue.set_enabled(true);
        Rig { disk, queue, driver }
    }

    fn turn(&mut self) -> bool {
        self.queue.run_once(NOW, false).signals
    }

    /// Completes requests at the device and publishes them.
    fn poll(&mut self) -> bool {
        self.disk.volume().poll(NOW);
        self.turn()
    }

    fn answer(&mut self) -> (u16, Response) {
        let (head, written) = self.driver.used().expect("an answer");
        (head, self.driver.response(head, written))
    }

    fn call(&mut self) -> Response {
        self.turn();
        self.poll();
        let answer = self.answer().1;
        assert!(self.driver.used().is_none());
        answer
    }

    fn fill(&self, seed: u8, len: u32) -> Vec<u8> {
        let bytes: Vec<u8> = (0..len).map(|n| (n / 7) as u8 ^ seed).collect();
        self.driver.guest.write(DATA, &bytes);
        bytes
    }
}

fn good(written: u32) -> Response {
    Response { status: 0, response: response::OK, residual: 0, sense: Vec::new(), written }
}

#[test]
fn data_written_is_read_back_into_other_pages() {
    let mut rig = Rig::new(2);
    let bytes = rig.fill(3, 2 * BLOCK);
    // Pieces that are not multiples of a sector; the middle ones are contiguous.
    let out = [(DATA, 100), (DATA + 100, 1000), (DATA + 1100, 2 * BLOCK - 1100)];
    rig.driver.command(1, &write(0, 2), &out, &[]);
    assert_eq!(rig.call(), good(RESPONSE_LEN as u32));
    let (first, second) = (DATA + 0x10_000, rig.driver.room());
    rig.driver.command(2, &read(0, 2), &[], &[(first, BLOCK + 512), (second, BLOCK - 512)]);
    assert_eq!(rig.call(), good(RESPONSE_LEN as u32 + 2 * BLOCK));
    let guest = &rig.driver.guest;
    let back = [guest.read(first, 4608), guest.read(second, 3584)].concat();
    assert!(back == bytes);
}

/// Rig after a killed process that left a write, with one block written, and the command made
/// available by `second`. Also returns data of four blocks, the first two from the write, and the
/// start of the write.
fn rig_of_two_left(second: impl FnOnce(&mut Driver, u64)) -> (Rig, Vec<u8>, u64) {
    let mut rig = Rig::new(2);
    let zone = rig.disk.blocks() / u64::from(rig.disk.volume().info().geometry.zones());
    let first = 3 * zone;
    let bytes = rig.fill(5, 4 * BLOCK);
    rig.driver.command(1, &write(first, 1), &[(DATA, BLOCK)], &[]);
    assert_eq!(rig.call(), good(RESPONSE_LEN as u32));
    let file = file_of(queue_len(NUM) as u64);
    let log = || InflightQueue::new(&map_area(&file, 0, queue_len(NUM) as u64).unwrap(), 0, NUM);
    let setup = RingSetup { base: rig.driver.used_index(), ..rig.driver.setup() };
    let mut killed = Ring::new(rig.driver.guest.memory(), setup, log()).unwrap();
    rig.driver.command(2, &write(first, 2), &[(DATA, 2 * BLOCK)], &[]);
    second(&mut rig.driver, first);
    while killed.take().unwrap().is_some() {}
    drop(killed);
    rig.queue = Queue::new(2, &rig.disk);
    rig.queue.start(rig.driver.guest.memory(), setup, log());
    rig.queue.set_enabled(true);
    (rig, bytes, first)
}

#[test]
fn function_waits_for_all_that_is_left() {
    // TEST UNIT READY completes in the turn in which it starts. A command of the guest itself is
    // behind it in the ring.
    let (mut rig, _, first) = rig_of_two_left(|driver, _| {
        driver.command(3, &[0; 6], &[], &[]);
    });
    rig.driver.command(4, &write(first + 4, 1), &[(DATA, BLOCK)], &[]);
    rig.turn();
    manage(&mut rig, 8, function::LOGICAL_UNIT_RESET, 0);
    let mut turns = 0;
    let end = loop {
        if let Some(end) = rig.queue.managed() {
            break end;
        }
        turns += 1;
        assert!(turns < 64, "it does not end");
        rig.poll();
    };
    assert_eq!(end.id, 8);
    let ended = [(); 3].map(|()| rig.driver.used());
    assert!(ended.iter().all(Option::is_some), "a command of before ends after the function: {ended:?}");
}

#[test]
fn write_that_is_left_waits_for_the_one_before_it() {
    // The second starts where the first ends.
    let (mut rig, bytes, first) = rig_of_two_left(|driver, first| {
        driver.command(3, &write(first + 2, 2), &[(DATA + u64::from(2 * BLOCK), 2 * BLOCK)], &[]);
    });
    // Each read, comparison and write takes its own turns.
    for _ in 0..16 {
        rig.poll();
    }
    for _ in 0..2 {
        assert_eq!(rig.answer().1, good(RESPONSE_LEN as u32));
    }
    rig.driver.command(4, &read(first, 4), &[], &[(DATA + 0x10_000, 4 * BLOCK)]);
    assert_eq!(rig.call(), good(RESPONSE_LEN as u32 + 4 * BLOCK));
    assert!(rig.driver.guest.read(DATA + 0x10_000, bytes.len()) == bytes);
}

#[test]
fn indirect_command_moves_its_data() {
    let mut rig = Rig::new(2);
    let bytes = rig.fill(9, BLOCK);
    rig.driver.indirect_command(1, &write(3, 1), &[(DATA, 2048), (DATA + 2048, 2048)], &[]);
    assert_eq!(rig.call(), good(RESPONSE_LEN as u32));
    rig.driver.indirect_command(2, &read(3, 1), &[], &[(DATA + 0x8000, BLOCK)]);
    assert_eq!(rig.call(), good(RESPONSE_LEN as u32 + BLOCK));
    assert!(rig.driver.guest.read(DATA + 0x8000, BLOCK as usize) == bytes);
}

#[test]
fn short_transfer_reports_its_residual() {
    let mut rig = Rig::new(2);
    rig.driver.guest.write(DATA, &[0xEE; 96]);
    // INQUIRY with an allocation length below the buffer size.
    rig.driver.command(1, &[0x12, 0, 0, 0, 36], &[], &[(DATA, 96)]);
    let inquiry = rig.call();
    assert_eq!(inquiry, Response { residual: 60, ..good(RESPONSE_LEN as u32 + 36) });
    let bytes = rig.driver.guest.read(DATA, 96);
    assert_eq!((bytes[0], &bytes[36..]), (0x14, &[0xEE; 60][..]));
}

#[test]
fn failed_command_has_status_and_sense() {
    let mut rig = Rig::new(2);
    rig.driver.command(1, &[0xFF], &[], &[]);
    let answer = rig.call();
    assert_eq!((answer.status, answer.response, answer.sense[2]), (2, response::OK, 5));
}

#[test]
fn other_target_is_bad_and_other_unit_is_the_disks() {
    let mut rig = Rig::new(2);
    rig.driver.command_to([1, 7, 0x40, 0, 0, 0, 0, 0], 1, &[0], &[], &[]);
    assert_eq!(rig.call(), Response { response: response::BAD_TARGET, ..good(RESPONSE_LEN as u32) });
    rig.driver.command_to([1, 0, 0x40, 3, 0, 0, 0, 0], 1, &[0], &[], &[]);
    assert_eq!(rig.call().status, 2);
}

#[test]
fn all_of_a_ring_are_one_turn_and_one_interrupt() {
    let mut rig = Rig::new(2);
    for n in 0..5 {
        rig.driver.command(n, &read(n, 1), &[], &[(DATA + n * 4096, BLOCK)]);
    }
    assert!(!rig.turn());
    assert_eq!(rig.queue.in_flight(), 5);
    rig.driver.listen(0);
    assert!(rig.poll());
    assert_eq!((rig.driver.used_index(), rig.queue.in_flight()), (5, 0));
    assert!(!rig.turn());
}

#[test]
fn request_too_short_for_header_or_response_breaks_the_ring() {
    for (readable, writable) in [(HEADER_LEN as u32 - 1, 108), (51, RESPONSE_LEN as u32 - 1)] {
        let mut rig = Rig::new(2);
        let head = rig.driver.chain(&[(DATA, readable, 0), (DATA + 512, writable, WRITE)]);
        rig.driver.offer(head);
        let fault = rig.queue.run_once(NOW, false).fault;
        assert_eq!(fault, Some(RingFault::TooShort { readable, writable }));
        // The fault is reported once, and the ring is abandoned.
        rig.driver.command(1, &[0], &[], &[]);
        assert_eq!(rig.queue.run_once(NOW, false), Default::default());
        assert_eq!(rig.driver.used_index(), 0);
    }
}

#[test]
fn broken_ring_still_completes_commands_in_flight() {
    let mut rig = Rig::new(2);
    rig.driver.command(1, &read(0, 1), &[], &[(DATA, BLOCK)]);
    rig.turn();
    rig.driver.offer(999);
    assert!(rig.queue.run_once(NOW, false).fault.is_some());
    rig.poll();
    assert_eq!(rig.answer().1, good(RESPONSE_LEN as u32 + BLOCK));
}

#[test]
fn stop_waits_for_requests_in_flight_and_takes_no_others() {
    let mut rig = Rig::new(2);
    rig.driver.command(1, &read(0, 1), &[], &[(DATA, BLOCK)]);
    rig.turn();
    rig.queue.stop();
    rig.driver.command(2, &read(1, 1), &[], &[(DATA, BLOCK)]);
    rig.turn();
    assert_eq!(rig.queue.stopped(), None);
    rig.poll();
    assert_eq!((rig.queue.stopped(), rig.driver.used_index()), (Some(1), 1));
    // It continues where it stopped.
    let setup = zonal_vhost::ring::RingSetup { base: 1, ..rig.driver.setup() };
    rig.queue.start(rig.driver.guest.memory(), setup, None);
    rig.turn();
    rig.poll();
    assert_eq!(rig.driver.used_index(), 2);
}

#[test]
fn queue_that_is_disabled_takes_nothing() {
    let mut rig = Rig::new(2);
    rig.queue.set_enabled(false);
    rig.driver.command(1, &[0], &[], &[]);
    rig.turn();
    assert_eq!(rig.driver.used_index(), 0);
    rig.queue.set_enabled(true);
    rig.turn();
    assert_eq!(rig.driver.used_index(), 1);
}

/// True if this process has mapped the high region, which is at the start of the guest's file.
fn is_mapped(guest: &Guest) -> bool {
    let inode = rustix::fs::fstat(&guest.file).unwrap().st_ino.to_string();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let fields = maps.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.into_iter().any(|fields| fields[2] == "00000000" && fields[4] == inode)
}

#[test]
fn memory_replaced_under_requests_stays_until_they_end() {
    let mut rig = Rig::new(2);
    rig.driver.command(1, &read(0, 1), &[], &[(DATA, BLOCK)]);
    rig.turn();
    // Only the low region; the one with the data is removed.
    let regions = Guest::regions();
    let memory = rig.driver.guest.memory().without(&regions[1]).unwrap();
    rig.queue.set_memory(std::rc::Rc::new(memory));
    assert!(is_mapped(&rig.driver.guest), "a request uses it");
    rig.poll();
    assert_eq!(rig.answer().1, good(RESPONSE_LEN as u32 + BLOCK));
    assert!(!is_mapped(&rig.driver.guest));
    rig.driver.command(2, &read(0, 1), &[], &[(DATA, BLOCK)]);
    let fault = rig.queue.run_once(NOW, false).fault;
    assert_eq!(fault, Some(RingFault::OutOfMemory { guest: DATA, len: BLOCK }));
}

#[test]
fn ring_with_removed_memory_is_broken() {
    let mut rig = Rig::new(2);
    let memory = rig.driver.guest.memory().without(&Guest::regions()[0]).unwrap();
    rig.queue.set_memory(std::rc::Rc::new(memory));
    assert_eq!(rig.queue.run_once(NOW, false).fault, Some(RingFault::NotInMemory));
    rig.queue.stop();
    assert_eq!(rig.queue.stopped(), Some(0));
}

/// Two writes to one zone: the first is at the device, and the second waits for it.
fn two_writes(rig: &mut Rig) -> [u16; 2] {
    let zone = 2 * 256;
    let heads = [0, 1].map(|n| {
        let out = [(DATA + n * 4096, BLOCK)];
        rig.driver.command(10 + n, &write(zone + n, 1), &out, &[])
    });
    rig.turn();
    assert_eq!(rig.queue.in_flight(), 2);
    heads
}

fn per_zone() -> Arc<Disk> {
    use zonal_io::registry::Registry;
    use zonal_io::volume::{Volume, VolumeOptions, WriteMode};
    let options = VolumeOptions::default().with_mode(WriteMode::PerZone).without_park().without_budget();
    let volume = Volume::open(Registry::default().open(DEVICE).unwrap(), options).unwrap();
    let identity = "67e55044-10b1-426f-9247-bb680e5fe0c8".parse().unwrap();
    Arc::new(Disk::new(Arc::new(volume), zonal_scsi::DiskOptions::new(identity)).unwrap())
}

fn rig_of_two_writes() -> (Rig, [u16; 2]) {
    let mut rig = Rig::of(per_zone(), Driver::new(&Guest::new(), 2), 2);
    let heads = two_writes(&mut rig);
    (rig, heads)
}

fn manage(rig: &mut Rig, id: u64, function: u32, tag: u64) {
    rig.queue.manage(NOW, zonal_vhost::queue::Management { id, function, lun: 0, tag });
}

#[test]
fn aborted_command_that_waits_ends_before_the_function() {
    let (mut rig, heads) = rig_of_two_writes();
    manage(&mut rig, 5, function::ABORT_TASK, 11);
    assert!(rig.queue.managed().is_none(), "its command has not ended");
    rig.turn();
    let (head, answer) = rig.answer();
    assert_eq!((head, answer.status, answer.response), (heads[1], 0x40, response::ABORTED));
    let end = rig.queue.managed().unwrap();
    assert_eq!((end.id, end.has_found), (5, true));
    rig.poll();
    assert_eq!(rig.answer(), (heads[0], good(RESPONSE_LEN as u32)));
}

#[test]
fn aborted_command_at_the_device_ends_before_the_function() {
    let (mut rig, heads) = rig_of_two_writes();
    manage(&mut rig, 6, function::ABORT_TASK, 10);
    rig.turn();
    assert!(rig.queue.managed().is_none());
    rig.poll();
    assert_eq!(rig.answer(), (heads[0], good(RESPONSE_LEN as u32)));
    assert_eq!(rig.queue.managed().map(|end| end.id), Some(6));
}

#[test]
fn reset_of_the_unit_ends_all_as_reset() {
    let (mut rig, heads) = rig_of_two_writes();
    manage(&mut rig, 7, function::LOGICAL_UNIT_RESET, 0);
    rig.turn();
    let (head, answer) = rig.answer();
    assert_eq!((head, answer.status, answer.response), (heads[1], 0x40, response::RESET));
    assert!(rig.queue.managed().is_none());
    rig.poll();
    assert_eq!(rig.queue.managed().map(|end| end.id), Some(7));
}

#[test]
fn query_finds_a_command_until_it_has_ended() {
    let (mut rig, _) = rig_of_two_writes();
    for (tag, found) in [(10, true), (11, true), (12, false)] {
        manage(&mut rig, tag, function::QUERY_TASK, tag);
        assert_eq!(rig.queue.managed().map(|end| end.has_found), Some(found));
    }
    rig.poll();
    rig.poll();
    manage(&mut rig, 1, function::QUERY_TASK_SET, 0);
    assert_eq!(rig.queue.managed().map(|end| end.has_found), Some(false));
}

#[test]
fn function_for_no_command_is_complete_at_once() {
    let mut rig = Rig::new(2);
    manage(&mut rig, 1, function::ABORT_TASK, 99);
    assert_eq!(rig.queue.managed().map(|end| end.has_found), Some(false));
}

fn answer_of_control(rig: &mut Rig, at: u64) -> u8 {
    assert!(rig.driver.used().is_some());
    rig.driver.guest.read(at, 1)[0]
}

#[test]
fn function_is_answered_when_the_queues_have_carried_it_out() {
    let mut rig = Rig::new(CONTROL);
    let at = rig.driver.control(&management(function::QUERY_TASK, 5), 1);
    rig.turn();
    let management = rig.queue.next_management().unwrap();
    assert_eq!((management.function, management.tag, management.lun), (function::QUERY_TASK, 5, 0));
    assert_eq!((rig.queue.in_flight(), rig.driver.used_index()), (1, 0));
    rig.queue.end_management(zonal_vhost::queue::ManagementEnd { id: management.id, has_found: true });
    rig.turn();
    assert_eq!(answer_of_control(&mut rig, at), response::FUNCTION_SUCCEEDED);
}

#[test]
fn unknown_task_management_functions_and_targets_are_refused() {
    let mut rig = Rig::new(CONTROL);
    let mut other_target = management(function::ABORT_TASK, 1);
    other_target[9] = 1;
    let mut other_unit = management(function::ABORT_TASK, 1);
    other_unit[11] = 1;
    for (request, expected) in [
        (management(function::CLEAR_ACA, 0), response::FUNCTION_REJECTED),
        (management(8, 0), response::FUNCTION_REJECTED),
        (other_target, response::BAD_TARGET),
        (other_unit, response::INCORRECT_LUN),
    ] {
        let at = rig.driver.control(&request, 1);
        rig.turn();
        assert_eq!(answer_of_control(&mut rig, at), expected);
        assert!(rig.queue.next_management().is_none());
    }
}

#[test]
fn control_queue_offers_no_notifications_and_returns_unknown_requests() {
    let mut rig = Rig::new(CONTROL);
    for kind in [1, 2] {
        let mut request = vec![0; 16];
        request[0] = kind;
        request[4..8].copy_from_slice(&[1, 0, 0x40, 0]);
        request[12] = 0x7E;
        let at = rig.driver.control(&request, 5);
        rig.turn();
        assert_eq!(rig.driver.used().map(|used| used.1), Some(5));
        assert_eq!(rig.driver.guest.read(at, 5), [0; 5]);
    }
    rig.driver.control(&[9, 0, 0, 0], 5);
    rig.turn();
    assert_eq!(rig.driver.used().map(|used| used.1), Some(0));
}

#[test]
fn functions_beyond_sixteen_wait_in_the_ring() {
    let guest = Guest::new();
    let mut driver = Driver::new(&guest, CONTROL);
    driver.num = 64;
    let mut rig = Rig::of(disk(DEVICE), driver, CONTROL);
    for tag in 0..20 {
        rig.driver.control(&management(function::ABORT_TASK, tag), 1);
    }
    rig.turn();
    assert_eq!(rig.queue.in_flight(), 16);
    let first = rig.queue.next_management().unwrap();
    rig.queue.end_management(zonal_vhost::queue::ManagementEnd { id: first.id, has_found: false });
    rig.turn();
    assert_eq!((rig.queue.in_flight(), rig.driver.used_index()), (16, 1));
}

#[test]
fn event_queue_keeps_its_buffers() {
    let mut rig = Rig::new(EVENTS);
    let head = rig.driver.chain(&[(DATA, 16, WRITE)]);
    rig.driver.offer(head);
    assert_eq!(rig.queue.run_once(NOW, false), Default::default());
    rig.queue.stop();
    assert_eq!((rig.queue.stopped(), rig.driver.used_index()), (Some(0), 0));
}

#[test]
fn request_that_spans_two_regions_is_one_request() {
    let mut rig = Rig::new(2);
    let end = DATA + REGION;
    rig.driver.command(1, &read(0, 1), &[], &[(end - 4095, 4095), (rig.driver.room(), 1)]);
    assert_eq!(rig.call(), good(RESPONSE_LEN as u32 + BLOCK));
}
