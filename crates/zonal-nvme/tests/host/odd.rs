//! Device with failing reports, a modified size and a count of flushes.

use super::ask::RAM;
use super::target_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zonal_core::{DeviceError, Nanos, Op, ZoneError};
use zonal_io::changes::{Changes, Notices};
use zonal_io::device::{Command, Context, Device, DeviceInfo, Submitted, Wrapper};
use zonal_io::registry::Registry;
use zonal_nvme::subsystem::Target;

/// Device wrapper with faults.
pub struct Odd {
    pub inner: Arc<dyn Device>,
    pub info: DeviceInfo,
    pub fails_reports: AtomicBool,
    pub flushes: AtomicU64,
    /// Number of zones that can be opened before it reports too many.
    pub opens: AtomicU64,
    pub notices: Notices,
}

impl Wrapper for Odd {
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
        let fails = self.fails_reports.load(Ordering::Relaxed);
        self.flushes.fetch_add(u64::from(command.op == Op::Flush), Ordering::Relaxed);
        let opens = command.op == Op::ZoneOpen;
        if opens
            && self.opens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_err()
        {
            return Submitted::Done(Err(DeviceError::Zone(ZoneError::TooManyOpen)));
        }
        match command.op == Op::Report && fails {
            true => Submitted::Done(Err(DeviceError::Medium)),
            false => self.inner.submit(now, queue, command, context),
        }
    }

    fn has_changes(&self) -> bool {
        self.notices.are_there()
    }

    fn take_changes(&self, into: &mut Changes) {
        self.notices.take(into);
    }

    fn has_news(&self, queue: usize) -> bool {
        self.notices.are_there() || self.inner.has_news(queue)
    }
}

pub fn odd(change: impl FnOnce(&mut DeviceInfo)) -> (Arc<Odd>, Arc<Target>) {
    odd_over(RAM, change)
}

pub fn odd_over(device: &str, change: impl FnOnce(&mut DeviceInfo)) -> (Arc<Odd>, Arc<Target>) {
    let inner = Registry::default().open(device).unwrap();
    let mut info = inner.info().clone();
    change(&mut info);
    let (fails_reports, flushes, opens) = (false.into(), 0.into(), u64::MAX.into());
    let odd = Arc::new(Odd { inner, info, fails_reports, flushes, opens, notices: Notices::default() });
    (odd.clone(), target_of(odd))
}
