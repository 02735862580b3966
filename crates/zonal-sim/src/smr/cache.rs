//! Write cache of a disk, with the choice of the next write to destage.
//!
//! The order of destaging is undocumented and differs between drives, so there are several named
//! policies. All of them keep the order of a zone's writes.

use super::mechanics::{DiskPlace, Mechanics};
use crate::model::{Span, Tag};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use zonal_core::{Nanos, Sector, ZoneIndex};

/// Maximum age of a write, so that its product with the largest `alpha` fits in 63 bits: two and a
/// half hours.
const AGE_MAX: Span = 1 << 43;

/// Policy for the next cached write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The oldest.
    Fifo,
    /// From the zone at the head, otherwise the oldest.
    Visit,
    /// The one with the shortest positioning time.
    Sptf,
    /// As `Sptf`, with a share of its waiting time subtracted.
    Asptf,
}

impl Policy {
    /// All policies, for callers that try each of them.
    pub const ALL: [Policy; 4] = [Policy::Fifo, Policy::Visit, Policy::Sptf, Policy::Asptf];

    /// Name in profiles.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Fifo => "fifo",
            Policy::Visit => "visit",
            Policy::Sptf => "sptf",
            Policy::Asptf => "asptf",
        }
    }
}

/// Order of destaging.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// Policy for the next write.
    pub policy: Policy,
    /// Share of the age, in thousandths, that policy `asptf` subtracts from a write's positioning
    /// time.
    pub alpha: u32,
    /// Number of the oldest writes to choose from. 0: all.
    pub window: u32,
    /// Time after which a command waiting for room makes the oldest write next, whatever the
    /// policy. 0: never. A drive must complete commands in time, and only completed ones may be
    /// reordered freely.
    pub patience: Span,
    /// Minimum time that the head writes a stream before it leaves the cached rest of it, while a
    /// write for another zone waits for room: this many thousandths of the shortest seek to another
    /// zone's first cached write. 0: the policy alone decides.
    pub dwell: u32,
}

/// Demands of waiting commands on the head: writes need room in the cache, and flushes need cached
/// writes on the medium.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Pressure {
    /// A command has waited for longer than the drive's patience.
    pub(super) is_urgent: bool,
    /// Treatment of the current stream.
    pub(super) stream: Stream,
    /// A flush waits for the writes with lower numbers.
    pub(super) flush: Option<u64>,
}

/// Treatment of the stream that the head has been writing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Stream {
    /// Its continuation is treated like any other write.
    #[default]
    Free,
    /// Its continuation is preferred, because a seek has not paid off yet.
    Kept,
    /// Its continuation is last, because a seek has paid off and a write waits for it.
    Left,
}

/// Limits of the cache. 0: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheLimits {
    /// Total bytes.
    pub bytes: u64,
    /// Total number of commands.
    pub commands: u32,
    /// Bytes per zone.
    pub zone_bytes: u64,
    /// Commands per zone.
    pub zone_commands: u32,
}

/// Position of the head.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Head {
    pub(super) cylinder: f64,
    /// Sector behind the last one read or written.
    pub(super) next: Sector,
    /// Time at which that was done.
    pub(super) at: Nanos,
}

/// A write not yet on the medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedWrite {
    pub(super) sector: Sector,
    pub(super) sectors: u32,
    pub(super) place: DiskPlace,
    pub(super) arrived: Nanos,
    /// Sequence number, in order of arrival.
    pub(super) sequence: u64,
    /// Command to complete when the write is on the medium, unless it has completed already.
    pub(super) tag: Option<Tag>,
}

/// The writes of a zone.
#[derive(Debug)]
struct Run {
    zone: ZoneIndex,
    entries: VecDeque<CachedWrite>,
    /// Including reserved room and the write at the head.
    bytes: u64,
    commands: u32,
}

/// The write cache. See the module.
#[derive(Debug)]
pub(super) struct Cache {
    limits: CacheLimits,
    runs: Vec<Run>,
    /// Index of each zone's run, plus 1; 0 for a zone without one.
    places: Box<[u32]>,
    /// Sequence numbers of the cached writes with their zones, oldest first.
    order: VecDeque<(u64, ZoneIndex)>,
    /// Allocations of former runs, for reuse.
    spare: Vec<VecDeque<CachedWrite>>,
    bytes: u64,
    commands: u32,
}

fn is_within(used: u64, more: u64, limit: u64) -> bool {
    // A write larger than the cache is admitted if the cache is empty.
    limit == 0 || used == 0 || used + more <= limit
}

impl Cache {
    pub(super) fn new(limits: CacheLimits, zones: u32) -> Cache {
        Cache {
            limits,
            runs: Vec::new(),
            places: vec![0; zones as usize].into(),
            order: VecDeque::new(),
            spare: Vec::new(),
            bytes: 0,
            commands: 0,
        }
    }

    fn place(&self, zone: ZoneIndex) -> Option<usize> {
        (self.places[zone.0 as usize] as usize).checked_sub(1)
    }

    /// True if there is room for a write of `bytes`.
    pub(super) fn has_room(&self, zone: ZoneIndex, bytes: u64) -> bool {
        let limits = &self.limits;
        let all = is_within(self.bytes, bytes, limits.bytes)
            && is_within(self.commands.into(), 1, limits.commands.into());
        let run = self.place(zone).map(|at| &self.runs[at]);
        all && run.is_none_or(|run| {
            is_within(run.bytes, bytes, limits.zone_bytes)
                && is_within(run.commands.into(), 1, limits.zone_commands.into())
        })
    }

    /// Run of a zone. Created if there is none.
    fn run_of(&mut self, zone: ZoneIndex) -> &mut Run {
        let at = self.place(zone).unwrap_or_else(|| {
            let entries = self.spare.pop().unwrap_or_default();
            self.runs.push(Run { zone, entries, bytes: 0, commands: 0 });
            self.places[zone.0 as usize] = self.runs.len() as u32;
            self.runs.len() - 1
        });
        &mut self.runs[at]
    }

    /// Reserves room for a write to be inserted later.
    pub(super) fn reserve(&mut self, zone: ZoneIndex, bytes: u64) {
        self.bytes += bytes;
        self.commands += 1;
        let run = self.run_of(zone);
        run.bytes += bytes;
        run.commands += 1;
    }

    /// Inserts a write with reserved room.
    pub(super) fn insert(&mut self, zone: ZoneIndex, entry: CachedWrite) {
        debug_assert!(self.order.back().is_none_or(|(last, _)| *last < entry.sequence));
        self.order.push_back((entry.sequence, zone));
        self.run_of(zone).entries.push_back(entry);
    }

    /// Releases the room of a write that has reached the medium.
    pub(super) fn release(&mut self, zone: ZoneIndex, bytes: u64) {
        self.bytes -= bytes;
        self.commands -= 1;
        let Some(at) = self.place(zone) else { return };
        let run = &mut self.runs[at];
        run.bytes -= bytes;
        run.commands -= 1;
        if run.commands == 0 {
            self.places[zone.0 as usize] = 0;
            self.spare.push(self.runs.swap_remove(at).entries);
            if let Some(moved) = self.runs.get(at) {
                self.places[moved.zone.0 as usize] = at as u32 + 1;
            }
        }
    }

    /// Cached and reserved bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Shortest seek from the head to the first write of another zone, or `None` without such
    /// writes.
    pub(super) fn seek_away(&self, mechanics: &Mechanics, head: &Head) -> Option<Span> {
        let here = mechanics.zone_of_head(head.next);
        let others = self.runs.iter().filter(|run| run.zone != here).filter_map(|run| run.entries.front());
        // A stream that has reached the end of its zone continues in the next zone.
        let others = others.filter(|first| first.sector != head.next);
        others.map(|first| mechanics.seek((first.place.cylinder - head.cylinder).abs())).min()
    }

    /// End of the cached data of a zone.
    pub(super) fn end_of(&self, zone: ZoneIndex) -> Option<Sector> {
        let last = self.runs[self.place(zone)?].entries.back()?;
        Some(Sector(last.sector.0 + u64::from(last.sectors)))
    }

    /// Sequence number of the oldest cached write that is not being written to the medium.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.order.front().map(|(sequence, _)| *sequence)
    }

    /// Removes the next write to be written to the medium. Returns it with the positioning time.
    pub(super) fn next(
        &mut self,
        now: Nanos,
        order: &Order,
        mechanics: &Mechanics,
        head: &Head,
        pressure: Pressure,
    ) -> Option<(CachedWrite, Span)> {
        let at = match self.runs.as_slice() {
            [_] => 0,
            _ => self.choose(now, order, mechanics, head, pressure)?,
        };
        let entry = self.runs[at].entries.pop_front()?;
        let number = self.order.iter().position(|(sequence, _)| *sequence == entry.sequence)?;
        self.order.remove(number);
        Some((entry, positioning(now, mechanics, head, entry.sector, &entry.place)))
    }

    /// Candidates for the next write: the first of each zone, if it is one of the oldest `window`.
    #[inline]
    fn for_each_candidate(&self, window: u32, mut look: impl FnMut(usize, &CachedWrite)) {
        let runs = self.runs.iter().enumerate();
        if window == 0 || self.order.len() <= window as usize {
            return runs.for_each(|(at, run)| run.entries.iter().take(1).for_each(|first| look(at, first)));
        }
        for (sequence, zone) in self.order.iter().take(window as usize) {
            let Some(at) = self.place(*zone) else { continue };
            let first = self.runs[at].entries.front();
            first.filter(|e| e.sequence == *sequence).into_iter().for_each(|first| look(at, first));
        }
    }

    fn choose(
        &self,
        now: Nanos,
        &Order { policy, alpha, window, .. }: &Order,
        mechanics: &Mechanics,
        head: &Head,
        Pressure { is_urgent, stream, flush }: Pressure,
    ) -> Option<usize> {
        let policy = if is_urgent { Policy::Fifo } else { policy };
        let time = |e: &CachedWrite| positioning(now, mechanics, head, e.sector, &e.place) as i64;
        let age = |e: &CachedWrite| (now.0 - e.arrived.0).min(AGE_MAX) as i64 * i64::from(alpha) / 1000;
        let goes_on = |e: &CachedWrite| e.sector == head.next && head.at == now;
        let is_here = |e: &CachedWrite| mechanics.zone_of(e.sector) == mechanics.zone_of_head(head.next);
        let score = |e: &CachedWrite| match policy {
            Policy::Fifo => 0,
            Policy::Visit => i64::from(stream != Stream::Left && !is_here(e)),
            Policy::Sptf if goes_on(e) => i64::MIN,
            Policy::Sptf => time(e),
            Policy::Asptf => time(e) - age(e),
        };
        // Otherwise new writes that keep the head in place would delay a flush forever.
        let is_new = |e: &CachedWrite| flush.is_some_and(|until| e.sequence >= until);
        let is_after_others = |e: &CachedWrite| match stream {
            Stream::Free => false,
            Stream::Kept => e.sector != head.next,
            Stream::Left => e.sector == head.next,
        };
        let mut best = None;
        self.for_each_candidate(window, |at, e| {
            let key = (is_new(e), is_after_others(e), score(e), e.sequence);
            if best.is_none_or(|(least, _)| key < least) {
                best = Some((key, at));
            }
        });
        best.map(|(_, at)| at)
    }
}

/// Time until `sector` is under the head. 0 if the head has just reached it.
#[inline]
pub(super) fn positioning(
    now: Nanos,
    mechanics: &Mechanics,
    head: &Head,
    sector: Sector,
    place: &DiskPlace,
) -> Span {
    match sector == head.next {
        true if head.at == now => 0,
        true => mechanics.rotation(now, place),
        false => mechanics.positioning(now, head.cylinder, place),
    }
}
