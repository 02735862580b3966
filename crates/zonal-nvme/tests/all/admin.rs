//! Requirements of the standards on the admin queue: identify, logs, features, events, properties.

use crate::host::ask::*;
use crate::host::odd::odd;
use crate::host::{Digests, Direct, End, NQN, Queue, sqe, target};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros};
use zonal_io::changes::ZoneSetting;
use zonal_nvme::wire::{
    ChangedZoneList, ErrorEntry, FirmwareLog, GetLogPage, HealthLog, IdentifyController, IdentifyNamespace,
    IndependentNamespace, ZoneSend, admin, descriptor, fabrics, io, parse_descriptors,
};

#[test]
fn h62_command_set_and_its_effects_are_reported() {
    let target = target("ram:size=64M,zone_size=4M,zone_nr_conv=3,blocksize=4096");
    let mut admin = Queue::admin(&target);
    let set_of = |admin: &mut Queue, nsid| {
        let page = admin.identify(3, 0, nsid).data;
        let sets = parse_descriptors(&page).filter(|(kind, _)| *kind == descriptor::COMMAND_SET);
        sets.map(|(_, set)| set.to_vec()).collect::<Vec<_>>()
    };
    assert_eq!((set_of(&mut admin, 1), set_of(&mut admin, 2)), (vec![vec![2]], vec![vec![0]]));
    let [nvm, zns] = [0, 2].map(|csi| page(&mut admin, 5, csi, 0));
    let effect = |page: &[u8], opcode: u8| page[1024 + 4 * usize::from(opcode)];
    for opcode in [io::ZONE_APPEND, io::ZONE_MANAGEMENT_SEND] {
        assert_eq!((effect(&zns, opcode), effect(&nvm, opcode)), (3, 0));
    }
    assert_eq!(
        (effect(&zns, io::ZONE_MANAGEMENT_RECEIVE), effect(&nvm, io::ZONE_MANAGEMENT_RECEIVE)),
        (1, 0)
    );
    // The effects log matches the behaviour of the namespace.
    let mut queue = admin.io(1);
    for (nsid, page) in [(1, &zns), (2, &nvm)] {
        for opcode in 0..=255 {
            let is_there = queue.call(sqe(opcode, nsid, [0; 6]), &[]).status != 0x4001;
            let is_told = effect(page, opcode) & 1 == 1;
            // Fabrics commands belong to no command set.
            assert_eq!(is_there, is_told || opcode == fabrics::OPCODE && is_there, "{opcode:02x} of {nsid}");
        }
    }
    let other = GetLogPage { lid: 5, len: 4096, offset: 0, csi: 1, retains: false, nsid: 0 };
    assert_eq!(log(&mut admin, other).status, 0x4002);
    // A host with only the base command set can enable the controller as well.
    let mut bare = Queue::open_over(Direct::new(&target), Digests::default());
    assert_eq!(bare.connect(0, 0xFFFF, NQN).status, 0);
    bare.set_property(0x14, 0x0046_0001);
    assert_eq!(bare.property(0x1C, false), 1);
}

#[test]
fn namespace_size_change_is_reported_once_and_listed() {
    let (odd, target) = odd(|_| ());
    let mut admin = Queue::admin(&target);
    let event = admin.submit(sqe(admin::ASYNC_EVENT_REQUEST, 0, [0; 6]), &[]);
    odd.notices.note(|changes| changes.size = true);
    (0..3).for_each(|_| admin.poll());
    assert_eq!(admin.end(event), None, "the host has not asked for this kind");
    // Changes from before the feature was enabled are reported then.
    assert_eq!(feature(&mut admin, admin::SET_FEATURES, 0x0B, 1 << 8).status, 0);
    assert_eq!(admin.wait(event), End { result: 2 | 4 << 16, ..End::default() });
    let event = admin.submit(sqe(admin::ASYNC_EVENT_REQUEST, 0, [0; 6]), &[]);
    odd.notices.note(|changes| changes.limits = true);
    admin.poll();
    assert_eq!(admin.end(event), None, "the host has not read the log");
    let retaining = GetLogPage { lid: 4, len: 4096, offset: 0, csi: 0, retains: true, nsid: u32::MAX };
    assert_eq!(namespaces(&log(&mut admin, retaining).data), [1]);
    admin.poll();
    assert_eq!(admin.end(event), None, "the event is retained");
    assert_eq!(namespaces(&page(&mut admin, 4, 0, u32::MAX)), [1]);
    assert!(namespaces(&page(&mut admin, 4, 0, u32::MAX)).is_empty());
    odd.notices.note(|changes| changes.size = true);
    assert_eq!(admin.wait(event).result, 2 | 4 << 16);
}

#[test]
fn changed_zones_are_listed_until_they_are_too_many() {
    let target = target("ram:size=1G,zone_size=1M,blocksize=4096");
    let mut admin = Queue::admin(&target);
    let list = |admin: &mut Queue| {
        let list: ChangedZoneList = read(&page(admin, 0xBF, 2, 1));
        (list.count.get(), list.starts.map(U64::get))
    };
    let all_of = |starts: &[u64]| {
        let mut all = [0; ChangedZoneList::MAX];
        all[..starts.len()].copy_from_slice(starts);
        (starts.len() as u16, all)
    };
    for zone in [7, 3, 7] {
        set(&target, zone, ZoneSetting::Offline);
        (0..3).for_each(|_| admin.poll());
        set(&target, zone, ZoneSetting::Restored);
        (0..3).for_each(|_| admin.poll());
    }
    assert_eq!(list(&mut admin), all_of(&[3 * 256, 7 * 256]), "once each, in order");
    assert_eq!(list(&mut admin), all_of(&[]));
    for (zones, count) in [(511, 511), (512, 0xFFFF)] {
        (0..zones).for_each(|zone| set(&target, zone, ZoneSetting::ReadOnly));
        (0..10).for_each(|_| admin.poll());
        assert_eq!(list(&mut admin).0, count);
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
fn every_host_receives_zone_change_events() {
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

#[test]
fn health_and_error_logs_record_transfers_and_failures() {
    let target = target(RAM);
    let mut admin = Queue::admin(&target);
    let mut queue = admin.io(3);
    assert_eq!(write(&mut queue, 0, 200), 0);
    assert_eq!(append(&mut queue, ZONE, 1), 0);
    assert_eq!(run(&mut queue, io::READ, 0, 100), 0);
    assert_eq!(run(&mut queue, io::READ, 0, 1), 0);
    assert_eq!(write(&mut queue, 300, 1), 0x41BC);
    assert_eq!(admin.identify(0x42, 0, 1).status, 0x4002);
    let health: HealthLog = read(&page(&mut admin, 2, 0, u32::MAX));
    assert_eq!((health.writes.get(), health.reads.get()), (2, 2));
    assert_eq!(health.units_written, (201u128 * 4096).div_ceil(512_000));
    assert_eq!(health.units_read, (101u128 * 4096).div_ceil(512_000));
    assert_eq!((health.error_entries.get(), health.critical, health.spare), (2, 0, 100));
    let errors = page(&mut admin, 1, 0, 0);
    let [last, first, none] = [0, 64, 128].map(|at| read::<ErrorEntry>(&errors[at..]));
    assert_eq!((last.count.get(), last.sqid.get(), last.opcode), (2, 0, admin::IDENTIFY));
    assert_eq!((first.count.get(), first.sqid.get(), first.opcode), (1, 3, io::WRITE));
    assert_eq!((first.lba.get(), first.status.get() >> 1, first.nsid.get()), (300, 0x41BC, 1));
    assert_eq!((first.location.get(), first.transport), (0xFFFF, 3));
    assert_eq!(none, ErrorEntry::new_zeroed());
    // The counts of a closed queue are kept.
    drop(queue);
    assert_eq!(read::<HealthLog>(&page(&mut admin, 2, 0, 0)).writes, 2);
    let of_namespace = GetLogPage { lid: 2, len: 512, offset: 0, csi: 0, retains: false, nsid: 1 };
    assert_eq!(log(&mut admin, of_namespace).status, 0x4002);
    // A hundred more failures, of which 64 are kept.
    for _ in 0..100 {
        admin.identify(0x42, 0, 1);
    }
    let errors = page(&mut admin, 1, 0, 0);
    let errors = <[ErrorEntry]>::ref_from_bytes(&errors).unwrap();
    let counts: Vec<u64> = errors.iter().map(|entry| entry.count.get()).collect();
    assert_eq!((counts.len(), counts[0], counts[63]), (64, 103, 40));
}

#[test]
fn supported_log_pages_are_returned_and_others_are_refused() {
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
    let firmware = read::<FirmwareLog>(&page(&mut admin, 3, 0, 0));
    let controller = read::<IdentifyController>(&admin.identify(1, 0, 0).data);
    assert_eq!((firmware.slot, firmware.revision), (1, controller.firmware));
    // From an offset, and beyond the end.
    let at = |offset, len| GetLogPage { lid: 3, len, offset, csi: 0, retains: false, nsid: 0 };
    assert_eq!(log(&mut admin, at(8, 8)).data, controller.firmware);
    assert_eq!(log(&mut admin, at(516, 8)).status, 0x4002);
    assert_eq!(log(&mut admin, at(2, 8)).status, 0x4002);
}

#[test]
fn identify_has_every_form_that_hosts_use() {
    let target = target("ram:size=64M,zone_size=4M,zone_nr_conv=3,blocksize=4096");
    let mut admin = Queue::admin(&target);
    for (nsid, zones) in [(1, 13), (2, 3)] {
        let namespace = read::<IdentifyNamespace>(&admin.identify(0, 0, nsid).data);
        assert_eq!((namespace.nsze.get(), namespace.nuse.get()), (zones * 1024, zones * 1024));
        assert_eq!(namespace.formats[0].lbads, 12);
        let independent = read::<IndependentNamespace>(&admin.identify(8, 0, nsid).data);
        assert_eq!((independent.nstat, independent.nsfeat, independent.nsattr), (1, 0x20, 0));
        assert_eq!(admin.identify(5, 0, nsid).data, vec![0; 4096], "nothing of the NVM command set alone");
    }
    assert_eq!(admin.identify(0, 0, 3).data, vec![0; 4096], "no such namespace");
    assert_eq!(namespaces(&admin.identify(2, 0, 0).data), [1, 2]);
    assert_eq!(namespaces(&admin.identify(2, 0, 1).data), [2]);
    assert_eq!(namespaces(&admin.identify(7, 2, 0).data), [1]);
    assert_eq!(namespaces(&admin.identify(7, 0, 0).data), [2]);
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

#[test]
fn controller_that_is_not_enabled_takes_no_commands() {
    let target = target(RAM);
    let mut admin = Queue::open_over(Direct::new(&target), Digests::default());
    assert_eq!(admin.connect(0, 0xFFFF, NQN).status, 0);
    assert_eq!(admin.identify(1, 0, 0).status, 0x400C);
    let mut early = Queue::open_over(Direct::new(&target), Digests::default());
    assert_eq!(early.connect(1, admin.controller(), NQN).status, 0x400C);
    // Unsupported command sets, page size, arbitration and entry sizes.
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

/// Base 3.1.4.5: `CC.CSS` of 0 enables the NVM command set only.
#[test]
fn host_of_the_nvm_set_alone_has_no_zone_commands() {
    let target = target("ram:size=64M,zone_size=4M,complete=poll,blocksize=4096");
    let mut admin = Queue::admin(&target);
    for (cc, status) in [(0x0046_0001, 0x4001), (0x0046_0061, 0)] {
        admin.set_property(0x14, 0);
        admin.set_property(0x14, cc);
        let mut queue = admin.io(1);
        let report = queue.with_room(sqe(io::ZONE_MANAGEMENT_RECEIVE, 1, [0, 0, 1023, 0, 0, 0]), 4096);
        assert_eq!(queue.call(report, &[]).status, status, "report");
        let open = sqe(io::ZONE_MANAGEMENT_SEND, 1, [0, 0, 0, 3, 0, 0]);
        assert_eq!(queue.call(open, &[]).status, status, "open");
        let append = queue.with_room(sqe(io::ZONE_APPEND, 1, [0; 6]), 4096);
        assert_eq!(queue.call(append, &[7; 4096]).status, status, "append");
        let read = queue.with_room(sqe(io::READ, 1, [0; 6]), 4096);
        assert_eq!(queue.call(read, &[]).status, 0, "read");
    }
}
