//! Possible states of a drive with a volatile cache after a power cut, as seen from outside.
//!
//! The model records commands and their results, independently of the image's implementation. A
//! zone's history is a list of *lives*: the one as of the last flush, and one more for each reset
//! since then. After a cut the zone has to be a prefix of one of them: at least the durable part,
//! at most the written part, with nothing above it.

use crate::image::drive;
use zonal_core::{ZoneCondition, ZoneIndex};
use zonal_io::device::Device;

/// One life of a sequential zone: from empty to the next reset.
#[derive(Clone, Debug, Default)]
struct Life {
    /// Stamps written, acknowledged or at least submitted.
    data: Vec<u64>,
    /// Durable sectors.
    floor: usize,
    /// Finished or filled, acknowledged or at least submitted.
    may_be_full: bool,
    /// Durably full.
    must_be_full: bool,
    /// Acknowledged sectors.
    acked: usize,
    /// Acknowledged as full.
    acked_full: bool,
    /// The start of this life was acknowledged.
    is_acked: bool,
}

/// Sector of a conventional zone.
#[derive(Clone, Debug)]
struct Sector {
    /// Values that a read may return; the last was written last.
    values: Vec<u64>,
    /// A flush of it failed and the device was reopened: later flushes only count after a new
    /// write.
    is_doubtful: bool,
}

impl Sector {
    fn wrote(&mut self, stamp: u64) {
        self.values.push(stamp);
        self.is_doubtful = false;
    }

    fn durable(&mut self) {
        if !self.is_doubtful {
            self.values.drain(..self.values.len() - 1);
        }
    }
}

#[derive(Clone, Debug)]
enum Zone {
    Conventional(Vec<Sector>),
    /// Lives that may reappear; the last one is current.
    Sequential {
        capacity: usize,
        lives: Vec<Life>,
    },
}

#[derive(Clone, Debug)]
pub struct Model {
    zones: Vec<Zone>,
}

impl Model {
    /// Model of an empty device.
    pub fn new(device: &dyn Device) -> Model {
        let geometry = device.info().geometry;
        let zone = |z| {
            let capacity = geometry.capacity_of(z) as usize;
            match geometry.is_conventional(z) {
                true => Zone::Conventional(vec![Sector { values: vec![0], is_doubtful: false }; capacity]),
                false => Zone::Sequential { capacity, lives: vec![Life::default()] },
            }
        };
        Model { zones: (0..geometry.zones()).map(ZoneIndex).map(zone).collect() }
    }

    fn lives(&mut self, zone: u32) -> &mut Vec<Life> {
        match &mut self.zones[zone as usize] {
            Zone::Sequential { lives, .. } => lives,
            Zone::Conventional(_) => panic!("zone {zone} is conventional"),
        }
    }

    fn now(&mut self, zone: u32) -> &mut Life {
        self.lives(zone).last_mut().expect("a zone has a present")
    }

    /// Sectors written to a sequential zone in its current life.
    pub fn written(&self, zone: u32) -> u32 {
        match &self.zones[zone as usize] {
            Zone::Sequential { lives, .. } => lives.last().unwrap().data.len() as u32,
            Zone::Conventional(_) => 0,
        }
    }

    /// True if a sequential zone is finished or filled.
    pub fn is_full(&self, zone: u32) -> bool {
        matches!(&self.zones[zone as usize], Zone::Sequential { lives, .. } if lives.last().unwrap().may_be_full)
    }

    /// Content of the whole zone without failures.
    pub fn contents(&self, zone: u32, sectors: usize) -> Vec<u64> {
        let mut found = match &self.zones[zone as usize] {
            Zone::Conventional(sectors) => sectors.iter().map(|s| *s.values.last().unwrap()).collect(),
            Zone::Sequential { lives, .. } => lives.last().unwrap().data.clone(),
        };
        found.resize(sectors, 0);
        found
    }

    /// Records a write that was executed, or during which the power failed.
    pub fn wrote(&mut self, zone: u32, offset: u32, stamps: &[u64]) {
        match &mut self.zones[zone as usize] {
            Zone::Conventional(sectors) => {
                let range = offset as usize..offset as usize + stamps.len();
                sectors[range].iter_mut().zip(stamps).for_each(|(sector, s)| sector.wrote(*s));
            }
            Zone::Sequential { capacity, lives } => {
                let life = lives.last_mut().unwrap();
                assert_eq!(life.data.len(), offset as usize, "a write was accepted off the pointer");
                life.data.extend(stamps);
                assert!(life.data.len() <= *capacity);
                life.may_be_full |= life.data.len() == *capacity;
            }
        }
    }

    /// Records a failed write to a conventional zone: any part of it may be on the medium.
    pub fn failed_conventional(&mut self, zone: u32, offset: u32, stamps: &[u64]) {
        let Zone::Conventional(sectors) = &mut self.zones[zone as usize] else { return };
        let range = offset as usize..offset as usize + stamps.len();
        sectors[range].iter_mut().zip(stamps).for_each(|(sector, s)| sector.values.insert(0, *s));
    }

    /// Records the content after a failed write. It may have left a sector unchanged, so doubtful
    /// sectors stay doubtful.
    pub fn found_conventional(&mut self, zone: u32, offset: u32, found: &[u64]) {
        let Zone::Conventional(sectors) = &mut self.zones[zone as usize] else { return };
        let range = offset as usize..offset as usize + found.len();
        sectors[range].iter_mut().zip(found).for_each(|(sector, found)| sector.values.push(*found));
    }

    pub fn reset(&mut self, zone: u32) {
        self.lives(zone).push(Life::default());
    }

    pub fn finished(&mut self, zone: u32) {
        self.now(zone).may_be_full = true;
    }

    /// Records that all changes of a sequential zone were acknowledged.
    pub fn acked(&mut self, zone: u32) {
        if let Zone::Sequential { lives, .. } = &mut self.zones[zone as usize] {
            let now = lives.last_mut().expect("a zone has a present");
            (now.acked, now.acked_full, now.is_acked) = (now.data.len(), now.may_be_full, true);
        }
    }

    /// Records that all changes of `zone` are durable.
    pub fn durable(&mut self, zone: u32) {
        match &mut self.zones[zone as usize] {
            Zone::Conventional(sectors) => sectors.iter_mut().for_each(Sector::durable),
            Zone::Sequential { lives, .. } => {
                lives.drain(..lives.len() - 1);
                lives[0].floor = lives[0].data.len();
                lives[0].must_be_full = lives[0].may_be_full;
            }
        }
    }

    /// Records the acknowledgement of a durable write.
    pub fn durable_range(&mut self, zone: u32, offset: u32, sectors: usize) {
        match &mut self.zones[zone as usize] {
            Zone::Conventional(all) => {
                all[offset as usize..][..sectors].iter_mut().for_each(Sector::durable);
            }
            Zone::Sequential { .. } => self.durable(zone),
        }
    }

    /// Records the acknowledgement of a flush.
    pub fn flushed(&mut self) {
        (0..self.zones.len()).for_each(|zone| self.durable(zone as u32));
    }

    /// Compares a newly opened device with its possible states, and adopts its actual state.
    pub fn check(&mut self, device: &dyn Device, loss: Loss) -> Result<(), String> {
        (0..self.zones.len() as u32)
            .try_for_each(|zone| self.check_zone(device, zone, loss).map_err(|e| format!("zone {zone}: {e}")))
    }

    fn check_zone(&mut self, device: &dyn Device, index: u32, loss: Loss) -> Result<(), String> {
        let found = drive::describe(device, index);
        let content = drive::read(device, found.start.0, found.size.0 as u32)?;
        match &mut self.zones[index as usize] {
            Zone::Conventional(sectors) => {
                for (offset, (found, sector)) in content.iter().zip(sectors.iter_mut()).enumerate() {
                    if !sector.values.contains(found) {
                        return Err(format!("sector {offset} holds {found}, may hold {:?}", sector.values));
                    }
                    match loss {
                        Loss::Power => *sector = Sector { values: vec![*found], is_doubtful: false },
                        Loss::Process { is_doubtful, .. } => {
                            sector.is_doubtful |= is_doubtful && sector.values.len() > 1;
                            sector.values.push(*found);
                        }
                    }
                }
                Ok(())
            }
            Zone::Sequential { lives, .. } => {
                let pointer = found.write_pointer.map(|p| (p.0 - found.start.0) as usize);
                let seen = Seen { condition: found.condition, pointer, content: &content };
                // The end of a process loses nothing that was acknowledged.
                let keeps_acked = matches!(loss, Loss::Process { keeps_acked: true, .. });
                let first = match keeps_acked {
                    true => lives.iter().rposition(|life| life.is_acked).unwrap_or(0),
                    false => 0,
                };
                let life = (lives[first..].iter().rev())
                    .find_map(|life| life.matches(&seen, keeps_acked))
                    .ok_or_else(|| format!("found {seen:?}, may be one of {lives:?}"))?;
                if loss == Loss::Power {
                    lives.clear();
                }
                lives.push(life);
                self.acked(index);
                if loss == Loss::Power {
                    self.durable(index);
                }
                Ok(())
            }
        }
    }
}

/// Kind of loss before a device was reopened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// The content found is on the medium.
    Power,
    /// The content found may be in the operating system's cache only.
    Process {
        /// All acknowledged data is found: the process has not seen a failure.
        keeps_acked: bool,
        /// A sync failed, so the content found may never reach the medium.
        is_doubtful: bool,
    },
}

#[derive(Debug)]
struct Seen<'a> {
    condition: ZoneCondition,
    pointer: Option<usize>,
    content: &'a [u64],
}

impl Life {
    /// Returns this life as far as it was found, or `None` if the found state is not a prefix of
    /// it, or lacks acknowledged data that has to be there.
    fn matches(&self, seen: &Seen<'_>, keeps_acked: bool) -> Option<Life> {
        let len = match (seen.condition, seen.pointer) {
            (ZoneCondition::Full, None) if self.may_be_full => self.data.len(),
            (ZoneCondition::Empty, Some(0)) => 0,
            (ZoneCondition::Closed, Some(p)) if p > 0 && p <= self.data.len() => p,
            _ => return None,
        };
        let is_full = seen.condition == ZoneCondition::Full;
        let (data, above) = seen.content.split_at(len);
        let (floor, must_be_full) = match keeps_acked {
            true => (self.floor.max(self.acked), self.must_be_full || self.acked_full),
            false => (self.floor, self.must_be_full),
        };
        let fits = len >= floor
            && (is_full || !must_be_full)
            && data == &self.data[..len]
            && above.iter().all(|&stamp| stamp == 0);
        fits.then(|| Life {
            data: data.to_vec(),
            floor: self.floor,
            may_be_full: is_full,
            must_be_full: self.must_be_full,
            ..Life::default()
        })
    }
}
