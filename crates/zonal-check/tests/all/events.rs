//! Device events: each is delivered to each reader once, whatever its source, and the volume
//! updates its own state.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zonal_check::program;
use zonal_check::program::served::Served;
use zonal_check::rig::{DONE, Rig};
use zonal_check::script::{Answer, reported};
use zonal_core::{DeviceError, Nanos, Op, RequestError, Sector, ZoneCondition, ZoneError, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::changes::ZoneSetting;
use zonal_io::clock::Clock;
use zonal_io::control::ControlServer;
use zonal_io::device::{Device, Output};
use zonal_io::fault::{Degraded, Effect, Fault, InFlight, Ops, Plan, Rule};
use zonal_io::image::ImageOptions;
use zonal_io::registry::Registry;
use zonal_io::volume::{DeviceEvent, Events, Part, Request, Volume, VolumeOptions, WriteMode, report};

const ZONE: u64 = 2048;

fn open(name: &str) -> Arc<dyn Device> {
    let mut registry = Registry::default();
    zonal_sim::register(&mut registry);
    registry.open(name).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn volume_on(device: Arc<dyn Device>, mode: WriteMode) -> Volume {
    let options = VolumeOptions::default().with_mode(mode).with_force(true);
    Volume::open(device, options).unwrap()
}

/// A device of each kind with eight zones, the first one conventional.
fn devices(dir: &Path) -> Vec<Arc<dyn Device>> {
    let path = dir.join("image");
    let image = ImageOptions::default().with_size(8 << 20).with_zone_size(1 << 20).with_zone_nr_conv(1);
    image.create(&path).unwrap();
    let whole = "size=8M,zone_size=1M,zone_nr_conv=1";
    let names = [
        format!("null:{whole}"),
        format!("ram:{whole},complete=poll,submit_queues=2"),
        format!("image:{}", path.display()),
        format!("trace:file={}+ram:{whole}", dir.join("trace").display()),
        format!("fault:busy=0.2+ram:{whole}"),
        "linear:zone=3,zones=8+ram:size=12M,zone_size=1M,zone_nr_conv=4".to_owned(),
        "concat:[ram:size=3M,zone_size=1M,zone_nr_conv=1][null:size=5M,zone_size=1M]".to_owned(),
        format!("timing:zns-1t+ram:{whole}"),
    ];
    names.iter().map(|name| open(name)).collect()
}

/// Polls until the volume has nothing to do, and reads the pending events.
fn read(volume: &Volume, clock: &Clock, events: &Events) -> Vec<DeviceEvent> {
    let mut read = Vec::new();
    // A helper thread may answer later.
    let until = Instant::now() + Duration::from_millis(20);
    while volume.poll(clock.now()).is_some() || Instant::now() < until {
        read.extend(std::iter::from_fn(|| events.next()));
    }
    read.extend(std::iter::from_fn(|| events.next()));
    read
}

fn told(zone: u32, condition: ZoneCondition) -> DeviceEvent {
    DeviceEvent::Zone { zone: ZoneIndex(zone), condition }
}

/// A successful reset implies the write pointer, but no condition of the zone before or after it.
#[test]
fn zone_change_concurrent_with_its_reset_raises_an_event() {
    use ZoneSetting::{Offline, Restored};
    for mode in [WriteMode::PerZone, WriteMode::Append, WriteMode::Qd1, WriteMode::ZoneLock] {
        for op in [Op::ZoneReset, Op::ResetAll] {
            let volume = Arc::new(volume_on(open("ram:size=8M,zone_size=1M,complete=poll"), mode));
            let (clock, events) = (Clock::start(), volume.events());
            let inbox = volume.inbox();
            let reset = || match op {
                Op::ResetAll => Request::reset_all(),
                op => Request::zone(op, Sector(3 * ZONE)),
            };
            volume.submit(clock.now(), inbox.channel(), reset());
            volume.device().set_zone(ZoneIndex(3), Offline).unwrap();
            let of = format!("{mode} {op:?}");
            assert_eq!(read(&volume, &clock, &events), [told(3, ZoneCondition::Offline)], "{of}");
            assert_eq!(inbox.take().unwrap().result, DONE, "{of}");
            volume.device().set_zone(ZoneIndex(3), Restored).unwrap();
            volume.submit(clock.now(), inbox.channel(), reset());
            assert_eq!(read(&volume, &clock, &events), [told(3, ZoneCondition::Empty)], "{of}");
            assert_eq!(inbox.take().unwrap().result, DONE, "{of}");
            let write = volume.call(&clock, Request::write(Sector(3 * ZONE), 8, IoBuf::zeroed(4096)));
            assert_eq!(write.result, DONE, "{of}");
        }
    }
}

#[test]
fn zone_set_by_command_is_reported_once_to_each_reader() {
    let dir = tempfile::tempdir().unwrap();
    for device in devices(dir.path()) {
        let volume = Arc::new(volume_on(device, WriteMode::PerZone));
        let (clock, name) = (Clock::start(), volume.info().name.clone());
        let [one, other] = [volume.events(), volume.events()];
        let part = Part::new(volume.clone(), 5..8).unwrap().events();
        let write = volume.call(&clock, Request::write(Sector(4 * ZONE), 8, IoBuf::zeroed(4096)));
        assert_eq!(write.result, DONE, "{name}");
        let keeps_data = zonal_io::volume::keeps_data(&**volume.device());
        let restored =
            if keeps_data || name.contains("null") { ZoneCondition::Closed } else { unreachable!() };
        for (zone, setting, condition) in [
            (4, ZoneSetting::ReadOnly, ZoneCondition::ReadOnly),
            (4, ZoneSetting::Restored, restored),
            (4, ZoneSetting::Offline, ZoneCondition::Offline),
            (4, ZoneSetting::Restored, ZoneCondition::Empty),
            (7, ZoneSetting::Offline, ZoneCondition::Offline),
        ] {
            // The second call changes nothing.
            for expected in [vec![told(zone, condition)], vec![]] {
                volume.device().set_zone(ZoneIndex(zone), setting).unwrap();
                assert_eq!(read(&volume, &clock, &one), expected, "{name}: {setting}");
                assert_eq!(read(&volume, &clock, &other), expected, "{name}: {setting}");
            }
            assert_eq!(
                report(&**volume.device(), Sector(u64::from(zone) * ZONE), 1).unwrap()[0].condition,
                condition
            );
        }
        assert_eq!(read(&volume, &clock, &part), [told(2, ZoneCondition::Offline)], "{name}");
        let late = volume.events();
        assert_eq!(read(&volume, &clock, &late), [], "{name}: it was not there");
        let conventional = volume.device().set_zone(ZoneIndex(0), ZoneSetting::Offline);
        assert_eq!(conventional, Err(ZoneError::Conventional.into()), "{name}");
        assert_eq!(
            volume.device().set_zone(ZoneIndex(8), ZoneSetting::Offline),
            Err(DeviceError::OutOfRange),
            "{name}"
        );
    }
}

#[test]
fn waiting_writes_fail_with_the_new_condition_of_their_zone() {
    for (condition, error) in [
        (ZoneCondition::ReadOnly, RequestError::ZoneReadOnly { zone: ZoneIndex(2) }),
        (ZoneCondition::Offline, RequestError::ZoneOffline { zone: ZoneIndex(2) }),
    ] {
        let rig = Rig::per_zone();
        let events = rig.volume.events();
        let out = rig.write(2, 0, 8);
        let waiting = [rig.write(2, 8, 8), rig.append(2, 4)];
        rig.script.set_zone(2, condition, 8);
        rig.script.notice(|changes| changes.add_zone(ZoneIndex(2)));
        rig.rest();
        assert_eq!((rig.end(waiting[0]), events.next()), (None, None), "it waits for the write that is out");
        rig.step(Answer::Reply(Ok(Output::Done)));
        rig.settle();
        assert_eq!(rig.end(out), Some(DONE));
        assert_eq!(rig.ends(waiting), [Err(error), Err(error)]);
        assert_eq!(events.next(), Some(told(2, condition)));
        let later = rig.write(2, 8, 8);
        assert_eq!(rig.end(later), Some(Err(error)), "without a command");
        assert_eq!(events.next(), None);
    }
}

#[test]
fn parked_writes_fail_with_the_new_condition_of_their_zone() {
    let device = open("ram:size=8M,zone_size=1M");
    let volume = Volume::open(device, VolumeOptions::default().with_mode(WriteMode::PerZone));
    let volume = volume.unwrap();
    let ends: Arc<parking_lot::Mutex<Vec<_>>> = Arc::default();
    let noted = ends.clone();
    let channel = volume.channel(move |completion| noted.lock().push(completion.result));
    volume.submit(Nanos(0), &channel, Request::write(Sector(2 * ZONE + 16), 8, IoBuf::zeroed(4096)));
    assert_eq!(ends.lock().len(), 0, "it waits for those before it");
    volume.device().set_zone(ZoneIndex(2), ZoneSetting::ReadOnly).unwrap();
    volume.poll(Nanos(1));
    assert_eq!(*ends.lock(), [Err(RequestError::ZoneReadOnly { zone: ZoneIndex(2) })]);
}

#[test]
fn zone_found_read_only_by_recovery_is_reported_once_despite_its_notice() {
    for notice_is_first in [false, true] {
        let rig = Rig::per_zone();
        let events = rig.volume.events();
        let notice = || rig.script.notice(|changes| changes.add_zone(ZoneIndex(1)));
        rig.write(1, 0, 8);
        rig.script.set_zone(1, ZoneCondition::ReadOnly, 0);
        if notice_is_first {
            notice();
        }
        rig.settle();
        assert_eq!(events.next(), Some(told(1, ZoneCondition::ReadOnly)));
        if !notice_is_first {
            notice();
        }
        rig.volume.resync(rig.now(), ZoneIndex(1));
        rig.settle();
        assert_eq!(events.next(), None);
        // Restored without a notice; only a report shows it.
        rig.script.set_zone(1, ZoneCondition::Closed, 4);
        rig.volume.resync(rig.now(), ZoneIndex(1));
        rig.settle();
        assert_eq!(events.next(), Some(told(1, ZoneCondition::Closed)));
        let write = rig.write(1, 4, 8);
        rig.settle();
        assert_eq!((rig.end(write), events.next()), (Some(DONE), None));
    }
}

#[test]
fn report_issued_before_a_change_raises_no_event() {
    let rig = Rig::per_zone();
    let events = rig.volume.events();
    let before = rig.script.describe(1);
    rig.volume.resync(rig.now(), ZoneIndex(1));
    rig.rest();
    rig.script.set_zone(1, ZoneCondition::Offline, 0);
    rig.script.notice(|changes| changes.add_zone(ZoneIndex(1)));
    rig.rest();
    rig.step(reported(before));
    assert_eq!(events.next(), None);
    rig.settle();
    assert_eq!(events.next(), Some(told(1, ZoneCondition::Offline)));
    assert_eq!(events.next(), None);
    // A restored zone is not mistaken for one that has failed again.
    let before = rig.script.describe(1);
    rig.volume.resync(rig.now(), ZoneIndex(1));
    rig.rest();
    rig.script.set_zone(1, ZoneCondition::Empty, 0);
    rig.script.notice(|changes| changes.add_zone(ZoneIndex(1)));
    rig.rest();
    rig.step(reported(before));
    rig.settle();
    assert_eq!(events.next(), Some(told(1, ZoneCondition::Empty)));
    assert_eq!(events.next(), None);
}

#[test]
fn zone_lost_and_restored_between_two_polls_raises_an_event() {
    let volume = volume_on(open("ram:size=8M,zone_size=1M"), WriteMode::PerZone);
    let (clock, events) = (Clock::start(), volume.events());
    let at = Sector(2 * ZONE);
    assert_eq!(volume.call(&clock, Request::write(at, 8, IoBuf::zeroed(4096))).result, DONE);
    for setting in [ZoneSetting::Offline, ZoneSetting::Restored] {
        volume.device().set_zone(ZoneIndex(2), setting).unwrap();
    }
    assert_eq!(read(&volume, &clock, &events), [told(2, ZoneCondition::Empty)]);
    assert_eq!(volume.write_pointer(ZoneIndex(2)), Some(at), "and the volume knows that its data is gone");
}

#[test]
fn zone_failure_seen_in_a_callers_report_raises_an_event() {
    let rig = Rig::per_zone();
    let events = rig.volume.events();
    rig.script.set_zone(3, ZoneCondition::Offline, 0);
    rig.submit(Request::report(Sector(0), 8));
    rig.settle();
    assert_eq!((events.next(), events.next()), (Some(told(3, ZoneCondition::Offline)), None));
    assert_eq!(rig.pointer(3), None);
    rig.submit(Request::report(Sector(0), 8));
    rig.settle();
    assert_eq!(events.next(), None);
}

#[test]
fn zone_that_was_fallen_at_the_opening_is_no_event() {
    let device = open("ram:size=8M,zone_size=1M");
    device.set_zone(ZoneIndex(2), ZoneSetting::ReadOnly).unwrap();
    let volume = volume_on(device, WriteMode::PerZone);
    let (clock, events) = (Clock::start(), volume.events());
    volume.resync(clock.now(), ZoneIndex(2));
    assert_eq!(read(&volume, &clock, &events), []);
    volume.device().set_zone(ZoneIndex(2), ZoneSetting::Restored).unwrap();
    assert_eq!(read(&volume, &clock, &events), [told(2, ZoneCondition::Empty)]);
}

#[test]
fn offline_command_of_a_caller_is_no_event() {
    for mode in WriteMode::ALL {
        let volume = volume_on(open("ram:size=8M,zone_size=1M,zone_max_active=4"), mode);
        let (clock, events) = (Clock::start(), volume.events());
        volume.device().set_zone(ZoneIndex(2), ZoneSetting::ReadOnly).unwrap();
        assert_eq!(read(&volume, &clock, &events), [told(2, ZoneCondition::ReadOnly)], "{mode}");
        let offline = volume.call(&clock, Request::zone(Op::ZoneOffline, Sector(2 * ZONE)));
        assert_eq!(offline.result, DONE, "{mode}");
        volume.resync(clock.now(), ZoneIndex(2));
        assert_eq!(read(&volume, &clock, &events), [], "{mode}");
    }
}

#[test]
fn zones_degraded_by_a_rule_are_reported_once() {
    let rule = Rule::new(Effect::Degrade(Degraded::ReadOnly)).on(Ops::WRITES).zone(ZoneIndex(2)).nth(2);
    let fault = Fault::new(open("ram:size=8M,zone_size=1M,complete=poll"), Plan::of(1, [rule]));
    let volume = volume_on(Arc::new(fault), WriteMode::PerZone);
    let (clock, events) = (Clock::start(), volume.events());
    let write =
        |at| volume.call(&clock, Request::write(Sector(2 * ZONE + at), 8, IoBuf::zeroed(4096))).result;
    assert_eq!(write(0), DONE);
    assert!(write(8).is_err());
    assert_eq!(read(&volume, &clock, &events), [told(2, ZoneCondition::ReadOnly)]);
    volume.device().set_zone(ZoneIndex(2), ZoneSetting::Restored).unwrap();
    // When the zone fell, the device below was made to finish it.
    assert_eq!(read(&volume, &clock, &events), [told(2, ZoneCondition::Full)]);
}

#[test]
fn device_loss_is_reported_once_per_power_cut() {
    let fault = Arc::new(Fault::new(open("ram:size=8M,zone_size=1M,complete=poll"), Plan::default()));
    let volume = volume_on(fault.clone(), WriteMode::PerZone);
    let (clock, events) = (Clock::start(), volume.events());
    for _ in 0..2 {
        fault.power_cut(InFlight::Fail);
        let gone = Err(RequestError::Device(DeviceError::Gone));
        for _ in 0..3 {
            let read = Request::read(Sector(0), 8, IoBuf::zeroed(4096));
            assert_eq!(volume.call(&clock, read).result, gone);
        }
        assert_eq!(read(&volume, &clock, &events), [DeviceEvent::Gone]);
        fault.restore();
    }
}

#[test]
fn device_loss_seen_only_in_errors_is_reported_once() {
    let rig = Rig::per_zone();
    let events = rig.volume.events();
    let gone = || Answer::Refuse(DeviceError::Gone);
    let ends = [rig.write(1, 0, 8), rig.submit(Request::flush()), rig.write(2, 0, 8)];
    while !rig.script.pending().is_empty() {
        rig.step(gone());
    }
    assert!(ends.iter().all(|&token| rig.end(token).is_some_and(|end| end.is_err() || end == DONE)));
    assert_eq!((events.next(), events.next()), (Some(DeviceEvent::Gone), None));
    rig.script.notice(|changes| changes.gone = true);
    rig.rest();
    assert_eq!(events.next(), None, "its own notice comes late");
}

#[test]
fn changed_limits_and_size_are_reported_once_to_each_reader() {
    let rig = Rig::per_zone();
    let [one, other] = [rig.volume.events(), rig.volume.events()];
    rig.script.notice(|changes| (changes.limits, changes.size) = (true, true));
    rig.rest();
    for events in [&one, &other] {
        let told: Vec<_> = std::iter::from_fn(|| events.next()).collect();
        assert_eq!(told, [DeviceEvent::Size, DeviceEvent::Limits]);
    }
    rig.script.notice(|changes| changes.limits = true);
    rig.rest();
    assert_eq!((one.next(), one.next()), (Some(DeviceEvent::Limits), None));
}

/// Longer than any of these tests, so that a missed wake-up fails the test.
const SLEEP: Duration = Duration::from_secs(30);

#[test]
fn sleeping_reader_is_woken_by_an_event_found_by_another_thread() {
    let rig = Rig::per_zone();
    let (events, begin) = (rig.volume.events(), Instant::now());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            rig.volume.wait_unless(SLEEP, || events.is_there());
            events.next()
        });
        std::thread::sleep(Duration::from_millis(50));
        // Without a notice from the device.
        rig.script.set_zone(1, ZoneCondition::Offline, 0);
        rig.volume.resync(rig.now(), ZoneIndex(1));
        rig.settle();
        assert_eq!(reader.join().unwrap(), Some(told(1, ZoneCondition::Offline)));
    });
    assert!(begin.elapsed() < SLEEP, "it was woken by time");
}

#[test]
fn four_sleeping_threads_hear_each_change_once() {
    const CHANGES: u32 = 60;
    for complete in ["inline", "poll"] {
        for queues in [1, 4] {
            let name = format!("ram:size=64M,zone_size=1M,complete={complete},submit_queues={queues}");
            let volume = volume_on(open(&name), WriteMode::PerZone);
            let (clock, begin) = (Clock::start(), Instant::now());
            let heard = |events: Events| {
                let mut heard = BTreeMap::new();
                while heard.len() < CHANGES as usize {
                    let due = volume.poll(clock.now());
                    for event in std::iter::from_fn(|| events.next()) {
                        let DeviceEvent::Zone { zone, condition } = event else { panic!("{event:?}") };
                        assert_eq!(heard.insert(zone.0, condition), None, "zone {zone} is told again");
                    }
                    if due.is_none() && heard.len() < CHANGES as usize {
                        volume.wait_unless(SLEEP, || events.is_there());
                    }
                }
                heard
            };
            std::thread::scope(|scope| {
                let readers = [(); 4].map(|()| volume.events());
                let threads = readers.map(|events| scope.spawn(|| heard(events)));
                for zone in 0..CHANGES {
                    let setting = [ZoneSetting::ReadOnly, ZoneSetting::Offline][zone as usize % 2];
                    volume.device().set_zone(ZoneIndex(zone), setting).unwrap();
                    if zone % 8 == 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                for thread in threads {
                    let heard = thread.join().unwrap();
                    let fallen =
                        |zone: u32| [ZoneCondition::ReadOnly, ZoneCondition::Offline][zone as usize % 2];
                    assert!(heard.iter().all(|(&zone, &condition)| condition == fallen(zone)), "{heard:?}");
                }
            });
            assert!(begin.elapsed() < SLEEP, "a thread was woken by time");
        }
    }
}

/// Condition of a zone as printed by `zonal report`.
fn printed(dir: &Path, zone: u32) -> String {
    let line = format!("report d --offset {} --count 1 --json", u64::from(zone) * ZONE);
    let zones: serde_json::Value = serde_json::from_slice(&program::run(dir, &line).done()).unwrap();
    let found = zones.to_string();
    let names = ["EMPTY", "CLOSED", "READONLY", "OFFLINE", "FULL"];
    names.into_iter().find(|name| found.contains(&format!("\"{name}\""))).expect(&found).to_owned()
}

#[test]
fn zones_of_a_closed_image_are_set_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    program::run(dir, "create d --size 8M --zone-size 1M --zone-nr-conv 1").done();
    let said = program::run(dir, "zone d --zone 2-3 --set read-only").done();
    assert_eq!(String::from_utf8(said).unwrap(), "zones 2 to 3: read-only\n");
    assert_eq!([2, 3, 4].map(|zone| printed(dir, zone)), ["READONLY", "READONLY", "EMPTY"]);
    program::run(dir, "zone d --zone 2 --set offline").done();
    program::run(dir, "zone d --zone 3 --set restored").done();
    assert_eq!([2, 3].map(|zone| printed(dir, zone)), ["OFFLINE", "EMPTY"]);
    let error = program::run(dir, "zone d --zone 0 --set offline").refused(1);
    assert!(error.contains("d: zone 0 cannot be set to offline: zone is conventional"), "{error}");
}

#[test]
fn bad_blocks_of_a_closed_image_are_set_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let make = "create d --size 8M --zone-size 1M --badblocks 4096-4103 --badblocks 9 --zone-readonly 3-4 --zone-offline 5";
    program::run(dir, make).done();
    assert_eq!([2, 3, 4, 5].map(|zone| printed(dir, zone)), ["EMPTY", "READONLY", "READONLY", "OFFLINE"]);
    let said = |line: &str| String::from_utf8(program::run(dir, line).done()).unwrap();
    assert_eq!(said("zone d --badblocks"), "sectors 9 to 9: bad\nsectors 4096 to 4103: bad\n");
    assert_eq!(
        said("zone d --badblocks=-0-4099 --badblocks=+64-71"),
        "sectors 64 to 71: bad\nsectors 4100 to 4103: bad\n"
    );
    let job = "bench --device d --name=a --rw=write --zonemode=zbd --bs=4k --offset=2z --size=1z";
    let failed = program::run(dir, job);
    assert!(
        failed.code == Some(1) && failed.err.contains("sector 4096 failed: device: medium error"),
        "{failed:?}"
    );
    assert_eq!(said("zone d --badblocks=-0-9999"), "no bad blocks\n");
    said(&format!("{job} --zone_reset_threshold=1 --zone_reset_frequency=1 --verify=crc32c"));
    let error = program::run(dir, "zone d --badblocks=+0-16384").refused(1);
    assert!(error.ends_with("d: bad blocks +0-16384: range lies beyond the device's end"), "{error}");
    for line in
        ["zone d --badblocks=8", "zone d --badblocks --zone 3 --set offline", "zone d", "zone d --zone 3"]
    {
        program::run(dir, line).refused(2);
    }
}

#[test]
fn changes_of_a_drive_that_does_not_exist_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["ram:size=8M,zone_size=1M", "null:size=8M,zone_size=1M", "sim:zns-1t"] {
        for change in ["--badblocks=+1-2", "--zone 3 --set read-only", "--zone 3 --set offline"] {
            let said = program::run(dir.path(), &format!("zone {name} {change}")).refused(1);
            assert!(said.contains("no running process has it open"), "{name}: {said}");
        }
    }
}

/// Writes that fail only because of it complete first.
#[test]
fn job_names_the_bad_block_as_its_failure() {
    let dir = tempfile::tempdir().unwrap();
    let line = "bench --device ram:size=8M,zone_size=1M,badblocks=2068-2075,complete=poll --name=w --rw=write \
                --zonemode=zbd --bs=64k --size=2M --iodepth=8 --no-merge --write-mode per-zone";
    let said = program::run(dir.path(), line);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("at sector 2048 failed: device: medium error"), "{said:?}");
}

/// Without a flush.
#[test]
fn bad_blocks_of_a_running_image_survive_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    program::run(dir, "create d --size 8M --zone-size 1M").done();
    let served = Served::start(dir, "d");
    program::run(dir, "zone d --badblocks=+100-107").done();
    served.signal("-KILL");
    served.wait();
    let said = program::run(dir, "zone d --badblocks").done();
    assert_eq!(String::from_utf8(said).unwrap(), "sectors 100 to 107: bad\n");
}

#[test]
fn bad_blocks_reach_a_running_volume() {
    let dir = tempfile::tempdir().unwrap();
    let volume = Arc::new(volume_on(open("ram:size=8M,zone_size=1M,badblocks_once=1"), WriteMode::PerZone));
    let socket = dir.path().join("socket");
    let _server = ControlServer::start_at(&socket, volume.clone()).unwrap();
    let said = |change: &str| {
        let line = format!("zone --socket {} --badblocks{change}", socket.display());
        String::from_utf8(program::run(dir.path(), &line).done()).unwrap()
    };
    assert_eq!(said("=+8-15"), "sectors 8 to 15: bad\n");
    let write = || volume.call(&Clock::start(), Request::write(Sector(0), 16, IoBuf::zeroed(8192))).result;
    assert_eq!(write(), Err(DeviceError::Medium.into()));
    assert_eq!(said(""), "no bad blocks\n");
    assert!(write().is_ok());
}

#[test]
fn zone_set_by_the_program_reaches_a_running_volume() {
    let dir = tempfile::tempdir().unwrap();
    let volume = Arc::new(volume_on(open("ram:size=8M,zone_size=1M"), WriteMode::PerZone));
    let (clock, events) = (Clock::start(), volume.events());
    let socket = dir.path().join("socket");
    let _server = ControlServer::start_at(&socket, volume.clone()).unwrap();
    let set = |to| format!("zone --socket {} --zone 5 --set {to}", socket.display());
    for (to, condition) in [("offline", ZoneCondition::Offline), ("restored", ZoneCondition::Empty)] {
        program::run(dir.path(), &set(to)).done();
        assert_eq!(read(&volume, &clock, &events), [told(5, condition)]);
    }
    program::run(dir.path(), &set("full")).refused(2);
}
