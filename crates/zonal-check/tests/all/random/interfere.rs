//! Interference with the requests of a run: callers cancel, leave and return, an operator changes
//! modes and options, the drive loses zones and restores them. Also requests that no sensible
//! caller makes.

use crate::random::load::Run;
use rand::RngExt;
use zonal_core::{Op, Sector, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::changes::ZoneSetting;
use zonal_io::volume::{OptionChanges, Request};

/// Options that can be changed on a running volume, at the limits of their ranges.
const OPTIONS: [&str; 14] = [
    "window=1",
    "window=255",
    "nr_requests=1",
    "nr_requests=65536",
    "scheduler=none",
    "scheduler=mq-deadline",
    "qd1_quantum=0",
    "qd1_quantum=1,1ns",
    "merge=no",
    "merge=yes",
    "park=none",
    "park=1,1ns",
    "park=1M,1s",
    "park=64k,1ms",
];

/// States to set a zone to. Restored occurs twice, otherwise all zones would be lost soon.
const SETTINGS: [ZoneSetting; 4] =
    [ZoneSetting::ReadOnly, ZoneSetting::Offline, ZoneSetting::Restored, ZoneSetting::Restored];

/// Operations that name sectors or zones.
const ADDRESSED: [Op; 11] = [
    Op::Read,
    Op::Write,
    Op::Append,
    Op::WriteZeroes,
    Op::Verify,
    Op::Discard,
    Op::Report,
    Op::ZoneReset,
    Op::ZoneFinish,
    Op::ZoneOpen,
    Op::ZoneOffline,
];

/// Longer than all time limits of the stack together.
const LONG: u64 = 2_000_000_000;

/// Requests longer than this have no memory: they are refused because of their range.
pub const SECTORS_MAX: u32 = 4096;

impl Run {
    /// Draws once for each kind of interference, after a request of submitter `by`.
    pub fn interfere(&mut self, by: usize) {
        if self.rng.random_ratio(1, 60) && !self.setup.plan.rules.is_empty() {
            self.set_zone();
        }
        if self.rng.random_ratio(1, 60) && self.setup.modes.len() > 1 {
            let mode = self.setup.modes[self.rng.random_range(0..self.setup.modes.len())];
            let switched = match self.rng.random_ratio(1, 2) {
                true => self.volume.switch_mode_anyway(self.now(), mode),
                false => self.volume.request_mode(mode, true),
            };
            switched.expect("the device can do it");
        }
        if self.rng.random_ratio(1, 60) {
            let text = OPTIONS[self.rng.random_range(0..OPTIONS.len())];
            let changes: OptionChanges = text.parse().expect("an option");
            if changes.scheduler.is_none() || self.volume.mode().0.takes_scheduler() {
                self.volume.set_options(&changes).expect("one that a running volume takes");
            }
        }
        if self.rng.random_ratio(1, 50) {
            self.withdraw(by);
        }
        if self.rng.random_ratio(1, 80) {
            let left = self.rng.random_range(0..self.setup.faces.len());
            let is_cancelled = self.rng.random_ratio(1, 2);
            self.leave(left, is_cancelled);
        }
        if self.rng.random_ratio(1, 100) {
            self.step(LONG);
        }
    }

    /// Makes a zone read-only or offline, or restores it.
    fn set_zone(&mut self) {
        let zone = ZoneIndex(self.rng.random_range(0..self.volume.info().geometry.zones()));
        let to = SETTINGS[self.rng.random_range(0..SETTINGS.len())];
        // Fails for a conventional zone, for an offline zone that should become read-only, and for
        // a zone that finds no slot.
        let _ = self.volume.device().set_zone(zone, to);
    }

    /// A request that no sensible caller makes, or few callers do.
    pub fn odd_request(&mut self) -> Request {
        let g = self.volume.info().geometry;
        let zone = self.rng.random_range(0..g.zones());
        let start = self.sector(zone, 0);
        let sectors = self.rng.random_range(1..=20);
        let anywhere = Sector(self.rng.random_range(0..g.sectors().0));
        match self.rng.random_range(0..10) {
            0 => Request::zone(Op::ZoneOffline, start),
            1 => Request::write(anywhere, 6 * sectors, IoBuf::empty()),
            2 => Request { op: Op::Verify, ..Request::read(anywhere, sectors, IoBuf::empty()) },
            3..6 => {
                let conventional = g.start_of(ZoneIndex(g.conventional_zones().min(g.zones() - 1))).0;
                let at = Sector(self.rng.random_range(0..=conventional));
                Request { op: Op::Discard, ..Request::read(at, sectors, IoBuf::empty()) }
            }
            _ => self.at_the_ends(),
        }
    }

    /// A request at the limits of the number range.
    fn at_the_ends(&mut self) -> Request {
        let end = self.volume.info().geometry.sectors().0;
        let places = [u64::MAX, u64::MAX - 1, 1 << 63, end, end - 1, 1 << 32, 0];
        let lengths = [0, 1, u32::MAX, 1 << 31, 127, 128, 129];
        let op = ADDRESSED[self.rng.random_range(0..ADDRESSED.len())];
        let sector = Sector(places[self.rng.random_range(0..places.len())]);
        let sectors = lengths[self.rng.random_range(0..lengths.len())];
        Request { op, ..Request::read(sector, sectors, IoBuf::empty()) }
    }
}
