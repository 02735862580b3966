//! Limits on commands in flight together, observed just below the volume.

use crate::random::tap::{Observer, Seen};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use zonal_core::{Geometry, Op};
use zonal_io::device::CommandResult;
use zonal_io::volume::{Volume, WriteMode};

/// Commands of one zone in flight.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Zone {
    positional: u32,
    appends: u32,
    management: u32,
}

#[derive(Default)]
struct GuardState {
    zones: BTreeMap<u32, Zone>,
    wrong: Option<String>,
    failures: BTreeMap<u64, Failures>,
}

/// Failures of commands with one request's data.
#[derive(Clone, Copy, Default, Debug)]
pub struct Failures {
    /// Number of failed commands.
    pub count: u32,
    /// Step of the last of them.
    pub last: u64,
}

/// Records the first command that should not have been issued.
pub struct Guard {
    geometry: Geometry,
    /// Source of the current mode. Set once the volume is open.
    volume: OnceLock<Weak<Volume>>,
    state: Mutex<GuardState>,
}

impl Guard {
    pub fn new(geometry: Geometry) -> Guard {
        Guard { geometry, volume: OnceLock::new(), state: Mutex::default() }
    }

    pub fn watch(&self, volume: &Arc<Volume>) {
        let _ = self.volume.set(Arc::downgrade(volume));
    }

    /// First violation.
    pub fn verdict(&self) -> Result<(), String> {
        self.state.lock().wrong.clone().map_or(Ok(()), Err)
    }

    /// Failures of commands with this request's data.
    pub fn failures(&self, token: u64) -> Failures {
        self.state.lock().failures.get(&token).copied().unwrap_or_default()
    }

    fn mode(&self) -> Option<WriteMode> {
        Some(self.volume.get()?.upgrade()?.mode().0)
    }

    /// Sequential zones that a command changes.
    fn zones_of(&self, seen: &Seen) -> Vec<u32> {
        let g = &self.geometry;
        match seen.op {
            Op::ResetAll => (g.conventional_zones()..g.zones()).collect(),
            op if op.is_write() || matches!(op, Op::ZoneReset | Op::ZoneFinish) => {
                let zone = g.zone_of(seen.sector);
                if g.is_conventional(zone) { Vec::new() } else { vec![zone.0] }
            }
            _ => Vec::new(),
        }
    }

    fn count(&self, seen: &Seen, by: i32) {
        let mut state = self.state.lock();
        for zone in self.zones_of(seen) {
            let counts = state.zones.entry(zone).or_default();
            let count = match seen.op {
                Op::Write | Op::WriteZeroes => &mut counts.positional,
                Op::Append => &mut counts.appends,
                _ => &mut counts.management,
            };
            *count = count.saturating_add_signed(by);
        }
    }
}

/// Describes the violation if these commands of one zone may not be in flight together in this
/// mode.
fn problem(zone: Zone, mode: WriteMode) -> Option<&'static str> {
    let Zone { positional, appends, management } = zone;
    match () {
        () if mode == WriteMode::Direct => None,
        () if positional > 1 && mode != WriteMode::Pipelined => Some("two positional writes of a zone"),
        () if positional > 0 && appends > 0 => Some("a positional write beside an append"),
        () if appends > 0 && mode != WriteMode::Append => {
            Some("a native append in a mode that emulates them")
        }
        () if management > 1 => Some("two resets of a zone"),
        () if management > 0 && positional + appends > 0 => Some("a write beside a reset"),
        () => None,
    }
}

impl Observer for Guard {
    fn begins(&self, seen: &Seen) {
        self.count(seen, 1);
        let Some(mode) = self.mode() else { return };
        let mut state = self.state.lock();
        let mut wrong = None;
        for zone in self.zones_of(seen) {
            wrong = wrong.or(problem(state.zones[&zone], mode));
        }
        let writes: u32 = state.zones.values().map(|z| z.positional + z.appends).sum();
        if seen.op.is_write() && mode == WriteMode::Qd1 && writes > 1 && !self.zones_of(seen).is_empty() {
            wrong = wrong.or(Some("two writes of the device"));
        }
        if let Some(what) = wrong {
            let zone = self.geometry.zone_of(seen.sector);
            state.wrong.get_or_insert(format!("{what} in mode {mode}, zone {zone}, event {}", seen.began));
        }
    }

    fn is_busy(&self, seen: &Seen) {
        self.count(seen, -1);
    }

    fn ends(&self, seen: &Seen, result: &CommandResult) {
        self.count(seen, -1);
        if result.is_err() {
            let tokens: std::collections::BTreeSet<u64> = seen.tags.iter().map(|t| t.0).collect();
            let mut state = self.state.lock();
            for token in tokens {
                let failures = state.failures.entry(token).or_default();
                (failures.count, failures.last) = (failures.count + 1, seen.began);
            }
        }
    }
}
