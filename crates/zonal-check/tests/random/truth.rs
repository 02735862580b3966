//! What the drive really did, seen from just above it: below the faults, so that nothing is hidden.

use crate::tap::{Observer, Seen, Tag, ZERO};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use zonal_core::{Geometry, Op, Sector, ZoneIndex};
use zonal_io::device::{CommandResult, Output};

/// Commands that the drive has executed. A drive executes a command when it is submitted, and answers later: the order of
/// submission is the order of execution.
pub struct Truth {
    geometry: Geometry,
    done: Mutex<Vec<Seen>>,
}

/// A zone between two resets.
#[derive(Clone, Debug)]
pub struct Life {
    /// When it began and ended.
    pub from: u64,
    pub to: u64,
    /// Who wrote its sectors.
    pub sectors: Vec<Option<Tag>>,
    pub is_finished: bool,
}

/// All that happened, in order.
pub struct History {
    /// Of each zone. A conventional one has none.
    pub lives: Vec<Vec<Life>>,
    /// What each sector held from when on.
    pub sectors: Vec<Vec<(u64, Tag)>>,
    /// Sectors that were written for each request.
    pub written: BTreeMap<u64, u32>,
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
}

impl Truth {
    pub fn new(geometry: Geometry) -> Truth {
        Truth { geometry, done: Mutex::default() }
    }

    /// What it all came to.
    ///
    /// # Errors
    /// A write over a write, in one life of a zone: no drive does that.
    pub fn history(&self) -> Result<History, String> {
        let mut done = self.done.lock().clone();
        done.sort_by_key(|seen| seen.began);
        let g = &self.geometry;
        let born = |zone| vec![Life::born(0, g.capacity_of(ZoneIndex(zone)))];
        let mut history = History {
            lives: (0..g.zones())
                .map(|z| if z < g.conventional_zones() { Vec::new() } else { born(z) })
                .collect(),
            sectors: vec![vec![(0, ZERO)]; g.sectors().0 as usize],
            written: BTreeMap::new(),
        };
        for seen in &done {
            history.take(g, seen)?;
        }
        Ok(history)
    }
}

impl Life {
    fn born(from: u64, capacity: u32) -> Life {
        Life { from, to: u64::MAX, sectors: vec![None; capacity as usize], is_finished: false }
    }

    /// Where the pointer has to be.
    pub fn pointer(&self) -> u32 {
        self.sectors.iter().take_while(|s| s.is_some()).count() as u32
    }
}

impl History {
    fn take(&mut self, g: &Geometry, seen: &Seen) -> Result<(), String> {
        match seen.op {
            op if op.is_write() => self.write(g, seen)?,
            Op::ZoneReset => self.reset(g, g.zone_of(seen.sector), seen.began),
            Op::ResetAll => {
                (g.conventional_zones()..g.zones()).for_each(|z| self.reset(g, ZoneIndex(z), seen.began));
            }
            Op::ZoneFinish => self.life(g.zone_of(seen.sector)).is_finished = true,
            _ => {}
        }
        Ok(())
    }

    fn life(&mut self, zone: ZoneIndex) -> &mut Life {
        self.lives[zone.0 as usize].last_mut().expect("a sequential zone")
    }

    fn write(&mut self, g: &Geometry, seen: &Seen) -> Result<(), String> {
        for (n, tag) in seen.tags.iter().enumerate() {
            let sector = Sector(seen.sector.0 + n as u64);
            self.sectors[sector.0 as usize].push((seen.began, *tag));
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

    fn reset(&mut self, g: &Geometry, zone: ZoneIndex, at: u64) {
        self.life(zone).to = at;
        let capacity = g.capacity_of(zone);
        self.lives[zone.0 as usize].push(Life::born(at, capacity));
        let start = g.start_of(zone).0 as usize;
        self.sectors[start..start + capacity as usize].iter_mut().for_each(|s| s.push((at, ZERO)));
    }
}
