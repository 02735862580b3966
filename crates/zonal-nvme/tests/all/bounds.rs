//! Limits on the resources that a host can tie up. Without sockets, and with a clock set by the
//! tests.

use crate::host;
use crate::host::{Digests, NQN, Queue, connect_command, options, sqe, target, target_with};
use zerocopy::IntoBytes;
use zonal_core::{Nanos, ZoneIndex};
use zonal_io::changes::ZoneSetting;
use zonal_nvme::connection::{CONNECT_MAX, MEMORY_MAX, STALLED_MAX};
use zonal_nvme::subsystem::{QUEUE_MEMORY_MIN, TargetOptions};
use zonal_nvme::wire::{CommonHeader, DataHeader, PduKind, Sgl, Sqe, admin, io};

const RAM: &str = "ram:size=64M,zone_size=4M,complete=poll,blocksize=4096";

const DATA_LENGTH_INVALID: u16 = 0x400F;
const CONNECT_INVALID: u16 = 0x4182;

/// Bytes of headers that may be unsent in addition to data.
const HEADERS: usize = 64 << 10;

/// Log page of a megabyte, mostly zeroes.
fn long_page() -> Sqe {
    let mut command = sqe(admin::GET_LOG_PAGE, 0, [0x01 | 0xFFFF << 16, 3, 0, 0, 0, 0]);
    command.data.len = (1 << 20).into();
    command
}

/// Admin queue with this number of entries.
fn admin_of(entries: u32) -> Queue {
    let mut queue = Queue::open(&target(RAM), Digests::default());
    let (command, data) = connect_command(0, (entries - 1) as u16, 0xFFFF, NQN);
    assert_eq!(queue.call(command, &data).status, 0);
    queue.set_property(0x14, 0x0046_0061);
    queue
}

/// Delivers several commands in one piece, as they may arrive from a socket, and reads no output.
/// Returns their identifiers.
fn send_at_once(queue: &mut Queue, commands: &[Sqe]) -> Vec<u16> {
    let (numbers, bytes): (Vec<u16>, Vec<Vec<u8>>) =
        commands.iter().map(|command| queue.capsule(*command, &[])).unzip();
    queue.link.connection.receive(Nanos(0), &bytes.concat());
    numbers
}

/// 65,536 entries would be truncated to 0 in 16 bits.
#[test]
fn admin_queue_of_more_than_4096_entries_is_refused() {
    let mut queue = Queue::open(&target(RAM), Digests::default());
    for last_entry in [4096, u16::MAX] {
        let (command, data) = connect_command(0, last_entry, 0xFFFF, NQN);
        let end = queue.call(command, &data);
        assert_eq!((end.status, end.result), (CONNECT_INVALID, 44));
    }
    assert_eq!(queue.connect(0, 0xFFFF, NQN).status, 0, "it may try again");
    admin_of(4096);
}

#[test]
fn connect_with_other_than_1024_bytes_takes_no_memory() {
    let mut queue = Queue::open(&target(RAM), Digests::default());
    for len in [0, 1023, 1025, 1 << 20, 1 << 31, u32::MAX] {
        let (mut command, _) = connect_command(0, 31, 0xFFFF, NQN);
        command.data.kind = Sgl::TRANSPORT;
        command.data.len = len.into();
        assert_eq!(queue.call(command, &[]).status, DATA_LENGTH_INVALID, "{len} bytes");
    }
    assert_eq!(queue.connect(0, 0xFFFF, NQN).status, 0);
    // Already connected: refused before its data is requested.
    let (mut command, _) = connect_command(0, 31, 0xFFFF, NQN);
    command.data.kind = Sgl::TRANSPORT;
    command.data.len = u32::MAX.into();
    assert_eq!(queue.call(command, &[]).status, DATA_LENGTH_INVALID);
}

/// Thirty capsules of 72 bytes arrive in one piece and request 30 MiB.
#[test]
fn admin_answers_that_are_not_taken_are_bounded() {
    let mut queue = admin_of(32);
    let numbers = send_at_once(&mut queue, &[long_page(); 30]);
    let unsent = queue.link.connection.output().len();
    assert!(unsent <= MEMORY_MAX + HEADERS, "{unsent} bytes");
    for number in numbers {
        assert_eq!(queue.wait(number).data.len(), 1 << 20);
    }
    assert_eq!(queue.link.connection.memory(), 0);
}

/// Waiting commands are answered one after the other, without recursion: a thread has a stack of 2
/// MiB.
#[test]
fn long_queue_of_waiting_commands_needs_no_deep_stack() {
    let mut queue = admin_of(4096);
    // Waits as if it had a response of 4096 bytes, but has none.
    let mut identify = sqe(admin::IDENTIFY, 0, [0x42, 0, 0, 0, 0, 0]);
    identify.data.len = 4096.into();
    let commands: Vec<Sqe> = [long_page(); 5].into_iter().chain([identify; 4000]).collect();
    let numbers = send_at_once(&mut queue, &commands);
    for (n, number) in numbers.into_iter().enumerate() {
        assert_eq!(queue.wait(number).status, if n < 5 { 0 } else { 0x4002 });
    }
    assert_eq!((queue.link.connection.memory(), queue.link.connection.in_flight()), (0, 0));
}

#[test]
fn requests_for_events_hold_no_memory() {
    let mut queue = admin_of(32);
    let mut request = sqe(admin::ASYNC_EVENT_REQUEST, 0, [0; 6]);
    request.data.len = (1 << 20).into();
    send_at_once(&mut queue, &[request; 4]);
    assert_eq!((queue.link.connection.memory(), queue.link.connection.in_flight()), (0, 4));
    let page = queue.submit(long_page(), &[]);
    assert_eq!(queue.wait(page).data.len(), 1 << 20);
}

/// A host uses the same identifier for two commands. The event completes the event request, not the
/// other one with data still arriving.
#[test]
fn event_ends_no_other_command_of_its_number() {
    let target = target(RAM);
    let mut queue = Queue::admin(&target);
    assert_eq!(queue.call(sqe(admin::SET_FEATURES, 0, [0x0B, 1 << 27, 0, 0, 0, 0]), &[]).status, 0);
    let raw = |mut command: Sqe| {
        command.cid = 99.into();
        let common = CommonHeader { kind: 4, flags: 0, header_len: 72, data_offset: 0, len: 72.into() };
        [common.as_bytes(), command.as_bytes()].concat()
    };
    let mut with_data = sqe(admin::SET_FEATURES, 0, [0x81, 0, 0, 0, 0, 0]);
    with_data.data.len = 16.into();
    let connection = &mut queue.link.connection;
    connection.receive(Nanos(0), &raw(with_data));
    connection.receive(Nanos(0), &raw(sqe(admin::ASYNC_EVENT_REQUEST, 0, [0; 6])));
    let header = DataHeader {
        common: CommonHeader {
            kind: PduKind::HostData as u8,
            flags: 4,
            header_len: 24,
            data_offset: 24,
            len: 40.into(),
        },
        command: 99.into(),
        transfer: 0.into(),
        offset: 0.into(),
        len: 16.into(),
        reserved: [0; 4],
    };
    connection.receive(Nanos(0), header.as_bytes());
    connection.receive(Nanos(0), &[0; 8]);
    target.volume().device().set_zone(ZoneIndex(3), ZoneSetting::ReadOnly).unwrap();
    for _ in 0..10 {
        target.volume().poll(Nanos(0));
        connection.poll(Nanos(0));
    }
    assert_eq!(connection.in_flight(), 1, "the request for events has ended");
    connection.receive(Nanos(0), &[0; 8]);
    assert_eq!((connection.in_flight(), connection.is_over()), (0, false));
}

/// Bytes that arrive in time do not extend the deadline.
#[test]
fn connection_without_a_queue_ends_in_bounded_time() {
    let mut queue = Queue::raw(host::Direct::new(&target(RAM)), Digests::default());
    let connection = &mut queue.link.connection;
    connection.poll(Nanos(5));
    let until = Nanos(5 + CONNECT_MAX.as_nanos() as u64);
    assert_eq!(connection.deadline(), Some(until));
    for (n, byte) in [0, 0, 128, 0, 128, 0].into_iter().enumerate() {
        connection.receive(Nanos(until.0 / 10 * n as u64), &[byte]);
        connection.poll(Nanos(until.0 / 10 * n as u64));
        assert!(!connection.is_over());
    }
    connection.poll(until);
    assert!(connection.is_over());
    assert_eq!(connection.deadline(), None, "nothing is waited for");
}

/// A shorter timeout than requested would end the controller unexpectedly for its host.
#[test]
fn time_to_keep_alive_beyond_an_hour_is_refused() {
    let mut queue = Queue::open(&target(RAM), Digests::default());
    for keep_alive in [3_600_001, u32::MAX] {
        let (mut command, data) = connect_command(0, 31, 0xFFFF, NQN);
        command.cdw[2] = keep_alive.into();
        let end = queue.call(command, &data);
        assert_eq!((end.status, end.result), (CONNECT_INVALID, 48));
    }
    let (mut command, data) = connect_command(0, 31, 0xFFFF, NQN);
    command.cdw[2] = 3_600_000.into();
    assert_eq!(queue.call(command, &data).status, 0);
}

#[test]
fn connection_with_a_queue_has_no_such_end() {
    let mut queue = Queue::open(&target(RAM), Digests::default());
    let (mut command, data) = connect_command(0, 31, 0xFFFF, NQN);
    command.cdw[2] = 0.into();
    assert_eq!(queue.call(command, &data).status, 0, "without a time to keep alive");
    queue.link.now = Nanos(CONNECT_MAX.as_nanos() as u64 * 1000);
    queue.poll();
    assert_eq!((queue.link.connection.is_over(), queue.link.connection.deadline()), (false, None));
}

#[test]
fn nothing_follows_the_reason_for_an_end() {
    let admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    let mut read = sqe(io::READ, 1, [0; 6]);
    read.data.len = 4096.into();
    send_at_once(&mut queue, &[read; 8]);
    queue.link.connection.receive(Nanos(0), &[0xFF; 8]);
    let unsent = queue.link.connection.output().len();
    for _ in 0..10 {
        queue.link.target.volume().poll(Nanos(0));
        queue.link.connection.poll(Nanos(0));
    }
    assert_eq!(queue.link.connection.output().len(), unsent);
}

/// The next zone is empty, so that the rest of the write could be executed there.
#[test]
fn write_across_zones_writes_nothing() {
    let admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    for opcode in [io::WRITE, io::WRITE_ZEROES] {
        let mut command = sqe(opcode, 1, [1023, 0, 3, 0, 0, 0]);
        command.data.len = if opcode == io::WRITE { 16384 } else { 0 }.into();
        assert_eq!(queue.call(command, &vec![7; command.data.len.get() as usize]).status, 0x41BC);
    }
    let mut report = sqe(io::ZONE_MANAGEMENT_RECEIVE, 1, [1024, 0, 31, 1 << 16, 0, 0]);
    report.data.len = 128.into();
    let zone = queue.call(report, &[]).data[64..128].to_vec();
    assert_eq!((zone[1] >> 4, &zone[24..32]), (1, &1024u64.to_le_bytes()[..]), "empty");
}

/// A host that spends a long time sending the data of one command is alive.
#[test]
fn data_keep_a_controller_alive() {
    let mut admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    let mut command = sqe(io::WRITE, 1, [0, 0, 255, 0, 0, 0]);
    command.data.len = (1 << 20).into();
    let (_, bytes) = queue.capsule(command, &[]);
    queue.link.connection.receive(Nanos(0), &bytes);
    let header = [6, 4, 24, 24, 24, 0, 16, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0];
    let number = bytes[10..12].to_vec();
    let mut header = header.to_vec();
    header[8..10].copy_from_slice(&number);
    queue.link.connection.receive(Nanos(0), &header);
    for second in 1..20 {
        let now = Nanos(second * 1_000_000_000);
        assert!(queue.link.connection.room().is_some());
        queue.link.connection.has_received(now, 4096);
        admin.link.now = now;
        admin.poll();
        assert!(!admin.link.connection.is_over(), "after {second} seconds");
    }
}

/// The volume resets each zone of a namespace with a separate command.
#[test]
fn reset_of_all_zones_counts_each_zone() {
    let admin = Queue::admin(&target("null:size=6400M,zone_size=64k,complete=poll,blocksize=4096"));
    let mut queue = admin.io(1);
    let reset = sqe(io::ZONE_MANAGEMENT_SEND, 1, [0, 0, 0, 4 | 1 << 8, 0, 0]);
    let numbers = send_at_once(&mut queue, &[reset; 20]);
    let memory = queue.link.connection.memory();
    assert!((102_400 * 56..2 * 102_400 * 200).contains(&memory), "of one command: {memory} bytes");
    for number in numbers {
        assert_eq!(queue.wait(number).status, 0);
    }
    assert_eq!(queue.link.connection.memory(), 0);
}

/// Options for a target with memory for the initial bytes of this number of queues.
fn memory_of(queues: usize) -> TargetOptions {
    options().with_memory_max(queues * QUEUE_MEMORY_MIN)
}

fn read_of(kib: u32) -> Sqe {
    let mut command = sqe(io::READ, 1, [0, 0, kib / 4 - 1, 0, 0, 0]);
    command.data.len = (kib << 10).into();
    command
}

/// Memory in use by a queue's connection, in bytes.
fn held(queue: &mut Queue) -> usize {
    queue.link.connection.memory() + queue.link.connection.output().len()
}

/// Delivers reads and lets the volume complete all that are started, without reading a response.
/// Returns their identifiers.
fn read_in_silence(queue: &mut Queue, command: Sqe, count: usize) -> Vec<u16> {
    let numbers = send_at_once(queue, &vec![command; count]);
    for _ in 0..count {
        queue.link.target.volume().poll(Nanos(0));
        queue.link.connection.poll(Nanos(0));
    }
    numbers
}

const NULL: &str = "null:size=64M,zone_size=4M,complete=poll,blocksize=4096";

/// Each requests 3.75 MiB in commands of 128 KiB.
#[test]
fn six_hundred_hosts_that_take_nothing_hold_little_and_others_are_served() {
    let target = target(NULL);
    let mut admins = Vec::new();
    let mut silent: Vec<Queue> = Vec::new();
    while silent.len() < 600 {
        let admin = Queue::admin(&target);
        silent.extend((1..=100).map(|qid| admin.io(qid)));
        admins.push(admin);
    }
    let mut all = 0;
    for queue in &mut silent {
        read_in_silence(queue, read_of(128), 30);
        let held = held(queue);
        assert!(held > 0 && held <= QUEUE_MEMORY_MIN + HEADERS, "{held} bytes");
        all += held;
    }
    assert!(all < silent.len() * MEMORY_MAX / 10, "{all} bytes of memory for {} queues", silent.len());
    let mut queue = admins[0].io(101);
    for kib in [4, 128, 1024] {
        let end = queue.call(read_of(kib), &[]);
        assert_eq!((end.status, end.data.len()), (0, (kib as usize) << 10));
    }
}

#[test]
fn queue_memory_grows_as_its_host_reads_responses() {
    let target = target(NULL);
    let admin = Queue::admin(&target);
    let (mut queue, mut most) = (admin.io(1), 0);
    for _ in 0..12 {
        for number in read_in_silence(&mut queue, read_of(512), 30) {
            most = most.max(held(&mut queue));
            assert_eq!(queue.wait(number).data.len(), 512 << 10);
        }
    }
    let enough = MEMORY_MAX - (512 << 10);
    assert!((enough..=MEMORY_MAX + HEADERS).contains(&most), "{most} bytes");
}

#[test]
fn connect_without_memory_for_the_queue_fails_with_controller_busy() {
    const CONNECT_BUSY: u16 = 0x181;
    let target = target_with(NULL, memory_of(3));
    let admin = Queue::admin(&target);
    let (_first, second) = (admin.io(1), admin.io(2));
    let mut refused = Queue::open(&target, Digests::default());
    assert_eq!(refused.connect(3, admin.controller(), NQN).status, CONNECT_BUSY);
    drop(second);
    assert_eq!(refused.connect(3, admin.controller(), NQN).status, 0, "its number was not taken");
    assert_eq!(refused.call(read_of(256), &[]).status, 0);
}

/// A host with a grown connection holds all remaining memory and stops reading.
#[test]
fn host_that_stalls_with_memory_that_others_wait_for_is_closed() {
    let target = target_with(NULL, memory_of(10));
    let admin = Queue::admin(&target);
    let (mut hog, mut other) = (admin.io(1), admin.io(2));
    for _ in 0..400 {
        assert_eq!(hog.call(read_of(128), &[]).status, 0);
    }
    read_in_silence(&mut hog, read_of(128), 30);
    assert_eq!(held(&mut hog) / QUEUE_MEMORY_MIN, 8, "all but the others'");
    assert_eq!(other.call(read_of(256), &[]).status, 0, "its first bytes are its own");
    let waiting = other.submit(read_of(1024), &[]);
    let mut at = |time: Nanos| {
        hog.link.connection.poll(time);
        other.poll();
        (hog.link.connection.is_over(), other.end(waiting).is_some())
    };
    let bound = STALLED_MAX.as_nanos() as u64;
    assert_eq!(at(Nanos(bound - 1)), (false, false));
    assert_eq!(at(Nanos(bound)), (true, false));
    drop(hog);
    assert_eq!(other.wait(waiting).data.len(), 1 << 20);
}

/// They wait behind a write with missing data. Their host may retry them.
#[test]
fn data_in_capsules_without_memory_for_them_end_as_interrupted() {
    const INTERRUPTED: u16 = 0x21;
    let target = target_with(NULL, memory_of(3));
    let admin = Queue::admin(&target);
    let (mut queue, _other) = (Queue::open(&target, Digests::default()), admin.io(2));
    let (connect, data) = connect_command(1, 127, admin.controller(), NQN);
    assert_eq!(queue.call(connect, &data).status, 0);
    let write = |lba: u32, blocks: u32| {
        let mut command = sqe(io::WRITE, 1, [lba, 0, blocks - 1, 0, 0, 0]);
        command.data.len = (blocks * 4096).into();
        command
    };
    queue.holds_data = true;
    let first = queue.submit(write(0, 1), &[1; 4096]);
    let numbers: Vec<u16> =
        (0..60).map(|n| queue.submit(write(1 + 2 * n, 2).with_capsule(8192), &[2; 8192])).collect();
    let mut ends: Vec<u16> = numbers.iter().filter_map(|n| queue.end(*n)).map(|end| end.status).collect();
    ends.dedup();
    let refused = numbers.len() - (QUEUE_MEMORY_MIN - 4096) / 8192;
    assert_eq!(ends, [INTERRUPTED], "{refused} of them");
    assert_eq!(queue.link.connection.in_flight(), 1 + numbers.len() - refused);
    queue.holds_data = false;
    queue.send_held_data();
    assert_eq!(queue.wait(first).status, 0);
    assert_eq!(queue.link.connection.in_flight(), 0);
}
