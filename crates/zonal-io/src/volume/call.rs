//! Blocking requests.

use super::watch::ThreadWait;
use super::{Completion, Inbox, Request, Volume};
use crate::clock::Clock;
use zonal_core::{RequestError, Sector, ZoneDescriptor};

impl Volume {
    /// Submits `request` and waits for its completion, polling meanwhile. For rare requests, and
    /// for threads that have nothing else to do. `clock` has to be the clock of the volume's other
    /// callers.
    ///
    /// Not inside a completion function: other channels' completions on this thread would wait as
    /// well.
    ///
    /// ```
    /// use zonal_core::Op;
    /// use zonal_core::Sector;
    /// use zonal_io::clock::Clock;
    /// use zonal_io::registry::Registry;
    /// use zonal_io::volume::{Request, Volume, VolumeOptions};
    ///
    /// let device = Registry::default().open("ram:size=64M,zone_size=1M")?;
    /// let volume = Volume::open(device, VolumeOptions::default())?;
    /// let finished = volume.call(&Clock::start(), Request::zone(Op::ZoneFinish, Sector(0)));
    /// assert!(finished.result.is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call(&self, clock: &Clock, request: Request) -> Completion {
        self.call_with(clock, &self.inbox(), request)
    }

    /// Like [`Volume::call`], with an empty inbox of the caller.
    pub(super) fn call_with(&self, clock: &Clock, inbox: &Inbox, request: Request) -> Completion {
        self.submit(clock.now(), inbox.channel(), request.awaited());
        let mut waiter = ThreadWait::new(self);
        loop {
            if let Some(completion) = inbox.take() {
                return completion;
            }
            waiter.poll(clock.now(), || !inbox.is_empty());
        }
    }

    /// Reports up to `zones` zones, from the zone that contains `sector`. Blocks until the report
    /// is complete.
    ///
    /// # Errors
    /// The request's error.
    pub fn report(
        &self,
        clock: &Clock,
        sector: Sector,
        zones: u32,
    ) -> Result<Box<[ZoneDescriptor]>, RequestError> {
        self.call(clock, Request::report(sector, zones)).into_zones()
    }
}
