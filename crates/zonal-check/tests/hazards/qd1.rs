//! One write at a time on the whole device, and mode switches with requests in flight.

use super::*;
use zonal_core::Nanos;
use zonal_io::volume::{Qd1Quantum, SwitchError};

fn qd1() -> Rig {
    unmerged(script::info(), WriteMode::Qd1)
}

/// Zones and offsets of the writes received by the device, in order.
fn written(rig: &Rig) -> Vec<(u32, u32)> {
    let writes = rig.asked().into_iter().filter(|a| a.0 == Op::Write);
    writes.map(|(_, zone, offset, _)| (zone, offset)).collect()
}

fn writes_pending(rig: &Rig) -> usize {
    rig.script.pending().iter().filter(|s| s.op == Op::Write).count()
}

#[test]
fn h45_one_write_of_all_zones_is_at_the_device_and_a_zone_is_drained_before_the_next() {
    let rig = qd1();
    let tokens = [(1, 0), (2, 0), (1, 8), (3, 0), (2, 8), (1, 16)].map(|(z, at)| rig.write(z, at, 8));
    for _ in 0..tokens.len() {
        assert_eq!(writes_pending(&rig), 1);
        rig.step(Answer::Obey);
    }
    assert_eq!(rig.ends(tokens), [DONE; 6]);
    assert_eq!(written(&rig), [(1, 0), (1, 8), (1, 16), (2, 0), (2, 8), (3, 0)]);
}

/// Zones 1 to 3 are on one spindle and 4 to 7 on another.
#[test]
fn h45_one_write_of_each_spindle_is_at_the_device_and_lines_are_apart() {
    let rig = unmerged(DeviceInfo { spindles: vec![ZoneIndex(4)], ..script::info() }, WriteMode::Qd1);
    let tokens = [(1, 0), (2, 0), (4, 0), (7, 0), (3, 0), (4, 8)].map(|(z, at)| rig.write(z, at, 8));
    let pending = || rig.script.pending().iter().map(|seen| seen.zone).collect::<Vec<_>>();
    assert_eq!(pending(), [1, 4].map(ZoneIndex));
    // The second spindle continues while the first one's write is at the device.
    for next in [4, 7] {
        rig.finish(1, Answer::Obey);
        assert_eq!(pending(), [1, next].map(ZoneIndex));
    }
    rig.settle();
    assert_eq!(rig.ends(tokens), [DONE; 6]);
    assert_eq!(written(&rig), [(1, 0), (4, 0), (4, 8), (7, 0), (2, 0), (3, 0)]);
}

#[test]
fn h45_reads_management_and_conventional_writes_pass_a_write() {
    let rig = Rig::new(
        DeviceInfo {
            geometry: Geometry::new(Sectors(8 * ZONE), Sectors(ZONE), Sectors(0), 1).unwrap(),
            ..script::info()
        },
        WriteMode::Qd1,
    );
    rig.write(1, 0, 8);
    let waits = rig.write(2, 0, 8);
    let read = rig.submit(Request::read(rig.sector(3, 0), 8, payload(0, 8)));
    let reset = rig.reset(4);
    let conventional = rig.write(0, 24, 8);
    assert_eq!(rig.script.pending().len(), 4, "the second write alone waits");
    for _ in 0..3 {
        rig.finish(1, Answer::Obey);
    }
    assert_eq!(rig.ends([read, reset, conventional]).map(|e| e.is_ok()), [true; 3]);
    assert_eq!(rig.end(waits), None);
    rig.settle();
    assert_eq!(rig.end(waits), Some(DONE));
}

#[test]
fn h46_failure_in_one_zone_leaves_the_line_to_the_others() {
    let rig = qd1();
    let [bad, behind, other] = [(1, 0), (1, 8), (2, 0)].map(|(z, at)| rig.write(z, at, 8));
    rig.script.finish(rig.script.pending()[0].id, MEDIUM);
    rig.rest();
    assert_eq!(writes_pending(&rig), 1, "the other zone's goes out while the device is asked about this one");
    rig.settle();
    assert!(rig.end(bad).unwrap().is_err() && rig.end(behind).unwrap().is_err());
    assert_eq!(rig.end(other), Some(DONE));
    let again = rig.write(1, 0, 8);
    rig.settle();
    assert_eq!(rig.end(again), Some(DONE));
}

#[test]
fn h43_reset_of_a_zone_in_line_leaves_the_line_to_the_others() {
    let rig = qd1();
    let first = rig.write(1, 0, 8);
    let [gone, other] = [2, 3].map(|z| rig.write(z, 0, 8));
    let reset = rig.reset(2);
    assert_eq!(rig.end(gone), Some(aborted(2)));
    rig.settle();
    assert_eq!(rig.ends([first, reset, other]), [DONE; 3]);
    let later = rig.write(2, 0, 8);
    rig.settle();
    assert_eq!(rig.end(later), Some(DONE));
}

#[test]
fn u19_quantum_used_up_gives_the_next_zone_its_turn() {
    let options = VolumeOptions::default()
        .with_mode(WriteMode::Qd1)
        .with_merge(false)
        .with_qd1_quantum(Qd1Quantum { bytes: 2 * 8 * 512, time: Nanos(0) });
    let rig = Rig::on(Arc::new(Script::new(script::info())), options);
    let tokens =
        [(1, 0), (1, 8), (1, 16), (1, 24), (2, 0), (2, 8), (2, 16)].map(|(z, at)| rig.write(z, at, 8));
    rig.settle();
    assert_eq!(rig.ends(tokens), [DONE; 7]);
    // The first write was issued before another zone was in line.
    assert_eq!(written(&rig), [(1, 0), (1, 8), (1, 16), (2, 0), (2, 8), (1, 24), (2, 16)]);
}

#[test]
fn h44_switch_drains_writes_in_flight_and_keeps_the_order_of_waiting_ones() {
    for (from, to) in [
        (WriteMode::PerZone, WriteMode::Qd1),
        (WriteMode::Qd1, WriteMode::PerZone),
        (WriteMode::Append, WriteMode::Qd1),
        (WriteMode::Qd1, WriteMode::Append),
    ] {
        let rig = unmerged(script::info(), from);
        let before = [(1, 0), (1, 8), (2, 0), (2, 8)].map(|(z, at)| rig.write(z, at, 8));
        let out = rig.script.pending().len();
        rig.volume.switch_mode(Nanos(0), to).unwrap();
        rig.rest();
        assert_eq!(rig.volume.mode().0, from, "{from} to {to}");
        let after = [(1, 16), (3, 0), (2, 16)].map(|(z, at)| rig.write(z, at, 8));
        rig.rest();
        assert_eq!(rig.script.pending().len(), out, "{from} to {to}: nothing goes out meanwhile");
        for _ in 0..out {
            rig.step(Answer::Obey);
        }
        assert_eq!(rig.volume.mode(), (to, "set while running"));
        let most = if to == WriteMode::Qd1 { 1 } else { 3 };
        assert_eq!(writes_pending(&rig), most, "{from} to {to}");
        rig.settle();
        assert_eq!(rig.ends(before), [DONE; 4], "{from} to {to}");
        assert_eq!(rig.ends(after), [DONE; 3], "{from} to {to}");
    }
}

#[test]
fn h44_switch_with_appends_in_flight_changes_how_the_next_ones_go_out() {
    let rig = Rig::append_mode();
    let tokens = [0; 4].map(|_| rig.append(1, 4));
    assert_eq!(rig.script.pending().len(), 4, "native ones go side by side");
    rig.volume.switch_mode(Nanos(0), WriteMode::PerZone).unwrap();
    let later = [0; 2].map(|_| rig.append(1, 4));
    for _ in 0..4 {
        rig.step(Answer::Obey);
    }
    let pending = rig.script.pending();
    assert_eq!((pending.len(), pending[0].op), (1, Op::Write), "emulated ones do not");
    rig.settle();
    let expected = [0, 4, 8, 12].map(|at| appended(&rig, 1, at));
    assert_eq!(rig.ends(tokens), expected);
    assert_eq!(rig.ends(later), [16, 20].map(|at| appended(&rig, 1, at)));
}

/// As a write it had a position; as an append it names its zone.
#[test]
fn u26_append_refused_as_a_write_and_sent_again_after_a_switch_names_its_zone() {
    let rig = Rig::per_zone();
    let first = rig.append(1, 4);
    rig.step(Answer::Obey);
    let refused = rig.append(1, 4);
    rig.volume.switch_mode(Nanos(0), WriteMode::Append).unwrap();
    rig.step(Answer::Refuse(DeviceError::Busy));
    rig.settle();
    assert_eq!(rig.volume.mode().0, WriteMode::Append);
    assert_eq!(rig.ends([first, refused]), [appended(&rig, 1, 0), appended(&rig, 1, 4)]);
}

#[test]
fn u20_switch_behind_a_reset_of_all_zones_waits_for_it() {
    let rig = Rig::per_zone();
    rig.write(1, 0, 8);
    let reset = rig.submit(Request::reset_all());
    rig.volume.switch_mode(Nanos(0), WriteMode::Qd1).unwrap();
    let later = rig.write(1, 0, 8);
    rig.settle();
    assert_eq!(rig.ends([reset, later]), [DONE; 2]);
    assert_eq!(rig.volume.mode().0, WriteMode::Qd1);
}

#[test]
fn u21_switch_that_cannot_be_is_refused_and_changes_nothing() {
    let rig = Rig::new(DeviceInfo { append_sectors_max: 0, ..script::info() }, WriteMode::PerZone);
    let switch = |mode| rig.volume.switch_mode(Nanos(0), mode);
    assert_eq!(switch(WriteMode::Append), Err(SwitchError::NoAppend));
    assert_eq!(switch(WriteMode::Direct), Err(SwitchError::Direct));
    assert_eq!(rig.volume.mode().0, WriteMode::PerZone);
    let direct = Rig::new(script::info(), WriteMode::Direct);
    assert_eq!(direct.volume.switch_mode(Nanos(0), WriteMode::PerZone), Err(SwitchError::Direct));
    let scheduled = Rig::new(script::info(), WriteMode::ZoneLock);
    for (rig, to) in [(&rig, WriteMode::ZoneLock), (&scheduled, WriteMode::PerZone)] {
        let before = rig.volume.mode();
        assert_eq!(rig.volume.switch_mode_anyway(Nanos(0), to), Err(SwitchError::ZoneLock));
        assert_eq!(rig.volume.request_mode(to, true), Err(SwitchError::ZoneLock));
        rig.settle();
        assert_eq!(rig.volume.mode(), before);
    }
}

/// Three zones have all slots, and no command in flight releases one. Each zone that also waited
/// for the token looked to the others like one about to release a slot, and they retried forever.
#[test]
fn h49_zones_without_a_slot_end_in_bounded_rounds() {
    let name = "ram:size=2M,zone_size=128K,zone_max_open=3,zone_max_active=3,complete=poll";
    let device = zonal_io::registry::Registry::default().open(name).unwrap();
    let options = VolumeOptions::default().with_mode(WriteMode::Qd1).without_budget().without_park();
    let volume = zonal_io::volume::Volume::open(device, options).unwrap();
    let inbox = volume.inbox();
    let write = |zone: u64, at: u64| {
        let request = Request::write(Sector(zone * 256 + at), 8, zonal_io::buffer::IoBuf::zeroed(4096));
        volume.submit(Nanos(0), inbox.channel(), request.token(zone));
    };
    (0..8).for_each(|zone| (0..3).for_each(|n| write(zone, n * 8)));
    let mut ended = Vec::new();
    for _ in 0..2_000 {
        volume.poll(Nanos(0));
        ended.extend(std::iter::from_fn(|| inbox.take()).map(|end| (end.token, end.result.is_ok())));
    }
    assert_eq!(ended.len(), 24);
    assert_eq!(ended.iter().filter(|(_, is_ok)| *is_ok).count(), 9, "{ended:?}");
}
