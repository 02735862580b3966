//! Clock shared by all jobs of the process, because they share volumes.

use quanta::{Clock, Instant};
use std::sync::OnceLock;
use zonal_core::Nanos;

struct Origin {
    clock: Clock,
    raw: u64,
}

static ORIGIN: OnceLock<Origin> = OnceLock::new();

fn origin() -> &'static Origin {
    ORIGIN.get_or_init(|| {
        let clock = Clock::new();
        let raw = clock.raw();
        Origin { clock, raw }
    })
}

/// Time since the first call.
#[inline]
pub(crate) fn now() -> Nanos {
    let origin = origin();
    Nanos(origin.clock.delta_as_nanos(origin.raw, origin.clock.raw()))
}

/// This clock, for calls that wait.
pub(crate) const CLOCK: zonal_io::clock::Clock = zonal_io::clock::Clock::read_by(now);

/// Present time for time-outs, independent of the devices' time.
pub(crate) fn instant() -> Instant {
    Instant::now()
}
