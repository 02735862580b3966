//! Delivery of completions: recipient, context, and number at a time.

use super::*;
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use zonal_check::rig::tags;
use zonal_core::Nanos;
use zonal_io::device::Device;
use zonal_io::emulated::{Emulated, EmulatedOptions, Null};
use zonal_io::fault::{Effect, Fault, Ops, Plan, Rule};
use zonal_io::linear::Linear;
use zonal_io::trace::Trace;
use zonal_io::volume::{Channel, TURN_MAX, Volume};

/// A device that completes everything inline and keeps no data.
fn null() -> Arc<Volume> {
    let device = Arc::new(Emulated::new("null:", &EmulatedOptions::default(), Null).unwrap());
    Arc::new(
        Volume::open(
            device,
            VolumeOptions::default().with_mode(WriteMode::PerZone).with_merge(false).without_park(),
        )
        .unwrap(),
    )
}

/// Zones of 2048 sectors, all of them writable.
fn long_zones() -> DeviceInfo {
    let geometry = Geometry::new(Sectors(8 * 2048), Sectors(2048), Sectors(0), 1).unwrap();
    DeviceInfo { geometry, command_sectors_max: 2048, ..script::info() }
}

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Every context in which completion functions run: they may query the volume, submit and poll.
#[test]
fn h32_completion_functions_may_use_the_volume() {
    type Scene = fn(&Rig, &Channel);
    fn waiting(rig: &Rig, channel: &Channel) {
        rig.write(1, 0, 8);
        for n in 1..4 {
            rig.volume.submit(Nanos(0), channel, rig.write_request(1, 8 * n, 8));
        }
    }
    let scenes: [(&str, Scene); 6] = [
        ("a merged command ends", |rig, channel| {
            waiting(rig, channel);
            rig.settle();
        }),
        ("its predecessor is lost", |rig, channel| {
            waiting(rig, channel);
            rig.step(MEDIUM);
            rig.settle();
        }),
        ("the device does not say where the zone stands", |rig, channel| {
            waiting(rig, channel);
            rig.step(MEDIUM);
            rig.step(MEDIUM);
        }),
        ("the zone is reset", |rig, channel| {
            waiting(rig, channel);
            rig.reset(1);
        }),
        ("all zones are reset", |rig, channel| {
            waiting(rig, channel);
            rig.submit(Request::reset_all());
        }),
        ("the request is refused", |rig, channel| {
            for n in 1..4 {
                rig.volume.submit(Nanos(0), channel, rig.write_request(1, n, 8));
            }
        }),
    ];
    for (scene, play) in scenes {
        ends(move || {
            let rig = Rig::per_zone();
            let told = Arc::new(AtomicUsize::new(0));
            let (volume, start, counted) = (rig.volume.clone(), rig.sector(1, 0), told.clone());
            let other = Mutex::new(rig.volume.channel(|_| {}));
            let channel = rig.also(move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
                volume.plugs();
                volume.submit(Nanos(0), &other.lock(), Request::append(start, 1, payload(0, 1)));
                volume.resync(Nanos(0), ZoneIndex(1));
                volume.poll(Nanos(0));
            });
            play(&rig, &channel);
            rig.settle();
            assert_eq!(told.load(Ordering::Relaxed), 3, "{scene}");
            assert!(rig.volume.plugs().iter().all(|p| p.flags == 0), "{scene}");
        });
    }
}

/// A chain of writes, each submitted by the completion of the previous one, on a device that
/// completes inline.
#[test]
fn u01_chain_of_ends_does_not_nest() {
    const LEVELS: u64 = 100_000;
    let volume = null();
    let count = Arc::new(AtomicUsize::new(0));
    let depth = AtomicUsize::new(0);
    let own: Arc<Mutex<Option<Channel>>> = Arc::default();
    let (chain, counted) = ((Arc::downgrade(&volume), own.clone()), count.clone());
    let channel = volume.channel(move |c| {
        assert_eq!(depth.fetch_add(1, Ordering::Relaxed), 0, "an end inside an end");
        assert_eq!(c.result, DONE);
        let n = counted.fetch_add(1, Ordering::Relaxed) as u64 + 1;
        if n < LEVELS {
            let (volume, channel): (Arc<Volume>, _) = (chain.0.upgrade().unwrap(), chain.1.try_lock());
            // The lock is held during a submission, so no completion function may run inside of it.
            let channel = channel.expect("an end inside a submission");
            volume.submit(Nanos(0), channel.as_ref().unwrap(), Request::write(Sector(n), 1, payload(0, 1)));
        }
        depth.store(0, Ordering::Relaxed);
    });
    *own.lock() = Some(channel);
    let kick_off = volume.channel({
        let (volume, own): (Weak<Volume>, _) = (Arc::downgrade(&volume), own.clone());
        move |_| {
            let request = Request::write(Sector(0), 1, payload(0, 1));
            volume.upgrade().unwrap().submit(Nanos(0), own.lock().as_ref().unwrap(), request);
        }
    });
    volume.submit(Nanos(0), &kick_off, Request::flush());
    let mut polls = 0;
    while count.load(Ordering::Relaxed) < LEVELS as usize {
        volume.poll(Nanos(0));
        polls += 1;
    }
    assert!(polls >= LEVELS as usize / TURN_MAX - 1, "each call had its share: {polls}");
}

/// A thousand requests that complete together are delivered in portions, by the calling thread.
#[test]
fn u03_call_delivers_no_more_than_its_share() {
    const COUNT: u32 = 1000;
    type Scene = fn(&Rig);
    let scenes: [(&str, bool, Scene); 5] = [
        ("reset", false, |rig| {
            rig.reset(1);
        }),
        ("reset of all zones", false, |rig| {
            rig.submit(Request::reset_all());
        }),
        ("lost predecessor", false, |rig| {
            rig.script.finish(1, MEDIUM);
            rig.poll();
            rig.script.finish(2, Answer::Obey);
            rig.poll();
        }),
        ("no answer", false, |rig| {
            rig.script.finish(1, MEDIUM);
            rig.poll();
            rig.script.finish(2, MEDIUM);
            rig.poll();
        }),
        ("one merged command", true, |rig| {
            rig.script.finish(1, Answer::Obey);
            rig.poll();
            rig.script.finish(2, Answer::Obey);
            rig.poll();
        }),
    ];
    for (scene, merge, play) in scenes {
        let script = Arc::new(Script::new(long_zones()));
        let rig = Rig::on(
            script,
            VolumeOptions::default().with_mode(WriteMode::PerZone).with_merge(merge).without_park(),
        );
        rig.write(1, 0, 1);
        let told = Arc::new(AtomicUsize::new(0));
        let counted = told.clone();
        let channel = rig.also(move |_| count(&counted));
        for n in 1..=COUNT {
            rig.volume.submit(Nanos(0), &channel, rig.write_request(1, n, 1));
        }
        play(&rig);
        let mut seen = told.load(Ordering::Relaxed);
        assert!((1..=TURN_MAX).contains(&seen), "{scene}: {seen} in one call");
        while seen < COUNT as usize {
            let due = rig.poll();
            let now = told.load(Ordering::Relaxed);
            assert!(due == Some(Nanos(0)) || now == COUNT as usize, "{scene}: there is more to do");
            assert!((1..=TURN_MAX).contains(&(now - seen)), "{scene}: {} in one call", now - seen);
            seen = now;
        }
        rig.settle();
        assert_eq!(rig.ended() as u32, COUNT + 1 + u32::from(scene.starts_with("reset")));
    }
}

#[test]
fn u04_deferred_channel_is_called_only_from_polls() {
    let rig = Rig::per_zone();
    let told = Arc::new(Mutex::new(Vec::new()));
    let noted = told.clone();
    let deferred = rig.volume.deferred_channel(move |c| noted.lock().push(c.token));
    let submit = |token, request: Request| rig.volume.submit(Nanos(0), &deferred, request.token(token));
    let write = |offset| Request::write(rig.sector(1, offset), 8, payload(0, 8));
    rig.script.style(|_| Style::Now(Answer::Obey));
    submit(0, write(0));
    submit(1, write(40));
    rig.script.style(|_| Style::Later);
    submit(2, write(8));
    submit(3, write(16));
    rig.reset(1);
    assert!(told.lock().is_empty());
    rig.poll();
    assert_eq!(*told.lock(), [0, 1, 3]);
    rig.settle();
    assert_eq!(*told.lock(), [0, 1, 3, 2]);
}

/// Requests of a closed channel complete normally; then its function is dropped.
#[test]
fn u05_closed_channel_receives_outstanding_completions() {
    let rig = Rig::per_zone();
    let told = Arc::new(AtomicUsize::new(0));
    let counted = told.clone();
    let channel = rig.volume.channel(move |_| count(&counted));
    for n in 0..3 {
        rig.volume.submit(Nanos(0), &channel, rig.write_request(1, 8 * n, 8));
    }
    drop(channel);
    drop(rig.volume.channel(|_| {}));
    rig.settle();
    assert_eq!(told.load(Ordering::Relaxed), 3);
    assert_eq!(Arc::strong_count(&told), 2);
    drop(rig.volume.channel(|_| {}));
    assert_eq!(Arc::strong_count(&told), 1, "opening one gives up those that are over");
}

/// Dropping a volume drops its unfinished requests: no caller is notified, and buffers are freed. A
/// channel referenced by requests at the device is kept.
#[test]
fn u06_dropped_volume_calls_no_completion_and_frees_the_buffers() {
    let script = Arc::new(Script::new(script::info()));
    script.style(|_| Style::Now(Answer::Obey));
    let options = VolumeOptions::default().with_mode(WriteMode::PerZone).with_merge(true).without_park();
    let volume = Volume::open(script.clone(), options).unwrap();
    script.style(|_| Style::Later);
    let told = Arc::new(AtomicUsize::new(0));
    let counted = told.clone();
    let channel = volume.channel(move |_| count(&counted));
    let pool = zonal_io::buffer::BufferPool::new(4096, 16);
    let buf = || pool.take();
    let addresses: Vec<_> = (0..5)
        .map(|n| {
            let buf = buf();
            let address = buf.as_ptr() as usize;
            volume.submit(Nanos(0), &channel, Request::write(Sector(ZONE + 8 * n), 8, buf));
            address
        })
        .collect();
    let idle_told = Arc::new(());
    let held = idle_told.clone();
    let idle = volume.channel(move |_| drop(held.clone()));
    drop(volume);
    drop((channel, idle));
    assert_eq!((Arc::strong_count(&told), Arc::strong_count(&idle_told)), (2, 1));
    // Buffers of waiting requests are free; that of the request at the device is kept until the
    // device completes it.
    let mut free: Vec<_> = (0..4).map(|_| buf().as_ptr() as usize).collect();
    free.sort_unstable();
    assert!(free.iter().all(|a| *a != addresses[0]), "still at the device");
    for seen in script.pending() {
        script.finish(seen.id, Answer::Obey);
    }
    zonal_io::device::Device::poll(&*script, Nanos(0), 0, 64, &mut drop);
    assert_eq!(told.load(Ordering::Relaxed), 0);
    assert_eq!(script.zone(1).1, 8, "it was carried out");
}

/// Wrappers track the device's commands by numbers of their own. They are dropped with their
/// volume, while the device continues with the bytes of its command.
#[test]
fn u44_bytes_at_the_device_outlive_the_wrapper_that_sent_them() {
    type Wrap = fn(Arc<Script>) -> Arc<dyn Device>;
    // A rule that may still fire makes the wrapper track commands.
    let fault: Wrap = |script| {
        let fault = Fault::new(script, Plan::default());
        fault.inject(Rule::new(Effect::Busy).on(Ops::of(&[Op::Flush])));
        Arc::new(fault)
    };
    let trace: Wrap = |script| Arc::new(Trace::to_memory(script).0);
    let linear: Wrap = |script| Arc::new(Linear::range(script, 1..8).unwrap());
    for (name, wrap) in [("fault", fault), ("trace", trace), ("linear", linear)] {
        let script = Arc::new(Script::new(script::info()));
        script.style(|_| Style::Now(Answer::Obey));
        let mode = Some(WriteMode::Append);
        let volume = Volume::open(wrap(script.clone()), VolumeOptions::default().with_mode(mode)).unwrap();
        script.style(|_| Style::Later);
        let channel = volume.channel(|_| {});
        let pool = zonal_io::buffer::BufferPool::new(4096, 16);
        let buf = pool.take();
        let address = buf.as_ptr();
        volume.submit(Nanos(0), &channel, Request::append(Sector(ZONE), 8, buf));
        drop(volume);
        assert_eq!(script.pending().len(), 1, "{name}");
        assert_ne!(pool.take().as_ptr(), address, "{name}: the device may still read it");
        script.finish(script.pending()[0].id, Answer::Obey);
    }
}

/// A completion function panics during any work of a call. The caller gets the panic, and
/// everything else continues unaffected.
#[test]
fn u07_panic_of_a_completion_function_harms_nobody_else() {
    let rig = Rig::per_zone();
    let panics = rig.also(|c| panic!("told of {}", c.token));
    let panicking = |request: Request| {
        let token = request.token;
        rig.volume.submit(Nanos(0), &panics, request);
        token
    };
    // In the middle of a merged command, and of several commands reaped by one poll.
    let first = rig.write(1, 0, 4);
    let before = rig.write(1, 4, 4);
    let middle = panicking(rig.write_request(1, 8, 4));
    let after = rig.write(1, 12, 4);
    let other = rig.write(2, 0, 4);
    rig.step(Answer::Obey);
    for seen in rig.script.pending() {
        rig.script.finish(seen.id, Answer::Obey);
    }
    expect_panic(middle, || rig.rest());
    assert_eq!(rig.ends([first, before, after, other]), [DONE, DONE, DONE, DONE]);
    // While a reset aborts writes: the reset is issued all the same.
    let out = rig.write(1, 16, 4);
    let waiting = panicking(rig.write_request(1, 20, 4));
    let reset = rig.token();
    let request = Request::zone(Op::ZoneReset, rig.sector(1, 0)).token(reset);
    expect_panic(waiting, || {
        rig.submit_as_is(request);
    });
    rig.settle();
    assert_eq!(rig.ends([out, reset]), [DONE, DONE]);
    assert_eq!(rig.volume.plugs().iter().filter(|p| p.flags != 0).count(), 0);
}

fn expect_panic(token: u64, what: impl FnOnce()) {
    let panic = catch_unwind(AssertUnwindSafe(what)).expect_err("the panic comes out");
    assert_eq!(panic.downcast_ref::<String>(), Some(&format!("told of {token}")));
}

/// The panic of another channel's function passes through a submission: the submitter's channel is
/// not dropped while that request is outstanding.
#[test]
fn u07_panic_does_not_make_a_channel_lose_count() {
    struct Gone(Arc<AtomicBool>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let rig = Rig::per_zone();
    let gone = Arc::new(AtomicBool::new(false));
    let (flag, told) = (Gone(gone.clone()), Arc::new(AtomicUsize::new(0)));
    let counted = told.clone();
    let channel = rig.volume.channel(move |_| {
        let _alive = &flag;
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let panics = rig.volume.channel(|_| panic!("as it likes"));
    rig.write(1, 0, 8);
    rig.volume.submit(Nanos(0), &panics, rig.write_request(1, 8, 8));
    let reset = Request::zone(Op::ZoneReset, rig.sector(1, 0));
    let passed = catch_unwind(AssertUnwindSafe(|| rig.volume.submit(Nanos(0), &channel, reset)));
    assert!(passed.is_err());
    rig.step(Answer::Obey);
    rig.step(Answer::Obey);
    assert_eq!(told.load(Ordering::Relaxed), 1);
    rig.volume.submit(Nanos(0), &channel, rig.write_request(1, 0, 8));
    drop(channel);
    drop(rig.volume.channel(|_| {}));
    assert!(!gone.load(Ordering::Relaxed), "a request of it is at the device");
    rig.settle();
    assert_eq!(told.load(Ordering::Relaxed), 2);
}

#[test]
fn u11_channel_of_another_volume_is_refused() {
    let (one, other) = (null(), null());
    let told = Arc::new(Mutex::new(Vec::new()));
    let noted = told.clone();
    let channel = other.channel(move |c| noted.lock().push(c.result));
    one.submit(Nanos(0), &channel, Request::flush());
    assert_eq!(*told.lock(), [refused(RequestError::Invalid("the channel belongs to another volume"))]);
}

/// The buffer is returned as submitted, also by a request of several commands or across zones.
#[test]
fn buffers_are_returned_as_submitted() {
    let rig = Rig::new(whole_zones(), WriteMode::PerZone);
    let across = rig.write_request(1, 0, ZONE as u32 + 8);
    let (token, address) = (across.token, across.buf.pieces()[0].as_ptr());
    rig.submit_as_is(across);
    rig.settle();
    let buf = rig.buf(token);
    assert_eq!((buf.as_ptr(), buf.len()), (address, (ZONE as usize + 8) * 512));
    assert_eq!(tags(&buf)[ZONE as usize], (token, ZONE));
}
