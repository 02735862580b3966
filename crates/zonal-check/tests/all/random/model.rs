//! The guarantees, checked against the history. Depends on requests, their results, and the actions
//! of the drive, but not on plugs.

use crate::random::book::{End, Entry};
use crate::random::load::Run;
use crate::random::setup::Profile;
use crate::random::tap::{Tag, ZERO};
use crate::random::truth::{Birth, History, Life};
use zonal_core::{DeviceError, Geometry, Op, RequestError, Sector, ZoneCondition, ZoneIndex};
use zonal_io::device::Output;
use zonal_io::volume::WriteMode;

/// A request of up to this number of sectors in one zone is a single command on every drive.
const SHORT: u32 = 6;

/// Inputs of the model.
pub struct Model<'a> {
    run: &'a Run,
    g: Geometry,
    entries: Vec<Entry>,
    history: History,
}

/// Part of a request in one zone.
#[derive(Clone, Copy, Debug)]
struct Part {
    zone: ZoneIndex,
    offset: u32,
    sectors: u32,
    /// Index of its first sector in the request.
    first: u32,
}

macro_rules! hold {
    ($what:expr, $($text:tt)*) => {
        if !$what {
            return Err(format!($($text)*));
        }
    };
}

/// Checks a run that is at rest.
pub fn check(run: &Run) -> Result<(), String> {
    run.book.verdict()?;
    run.guard.verdict()?;
    let g = run.volume.info().geometry;
    let model = Model { run, g, entries: run.book.entries(), history: run.truth.history()? };
    model.births()?;
    for (token, entry) in (1..).zip(&model.entries) {
        let end = entry.ended.as_ref().ok_or_else(|| format!("request {token} has not ended"))?;
        model.request(token, entry, end).map_err(|e| format!("request {token}, {entry:?}: {e}"))?;
    }
    model.order()?;
    model.pointers()
}

impl Model<'_> {
    fn request(&self, token: u64, entry: &Entry, end: &End) -> Result<(), String> {
        // With interference the clock skips over waits, so there is no bound.
        if self.run.setup.profile != Profile::Interfered {
            let (age, max) = (end.at.0 - entry.born.0, self.run.setup.age_max().0);
            hold!(age <= max, "it took {age} ns, and the longest it may is {max}");
        }
        self.refused(token, entry, &end.result)?;
        match (entry.op, &end.result) {
            (Op::Read, Ok(_)) => self.read(entry, end),
            (Op::Report, Ok(output)) => Self::report(entry, output),
            (Op::Discard, Ok(_)) => {
                let parts = self.parts(entry.sector, entry.sectors);
                hold!(parts.iter().all(|p| self.is_there(token, entry, end, *p)), "its sectors are not zero");
                Ok(())
            }
            (op, Ok(_)) if op.is_write() => self.written(token, entry, end),
            (op, Err(error)) if op.is_write() => self.failed(token, entry, error),
            _ => Ok(()),
        }
    }

    /// A request for sectors or zones that do not exist is refused and has no effect, and no other
    /// request is refused with these errors. This includes a write across zones of a part that is a
    /// drive. A request that ends as cancelled was cancelled by its caller.
    fn refused(
        &self,
        token: u64,
        entry: &Entry,
        result: &Result<Output, RequestError>,
    ) -> Result<(), String> {
        let written = self.history.written.get(&token).copied().unwrap_or(0);
        match result {
            Err(RequestError::OutOfRange { .. }) => hold!(entry.refused, "it names what is there"),
            Err(RequestError::Cancelled) => hold!(entry.cancelled, "its caller has not cancelled it"),
            _ => {}
        }
        if entry.refused {
            let is_refusal =
                matches!(result, Err(RequestError::OutOfRange { .. } | RequestError::Invalid(_)));
            hold!(is_refusal && written == 0, "it names what is not there; {written} sectors are written");
        } else if entry.face.is_drive() && entry.op == Op::Write && self.spans(entry) {
            hold!(
                result.is_err() && written == 0,
                "it spans zones of a drive; {written} sectors are written"
            );
        }
        Ok(())
    }

    /// True if a write starts in a sequential zone and crosses its end.
    fn spans(&self, entry: &Entry) -> bool {
        let is_sequential = !self.g.is_conventional(self.g.zone_of(entry.sector));
        is_sequential && self.parts(entry.sector, entry.sectors).len() > 1
    }

    /// A report covers the caller's zones, starting with the named one.
    fn report(entry: &Entry, output: &Output) -> Result<(), String> {
        let Output::Zones(zones) = output else { return Err("a report without zones".to_owned()) };
        let is_its = |zone: ZoneIndex| entry.face.zones.contains(&zone.0);
        let first = zones.first().map(|zone| zone.zone.0);
        let in_order =
            (first.unwrap_or(0)..).zip(zones).all(|(n, zone)| zone.zone.0 == n && is_its(zone.zone));
        hold!(in_order && zones.len() <= entry.sectors as usize, "it tells of {zones:?}");
        hold!(zones.iter().all(|zone| zone.write_pointer.is_none_or(|p| p >= zone.start)), "{zones:?}");
        Ok(())
    }

    /// Splits a request from `sector` on by zone.
    fn parts(&self, sector: Sector, sectors: u32) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut first = 0;
        while first < sectors {
            let at = Sector(sector.0 + u64::from(first));
            let (zone, offset) = (self.g.zone_of(at), self.g.offset_of(at));
            let length = (sectors - first).min(self.g.size_of(zone) - offset);
            parts.push(Part { zone, offset, sectors: length, first });
            first += length;
        }
        parts
    }

    fn place(entry: &Entry, end: &End) -> Result<Sector, String> {
        match (entry.op, &end.result) {
            (Op::Append, Ok(Output::Appended(at))) => Ok(*at),
            (Op::Append, other) => Err(format!("an append without an address: {other:?}")),
            _ => Ok(entry.sector),
        }
    }

    /// A successful write is at the returned address, complete, once, from its completion on.
    fn written(&self, token: u64, entry: &Entry, end: &End) -> Result<(), String> {
        let place = Self::place(entry, end)?;
        // In mode `direct` another request may reset the zone between two of its commands.
        if self.run.setup.is_direct() && entry.sectors > SHORT {
            return Ok(());
        }
        for part in self.parts(place, entry.sectors) {
            hold!(entry.op != Op::Append || part.zone == self.g.zone_of(entry.sector), "appended elsewhere");
            hold!(self.is_there(token, entry, end, part), "its data is not at {place}: {part:?}");
        }
        let written = self.history.written.get(&token).copied().unwrap_or(0);
        let expected = if entry.op == Op::WriteZeroes { 0 } else { entry.sectors };
        // A torn append leaves its first part as garbage and is reissued as a whole.
        let may_be_torn = entry.op == Op::Append && self.run.setup.is_wild();
        hold!(written == expected || may_be_torn && written > expected, "{written} sectors were written");
        Ok(())
    }

    fn is_there(&self, token: u64, entry: &Entry, end: &End, part: Part) -> bool {
        let is_zero = matches!(entry.op, Op::WriteZeroes | Op::Discard);
        let tag = |n: u32| if is_zero { ZERO } else { (token, u64::from(n)) };
        let expected = |n: u32| tag(part.first + n);
        if self.g.is_conventional(part.zone) {
            let start = self.g.start_of(part.zone).0 + u64::from(part.offset);
            let of = |n: u32| &self.history.sectors[(start + u64::from(n)) as usize];
            let during = |&(at, tag): &(u64, Tag), n| tag == expected(n) && entry.began < at && at < end.step;
            return (0..part.sectors).all(|n| of(n).iter().any(|h| during(h, n)));
        }
        self.life_of(entry, end, part, expected).is_some()
    }

    /// Life of the zone in which a part was written, as `expected`.
    fn life_of(&self, entry: &Entry, end: &End, part: Part, expected: impl Fn(u32) -> Tag) -> Option<&Life> {
        let holds = |life: &&Life| {
            let at = |n: u32| life.sectors.get((part.offset + n) as usize).copied().flatten();
            life.to > entry.began
                && life.from < end.step
                && (0..part.sectors).all(|n| at(n) == Some(expected(n)))
        };
        self.history.lives[part.zone.0 as usize].iter().find(holds)
    }

    /// A failed write has left nothing if its error says so, and never more than itself.
    fn failed(&self, token: u64, entry: &Entry, error: &RequestError) -> Result<(), String> {
        let written = self.history.written.get(&token).copied().unwrap_or(0);
        // An append may be torn more than once.
        let at_most = if entry.op == Op::Append { entry.sectors.saturating_mul(4) } else { entry.sectors };
        hold!(written <= at_most, "{written} sectors were written");
        let is_one_command = !entry.refused
            && entry.sectors <= self.run.setup.device.max_sectors
            && self.parts(entry.sector, entry.sectors).len() == 1;
        // A reset or the end of the zone may prevent a torn write from being reissued.
        let may_be_torn = self.run.setup.is_wild() && self.run.guard.failures(token).count > 0;
        let left_nothing = match error {
            RequestError::WouldWait
            | RequestError::NotAtWritePointer { .. }
            | RequestError::PredecessorLost { .. }
            | RequestError::BeyondCapacity { .. }
            | RequestError::ZoneFull { .. }
            | RequestError::NoSlot { .. }
            | RequestError::PredecessorMissing { .. }
            | RequestError::Cancelled
            | RequestError::Aborted { .. } => is_one_command && !may_be_torn,
            RequestError::Invalid(_)
            | RequestError::OutOfRange { .. }
            | RequestError::Conventional { .. } => true,
            _ => false,
        };
        hold!(!left_nothing || written == 0, "it has left {written} sectors");
        self.torn(token, error)?;
        hold!(!entry.proper || self.is_excused(token, entry, error), "it was properly placed");
        Ok(())
    }

    /// The error of an append that left garbage gives its location.
    fn torn(&self, token: u64, error: &RequestError) -> Result<(), String> {
        let &RequestError::TornAppend { zone, offset, sectors, .. } = error else { return Ok(()) };
        let is_its_own = |life: &Life| {
            let part = life.sectors.get(offset as usize..(offset + sectors) as usize);
            part.is_some_and(|p| p.iter().all(|t| t.is_some_and(|t| t.0 == token)))
        };
        hold!(self.history.lives[zone.0 as usize].iter().any(is_its_own), "its garbage is not there");
        Ok(())
    }

    /// True if the volume is not at fault: because of a reset, or because the device refused this
    /// write or another one.
    fn is_excused(&self, token: u64, entry: &Entry, error: &RequestError) -> bool {
        let zone = self.g.zone_of(entry.sector);
        let is_its = |other: &&Entry| match other.op {
            Op::ResetAll => true,
            Op::ZoneReset | Op::ZoneFinish => self.g.zone_of(other.sector) == zone,
            _ => false,
        };
        let was_reset = || {
            self.entries[token as usize..].iter().filter(is_its).any(|other| entry.ends_after(other.began))
        };
        match error {
            RequestError::Aborted { .. } => was_reset(),
            // A reset of a zone in recovery ends the write with the device's error.
            RequestError::Device(_) if was_reset() => true,
            // A write submitted before the loss depends on the lost one, and must get a predecessor
            // error instead.
            RequestError::NotAtWritePointer { .. } => self.lost(zone, token).any(|at| at < entry.began),
            RequestError::PredecessorLost { .. } | RequestError::PredecessorMissing { .. } => {
                self.lost(zone, token).next().is_some()
            }
            _ => self.is_lost(token, entry),
        }
    }

    /// True if a write was lost by its own faults: a permanent error, or too many refusals.
    fn is_lost(&self, token: u64, entry: &Entry) -> bool {
        let count = self.run.guard.failures(token).count;
        match entry.error() {
            // Zeroes carry no request number, so the guard could not count their refusals.
            Some(RequestError::GaveUp { .. }) => entry.op == Op::WriteZeroes || count > 3,
            Some(RequestError::Device(DeviceError::Medium)) => {
                self.run.setup.profile == Profile::Losing && (entry.op == Op::WriteZeroes || count > 0)
            }
            _ => false,
        }
    }

    /// Steps at which lost writes of a zone, submitted before this one, were refused for the last
    /// time.
    fn lost(&self, zone: ZoneIndex, before: u64) -> impl Iterator<Item = u64> {
        let earlier = (1..).zip(&self.entries[..before as usize - 1]);
        let is_its = move |e: &Entry| e.op.is_write() && self.g.zone_of(e.sector) == zone;
        earlier.filter(move |(t, e)| is_its(e) && self.is_lost(*t, e)).map(|(t, e)| match e.op {
            Op::WriteZeroes => e.began,
            _ => self.run.guard.failures(t).last,
        })
    }

    /// A read returns contents that its sectors had while it was in flight.
    fn read(&self, entry: &Entry, end: &End) -> Result<(), String> {
        for (n, tag) in end.found.iter().enumerate() {
            let sector = entry.sector.0 as usize + n;
            let history = &self.history.sectors[sector];
            let later = history.iter().skip(1).map(|h| h.0).chain([u64::MAX]);
            let held = |((from, t), to): (&(u64, Tag), u64)| t == tag && *from < end.step && to > entry.began;
            hold!(history.iter().zip(later).any(held), "sector {sector} is {tag:?} and was {history:?}");
        }
        Ok(())
    }

    /// A zone is reset only at a caller's request; no earlier write lands after it, and no later
    /// write is erased.
    fn births(&self) -> Result<(), String> {
        for (zone, lives) in self.history.lives.iter().enumerate() {
            for (before, life) in lives.iter().zip(lives.iter().skip(1)) {
                if life.birth == Birth::Fall {
                    continue;
                }
                let tokens = self.losses(zone as u32, life);
                let (Some(&first), Some(&last)) = (tokens.first(), tokens.last()) else {
                    return Err(format!("zone {zone} was reset for no request"));
                };
                // In mode `direct` timed-out writes are not settled and may land at any time. A
                // command that takes a zone offline does not wait for writes.
                if self.run.setup.is_direct() || life.birth == Birth::Offline {
                    continue;
                }
                let old = life.sectors.iter().flatten().find(|t| **t != ZERO && t.0 < first);
                hold!(
                    old.is_none(),
                    "zone {zone}: {old:?} was written after reset {first}, which came later"
                );
                let erased = before.sectors.iter().flatten().find(|t| **t != ZERO && t.0 > last);
                if let Some(&(token, _)) = erased.filter(|t| self.entry(t.0).succeeded()) {
                    let (write, reset) = (self.entry(token), self.entry(last));
                    return Err(format!(
                        "zone {zone}: {token}, {write:?} was erased by {last}, {reset:?}, which came before"
                    ));
                }
            }
        }
        Ok(())
    }

    fn entry(&self, token: u64) -> &Entry {
        &self.entries[token as usize - 1]
    }

    /// Requests in order, one of which started this life of the zone.
    fn losses(&self, zone: u32, life: &Life) -> Vec<u64> {
        let step = life.from;
        let wants = |e: &Entry| {
            let is_its = match e.op {
                Op::ResetAll => life.birth == Birth::Reset && e.face.zones.contains(&zone),
                Op::ZoneReset => life.birth == Birth::Reset && self.g.zone_of(e.sector).0 == zone,
                Op::ZoneOffline => life.birth == Birth::Offline && self.g.zone_of(e.sector).0 == zone,
                _ => false,
            };
            // A timed-out request may be executed late, until it is settled. If a request has
            // several commands, one of them may have timed out, whatever the first error was.
            let may_come_late = e.error().is_some_and(|error| error.is_uncertain() || e.op == Op::ResetAll);
            is_its && !e.refused && e.began < step && (e.ends_after(step) || may_come_late)
        };
        (1..).zip(&self.entries).filter(|(_, e)| wants(e)).map(|(token, _)| token).collect()
    }

    /// Positional writes of a zone are executed in order of submission. Exceptions are mode
    /// `zone-lock`, in which the scheduler sorts, and mode `direct`, which leaves the order to the
    /// device.
    fn order(&self) -> Result<(), String> {
        // Parked writes let later ones pass that belong before them.
        let parked = self.run.volume.statistics().parked > 0;
        if parked || self.run.setup.modes.contains(&WriteMode::ZoneLock) || self.run.setup.is_direct() {
            return Ok(());
        }
        let is_whole = |e: &Entry| e.op == Op::Write && e.succeeded();
        for (zone, lives) in self.history.lives.iter().enumerate() {
            for life in lives {
                let mut last = 0;
                for tag in life.sectors.iter().flatten().filter(|t| **t != ZERO) {
                    let entry = &self.entries[tag.0 as usize - 1];
                    if is_whole(entry) {
                        hold!(last <= tag.0, "zone {zone}: write {} went before {last}", tag.0);
                        last = tag.0;
                    }
                }
            }
        }
        Ok(())
    }

    /// In the end each write pointer is that of the zone's last life, and the volume agrees.
    fn pointers(&self) -> Result<(), String> {
        if self.run.setup.is_direct() {
            return Ok(());
        }
        let (first, zones) = (self.g.conventional_zones(), self.g.zones());
        let last = self.entries.iter().rev().find(|e| e.op == Op::Report).and_then(|e| e.ended.clone());
        let Some(Ok(Output::Zones(described))) = last.map(|e| e.result) else {
            return Err("the zones were not described in the end".to_owned());
        };
        for zone in first..zones {
            let life = self.history.lives[zone as usize].last().expect("one at least");
            let capacity = self.g.capacity_of(ZoneIndex(zone));
            let expected = if life.is_finished { capacity } else { life.pointer() };
            let d = &described[zone as usize];
            if matches!(d.condition, ZoneCondition::ReadOnly | ZoneCondition::Offline) {
                continue;
            }
            let is_full = d.condition == ZoneCondition::Full;
            let found = d.write_pointer.filter(|_| !is_full).map_or(capacity, |p| (p.0 - d.start.0) as u32);
            hold!(found == expected, "zone {zone} stands at {found}, not {expected}");
            let issued = self.run.volume.write_pointer(ZoneIndex(zone)).map(|p| (p.0 - d.start.0) as u32);
            hold!(issued == Some(expected), "zone {zone}: the volume says {issued:?}, not {expected}");
        }
        Ok(())
    }
}
