//! Limit on the bandwidth of an emulated device, as `mbps` of the Linux null block device.
//!
//! The device has one link, which transfers the data of reads, writes and appends one after the
//! other, in order of submission and at a fixed rate. A command completes at the time at which its
//! data has been transferred. The null block device instead refuses commands while the budget of a
//! period of 20 ms is used up; the mean rate is the same.

use crate::device::Command;
use crate::sync::{AtomicU64, Ordering};
use zonal_core::{Nanos, Op, SECTOR_BYTES};

/// Largest limit in MiB/s. The link's time in bytes then lasts for months.
pub(crate) const MBPS_MAX: u64 = 1_000_000;

const SECOND: u128 = 1_000_000_000;

/// The link; see the module.
pub(crate) struct Bandwidth {
    /// Rate in bytes per second.
    rate: u64,
    /// Time at which the link is free, in bytes that it transfers until then. In this unit nothing
    /// is rounded from one transfer to the next, so the rate is exact.
    free: AtomicU64,
}

impl Bandwidth {
    /// Link of `mbps` MiB/s; `None` for 0, which means no limit.
    pub(crate) fn of(mbps: u32) -> Option<Bandwidth> {
        (mbps != 0).then(|| Bandwidth { rate: u64::from(mbps) << 20, free: AtomicU64::new(0) })
    }

    /// Transfers the data of `command`, submitted at `now`. Returns the time of arrival.
    pub(crate) fn transfer(&self, now: Nanos, command: &Command) -> Nanos {
        if !matches!(command.op, Op::Read | Op::Write | Op::Append) {
            return now;
        }
        let bytes = u64::from(command.sectors) * SECTOR_BYTES;
        let begin = u64::try_from(u128::from(now.0) * u128::from(self.rate) / SECOND).unwrap_or(u64::MAX);
        let end = |free: u64| free.max(begin).saturating_add(bytes);
        let free = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| Some(end(free)));
        let arrival = u128::from(end(free.unwrap_or_else(|free| free))) * SECOND;
        Nanos(u64::try_from(arrival.div_ceil(self.rate.into())).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_core::Sector;

    fn read(sectors: u32) -> Command {
        Command::new(Op::Read, Sector(0), sectors)
    }

    /// 3 MiB/s: a sector takes 162760.4 ns.
    #[test]
    fn rate_is_exact_however_small_the_transfers() {
        let link = Bandwidth::of(3).unwrap();
        let mut last = Nanos(0);
        for _ in 0..3 * 2048 {
            last = link.transfer(Nanos(0), &read(1));
        }
        assert_eq!(last, Nanos(1_000_000_000));
        assert_eq!(link.transfer(Nanos(0), &read(3 * 2048)), Nanos(2_000_000_000));
        assert!(Bandwidth::of(0).is_none());
    }

    #[test]
    fn idle_link_saves_nothing_up() {
        let link = Bandwidth::of(1).unwrap();
        assert_eq!(link.transfer(Nanos(5_000_000_000), &read(1024)), Nanos(5_500_000_000));
        assert_eq!(link.transfer(Nanos(5_100_000_000), &read(1024)), Nanos(6_000_000_000));
        assert_eq!(link.transfer(Nanos(9_000_000_000), &read(1024)), Nanos(9_500_000_000));
        let flush = Command::new(Op::Flush, Sector(0), 0);
        assert_eq!(link.transfer(Nanos(9_000_000_000), &flush), Nanos(9_000_000_000), "no data");
    }

    #[test]
    fn end_of_time_is_no_overflow() {
        let link = Bandwidth::of(MBPS_MAX as u32).unwrap();
        assert!(link.transfer(Nanos(u64::MAX), &read(u32::MAX)).0 > 1 << 40);
    }
}
