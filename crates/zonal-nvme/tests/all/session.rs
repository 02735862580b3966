//! Session of a host with a controller, without sockets.

use crate::host::{Digests, End, NQN, Queue, UUID, connect_command, sqe, target};
use zonal_nvme::subsystem::DISCOVERY_NQN;
use zonal_nvme::wire::{Sgl, Sqe, admin, io, term};

const RAM: &str = "ram:size=64M,zone_size=4M,zone_max_open=2,zone_max_active=3,complete=poll,blocksize=4096";
const ZONE: u32 = 1024;

fn write(lba: u32, blocks: u32) -> (Sqe, Vec<u8>) {
    let data: Vec<u8> = (0..blocks * 4096).map(|n| (n / 7 + lba) as u8).collect();
    let mut command = sqe(io::WRITE, 1, [lba, 0, blocks - 1, 0, 0, 0]);
    command.data.len = (blocks * 4096).into();
    (command, data)
}

fn write_in(queue: &mut Queue, lba: u32, blocks: u32) -> End {
    let (command, data) = write(lba, blocks);
    queue.call(command, &data)
}

fn read_in(queue: &mut Queue, lba: u32, blocks: u32) -> End {
    let command = queue.with_room(sqe(io::READ, 1, [lba, 0, blocks - 1, 0, 0, 0]), blocks * 4096);
    queue.call(command, &[])
}

fn append(queue: &mut Queue, zone: u32, blocks: u32) -> End {
    let data = vec![9; (blocks * 4096) as usize];
    let mut command = sqe(io::ZONE_APPEND, 1, [zone * ZONE, 0, blocks - 1, 0, 0, 0]);
    command.data.len = (blocks * 4096).into();
    queue.call(command, &data)
}

fn send_zone(queue: &mut Queue, lba: u32, action: u32) -> u16 {
    queue.call(sqe(io::ZONE_MANAGEMENT_SEND, 1, [lba, 0, 0, action, 0, 0]), &[]).status
}

fn report(queue: &mut Queue, lba: u32, len: u32, options: u32) -> End {
    let command = sqe(io::ZONE_MANAGEMENT_RECEIVE, 1, [lba, 0, len / 4 - 1, options, 0, 0]);
    let command = queue.with_room(command, len);
    queue.call(command, &[])
}

const ALL: u32 = 1 << 8;
const PARTIAL: u32 = 1 << 16;

#[test]
fn host_reads_back_written_data_with_and_without_digests() {
    for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
        for step in [usize::MAX, 4096, 1000, 7] {
            let mut admin = Queue::admin_with(&target(RAM), Digests { header, data }, NQN);
            let mut queue = admin.io(1);
            queue.link.step = step;
            assert_eq!(write_in(&mut queue, 0, 1).status, 0);
            // Too long for a capsule, so the controller requests it.
            assert_eq!(write_in(&mut queue, 1, 16).status, 0);
            let (mut expected, more) = (write(0, 1).1, write(1, 16).1);
            expected.extend(more);
            assert_eq!(read_in(&mut queue, 0, 17), End { data: expected, ..End::default() });
            admin.poll();
        }
    }
}

#[test]
fn data_in_a_capsule_are_written() {
    let admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    let (mut command, data) = write(0, 2);
    command.data.kind = Sgl::IN_CAPSULE;
    assert_eq!(queue.call(command, &data).status, 0);
    assert_eq!(read_in(&mut queue, 0, 2).data, data);
}

/// With an inline device, the memory of one write serves the next from the same read of the socket.
#[test]
fn write_that_ends_at_once_is_answered_before_a_poll() {
    let admin = Queue::admin(&target("ram:size=64M,zone_size=4M,complete=inline,blocksize=4096"));
    let mut queue = admin.io(1);
    let capsules = (0..4).map(|n| {
        let (mut command, data) = write(n, 1);
        command.data.kind = Sgl::IN_CAPSULE;
        queue.capsule(command, &data)
    });
    let (commands, bytes): (Vec<u16>, Vec<Vec<u8>>) = capsules.unzip();
    queue.send(&bytes.concat());
    for cid in commands {
        assert_eq!(queue.end(cid).map(|end| end.status), Some(0));
    }
}

/// A later write with in-capsule data is complete before an earlier one with data to request.
#[test]
fn writes_of_a_zone_at_depth_reach_it_in_order() {
    let admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    let commands: Vec<u16> = (0..30)
        .map(|n| {
            let (mut command, data) = write(n, 1);
            if n % 3 != 0 {
                command.data.kind = Sgl::IN_CAPSULE;
            }
            queue.submit(command, &data)
        })
        .collect();
    for cid in commands {
        assert_eq!(queue.wait(cid).status, 0);
    }
}

#[test]
fn refusals_have_the_statuses_of_the_standard() {
    let admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    assert_eq!(write_in(&mut queue, 100, 1).status, 0x41BC, "not at the pointer");
    assert_eq!(append(&mut queue, 1, 1), End { result: 1024, ..End::default() });
    assert_eq!(append(&mut queue, 1, 2), End { result: 1025, ..End::default() });
    let data = vec![0; 4096];
    let mut command = sqe(io::ZONE_APPEND, 1, [5, 0, 0, 0, 0, 0]);
    command.data.len = 4096.into();
    assert_eq!(queue.call(command, &data).status, 0x4002, "an append not to a zone's start");
    assert_eq!(send_zone(&mut queue, 0, 1), 0x41BF, "an empty zone is not closed");
    assert_eq!(send_zone(&mut queue, 1, 3), 0x4002, "not a zone's start");
    assert_eq!(send_zone(&mut queue, 0, 5), 0x41BF, "a good zone is not taken offline");
    assert_eq!(send_zone(&mut queue, 0, 9), 0x4002, "no such action");
    assert_eq!(send_zone(&mut queue, 0, 2), 0, "finish");
    assert_eq!(write_in(&mut queue, 0, 1).status, 0x41B9, "full");
    assert_eq!(write_in(&mut queue, 16 * ZONE, 1).status, 0x4080, "beyond the end");
    assert_eq!(write_in(&mut queue, 2 * ZONE, 1).status, 0);
    assert_eq!(write_in(&mut queue, 3 * ZONE, 1).status, 0, "an open zone is closed for it");
    assert_eq!(write_in(&mut queue, 4 * ZONE, 1).status, 0x41BD, "too many active");
    let mut command = sqe(io::READ, 7, [0; 6]);
    command.data.len = 4096.into();
    assert_eq!(queue.call(command, &[]).status, 0x400B, "no such namespace");
    assert_eq!(queue.call(sqe(0x55, 1, [0; 6]), &[]).status, 0x4001, "no such opcode");
    let mut command = write(0, 1).0;
    command.flags |= 1;
    assert_eq!(queue.call(command, &write(0, 1).1).status, 0x4002, "fused");
    let mut command = write(0, 2).0;
    command.data.len = 4096.into();
    assert_eq!(queue.call(command, &data).status, 0x400F, "less data than blocks");
}

#[test]
fn zone_counts_of_reports_follow_the_standard() {
    let admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    assert_eq!(append(&mut queue, 2, 3).status, 0);
    let count = |end: &End| u64::from_le_bytes(end.data[..8].try_into().unwrap());
    let all = report(&mut queue, 0, 64 * 17, PARTIAL);
    assert_eq!((all.status, count(&all)), (0, 16));
    let third = &all.data[64 * 3..64 * 4];
    assert_eq!((third[0], third[1]), (2, 2 << 4), "sequential, open by a write");
    assert_eq!(third[8..16], 1024u64.to_le_bytes());
    assert_eq!(third[16..24], 2048u64.to_le_bytes());
    assert_eq!(third[24..32], 2051u64.to_le_bytes());
    let some = report(&mut queue, 0, 64 * 3, PARTIAL);
    assert_eq!(count(&some), 2, "partial: what fits");
    let some = report(&mut queue, 0, 64 * 3, 0);
    assert_eq!((count(&some), some.data.len()), (16, 192), "otherwise all");
    let open = report(&mut queue, 0, 64 * 3, 2 << 8);
    assert_eq!((count(&open), &open.data[64..80], &open.data[128..]), (1, &third[..16], &[0; 64][..]));
    let rest = report(&mut queue, 14 * ZONE + 5, 4096, 0);
    assert_eq!(count(&rest), 2, "from the zone that holds the block");
    assert_eq!(report(&mut queue, 0, 60, 0).status, 0x4002, "no room for the header");
    assert_eq!(report(&mut queue, 0, 4096, 1).status, 0x4002, "there are no extensions");
    assert_eq!(report(&mut queue, 16 * ZONE, 4096, 0).status, 0x4080);
}

#[test]
fn actions_on_all_zones_select_the_specified_zones() {
    let admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    let conditions = |queue: &mut Queue| {
        let all = report(queue, 0, 64 * 17, PARTIAL);
        (0..4).map(|n| all.data[64 * (n + 1) + 1] >> 4).collect::<Vec<u8>>()
    };
    for zone in 0..3 {
        assert_eq!(append(&mut queue, zone, 1).status, 0);
    }
    assert_eq!(send_zone(&mut queue, 77, 1 | ALL), 0, "close");
    assert_eq!(conditions(&mut queue), [4, 4, 4, 1]);
    assert_eq!(send_zone(&mut queue, 0, 3 | ALL), 0x41BE, "all or none: two can be open");
    assert_eq!(conditions(&mut queue), [4, 4, 4, 1]);
    assert_eq!(send_zone(&mut queue, 0, 4), 0);
    assert_eq!(send_zone(&mut queue, 0, 3 | ALL), 0);
    assert_eq!(conditions(&mut queue), [1, 3, 3, 1]);
    assert_eq!(send_zone(&mut queue, 0, 2 | ALL), 0, "finish");
    assert_eq!(conditions(&mut queue), [1, 0xE, 0xE, 1]);
    assert_eq!(send_zone(&mut queue, 0, 4 | ALL), 0, "reset");
    assert_eq!(conditions(&mut queue), [1, 1, 1, 1]);
    assert_eq!(send_zone(&mut queue, 0, 5 | ALL), 0, "none is read-only");
}

#[test]
fn identify_describes_controller_and_namespaces() {
    let target = target(RAM);
    let mut admin = Queue::admin(&target);
    let controller = admin.identify(1, 0, 0).data;
    assert_eq!(&controller[768..768 + NQN.len()], NQN.as_bytes());
    assert_eq!(controller[77], 8, "a megabyte at once");
    assert_eq!(admin.identify(6, 2, 0).data[0], 8, "appends no longer than that");
    assert_eq!(controller[95] & 8, 8, "events of zones");
    let namespace = admin.identify(0, 0, 1).data;
    assert_eq!(namespace[..8], (16 * 1024u64).to_le_bytes());
    assert_eq!(namespace[130], 12);
    let zoned = admin.identify(5, 2, 1).data;
    assert_eq!(
        (zoned[..2].to_vec(), &zoned[4..8], &zoned[8..12]),
        (vec![0, 0], &[2, 0, 0, 0][..], &[1, 0, 0, 0][..])
    );
    assert_eq!(zoned[2816..2824], 1024u64.to_le_bytes());
    let descriptors = admin.identify(3, 0, 1).data;
    assert_eq!(descriptors[..2], [2, 16]);
    assert_eq!(descriptors[40..45], [4, 1, 0, 0, 2], "the zoned command set");
    let uuid = u128::from_be_bytes(descriptors[24..40].try_into().unwrap());
    assert_eq!(format!("{uuid:032x}"), UUID.replace('-', ""));
    for (cns, set, nsid) in [(5, 2, 9), (5, 2, u32::MAX), (3, 0, 2)] {
        assert_eq!(admin.identify(cns, set, nsid).status, 0x400B);
    }
    assert_eq!(admin.identify(0x42, 0, 1).status, 0x4002);
    for (set, first) in [(0, 0), (2, 1)] {
        assert_eq!(admin.identify(7, set, 0).data[..4], [first, 0, 0, 0]);
    }
}

#[test]
fn drive_with_both_kinds_of_zones_is_two_namespaces() {
    let target = target("ram:size=64M,zone_size=4M,zone_nr_conv=3,blocksize=4096");
    let mut admin = Queue::admin(&target);
    assert_eq!(admin.identify(2, 0, 0).data[..12], [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(admin.identify(7, 0, 0).data[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(admin.identify(0, 0, 1).data[..8], (13 * 1024u64).to_le_bytes());
    assert_eq!(admin.identify(0, 0, 2).data[..8], (3 * 1024u64).to_le_bytes());
    assert_eq!(admin.identify(5, 2, 2).status, 0x4002);
    let mut queue = admin.io(1);
    let (mut command, data) = write(100, 1);
    command.nsid = 2.into();
    assert_eq!(queue.call(command, &data).status, 0, "anywhere");
    assert_eq!(write_in(&mut queue, 0, 1).status, 0);
    assert_eq!(read_in(&mut queue, 0, 1).data, write(0, 1).1);
}

/// Linux sends 4096 bytes with every deallocation; the command contains the number of ranges.
#[test]
fn deallocate_ignores_data_beyond_its_range_count() {
    let target = target("ram:size=64M,zone_size=4M,zone_nr_conv=3,blocksize=4096");
    let admin = Queue::admin(&target);
    let mut queue = admin.io(1);
    let mut deallocate = |kind: u8, len: u32| {
        for lba in [100, 3000] {
            let (mut command, data) = write(lba, 1);
            command.nsid = 2.into();
            assert_eq!(queue.call(command, &data).status, 0);
        }
        let range = |lba: u32, blocks: u32| [0, blocks, lba, 0].map(u32::to_le_bytes).concat();
        // From the first zone into the third; the command does not count the other range.
        let mut ranges = [range(1, 2999), range(3000, 72)].concat();
        ranges.resize(len as usize, 0);
        let mut command = sqe(io::DATASET_MANAGEMENT, 2, [0, 4, 0, 0, 0, 0]);
        (command.data.kind, command.data.len) = (kind, len.into());
        let status = queue.call(command, &ranges).status;
        let mut is_zero = |lba: u32| {
            let mut command = queue.with_room(sqe(io::READ, 2, [lba, 0, 0, 0, 0, 0]), 4096);
            command.nsid = 2.into();
            queue.call(command, &[]).data.iter().all(|byte| *byte == 0)
        };
        (status, is_zero(100), is_zero(3000))
    };
    for kind in [Sgl::IN_CAPSULE, Sgl::TRANSPORT] {
        assert_eq!(deallocate(kind, 12), (0x400F, false, false), "less than a range");
        assert_eq!(deallocate(kind, 16), (0, true, false));
        assert_eq!(deallocate(kind, 32), (0, true, false));
        assert_eq!(deallocate(kind, 4096), (0, true, false));
    }
}

#[test]
fn zone_turning_read_only_raises_an_event_and_is_logged() {
    let target = target(RAM);
    let mut admin = Queue::admin(&target);
    assert_eq!(admin.call(sqe(admin::SET_FEATURES, 0, [0x0B, 1 << 27, 0, 0, 0, 0]), &[]).status, 0);
    let asked = admin.submit(sqe(admin::ASYNC_EVENT_REQUEST, 0, [0; 6]), &[]);
    admin.poll();
    assert_eq!(admin.end(asked), None);
    let zone = zonal_core::ZoneIndex(3);
    target.volume().device().set_zone(zone, zonal_io::changes::ZoneSetting::ReadOnly).unwrap();
    let event = admin.wait(asked);
    assert_eq!(event.result, 2 | 0xEF << 8 | 0xBF << 16 | 1 << 32);
    let log = sqe(admin::GET_LOG_PAGE, 1, [0xBF | 1023 << 16, 0, 0, 0, 2 << 24, 0]);
    let log = admin.with_room(log, 4096);
    let page = admin.call(log, &[]).data;
    assert_eq!((&page[..2], &page[8..16]), (&[1, 0][..], &(3 * 1024u64).to_le_bytes()[..]));
    assert_eq!(admin.call(log, &[]).data[..2], [0, 0], "it was read");
    let mut queue = admin.io(1);
    assert_eq!(append(&mut queue, 3, 1).status, 0x41BA);
}

#[test]
fn discovery_lists_the_subsystem() {
    let mut admin = Queue::admin_with(&target(RAM), Digests::default(), DISCOVERY_NQN);
    let log = admin.with_room(sqe(admin::GET_LOG_PAGE, 0, [0x70 | 767 << 16, 0, 0, 0, 0, 0]), 3072);
    let page = admin.call(log, &[]).data;
    assert_eq!(page[8..16], 2u64.to_le_bytes());
    assert_eq!(&page[2048 + 256..2048 + 256 + NQN.len()], NQN.as_bytes());
    assert_eq!(&page[2048 + 32..2048 + 37], b"4420 ");
    assert_eq!(admin.identify(2, 0, 0).status, 0x4002);
}

#[test]
fn queue_is_refused_without_its_controller() {
    let target = target(RAM);
    let mut queue = Queue::open(&target, Digests::default());
    assert_eq!(queue.connect(1, 5, NQN), End { status: 0x4182, result: 1 << 16 | 16, ..End::default() });
    assert_eq!(queue.connect(0, 0xFFFF, "nqn.2020-01.b:other").result, 1 << 16 | 256);
    for name in [256, 512] {
        let (command, mut data) = connect_command(0, 31, 0xFFFF, NQN);
        data[name + 4] = 0xFF;
        let refused = End { status: 0x4182, result: 1 << 16 | 256, ..End::default() };
        assert_eq!(queue.call(command, &data), refused, "a name that is no text");
    }
    let admin = Queue::admin(&target);
    let first = admin.io(1);
    let controller = admin.controller();
    assert_eq!(queue.connect(1, controller, NQN).status, 0x4182, "the number is taken");
    drop(first);
    assert_eq!(queue.connect(1, controller, NQN).status, 0, "and free again");
    drop(admin);
    assert!(queue.link.connection.is_over(), "without its admin queue a controller is gone");
}

#[test]
fn host_that_is_silent_for_too_long_loses_its_controller() {
    let mut admin = Queue::admin(&target(RAM));
    admin.link.now = zonal_core::Nanos(9_000_000_000);
    assert_eq!(admin.call(sqe(admin::KEEP_ALIVE, 0, [0; 6]), &[]).status, 0);
    admin.link.now = zonal_core::Nanos(18_000_000_000);
    admin.poll();
    assert!(!admin.link.connection.is_over());
    admin.link.now = zonal_core::Nanos(19_000_000_000);
    admin.poll();
    assert!(admin.link.connection.is_over());
}

#[test]
fn invalid_pdus_terminate_the_connection() {
    let target = target(RAM);
    let cases: [(&[u8], u16); 5] = [
        (&[9, 0, 24, 0, 24, 0, 0, 0], term::HEADER_FIELD),
        (&[4, 0, 70, 0, 72, 0, 0, 0], term::HEADER_FIELD),
        (&[4, 0, 72, 0, 73, 0, 0, 0], term::HEADER_FIELD),
        (&[4, 1, 72, 0, 76, 0, 0, 0], term::HEADER_FIELD),
        (&[42, 0, 24, 0, 24, 0, 0, 0], term::HEADER_FIELD),
    ];
    for (bytes, error) in cases {
        let mut queue = Queue::open(&target, Digests::default());
        queue.send(bytes);
        assert_eq!(queue.terminated, Some(error), "{bytes:?}");
        assert!(queue.link.connection.is_over());
    }
    let mut queue = Queue::open(&target, Digests::default());
    queue.send(&[0; 128].map(|_| 0)[..]);
    assert!(queue.link.connection.is_over(), "opened twice, and of no length");
}

/// Writes of a lost host that have not reached the device are not executed.
#[test]
fn writes_of_a_lost_connection_that_wait_are_not_carried_out() {
    let admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    let (command, data) = write(0, 1);
    // The first is at the device, which completes when polled; the others wait.
    for lba in 0..20 {
        let mut command = command;
        command.cdw[0] = lba.into();
        command.data.kind = Sgl::IN_CAPSULE;
        queue.submit(command, &data);
    }
    let now = queue.link.now;
    queue.link.connection.cancel(now);
    drop(queue);
    let mut other = admin.io(1);
    for _ in 0..10 {
        other.poll();
    }
    let all = report(&mut other, 0, 64 * 3, PARTIAL);
    let pointer = u64::from_le_bytes(all.data[64 + 24..64 + 32].try_into().unwrap());
    assert_eq!(pointer, 1, "only what was at the device");
}

/// ZNS 3.4.1: nothing is written, to either zone.
#[test]
fn write_that_leaves_its_zone_is_refused_as_a_whole() {
    let admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    let pointers = |queue: &mut Queue| {
        let data = report(queue, 0, 64 * 3, PARTIAL).data;
        [64, 128].map(|at| u64::from_le_bytes(data[at + 24..at + 32].try_into().unwrap()))
    };
    for at in (0..ZONE - 64).step_by(64) {
        assert_eq!(write_in(&mut queue, at, 64).status, 0);
    }
    // At the pointer, and not at it.
    assert_eq!(write_in(&mut queue, ZONE - 64, 128).status, 0x41B8);
    assert_eq!(write_in(&mut queue, ZONE - 32, 64).status, 0x41BC);
    let zeroes = |lba: u32, blocks: u32| sqe(io::WRITE_ZEROES, 1, [lba, 0, blocks - 1, 0, 0, 0]);
    assert_eq!(queue.call(zeroes(ZONE - 64, 128), &[]).status, 0x41B8);
    assert_eq!(pointers(&mut queue), [u64::from(ZONE - 64), u64::from(ZONE)]);
    // Zone full takes precedence.
    assert_eq!(write_in(&mut queue, ZONE - 64, 64).status, 0);
    assert_eq!(write_in(&mut queue, ZONE - 32, 64).status, 0x41B9);
    assert_eq!(pointers(&mut queue)[1], u64::from(ZONE));
}

/// An address beyond the namespace takes precedence over an unsupported action.
#[test]
fn out_of_range_zone_is_reported_before_an_unknown_action() {
    let admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    const SET_EXTENSION: u32 = 0x10;
    for action in [1, 5, SET_EXTENSION, 9] {
        assert_eq!(send_zone(&mut queue, 16 * ZONE, action), 0x4080, "{action}");
    }
    assert_eq!(send_zone(&mut queue, 0, SET_EXTENSION), 0x4002);
    assert_eq!(send_zone(&mut queue, 0, SET_EXTENSION | ALL), 0x4002);
}
