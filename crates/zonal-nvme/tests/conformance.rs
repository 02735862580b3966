//! What the standards ask of the controller, clause by clause: order of checks, statuses, limits, reports, actions, features, logs.
//! Names with a number are hazards of docs/HAZARDS.md.

mod host;

use host::{Digests, Direct, End, NQN, Queue, sqe, target, target_of, target_with};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use zonal_core::{DeviceError, Nanos, Op, RequestError, Sector, ZoneError, ZoneIndex};
use zonal_io::changes::{Changes, Notices, ZoneSetting};
use zonal_io::device::{Command, Completed, Context, Device, DeviceInfo, Submitted};
use zonal_io::news::Wakeups;
use zonal_io::registry::Registry;
use zonal_nvme::status::Status;
use zonal_nvme::target::{Target, TargetOptions};
use zonal_nvme::wire::{
    ChangedZoneList, ErrorEntry, FirmwareLog, GetLogPage, HealthLog, IdentifyController, IdentifyNamespace,
    IdentifyZoned, IdentifyZonedController, IndependentNamespace, Layout, NamespaceDescriptor, ReportHeader,
    ReportedZone, Sgl, Sqe, ZoneReceive, ZoneSend, admin, fabrics, io, parse_namespaces,
};

/// Zones of 1024 blocks, of which 768 can be written.
const RAM: &str = "ram:size=64M,zone_size=4M,zone_capacity=3M,zone_max_open=2,zone_max_active=3,complete=poll,blocksize=4096";
const ZONE: u32 = 1024;
const CAPACITY: u32 = 768;

fn transfer(opcode: u8, lba: u32, blocks: u32) -> (Sqe, Vec<u8>) {
    let mut command = sqe(opcode, 1, [lba, 0, blocks - 1, 0, 0, 0]);
    command.data.len = (blocks * 4096).into();
    (command, vec![(lba as u8).wrapping_add(1); (blocks * 4096) as usize])
}

fn run(queue: &mut Queue, opcode: u8, lba: u32, blocks: u32) -> u16 {
    let (command, data) = transfer(opcode, lba, blocks);
    queue.call(command, &data).status
}

fn write(queue: &mut Queue, lba: u32, blocks: u32) -> u16 {
    run(queue, io::WRITE, lba, blocks)
}

fn append(queue: &mut Queue, lba: u32, blocks: u32) -> u16 {
    run(queue, io::ZONE_APPEND, lba, blocks)
}

fn without_data(queue: &mut Queue, opcode: u8, lba: u32, blocks: u32) -> u16 {
    queue.call(sqe(opcode, 1, [lba, 0, blocks - 1, 0, 0, 0]), &[]).status
}

fn send_zone(queue: &mut Queue, send: ZoneSend) -> u16 {
    let mut command = sqe(0, 1, [0; 6]);
    send.emit(&mut command);
    queue.call(command, &[]).status
}

fn act(queue: &mut Queue, zone: u32, action: u8) -> u16 {
    send_zone(queue, ZoneSend { lba: u64::from(zone * ZONE), action, is_all: false })
}

fn act_on_all(queue: &mut Queue, action: u8) -> u16 {
    // The address says nothing.
    send_zone(queue, ZoneSend { lba: 77, action, is_all: true })
}

fn receive(queue: &mut Queue, receive: ZoneReceive) -> End {
    let mut command = sqe(0, 1, [0; 6]);
    receive.emit(&mut command);
    command.data.len = u32::try_from(receive.len).unwrap().into();
    queue.call(command, &[])
}

fn report(queue: &mut Queue) -> Vec<ReportedZone> {
    let all = receive(queue, ZoneReceive { lba: 0, len: 64 * 17, action: 0, option: 0, is_partial: true });
    all.data[64..].chunks_exact(64).map(|bytes| ReportedZone::parse(bytes).unwrap()).collect()
}

fn states(queue: &mut Queue) -> Vec<u8> {
    report(queue).iter().map(|zone| zone.state >> 4).collect()
}

fn log(admin: &mut Queue, log: GetLogPage) -> End {
    let mut command = sqe(0, 0, [0; 6]);
    log.emit(&mut command);
    let command = admin.with_room(command, log.len as u32);
    admin.call(command, &[])
}

fn page(admin: &mut Queue, lid: u8, csi: u8, nsid: u32) -> Vec<u8> {
    let end = log(admin, GetLogPage { lid, len: 4096, offset: 0, csi, retains: false, nsid });
    assert_eq!(end.status, 0, "log {lid:02x}");
    end.data
}

fn feature(admin: &mut Queue, opcode: u8, number: u32, value: u32) -> End {
    admin.call(sqe(opcode, 0, [number, value, 0, 0, 0, 0]), &[])
}

fn set(target: &Target, zone: u32, to: ZoneSetting) {
    target.volume().device().set_zone(ZoneIndex(zone), to).unwrap();
}

/// State, pointer, capacity, limits: of several errors the first in this order is told. It is QEMU's.
#[test]
fn writes_with_several_errors_answer_the_first() {
    let target = target(RAM);
    let admin = Queue::admin(&target);
    let mut queue = admin.io(1);
    set(&target, 5, ZoneSetting::ReadOnly);
    set(&target, 6, ZoneSetting::Offline);
    assert_eq!(act(&mut queue, 4, ZoneSend::FINISH), 0);
    for zone in 0..3 {
        assert_eq!(write(&mut queue, zone * ZONE, 1), 0);
    }
    // All active zones are taken now. Each of these begins beyond the pointer and goes beyond the capacity.
    let wrong = |zone: u32| (zone * ZONE + CAPACITY - 1, 2);
    for (zone, status) in [(4, 0x41B9), (5, 0x41BA), (6, 0x41BB), (7, 0x41BC)] {
        let (lba, blocks) = wrong(zone);
        assert_eq!(write(&mut queue, lba, blocks), status, "zone {zone}");
    }
    assert_eq!(write(&mut queue, 7 * ZONE, 256), 0x41BD, "at the pointer, within the capacity");
    assert_eq!(act(&mut queue, 0, ZoneSend::RESET), 0);
    for n in 0..3 {
        assert_eq!(write(&mut queue, 7 * ZONE + n * 255, 255), 0);
    }
    assert_eq!(write(&mut queue, 7 * ZONE + 765, 4), 0x41B8, "beyond the capacity, at the pointer");
    assert_eq!(write(&mut queue, 7 * ZONE + 764, 1), 0x41BC, "below the pointer");
    assert_eq!(act(&mut queue, 7, ZoneSend::CLOSE), 0);
    for zone in [1, 2] {
        assert_eq!(act(&mut queue, zone, ZoneSend::OPEN), 0);
    }
    assert_eq!(write(&mut queue, 7 * ZONE + 765, 4), 0x41B8, "and one open zone too many");
    assert_eq!(append(&mut queue, 7 * ZONE, 4), 0x41B8);
    assert_eq!(write(&mut queue, 7 * ZONE + 765, 1), 0x41BE);
    // Fields and the namespace's end come before the zone.
    assert_eq!(write(&mut queue, 16 * ZONE - 1, 2), 0x4080);
    assert_eq!(write(&mut queue, 16 * ZONE, 257), 0x4002, "more than a command takes, before its address");
    assert_eq!(append(&mut queue, 4 * ZONE + 1, 1), 0x4002, "not a zone's start, before the zone's state");
    for (zone, status) in [(4, 0x41B9), (5, 0x41BA), (6, 0x41BB)] {
        assert_eq!(append(&mut queue, zone * ZONE, 1), status, "append to zone {zone}");
    }
    assert_eq!(append(&mut queue, 7 * ZONE, 4), 0x41B8);
    assert_eq!(append(&mut queue, 8 * ZONE, 1), 0x41BD);
}

#[test]
fn namespace_opcode_and_fields_are_checked_in_this_order() {
    let admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    let mut status = |opcode, nsid, flags| {
        let (mut command, data) = transfer(opcode, 0, 1);
        (command.nsid, command.flags) = (u32::into(nsid), flags);
        queue.call(command, &data).status
    };
    let fused = 0x41;
    assert_eq!(status(0x55, 7, fused), 0x400B);
    assert_eq!(status(0x55, u32::MAX, fused), 0x400B);
    assert_eq!(status(0x55, 1, fused), 0x4001);
    assert_eq!(status(io::WRITE, 1, fused), 0x4002);
    assert_eq!(status(io::WRITE, 1, 0x00), 0x4002, "PRPs");
    assert_eq!(status(io::WRITE, 1, 0x80), 0x4002, "an SGL for metadata");
}

#[test]
fn reads_cross_zones_and_fail_in_offline_ones() {
    let target = target(RAM);
    let admin = Queue::admin(&target);
    let mut queue = admin.io(1);
    assert_eq!(write(&mut queue, 0, 2), 0);
    assert_eq!(run(&mut queue, io::READ, ZONE - 1, 2), 0, "a read may cross zones");
    let (command, _) = transfer(io::READ, 1, 2);
    let data = queue.call(command, &[]).data;
    assert!(data[..4096].iter().all(|byte| *byte == 1) && data[4096..].iter().all(|byte| *byte == 0));
    set(&target, 6, ZoneSetting::Offline);
    assert_eq!(run(&mut queue, io::READ, 6 * ZONE, 1), 0x41BB);
    assert_eq!(run(&mut queue, io::READ, 6 * ZONE - 1, 2), 0x41BB);
    assert_eq!(run(&mut queue, io::READ, 16 * ZONE - 1, 2), 0x4080);
    set(&target, 5, ZoneSetting::ReadOnly);
    assert_eq!(run(&mut queue, io::READ, 5 * ZONE, 1), 0);
}

#[test]
fn zeroes_are_written_and_blocks_verified() {
    let admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    assert_eq!(without_data(&mut queue, io::WRITE_ZEROES, 3, 1), 0x41BC);
    assert_eq!(without_data(&mut queue, io::WRITE_ZEROES, 0, 4), 0);
    assert_eq!(write(&mut queue, 4, 1), 0);
    assert_eq!(report(&mut queue)[0].pointer, 5);
    let (command, _) = transfer(io::READ, 3, 2);
    assert!(queue.call(command, &[]).data[..4096].iter().all(|byte| *byte == 0));
    assert_eq!(without_data(&mut queue, io::VERIFY, 0, 5), 0);
    assert_eq!(without_data(&mut queue, io::VERIFY, 16 * ZONE - 1, 2), 0x4080);
    assert_eq!(without_data(&mut queue, io::WRITE_ZEROES, CAPACITY - 1, 2), 0x41BC);
}

/// A flush follows a write with FUA to a device without it, and the answer comes after the flush.
#[test]
fn write_with_fua_ends_after_a_flush_where_there_is_none() {
    for (fua, flushes) in [(true, 0), (false, 1)] {
        let (odd, target) = odd(|info| (info.fua, info.volatile_cache) = (fua, true));
        let admin = Queue::admin(&target);
        let mut queue = admin.io(1);
        for (n, opcode) in [io::WRITE, io::ZONE_APPEND].into_iter().enumerate() {
            let before = odd.flushes.load(Ordering::Relaxed);
            let (mut command, data) = transfer(opcode, n as u32 * ZONE, 1);
            command.cdw[2] = (1 << 30).into();
            command.data.kind = Sgl::IN_CAPSULE;
            let cid = queue.submit(command, &data);
            assert_eq!(queue.end(cid), None);
            // The device has answered the write.
            queue.poll();
            let end = queue.end(cid);
            assert_eq!(end.is_some(), fua);
            assert_eq!(end.unwrap_or_else(|| queue.wait(cid)).status, 0);
            assert_eq!(odd.flushes.load(Ordering::Relaxed) - before, flushes, "fua: {fua}");
        }
    }
}

#[test]
fn flush_of_one_or_all_namespaces_is_taken() {
    let admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    for (nsid, status) in [(1, 0), (u32::MAX, 0), (9, 0x400B)] {
        assert_eq!(queue.call(sqe(io::FLUSH, nsid, [0; 6]), &[]).status, status);
    }
}

/// Every state with every action (ZNS 3.4.3, and the table of zone states).
#[test]
fn actions_change_states_as_the_standard_says() {
    use ZoneSend as Z;
    const ZIT: u16 = 0x41BF;
    let (empty, implicit, explicit, closed, read_only, full, offline) = (1, 2, 3, 4, 0xD, 0xE, 0xF);
    // State, then for close, finish, open, reset and offline the status or the new state.
    let ok = |state: u8| Ok::<u8, u16>(state);
    let table: [(u8, [Result<u8, u16>; 5]); 7] = [
        (empty, [Err(ZIT), ok(full), ok(explicit), ok(empty), Err(ZIT)]),
        (implicit, [ok(closed), ok(full), ok(explicit), ok(empty), Err(ZIT)]),
        (explicit, [ok(closed), ok(full), ok(explicit), ok(empty), Err(ZIT)]),
        (closed, [ok(closed), ok(full), ok(explicit), ok(empty), Err(ZIT)]),
        (full, [Err(ZIT), ok(full), Err(ZIT), ok(empty), Err(ZIT)]),
        (read_only, [Err(ZIT), Err(ZIT), Err(ZIT), Err(ZIT), ok(offline)]),
        (offline, [Err(ZIT), Err(ZIT), Err(ZIT), Err(ZIT), ok(offline)]),
    ];
    let actions = [Z::CLOSE, Z::FINISH, Z::OPEN, Z::RESET, Z::OFFLINE];
    for (state, results) in table {
        for (action, result) in actions.into_iter().zip(results) {
            let target = target(RAM);
            let admin = Queue::admin(&target);
            let mut queue = admin.io(1);
            match state {
                2 => assert_eq!(write(&mut queue, 0, 1), 0),
                3 => assert_eq!(act(&mut queue, 0, Z::OPEN), 0),
                4 => {
                    assert_eq!(write(&mut queue, 0, 1), 0);
                    assert_eq!(act(&mut queue, 0, Z::CLOSE), 0);
                }
                0xE => assert_eq!(act(&mut queue, 0, Z::FINISH), 0),
                0xD => set(&target, 0, ZoneSetting::ReadOnly),
                0xF => set(&target, 0, ZoneSetting::Offline),
                _ => {}
            }
            let status = act(&mut queue, 0, action);
            let now = states(&mut queue)[0];
            let seen = if status == 0 { Ok(now) } else { Err(status) };
            assert_eq!(seen, result, "state {state:x}, action {action}");
            assert!(status == 0 || now == state, "a refused action changes nothing");
        }
    }
    let admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    for action in [0, 6, 0x10, 0x11, 0xFF] {
        assert_eq!(act(&mut queue, 0, action), 0x4002, "action {action:x}");
        assert_eq!(act_on_all(&mut queue, action), 0x4002);
    }
    assert_eq!(act(&mut queue, 16, ZoneSend::RESET), 0x4080);
}

#[test]
fn h62_command_set_and_its_effects_are_told() {
    let target = target("ram:size=64M,zone_size=4M,zone_nr_conv=3,blocksize=4096");
    let mut admin = Queue::admin(&target);
    let set_of = |admin: &mut Queue, nsid| {
        let page = admin.identify(3, 0, nsid).data;
        let all = NamespaceDescriptor::parse_all(&page).unwrap();
        let sets = all.iter().filter_map(|descriptor| match descriptor {
            NamespaceDescriptor::CommandSet(set) => Some(*set),
            _ => None,
        });
        sets.collect::<Vec<_>>()
    };
    assert_eq!((set_of(&mut admin, 1), set_of(&mut admin, 2)), (vec![2], vec![0]));
    let [nvm, zns] = [0, 2].map(|csi| page(&mut admin, 5, csi, 0));
    let effect = |page: &[u8], opcode: u8| page[1024 + 4 * usize::from(opcode)];
    for opcode in [io::ZONE_APPEND, io::ZONE_MANAGEMENT_SEND] {
        assert_eq!((effect(&zns, opcode), effect(&nvm, opcode)), (3, 0));
    }
    assert_eq!(
        (effect(&zns, io::ZONE_MANAGEMENT_RECEIVE), effect(&nvm, io::ZONE_MANAGEMENT_RECEIVE)),
        (1, 0)
    );
    // What the log says of an opcode is what the namespace does with it.
    let mut queue = admin.io(1);
    for (nsid, page) in [(1, &zns), (2, &nvm)] {
        for opcode in 0..=255 {
            let is_there = queue.call(sqe(opcode, nsid, [0; 6]), &[]).status != 0x4001;
            let is_told = effect(page, opcode) & 1 == 1;
            // Fabrics commands are of no command set.
            assert_eq!(is_there, is_told || opcode == fabrics::OPCODE && is_there, "{opcode:02x} of {nsid}");
        }
    }
    let other = GetLogPage { lid: 5, len: 4096, offset: 0, csi: 1, retains: false, nsid: 0 };
    assert_eq!(log(&mut admin, other).status, 0x4002);
    // A controller of the base set alone is enabled as well.
    let mut bare = Queue::open_over(Direct::new(&target), Digests::default());
    assert_eq!(bare.connect(0, 0xFFFF, NQN).status, 0);
    bare.set_property(0x14, 0x0046_0001);
    assert_eq!(bare.property(0x1C, false), 1);
}

#[test]
fn h63_append_limit_is_at_most_the_transfer_limit() {
    for (appends, command, zasl, mdts) in
        [(128, 2048, 4, 8), (16, 2048, 1, 8), (4096, 64, 3, 3), (1 << 20, 1 << 20, 8, 8), (192, 2048, 4, 8)]
    {
        let device = format!(
            "ram:size=64M,zone_size=4M,blocksize=4096,zone_append_max_sectors={appends},max_sectors={command}"
        );
        let mut admin = Queue::admin(&target(&device));
        let ours = IdentifyZonedController::parse(&admin.identify(6, 2, 0).data).unwrap().zasl;
        let controller = IdentifyController::parse(&admin.identify(1, 0, 0).data).unwrap();
        assert_eq!((ours, controller.mdts), (zasl, mdts), "{device}");
        let most = 1u32 << zasl;
        let mut queue = admin.io(1);
        assert_eq!(append(&mut queue, 0, most), 0, "{device}");
        if zasl < mdts {
            assert_eq!(append(&mut queue, ZONE, 2 * most), 0x4002, "{device}");
        }
    }
}

/// A limit of 0 stands for that of other commands, so a page is less than a host can be told.
#[test]
fn h63_drive_whose_appends_have_one_page_is_refused() {
    for (appends, is_taken) in [(8, false), (15, false), (16, true), (0, true)] {
        let device = format!("ram:size=64M,zone_size=4M,blocksize=4096,zone_append_max_sectors={appends}");
        let volume = host::volume(&device);
        assert_eq!(Target::new(volume, host::options()).is_ok(), is_taken, "{appends} sectors");
    }
}

#[test]
fn h64_limits_count_from_zero_and_none_is_all_ones() {
    for (open, active) in [(0, 0), (1, 1), (2, 3), (5, 5), (0, 4), (3, 0)] {
        let device =
            format!("ram:size=64M,zone_size=4M,blocksize=4096,zone_max_open={open},zone_max_active={active}");
        let target = target(&device);
        let mut admin = Queue::admin(&target);
        let zoned = IdentifyZoned::parse(&admin.identify(5, 2, 1).data).unwrap();
        let info = target.namespaces()[0].part().info();
        let told = |max: u32| if max == 0 { u32::MAX } else { max - 1 };
        assert_eq!((zoned.mor, zoned.mar), (told(info.open_max), told(info.active_max)), "{device}");
        assert!(zoned.mor <= zoned.mar, "{device}");
        // The limit that is told is the one that holds.
        if active > 0 {
            let mut queue = admin.io(1);
            for zone in 0..active {
                assert_eq!(write(&mut queue, zone * ZONE, 1), 0);
            }
            assert_eq!(write(&mut queue, active * ZONE, 1), 0x41BD);
        }
    }
}

#[test]
fn h65_pointer_of_a_full_zone_is_the_end_of_its_capacity() {
    let target = target(RAM);
    let admin = Queue::admin(&target);
    let mut queue = admin.io(1);
    assert_eq!(act(&mut queue, 0, ZoneSend::FINISH), 0);
    set(&target, 1, ZoneSetting::Offline);
    let zones = report(&mut queue);
    for zone in &zones[..2] {
        assert_eq!(zone.pointer, zone.start + zone.capacity, "{zone:?}");
        assert_eq!((zone.kind, zone.attributes, zone.capacity), (2, 0, u64::from(CAPACITY)));
    }
}

#[test]
fn h66_reports_count_zones_that_fit_or_all_that_match() {
    let target = target(RAM);
    let admin = Queue::admin(&target);
    let mut queue = admin.io(1);
    assert_eq!(act(&mut queue, 3, ZoneSend::FINISH), 0);
    assert_eq!(act(&mut queue, 9, ZoneSend::FINISH), 0);
    assert_eq!(act(&mut queue, 4, ZoneSend::OPEN), 0);
    let mut count = |lba: u32, len: u64, option: u8, is_partial: bool| {
        let end = receive(&mut queue, ZoneReceive { lba: lba.into(), len, action: 0, option, is_partial });
        assert_eq!(end.status, 0, "{len} bytes");
        assert_eq!(end.data.len() as u64, len);
        let described = end.data[64..].chunks_exact(64).filter(|bytes| bytes[0] == 2);
        let described: Vec<u64> =
            described.map(|bytes| ReportedZone::parse(bytes).unwrap().start / 1024).collect();
        (ReportHeader::parse(&end.data).unwrap().zones, described)
    };
    // A header alone, and lengths that are no multiple of a descriptor's.
    assert_eq!(count(0, 64, 0, true), (0, vec![]));
    assert_eq!(count(0, 64, 0, false), (16, vec![]));
    assert_eq!(count(0, 64 + 60, 0, true), (0, vec![]));
    assert_eq!(count(0, 64 + 64 + 60, 0, true), (1, vec![0]));
    assert_eq!(count(0, 64 + 64 + 60, 0, false), (16, vec![0]));
    // From within a zone on, and beyond the last one.
    assert_eq!(count(15 * ZONE + 7, 4096, 0, true), (1, vec![15]));
    assert_eq!(count(14 * ZONE, 128, 0, false), (2, vec![14]));
    // Of one state.
    assert_eq!(count(0, 128, 5, true), (1, vec![3]));
    assert_eq!(count(0, 128, 5, false), (2, vec![3]));
    assert_eq!(count(4 * ZONE, 4096, 5, true), (1, vec![9]));
    assert_eq!(count(0, 4096, 3, true), (1, vec![4]));
    assert_eq!(count(0, 64, 1, false), (13, vec![]));
    for option in [2, 4, 6, 7, 9] {
        assert_eq!(count(0, 4096, option, false), (0, vec![]), "option {option}");
    }
    let mut refused = |lba: u32, len: u64, action: u8, option: u8| {
        let end = receive(&mut queue, ZoneReceive { lba: lba.into(), len, action, option, is_partial: true });
        end.status
    };
    assert_eq!(refused(16 * ZONE, 4096, 0, 0), 0x4080);
    assert_eq!(refused(0, 60, 0, 0), 0x4002, "less than a header");
    assert_eq!(refused(0, 4096, 1, 0), 0x4002, "there are no extensions");
    assert_eq!(refused(0, 4096, 2, 0), 0x4002);
    for option in [8, 10, 255] {
        assert_eq!(refused(0, 4096, 0, option), 0x4002);
    }
}

#[test]
fn h67_actions_on_all_zones_concern_those_of_the_standard() {
    let target = target(RAM);
    let admin = Queue::admin(&target);
    let mut queue = admin.io(1);
    set(&target, 5, ZoneSetting::ReadOnly);
    set(&target, 6, ZoneSetting::Offline);
    assert_eq!(act(&mut queue, 7, ZoneSend::FINISH), 0);
    let arrange = |queue: &mut Queue| {
        assert_eq!(act_on_all(queue, ZoneSend::RESET), 0);
        assert_eq!(act(queue, 0, ZoneSend::OPEN), 0);
        assert_eq!(write(queue, ZONE, 1), 0);
        assert_eq!(act(queue, 1, ZoneSend::CLOSE), 0);
        assert_eq!(write(queue, 2 * ZONE, 1), 0);
        assert_eq!(act(queue, 7, ZoneSend::FINISH), 0);
        assert_eq!(states(queue)[..8], [3, 4, 2, 1, 1, 0xD, 0xF, 0xE]);
    };
    arrange(&mut queue);
    assert_eq!(act_on_all(&mut queue, ZoneSend::CLOSE), 0);
    assert_eq!(states(&mut queue)[..8], [4, 4, 4, 1, 1, 0xD, 0xF, 0xE]);
    // Three cannot be open: none is opened.
    assert_eq!(act_on_all(&mut queue, ZoneSend::OPEN), 0x41BE);
    assert_eq!(states(&mut queue)[..8], [4, 4, 4, 1, 1, 0xD, 0xF, 0xE]);
    assert_eq!(act(&mut queue, 0, ZoneSend::RESET), 0);
    assert_eq!(act_on_all(&mut queue, ZoneSend::OPEN), 0);
    assert_eq!(states(&mut queue)[..8], [1, 3, 3, 1, 1, 0xD, 0xF, 0xE]);
    arrange(&mut queue);
    assert_eq!(act_on_all(&mut queue, ZoneSend::FINISH), 0);
    assert_eq!(states(&mut queue)[..8], [0xE, 0xE, 0xE, 1, 1, 0xD, 0xF, 0xE]);
    assert_eq!(act_on_all(&mut queue, ZoneSend::RESET), 0);
    assert_eq!(states(&mut queue)[..8], [1, 1, 1, 1, 1, 0xD, 0xF, 1]);
    assert_eq!(act_on_all(&mut queue, ZoneSend::OFFLINE), 0);
    assert_eq!(states(&mut queue)[..8], [1, 1, 1, 1, 1, 0xF, 0xF, 1]);
}

/// Each error of a request, and its status. A host sends again what is not final.
#[test]
fn h68_every_error_has_one_status_and_those_of_zones_are_final() {
    let zone = ZoneIndex(1);
    let (at, error, busy) = (Sector(8), DeviceError::Medium, DeviceError::Busy);
    let table = [
        (RequestError::NotAtWritePointer { zone, write_pointer: 0, offset: 8 }, 0x41BC),
        (RequestError::PredecessorLost { zone, lost_at: 0, offset: 8 }, 0x41BC),
        (RequestError::PredecessorMissing { zone, write_pointer: 0, offset: 8 }, 0x41BC),
        (RequestError::BeyondCapacity { zone, end: 16, capacity: 8 }, 0x41B8),
        (RequestError::ZoneFull { zone }, 0x41B9),
        (RequestError::ZoneReadOnly { zone }, 0x41BA),
        (RequestError::ZoneOffline { zone }, 0x41BB),
        (RequestError::Conventional { zone }, 0x4002),
        (RequestError::Sequential { zone }, 0x4002),
        (RequestError::OutOfRange { sector: at }, 0x4080),
        (RequestError::Invalid("why"), 0x4002),
        (RequestError::WouldWait, 0x0021),
        (RequestError::Aborted { zone }, 0x41BC),
        (RequestError::Cancelled, 0x4007),
        (RequestError::FateUnknown { zone, offset: 0, write_pointer: 8, error }, 0x4280),
        (RequestError::TornAppend { zone, offset: 0, sectors: 8, error }, 0x4280),
        (RequestError::GaveUp { zone, offset: 0, rounds: 3, error: busy }, 0x0021),
        // It may be there: sent again it would be there twice.
        (RequestError::FateUnknown { zone, offset: 0, write_pointer: 8, error: busy }, 0x4006),
        (RequestError::TornAppend { zone, offset: 0, sectors: 8, error: busy }, 0x4006),
        (RequestError::InPart { sector: at, landed: 8, error: busy }, 0x4006),
        (RequestError::InPart { sector: at, landed: 8, error }, 0x4280),
        (RequestError::Device(error), 0x4280),
    ];
    for (error, status) in table {
        assert_eq!(Status::of_request(&error, false).number(), status, "{error}");
    }
    let devices = [
        (DeviceError::OutOfRange, 0x4080, 0x4080),
        (DeviceError::InvalidField, 0x4002, 0x4002),
        (DeviceError::Unsupported, 0x4001, 0x4001),
        (DeviceError::Medium, 0x4280, 0x4281),
        (DeviceError::Busy, 0x0021, 0x0021),
        (DeviceError::UnitAttention, 0x0021, 0x0021),
        (DeviceError::Aborted, 0x4006, 0x4006),
        (DeviceError::TimedOut, 0x4006, 0x4006),
        (DeviceError::Gone, 0x4082, 0x4082),
        (DeviceError::OpenedForReading, 0x4020, 0x4020),
    ];
    let numbers = |error| [false, true].map(|is_read| Status::of_device(error, is_read).number());
    for (error, of_write, of_read) in devices {
        assert_eq!(numbers(error), [of_write, of_read], "{error}");
    }
    for error in DeviceError::all() {
        let is_listed = devices.iter().any(|(listed, ..)| *listed == error);
        match error {
            DeviceError::Zone(zone) => assert_eq!(numbers(error), [Status::of_zone(zone).number(); 2]),
            DeviceError::Os(_) => assert_eq!(numbers(error), [0x4280, 0x4281]),
            error => assert!(is_listed, "{error} is not in the table"),
        }
    }
    for error in ZoneError::ALL {
        assert_eq!(Status::of_zone(error).number() & Status::DNR, Status::DNR, "{error}");
    }
}

/// A device whose reports fail, which tells that its size is another, and counts flushes.
struct Odd {
    inner: Arc<dyn Device>,
    info: DeviceInfo,
    fails_reports: AtomicBool,
    flushes: AtomicU64,
    notices: Notices,
}

impl Device for Odd {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        let fails = self.fails_reports.load(Ordering::Relaxed);
        self.flushes.fetch_add(u64::from(command.op == Op::Flush), Ordering::Relaxed);
        match command.op == Op::Report && fails {
            true => Submitted::Done(Err(DeviceError::Medium)),
            false => self.inner.submit(now, queue, command, context),
        }
    }

    fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        self.inner.poll(now, queue, budget, done)
    }

    fn has_changes(&self) -> bool {
        self.notices.are_there()
    }

    fn take_changes(&self, into: &mut Changes) {
        self.notices.take(into);
    }

    fn wakeups(&self) -> &Wakeups {
        self.inner.wakeups()
    }

    fn has_news(&self, queue: usize) -> bool {
        self.has_changes() || self.inner.has_news(queue)
    }

    fn wait(&self, queue: usize, timeout: Duration) {
        self.inner.wait(queue, timeout);
    }
}

fn odd(change: impl FnOnce(&mut DeviceInfo)) -> (Arc<Odd>, Arc<Target>) {
    let inner = Registry::default().open(RAM).unwrap();
    let mut info = inner.info().clone();
    change(&mut info);
    let (fails_reports, flushes) = (AtomicBool::new(false), AtomicU64::new(0));
    let odd = Arc::new(Odd { inner, info, fails_reports, flushes, notices: Notices::default() });
    (odd.clone(), target_of(odd))
}

/// A host that revalidates its zones learns that it cannot, and nothing wrong of them or of the limits.
#[test]
fn h69_report_that_fails_is_an_error_and_limits_stay() {
    let (odd, target) = odd(|_| ());
    let mut admin = Queue::admin(&target);
    let limits = |admin: &mut Queue| IdentifyZoned::parse(&admin.identify(5, 2, 1).data).unwrap();
    let before = limits(&mut admin);
    let mut queue = admin.io(1);
    odd.fails_reports.store(true, Ordering::Relaxed);
    let all = ZoneReceive { lba: 0, len: 4096, action: 0, option: 0, is_partial: true };
    let end = receive(&mut queue, all);
    assert_eq!((end.status, end.data.len()), (0x4281, 0));
    assert_eq!(limits(&mut admin), before);
    odd.fails_reports.store(false, Ordering::Relaxed);
    assert_eq!(states(&mut queue).len(), 16);
}

#[test]
fn namespace_of_another_size_is_told_once_and_listed() {
    let (odd, target) = odd(|_| ());
    let mut admin = Queue::admin(&target);
    odd.notices.note(|changes| changes.size = true);
    admin.poll();
    // What has changed before the host asked for events is told then.
    assert_eq!(feature(&mut admin, admin::SET_FEATURES, 0x0B, 1 << 8).status, 0);
    let event = admin.submit(sqe(admin::ASYNC_EVENT_REQUEST, 0, [0; 6]), &[]);
    assert_eq!(admin.wait(event), End { result: 2 | 4 << 16, ..End::default() });
    let event = admin.submit(sqe(admin::ASYNC_EVENT_REQUEST, 0, [0; 6]), &[]);
    odd.notices.note(|changes| changes.limits = true);
    admin.poll();
    assert_eq!(admin.end(event), None, "the host has not read the log");
    let retaining = GetLogPage { lid: 4, len: 4096, offset: 0, csi: 0, retains: true, nsid: u32::MAX };
    assert_eq!(parse_namespaces(&log(&mut admin, retaining).data), [1]);
    admin.poll();
    assert_eq!(admin.end(event), None, "the event is retained");
    assert_eq!(parse_namespaces(&page(&mut admin, 4, 0, u32::MAX)), [1]);
    assert!(parse_namespaces(&page(&mut admin, 4, 0, u32::MAX)).is_empty());
    odd.notices.note(|changes| changes.size = true);
    assert_eq!(admin.wait(event).result, 2 | 4 << 16);
}

#[test]
fn changed_zones_are_listed_until_they_are_too_many() {
    let target = target("ram:size=1G,zone_size=1M,blocksize=4096");
    let mut admin = Queue::admin(&target);
    let list = |admin: &mut Queue| ChangedZoneList::parse(&page(admin, 0xBF, 2, 1)).unwrap();
    for zone in [7, 3, 7] {
        set(&target, zone, ZoneSetting::Offline);
        (0..3).for_each(|_| admin.poll());
        set(&target, zone, ZoneSetting::Restored);
        (0..3).for_each(|_| admin.poll());
    }
    assert_eq!(list(&mut admin), ChangedZoneList::Zones(vec![3 * 256, 7 * 256]), "once each, in order");
    assert_eq!(list(&mut admin), ChangedZoneList::Zones(vec![]));
    for (zones, last) in [(511, false), (512, true)] {
        (0..zones).for_each(|zone| set(&target, zone, ZoneSetting::ReadOnly));
        (0..10).for_each(|_| admin.poll());
        match list(&mut admin) {
            ChangedZoneList::Zones(all) => assert_eq!((all.len(), last), (511, false)),
            ChangedZoneList::TooMany => assert!(last),
        }
        (0..zones).for_each(|zone| set(&target, zone, ZoneSetting::Restored));
        (0..10).for_each(|_| admin.poll());
        list(&mut admin);
    }
    for nsid in [0, u32::MAX, 2] {
        let changed = GetLogPage { lid: 0xBF, len: 4096, offset: 0, csi: 2, retains: false, nsid };
        assert_eq!(log(&mut admin, changed).status, 0x400B);
    }
}

#[test]
fn changes_that_a_host_made_itself_are_no_events() {
    let target = target(RAM);
    let mut admin = Queue::admin(&target);
    assert_eq!(feature(&mut admin, admin::SET_FEATURES, 0x0B, 1 << 27).status, 0);
    let event = admin.submit(sqe(admin::ASYNC_EVENT_REQUEST, 0, [0; 6]), &[]);
    let mut queue = admin.io(1);
    for action in [ZoneSend::OPEN, ZoneSend::CLOSE, ZoneSend::FINISH, ZoneSend::RESET] {
        assert_eq!(act(&mut queue, 0, action), 0);
    }
    assert_eq!(write(&mut queue, 0, 1), 0);
    set(&target, 2, ZoneSetting::ReadOnly);
    assert_eq!(admin.wait(event).result, 2 | 0xEF << 8 | 0xBF << 16 | 1 << 32);
    assert_eq!(page(&mut admin, 0xBF, 2, 1)[..2], [1, 0]);
    let event = admin.submit(sqe(admin::ASYNC_EVENT_REQUEST, 0, [0; 6]), &[]);
    assert_eq!(act(&mut queue, 2, ZoneSend::OFFLINE), 0);
    (0..5).for_each(|_| admin.poll());
    assert_eq!(admin.end(event), None, "the host has taken it offline");
}

#[test]
fn each_host_is_told_of_a_zone() {
    let target = target(RAM);
    let mut hosts = [Queue::admin(&target), Queue::admin(&target)];
    let events = hosts.each_mut().map(|admin| {
        assert_eq!(feature(admin, admin::SET_FEATURES, 0x0B, 1 << 27).status, 0);
        admin.submit(sqe(admin::ASYNC_EVENT_REQUEST, 0, [0; 6]), &[])
    });
    set(&target, 2, ZoneSetting::ReadOnly);
    for (admin, event) in hosts.iter_mut().zip(events) {
        assert_eq!(admin.wait(event).status, 0);
        assert_eq!(page(admin, 0xBF, 2, 1)[..2], [1, 0]);
    }
}

/// Writes of two hosts to their zones, and appends of both to one, on queues of their own.
#[test]
fn hosts_share_a_zone_with_appends() {
    let target = target(RAM);
    let admins = [Queue::admin(&target), Queue::admin(&target)];
    let mut queues = admins.each_ref().map(|admin| admin.io(1));
    let mut places = Vec::new();
    for round in 0..20 {
        let submitted = queues.each_mut().map(|queue| {
            let (command, data) = transfer(io::ZONE_APPEND, 0, 1 + round % 3);
            queue.submit(command, &data)
        });
        for (queue, cid) in queues.iter_mut().zip(submitted) {
            let end = queue.wait(cid);
            assert_eq!(end.status, 0);
            places.push((end.result, u64::from(1 + round % 3)));
        }
    }
    places.sort_unstable();
    let mut next = 0;
    for (place, blocks) in places {
        assert_eq!(place, next);
        next += blocks;
    }
    assert_eq!(report(&mut queues[0])[0].pointer, next);
}

#[test]
fn logs_say_what_was_moved_and_what_failed() {
    let target = target(RAM);
    let mut admin = Queue::admin(&target);
    let mut queue = admin.io(3);
    assert_eq!(write(&mut queue, 0, 200), 0);
    assert_eq!(append(&mut queue, ZONE, 1), 0);
    assert_eq!(run(&mut queue, io::READ, 0, 100), 0);
    assert_eq!(run(&mut queue, io::READ, 0, 1), 0);
    assert_eq!(write(&mut queue, 300, 1), 0x41BC);
    assert_eq!(admin.identify(0x42, 0, 1).status, 0x4002);
    let health = HealthLog::parse(&page(&mut admin, 2, 0, u32::MAX)).unwrap();
    assert_eq!((health.writes, health.reads), (2, 2));
    assert_eq!(health.units_written, (201u64 * 4096).div_ceil(512_000));
    assert_eq!(health.units_read, (101u64 * 4096).div_ceil(512_000));
    assert_eq!((health.error_entries, health.critical, health.spare), (2, 0, 100));
    let errors = page(&mut admin, 1, 0, 0);
    let [last, first, none] = [0, 64, 128].map(|at| ErrorEntry::parse(&errors[at..]).unwrap());
    assert_eq!((last.count, last.sqid, last.opcode), (2, 0, admin::IDENTIFY));
    assert_eq!((first.count, first.sqid, first.opcode, first.lba), (1, 3, io::WRITE, 300));
    assert_eq!((first.status >> 1, first.nsid, first.location, first.transport), (0x41BC, 1, 0xFFFF, 3));
    assert_eq!(none, ErrorEntry::default());
    // What a queue has moved stays when it is gone.
    drop(queue);
    assert_eq!(HealthLog::parse(&page(&mut admin, 2, 0, 0)).unwrap().writes, 2);
    let of_namespace = GetLogPage { lid: 2, len: 512, offset: 0, csi: 0, retains: false, nsid: 1 };
    assert_eq!(log(&mut admin, of_namespace).status, 0x4002);
    // A hundred later ones, of which 64 are kept.
    for _ in 0..100 {
        admin.identify(0x42, 0, 1);
    }
    let errors = page(&mut admin, 1, 0, 0);
    let counts: Vec<u64> =
        errors.chunks_exact(64).map(|entry| ErrorEntry::parse(entry).unwrap().count).collect();
    assert_eq!((counts.len(), counts[0], counts[63]), (64, 103, 40));
}

#[test]
fn supported_logs_are_there_and_others_are_not() {
    let mut admin = Queue::admin(&target(RAM));
    let supported = page(&mut admin, 0, 0, 0);
    for lid in 0..=255u8 {
        let nsid = if lid == 0xBF { 1 } else { 0 };
        let asked =
            GetLogPage { lid, len: 64, offset: 0, csi: 2 * u8::from(lid == 0xBF), retains: true, nsid };
        let status = log(&mut admin, asked).status;
        let is_told = supported.get(4 * usize::from(lid)) == Some(&1) && lid != 0x70;
        assert_eq!(status, if is_told { 0 } else { 0x4109 }, "log {lid:02x}");
    }
    let firmware = FirmwareLog::parse(&page(&mut admin, 3, 0, 0)).unwrap();
    let controller = IdentifyController::parse(&admin.identify(1, 0, 0).data).unwrap();
    assert_eq!((firmware.slot, &firmware.revision), (1, &controller.firmware));
    // From an offset, and beyond the end.
    let at = |offset, len| GetLogPage { lid: 3, len, offset, csi: 0, retains: false, nsid: 0 };
    assert_eq!(log(&mut admin, at(8, 8)).data, format!("{:<8}", controller.firmware.0).as_bytes());
    assert_eq!(log(&mut admin, at(516, 8)).status, 0x4002);
    assert_eq!(log(&mut admin, at(2, 8)).status, 0x4002);
}

#[test]
fn identify_has_every_form_that_hosts_use() {
    let target = target("ram:size=64M,zone_size=4M,zone_nr_conv=3,blocksize=4096");
    let mut admin = Queue::admin(&target);
    for (nsid, zones) in [(1, 13), (2, 3)] {
        let namespace = IdentifyNamespace::parse(&admin.identify(0, 0, nsid).data).unwrap();
        assert_eq!((namespace.nsze, namespace.nuse, namespace.lbads), (zones * 1024, zones * 1024, 12));
        let independent = IndependentNamespace::parse(&admin.identify(8, 0, nsid).data).unwrap();
        assert_eq!((independent.nstat, independent.nsfeat, independent.nsattr), (1, 0x20, 0));
        assert_eq!(admin.identify(5, 0, nsid).data, vec![0; 4096], "nothing of the NVM command set alone");
    }
    assert_eq!(admin.identify(0, 0, 3).data, vec![0; 4096], "no such namespace");
    assert_eq!(parse_namespaces(&admin.identify(2, 0, 0).data), [1, 2]);
    assert_eq!(parse_namespaces(&admin.identify(2, 0, 1).data), [2]);
    assert_eq!(parse_namespaces(&admin.identify(7, 2, 0).data), [1]);
    assert_eq!(parse_namespaces(&admin.identify(7, 0, 0).data), [2]);
    assert_eq!(admin.identify(0x1C, 0, 0).data[..16], [5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let refused = [
        (0, 0, 0, 0x400B),
        (0, 0, u32::MAX, 0x400B),
        (2, 0, 0xFFFF_FFFE, 0x400B),
        (7, 2, u32::MAX, 0x400B),
        (7, 1, 0, 0x4002),
        (3, 0, 0, 0x400B),
        (5, 2, 2, 0x4002),
        (5, 1, 1, 0x4002),
        (6, 1, 0, 0x4002),
        (8, 0, 9, 0x400B),
        (0x42, 0, 0, 0x4002),
    ];
    for (cns, set, nsid, status) in refused {
        assert_eq!(admin.identify(cns, set, nsid).status, status, "{cns:x} {set} {nsid:x}");
    }
    let uuids = [1, 2].map(|nsid| admin.identify(3, 0, nsid).data[..40].to_vec());
    assert_ne!(uuids[0], uuids[1]);
}

#[test]
fn read_only_target_says_so_and_refuses_what_changes() {
    let target = target_with(RAM, TargetOptions { read_only: true, ..host::options() });
    let mut admin = Queue::admin(&target);
    let namespace = IdentifyNamespace::parse(&admin.identify(0, 0, 1).data).unwrap();
    assert_eq!(namespace.nsattr, 1);
    let mut queue = admin.io(1);
    assert_eq!(write(&mut queue, 0, 1), 0x4020);
    assert_eq!(append(&mut queue, 0, 1), 0x4020);
    assert_eq!(without_data(&mut queue, io::WRITE_ZEROES, 0, 1), 0x4020);
    for action in [ZoneSend::CLOSE, ZoneSend::FINISH, ZoneSend::OPEN, ZoneSend::RESET, ZoneSend::OFFLINE] {
        assert_eq!(act(&mut queue, 0, action), 0x4020);
        assert_eq!(act_on_all(&mut queue, action), 0x4020);
    }
    assert_eq!(run(&mut queue, io::READ, 0, 1), 0);
    assert_eq!(states(&mut queue)[..2], [1, 1]);
    assert_eq!(queue.call(sqe(io::FLUSH, 1, [0; 6]), &[]).status, 0);
}

#[test]
fn features_are_kept_or_refused() {
    let mut admin = Queue::admin(&target(RAM));
    let get = admin::GET_FEATURES;
    let set = admin::SET_FEATURES;
    assert_eq!(feature(&mut admin, set, 7, 3 | 3 << 16).result, 127 | 127 << 16);
    assert_eq!(feature(&mut admin, set, 7, 0xFFFF).status, 0x4002);
    assert_eq!(feature(&mut admin, get, 7, 0).result, 127 | 127 << 16);
    assert_eq!(feature(&mut admin, set, 0x0F, 4500).status, 0);
    assert_eq!(feature(&mut admin, get, 0x0F, 0).result, 5000, "in units of a second");
    assert_eq!(feature(&mut admin, set, 0x0F, 3_600_001).status, 0x4019);
    assert_eq!(feature(&mut admin, set, 0x0B, 1 << 8 | 1 << 27 | 3).status, 0);
    assert_eq!(feature(&mut admin, get, 0x0B, 0).result, 1 << 8 | 1 << 27 | 3);
    assert_eq!(feature(&mut admin, set, 0x0B, 1 << 11).status, 0x4002, "no asymmetric access");
    assert_eq!(feature(&mut admin, get, 4, 0).result, 0xFFFF, "no temperature is above");
    assert_eq!(feature(&mut admin, get, 4, 1 << 20).result, 0, "none is below");
    assert_eq!(feature(&mut admin, set, 4, 343).status, 0);
    assert_eq!(feature(&mut admin, get, 4, 0).result, 343);
    assert_eq!(feature(&mut admin, get, 4, 2 << 20).status, 0x4002);
    assert_eq!(feature(&mut admin, get, 6, 0).result, 0, "no volatile cache");
    assert_eq!(feature(&mut admin, set, 6, 1).status, 0x410E);
    assert_eq!(feature(&mut admin, set, 6 | 1 << 31, 0).status, 0x410D, "nothing is saved");
    for number in [1, 2, 5, 0x0A, 0x19] {
        assert_eq!(feature(&mut admin, get, number, 0), End::default(), "feature {number:x}");
        assert_eq!(feature(&mut admin, set, number, 0).status, 0);
    }
    for number in [0, 3, 0x42, 0xFF] {
        assert_eq!(feature(&mut admin, get, number, 0).status, 0x4002, "feature {number:x}");
        assert_eq!(feature(&mut admin, set, number, 0).status, 0x4002);
    }
    let host = admin.with_room(sqe(get, 0, [0x81, 1, 0, 0, 0, 0]), 16);
    assert_eq!(admin.call(host, &[]).data, [7; 16]);
    let _queue = admin.io(1);
    assert_eq!(feature(&mut admin, set, 7, 3 | 3 << 16).status, 0x400C, "there are queues");
}

/// TCP 3.2: the capsule's block with an offset, or the transport's.
#[test]
fn data_pointers_of_other_kinds_or_lengths_are_refused() {
    let admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    let mut status = |kind: u8, address: u64, len: u32, payload: usize| {
        let (mut command, _) = transfer(io::WRITE, 0, 1);
        command.data = Sgl { address: address.into(), len: len.into(), reserved: [0; 3], kind };
        queue.call(command, &vec![0; payload]).status
    };
    assert_eq!(status(Sgl::IN_CAPSULE, 8, 4096, 4096), 0x4016, "an offset");
    assert_eq!(status(Sgl::IN_CAPSULE, 0, 4096, 2048), 0x400F, "less in the capsule");
    assert_eq!(status(Sgl::IN_CAPSULE, 0, 8192, 8192), 0x400F, "more than the blocks");
    for kind in [0x00, 0x10, 0x0F, 0x40, 0x4F, 0x5B, 0x20, 0x30] {
        assert_eq!(status(kind, 0, 4096, 0), 0x4011, "kind {kind:02x}");
    }
    assert_eq!(status(Sgl::TRANSPORT, 0, 2048, 0), 0x400F);
    assert_eq!(status(Sgl::TRANSPORT, 0, 8192, 0), 0x400F);
    assert_eq!(status(Sgl::TRANSPORT, 0, 4096, 4096), 0, "nothing of it was written before");
    let (mut read, _) = transfer(io::READ, 0, 1);
    read.data.kind = Sgl::IN_CAPSULE;
    assert_eq!(queue.call(read, &[]).status, 0x4011, "data to the host");
}

#[test]
fn controller_that_is_not_enabled_takes_no_commands() {
    let target = target(RAM);
    let mut admin = Queue::open_over(Direct::new(&target), Digests::default());
    assert_eq!(admin.connect(0, 0xFFFF, NQN).status, 0);
    assert_eq!(admin.identify(1, 0, 0).status, 0x400C);
    let mut early = Queue::open_over(Direct::new(&target), Digests::default());
    assert_eq!(early.connect(1, admin.controller(), NQN).status, 0x400C);
    // Command sets, page, arbitration and entry sizes that there are not.
    for cc in [0x0046_0011, 0x0046_0081, 0x0046_0861, 0x0045_0061, 0x0056_0061] {
        admin.set_property(0x14, cc);
        assert_eq!(admin.property(0x1C, false), 2, "{cc:x}: fatal");
        admin.set_property(0x14, 0);
        assert_eq!(admin.property(0x1C, false), 0);
    }
    admin.set_property(0x14, 0x0046_0061);
    assert_eq!(admin.property(0x08, false), 0x0002_0100);
    assert_eq!(admin.property(0, true) & 1 << 43, 1 << 43);
    for (offset, is_long) in [(4, false), (0, false), (8, true), (0x24, false), (0x1000, false)] {
        let get = fabrics::PROPERTY_GET.into();
        let command = sqe(fabrics::OPCODE, get, [u32::from(is_long), offset, 0, 0, 0, 0]);
        assert_eq!(admin.call(command, &[]).status, 0x4002, "{offset:x}");
    }
    let unknown = sqe(fabrics::OPCODE, 0x0D, [0; 6]);
    assert_eq!(admin.call(unknown, &[]).status, 0x4001);
    assert_eq!(admin.call(sqe(0xC0, 0, [0; 6]), &[]).status, 0x4001);
}
