//! Waiting requests make progress, and waiting threads are woken when there is work.

use super::*;
use std::time::{Duration, Instant};
use zonal_core::Nanos;
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Null};
use zonal_io::volume::Volume;

fn volume(options: &EmulatedOptions, mode: WriteMode) -> Arc<Volume> {
    let device = Arc::new(Emulated::new("null:", options, Null).unwrap());
    Arc::new(Volume::open(device, VolumeOptions::default().with_mode(mode).with_merge(false)).unwrap())
}

/// A thread sleeps for completions while another thread submits.
#[test]
fn h41_sleeper_wakes_when_a_completion_can_be_had() {
    let volume = volume(&EmulatedOptions::default().with_complete(CompleteMode::Poll), WriteMode::PerZone);
    let (sender, ends) = std::sync::mpsc::channel();
    let channel = volume.channel(move |c| sender.send(c.result).unwrap());
    assert_eq!(volume.poll(Nanos(0)), None);
    let long = Duration::from_secs(20);
    let sleeper = std::thread::spawn({
        let volume = volume.clone();
        move || {
            let since = Instant::now();
            loop {
                let due = volume.poll(Nanos(0));
                if ends.try_recv().is_ok() || since.elapsed() > long {
                    break;
                }
                if due.is_none() {
                    volume.wait(long);
                }
            }
            since.elapsed()
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    volume.submit(Nanos(0), &channel, Request::write(Sector(0), 8, payload(0, 8)));
    let slept = sleeper.join().unwrap();
    assert!(slept < long / 2, "slept for {slept:?}");
}

/// Thread A submits and never returns. Thread B only polls, and sees all of it complete, whether it
/// met a full queue, waited in a plug, or was left over when a work budget ran out.
#[test]
fn u02_thread_that_walks_away_leaves_nothing_undone() {
    const COUNT: u32 = 300;
    let mut info = script::info();
    info.geometry = Geometry::new(Sectors(8 * 512), Sectors(512), Sectors(0), 1).unwrap();
    let rig = unmerged(info, WriteMode::PerZone);
    rig.script.style(|_| Style::Busy);
    let (volume, channel) = (rig.volume.clone(), rig.also(|_| {}));
    let requests: Vec<_> = (0..COUNT).map(|n| rig.write_request(1, n, 1)).collect();
    let submit = move || requests.into_iter().for_each(|r| volume.submit(Nanos(0), &channel, r));
    std::thread::spawn(submit).join().unwrap();
    assert_eq!(rig.ended(), 0);
    rig.script.style(|_| Style::Now(Answer::Obey));
    rig.rest();
    assert_eq!((rig.ended(), rig.pointer(1)), (COUNT as usize, Some(COUNT)));
}

/// Appends that complete inline, one after the other.
#[test]
fn u08_appends_that_end_at_once_need_no_more_room_the_more_they_are() {
    for (volatile_cache, fua) in [(false, false), (true, false), (true, true)] {
        let rig = Rig::new(DeviceInfo { volatile_cache, fua, ..script::info() }, WriteMode::Append);
        let first = rig.write(1, 0, 8);
        let append = |_| rig.submit(Request::append(rig.sector(1, 0), 1, payload(9, 1)).fua());
        let appends: [u64; 40] = std::array::from_fn(append);
        rig.script.style(|_| Style::Now(Answer::Obey));
        rig.finish(0, Answer::Obey);
        assert_eq!(rig.ends([first]), [DONE]);
        for (n, end) in rig.ends(appends).into_iter().enumerate() {
            assert_eq!(end, appended(&rig, 1, 8 + n as u32));
        }
        assert_eq!(rig.plug(1), None);
    }
}

/// A device that accepts one command at a time, a zone that always has the next one ready, and a
/// zone with a single write.
#[test]
fn u09_full_queue_serves_zones_in_arrival_order() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        rig.script.depth(1);
        for _ in 0..3 {
            rig.append(1, 1);
        }
        let patient = rig.write(2, 0, 8);
        let mut steps = 0;
        while rig.end(patient).is_none() {
            steps += 1;
            assert!(steps < 8, "{steps} commands of the other zone went first");
            rig.step(Answer::Obey);
            rig.append(1, 1);
        }
        let waiting = rig.submit_as_is(rig.write_request(3, 0, 8).nowait());
        assert_eq!(rig.end(waiting), Some(Err(RequestError::WouldWait)), "others wait for the queue");
        rig.settle();
    }
}

/// Commands that met a full queue are issued as soon as there is room, in the poll that made it.
#[test]
fn u09_room_is_used_by_the_poll_that_makes_it() {
    let rig = Rig::per_zone();
    rig.script.depth(2);
    let writes: [u64; 6] = std::array::from_fn(|z| rig.write(z as u32 + 1, 0, 8));
    for _ in 0..6 {
        let id = rig.script.pending()[0].id;
        rig.script.finish(id, Answer::Obey);
        rig.poll();
        let left = writes.iter().filter(|&&w| rig.end(w).is_none()).count();
        assert_eq!(rig.script.pending().len(), left.min(2));
    }
    assert_eq!(rig.ends(writes), [DONE; 6]);
}

/// Driven only by the times that polls return, as in a simulation.
#[test]
fn u10_polls_say_when_the_commands_that_they_issue_are_due() {
    for hw_queue_depth in [1, 64] {
        for mode in PLUGGED {
            let options =
                EmulatedOptions::default().with_completion_nsec(1000).with_hw_queue_depth(hw_queue_depth);
            let volume = volume(&options, mode);
            let zone = options.zone_size / 512;
            let ends = Arc::new(parking_lot::Mutex::new(Vec::new()));
            let noted = ends.clone();
            let channel = volume.channel(move |c| noted.lock().push(c.result));
            for n in 0..4 {
                let write = Request::write(Sector(n * 8), 8, payload(0, 8));
                volume.submit(Nanos(0), &channel, write);
                let other = Request::write(Sector(zone + n * 8), 8, payload(0, 8));
                volume.submit(Nanos(0), &channel, other);
            }
            let mut now = Nanos(0);
            while let Some(due) = volume.poll(now) {
                assert!(due >= now);
                now = due;
            }
            assert_eq!(*ends.lock(), [DONE; 8], "depth {hw_queue_depth} {mode}");
            assert_eq!(now.0, if hw_queue_depth == 1 { 8000 } else { 4000 });
        }
    }
}
