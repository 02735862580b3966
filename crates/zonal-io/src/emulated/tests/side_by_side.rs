//! Commands that proceed during a slow transfer of another.

use super::*;
use crate::emulated::{Extent, Locking, Storage};
use crate::linear::Linear;
use crate::trace::Trace;
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

/// Holds writes to zone 1 until released, and keeps no data.
struct Held {
    arrived: Barrier,
    leave: Barrier,
}

impl Storage for Arc<Held> {
    const KEEPS_DATA: bool = true;

    fn write(&self, to: Extent, _: &Data) -> Result<(), DeviceError> {
        if to.zone == ZoneIndex(1) {
            self.arrived.wait();
            self.leave.wait();
        }
        Ok(())
    }

    fn write_zeroes(&self, to: Extent) -> Result<(), DeviceError> {
        self.write(to, &Data::NONE)
    }

    fn read(&self, _: Extent, _: &Data) -> Result<(), DeviceError> {
        Ok(())
    }

    fn punch(&self, _: Extent) {}

    fn discard(&self, _: ZoneIndex, _: u32) {}
}

/// Runs all commands that need not wait while a write to zone 1 is held.
fn others(d: &dyn Device) {
    read(d, 64, 8).unwrap();
    read(d, 2 * 64, 8).unwrap();
    write_filled(d, 2 * 64, 8, 1).unwrap();
    transfer(d, Op::Append, 3 * 64, &mut [0; 512]).unwrap();
    act(d, Op::ZoneFinish, 2 * 64, 0).unwrap();
    assert_eq!(shape(d, 1), imp_open(8));
}

#[test]
fn h51_reads_and_other_zones_go_on_while_data_moves() {
    let limited = EmulatedOptions { zone_max_open: 3, zone_max_active: 3, ..small() };
    for options in [small(), limited.clone(), polled(small()), polled(limited)] {
        let held = Arc::new(Held { arrived: Barrier::new(2), leave: Barrier::new(2) });
        let d = Emulated::new("held", &options, held.clone()).unwrap();
        let mut slow = vec![1; 8 * 512];
        let write = Command { data: data(&mut slow), ..command(Op::Write, 64, 8) };
        let went_on = std::thread::scope(|s| {
            s.spawn(|| d.submit(Nanos(0), 0, &write, &mut Some(Context::token(1))));
            held.arrived.wait();
            let (over, news) = mpsc::channel();
            let d = &d;
            s.spawn(move || {
                others(d);
                over.send(()).unwrap();
            });
            // Far longer than needed; only a failing test waits this long.
            let went_on = news.recv_timeout(Duration::from_secs(5));
            held.leave.wait();
            went_on
        });
        assert_eq!(went_on, Ok(()), "{options:?}");
    }
}

/// Number of waits of commands submitted while a write to another zone was held for at most `time`,
/// or until they were done.
fn waits_behind_a_held_write(options: &EmulatedOptions, time: Duration) -> u64 {
    let held = Arc::new(Held { arrived: Barrier::new(2), leave: Barrier::new(2) });
    let d = Arc::new(Emulated::new("held", options, held.clone()).unwrap());
    // Wrappers have to forward the device's counters.
    let seen = Linear::concat([Arc::new(Trace::to_memory(d.clone()).0) as Arc<dyn Device>]).unwrap();
    let mut slow = vec![1; 8 * 512];
    let write = Command { data: data(&mut slow), ..command(Op::Write, 64, 8) };
    std::thread::scope(|s| {
        s.spawn(|| d.submit(Nanos(0), 0, &write, &mut Some(Context::token(1))));
        held.arrived.wait();
        let other = s.spawn(|| {
            d.submit(Nanos(0), 0, &command(Op::Flush, 0, 0), &mut Some(Context::token(2)));
        });
        let end = Instant::now() + time;
        while !other.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        held.leave.wait();
        other.join().unwrap();
    });
    seen.insight().contention.waits
}

#[test]
fn contention_one_lock_is_counted_when_found_taken_and_a_lock_a_zone_is_not() {
    assert_eq!(waits_behind_a_held_write(&small(), Duration::from_secs(5)), 0);
    let one_lock = EmulatedOptions { lock: Locking::Device, ..small() };
    for options in [one_lock.clone(), polled(one_lock)] {
        // On a busy machine the thread of the flush may take long to reach the lock.
        let times = (5..13).map(|n| Duration::from_millis(1 << n));
        assert!(times.map(|time| waits_behind_a_held_write(&options, time)).any(|waits| waits == 1));
    }
}
