//! Requirements of the standards on I/O commands: order of checks, statuses, limits, reports, zone
//! actions, data pointers. Names with a number refer to docs/HAZARDS.md.

use crate::host;
use crate::host::ask::*;
use crate::host::odd::odd;
use crate::host::{End, Queue, sqe, target, target_in, target_with};
use std::sync::atomic::Ordering;
use zonal_core::{DeviceError, Nanos, RequestError, Sector, ZoneError, ZoneIndex};
use zonal_io::changes::ZoneSetting;
use zonal_io::volume::WriteMode;
use zonal_nvme::status::Status;
use zonal_nvme::subsystem::Target;
use zonal_nvme::wire::{
    IdentifyController, IdentifyNamespace, IdentifyZoned, IdentifyZonedController, ReportHeader,
    ReportedZone, Sgl, ZoneReceive, ZoneSend, io,
};

/// State, pointer, capacity, limits: the first of several errors in this order is reported, as in
/// QEMU.
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
    // No active zone is left now. Each write starts beyond the pointer and exceeds the capacity.
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
    // Fields and the end of the namespace are checked before the zone.
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
fn writes_across_zones_answer_the_first_error() {
    // Zones of 256 blocks with full capacity.
    let target = target("ram:size=64M,zone_size=1M,complete=poll,blocksize=4096");
    let admin = Queue::admin(&target);
    let mut queue = admin.io(1);
    let full = ZoneSend { lba: 256, action: ZoneSend::FINISH, is_all: false };
    assert_eq!(send_zone(&mut queue, full), 0);
    set(&target, 2, ZoneSetting::ReadOnly);
    set(&target, 3, ZoneSetting::Offline);
    (0..3).for_each(|_| queue.poll());
    for (zone, status) in [(1, 0x41B9), (2, 0x41BA), (3, 0x41BB), (4, 0x41BC)] {
        assert_eq!(write(&mut queue, zone * 256 + 255, 2), status, "zone {zone}");
        assert_eq!(without_data(&mut queue, io::WRITE_ZEROES, zone * 256 + 255, 2), status, "zone {zone}");
    }
    assert_eq!(write(&mut queue, 0, 255), 0);
    assert_eq!(write(&mut queue, 255, 2), 0x41B8, "at the pointer");
    assert_eq!(without_data(&mut queue, io::WRITE_ZEROES, 255, 2), 0x41B8);
    assert_eq!(write(&mut queue, 255, 1), 0, "it has written nothing");
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

/// Without FUA support in the device, a write with FUA is followed by a flush and completes after
/// it.
#[test]
fn fua_write_without_device_support_completes_after_a_flush() {
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
            // The device has completed the write.
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
fn zone_actions_change_states_as_specified() {
    use ZoneSend as Z;
    const ZIT: u16 = 0x41BF;
    let (empty, implicit, explicit, closed, read_only, full, offline) = (1, 2, 3, 4, 0xD, 0xE, 0xF);
    // State, then the status or new state after close, finish, open, reset and offline.
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
fn h63_append_limit_is_at_most_the_transfer_limit() {
    for (appends, command, zasl, mdts) in
        [(128, 2048, 4, 8), (16, 2048, 1, 8), (4096, 64, 3, 3), (1 << 20, 1 << 20, 8, 8), (192, 2048, 4, 8)]
    {
        let device = format!(
            "ram:size=64M,zone_size=4M,blocksize=4096,zone_append_max_sectors={appends},max_sectors={command}"
        );
        let mut admin = Queue::admin(&target(&device));
        let ours = read::<IdentifyZonedController>(&admin.identify(6, 2, 0).data).zasl;
        let controller = read::<IdentifyController>(&admin.identify(1, 0, 0).data);
        assert_eq!((ours, controller.mdts), (zasl, mdts), "{device}");
        let most = 1u32 << zasl;
        let mut queue = admin.io(1);
        assert_eq!(append(&mut queue, 0, most), 0, "{device}");
        if zasl < mdts {
            assert_eq!(append(&mut queue, ZONE, 2 * most), 0x4002, "{device}");
        }
    }
}

/// A limit of 0 means that of other commands, so a limit of one page cannot be reported.
#[test]
fn h63_drive_with_single_page_appends_is_refused() {
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
        let zoned = read::<IdentifyZoned>(&admin.identify(5, 2, 1).data);
        let info = target.namespaces()[0].part().info();
        let told = |max: u32| if max == 0 { u32::MAX } else { max - 1 };
        let (mor, mar) = (zoned.mor.get(), zoned.mar.get());
        assert_eq!((mor, mar), (told(info.open_max), told(info.active_max)), "{device}");
        assert!(mor <= mar, "{device}");
        // The reported limit is enforced.
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
        assert_eq!((zone.kind, zone.attributes, zone.capacity.get()), (2, 0, u64::from(CAPACITY)));
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
            described.map(|bytes| read::<ReportedZone>(bytes).start.get() / 1024).collect();
        (read::<ReportHeader>(&end.data).zones.get(), described)
    };
    // Only a header, and lengths that are not multiples of a descriptor.
    assert_eq!(count(0, 64, 0, true), (0, vec![]));
    assert_eq!(count(0, 64, 0, false), (16, vec![]));
    assert_eq!(count(0, 64 + 60, 0, true), (0, vec![]));
    assert_eq!(count(0, 64 + 64 + 60, 0, true), (1, vec![0]));
    assert_eq!(count(0, 64 + 64 + 60, 0, false), (16, vec![0]));
    // Starting within a zone, and near the last one.
    assert_eq!(count(15 * ZONE + 7, 4096, 0, true), (1, vec![15]));
    assert_eq!(count(14 * ZONE, 128, 0, false), (2, vec![14]));
    // Selected by state.
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
    // Three zones would exceed the limit: none is opened.
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

/// A ZBC drive needs an open zone resource to finish a closed zone.
#[test]
fn h67_finish_of_all_begins_with_open_zones() {
    let drive = "ram:size=64M,zone_size=4M,zone_max_open=2,complete=poll,blocksize=4096,personality=zbc";
    let admin = Queue::admin(&target(drive));
    let mut queue = admin.io(1);
    for zone in 0..2 {
        assert_eq!(write(&mut queue, zone * ZONE, 1), 0);
        assert_eq!(act(&mut queue, zone, ZoneSend::CLOSE), 0);
    }
    for zone in 2..4 {
        assert_eq!(act(&mut queue, zone, ZoneSend::OPEN), 0);
    }
    assert_eq!(states(&mut queue)[..5], [4, 4, 3, 3, 1]);
    assert_eq!(act_on_all(&mut queue, ZoneSend::FINISH), 0);
    assert_eq!(states(&mut queue)[..5], [0xE, 0xE, 0xE, 0xE, 1]);
}

/// The open zone must not be closed for an action that cannot succeed.
#[test]
fn h67_open_of_all_that_is_too_much_changes_nothing() {
    let drive = "ram:size=64M,zone_size=4M,zone_max_open=2,zone_max_active=4,complete=poll,blocksize=4096";
    let admin = Queue::admin(&target(drive));
    let mut queue = admin.io(1);
    for zone in 1..4 {
        assert_eq!(write(&mut queue, zone * ZONE, 1), 0);
        assert_eq!(act(&mut queue, zone, ZoneSend::CLOSE), 0);
    }
    assert_eq!(write(&mut queue, 0, 1), 0);
    assert_eq!(act_on_all(&mut queue, ZoneSend::OPEN), 0x41BE);
    assert_eq!(states(&mut queue)[..5], [2, 4, 4, 4, 1]);
}

/// Another host opens a zone between the check of the zones and their opening.
#[test]
fn h67_open_of_all_that_fails_midway_opens_none() {
    let (odd, target) = odd(|_| ());
    let admin = Queue::admin(&target);
    let mut queue = admin.io(1);
    for zone in [0, 1] {
        assert_eq!(write(&mut queue, zone * ZONE, 1), 0);
        assert_eq!(act(&mut queue, zone, ZoneSend::CLOSE), 0);
    }
    odd.opens.store(1, Ordering::Relaxed);
    assert_eq!(act_on_all(&mut queue, ZoneSend::OPEN), 0x41BE);
    assert_eq!(states(&mut queue)[..3], [4, 4, 1]);
    odd.opens.store(2, Ordering::Relaxed);
    assert_eq!(act_on_all(&mut queue, ZoneSend::OPEN), 0);
    assert_eq!(states(&mut queue)[..3], [3, 3, 1]);
}

/// Status of each request error. Hosts retry those that are not final.
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
        // Data may be on the medium; a retry could write it twice.
        (RequestError::FateUnknown { zone, offset: 0, write_pointer: 8, error: busy }, 0x4006),
        (RequestError::TornAppend { zone, offset: 0, sectors: 8, error: busy }, 0x4006),
        (RequestError::InPart { sector: at, written: 8, error: busy }, 0x4006),
        (RequestError::InPart { sector: at, written: 8, error }, 0x4280),
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
        (DeviceError::Stale, 0x4280, 0x4280),
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

/// A host that revalidates zones gets an error, not wrong zones or limits.
#[test]
fn h69_report_that_fails_is_an_error_and_limits_stay() {
    let (odd, target) = odd(|_| ());
    let mut admin = Queue::admin(&target);
    let limits = |admin: &mut Queue| read::<IdentifyZoned>(&admin.identify(5, 2, 1).data);
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

/// Two hosts write to their own zones and both append to a shared one, each on its own queue.
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
fn read_only_target_reports_write_protection_and_refuses_changes() {
    let target = target_with(RAM, host::options().with_read_only(true));
    let mut admin = Queue::admin(&target);
    let namespace = read::<IdentifyNamespace>(&admin.identify(0, 0, 1).data);
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

/// TCP 3.2: in-capsule with an offset, or transport data block.
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

/// Compares with reports from QEMU's drive and the Linux kernel's target for the same zones, byte
/// by byte.
#[test]
fn report_of_an_empty_drive_is_that_of_the_references() {
    let references = [
        ("12M", &include_bytes!("../data/qemu-report.bin")[..]),
        ("16M", include_bytes!("../data/linux-report.bin")),
    ];
    for (capacity, expected) in references {
        let device = format!(
            "ram:size=512M,zone_size=16M,zone_capacity={capacity},blocksize=4096,zone_max_open=8,zone_max_active=12"
        );
        let admin = Queue::admin(&target(&device));
        let mut queue = admin.io(1);
        let all = ZoneReceive { lba: 0, len: 576, action: 0, option: 0, is_partial: false };
        assert_eq!(receive(&mut queue, all), End { data: expected.to_vec(), ..End::default() });
    }
}

/// Statuses of QEMU's drive for the same sequence of commands.
#[test]
fn statuses_of_zones_are_those_of_the_reference_drive() {
    const ZONE: u32 = 0x1000;
    let drive =
        "ram:size=512M,zone_size=16M,zone_capacity=12M,blocksize=4096,zone_max_open=8,zone_max_active=12";
    let admin = Queue::admin(&target(drive));
    let mut queue = admin.io(1);
    let send = |action, lba: u32| ZoneSend { lba: lba.into(), action, is_all: false };
    assert_eq!(write(&mut queue, 5, 8), 0x41BC, "not at the pointer");
    let (command, data) = transfer(io::ZONE_APPEND, ZONE, 1);
    assert_eq!(queue.call(command, &data), End { result: ZONE.into(), ..End::default() });
    assert_eq!(append(&mut queue, ZONE + 1, 1), 0x4002, "not a zone's start");
    assert_eq!(send_zone(&mut queue, send(ZoneSend::OPEN, 0)), 0);
    assert_eq!(send_zone(&mut queue, send(ZoneSend::FINISH, 0)), 0);
    assert_eq!(write(&mut queue, 0, 8), 0x41B9, "full");
    assert_eq!(send_zone(&mut queue, send(ZoneSend::RESET, 0)), 0);
    assert_eq!(send_zone(&mut queue, send(ZoneSend::CLOSE, 0)), 0x41BF, "empty");
    assert_eq!(send_zone(&mut queue, send(ZoneSend::OFFLINE, 0)), 0x41BF, "a good zone");
    assert_eq!(send_zone(&mut queue, send(ZoneSend::RESET, 1)), 0x4002, "not a zone's start");
    // Two intended differences: reads may cross zones here, where QEMU returns 0x41B8, and
    // descriptor extensions are not supported.
    assert_eq!(run(&mut queue, io::READ, ZONE - 4, 8), 0);
    assert_eq!(send_zone(&mut queue, send(0x10, 0)), 0x4002);
    let zones = report(&mut queue);
    let seen =
        zones[..3].iter().map(|zone| (zone.start.get(), zone.pointer.get(), zone.capacity.get(), zone.state));
    let cap = 0xC00;
    assert!(seen.eq([(0, 0, cap, 0x10), (0x1000, 0x1001, cap, 0x20), (0x2000, 0x2000, cap, 0x10)]));
}

/// ZNS 4.1.5.2: the reported limit is a power of two in pages; the device accepts more.
#[test]
fn append_beyond_the_reported_limit_is_refused() {
    let ram = "ram:size=64M,zone_size=4M,complete=poll,blocksize=4096,zone_append_max_sectors=56";
    let mut admin = Queue::admin(&target(ram));
    let mut queue = admin.io(1);
    assert_eq!(admin.identify(6, 2, 0).data[0], 2, "16 KiB");
    assert_eq!(append(&mut queue, 0, 5), 0x4002);
    assert_eq!(append(&mut queue, 0, 7), 0x4002);
    assert_eq!(append(&mut queue, 0, 8), 0x4002);
    assert_eq!(append(&mut queue, 0, 4), 0);
}

/// Limits are enforced by the drive. Another zone is written continuously, so a volume with a
/// budget would wait for it.
#[test]
fn write_beyond_the_limits_fails_beside_a_load() {
    use WriteMode::{Append, PerZone, Pipelined, ZoneLock};
    let slow =
        "ram:size=64M,zone_size=4M,zone_max_open=2,zone_max_active=3,completion_nsec=1000,blocksize=4096";
    // In mode qd1 a write waits for the token before it reaches the drive.
    for mode in [PerZone, Append, ZoneLock, Pipelined] {
        let target = target_in(slow, mode);
        let admin = Queue::admin(&target);
        let mut queues = [1, 2].map(|qid| admin.io(qid));
        for zone in 0..3 {
            queues[0].link.now = Nanos(u64::from(zone) * 2000);
            let number = begin(&mut queues[0], io::WRITE, zone * ZONE, 1);
            queues[0].link.now = Nanos(u64::from(zone) * 2000 + 1500);
            assert_eq!(queues[0].wait(number).status, 0);
        }
        let mut numbers = Vec::new();
        let mut ends = Vec::new();
        for lba in 1..100 {
            let now = Nanos(10_000 + u64::from(lba) * 300);
            queues.iter_mut().for_each(|queue| queue.link.now = now);
            begin(&mut queues[1], io::WRITE, lba, 1);
            if lba == 10 {
                let of = |n: u32| if n < 3 { (io::WRITE, 3 * ZONE + n) } else { (io::ZONE_APPEND, 4 * ZONE) };
                numbers.extend((0..6).map(of).map(|(opcode, lba)| begin(&mut queues[0], opcode, lba, 1)));
            }
            queues.iter_mut().for_each(Queue::poll);
            for (n, number) in numbers.iter().enumerate() {
                ends.extend(queues[0].end(*number).map(|end| (n, lba, end.status)));
            }
        }
        ends.sort_unstable();
        let statuses: Vec<u16> = ends.iter().map(|(_, _, status)| *status).collect();
        assert_eq!(statuses, [0x41BD, 0x41BC, 0x41BC, 0x41BD, 0x41BD, 0x41BD], "{mode}: {ends:?}");
        assert!(ends.iter().all(|(_, lba, _)| *lba < 70), "{mode}: {ends:?}");
        let mut finish = sqe(0, 1, [0; 6]);
        ZoneSend { lba: u64::from(2 * ZONE), action: ZoneSend::FINISH, is_all: false }.emit(&mut finish);
        let number = queues[0].submit(finish, &[]);
        queues[0].link.now = Nanos(1_000_000);
        assert_eq!(queues[0].wait(number).status, 0, "{mode}");
        let number = begin(&mut queues[0], io::WRITE, 3 * ZONE, 1);
        queues[0].link.now = Nanos(2_000_000);
        assert_eq!(queues[0].wait(number).status, 0, "{mode}");
    }
}

fn begin(queue: &mut Queue, opcode: u8, lba: u32, blocks: u32) -> u16 {
    let (command, data) = transfer(opcode, lba, blocks);
    queue.submit(command, &data)
}
