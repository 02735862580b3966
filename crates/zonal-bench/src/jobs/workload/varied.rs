//! Offsets and random block sizes of a worker, before zones are taken into account.
//!
//! The size is drawn after the offset, from those that end within the range; if none does, the
//! block is cut. All sizes are multiples of the smallest, which is also the unit of offsets and of
//! the random map. Zones and earlier hits may cut a block further, so the map and the sequence
//! advance only by what was issued: see [`Varied::issued`].

use super::random::{Purpose, RandomMap, Stream};
use super::sequence::{past_capacity, wraps};
use super::{Dir, Io, Zones};
use crate::error::PlanError;
use crate::job::{BlockMix, Direction, ZoneMode};
use crate::jobs::plan::WorkerPlan;
use zonal_core::{SECTOR_BYTES, Sector};

/// Generator of offsets and sizes.
pub(super) struct Varied {
    sizes: [Sizes; 2],
    place: AddressPattern,
    /// Offset drawn for the current I/O.
    drawn: u64,
}

enum AddressPattern {
    /// Each direction continues at the end of its last I/O.
    Sequential { next: [u64; 2] },
    /// Multiples of the smallest block of the direction.
    Random { stream: Stream, map: Option<Map> },
}

/// Blocks already hit, in units of the smaller of two block sizes.
struct Map {
    unit: u64,
    hits: RandomMap,
}

impl Varied {
    /// Creates the generator of a worker with random block sizes.
    ///
    /// # Errors
    /// [`PlanError::RandomMap`].
    pub(super) fn new(plan: &WorkerPlan) -> Result<Varied, PlanError> {
        let place = match plan.spec.pattern.random {
            false => AddressPattern::Sequential { next: [plan.range.start; 2] },
            true => {
                AddressPattern::Random { stream: stream(plan, 0, Purpose::Offsets), map: Map::new(plan)? }
            }
        };
        let sizes = [Sizes::new(plan, Dir::Read), Sizes::new(plan, Dir::Write)];
        Ok(Varied { sizes, place, drawn: 0 })
    }

    pub(super) fn restart(&mut self, plan: &WorkerPlan, pass: u64) {
        for (sizes, purpose) in self.sizes.iter_mut().zip([Purpose::ReadSizes, Purpose::WriteSizes]) {
            sizes.stream = stream(plan, pass, purpose);
        }
        match &mut self.place {
            AddressPattern::Sequential { next } => *next = [plan.range.start; 2],
            AddressPattern::Random { stream: offsets, map } => {
                *offsets = stream(plan, pass, Purpose::Offsets);
                if let Some(map) = map {
                    map.hits.clear();
                }
            }
        }
    }

    /// Returns the next offset and size, or `None` if the range is exhausted.
    pub(super) fn next(&mut self, dir: Dir, plan: &WorkerPlan, zones: &Zones) -> Option<(Sector, u32)> {
        let sizes = &mut self.sizes[dir as usize];
        let at = match &mut self.place {
            AddressPattern::Sequential { next } => {
                let mut at = next[dir as usize];
                if dir == Dir::Write && plan.spec.zonemode == ZoneMode::Zbd {
                    at = past_capacity(at, sizes.block.into(), zones);
                }
                match plan.range.end.checked_sub(at) {
                    Some(left) if left >= u64::from(sizes.block) => at,
                    _ if wraps(plan) => plan.range.start,
                    _ => return None,
                }
            }
            AddressPattern::Random { stream, map } => {
                let block = u64::from(sizes.block);
                let blocks = (plan.range.end - plan.range.start) / block;
                let mut at = stream.below(blocks) * block;
                if let Some(map) = map {
                    at = map.free_at(at, block, wraps(plan))?;
                }
                plan.range.start + at
            }
        };
        let mut sectors = sizes.draw(plan.range.end - at)?;
        if let AddressPattern::Random { map: Some(map), .. } = &self.place {
            sectors = map.cut(at - plan.range.start, sectors, sizes.block);
        }
        self.drawn = at;
        Some((Sector(at), sectors))
    }

    /// Records that the last drawn I/O is issued and ends at `end`, whatever its final position and
    /// size.
    pub(super) fn issued(&mut self, io: &Io, end: u64, plan: &WorkerPlan) {
        match &mut self.place {
            AddressPattern::Sequential { next } => next[io.dir as usize] = end,
            AddressPattern::Random { map: Some(map), .. } => {
                map.hit(self.drawn - plan.range.start, io.sectors)
            }
            AddressPattern::Random { map: None, .. } => {}
        }
    }
}

impl Map {
    fn new(plan: &WorkerPlan) -> Result<Option<Map>, PlanError> {
        let unit = u64::from(match plan.spec.pattern.direction {
            Direction::Read => plan.read_sectors,
            Direction::Write => plan.write_sectors,
            Direction::Mixed { .. } => plan.read_sectors.min(plan.write_sectors),
        });
        if plan.spec.norandommap {
            return Ok(None);
        }
        Ok(Some(Map { unit, hits: RandomMap::new((plan.range.end - plan.range.start) / unit)? }))
    }

    /// Returns `at` or the next free block. A time-based job starts over when all are used.
    fn free_at(&mut self, at: u64, block: u64, starts_over: bool) -> Option<u64> {
        if self.hits.is_free(at / self.unit) {
            return Some(at);
        }
        match self.hits.next_free(at / self.unit) {
            Some(unit) => Some(unit * self.unit / block * block),
            None if starts_over => {
                self.hits.clear();
                Some(at)
            }
            None => None,
        }
    }

    /// Limits `sectors` to what is free from `at` on, but to no less than one block.
    fn cut(&self, at: u64, sectors: u32, block: u32) -> u32 {
        let whole = u64::from(sectors);
        let units = (at / self.unit)..(at + whole).div_ceil(self.unit).min(self.hits.blocks());
        let free = units.clone().take_while(|&unit| self.hits.is_free(unit)).count() as u64;
        if free == units.end - units.start {
            return sectors;
        }
        let blocks = (free * self.unit / u64::from(block)).max(1);
        (blocks * u64::from(block)).min(whole) as u32
    }

    fn hit(&mut self, at: u64, sectors: u32) {
        let end = (at + u64::from(sectors)).div_ceil(self.unit).min(self.hits.blocks());
        (at / self.unit..end).for_each(|unit| self.hits.hit(unit));
    }
}

/// Distribution of block sizes of one direction, in sectors.
struct Sizes {
    /// Smallest size. All are multiples of it, except at the end of a range.
    block: u32,
    largest: u32,
    shares: Option<Vec<Share>>,
    stream: Stream,
}

/// One size of a distribution.
struct Share {
    /// Cumulative share in percent, including this size.
    until: u8,
    sectors: u32,
}

impl Sizes {
    fn new(plan: &WorkerPlan, dir: Dir) -> Sizes {
        let (block, largest, mix, purpose) = match dir {
            Dir::Read => {
                (plan.read_sectors, plan.sectors_max.read, &plan.spec.block_mix.read, Purpose::ReadSizes)
            }
            Dir::Write => {
                (plan.write_sectors, plan.sectors_max.write, &plan.spec.block_mix.write, Purpose::WriteSizes)
            }
        };
        let shares = match mix {
            Some(BlockMix::Split(_)) if block == largest => None,
            Some(BlockMix::Split(shares)) => {
                let mut until = 0;
                let drawn = shares.iter().filter(|share| share.percent > 0).map(|share| {
                    until += share.percent;
                    Share { until, sectors: share.bytes / SECTOR_BYTES as u32 }
                });
                Some(drawn.collect::<Vec<_>>())
            }
            _ => None,
        };
        Sizes { block, largest, shares, stream: stream(plan, 0, purpose) }
    }

    /// Draws a size of at most `left`; `None` if even the smallest is larger.
    fn draw(&mut self, left: u64) -> Option<u32> {
        let blocks = left / u64::from(self.block);
        if blocks == 0 {
            return None;
        }
        match &self.shares {
            // fio would draw forever if the smallest size has no share.
            Some(shares) if shares.iter().all(|share| u64::from(share.sectors) > left) => {
                Some(blocks as u32 * self.block)
            }
            Some(shares) => loop {
                let draw = self.stream.below(100);
                let fits = |share: &&Share| u64::from(share.sectors) <= left;
                // The last size gets the rest if the shares add up to less than 100.
                let drawn = shares.iter().filter(fits).find(|share| draw < u64::from(share.until));
                let last = shares.last().filter(fits);
                if let Some(share) = drawn.or(last) {
                    return Some(share.sectors);
                }
            },
            None if self.block == self.largest => Some(self.block),
            None if left < u64::from(self.largest) => {
                Some((self.stream.below(blocks) + 1) as u32 * self.block)
            }
            None => {
                let drawn = u64::from(self.block) + self.stream.below(self.largest.into());
                let whole = drawn / u64::from(self.block) * u64::from(self.block);
                Some(whole.min(self.largest.into()) as u32)
            }
        }
    }
}

fn stream(plan: &WorkerPlan, pass: u64, purpose: Purpose) -> Stream {
    Stream::new(plan.seed, plan.number as u64, pass, purpose)
}

#[cfg(test)]
mod tests;
