//! Chains: waiting writes issued one by another without a look at the queue, and the events that
//! interrupt them.

use super::*;
use zonal_check::script::Seen;
use zonal_core::Nanos;

/// A chain in progress: writes of four sectors each. The first has ended, the second is at the
/// device, and the others have their places assigned behind it.
struct Chain {
    rig: Rig,
    tokens: Vec<u64>,
    appends: bool,
}

const SECTORS: u32 = 4;
const WRITES: u32 = 6;
/// End of the chain.
const END: u32 = WRITES * SECTORS;

impl Chain {
    /// Starts a chain in zone 1.
    fn new(mode: WriteMode, appends: bool) -> Chain {
        let rig = unmerged(script::info(), mode);
        let tokens = chain_in(&rig, 1, appends);
        Chain { rig, tokens, appends }
    }

    /// Chains of both kinds of writes, in every mode that has them.
    fn all() -> [Chain; 5] {
        use WriteMode::{Append, PerZone, Qd1};
        [(PerZone, true), (PerZone, false), (Qd1, true), (Qd1, false), (Append, false)]
            .map(|(mode, appends)| Chain::new(mode, appends))
    }

    /// Successful result of a write at this offset.
    fn done(&self, offset: u32) -> End {
        if self.appends { appended(&self.rig, 1, offset) } else { DONE }
    }

    fn end(&self, n: usize) -> Option<End> {
        self.rig.end(self.tokens[n])
    }

    /// Asserts that the writes from `n` on succeeded and are contiguous from `offset` on.
    fn assert_in_order(&self, n: usize, offset: u32) {
        for (token, at) in self.tokens[n..].iter().zip((offset..).step_by(SECTORS as usize)) {
            assert_eq!(self.rig.end(*token), Some(self.done(at)));
            self.rig.assert_written(1, at, SECTORS, *token);
        }
    }
}

fn chain_in(rig: &Rig, zone: u32, appends: bool) -> Vec<u64> {
    let write = |n| if appends { rig.append(zone, SECTORS) } else { rig.write(zone, n * SECTORS, SECTORS) };
    let tokens = (0..WRITES).map(write).collect();
    let place =
        rig.script.pending().iter().position(|s| s.zone.0 == zone).expect("the first is at the device");
    rig.finish(place, Answer::Obey);
    assert_promised(rig, zone, END);
    tokens
}

/// Precondition of all tests here: one write is at the device, none is in the queue, and the write
/// pointer is behind all of them.
fn assert_promised(rig: &Rig, zone: u32, end: u32) {
    let plug = rig.plug(zone).map(|p| (p.references, p.pending, p.write_pointer));
    assert_eq!(plug, Some((2, 0, end)), "no chain is under way");
}

#[test]
fn undisturbed_chain_is_issued_in_order_before_later_writes() {
    for chain in Chain::all() {
        let rig = &chain.rig;
        let later = [rig.write(1, END, SECTORS), rig.write(1, END + SECTORS, SECTORS)];
        rig.settle();
        chain.assert_in_order(0, 0);
        assert_eq!(rig.ends(later), [DONE; 2]);
        let offsets: Vec<_> = rig.asked().iter().map(|c| c.2).collect();
        assert_eq!(offsets, [0, 4, 8, 12, 16, 20, 24, 28]);
        assert_eq!(rig.resyncs(), 0);
    }
}

#[test]
fn more_writes_than_a_chain_takes_go_out_in_order() {
    for appends in [true, false] {
        let rig = unmerged(script::info(), WriteMode::PerZone);
        let write = |n| if appends { rig.append(1, 1) } else { rig.write(1, n, 1) };
        let tokens: Vec<_> = (0..CAPACITY).map(write).collect();
        rig.settle();
        for (&token, at) in tokens.iter().zip(0..) {
            rig.assert_written(1, at, 1, token);
        }
        assert_eq!((rig.ended(), rig.plug(1)), (CAPACITY as usize, None));
    }
}

/// They wait for one write, not for the whole chain.
#[test]
fn u15_reset_or_finish_follows_only_the_write_in_flight() {
    for op in [Op::ZoneReset, Op::ZoneFinish] {
        for chain in Chain::all() {
            let rig = &chain.rig;
            let manage = rig.manage(op, 1);
            let after = rig.write(1, 0, SECTORS);
            assert_eq!(rig.script.pending().len(), 1);
            rig.step(Answer::Obey);
            assert_eq!(chain.end(1), Some(chain.done(SECTORS)), "it was at the device");
            for n in 2..WRITES as usize {
                assert_eq!(chain.end(n), Some(aborted(1)), "write {n} had not gone out");
            }
            assert_eq!(rig.script.pending().iter().map(Seen::brief).collect::<Vec<_>>(), [(op, 1, 0, 0)]);
            rig.settle();
            let is_reset = op == Op::ZoneReset;
            assert_eq!(rig.ends([manage, after]), [DONE, if is_reset { DONE } else { full(1) }]);
            assert_eq!(rig.pointer(1), Some(if is_reset { SECTORS } else { CAPACITY }));
            assert_eq!(rig.asked().len(), if is_reset { 4 } else { 3 });
        }
    }
}

#[test]
fn u15_reset_all_follows_only_the_write_in_flight_in_each_zone() {
    // In mode qd1 the other zone would have no chain.
    for chain in Chain::all().into_iter().filter(|c| c.rig.volume.mode().0 != WriteMode::Qd1) {
        let rig = &chain.rig;
        let other = chain_in(rig, 2, chain.appends);
        let all = rig.submit(Request::reset_all());
        let after = [rig.write(1, 0, SECTORS), rig.append(2, SECTORS)];
        rig.step(Answer::Obey);
        assert_eq!(chain.end(2), Some(aborted(1)));
        assert_eq!(rig.end(other[2]), None, "its own write is still at the device");
        rig.step(Answer::Obey);
        assert!(rig.end(other[1]).unwrap().is_ok());
        for (n, &token) in other.iter().enumerate().skip(2) {
            assert_eq!((chain.end(n), rig.end(token)), (Some(aborted(1)), Some(aborted(2))));
        }
        let pending: Vec<_> = rig.script.pending().iter().map(|s| s.op).collect();
        assert_eq!(pending, [Op::ResetAll]);
        rig.settle();
        assert_eq!(rig.ends([all, after[0], after[1]]), [DONE, DONE, appended(rig, 2, 0)]);
    }
}

/// The assigned places are free again: the write pointer is behind the last issued write.
#[test]
fn u15_failed_reset_leaves_the_pointer_after_the_last_issued_write() {
    for chain in Chain::all() {
        let rig = &chain.rig;
        let reset = rig.reset(1);
        rig.step(Answer::Obey);
        rig.step(MEDIUM);
        assert_eq!(rig.end(reset), Some(failed(DeviceError::Medium)));
        assert_eq!(rig.pointer(1), Some(2 * SECTORS));
        let next = rig.write(1, 2 * SECTORS, SECTORS);
        rig.settle();
        assert_eq!(rig.end(next), Some(DONE));
    }
}

/// A reset needs no known write pointer, and the writes that it aborts are not reported as lost.
#[test]
fn u15_reset_behind_a_write_that_fails_aborts_the_chain_and_asks_for_nothing() {
    for chain in Chain::all() {
        let rig = &chain.rig;
        let reset = rig.reset(1);
        rig.step(MEDIUM);
        assert_eq!(chain.end(1), Some(failed(DeviceError::Medium)));
        assert_eq!(chain.end(2), Some(aborted(1)));
        rig.settle();
        assert_eq!((rig.end(reset), rig.resyncs(), rig.pointer(1)), (Some(DONE), 0, Some(0)));
    }
}

#[test]
fn u16_positional_writes_behind_one_that_fails_in_a_chain_fail_with_its_place() {
    for mode in PLUGGED {
        let chain = Chain::new(mode, false);
        let rig = &chain.rig;
        rig.step(Answer::Obey);
        rig.step(Answer::Torn(1, DeviceError::Medium));
        assert!(
            rig.script.pending()[0].resync,
            "nothing goes out before the device has said where it stands"
        );
        rig.settle();
        assert_eq!(chain.end(2), Some(failed(DeviceError::Medium)));
        for (n, offset) in [(3, 12), (4, 16), (5, 20)] {
            assert_eq!(chain.end(n), Some(lost(1, 9, offset)));
        }
        let next = rig.write(1, 9, SECTORS);
        rig.settle();
        assert_eq!((rig.end(next), rig.resyncs()), (Some(DONE), 1));
    }
}

#[test]
fn u16_appends_behind_one_that_fails_in_a_chain_go_on_in_their_order() {
    let chain = Chain::new(WriteMode::PerZone, true);
    let rig = &chain.rig;
    rig.step(Answer::Obey);
    rig.step(Answer::Torn(1, DeviceError::Medium));
    let later = rig.append(1, SECTORS);
    rig.settle();
    let error = DeviceError::Medium;
    let torn = RequestError::TornAppend { zone: ZoneIndex(1), offset: 8, sectors: 1, error };
    assert_eq!(chain.end(2), Some(refused(torn)));
    chain.assert_in_order(3, 9);
    assert_eq!(rig.end(later), Some(appended(rig, 1, 21)), "it came last");
    assert_eq!(rig.resyncs(), 1);
}

/// Appends fill the gap; positional writes behind the loss fail with the lost position.
#[test]
fn u16_mixed_chain_with_a_failure_ends_each_write_by_its_kind() {
    let rig = unmerged(script::info(), WriteMode::PerZone);
    let tokens =
        [0, 1, 2, 3, 4, 5].map(|n| if n % 2 == 1 { rig.append(1, 4) } else { rig.write(1, n * 4, 4) });
    rig.step(Answer::Obey);
    assert_promised(&rig, 1, 24);
    rig.step(MEDIUM);
    rig.settle();
    assert_eq!(
        rig.ends(tokens),
        [
            DONE,
            failed(DeviceError::Medium),
            lost(1, 4, 8),
            appended(&rig, 1, 4),
            lost(1, 4, 16),
            appended(&rig, 1, 8)
        ]
    );
}

#[test]
fn u16_resynchronisation_on_request_breaks_a_chain_and_nothing_is_lost() {
    for chain in Chain::all() {
        let rig = &chain.rig;
        rig.volume.resync(Nanos(0), ZoneIndex(1));
        let later = rig.write(1, END, SECTORS);
        rig.step(Answer::Obey);
        assert_eq!(chain.end(1), Some(chain.done(SECTORS)));
        assert!(rig.script.pending()[0].resync);
        let plug = rig.plug(1).map(|p| (p.pending, p.write_pointer));
        assert_eq!(plug, Some((WRITES - 2 + 1, 2 * SECTORS)), "what had not gone out waits again");
        rig.settle();
        chain.assert_in_order(0, 0);
        assert_eq!((rig.end(later), rig.resyncs()), (Some(DONE), 1));
    }
}

/// Another writer has written to the zone: appends continue at the new write pointer.
#[test]
fn u16_appends_of_a_broken_chain_go_where_the_zone_stands() {
    let chain = Chain::new(WriteMode::PerZone, true);
    let rig = &chain.rig;
    rig.volume.resync(Nanos(0), ZoneIndex(1));
    rig.step(Answer::Obey);
    rig.script.set_zone(1, ZoneCondition::Closed, 30);
    rig.settle();
    chain.assert_in_order(2, 30);
}

#[test]
fn u16_zeroes_in_a_chain_that_the_device_does_not_know_are_written_in_their_place() {
    for mode in PLUGGED {
        // At the head of the chain, in its middle, and at its end.
        for place in [1, 3, 5] {
            let rig = unmerged(script::info(), mode);
            let tokens = [0, 1, 2, 3, 4, 5].map(|n| {
                let zeroes = || rig.submit(Request::write_zeroes(rig.sector(1, n * SECTORS), SECTORS));
                if n == place { zeroes() } else { rig.write(1, n * SECTORS, SECTORS) }
            });
            rig.step(Answer::Obey);
            assert_promised(&rig, 1, END);
            for _ in 1..place {
                rig.step(Answer::Obey);
            }
            let unknown = rig.step(Answer::Refuse(DeviceError::Unsupported));
            assert_eq!(unknown.brief(), (Op::WriteZeroes, 1, place * SECTORS, SECTORS));
            rig.settle();
            assert_eq!(rig.ends(tokens), [DONE; 6], "zeroes at {place}");
            let writes: Vec<_> = rig.asked().into_iter().filter(|c| c.0 == Op::Write).map(|c| c.2).collect();
            assert_eq!(writes, [0, 4, 8, 12, 16, 20]);
            assert_eq!(rig.tags(1, place * SECTORS, SECTORS), [(0, 0); 4]);
            assert_eq!((rig.resyncs(), rig.pointer(1)), (1, Some(END)), "the pointer had moved at issue");
        }
    }
}

#[test]
fn u17_chain_interrupted_by_a_full_queue_continues_in_order() {
    for chain in Chain::all() {
        let rig = &chain.rig;
        for _ in 1..WRITES - 1 {
            rig.script.style(|_| Style::Busy);
            rig.step(Answer::Obey);
            assert_eq!((rig.script.pending(), rig.pointer(1)), (vec![], Some(END)));
            rig.script.style(|_| Style::Later);
            rig.rest();
            assert_eq!(rig.script.pending().len(), 1);
        }
        assert!(rig.script.turned_away() >= u64::from(WRITES) - 2);
        rig.settle();
        chain.assert_in_order(0, 0);
    }
}

/// Unissued writes wait for the switch and are issued by the rules of the new mode.
#[test]
fn u17_chain_interrupted_by_a_mode_switch_continues_in_the_new_mode() {
    for to in [WriteMode::PerZone, WriteMode::Qd1, WriteMode::Append] {
        for chain in Chain::all() {
            let rig = &chain.rig;
            rig.volume.switch_mode(Nanos(0), to).unwrap();
            let later = rig.append(1, SECTORS);
            rig.step(Answer::Obey);
            assert_eq!((chain.end(1), rig.volume.mode().0), (Some(chain.done(SECTORS)), to));
            rig.settle();
            chain.assert_in_order(0, 0);
            assert_eq!((rig.end(later), rig.resyncs()), (Some(appended(rig, 1, END)), 0));
            let native = rig.asked().iter().filter(|c| c.0 == Op::Append).count();
            let expected = match to {
                WriteMode::Append if chain.appends => 5,
                WriteMode::Append => 1,
                _ => 0,
            };
            assert_eq!(native, expected, "{to}");
        }
    }
}

/// The write kept by the full queue has been admitted and is issued; later writes are not.
#[test]
fn u17_reset_while_a_chain_meets_a_full_queue_waits_for_one_write() {
    for chain in Chain::all() {
        let rig = &chain.rig;
        rig.script.style(|_| Style::Busy);
        rig.step(Answer::Obey);
        let reset = rig.reset(1);
        rig.script.style(|_| Style::Later);
        rig.settle();
        assert_eq!((chain.end(2), rig.end(reset)), (Some(chain.done(8)), Some(DONE)));
        for n in 3..WRITES as usize {
            assert_eq!(chain.end(n), Some(aborted(1)));
        }
        assert_eq!(rig.asked().last(), Some(&(Op::ZoneReset, 1, 0, 0)));
        assert_eq!(rig.asked().len(), 4);
    }
}

/// Writes that complete inline, in two zones: a chain does not extend a zone's work budget, and
/// writes cut off from it are not lost.
#[test]
fn u17_chain_stops_at_the_work_budget_and_continues_next_turn() {
    const COUNT: u32 = 300;
    let geometry = Geometry::new(Sectors(8 * 512), Sectors(512), Sectors(0), 1).unwrap();
    for appends in [true, false] {
        let rig = unmerged(DeviceInfo { geometry, ..script::info() }, WriteMode::PerZone);
        let write = |zone, n| if appends { rig.append(zone, 1) } else { rig.write(zone, n, 1) };
        let writes: Vec<_> = (0..COUNT).map(|n| (n, [1, 2].map(|zone| (zone, write(zone, n))))).collect();
        let heads = rig.script.pending();
        rig.script.style(|_| Style::Now(Answer::Obey));
        heads.iter().for_each(|head| rig.script.finish(head.id, Answer::Obey));
        rig.rest();
        for (at, zones) in writes {
            for (zone, token) in zones {
                assert_eq!(rig.end(token), Some(if appends { appended(&rig, zone, at) } else { DONE }));
                rig.assert_written(zone, at, 1, token);
            }
        }
        let zones: Vec<_> = rig.asked().iter().map(|c| c.1).collect();
        let longest = zones.chunk_by(|a, b| a == b).map(<[u32]>::len).max().unwrap();
        assert!(longest <= zonal_io::volume::TURN_MAX, "{longest} commands of one zone at a stretch");
    }
}

#[test]
fn u17_dropped_volume_frees_the_buffers_of_a_chain() {
    let rig = unmerged(script::info(), WriteMode::PerZone);
    let pool = zonal_io::buffer::BufferPool::new(4096, 8);
    let channel = rig.volume.channel(drop);
    let write = |n: u32| {
        let buf = pool.take();
        let address = buf.as_ptr() as usize;
        rig.volume.submit(Nanos(0), &channel, Request::write(rig.sector(1, n * SECTORS), SECTORS, buf));
        address
    };
    let mut lent: Vec<_> = (0..WRITES).map(write).collect();
    rig.step(Answer::Obey);
    assert_promised(&rig, 1, END);
    let Rig { script, volume, channel: own, .. } = rig;
    drop((channel, own, volume));
    script.finish(script.pending()[0].id, Answer::Obey);
    zonal_io::device::Device::poll(&*script, Nanos(0), 0, 64, &mut drop);
    let buffers: Vec<_> = (0..WRITES).map(|_| pool.take()).collect();
    let mut again: Vec<_> = buffers.iter().map(|b| b.as_ptr() as usize).collect();
    lent.sort_unstable();
    again.sort_unstable();
    assert_eq!(again, lent, "every buffer is back in the pool");
}
