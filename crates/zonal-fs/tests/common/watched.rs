//! A device that records its commands.

use parking_lot::Mutex;
use std::sync::Arc;
use zonal_core::{Nanos, Op, Sector};
use zonal_io::device::{Command, Context, Device, DeviceInfo, Submitted, Wrapper};

/// A recorded command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    pub op: Op,
    pub sector: Sector,
    pub sectors: u32,
}

/// A device that records its commands.
pub struct Watched {
    inner: Arc<dyn Device>,
    seen: Mutex<Vec<Seen>>,
    info: DeviceInfo,
}

impl Watched {
    pub fn new(inner: Arc<dyn Device>) -> Watched {
        // Without a cache there would be no flushes.
        let info = DeviceInfo { volatile_cache: true, ..inner.info().clone() };
        Watched { inner, seen: Mutex::default(), info }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }
}

impl Wrapper for Watched {
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
        self.seen.lock().push(Seen { op: command.op, sector: command.sector, sectors: command.sectors });
        self.inner.submit(now, queue, command, context)
    }
}
