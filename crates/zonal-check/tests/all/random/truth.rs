//! Actions of the drive, observed just above it: below the faults, so that nothing is hidden.

use crate::random::tap::{Observer, Seen, Tag, ZERO};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use zonal_core::{Geometry, Op, Sector, ZoneIndex};
use zonal_io::changes::ZoneSetting;
use zonal_io::device::{CommandResult, Output};

/// Commands executed by the drive. It executes a command at submission and completes it later, so
/// the order of submission is the order of execution.
pub struct Truth {
    geometry: Geometry,
    done: Mutex<Vec<Seen>>,
    set: Mutex<Vec<(u64, ZoneIndex, ZoneSetting)>>,
}

/// Start of a zone's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Birth {
    /// State at the start of the run.
    New,
    Reset,
    /// Its data was lost by a command that takes it offline.
    Offline,
    /// Its data was lost without a command.
    Fall,
}

/// A zone between two losses of its data.
#[derive(Clone, Debug)]
pub struct Life {
    /// Steps of its start and end.
    pub from: u64,
    pub to: u64,
    pub birth: Birth,
    /// Tags of its sectors.
    pub sectors: Vec<Option<Tag>>,
    pub is_finished: bool,
}

/// Complete history of a run, in order.
pub struct History {
    /// Lives of each zone; none for conventional zones.
    pub lives: Vec<Vec<Life>>,
    /// Contents of each sector, each with its first step.
    pub sectors: Vec<Vec<(u64, Tag)>>,
    /// Number of sectors written for each request.
    pub written: BTreeMap<u64, u32>,
    /// Zones that currently cannot be reset.
    fallen: BTreeMap<ZoneIndex, ZoneSetting>,
}

impl Observer for Truth {
    fn ends(&self, seen: &Seen, result: &CommandResult) {
        let Ok(output) = result else { return };
        let mut seen = seen.clone();
        if let Output::Appended(at) = output {
            seen.sector = *at;
        }
        self.done.lock().push(seen);
    }

    fn is_set(&self, step: u64, zone: ZoneIndex, to: ZoneSetting) {
        self.set.lock().push((step, zone, to));
    }
}

impl Truth {
    pub fn new(geometry: Geometry) -> Truth {
        Truth { geometry, done: Mutex::default(), set: Mutex::default() }
    }

    /// Computes the history.
    ///
    /// # Errors
    /// A sector written twice in one life of a zone, which no drive does.
    pub fn history(&self) -> Result<History, String> {
        let mut done = self.done.lock().clone();
        done.sort_by_key(|seen| seen.began);
        let g = &self.geometry;
        let born = |zone| vec![Life::born(0, Birth::New, g.capacity_of(ZoneIndex(zone)))];
        let mut history = History {
            lives: (0..g.zones())
                .map(|z| if z < g.conventional_zones() { Vec::new() } else { born(z) })
                .collect(),
            sectors: vec![vec![(0, ZERO)]; g.sectors().0 as usize],
            written: BTreeMap::new(),
            fallen: BTreeMap::new(),
        };
        let set = self.set.lock();
        let mut set = set.iter().peekable();
        for seen in &done {
            while let Some(&(step, zone, to)) = set.next_if(|set| set.0 < seen.began) {
                history.set(g, step, zone, to);
            }
            history.take(g, seen)?;
        }
        set.for_each(|&(step, zone, to)| history.set(g, step, zone, to));
        Ok(history)
    }
}

impl Life {
    fn born(from: u64, birth: Birth, capacity: u32) -> Life {
        Life { from, birth, to: u64::MAX, sectors: vec![None; capacity as usize], is_finished: false }
    }

    /// Expected write pointer.
    pub fn pointer(&self) -> u32 {
        self.sectors.iter().take_while(|s| s.is_some()).count() as u32
    }
}

impl History {
    fn take(&mut self, g: &Geometry, seen: &Seen) -> Result<(), String> {
        match seen.op {
            op if op.is_write() => self.write(g, seen)?,
            Op::ZoneReset => self.begin_life(g, g.zone_of(seen.sector), seen.began, Birth::Reset),
            Op::Discard => self.note_sectors(seen),
            Op::ResetAll => {
                let zones = (g.conventional_zones()..g.zones()).map(ZoneIndex);
                let zones: Vec<_> = zones.filter(|zone| !self.fallen.contains_key(zone)).collect();
                zones.into_iter().for_each(|zone| self.begin_life(g, zone, seen.began, Birth::Reset));
            }
            Op::ZoneOffline => {
                let zone = g.zone_of(seen.sector);
                self.fallen.insert(zone, ZoneSetting::Offline);
                self.begin_life(g, zone, seen.began, Birth::Offline);
            }
            Op::ZoneFinish => self.life(g.zone_of(seen.sector)).is_finished = true,
            _ => {}
        }
        Ok(())
    }

    fn set(&mut self, g: &Geometry, step: u64, zone: ZoneIndex, to: ZoneSetting) {
        match to {
            ZoneSetting::Restored => {
                // A zone that was finished early is writable again from the end of its data.
                if self.fallen.remove(&zone).is_some() {
                    self.life(zone).is_finished = false;
                }
            }
            ZoneSetting::ReadOnly | ZoneSetting::Offline => {
                let was = self.fallen.insert(zone, to);
                if to == ZoneSetting::Offline && was != Some(to) {
                    self.begin_life(g, zone, step, Birth::Fall);
                }
            }
        }
    }

    /// Records the tags that `seen` has left in its sectors.
    fn note_sectors(&mut self, seen: &Seen) {
        for (n, tag) in seen.tags.iter().enumerate() {
            self.sectors[seen.sector.0 as usize + n].push((seen.began, *tag));
        }
    }

    fn life(&mut self, zone: ZoneIndex) -> &mut Life {
        self.lives[zone.0 as usize].last_mut().expect("a sequential zone")
    }

    fn write(&mut self, g: &Geometry, seen: &Seen) -> Result<(), String> {
        self.note_sectors(seen);
        for (n, tag) in seen.tags.iter().enumerate() {
            let sector = Sector(seen.sector.0 + n as u64);
            *self.written.entry(tag.0).or_default() += 1;
            let zone = g.zone_of(sector);
            if g.is_conventional(zone) {
                continue;
            }
            if let Some(old) = self.life(zone).sectors[g.offset_of(sector) as usize].replace(*tag) {
                return Err(format!("sector {sector} was {old:?} and became {tag:?} without a reset"));
            }
        }
        Ok(())
    }

    fn begin_life(&mut self, g: &Geometry, zone: ZoneIndex, at: u64, birth: Birth) {
        self.life(zone).to = at;
        let capacity = g.capacity_of(zone);
        self.lives[zone.0 as usize].push(Life::born(at, birth, capacity));
        let start = g.start_of(zone).0 as usize;
        self.sectors[start..start + capacity as usize].iter_mut().for_each(|s| s.push((at, ZERO)));
    }
}
