//! Options that can change while the volume is open.
//!
//! Writes read them with relaxed loads, which cost no more than a plain field. No ordering is
//! needed: a write that reads the old value counts as submitted before the change. The exception is
//! the window of mode `pipelined`: two writes of a zone with different windows could reach the
//! device out of order. It therefore changes only while every zone is quiet, like the mode.
//!
//! The atomics are those of the standard library even under a model checker, since no thread waits
//! for them.

use super::mode::{SwitchError, WriteMode};
use super::options::{OptionChanges, OptionKey, SchedulerKind, SetBy, Setters, VolumeOptions};
use super::token::Qd1Quantum;
use super::{BudgetOptions, DeviceInfo, Volume};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use zonal_core::Nanos;
use zonal_core::plug::{IN_FLIGHT_MAX, ParkOptions};

/// Error of [`Volume::set_options`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The volume cannot switch to the mode.
    #[error(transparent)]
    Mode(#[from] SwitchError),
    /// The mode sends commands in an order of its own.
    #[error("mode {mode} takes no scheduler; open the device in mode per-zone, qd1, pipelined or append")]
    NoScheduler {
        /// The mode in force.
        mode: WriteMode,
    },
    /// The budget counts open zones from the start, so it is fixed when the volume is opened.
    #[error("the budget cannot be changed while the volume is open")]
    Budget,
}

/// Options in force, as read by every write.
pub(super) struct Settings {
    merge_sectors_max: AtomicU32,
    window: AtomicU32,
    /// Window to adopt at the next quiet moment; 0: no change.
    window_next: AtomicU32,
    is_forced: AtomicBool,
    quantum_bytes: AtomicU64,
    quantum_nanos: AtomicU64,
    /// 0: parking is off.
    park_sectors_max: AtomicU32,
    park_nanos: AtomicU64,
    nr_requests: AtomicU32,
    scheduler: AtomicU8,
    setters: [AtomicU8; OptionKey::ALL.len()],
    /// Largest command of merged writes, if merging is on.
    command_sectors_max: u32,
    budget: Option<BudgetOptions>,
}

impl Settings {
    pub(super) fn new(info: &DeviceInfo, options: &VolumeOptions) -> Settings {
        let park = options.park.unwrap_or(ParkOptions::default().with_sectors_max(0).with_time(Nanos(0)));
        Settings {
            merge_sectors_max: AtomicU32::new(if options.merge { info.command_sectors_max } else { 0 }),
            window: AtomicU32::new(options.window.clamp(1, IN_FLIGHT_MAX)),
            window_next: AtomicU32::new(0),
            is_forced: AtomicBool::new(options.force),
            quantum_bytes: AtomicU64::new(options.qd1_quantum.bytes),
            quantum_nanos: AtomicU64::new(options.qd1_quantum.time.0),
            park_sectors_max: AtomicU32::new(park.sectors_max),
            park_nanos: AtomicU64::new(park.time.0),
            nr_requests: AtomicU32::new(options.nr_requests.max(1)),
            scheduler: AtomicU8::new(options.scheduler as u8),
            setters: OptionKey::ALL.map(|key| AtomicU8::new(options.setters.of(key) as u8)),
            command_sectors_max: info.command_sectors_max,
            budget: options.budget,
        }
    }

    /// Size limit of a merged command, in sectors; 0: merging is off.
    #[inline]
    pub(super) fn merge_sectors_max(&self) -> u32 {
        self.merge_sectors_max.load(Relaxed)
    }

    #[inline]
    pub(super) fn window(&self) -> u32 {
        self.window.load(Relaxed)
    }

    #[inline]
    pub(super) fn qd1_quantum(&self) -> Qd1Quantum {
        Qd1Quantum { bytes: self.quantum_bytes.load(Relaxed), time: Nanos(self.quantum_nanos.load(Relaxed)) }
    }

    pub(super) fn is_forced(&self) -> bool {
        self.is_forced.load(Relaxed)
    }

    /// Limits of parking. Zero once parking is switched off; writes already parked keep their
    /// deadline.
    pub(super) fn park(&self) -> ParkOptions {
        ParkOptions::default()
            .with_sectors_max(self.park_sectors_max.load(Relaxed))
            .with_time(Nanos(self.park_nanos.load(Relaxed)))
    }

    /// Number of tags of the scheduler of mode `zone-lock`.
    pub(super) fn nr_requests(&self) -> u32 {
        self.nr_requests.load(Relaxed)
    }

    /// Scheduler between the plugs and the device.
    pub(super) fn scheduler(&self) -> SchedulerKind {
        SchedulerKind::ALL[usize::from(self.scheduler.load(Relaxed))]
    }

    /// Puts a changed window into force. Called while every zone is quiet.
    pub(super) fn adopt_window(&self) {
        match self.window_next.swap(0, Relaxed) {
            0 => {}
            next => self.window.store(next, Relaxed),
        }
    }

    fn change(&self, changes: &OptionChanges) {
        if let Some(merge) = changes.merge {
            self.merge_sectors_max.store(if merge { self.command_sectors_max } else { 0 }, Relaxed);
        }
        if let Some(quantum) = changes.qd1_quantum {
            self.quantum_bytes.store(quantum.bytes, Relaxed);
            self.quantum_nanos.store(quantum.time.0, Relaxed);
        }
        if let Some(force) = changes.force {
            self.is_forced.store(force, Relaxed);
        }
        if let Some(tags) = changes.nr_requests {
            self.nr_requests.store(tags.max(1), Relaxed);
        }
        if let Some(scheduler) = changes.scheduler {
            self.scheduler.store(scheduler as u8, Relaxed);
        }
        match changes.park {
            Some(Some(park)) => {
                self.park_nanos.store(park.time.0, Relaxed);
                self.park_sectors_max.store(park.sectors_max, Relaxed);
            }
            Some(None) => self.park_sectors_max.store(0, Relaxed),
            None => {}
        }
        for key in changes.keys() {
            self.setters[key as usize].store(SetBy::Running as u8, Relaxed);
        }
    }
}

impl Volume {
    /// Options in force and the origin of each. The reason for the mode is in [`Volume::mode`].
    pub fn options(&self) -> VolumeOptions {
        let settings = &self.terms.settings;
        let mut setters = Setters::default();
        for (key, setter) in OptionKey::ALL.into_iter().zip(&settings.setters) {
            setters.set(key, SetBy::from_number(setter.load(Relaxed)));
        }
        VolumeOptions {
            mode: Some(self.terms.policy.mode()),
            merge: settings.merge_sectors_max() > 0,
            qd1_quantum: settings.qd1_quantum(),
            window: settings.window(),
            force: settings.is_forced(),
            nr_requests: settings.nr_requests(),
            scheduler: settings.scheduler(),
            budget: settings.budget.filter(|_| self.slots.are_counted()),
            park: Some(settings.park()).filter(|park| park.sectors_max > 0),
            setters,
        }
    }

    /// Changes options while the volume is open. The mode, and in mode `pipelined` the window, take
    /// effect once all commands in flight have completed, which requires polls; [`Volume::options`]
    /// shows the current values. Other options take effect at once. On error nothing is changed.
    ///
    /// # Errors
    /// [`SetError`] if an option cannot be changed, or the device does not support the mode.
    pub fn set_options(&self, changes: &OptionChanges) -> Result<(), SetError> {
        if changes.budget.is_some() {
            return Err(SetError::Budget);
        }
        let now = self.terms.policy.mode();
        let mode = changes.mode.unwrap_or(now);
        if changes.scheduler.is_some_and(|wanted| wanted != SchedulerKind::None) && !now.takes_scheduler() {
            return Err(SetError::NoScheduler { mode: now });
        }
        let force = changes.force.unwrap_or(self.terms.settings.is_forced());
        if changes.mode.is_some() {
            self.may_switch(mode, force)?;
        }
        self.terms.settings.change(changes);
        if let (Some(front), Some(_)) = (&self.front, changes.nr_requests) {
            front.request_dispatch();
        }
        if changes.park.is_some() {
            // The deadlines of parked writes may be earlier now.
            self.parking.request_check();
        }
        if changes.nr_requests.is_some() || changes.park.is_some() {
            self.alarm.ring();
        }
        let is_quiet_needed = [now, mode].contains(&WriteMode::Pipelined);
        match changes.window {
            Some(window) if is_quiet_needed => self.terms.settings.window_next.store(window, Relaxed),
            Some(window) => self.terms.settings.window.store(window, Relaxed),
            None => {}
        }
        if changes.mode.is_some() || changes.window.is_some() && is_quiet_needed {
            self.request_mode(mode, force)?;
        }
        Ok(())
    }
}
