//! The write cache of a disk, and which of its writes goes to the medium next.
//!
//! The order of destaging is firmware's secret, and differs between drives. So there are several policies under one name;
//! in each of them the writes of a zone keep their order.

use super::mechanics::{DiskPlace, Mechanics};
use crate::model::{Span, Tag};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use zonal_core::{Nanos, Sector, ZoneIndex};

/// From then on no write gets any older, so that its age times the largest `alpha` fits 63 bits: two hours and a half.
const AGE_MAX: Span = 1 << 43;

/// Which cached write is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The oldest.
    Fifo,
    /// Of the zone that the head is in; otherwise the oldest.
    Visit,
    /// The write that is under the head first.
    Sptf,
    /// The same, less a share of the time that it has waited.
    Asptf,
}

impl Policy {
    /// All, for a caller that tries them.
    pub const ALL: [Policy; 4] = [Policy::Fifo, Policy::Visit, Policy::Sptf, Policy::Asptf];

    /// As it is called in profiles.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Fifo => "fifo",
            Policy::Visit => "visit",
            Policy::Sptf => "sptf",
            Policy::Asptf => "asptf",
        }
    }
}

/// The order of destaging.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// Which write is next.
    pub policy: Policy,
    /// Share of its age, in thousandths, that policy `asptf` takes off a write's time.
    pub alpha: u32,
    /// How many of the oldest writes are looked at; 0: all.
    pub window: u32,
    /// From when on a command that waits for room has the oldest write go next, whatever the policy says; 0: never. A drive
    /// owes its host an answer in time, and only what it has answered is its own to put in order.
    pub patience: Span,
    /// How long the head writes a stream before it leaves what is cached of it while a write for another zone waits for room:
    /// this many thousandths of the shortest seek to another zone's first cached write. 0: the policy alone decides.
    pub dwell: u32,
}

/// What commands that wait ask of the head: writes for room in the cache, flushes for what is in it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Pressure {
    /// One has waited for longer than the drive's patience.
    pub(super) is_urgent: bool,
    /// What the head does with its stream.
    pub(super) stream: Stream,
    /// A flush waits for the writes with lower numbers.
    pub(super) flush: Option<u64>,
}

/// What becomes of the stream that the head has been writing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Stream {
    /// What continues it is a write as any other.
    #[default]
    Free,
    /// What continues it comes first: a move would not be paid for.
    Kept,
    /// What continues it comes last: the move is paid for, and a write waits for it.
    Left,
}

/// How much the cache holds. A limit of 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheLimits {
    /// Bytes in all.
    pub bytes: u64,
    /// Commands in all.
    pub commands: u32,
    /// Bytes of one zone.
    pub zone_bytes: u64,
    /// Commands of one zone.
    pub zone_commands: u32,
}

/// Where the head is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Head {
    pub(super) cylinder: f64,
    /// The sector after the last that was read or written.
    pub(super) next: Sector,
    /// When that was.
    pub(super) at: Nanos,
}

/// A write that is yet to reach the medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) sector: Sector,
    pub(super) sectors: u32,
    pub(super) place: DiskPlace,
    pub(super) arrived: Nanos,
    /// Number in order of arrival.
    pub(super) sequence: u64,
    /// Whom to answer when it is on the medium, if that has not been done.
    pub(super) tag: Option<Tag>,
}

/// The writes of a zone.
#[derive(Debug)]
struct Run {
    zone: ZoneIndex,
    entries: VecDeque<Entry>,
    /// Of `entries`, and of what is reserved or being written to the medium.
    bytes: u64,
    commands: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Cache {
    limits: CacheLimits,
    runs: Vec<Run>,
    /// Where the run of each zone is, from 1; 0 of a zone without one.
    places: Box<[u32]>,
    /// Numbers of the writes in it, the oldest first, with their zones.
    order: VecDeque<(u64, ZoneIndex)>,
    /// Room of runs that are gone.
    spare: Vec<VecDeque<Entry>>,
    bytes: u64,
    commands: u32,
}

fn is_within(used: u64, more: u64, limit: u64) -> bool {
    // A write larger than the cache gets it for itself.
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

    /// Whether it takes a write of `bytes` bytes now.
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

    /// The run of a zone, a new one if it has none.
    fn run_of(&mut self, zone: ZoneIndex) -> &mut Run {
        let at = self.place(zone).unwrap_or_else(|| {
            let entries = self.spare.pop().unwrap_or_default();
            self.runs.push(Run { zone, entries, bytes: 0, commands: 0 });
            self.places[zone.0 as usize] = self.runs.len() as u32;
            self.runs.len() - 1
        });
        &mut self.runs[at]
    }

    /// Sets room apart for a write that is to come in.
    pub(super) fn reserve(&mut self, zone: ZoneIndex, bytes: u64) {
        self.bytes += bytes;
        self.commands += 1;
        let run = self.run_of(zone);
        run.bytes += bytes;
        run.commands += 1;
    }

    /// A write has come in, for which there is room.
    pub(super) fn insert(&mut self, zone: ZoneIndex, entry: Entry) {
        debug_assert!(self.order.back().is_none_or(|(last, _)| *last < entry.sequence));
        self.order.push_back((entry.sequence, zone));
        self.run_of(zone).entries.push_back(entry);
    }

    /// A write that was taken out is on the medium.
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

    /// Bytes in it or reserved.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The shortest seek from the head to another zone's first write; `None` if it holds none of another zone.
    pub(super) fn seek_away(&self, mechanics: &Mechanics, head: &Head) -> Option<Span> {
        let here = mechanics.zone_of_head(head.next);
        let others = self.runs.iter().filter(|run| run.zone != here).filter_map(|run| run.entries.front());
        // A stream that has come to its zone's end continues in the next zone.
        let others = others.filter(|first| first.sector != head.next);
        others.map(|first| mechanics.seek((first.place.cylinder - head.cylinder).abs())).min()
    }

    /// Where what it holds of a zone ends.
    pub(super) fn end_of(&self, zone: ZoneIndex) -> Option<Sector> {
        let last = self.runs[self.place(zone)?].entries.back()?;
        Some(Sector(last.sector.0 + u64::from(last.sectors)))
    }

    /// Number of the oldest write in it, of those that have not gone to the medium.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.order.front().map(|(sequence, _)| *sequence)
    }

    /// Takes out the write that goes to the medium next, and says how long the head needs to get there.
    pub(super) fn next(
        &mut self,
        now: Nanos,
        order: &Order,
        mechanics: &Mechanics,
        head: &Head,
        pressure: Pressure,
    ) -> Option<(Entry, Span)> {
        let at = match self.runs.as_slice() {
            [_] => 0,
            _ => self.choose(now, order, mechanics, head, pressure)?,
        };
        let entry = self.runs[at].entries.pop_front()?;
        let number = self.order.iter().position(|(sequence, _)| *sequence == entry.sequence)?;
        self.order.remove(number);
        Some((entry, positioning(now, mechanics, head, entry.sector, &entry.place)))
    }

    /// The writes that may go next: the first of each zone, if it is one of the oldest `window`.
    #[inline]
    fn for_each_candidate(&self, window: u32, mut look: impl FnMut(usize, &Entry)) {
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
        let time = |e: &Entry| positioning(now, mechanics, head, e.sector, &e.place) as i64;
        let age = |e: &Entry| (now.0 - e.arrived.0).min(AGE_MAX) as i64 * i64::from(alpha) / 1000;
        let goes_on = |e: &Entry| e.sector == head.next && head.at == now;
        let is_here = |e: &Entry| mechanics.zone_of(e.sector) == mechanics.zone_of_head(head.next);
        let score = |e: &Entry| match policy {
            Policy::Fifo => 0,
            Policy::Visit => i64::from(stream != Stream::Left && !is_here(e)),
            Policy::Sptf if goes_on(e) => i64::MIN,
            Policy::Sptf => time(e),
            Policy::Asptf => time(e) - age(e),
        };
        // New writes that keep the head where it is would hold a flush up for ever.
        let is_new = |e: &Entry| flush.is_some_and(|until| e.sequence >= until);
        let is_after_others = |e: &Entry| match stream {
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

/// Time until what begins at `sector` is under the head: none if the head has just come there.
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
