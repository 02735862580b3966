//! Fate of failed writes, rule by rule.

use super::*;
use zonal_core::Nanos;
use zonal_io::buffer::IoBuf;
use zonal_io::device::Settled;
use zonal_io::fault::{Effect, Fault, Plan, Rule};
use zonal_io::registry::Registry;
use zonal_io::volume::{OpenError, Volume};

const MISPLACED: DeviceError = DeviceError::Zone(ZoneError::InvalidWrite);
/// [`PLUGGED`], and the modes in which a failure must also release the token, or be reported to
/// writes in the scheduler.
const MODES: [WriteMode; 4] = [WriteMode::PerZone, WriteMode::Qd1, WriteMode::Append, WriteMode::ZoneLock];

const TOO_MANY: DeviceError = DeviceError::Zone(ZoneError::TooManyOpen);

/// Errors after which nothing was executed, either by definition or according to the write pointer.
const NOT_EXECUTED: [DeviceError; 8] = [
    MISPLACED,
    DeviceError::Busy,
    DeviceError::UnitAttention,
    TOO_MANY,
    DeviceError::Zone(ZoneError::TooManyActive),
    DeviceError::Aborted,
    DeviceError::Gone,
    DeviceError::Os(5),
];

fn unknown(zone: u32, write_pointer: u32, offset: u32, error: DeviceError) -> End {
    Err(RequestError::FateUnknown { zone: ZoneIndex(zone), offset, write_pointer, error })
}

fn gave_up(zone: u32, offset: u32, error: DeviceError) -> End {
    Err(RequestError::GaveUp { zone: ZoneIndex(zone), offset, rounds: 3, error })
}

fn torn(zone: u32, offset: u32, sectors: u32, error: DeviceError) -> End {
    Err(RequestError::TornAppend { zone: ZoneIndex(zone), offset, sectors, error })
}

/// Answers the `n`th try of each write with `answer(offset, n)`, and everything else by the rules.
fn drive(rig: &Rig, mut answer: impl FnMut(u32, u32) -> Answer) {
    let mut tries = std::collections::BTreeMap::new();
    rig.rest();
    while let Some(next) = rig.script.pending().first().cloned() {
        let tried = tries.entry((next.zone, next.offset)).or_insert(0);
        *tried += u32::from(next.op.is_write());
        rig.step(if next.op.is_write() { answer(next.offset, *tried) } else { Answer::Obey });
    }
}

/// Asserts that these writes of `sectors` each are contiguous from the zone's start.
fn assert_in_order(rig: &Rig, zone: u32, tokens: &[u64], sectors: u32) {
    for (&token, n) in tokens.iter().zip(0..) {
        rig.assert_written(zone, n * sectors, sectors, token);
    }
    assert_eq!(rig.script.zone(zone).1, tokens.len() as u32 * sectors, "and nothing else");
}

#[test]
fn h50_writes_that_were_not_executed_all_succeed_in_order() {
    for mode in MODES {
        for error in NOT_EXECUTED {
            let rig = unmerged(script::info(), mode);
            let writes: Vec<u64> = (0..6).map(|n| rig.write(1, n * 4, 4)).collect();
            drive(&rig, |_, tried| if tried == 1 { Answer::Refuse(error) } else { Answer::Obey });
            assert!(writes.iter().all(|&w| rig.end(w) == Some(DONE)), "{mode}: {error}");
            assert_in_order(&rig, 1, &writes, 4);
            assert_eq!(rig.plug(1).unwrap().flags, 0, "nothing is left of it");
        }
    }
}

/// Errors after which a command that changes nothing may succeed when retried.
const PASSING: [DeviceError; 4] =
    [DeviceError::Busy, DeviceError::UnitAttention, DeviceError::Aborted, DeviceError::TimedOut];

#[test]
fn h50_report_that_is_refused_is_sent_again() {
    for mode in MODES {
        for (error, refused) in
            PASSING.into_iter().flat_map(|error| [1, 2, 10].map(|refused| (error, refused)))
        {
            let rig = unmerged(script::info(), mode);
            let writes: Vec<u64> = (0..3).map(|n| rig.write(1, n * 4, 4)).collect();
            rig.step(Answer::Refuse(DeviceError::UnitAttention));
            for _ in 0..refused {
                assert_eq!(rig.step(Answer::Refuse(error)).op, Op::Report, "{mode}: {error}");
            }
            rig.settle();
            assert!(writes.iter().all(|&w| rig.end(w) == Some(DONE)), "{mode}: {error}, {refused} times");
            assert_in_order(&rig, 1, &writes, 4);
        }
    }
}

#[test]
fn report_that_is_refused_eleven_times_ends_the_writes_of_its_zone() {
    for mode in MODES {
        for error in PASSING {
            let rig = unmerged(script::info(), mode);
            let writes = [rig.write(1, 0, 4), rig.write(1, 4, 4)];
            rig.step(Answer::Refuse(DeviceError::Busy));
            let begun = rig.now();
            (0..11).for_each(|_| _ = rig.step(Answer::Refuse(error)));
            assert!(rig.script.pending().is_empty(), "{mode}: {error}");
            let waited = rig.now().0 - begun.0;
            assert!((100_000_000..110_000_000).contains(&waited), "{waited} ns for all tries");
            assert_eq!(rig.ends(writes), [failed(DeviceError::Busy), failed(error)], "{mode}");
            // It leaves no trace.
            let next = rig.write(1, 0, 4);
            rig.settle();
            assert_eq!(rig.end(next), Some(DONE), "{mode}: {error}");
        }
    }
}

#[test]
fn volume_opens_on_a_device_that_refuses_its_first_commands() {
    for (error, refused) in PASSING.into_iter().flat_map(|error| [(error, 1), (error, 10), (error, 11)]) {
        let ram = Registry::default().open("ram:size=64M,zone_size=16M").unwrap();
        let rule = Rule::new(Effect::Refuse(error)).times(refused);
        let opened = Volume::open(Arc::new(Fault::new(ram, Plan::of(1, [rule]))), VolumeOptions::default());
        match opened.err() {
            None => assert!(refused < 11, "{error}"),
            Some(OpenError::Report { error: found, .. }) => assert_eq!((found, refused), (error, 11)),
            Some(other) => panic!("{other}"),
        }
    }
}

#[test]
fn read_back_that_is_refused_is_sent_again() {
    for mode in MODES {
        for error in PASSING {
            let rig = unmerged(script::info(), mode);
            let write = rig.write(1, 0, 8);
            rig.step(Answer::Torn(8, DeviceError::Aborted));
            assert_eq!(rig.step(Answer::Obey).op, Op::Report);
            (0..10).for_each(|_| assert_eq!(rig.step(Answer::Refuse(error)).op, Op::Read));
            rig.settle();
            assert_eq!(rig.end(write), Some(DONE), "{mode}: {error}");
            assert_eq!(rig.volume.statistics().verified, 1);
        }
    }
}

#[test]
fn read_or_flush_that_was_not_carried_out_is_sent_again() {
    let passing = |op| match op {
        Op::Read => &PASSING[..3],
        _ => &PASSING[..2],
    };
    for mode in MODES {
        for op in [Op::Read, Op::Flush] {
            for &error in passing(op) {
                let rig = unmerged(DeviceInfo { volatile_cache: true, ..script::info() }, mode);
                rig.write(1, 0, 8);
                rig.settle();
                let request = || match op {
                    Op::Read => Request::read(rig.sector(1, 0), 8, IoBuf::zeroed(8 * 512)),
                    _ => Request::flush(),
                };
                let again = rig.submit(request());
                (0..10).for_each(|_| assert_eq!(rig.step(Answer::Refuse(error)).op, op));
                rig.settle();
                assert_eq!(rig.end(again), Some(DONE), "{mode}: {op:?} after {error}");
                let in_vain = rig.submit(request());
                (0..11).for_each(|_| _ = rig.step(Answer::Refuse(error)));
                assert_eq!(rig.end(in_vain), Some(failed(error)), "{mode}: {op:?} after {error}");
            }
        }
    }
}

#[test]
fn read_or_flush_that_may_have_been_carried_out_is_not_sent_again() {
    let errors = [
        (Op::Read, DeviceError::TimedOut),
        (Op::Read, DeviceError::Medium),
        (Op::Flush, DeviceError::Aborted),
    ];
    for (op, error) in errors {
        let rig = unmerged(DeviceInfo { volatile_cache: true, ..script::info() }, WriteMode::PerZone);
        let request = match op {
            Op::Read => Request::read(rig.sector(1, 0), 8, IoBuf::zeroed(8 * 512)),
            _ => Request::flush(),
        };
        let token = rig.submit(request);
        rig.step(Answer::Refuse(error));
        assert_eq!(rig.end(token), Some(failed(error)));
    }
}

#[test]
fn h50_unit_attention_for_the_first_of_many_appends_costs_none() {
    for mode in MODES {
        for error in NOT_EXECUTED {
            let rig = unmerged(script::info(), mode);
            let appends: Vec<u64> = (0..6).map(|_| rig.append(1, 4)).collect();
            let mut first = true;
            drive(&rig, |_, _| match std::mem::take(&mut first) {
                true => Answer::Refuse(error),
                false => Answer::Obey,
            });
            let mut places: Vec<u32> = appends.iter().map(|&a| address(&rig, 1, a)).collect();
            places.sort_unstable();
            assert_eq!(places, [0, 4, 8, 12, 16, 20], "{mode}: {error}");
        }
    }
}

/// Address of a successful append, which is verified.
fn address(rig: &Rig, zone: u32, append: u64) -> u32 {
    let Some(Ok(Output::Appended(sector))) = rig.end(append) else {
        panic!("append {append} ended with {:?}", rig.end(append));
    };
    let offset = (sector.0 - rig.sector(zone, 0).0) as u32;
    rig.assert_written(zone, offset, 4, append);
    offset
}

#[test]
fn h47_writes_that_are_sent_again_go_in_order_before_those_that_wait() {
    let rig = Rig::per_zone();
    let first = rig.write(1, 0, 4);
    let merged = [rig.write(1, 4, 4), rig.write(1, 8, 4), rig.write(1, 12, 4)];
    rig.step(Answer::Obey);
    let late = rig.write(1, 16, 4);
    let shared = rig.step(Answer::Refuse(DeviceError::Busy));
    assert_eq!(shared.brief(), (Op::Write, 1, 4, 12));
    rig.settle();
    assert_eq!(rig.ends([first, merged[0], merged[1], merged[2], late]), [DONE; 5]);
    let asked = rig.asked();
    assert_eq!(asked[2..].iter().map(|c| c.2).collect::<Vec<_>>(), [4, 8, 12, 16]);
    assert_in_order(&rig, 1, &[first, merged[0], merged[1], merged[2], late], 4);
}

#[test]
fn one_medium_error_among_appends_costs_one_append() {
    for mode in MODES {
        for bad in 0..5 {
            let rig = unmerged(script::info(), mode);
            let appends: Vec<u64> = (0..5).map(|_| rig.append(1, 4)).collect();
            let mut n = 0;
            drive(&rig, |_, _| {
                n += 1;
                if n == bad + 1 { MEDIUM } else { Answer::Obey }
            });
            let late = rig.append(1, 4);
            rig.settle();
            let lost = appends.iter().filter(|&&a| rig.end(a) == Some(failed(DeviceError::Medium)));
            assert_eq!(lost.count(), 1, "{mode}, the {bad}th");
            let kept = appends.iter().filter(|&&a| rig.end(a) != Some(failed(DeviceError::Medium)));
            let mut places: Vec<u32> = kept.chain([&late]).map(|&a| address(&rig, 1, a)).collect();
            places.sort_unstable();
            assert_eq!(places, [0, 4, 8, 12, 16]);
        }
    }
}

#[test]
fn one_medium_error_among_writes_costs_it_and_those_that_wait_behind() {
    for mode in MODES {
        let rig = unmerged(script::info(), mode);
        let writes = [0, 4, 8, 12].map(|offset| rig.write(1, offset, 4));
        drive(&rig, |offset, _| if offset == 4 { MEDIUM } else { Answer::Obey });
        let expected = [DONE, failed(DeviceError::Medium), lost(1, 4, 8), lost(1, 4, 12)];
        assert_eq!(rig.ends(writes), expected);
        assert_eq!(rig.pointer(1), Some(4));
        let next = rig.write(1, 4, 4);
        assert_eq!(rig.script.pending().len(), 1, "it went out at once");
        rig.settle();
        assert_eq!(rig.end(next), Some(DONE));
        assert_in_order(&rig, 1, &[writes[0], next], 4);
    }
}

#[test]
fn torn_native_append_is_completed_at_the_new_pointer() {
    let rig = Rig::append_mode();
    let append = rig.append(1, 4);
    rig.step(Answer::Torn(3, DeviceError::Aborted));
    rig.settle();
    assert_eq!(address(&rig, 1, append), 3);
    assert_eq!(rig.script.zone(1).1, 7);
}

#[test]
fn torn_emulated_append_resumes_at_the_tear() {
    let rig = Rig::per_zone();
    let append = rig.append(1, 4);
    rig.step(Answer::Torn(3, DeviceError::Aborted));
    let read = rig.step(Answer::Obey);
    assert_eq!(read.op, Op::Report);
    assert_eq!(rig.step(Answer::Obey).brief(), (Op::Read, 1, 0, 3));
    assert_eq!(rig.step(Answer::Obey).brief(), (Op::Write, 1, 3, 1));
    assert_eq!(address(&rig, 1, append), 0);
    assert_eq!(rig.script.zone(1).1, 4);
}

#[test]
fn append_torn_by_the_medium_fails_with_its_garbage() {
    for mode in MODES {
        let rig = Rig::new(script::info(), mode);
        let before = rig.append(1, 4);
        rig.settle();
        let append = rig.append(1, 8);
        rig.step(Answer::Torn(3, DeviceError::Medium));
        let next = rig.append(1, 4);
        rig.settle();
        assert_eq!(rig.end(append), Some(torn(1, 4, 3, DeviceError::Medium)));
        assert_eq!((address(&rig, 1, before), address(&rig, 1, next)), (0, 7));
    }
}

#[test]
fn torn_write_is_read_back_and_its_rest_sent_again() {
    for mode in MODES {
        let rig = Rig::new(script::info(), mode);
        // Three commands; the second is torn.
        let write = rig.write(1, 0, 40);
        rig.step(Answer::Obey);
        rig.step(Answer::Torn(5, DeviceError::Aborted));
        let behind = rig.write(1, 40, 4);
        rig.settle();
        assert_eq!(rig.ends([write, behind]), [DONE; 2]);
        rig.assert_written(1, 0, 40, write);
        rig.assert_written(1, 40, 4, behind);
        let statistics = rig.volume.statistics();
        assert_eq!((statistics.redriven, statistics.read_back), (1, 1));
    }
}

#[test]
fn covered_write_is_done_when_it_is_read_back() {
    for mode in MODES {
        let rig = unmerged(script::info(), mode);
        let writes = [rig.write(1, 0, 8), rig.write(1, 8, 8)];
        rig.step(Answer::Torn(8, DeviceError::Aborted));
        rig.settle();
        assert_eq!(rig.ends(writes), [DONE; 2]);
        let zeroes = rig.submit(Request::write_zeroes(rig.sector(1, 16), 8));
        rig.step(Answer::Torn(8, DeviceError::Os(5)));
        let append = rig.append(1, 4);
        rig.settle();
        assert_eq!(rig.end(zeroes), Some(DONE));
        rig.append(1, 4);
        rig.step(Answer::Torn(4, DeviceError::Gone));
        rig.settle();
        assert_eq!((address(&rig, 1, append), address(&rig, 1, append + 1)), (24, 28));
        assert_eq!(rig.volume.statistics().verified, 3);
    }
}

#[test]
fn covered_write_that_is_not_found_has_an_unknown_fate() {
    for mode in MODES {
        let rig = unmerged(script::info(), mode);
        let writes = [rig.write(1, 0, 8), rig.write(1, 8, 8)];
        // The write pointer moved as if it had been written, but the data is different.
        rig.script.set_zone(1, ZoneCondition::ImpOpen, 8);
        rig.step(Answer::Refuse(DeviceError::Aborted));
        rig.settle();
        assert_eq!(rig.ends(writes), [unknown(1, 8, 0, DeviceError::Aborted), DONE]);
        // The fate of a write that cannot be read is unknown, too.
        let unread = rig.write(1, 16, 8);
        rig.step(Answer::Torn(8, DeviceError::Aborted));
        rig.step(Answer::Obey);
        assert_eq!(rig.step(MEDIUM).op, Op::Read);
        assert_eq!(rig.end(unread), Some(unknown(1, 24, 16, DeviceError::Aborted)));
    }
}

/// Like a device without data: a write of zeroes must not be confirmed by an unmodified buffer.
#[test]
fn device_that_reads_nothing_confirms_nothing() {
    let rig = Rig::per_zone();
    for zone in [1, 2] {
        let write = match zone {
            1 => rig.submit(Request::write_zeroes(rig.sector(zone, 0), 8)),
            _ => rig.write(zone, 0, 8),
        };
        rig.step(Answer::Torn(8, DeviceError::Aborted));
        rig.step(Answer::Obey);
        assert_eq!(rig.step(Answer::Reply(Ok(Output::Done))).op, Op::Read);
        assert_eq!(rig.end(write), Some(unknown(zone, 8, 0, DeviceError::Aborted)));
    }
}

#[test]
fn switch_of_the_mode_keeps_failed_writes() {
    let rig = unmerged(script::info(), WriteMode::PerZone);
    let writes = [rig.append(1, 4), rig.append(1, 4)];
    rig.volume.switch_mode(Nanos(0), WriteMode::Append).unwrap();
    rig.step(Answer::Torn(2, DeviceError::Aborted));
    rig.settle();
    assert_eq!(rig.volume.mode().0, WriteMode::Append);
    assert_eq!((address(&rig, 1, writes[0]), address(&rig, 1, writes[1])), (0, 4));
}

#[test]
fn covered_write_that_is_to_be_durable_is_flushed() {
    let rig = Rig::new(DeviceInfo { volatile_cache: true, fua: true, ..script::info() }, WriteMode::PerZone);
    let write = rig.submit_as_is(rig.write_request(1, 0, 8).fua());
    rig.step(Answer::Torn(8, DeviceError::Aborted));
    rig.step(Answer::Obey);
    rig.step(Answer::Obey);
    assert_eq!((rig.end(write), rig.script.pending()[0].op), (None, Op::Flush));
    rig.settle();
    assert_eq!(rig.end(write), Some(DONE));
}

#[test]
fn merged_writes_are_decided_one_by_one() {
    let rig = Rig::per_zone();
    let first = rig.write(1, 0, 4);
    let merged = [rig.write(1, 4, 4), rig.write(1, 8, 4), rig.write(1, 12, 4)];
    rig.step(Answer::Obey);
    rig.step(Answer::Torn(6, DeviceError::Aborted));
    rig.settle();
    assert_eq!(rig.ends(merged), [DONE; 3]);
    assert_in_order(&rig, 1, &[first, merged[0], merged[1], merged[2]], 4);
    let again = rig.asked().into_iter().filter(|c| c.0 == Op::Write).skip(2);
    assert_eq!(again.map(|c| (c.2, c.3)).collect::<Vec<_>>(), [(10, 2), (12, 4)]);
}

#[test]
fn h49_write_that_fails_again_and_again_is_given_up() {
    for mode in MODES {
        let rig = unmerged(script::info(), mode);
        let writes = [rig.write(1, 0, 4), rig.write(1, 4, 4)];
        let append = rig.append(1, 4);
        let mut tries = 0;
        drive(&rig, |offset, tried| {
            let bad = offset == 0 && tried <= 4;
            tries += u32::from(bad);
            if bad { Answer::Refuse(DeviceError::UnitAttention) } else { Answer::Obey }
        });
        assert_eq!(tries, 4, "once, and three times again");
        assert_eq!(rig.ends(writes), [gave_up(1, 0, DeviceError::UnitAttention), lost(1, 0, 4)]);
        assert_eq!(address(&rig, 1, append), 0);
    }
}

#[test]
fn h49_three_failures_are_not_too_many() {
    for mode in MODES {
        let rig = unmerged(script::info(), mode);
        let writes: Vec<u64> = (0..4).map(|n| rig.write(1, n * 4, 4)).collect();
        drive(&rig, |_, tried| if tried <= 3 { Answer::Refuse(DeviceError::Busy) } else { Answer::Obey });
        assert!(writes.iter().all(|&w| rig.end(w) == Some(DONE)), "{mode}");
        assert_in_order(&rig, 1, &writes, 4);
    }
}

#[test]
fn refused_write_is_not_sent_again() {
    for error in [DeviceError::Unsupported, DeviceError::OutOfRange, DeviceError::Zone(ZoneError::Boundary)] {
        for mode in MODES {
            let rig = Rig::new(script::info(), mode);
            let write = rig.write(1, 0, 4);
            rig.step(Answer::Refuse(error));
            rig.settle();
            assert_eq!((rig.end(write), rig.asked().len()), (Some(failed(error)), 1));
        }
    }
}

#[test]
fn zone_with_another_writer_makes_no_guess() {
    for mode in MODES {
        let rig = unmerged(script::info(), mode);
        let writes = [rig.write(1, 0, 4), rig.write(1, 4, 4)];
        rig.script.set_zone(1, ZoneCondition::ImpOpen, 20);
        rig.step(Answer::Refuse(DeviceError::Aborted));
        rig.settle();
        let fate = unknown(1, 20, 0, DeviceError::Aborted);
        assert_eq!(rig.ends(writes), [fate, misplaced(1, 20, 4)]);
        let reads = rig.asked().iter().filter(|c| c.0 == Op::Read).count();
        assert_eq!(reads, 0);
    }
}

#[test]
fn several_appends_of_which_some_landed_have_an_unknown_fate() {
    let rig = Rig::append_mode();
    let appends = [rig.append(1, 4), rig.append(1, 4), rig.append(1, 4)];
    rig.finish(0, Answer::Torn(4, DeviceError::Aborted));
    rig.finish(0, Answer::Refuse(DeviceError::Aborted));
    rig.finish(0, Answer::Obey);
    rig.settle();
    let fate = |offset| unknown(1, 8, offset, DeviceError::Aborted);
    assert_eq!(rig.ends(appends), [fate(0), fate(4), appended(&rig, 1, 4)]);
}

#[test]
fn reset_of_a_recovering_zone_ends_undecided_writes() {
    for mode in MODES {
        let rig = Rig::new(script::info(), mode);
        let write = rig.write(1, 0, 4);
        let waiting = rig.write(1, 4, 4);
        let reset = rig.reset(1);
        rig.step(Answer::Refuse(DeviceError::Busy));
        assert_eq!(rig.ends([write, waiting]), [failed(DeviceError::Busy), aborted(1)]);
        let next = rig.write(1, 0, 4);
        rig.settle();
        assert_eq!(rig.ends([reset, next]), [DONE; 2]);
        assert_eq!(rig.resyncs(), 0);
        // While the report is in flight.
        let write = rig.write(1, 4, 4);
        rig.step(Answer::Refuse(DeviceError::Busy));
        let reset = rig.reset(1);
        rig.settle();
        assert_eq!(rig.ends([write, reset]), [failed(DeviceError::Busy), DONE]);
        let write = rig.write(2, 0, 4);
        let all = rig.submit(Request::reset_all());
        rig.step(Answer::Refuse(DeviceError::Busy));
        rig.settle();
        assert_eq!(rig.ends([write, all]), [failed(DeviceError::Busy), DONE]);
        assert!(rig.plug(1).is_none() && rig.plug(2).is_none());
    }
}

#[test]
fn unknown_pointer_leaves_the_fate_of_a_write_unknown() {
    for mode in MODES {
        let rig = unmerged(script::info(), mode);
        let write = rig.write(1, 0, 4);
        rig.step(Answer::Refuse(DeviceError::Aborted));
        rig.step(MEDIUM);
        assert_eq!(rig.end(write), Some(unknown(1, 4, 0, DeviceError::Aborted)));
    }
}

/// Writes in the scheduler do not wait in the plug, and would wait forever for a zone that has
/// given up.
#[test]
fn unknown_write_pointer_does_not_block_scheduled_writes() {
    let rig = unmerged(script::info(), WriteMode::ZoneLock);
    let writes = [rig.write(1, 0, 4), rig.write(1, 4, 4)];
    rig.step(MEDIUM);
    rig.step(MEDIUM);
    assert_eq!(rig.ends(writes), [failed(DeviceError::Medium), failed(DeviceError::Medium)]);
    let next = rig.write(1, 0, 4);
    rig.settle();
    assert_eq!(rig.end(next), Some(DONE));
}

#[test]
fn timed_out_write_that_executes_late_is_not_written_twice() {
    for mode in MODES {
        for executed in [false, true] {
            let rig = unmerged(script::info(), mode);
            rig.script.settle_with(Settled::NotYet(None));
            let writes = [rig.write(1, 0, 4), rig.write(1, 4, 4)];
            rig.step(Answer::Late);
            assert_eq!((rig.script.pending().len(), rig.resyncs()), (0, 0), "not even a report");
            assert!(rig.script.settles() > 0);
            if !executed {
                rig.script.forget_late();
            }
            rig.script.settle_with(Settled::Yes);
            rig.settle();
            assert_eq!(rig.ends(writes), [DONE; 2]);
            assert_in_order(&rig, 1, &writes, 4);
            let asked = rig.asked().into_iter().filter(|c| c.0 == Op::Write && c.2 == 0).count();
            assert_eq!(asked, if executed { 1 } else { 2 });
        }
    }
}

#[test]
fn timed_out_append_executed_late_is_written_once() {
    for mode in MODES {
        let rig = unmerged(script::info(), mode);
        rig.script.settle_with(Settled::NotYet(None));
        let append = rig.append(1, 4);
        rig.step(Answer::Late);
        let next = rig.append(1, 4);
        assert_eq!(rig.script.pending(), []);
        assert_eq!(rig.script.execute_late(), 1);
        rig.script.settle_with(Settled::Yes);
        rig.settle();
        assert_eq!((address(&rig, 1, append), address(&rig, 1, next)), (0, 4));
        assert_eq!(rig.script.zone(1).1, 8);
    }
}

/// The old reset must not erase later writes.
#[test]
fn reset_that_timed_out_is_settled_before_anything_is_written() {
    for mode in MODES {
        let rig = unmerged(script::info(), mode);
        rig.write(1, 0, 4);
        rig.settle();
        rig.script.settle_with(Settled::NotYet(None));
        let reset = rig.reset(1);
        let all = rig.step(Answer::Late);
        assert_eq!(all.op, Op::ZoneReset);
        assert_eq!(rig.end(reset), Some(failed(DeviceError::TimedOut)));
        let append = rig.append(1, 4);
        assert_eq!(rig.script.pending(), []);
        rig.script.settle_with(Settled::Yes);
        rig.settle();
        assert_eq!(address(&rig, 1, append), 0);
        // A reset of all zones behaves likewise.
        rig.script.settle_with(Settled::NotYet(None));
        let all = rig.submit(Request::reset_all());
        rig.step(Answer::Late);
        assert_eq!(rig.end(all), Some(failed(DeviceError::TimedOut)));
        let appends = [rig.append(1, 4), rig.append(2, 4)];
        assert_eq!(rig.script.pending(), []);
        rig.script.settle_with(Settled::Yes);
        rig.settle();
        assert_eq!((address(&rig, 1, appends[0]), address(&rig, 2, appends[1])), (0, 0));
    }
}

#[test]
fn zone_that_cannot_be_settled_is_left_alone() {
    for mode in MODES {
        let rig = unmerged(script::info(), mode);
        rig.script.settle_with(Settled::Never(DeviceError::Gone));
        let (write, waiting) = (rig.write(1, 0, 4), rig.write(1, 4, 4));
        rig.step(Answer::Late);
        assert_eq!(rig.end(write), Some(unknown(1, 4, 0, DeviceError::TimedOut)));
        assert_eq!(rig.end(waiting), Some(failed(DeviceError::Gone)));
        let (reset, late) = (rig.reset(1), rig.append(1, 4));
        rig.rest();
        assert_eq!(rig.ends([reset, late]), [failed(DeviceError::Gone), failed(DeviceError::Gone)]);
        assert_eq!(rig.asked().len(), 1, "nothing more was sent to it");
        let other = rig.write(2, 0, 4);
        rig.settle();
        assert_eq!(rig.end(other), Some(DONE));
        let all = rig.submit(Request::reset_all());
        rig.settle();
        assert!(rig.end(all).is_some(), "it waits for ever");
    }
}

fn with_discard() -> DeviceInfo {
    DeviceInfo { discard_sectors_max: 16, ..script::info() }
}

/// The caller may write to the same place next, and the old write must not be executed after that.
#[test]
fn write_to_a_conventional_zone_that_timed_out_ends_once_it_is_settled() {
    for mode in MODES {
        let rig = unmerged(with_discard(), mode);
        for settled in [Settled::Yes, Settled::NotYet(None)] {
            rig.script.settle_with(settled);
            let discard = rig.submit(Request::discard(rig.sector(0, 8), 8));
            let writes =
                [rig.write(0, 0, 4), rig.submit(Request::write_zeroes(rig.sector(0, 16), 4)), discard];
            for _ in 0..3 {
                rig.step(Answer::Late);
            }
            if settled != Settled::Yes {
                assert_eq!(writes.map(|write| rig.end(write)), [None, None, None], "{mode}");
                rig.script.settle_with(Settled::Yes);
                rig.rest();
            }
            let aborted = || failed(DeviceError::Aborted);
            assert_eq!(rig.ends(writes), [aborted(), aborted(), aborted()], "{mode}");
            let next = rig.write(0, 0, 4);
            rig.settle();
            assert_eq!((rig.end(next), rig.script.execute_late()), (Some(DONE), 0), "{mode}");
            rig.assert_written(0, 0, 4, next);
        }
        let read = rig.submit(Request::read(rig.sector(0, 0), 4, IoBuf::zeroed(4 * 512)));
        rig.step(Answer::Late);
        assert_eq!(rig.end(read), Some(failed(DeviceError::TimedOut)), "{mode}: a read changes nothing");
    }
}

#[test]
fn conventional_zone_that_cannot_be_settled_is_left_alone() {
    for mode in MODES {
        let rig = unmerged(with_discard(), mode);
        rig.script.settle_with(Settled::NotYet(None));
        let write = rig.write(0, 0, 4);
        rig.step(Answer::Late);
        rig.script.settle_with(Settled::Never(DeviceError::Gone));
        rig.rest();
        assert_eq!(rig.end(write), Some(failed(DeviceError::TimedOut)), "it may still come");
        let others = [rig.write(0, 8, 4), rig.submit(Request::discard(rig.sector(0, 16), 8))];
        let read = rig.submit(Request::read(rig.sector(0, 0), 4, IoBuf::zeroed(4 * 512)));
        let other_zone = rig.write(1, 0, 4);
        rig.settle();
        assert_eq!(rig.ends(others), [failed(DeviceError::Gone), failed(DeviceError::Gone)], "{mode}");
        assert_eq!(rig.ends([read, other_zone]), [DONE; 2], "{mode}");
    }
}

#[test]
fn write_without_a_slot_waits_until_a_zone_is_filled_reset_finished_or_closed() {
    for mode in PLUGGED {
        for op in [None, Some(Op::ZoneReset), Some(Op::ZoneFinish), Some(Op::ZoneClose)] {
            let rig = unmerged(script::info(), mode);
            rig.write(1, 0, 16);
            rig.write(1, 16, 16);
            rig.settle();
            // The zone that holds the slot has a command in flight.
            let filling = rig.write(1, 32, 16);
            let starving = [rig.write(2, 0, 4), rig.write(2, 4, 4)];
            rig.finish(1, Answer::Refuse(TOO_MANY));
            assert_eq!(rig.finish(1, Answer::Obey).op, Op::Report);
            for _ in 0..10 {
                rig.rest();
            }
            assert_eq!(rig.script.pending().len(), 1, "it does not spin");
            if let Some(op) = op {
                let managed = rig.manage(op, 1);
                rig.step(Answer::Obey);
                rig.settle();
                assert!(rig.end(managed).is_some());
            }
            rig.settle();
            assert_eq!(rig.end(filling), Some(DONE));
            assert_eq!(rig.ends(starving), [DONE; 2], "{mode} {op:?}");
            assert_in_order(&rig, 2, &starving, 4);
        }
    }
}

#[test]
fn write_without_a_slot_that_nobody_will_free_is_given_up() {
    for mode in MODES {
        let rig = unmerged(script::info(), mode);
        rig.write(1, 0, 16);
        rig.settle();
        let starving = [rig.write(2, 0, 4), rig.write(2, 4, 4)];
        let mut tries = 0;
        drive(&rig, |_, _| {
            tries += 1;
            assert!(tries < 100, "it is tried for ever");
            Answer::Refuse(TOO_MANY)
        });
        assert_eq!(tries, 4, "once, and three times again");
        assert_eq!(rig.ends(starving), [gave_up(2, 0, TOO_MANY), lost(2, 0, 4)]);
    }
}

#[test]
fn starving_zones_do_not_wait_for_each_other() {
    let rig = Rig::per_zone();
    let writes = [rig.write(1, 0, 4), rig.write(2, 0, 4)];
    drive(&rig, |_, tried| if tried <= 2 { Answer::Refuse(TOO_MANY) } else { Answer::Obey });
    assert_eq!(rig.ends(writes), [DONE; 2]);
    // Nor does each zone assume that the other has released its slot.
    let (other, writes) = (rig.write(5, 0, 4), [rig.write(3, 0, 4), rig.write(4, 0, 4)]);
    for answer in [Answer::Refuse(TOO_MANY), Answer::Refuse(TOO_MANY), Answer::Obey, Answer::Obey] {
        rig.finish(1, answer);
    }
    assert_eq!(rig.script.pending().len(), 1, "both wait for the other one");
    rig.step(Answer::Obey);
    assert_eq!(rig.end(other), Some(DONE));
    let mut tries = 0;
    drive(&rig, |_, _| {
        tries += 1;
        assert!(tries < 100, "they try for ever");
        Answer::Refuse(TOO_MANY)
    });
    assert_eq!(rig.ends(writes), [gave_up(3, 0, TOO_MANY), gave_up(4, 0, TOO_MANY)]);
}
