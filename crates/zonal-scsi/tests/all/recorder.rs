//! Commands at the device, for behaviour invisible to an initiator: flushes, durable writes, and
//! commands that are not sent.

use crate::rig::{DRIVE, Rig, parse};
use std::sync::{Arc, Mutex};
use zonal_core::{Nanos, Op, ZoneCondition};
use zonal_io::device::{Command, Context, Device, DeviceInfo, Submitted, Wrapper};
use zonal_io::registry::Registry;
use zonal_scsi::sense::SenseCode;
use zonal_scsi::wire::*;

/// Device that claims a volatile cache and records its commands. It completes flushes itself.
struct Recorder {
    inner: Arc<dyn Device>,
    info: DeviceInfo,
    seen: Arc<Mutex<Vec<(Op, bool, u32)>>>,
}

impl Wrapper for Recorder {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        self.seen.lock().unwrap().push((command.op, command.fua, command.sectors));
        match command.op {
            Op::Flush => Submitted::Done(Ok(zonal_io::device::Output::Done)),
            _ => self.inner.submit(now, queue, command, context),
        }
    }
}

/// Rig over `drive`, and the commands recorded by its device.
struct Recorded {
    rig: Rig,
    seen: Arc<Mutex<Vec<(Op, bool, u32)>>>,
}

impl Recorded {
    fn new(drive: &str) -> Recorded {
        let inner = Registry::default().open(drive).unwrap();
        let info = DeviceInfo { volatile_cache: true, ..inner.info().clone() };
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let rig = Rig::over(Arc::new(Recorder { inner, info, seen: seen.clone() }));
        seen.lock().unwrap().clear();
        Recorded { rig, seen }
    }

    /// Commands recorded since the last call.
    fn take(&self) -> Vec<(Op, bool, u32)> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

#[test]
fn write_is_durable_if_it_asks_for_that() {
    let mut recorded = Recorded::new(DRIVE);
    for fua in [false, true] {
        recorded.rig.ask(Write { lba: 0, blocks: 2, fua }.emit(), &[1; 1024], 0).good();
        assert_eq!(recorded.take(), [(Op::Write, fua, 2)]);
    }
    let data = recorded.rig.data(cdb_of(&ModeSense6 { page: 8, len: 64, ..ModeSense6::default() }), 64);
    assert!(parse::<CachingPage>(&data[12..]).flags & 4 != 0);
}

#[test]
fn synchronizing_and_stopping_flush() {
    let mut recorded = Recorded::new(DRIVE);
    let flush = [(Op::Flush, false, 0)];
    recorded.rig.ask(SynchronizeCache { lba: 8, blocks: 8, is_immediate: true }.emit(), &[], 0).good();
    assert_eq!(recorded.take(), flush);
    recorded.rig.ask(cdb_of(&StartStopUnit::default()), &[], 0).good();
    assert_eq!(recorded.take(), flush);
    let start = StartStopUnit { flags: bits::START, ..StartStopUnit::default() };
    let quick = StartStopUnit { flags: bits::NO_FLUSH, ..StartStopUnit::default() };
    for command in [start, quick] {
        recorded.rig.ask(cdb_of(&command), &[], 0).good();
        assert_eq!(recorded.take(), []);
    }
}

#[test]
fn reset_of_all_zones_is_one_command() {
    let mut recorded = Recorded::new(DRIVE);
    let zone = recorded.rig.zone_blocks();
    recorded.rig.must_write(6 * zone, 1, 1);
    recorded.take();
    recorded.rig.act_on_all(ZoneAction::Reset).good();
    assert_eq!(recorded.take().iter().map(|(op, ..)| *op).collect::<Vec<_>>(), [Op::ResetAll]);
    assert_eq!(recorded.rig.condition(6), ZoneCondition::Empty);
}

/// A range longer than one piece is discarded completely.
#[test]
fn unmap_of_a_long_range_discards_all_of_it() {
    let mut recorded = Recorded::new("null:size=8G,zone_size=256M,zone_nr_conv=12");
    let range = UnmapRange { lba: 5, blocks: 5 << 20 };
    let list = UnmapList { ranges: vec![range, UnmapRange { lba: (6 << 20) - 7, blocks: 7 }] }.emit();
    recorded.rig.ask(cdb_of(&Unmap { len: (list.len() as u16).into(), ..Unmap::default() }), &list, 0).good();
    let seen = recorded.take();
    assert!(seen.iter().all(|(op, ..)| *op == Op::Discard), "{seen:?}");
    assert_eq!(seen.iter().map(|(.., sectors)| u64::from(*sectors)).sum::<u64>(), (5 << 20) + 7);
}

/// Four zones are open, five are closed, and eight may be open: none is tried.
#[test]
fn opening_of_too_many_zones_tries_none() {
    let mut recorded = Recorded::new(DRIVE);
    let zone = recorded.rig.zone_blocks();
    for n in 10..15 {
        recorded.rig.must_write(n * zone, 1, 1);
        recorded.rig.act(ZoneAction::Close, n * zone).good();
    }
    for n in 20..24 {
        recorded.rig.act(ZoneAction::Open, n * zone).good();
    }
    recorded.take();
    recorded.rig.act_on_all(ZoneAction::Open).fails_with(SenseCode::INSUFFICIENT_ZONE_RESOURCES);
    let seen = recorded.take();
    assert!(!seen.is_empty() && seen.iter().all(|(op, ..)| *op == Op::Report), "{seen:?}");
}

/// Write-protected or invalid commands do not reach the device.
#[test]
fn refused_commands_reach_no_device() {
    let mut recorded = Recorded::new(DRIVE);
    let zone = recorded.rig.zone_blocks();
    recorded.rig.write(4 * zone - 1, &[0; 1024]).fails_with(SenseCode::WRITE_BOUNDARY_VIOLATION);
    recorded.rig.act(ZoneAction::Reset, 5 * zone + 1).is_wrong_at(2);
    recorded.rig.ask_lun(3, Read { lba: 0, blocks: 1, fua: false }.emit(), &[], 512);
    assert_eq!(recorded.take(), []);
}
