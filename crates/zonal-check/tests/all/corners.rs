//! Corner cases of the write path that need an unlucky order of events.

use std::sync::Arc;
use zonal_check::rig::{DONE, Rig};
use zonal_check::script::{Answer, Script, Style, info, reported};
use zonal_core::{Nanos, Op, RequestError, Sector, Sectors, ZoneCondition, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::device::{Device, Output};
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Null};
use zonal_io::sync::Mutex;
use zonal_io::volume::{Channel, Part, Request, Volume, VolumeOptions, WriteMode};

/// A device with a single queue that holds `depth` commands, completed when polled.
fn narrow(depth: u32) -> Arc<dyn Device> {
    let options = EmulatedOptions::default()
        .with_size(16 << 20)
        .with_zone_size(1 << 20)
        .with_complete(CompleteMode::Poll)
        .with_hw_queue_depth(depth);
    Arc::new(Emulated::new("narrow", &options, Null).unwrap())
}

fn volume(device: Arc<dyn Device>) -> Arc<Volume> {
    Arc::new(
        Volume::open(device, VolumeOptions::default().with_mode(WriteMode::PerZone).with_merge(true))
            .unwrap(),
    )
}

#[test]
fn appends_that_complete_at_once_behind_a_write_do_not_fill_the_stack() {
    let rig = Rig::append_mode();
    let write = rig.write(1, 0, 1);
    let appends: Vec<u64> = (0..20).map(|_| rig.append(1, 1)).collect();
    rig.script.style(|_| Style::Now(Answer::Obey));
    rig.step(Answer::Obey);
    assert_eq!(rig.end(write), Some(DONE));
    for (n, &append) in (1..).zip(&appends) {
        assert_eq!(rig.end(append), Some(Ok(Output::Appended(rig.sector(1, n)))));
    }
}

#[test]
fn poll_requests_another_poll_after_freeing_room_for_rejected_commands() {
    let volume = volume(narrow(1));
    let ended = Arc::new(Mutex::new(0));
    let count = ended.clone();
    let channel = volume.channel(move |c| {
        c.result.unwrap();
        *count.lock() += 1;
    });
    for zone in 0..4 {
        let buf = IoBuf::zeroed(512);
        volume.submit(Nanos(0), &channel, Request::write(Sector(zone * 2048), 1, buf));
    }
    // There is no other thread to ring: as long as there is work, a poll has to say so.
    for _ in 0..100 {
        if volume.poll(Nanos(0)).is_none() {
            break;
        }
    }
    assert_eq!(*ended.lock(), 4);
}

#[test]
fn a_turned_away_command_is_not_passed_for_ever() {
    let volume = volume(narrow(1));
    let ends = Arc::new(Mutex::new([0u32; 2]));
    let channel: Arc<Mutex<Option<Channel>>> = Arc::default();
    let (v, count, own) = (Arc::downgrade(&volume), ends.clone(), channel.clone());
    // The completion function of each request submits the next one of its zone.
    let submit = move |volume: &Volume, own: &Mutex<Option<Channel>>, zone: u64, n: u64| {
        let buf = IoBuf::zeroed(512);
        let at = Sector(zone * 2048 + n);
        volume.submit(Nanos(0), own.lock().as_ref().unwrap(), Request::write(at, 1, buf).token(zone));
    };
    let again = submit;
    *channel.lock() = Some(volume.channel(move |c| {
        c.result.unwrap();
        let n = {
            let mut ends = count.lock();
            ends[c.token as usize] += 1;
            ends[c.token as usize]
        };
        again(&v.upgrade().unwrap(), &own, c.token, n.into());
    }));
    submit(&volume, &channel, 0, 0);
    submit(&volume, &channel, 1, 0);
    for _ in 0..200 {
        volume.poll(Nanos(0));
    }
    let [first, second] = *ends.lock();
    *channel.lock() = None;
    assert!(first.abs_diff(second) <= 2, "one zone's writes went {first} times, the other's {second}");
}

#[test]
fn a_zone_found_read_only_while_all_are_reset_is_released() {
    let rig = Rig::per_zone();
    rig.volume.resync(Nanos(0), ZoneIndex(3));
    let all = rig.submit(Request::reset_all());
    rig.script.set_zone(3, ZoneCondition::ReadOnly, 5);
    rig.finish(0, Answer::Obey);
    rig.settle();
    assert_eq!(rig.end(all), Some(DONE));
    // Every request to the zone completes.
    let write = rig.write(3, 0, 1);
    let reset = rig.reset(3);
    rig.settle();
    let all = rig.submit(Request::reset_all());
    rig.settle();
    assert!(rig.end(write).unwrap().is_err());
    assert!(rig.end(reset).unwrap().is_err());
    assert_eq!(rig.end(all), Some(DONE));
}

#[test]
fn a_zone_found_writable_while_all_are_reset_is_left_alone() {
    let script = Arc::new(Script::new(info()));
    script.set_zone(3, ZoneCondition::ReadOnly, 5);
    let rig = Rig::on(script, VolumeOptions::default().with_mode(WriteMode::PerZone).with_merge(true));
    rig.volume.resync(Nanos(0), ZoneIndex(3));
    let busy = rig.write(1, 0, 1);
    let all = rig.submit(Request::reset_all());
    let mut descriptor = rig.script.describe(3);
    descriptor.condition = ZoneCondition::Closed;
    descriptor.write_pointer = Some(descriptor.start + Sectors(5));
    rig.script.set_zone(3, ZoneCondition::Closed, 5);
    rig.finish(0, reported(descriptor));
    rig.settle();
    assert_eq!(rig.ends([busy, all]), [DONE, DONE]);
    let write = rig.write(4, 0, 1);
    rig.settle();
    assert_eq!(rig.end(write), Some(DONE));
}

#[test]
fn waiting_finish_precedes_a_later_reset_all() {
    let rig = Rig::per_zone();
    let write = rig.write(2, 0, 1);
    let finish = rig.manage(Op::ZoneFinish, 2);
    let all = rig.submit(Request::reset_all());
    let after = rig.write(2, 0, 4);
    rig.settle();
    assert_eq!(rig.ends([write, finish, all, after]), [DONE, DONE, DONE, DONE]);
    assert_eq!(rig.pointer(2), Some(4));
}

/// The reset arrives while the zones are being quiesced for a mode switch, or for another reset.
#[test]
fn reset_of_all_does_not_erase_a_later_write() {
    for is_switch in [true, false] {
        for mode in [WriteMode::PerZone, WriteMode::Append, WriteMode::Qd1, WriteMode::ZoneLock] {
            // The scheduler of mode `zone-lock` exists for the lifetime of the volume.
            if is_switch && mode == WriteMode::ZoneLock {
                continue;
            }
            let rig = Rig::new(info(), mode);
            let first = rig.write(3, 0, 8);
            rig.settle();
            let busy = rig.write(2, 0, 1);
            let before = match is_switch {
                true => {
                    rig.volume.switch_mode(rig.now(), WriteMode::PerZone).unwrap();
                    rig.submit(Request::report(Sector(0), 1))
                }
                false => rig.submit(Request::reset_all()),
            };
            let all = rig.submit(Request::reset_all());
            let after = rig.write(3, 0, 4);
            rig.settle();
            let of = format!("{mode}, behind a switch: {is_switch}");
            assert_eq!(rig.ends([first, busy, all, after]), [DONE, DONE, DONE, DONE], "{of}");
            assert!(rig.end(before).is_some_and(|end| end.is_ok()), "{of}");
            assert_eq!(rig.pointer(3), Some(4), "{of}");
            assert_eq!(rig.pointer(2), Some(0), "{of}");
        }
    }
}

/// A caller is notified of an abort before `submit` of the reset has returned, and appends to a
/// zone that the reset has not reached.
#[test]
fn reset_all_keeps_writes_submitted_from_abort_completions() {
    for is_part in [false, true] {
        for mode in [WriteMode::PerZone, WriteMode::Append, WriteMode::Qd1, WriteMode::ZoneLock] {
            let rig = Rig::new(info(), mode);
            let first = rig.write(3, 0, 8);
            rig.settle();
            let appended = rig.append_request(3, 4);
            let token = appended.token;
            let (next, volume) = (Mutex::new(Some((appended, rig.also(|_| ())))), rig.volume.clone());
            let hears = rig.also(move |c| {
                if c.result.is_err()
                    && let Some((next, end)) = next.lock().take()
                {
                    volume.submit(Nanos(0), &end, next);
                }
            });
            let busy = rig.write(2, 0, 1);
            let waits = rig.write_request(2, 1, 1);
            let waiting = waits.token;
            rig.volume.submit(rig.now(), &hears, waits);
            let part = Part::new(rig.volume.clone(), 2..4).unwrap();
            let reset = rig.token();
            let channel = if is_part { part.channel(|_| ()) } else { rig.also(|_| ()) };
            rig.volume.submit(rig.now(), &channel, Request::reset_all().token(reset));
            rig.settle();
            let of = format!("{mode}, of a part: {is_part}");
            assert_eq!(rig.ends([first, busy]), [DONE, DONE], "{of}");
            assert_eq!(rig.end(waiting), Some(Err(RequestError::Aborted { zone: ZoneIndex(2) })), "{of}");
            assert_eq!(rig.end(token), Some(Ok(Output::Appended(rig.sector(3, 0)))), "{of}");
            rig.assert_written(3, 0, 4, token);
        }
    }
}

#[test]
fn a_request_that_outlives_its_volume_does_not_touch_its_channel() {
    let device = narrow(8);
    let first = volume(device.clone());
    let alive = Arc::new(());
    let held = alive.clone();
    let channel = first.channel(move |c| drop((c, held.clone())));
    first.submit(Nanos(0), &channel, Request::read(Sector(0), 1, IoBuf::zeroed(512)));
    drop(channel);
    drop(first);
    assert_eq!(Arc::strong_count(&alive), 2, "the channel is still there");
    // The completion is delivered to the next volume.
    volume(device).poll(Nanos(0));
}

#[test]
fn a_channel_of_another_volume_is_refused() {
    let (one, other) = (volume(narrow(8)), volume(narrow(8)));
    let results = Arc::new(Mutex::new(Vec::new()));
    let noted = results.clone();
    let channel = one.channel(move |c| noted.lock().push(c.result));
    other.submit(Nanos(0), &channel, Request::write(Sector(0), 1, IoBuf::zeroed(512)));
    drop(channel);
    drop(one);
    other.poll(Nanos(0));
    let results = results.lock();
    assert!(matches!(results[..], [Err(zonal_core::RequestError::Invalid(_))]), "{results:?}");
}

#[test]
fn management_waits_for_a_full_queue_whatever_it_asked_for_and_gives_its_zones_back() {
    let rig = Rig::per_zone();
    rig.script.style(|_| Style::Busy);
    let reset = rig.submit(Request::zone(Op::ZoneReset, rig.sector(2, 0)).nowait());
    let all = rig.submit(Request::reset_all().nowait());
    rig.script.style(|_| Style::Later);
    rig.settle();
    assert_eq!(rig.ends([reset, all]), [DONE, DONE]);
    let writes = [2, 3].map(|zone| rig.write(zone, 0, 1));
    rig.settle();
    assert_eq!(rig.ends(writes), [DONE, DONE]);
}
