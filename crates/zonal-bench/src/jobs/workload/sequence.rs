//! Sequential or random offsets, before zones are taken into account.

use super::random::{Purpose, RandomMap, Stream};
use super::{Dir, Zones};
use crate::error::PlanError;
use crate::job::{Direction, Verify, ZoneMode};
use crate::jobs::plan::WorkerPlan;
use zonal_core::Sector;

/// Offset generator of one worker.
pub(super) enum Sequence {
    /// Each direction continues at the end of its last I/O. Writes skip the rest of a zone that is
    /// smaller than a block.
    Sequential { next: [u64; 2], skips_to_zones: bool },
    /// Multiples of the block size, relative to the start of the range.
    Random { stream: Stream, map: Option<Map> },
}

/// Blocks already hit, in units of the smaller of two block sizes.
pub(super) struct Map {
    unit: u64,
    hits: RandomMap,
}

impl Sequence {
    pub(super) fn new(plan: &WorkerPlan) -> Result<Sequence, PlanError> {
        if !plan.spec.pattern.random {
            let skips_to_zones = plan.spec.zonemode == ZoneMode::Zbd && !plan.is_tiling;
            return Ok(Sequence::Sequential { next: [plan.range.start; 2], skips_to_zones });
        }
        let unit = match plan.spec.pattern.direction {
            Direction::Read => plan.read_sectors,
            Direction::Write => plan.write_sectors,
            Direction::Mixed { .. } => plan.read_sectors.min(plan.write_sectors),
        };
        let map = match plan.spec.norandommap {
            true => None,
            false => {
                let unit = u64::from(unit);
                Some(Map { unit, hits: RandomMap::new((plan.range.end - plan.range.start) / unit)? })
            }
        };
        Ok(Sequence::Random { stream: stream(plan, 0), map })
    }

    /// Placeholder for a worker with random block sizes, which uses another generator.
    pub(super) fn unused() -> Sequence {
        Sequence::Sequential { next: [0; 2], skips_to_zones: false }
    }

    pub(super) fn restart(&mut self, plan: &WorkerPlan, pass: u64) {
        match self {
            Sequence::Sequential { next, .. } => *next = [plan.range.start; 2],
            Sequence::Random { stream: s, map } => {
                *s = stream(plan, pass);
                if let Some(map) = map {
                    map.hits.clear();
                }
            }
        }
    }

    /// Returns the next offset, or `None` if the range is exhausted.
    #[inline(always)]
    pub(super) fn next(&mut self, dir: Dir, plan: &WorkerPlan, zones: &Zones) -> Option<Sector> {
        let sectors = u64::from(match dir {
            Dir::Read => plan.read_sectors,
            Dir::Write => plan.write_sectors,
        });
        match self {
            Sequence::Sequential { next, skips_to_zones } => {
                let next = &mut next[dir as usize];
                let mut at = *next;
                if *skips_to_zones && dir == Dir::Write {
                    at = past_capacity(at, sectors, zones);
                }
                if at + sectors > plan.range.end {
                    if !wraps(plan) || at == plan.range.start {
                        return None;
                    }
                    at = plan.range.start;
                }
                *next = at + sectors;
                Some(Sector(at))
            }
            Sequence::Random { stream, map } => draw(stream, map, sectors, plan),
        }
    }

    /// Continues the sequence at `end`, because an I/O was moved.
    #[inline]
    pub(super) fn moved(&mut self, dir: Dir, end: u64) {
        if let Sequence::Sequential { next, .. } = self {
            next[dir as usize] = end;
        }
    }
}

/// Draws a random offset.
fn draw(stream: &mut Stream, map: &mut Option<Map>, sectors: u64, plan: &WorkerPlan) -> Option<Sector> {
    let blocks = (plan.range.end - plan.range.start) / sectors;
    let mut block = stream.below(blocks);
    if let Some(map) = map {
        block = map.take(block, sectors, blocks, wraps(plan))?;
    }
    Some(Sector(plan.range.start + block * sectors))
}

impl Map {
    /// Takes `block` or the next free one. A time-based job starts over when all are used.
    fn take(&mut self, block: u64, sectors: u64, blocks: u64, starts_over: bool) -> Option<u64> {
        let units = (sectors / self.unit).max(1);
        let mut block = block;
        if !self.hits.is_free(block * units) {
            let unit = match self.hits.next_free(block * units) {
                Some(unit) => unit,
                None if starts_over => {
                    self.hits.clear();
                    block * units
                }
                None => return None,
            };
            // Of two block sizes, the larger one may find its block partly used. The block is used
            // again, and the map still fills up.
            block = (unit / units).min(blocks - 1);
        }
        (block * units..(block + 1) * units).for_each(|unit| self.hits.hit(unit));
        Some(block)
    }
}

/// True if a job starts over within a pass. Jobs that verify do not, because verification happens
/// between passes.
pub(super) fn wraps(plan: &WorkerPlan) -> bool {
    plan.spec.time_based && plan.spec.verify == Verify::None
}

/// Returns `at`, or the start of the next zone if a block at `at` would exceed the capacity.
#[inline]
pub(super) fn past_capacity(at: u64, sectors: u64, zones: &Zones) -> u64 {
    let geometry = zones.geometry();
    if at >= geometry.sectors().0 {
        return at;
    }
    let zone = geometry.zone_of(Sector(at));
    let offset = u64::from(geometry.offset_of(Sector(at)));
    if offset + sectors > u64::from(geometry.capacity_of(zone)) && !geometry.is_conventional(zone) {
        return geometry.start_of(zone).0 + u64::from(geometry.size_of(zone));
    }
    at
}

fn stream(plan: &WorkerPlan, pass: u64) -> Stream {
    Stream::new(plan.seed, plan.number as u64, pass, Purpose::Offsets)
}
