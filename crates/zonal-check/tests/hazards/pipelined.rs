//! A window of writes per zone at the device, on one queue that preserves order, and recovery if it
//! does not.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex, Weak};
use zonal_core::Nanos;
use zonal_io::device::{Command, Context, Device, Submitted, Wrapper};
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Null};
use zonal_io::volume::{Channel, OpenError, SwitchError, Volume};

const ATTENTION: Answer = Answer::Refuse(DeviceError::UnitAttention);

fn ordered() -> DeviceInfo {
    DeviceInfo { keeps_order: true, ..script::info() }
}

fn options(window: u32) -> VolumeOptions {
    VolumeOptions::default()
        .with_mode(WriteMode::Pipelined)
        .with_merge(false)
        .with_window(window)
        .without_park()
}

fn pipelined(window: u32) -> Rig {
    Rig::on(Arc::new(Script::new(ordered())), options(window))
}

/// Offsets of the writes of zone 1 that are at the device.
fn out(rig: &Rig) -> Vec<u32> {
    let pending = rig.script.pending().into_iter();
    pending.filter(|s| s.zone.0 == 1 && s.op == Op::Write).map(|s| s.offset).collect()
}

/// Offsets of all writes issued to zone 1, in order.
fn places(rig: &Rig) -> Vec<u32> {
    rig.asked().into_iter().filter(|c| c.0 == Op::Write && c.1 == 1).map(|c| c.2).collect()
}

/// Submits `count` contiguous writes of four sectors.
fn fill(rig: &Rig, count: u32) -> Vec<u64> {
    (0..count).map(|n| rig.write(1, n * 4, 4)).collect()
}

/// Asserts that each of these writes of four sectors succeeded and is at its position.
fn assert_all_there(rig: &Rig, tokens: &[u64]) {
    for (&token, n) in tokens.iter().zip(0..) {
        assert_eq!(rig.end(token), Some(DONE), "write {n}");
        rig.assert_written(1, n * 4, 4, token);
    }
    assert_eq!(rig.script.zone(1).1, tokens.len() as u32 * 4);
    assert_eq!(rig.plug(1).map_or(0, |p| p.flags), 0, "nothing is left of it");
}

#[test]
fn s3_writes_of_a_zone_are_at_the_device_together_up_to_the_window() {
    let rig = pipelined(4);
    let tokens = fill(&rig, 6);
    assert_eq!(out(&rig), [0, 4, 8, 12]);
    rig.step(Answer::Obey);
    assert_eq!(out(&rig), [4, 8, 12, 16], "an end makes room for one");
    rig.settle();
    assert_all_there(&rig, &tokens);
    assert_eq!((places(&rig), rig.resyncs()), (vec![0, 4, 8, 12, 16, 20], 0));
}

#[test]
fn s3_appends_join_writes_and_end_with_their_places() {
    let rig = pipelined(4);
    let write = rig.write(1, 0, 4);
    let appends = [rig.append(1, 4), rig.append(1, 4)];
    let behind = rig.write(1, 12, 4);
    assert_eq!(out(&rig), [0, 4, 8, 12]);
    rig.settle();
    assert_eq!(rig.ends([write, behind]), [DONE; 2]);
    assert_eq!(rig.ends(appends), [appended(&rig, 1, 4), appended(&rig, 1, 8)]);
}

#[test]
fn s3_zones_have_a_window_each() {
    let rig = pipelined(2);
    let tokens = [(1, 0), (2, 0), (1, 4), (2, 4), (1, 8), (2, 8)].map(|(z, at)| rig.write(z, at, 4));
    assert_eq!(rig.script.pending().len(), 4);
    rig.settle();
    assert_eq!(rig.ends(tokens), [DONE; 6]);
}

#[test]
fn s3_waiting_writes_merge_when_the_window_is_full() {
    let merging = options(2).with_merge(true);
    let rig = Rig::on(Arc::new(Script::new(ordered())), merging);
    let tokens = fill(&rig, 6);
    assert_eq!(out(&rig), [0, 4]);
    rig.step(Answer::Obey);
    let merged = rig.script.pending()[1].brief();
    assert_eq!(merged, (Op::Write, 1, 8, 16), "the four that waited");
    rig.settle();
    assert_all_there(&rig, &tokens);
}

/// All writes of a zone use one of the device's queues, whichever thread submits; different zones
/// use different ones.
#[test]
fn h48_writes_of_a_zone_use_one_queue_whichever_thread_submits() {
    let script = Arc::new(Script::new(DeviceInfo { queues: 3, ..ordered() }));
    let rig = Rig::on(script, options(8));
    // Violations are checked below, where no thread waits for one that has panicked.
    rig.script.allow_together();
    // The threads are alive together, so that each would have a queue of its own in other modes,
    // and submit in turn.
    let (turn, end) = (Arc::new(AtomicU32::new(0)), Arc::new(Barrier::new(6)));
    let submitters = [0, 1, 2, 3, 4, 5].map(|n| {
        let requests = [1, 2].map(|zone| rig.write_request(zone, n * 4, 4));
        let (volume, channel) = (rig.volume.clone(), rig.also(|_| {}));
        let (turn, end) = (turn.clone(), end.clone());
        std::thread::spawn(move || {
            while turn.load(Ordering::Acquire) != n {
                std::thread::yield_now();
            }
            requests.into_iter().for_each(|r| volume.submit(Nanos(0), &channel, r));
            turn.store(n + 1, Ordering::Release);
            end.wait();
        })
    });
    submitters.into_iter().for_each(|s| s.join().unwrap());
    assert_eq!(rig.script.pending().len(), 12);
    let queues = |zone| {
        let seen = rig.script.log().into_iter().filter(|s| s.op == Op::Write && s.zone.0 == zone);
        seen.map(|s| s.queue).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!((queues(1).len(), queues(2).len()), (1, 1), "one queue a zone");
    assert_ne!(queues(1), queues(2), "and not one for all");
    rig.settle();
    assert_eq!(rig.resyncs(), 0);
}

/// A device that lets another thread submit the next write before accepting the first.
pub(super) struct Overtaking {
    pub(super) inner: Arc<Script>,
    pub(super) other: Mutex<Option<Other>>,
}

/// A write to be submitted at the right moment.
pub(super) struct Other {
    pub(super) volume: Weak<Volume>,
    pub(super) channel: Channel,
    pub(super) request: Request,
}

impl Overtaking {
    fn overtake(&self, command: &Command) {
        if !command.op.is_write() {
            return;
        }
        let Some(Other { volume, channel, request }) = self.other.lock().unwrap().take() else { return };
        let volume = volume.upgrade().unwrap();
        let submitter = std::thread::spawn(move || volume.submit(Nanos(0), &channel, request));
        submitter.join().unwrap();
    }
}

impl Wrapper for Overtaking {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn submit(&self, now: Nanos, queue: usize, command: &Command, c: &mut Option<Context>) -> Submitted {
        self.overtake(command);
        self.inner.submit(now, queue, command, c)
    }
}

#[test]
fn h48_write_admitted_later_does_not_overtake_one_on_its_way_to_the_device() {
    let script = Arc::new(Script::new(ordered()));
    let device = Arc::new(Overtaking { inner: script.clone(), other: Mutex::new(None) });
    let rig = Rig::over(script, device.clone(), options(8), |volume| volume);
    let (volume, channel) = (Arc::downgrade(&rig.volume), rig.also(|_| {}));
    let request = rig.write_request(1, 4, 4);
    *device.other.lock().unwrap() = Some(Other { volume, channel, request });
    let first = rig.write(1, 0, 4);
    assert_eq!(out(&rig), [0, 4], "the second went out when the first had arrived");
    rig.settle();
    assert_eq!((rig.end(first), rig.resyncs(), rig.script.zone(1).1), (Some(DONE), 0, 8));
}

/// Nothing is reissued, so nothing was ever out of order.
#[test]
fn h48_appends_of_many_threads_reach_a_zone_in_the_order_of_their_places() {
    const EACH: usize = 1000;
    let device = EmulatedOptions::default()
        .with_size(16 << 20)
        .with_zone_size(4 << 20)
        .with_complete(CompleteMode::Poll)
        .with_preserves_write_order(true)
        .with_submit_queues(3)
        .with_hw_queue_depth(4)
        .with_blocksize(512);
    let device = Arc::new(Emulated::new("ordered", &device, Null).unwrap());
    let volume = Volume::open(device, options(16)).unwrap();
    for _ in 0..2 {
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| appends(&volume, EACH));
            }
        });
    }
    let statistics = volume.statistics();
    assert_eq!((statistics.resyncs, statistics.failed), (0, 0));
    assert!(statistics.busy > 0, "full queues were met");
}

/// Appends to zone 1, eight at a time, until `count` have succeeded.
fn appends(volume: &Volume, count: usize) {
    let (sender, ends) = std::sync::mpsc::channel();
    let channel = volume.channel(move |c| sender.send(c.result).unwrap());
    let start = volume.info().geometry.start_of(ZoneIndex(1));
    let (mut sent, mut ended) = (0, 0);
    while ended < count {
        while sent < count && sent - ended < 8 {
            volume.submit(Nanos(0), &channel, Request::append(start, 1, payload(0, 1)));
            sent += 1;
        }
        volume.poll(Nanos(0));
        for end in ends.try_iter() {
            end.unwrap();
            ended += 1;
        }
    }
}

#[test]
fn h50_unit_attention_on_the_first_of_a_window_costs_none_of_them() {
    let rig = pipelined(12);
    let tokens = fill(&rig, 12);
    rig.step(ATTENTION);
    for _ in 1..12 {
        assert_eq!(rig.script.log().iter().filter(|s| s.resync).count(), 0, "not before all have ended");
        rig.step(Answer::Obey);
    }
    rig.settle();
    assert_all_there(&rig, &tokens);
    assert_eq!(rig.resyncs(), 1);
}

#[test]
fn h47_failed_window_is_reissued_in_address_order_before_waiting_writes() {
    let rig = pipelined(4);
    let mut tokens = fill(&rig, 6);
    // Their failures arrive in a different order than they were issued.
    rig.step(ATTENTION);
    for place in [2, 1, 0] {
        rig.finish(place, Answer::Obey);
    }
    tokens.push(rig.write(1, 24, 4));
    rig.settle();
    assert_eq!(places(&rig)[4..], [0, 4, 8, 12, 16, 20, 24]);
    assert_all_there(&rig, &tokens);
}

#[test]
fn h50_all_writes_succeed_on_a_device_that_reverses_every_window() {
    for promises in [true, false] {
        let script = Arc::new(Script::new(DeviceInfo { keeps_order: promises, ..ordered() }));
        let rig = Rig::on(script, options(6).with_force(true));
        rig.script.allow_together();
        let tokens = fill(&rig, 12);
        while let Some(last) = rig.script.pending().len().checked_sub(1) {
            rig.finish(last, Answer::Obey);
        }
        assert_all_there(&rig, &tokens);
    }
}

/// Each write fails three times when it is the first, and is misplaced in all earlier rounds.
#[test]
fn h49_round_counts_for_the_write_that_failed_by_itself_only() {
    let rig = pipelined(8);
    let tokens = fill(&rig, 8);
    let mut tries = [0; 8];
    while let Some(next) = rig.script.pending().first().cloned() {
        let (_, pointer) = rig.script.zone(1);
        let tried = &mut tries[next.offset as usize / 4 % 8];
        let unlucky = next.op == Op::Write && next.offset == pointer && *tried < 3;
        *tried += u32::from(unlucky);
        rig.step(if unlucky { ATTENTION } else { Answer::Obey });
    }
    assert_eq!(tries, [3; 8]);
    assert_all_there(&rig, &tokens);
    assert_eq!(rig.resyncs(), 24, "one count a round, and a round for each");
}

#[test]
fn h49_write_that_is_refused_for_ever_ends_and_the_zone_serves_again() {
    let rig = pipelined(4);
    let before = rig.write(1, 0, 4);
    rig.settle();
    let tokens = [4, 8, 12].map(|at| rig.write(1, at, 4));
    let mut tries = 0;
    while let Some(next) = rig.script.pending().first().cloned() {
        let refuse = next.op == Op::Write && next.offset == 4;
        tries += u32::from(refuse);
        rig.step(if refuse { ATTENTION } else { Answer::Obey });
    }
    let gave_up =
        RequestError::GaveUp { zone: ZoneIndex(1), offset: 4, rounds: 3, error: DeviceError::UnitAttention };
    assert_eq!((tries, rig.resyncs()), (4, 4), "the first try and three rounds");
    assert_eq!(rig.ends(tokens), [refused(gave_up), lost(1, 4, 8), lost(1, 4, 12)]);
    let again = [4, 8].map(|at| rig.write(1, at, 4));
    assert_eq!(out(&rig), [4, 8]);
    rig.settle();
    assert_all_there(&rig, &[before, again[0], again[1]]);
}

#[test]
fn medium_error_inside_a_window_costs_it_and_the_writes_behind_but_no_append() {
    let rig = pipelined(8);
    let tokens = [0, 4, 8].map(|at| rig.write(1, at, 4));
    let append = rig.append(1, 4);
    rig.step(Answer::Obey);
    rig.step(MEDIUM);
    rig.settle();
    assert_eq!(rig.ends(tokens), [DONE, failed(DeviceError::Medium), lost(1, 4, 8)]);
    assert_eq!(rig.end(append), Some(appended(&rig, 1, 4)));
}

/// The first one was executed but timed out: the part below the write pointer is read back.
#[test]
fn write_of_a_window_without_an_answer_is_read_back_when_the_pointer_has_passed_it() {
    let rig = pipelined(4);
    let tokens = fill(&rig, 4);
    rig.step(Answer::Torn(4, DeviceError::Aborted));
    rig.settle();
    assert_all_there(&rig, &tokens);
    assert_eq!(rig.volume.statistics().verified, 1);
}

#[test]
fn timed_out_write_of_a_window_is_settled_before_the_others_go_again() {
    let rig = pipelined(4);
    let tokens = fill(&rig, 4);
    rig.step(Answer::Late);
    for _ in 1..4 {
        assert_eq!(rig.script.settles(), 0);
        rig.step(Answer::Obey);
    }
    rig.settle();
    assert_eq!(rig.script.settles(), 1);
    assert_all_there(&rig, &tokens);
}

#[test]
fn s3_nowait_joins_a_window_and_fails_when_it_is_full() {
    let rig = pipelined(2);
    let nowait = |at| rig.submit_as_is(rig.write_request(1, at, 4).nowait());
    let tokens = [nowait(0), nowait(4), nowait(8)];
    assert_eq!(out(&rig), [0, 4]);
    assert_eq!(rig.end(tokens[2]), Some(refused(RequestError::WouldWait)));
    rig.step(Answer::Obey);
    let later = nowait(8);
    rig.settle();
    assert_all_there(&rig, &[tokens[0], tokens[1], later]);
}

#[test]
fn h17_nowait_write_of_a_window_that_meets_a_full_queue_leaves_its_place_to_the_next() {
    let rig = pipelined(8);
    rig.script.depth(2);
    let tokens = [0, 4].map(|at| rig.write(1, at, 4));
    let refused_one = rig.submit_as_is(rig.write_request(1, 8, 4).nowait());
    assert_eq!(rig.end(refused_one), Some(refused(RequestError::WouldWait)));
    let waits = rig.write(1, 8, 4);
    rig.settle();
    assert_all_there(&rig, &[tokens[0], tokens[1], waits]);
    assert_eq!(rig.resyncs(), 0);
}

#[test]
fn h26_window_larger_than_the_queue_stalls_one_write_and_keeps_the_order() {
    for (queues, depth) in [(1, 3), (2, 3), (1, 1)] {
        let rig = Rig::on(Arc::new(Script::new(DeviceInfo { queues, ..ordered() })), options(8));
        rig.script.depth(depth);
        let tokens = fill(&rig, 8);
        assert_eq!(out(&rig).len(), depth);
        assert_eq!(rig.plug(1).unwrap().pending, 8 - depth as u32 - 1, "one is on its way, the rest wait");
        rig.settle();
        assert_all_there(&rig, &tokens);
        assert_eq!((places(&rig), rig.resyncs()), ((0..8).map(|n| n * 4).collect(), 0));
    }
}

#[test]
fn write_of_several_commands_is_issued_alone() {
    let rig = pipelined(8);
    let short = rig.write(1, 0, 4);
    let long = rig.write(1, 4, 24);
    let behind = [rig.write(1, 28, 4), rig.write(1, 32, 4)];
    assert_eq!(out(&rig), [0]);
    rig.step(Answer::Obey);
    assert_eq!(out(&rig), [4]);
    rig.step(Answer::Obey);
    assert_eq!(out(&rig), [20], "its second command, and nothing beside it");
    rig.step(Answer::Obey);
    assert_eq!(out(&rig), [28, 32]);
    rig.settle();
    assert_eq!(rig.ends([short, long, behind[0], behind[1]]), [DONE; 4]);
    // Likewise without a write before it.
    let rig = pipelined(8);
    rig.write(1, 0, 24);
    rig.write(1, 24, 4);
    assert_eq!(out(&rig), [0]);
    rig.step(Answer::Obey);
    assert_eq!(out(&rig), [16]);
    rig.settle();
}

#[test]
fn h33_zeroes_go_without_company_and_become_data_where_the_device_rejects_them() {
    let rig = pipelined(8);
    let zeroes = |at| Request::write_zeroes(rig.sector(1, at), 4);
    let tokens = [rig.write(1, 0, 4), rig.submit(zeroes(4)), rig.write(1, 8, 4)];
    rig.step(Answer::Obey);
    assert_eq!(rig.script.pending().len(), 1);
    rig.step(Answer::Refuse(DeviceError::Unsupported));
    rig.settle();
    assert_eq!(rig.ends(tokens), [DONE; 3]);
    rig.assert_written(1, 8, 4, tokens[2]);
}

#[test]
fn durable_write_of_a_window_is_flushed_behind_while_others_go_on() {
    let rig = Rig::on(Arc::new(Script::new(DeviceInfo { volatile_cache: true, ..ordered() })), options(4));
    let durable = rig.submit_as_is(rig.write_request(1, 0, 4).fua());
    let plain = rig.write(1, 4, 4);
    assert_eq!(out(&rig), [0, 4]);
    rig.step(Answer::Obey);
    assert_eq!(rig.end(durable), None, "its flush is under way");
    rig.settle();
    assert_eq!(rig.ends([durable, plain]), [DONE; 2]);
    assert_eq!(rig.asked().iter().filter(|c| c.0 == Op::Flush).count(), 1);
}

#[test]
fn h09_reset_drains_the_window_and_aborts_waiting_writes() {
    let rig = pipelined(2);
    let tokens = [0, 4, 8].map(|at| rig.write(1, at, 4));
    let reset = rig.reset(1);
    let later = [0, 4].map(|at| rig.write(1, at, 4));
    assert_eq!(rig.end(tokens[2]), Some(aborted(1)));
    rig.step(Answer::Obey);
    assert_eq!(rig.script.pending().len(), 1, "one of them is still there");
    rig.step(Answer::Obey);
    assert_eq!(rig.script.pending()[0].op, Op::ZoneReset);
    rig.settle();
    assert_eq!(rig.ends([tokens[0], tokens[1], reset, later[0], later[1]]), [DONE; 5]);
}

#[test]
fn h12_misplaced_write_waits_for_the_window_and_errs_alone() {
    let rig = pipelined(4);
    let right = rig.write(1, 0, 4);
    let [wrong, behind] = [20, 4].map(|at| rig.write(1, at, 4));
    assert_eq!((out(&rig), rig.end(wrong)), (vec![0], None), "the pointer may still turn out to be another");
    rig.settle();
    assert_eq!(rig.ends([right, wrong, behind]), [DONE, misplaced(1, 4, 20), DONE]);
}

#[test]
fn h44_switch_drains_the_window_and_keeps_the_order_of_waiting_writes() {
    let others = [WriteMode::PerZone, WriteMode::Qd1, WriteMode::Append];
    let switches = others.into_iter().flat_map(|m| [(m, WriteMode::Pipelined), (WriteMode::Pipelined, m)]);
    for (from, to) in switches {
        let rig = Rig::on(Arc::new(Script::new(ordered())), options(3).with_mode(from));
        let mut tokens = fill(&rig, 5);
        let at_first = out(&rig).len();
        rig.volume.switch_mode(Nanos(0), to).unwrap();
        tokens.extend([20, 24, 28].map(|at| rig.write(1, at, 4)));
        rig.rest();
        assert_eq!(out(&rig).len(), at_first, "{from} to {to}: nothing goes out meanwhile");
        for _ in 0..at_first {
            assert_eq!(rig.volume.mode().0, from);
            rig.step(Answer::Obey);
        }
        assert_eq!(rig.volume.mode().0, to);
        assert_eq!(out(&rig).len(), if to == WriteMode::Pipelined { 3 } else { 1 }, "{from} to {to}");
        rig.settle();
        assert_all_there(&rig, &tokens);
        assert_eq!(rig.resyncs(), 0, "{from} to {to}");
    }
}

#[test]
fn s3_device_without_the_promise_is_refused_unless_forced() {
    let script = || Arc::new(Script::new(script::info()));
    let answering = script();
    answering.style(|_| Style::Now(Answer::Obey));
    let error = Volume::open(answering, options(4)).err().unwrap();
    assert!(matches!(&error, OpenError::NoOrder { device } if device == "script"), "{error}");
    assert!(error.to_string().contains("order"), "{error}");
    let rig = unmerged(script::info(), WriteMode::PerZone);
    assert_eq!(rig.volume.switch_mode(Nanos(0), WriteMode::Pipelined), Err(SwitchError::NoOrder));
    assert_eq!(rig.volume.mode().0, WriteMode::PerZone);
    rig.volume.switch_mode_anyway(Nanos(0), WriteMode::Pipelined).unwrap();
    rig.rest();
    assert_eq!(rig.volume.mode().0, WriteMode::Pipelined);
    let forced = Rig::on(script(), options(4).with_force(true).with_mode(WriteMode::PerZone));
    assert_eq!(forced.volume.switch_mode(Nanos(0), WriteMode::Pipelined), Ok(()));
}

/// An emulated device itself checks that writes are in flight together only if it preserves order.
#[test]
fn s3_forced_upon_a_device_that_takes_one_write_at_a_time_everything_succeeds_in_rounds() {
    let device = EmulatedOptions::default()
        .with_size(4 << 20)
        .with_zone_size(1 << 20)
        .with_complete(CompleteMode::Poll)
        .with_blocksize(512);
    let device = Arc::new(Emulated::new("unordered", &device, Null).unwrap());
    let volume = Volume::open(device, options(8).with_force(true)).unwrap();
    appends(&volume, 200);
    let statistics = volume.statistics();
    assert!(statistics.resyncs > 0 && statistics.failed == 0, "{statistics:?}");
}

/// The writes in front of the loss are reissued, one of them twice, without taking the place of
/// another.
#[test]
fn u40_write_behind_a_loss_learns_of_it_though_others_are_sent_again_before() {
    for tries in 1..=3 {
        let rig = pipelined(3);
        let writes = fill(&rig, 5);
        rig.step(ATTENTION);
        rig.step(ATTENTION);
        rig.step(MEDIUM);
        for _ in 1..tries {
            assert_eq!(rig.step(Answer::Obey).op, Op::Report);
            assert_eq!(out(&rig), [0, 4]);
            rig.step(ATTENTION);
            rig.step(ATTENTION);
        }
        rig.settle();
        let behind = [lost(1, 8, 12), lost(1, 8, 16)];
        let expected = [DONE, DONE, failed(DeviceError::Medium), behind[0].clone(), behind[1].clone()];
        assert_eq!(rig.ends([0, 1, 2, 3, 4].map(|n| writes[n])), expected, "{tries}");
        // From here on, a failure is the write's own fault.
        let (next, wrong) = (rig.write(1, 8, 4), rig.write(1, 16, 4));
        rig.settle();
        assert_eq!(rig.ends([next, wrong]), [DONE, misplaced(1, 12, 16)], "{tries}");
    }
}
