//! The scheduler between the plugs and a full device queue: what it sorts, and the order that it
//! keeps.

use super::*;

/// A rig over a device that takes `depth` commands, without merging.
fn sorted(mode: WriteMode, scheduler: SchedulerKind, depth: usize) -> Rig {
    let info = DeviceInfo { keeps_order: mode == WriteMode::Pipelined, ..whole_zones() };
    let options = VolumeOptions::default().with_mode(mode).with_merge(false).with_scheduler(scheduler);
    let rig = Rig::on(Arc::new(Script::new(info)), options);
    rig.script.depth(depth);
    rig
}

/// Operations and zones of the commands that the device has received.
fn received(rig: &Rig) -> Vec<(Op, u32)> {
    rig.asked().into_iter().map(|(op, zone, ..)| (op, zone)).collect()
}

fn set(rig: &Rig, scheduler: &str) {
    rig.volume.set_options(&format!("scheduler={scheduler}").parse().unwrap()).unwrap();
}

#[test]
fn commands_that_find_no_room_are_sorted_by_address() {
    let arrivals = [6, 2, 5, 3];
    for (scheduler, sorted_writes) in
        [(SchedulerKind::None, arrivals), (SchedulerKind::MqDeadline, [2, 3, 5, 6])]
    {
        let rig = sorted(WriteMode::PerZone, scheduler, 1);
        let first = rig.write(1, 0, 4);
        let waiting = arrivals.map(|zone| rig.write(zone, 0, 4));
        rig.settle();
        assert_eq!((rig.ends([first]), rig.ends(waiting)), ([DONE], [DONE; 4]));
        let mut expected = vec![(Op::Write, 1)];
        expected.extend(sorted_writes.map(|zone| (Op::Write, zone)));
        assert_eq!(received(&rig), expected, "{scheduler:?}");
    }
}

#[test]
fn modes_with_an_order_of_their_own_take_no_scheduler() {
    let rig = sorted(WriteMode::Direct, SchedulerKind::MqDeadline, 1);
    rig.script.allow_together();
    for zone in [1, 6, 2, 5] {
        rig.write(zone, 0, 4);
    }
    rig.settle();
    assert_eq!(received(&rig), [1, 6, 2, 5].map(|zone| (Op::Write, zone)));
    for mode in [WriteMode::Direct, WriteMode::ZoneLock] {
        let rig = sorted(mode, SchedulerKind::None, 1);
        let error = rig.volume.set_options(&"scheduler=mq-deadline".parse().unwrap()).unwrap_err();
        assert!(error.to_string().starts_with(&format!("mode {mode} takes no scheduler")), "{error}");
    }
}

#[test]
fn commands_are_issued_in_arrival_order_while_the_device_has_room() {
    let rig = sorted(WriteMode::PerZone, SchedulerKind::MqDeadline, 8);
    for zone in [6, 2, 5, 3] {
        rig.write(zone, 0, 4);
    }
    assert_eq!(received(&rig), [6, 2, 5, 3].map(|zone| (Op::Write, zone)));
    rig.settle();
}

/// Reads arrive without end, and zone 7 is written all the time, but the write of zone 2 is not
/// held up for ever.
#[test]
fn write_is_not_starved_by_reads_or_address_order() {
    let rig = sorted(WriteMode::PerZone, SchedulerKind::MqDeadline, 1);
    rig.write(1, 0, 1);
    let write = rig.write(2, 0, 1);
    let read = || rig.submit(Request::read(rig.sector(4, 0), 2, payload(0, 2)));
    let mut commands = 0;
    read();
    while rig.end(write).is_none() {
        read();
        rig.step(Answer::Obey);
        commands += 1;
        assert!(commands < 100, "the write is starved");
    }
    rig.settle();
}

#[test]
fn writes_of_a_zone_keep_their_order_in_every_mode() {
    for mode in [WriteMode::PerZone, WriteMode::Qd1, WriteMode::Pipelined, WriteMode::Append] {
        for depth in [1, 3] {
            let rig = sorted(mode, SchedulerKind::MqDeadline, depth);
            let next = |n: u32| {
                let either = if n.is_multiple_of(2) { rig.append(3, 4) } else { rig.write(3, n * 4, 4) };
                [rig.write(1, n * 4, 4), rig.append(2, 4), either]
            };
            let tokens: Vec<u64> = (0..8).flat_map(next).collect();
            rig.settle();
            assert!(tokens.iter().all(|token| rig.end(*token).unwrap().is_ok()), "{mode}");
            assert_eq!(rig.resyncs(), 0, "{mode}: the device refused no write");
            assert_eq!([1, 2, 3].map(|zone| rig.pointer(zone)), [Some(32); 3], "{mode}");
        }
    }
}

#[test]
fn scheduler_change_at_runtime_keeps_waiting_requests() {
    let rig = sorted(WriteMode::PerZone, SchedulerKind::None, 1);
    let mut tokens = vec![rig.write(1, 0, 4)];
    tokens.extend([6, 2, 5].map(|zone| rig.write(zone, 0, 4)));
    set(&rig, "mq-deadline");
    tokens.push(rig.write(3, 0, 4));
    rig.step(Answer::Obey);
    rig.step(Answer::Obey);
    // Zone 3 is at the device: the rest leaves in the order in which the scheduler had it.
    set(&rig, "none");
    tokens.push(rig.write(4, 0, 4));
    rig.settle();
    assert_eq!(received(&rig), [1, 2, 3, 5, 6, 4].map(|zone| (Op::Write, zone)));
    assert!(tokens.iter().all(|token| rig.end(*token) == Some(DONE)));
}

#[test]
fn requests_that_are_cancelled_leave_the_scheduler() {
    let rig = sorted(WriteMode::PerZone, SchedulerKind::MqDeadline, 1);
    let first = rig.write(1, 0, 4);
    let waiting = [3, 2].map(|zone| rig.write(zone, 0, 4));
    rig.volume.cancel(rig.now(), &rig.channel);
    rig.poll();
    assert_eq!(received(&rig), [(Op::Write, 1)]);
    rig.settle();
    assert_eq!(rig.end(first), Some(DONE));
    assert!(waiting.iter().all(|token| rig.end(*token).unwrap().is_err()));
    assert!(!received(&rig).contains(&(Op::Write, 3)));
}
