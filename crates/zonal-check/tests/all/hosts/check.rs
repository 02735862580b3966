//! The guarantees: compares the answers that hosts received with the actions of the drive. It does
//! not depend on how commands were chosen.

use crate::hosts::book::{Entry, QueueId};
use crate::hosts::setup::Profile;
use crate::hosts::world::HostsRun;
use crate::random::tap::{Tag, ZERO};
use crate::random::truth::History;
use std::collections::BTreeMap;
use zonal_core::{Sector, ZoneIndex};
use zonal_nvme::wire::{Sqe, io};

const RESET: u32 = 4;

/// Totals of a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    pub commands: usize,
    pub succeeded: usize,
    pub writes: usize,
    pub writes_succeeded: usize,
    pub lost: usize,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.commands += other.commands;
        self.succeeded += other.succeeded;
        self.writes += other.writes;
        self.writes_succeeded += other.writes_succeeded;
        self.lost += other.lost;
    }
}

struct Judge<'a> {
    world: &'a HostsRun,
    history: &'a History,
    /// Sectors of a block.
    block: u64,
    zone_sectors: u64,
    /// Sectors of the conventional zones, which precede the others.
    conventional: u64,
}

/// Checks a finished run: all of its commands have ended, or their connections are gone.
pub fn check(world: &mut HostsRun) -> Result<Counts, String> {
    check_final(world)?;
    let history = world.truth.history()?;
    let judge = Judge::new(world, &history);
    let mut counts = Counts::default();
    for (number, entry) in (1..).zip(&world.book.entries) {
        judge.check_entry(number, entry).map_err(|what| format!("command {number}: {what}: {entry:?}"))?;
        counts += count(entry);
    }
    judge.check_order()?;
    judge.check_cancelled()?;
    Ok(counts)
}

fn count(entry: &Entry) -> Counts {
    let (succeeded, is_write) = (usize::from(entry.has_succeeded()), usize::from(entry.is_write()));
    Counts {
        commands: 1,
        succeeded,
        writes: is_write,
        writes_succeeded: succeeded * is_write,
        lost: usize::from(entry.end.is_none()),
    }
}

/// A new host, connected after all others have gone, sees exactly the state of the drive.
fn check_final(world: &mut HostsRun) -> Result<(), String> {
    let line = world.begin_observer()?;
    let history = world.truth.history()?;
    let geometry = world.target.volume().info().geometry;
    let judge = Judge::new(world, &history);
    let (block, conventional) = (judge.block, judge.conventional);
    let held = |sector: u64| history.sectors[sector as usize].last().map_or(ZERO, |(_, tag)| *tag);
    for zone in 0..geometry.zones() {
        let (start, capacity) =
            (geometry.start_of(ZoneIndex(zone)).0, u64::from(geometry.capacity_of(ZoneIndex(zone))));
        let (nsid, base) = if start < conventional { (2, 0) } else { (1, conventional) };
        for at in (start..start + capacity).step_by(8 * block as usize) {
            let sectors = (8 * block).min(start + capacity - at);
            let lba = (at - base) / block;
            let entry =
                world.look(line, read(nsid, lba as u32, (sectors / block) as u32, sectors as u32 * 512))?;
            let found = entry.end.as_ref().map(|end| end.found.clone()).unwrap_or_default();
            let expected: Vec<Tag> = (at..at + sectors).map(held).collect();
            if !entry.has_succeeded() || found != expected {
                return Err(format!(
                    "at the end zone {zone} has {expected:?} at {at}, and a host reads {entry:?}"
                ));
            }
        }
    }
    Ok(())
}

fn read(nsid: u32, lba: u32, blocks: u32, bytes: u32) -> Sqe {
    Sqe::new(io::READ, nsid, [lba, 0, blocks - 1, 0, 0, 0]).with_data(bytes)
}

impl Judge<'_> {
    fn new<'a>(world: &'a HostsRun, history: &'a History) -> Judge<'a> {
        let geometry = world.target.volume().info().geometry;
        let zone_sectors = geometry.zone_size().0;
        let conventional = u64::from(geometry.conventional_zones()) * zone_sectors;
        Judge { world, history, block: u64::from(world.block() / 512), zone_sectors, conventional }
    }

    /// First sector of a block on the drive.
    fn sector(&self, nsid: u32, lba: u64) -> u64 {
        lba * self.block + if nsid == 1 { self.conventional } else { 0 }
    }

    fn check_entry(&self, number: u64, entry: &Entry) -> Result<(), String> {
        let Some(end) = &entry.end else {
            return match self.world.book.cancelled.contains_key(&entry.queue) {
                true => self.check_written(number, entry),
                false => Err("it has not ended, and its connection is there".to_owned()),
            };
        };
        self.check_status(entry, end.status)?;
        match (entry.sqe.opcode, end.status) {
            (io::WRITE | io::ZONE_APPEND, 0) => self.check_write(number, entry),
            (io::WRITE | io::ZONE_APPEND, _) => self.check_written(number, entry),
            (io::READ, 0) => self.check_read(entry),
            (io::ZONE_MANAGEMENT_SEND, 0) if entry.sqe.dword(13) & 0xFF == RESET => self.check_reset(entry),
            _ => Ok(()),
        }
    }

    /// Checks that a status has an explanation in this run.
    fn check_status(&self, entry: &Entry, status: u16) -> Result<(), String> {
        let setup = &self.world.setup;
        let is_zone = matches!(status, 0x41B8..=0x41BC | 0x41BF | 0x4080);
        let is_limit = matches!(status, 0x41BD | 0x41BE);
        let is_fault = matches!(status, 0x4280 | 0x4281 | 0x4006 | 0x0021);
        let is_explained = status == 0
            || is_zone
            || is_limit && setup.has_limits()
            || is_fault && setup.profile != Profile::Sound
            // Its host has asked to abort it or to end its queue.
            || matches!(status, 0x4007 | 0x0007 | 0x4008 | 0x0008 | 0x4006 | 0x400C) && self.may_be_ended(entry);
        if !is_explained {
            return Err(format!("status {status:#06x} has no reason"));
        }
        let is_certain = entry.is_proper && setup.profile == Profile::Sound && !setup.has_limits();
        match is_certain && status != 0 {
            true => Err(format!("status {status:#06x}, and nothing was in its way")),
            false => Ok(()),
        }
    }

    fn may_be_ended(&self, entry: &Entry) -> bool {
        entry.is_aborted || self.world.book.cancelled.contains_key(&entry.queue)
    }

    /// Step at which each sector of a write was written, in order of the sectors.
    fn steps(&self, number: u64, entry: &Entry) -> Option<Vec<u64>> {
        let nsid = entry.sqe.nsid.get();
        let lba = match entry.sqe.opcode {
            io::ZONE_APPEND => entry.end.as_ref()?.result,
            _ => entry.sqe.lba(),
        };
        let first = self.sector(nsid, lba);
        (0..entry.blocks() * self.block)
            .map(|n| {
                let held = self.history.sectors.get((first + n) as usize)?;
                held.iter().find(|(_, tag)| *tag == (number, n)).map(|(step, _)| *step)
            })
            .collect()
    }

    /// Acknowledged data is at its address, complete, once, and was written while the command was
    /// in flight.
    fn check_write(&self, number: u64, entry: &Entry) -> Result<(), String> {
        let Some(steps) = self.steps(number, entry) else {
            return Err("it was acknowledged, and is not on the drive".to_owned());
        };
        let ended = entry.end.as_ref().map_or(0, |end| end.step);
        if steps.iter().any(|step| !(entry.began..ended).contains(step)) {
            return Err(format!("it was written at {steps:?}"));
        }
        if entry.sqe.opcode == io::ZONE_APPEND {
            let zone = |lba: u64| lba * self.block / self.zone_sectors;
            let result = entry.end.as_ref().map_or(0, |end| end.result);
            if zone(result) != zone(entry.sqe.lba()) {
                return Err("its place is in another zone".to_owned());
            }
        }
        self.check_written(number, entry)
    }

    /// In a sequential zone, each sector of a write is written at most once, and nothing of a
    /// refused write.
    fn check_written(&self, number: u64, entry: &Entry) -> Result<(), String> {
        if entry.sqe.nsid.get() != 1 || !entry.is_write() {
            return Ok(());
        }
        let (sectors, setup) = (entry.blocks() * self.block, &self.world.setup);
        let written = u64::from(self.history.written.get(&number).copied().unwrap_or(0));
        // A torn append is reissued as a whole at another position, and its first part remains.
        let may_leave_some = entry.sqe.opcode == io::ZONE_APPEND && setup.profile == Profile::Wild;
        if written > sectors && !may_leave_some {
            return Err(format!("{written} sectors of it were written"));
        }
        let status = entry.end.as_ref().map_or(0, |end| end.status);
        let is_refused = matches!(status, 0x41B8..=0x41BE | 0x4080 | 0x0021);
        // A longer write takes several commands, and the first ones may have succeeded.
        let command_max = setup.device.max_sectors.min(setup.device.zone_append_max_sectors.max(1));
        let is_one = sectors <= u64::from(command_max) && setup.profile != Profile::Wild;
        match is_refused && (is_one || setup.profile == Profile::Sound) && written > 0 {
            true => Err(format!("it was refused, and {written} sectors of it are written")),
            false => Ok(()),
        }
    }

    /// Contents of a sector between two steps.
    fn held(&self, sector: u64, from: u64, to: u64) -> impl Iterator<Item = Tag> {
        let all = &self.history.sectors[sector as usize];
        let first = all.partition_point(|(step, _)| *step <= from).saturating_sub(1);
        all[first..].iter().take_while(move |(step, _)| *step <= to).map(|(_, tag)| *tag)
    }

    fn check_read(&self, entry: &Entry) -> Result<(), String> {
        let Some(end) = &entry.end else { return Ok(()) };
        let first = self.sector(entry.sqe.nsid.get(), entry.sqe.lba());
        if end.found.len() as u64 != entry.blocks() * self.block {
            return Err(format!("{} bytes have come", end.data_len));
        }
        for (sector, found) in (first..).zip(&end.found) {
            if !self.held(sector, entry.began, end.step).any(|tag| tag == *found) {
                let held: Vec<Tag> = self.held(sector, entry.began, end.step).collect();
                return Err(format!("sector {sector} held {held:?} meanwhile, and {found:?} was read"));
            }
        }
        Ok(())
    }

    /// After a reset, the zone was empty at some time before the host received the answer.
    fn check_reset(&self, entry: &Entry) -> Result<(), String> {
        let first = self.sector(1, entry.sqe.lba());
        let ended = entry.end.as_ref().map_or(0, |end| end.step);
        match self.held(first, entry.began, ended).any(|tag| tag == ZERO) {
            true => Ok(()),
            false => Err("the zone was not reset meanwhile".to_owned()),
        }
    }

    /// Positional writes of a queue to a zone are executed in the order in which they were sent.
    fn check_order(&self) -> Result<(), String> {
        let mut last: BTreeMap<(QueueId, ZoneIndex), (u64, u64)> = BTreeMap::new();
        let geometry = self.world.target.volume().info().geometry;
        for (number, entry) in (1..).zip(&self.world.book.entries) {
            let is_positional = entry.sqe.opcode == io::WRITE && entry.sqe.nsid.get() == 1;
            if !is_positional || !entry.has_succeeded() {
                continue;
            }
            let zone = geometry.zone_of(Sector(self.sector(1, entry.sqe.lba())));
            let step = self.steps(number, entry).and_then(|steps| steps.first().copied()).unwrap_or(0);
            if let Some((earlier, at)) = last.insert((entry.queue, zone), (number, step))
                && at > step
            {
                return Err(format!(
                    "command {number} was carried out at {step}, and {earlier}, sent before, at {at}"
                ));
            }
        }
        Ok(())
    }

    /// No command of a connection reaches the drive after its cancellation.
    fn check_cancelled(&self) -> Result<(), String> {
        let book = &self.world.book;
        for seen in self.world.issued.0.lock().iter() {
            for (number, _) in seen.tags.iter().filter(|(number, _)| *number > 0) {
                let queue = book.entries[*number as usize - 1].queue;
                if book.cancelled.get(&queue).is_some_and(|at| *at < seen.began) {
                    return Err(format!(
                        "command {number} goes to the drive at {}, after its end",
                        seen.began
                    ));
                }
            }
        }
        Ok(())
    }
}
