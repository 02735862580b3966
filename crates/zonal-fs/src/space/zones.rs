//! The book of zones: the state and the account of every zone of a drive.
//!
//! Owns these counts of each zone: blocks handed out (headers included), blocks whose write ended, live data blocks, reads
//! and copies in flight. It also owns what follows from these: the free zones, the victims, the dead zones, the sums. It
//! knows no file, no extent and no device.
//!
//! # States
//! `Free` -> `Open` ([`ZoneBook::take_free`]) -> `Full` (the last block handed out, or [`ZoneBook::close`]) -> `Dead` (all
//! that was handed out has ended, and nothing is live) -> `Resetting` -> `Free`. The device says `ReadOnly` and `Offline`,
//! which are final; `Reserved` is not ours.
//!
//! # Invariants
//! - `used <= written <= allocated <= capacity`; a call that would break this errs and changes nothing.
//! - A zone becomes a victim, or dead, only once it is full and all its writes have ended. Blocks freed in an open zone are
//!   accounted when it turns full.
//! - A zone is a victim only if its capacity is more than copies of its live data take, with what they waste.
//! - A zone that became read-only is never a victim: it gives no space, and is in another list while it has live blocks.
//! - A zone is reset only when the commit that freed its last block is durable, and no reads or copies are in flight.
//!
//! # Why the end of a write and the life of its blocks are one call
//! Between the two the zone's last blocks would be written and not live: the zone would be dead, and reset under a file.

use super::cost::Need;
use super::error::BookError;
use super::victims::{COPY_WASTE, Fill, Histogram, Victims};
use super::zone::{Lost, Pin, Zone, ZoneState};
use std::collections::BTreeSet;
use zonal_core::ZoneIndex;

/// Which free zone is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ZoneOrder {
    /// The zone with the lowest index: the outer, faster tracks of a disk.
    #[default]
    LowestIndex,
    /// The next after the one before. The place is forgotten at unmount.
    RoundRobin,
}

/// Where a zone stands in the book's indexes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Listed {
    Nowhere,
    Free,
    Victim(Fill),
    Dead,
    ReadOnly,
}

/// Sums over all zones, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// Free zones and the tails of open ones.
    pub available: u64,
    /// Live data.
    pub used: u64,
    /// Neither: garbage, headers, what was given up.
    pub reclaimable: u64,
    /// Data blocks that fit into zones which are not lost.
    pub data: u64,
    /// Live data in these.
    pub kept: u64,
    /// Handed out, and not ended.
    pub in_flight: u64,
}

impl Sums {
    fn each(&mut self, own: Sums, change: impl Fn(u64, u64) -> u64) {
        let Sums { available, used, reclaimable, data, kept, in_flight } = self;
        let sums = [available, used, reclaimable, data, kept, in_flight];
        let owns = [own.available, own.used, own.reclaimable, own.data, own.kept, own.in_flight];
        for (sum, own) in sums.into_iter().zip(owns) {
            *sum = change(*sum, own);
        }
    }
}

/// The book.
#[derive(Clone, Debug)]
pub struct ZoneBook {
    zones: Vec<Zone>,
    /// Commit that freed a zone's last block; 0 if all that is known is durable.
    freed_at: Vec<u64>,
    /// Resets of each zone, which are only told.
    resets: Vec<u32>,
    /// Blocks of a unit, its header included, whose data are as scattered as can be.
    unit_blocks: u32,
    /// Capacity of the largest zone.
    zone_blocks: u32,
    free: BTreeSet<ZoneIndex>,
    victims: Victims,
    /// Dead zones by the commit that has to be durable.
    dead: BTreeSet<(u64, ZoneIndex)>,
    /// Zones that became read-only and still have live blocks.
    read_only: BTreeSet<ZoneIndex>,
    counts: [u32; ZoneState::ALL.len()],
    sums: Sums,
    cursor: u32,
}

impl ZoneBook {
    /// A book without zones; for `unit_blocks` see [`ZoneBook::load`].
    ///
    /// # Panics
    /// If a unit has no room for data.
    pub(super) fn empty(unit_blocks: u32) -> ZoneBook {
        assert!(unit_blocks >= 2, "a unit is a header and data");
        ZoneBook {
            zones: Vec::new(),
            freed_at: Vec::new(),
            resets: Vec::new(),
            unit_blocks,
            zone_blocks: 0,
            free: BTreeSet::new(),
            victims: Victims::default(),
            dead: BTreeSet::new(),
            read_only: BTreeSet::new(),
            counts: [0; ZoneState::ALL.len()],
            sums: Sums::default(),
            cursor: 0,
        }
    }

    /// Adds the next zone.
    pub(super) fn push(&mut self, zone: Zone) {
        let index = ZoneIndex(self.zones.len() as u32);
        self.zones.push(zone);
        self.zone_blocks = zone.capacity.max(self.zone_blocks);
        self.freed_at.push(0);
        self.resets.push(0);
        self.counts[zone.state as usize] += 1;
        self.add(&zone);
        self.list(index, self.listed(&zone));
    }

    /// How many zones there are.
    pub fn len(&self) -> u32 {
        self.zones.len() as u32
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.zones.is_empty()
    }

    /// A zone's account.
    ///
    /// # Errors
    /// There is no such zone.
    pub fn zone(&self, zone: ZoneIndex) -> Result<&Zone, BookError> {
        self.zones.get(zone.0 as usize).ok_or(BookError::NoZone { zone })
    }

    /// All zones with their accounts, by index.
    pub fn iter(&self) -> impl Iterator<Item = (ZoneIndex, &Zone)> {
        self.zones.iter().enumerate().map(|(index, zone)| (ZoneIndex(index as u32), zone))
    }

    /// Zones in `state`.
    pub fn count(&self, state: ZoneState) -> u32 {
        self.counts[state as usize]
    }

    /// Sums over all zones.
    pub fn sums(&self) -> Sums {
        self.sums
    }

    /// Resets of `zone`: those since the mount, and those that the mount knew of.
    pub fn resets(&self, zone: ZoneIndex) -> u32 {
        self.resets.get(zone.0 as usize).copied().unwrap_or(0)
    }

    /// The mount knows that `zone` was reset this often.
    ///
    /// # Errors
    /// There is no such zone.
    pub fn set_resets(&mut self, zone: ZoneIndex, resets: u32) -> Result<(), BookError> {
        self.zone(zone)?;
        self.resets[zone.0 as usize] = resets;
        Ok(())
    }

    /// Capacity of the largest zone.
    pub fn zone_blocks(&self) -> u32 {
        self.zone_blocks
    }

    /// Data blocks that fit into `capacity` blocks, however scattered they are.
    pub fn data_blocks(&self, capacity: u32) -> u32 {
        capacity - capacity.div_ceil(self.unit_blocks)
    }

    /// Blocks that `data` take with their headers, however scattered they are.
    pub(super) fn blocks_for(&self, data: u32) -> u32 {
        data + data.div_ceil(self.unit_blocks - 1)
    }

    /// Live blocks from which on collecting a zone of `capacity` blocks gains nothing.
    fn gains_below(&self, capacity: u32) -> u32 {
        self.data_blocks(capacity.saturating_sub(COPY_WASTE)) + 1
    }

    /// Whether an open zone without writes under way would be worth collecting if it were closed.
    pub fn gains_once_closed(&self, zone: ZoneIndex) -> bool {
        self.zone(zone).is_ok_and(|account| {
            let is_at_rest = account.state == ZoneState::Open && account.written == account.allocated;
            // More than what is lost until its reset.
            is_at_rest && account.used + account.available() < self.gains_below(account.capacity)
        })
    }

    /// What there is for files and the collector together: what the credits begin with.
    pub fn totals(&self) -> Need {
        let Sums { available, data, kept, .. } = self.sums;
        Need { extents: data.saturating_sub(kept), available }
    }

    /// Opens a free zone.
    pub fn take_free(&mut self, order: ZoneOrder) -> Option<ZoneIndex> {
        let zone = match order {
            ZoneOrder::LowestIndex => self.free.first(),
            ZoneOrder::RoundRobin => {
                self.free.range(ZoneIndex(self.cursor)..).next().or_else(|| self.free.first())
            }
        };
        let zone = *zone?;
        self.cursor = zone.0 + 1;
        self.change(zone, |z| {
            z.state = ZoneState::Open;
            Ok(())
        })
        .expect("the zone is in the book");
        Some(zone)
    }

    /// Hands out `blocks` of an open zone, headers included. With the last one the zone is full.
    ///
    /// # Errors
    /// The zone is not open or has less left.
    pub fn allocate(&mut self, zone: ZoneIndex, blocks: u32) -> Result<Zone, BookError> {
        self.change(zone, |z| {
            z.expect(zone, &[ZoneState::Open], "allocation")?;
            if blocks > z.capacity - z.allocated {
                let Zone { allocated, capacity, .. } = *z;
                return Err(BookError::Overallocated { zone, allocated, blocks, capacity });
            }
            z.allocated += blocks;
            Ok(())
        })
    }

    /// The write of `blocks` ended; `live` of them are data that files refer to from now on. A write that failed has none,
    /// and a copy that came too late has none.
    ///
    /// # Errors
    /// More blocks ended than were handed out, or more live than ended.
    pub fn end(&mut self, zone: ZoneIndex, blocks: u32, live: u32) -> Result<Zone, BookError> {
        self.change(zone, |z| {
            z.expect(
                zone,
                &[ZoneState::Open, ZoneState::Full, ZoneState::ReadOnly, ZoneState::Offline],
                "an end",
            )?;
            let Zone { allocated, written, used, .. } = *z;
            if blocks > allocated - written {
                return Err(BookError::Overwritten { zone, written, blocks, allocated });
            }
            z.written += blocks;
            if live > z.written - used {
                return Err(BookError::Overused { zone, used, blocks: live, written: z.written });
            }
            z.used += live;
            Ok(())
        })
    }

    /// Frees `blocks` live blocks; the commit with number `commit` is the first that does not refer to them. The blocks of
    /// a lost zone do not come back: ask [`Zone::is_writable`] of what is returned.
    ///
    /// # Errors
    /// Fewer are live: the metadata are corrupt.
    pub fn free(&mut self, zone: ZoneIndex, blocks: u32, commit: u64) -> Result<Zone, BookError> {
        let used = self.zone(zone)?.used;
        if blocks > used {
            return Err(BookError::Underused { zone, used, blocks });
        }
        if blocks == 0 {
            return self.zone(zone).copied();
        }
        // Before the change: a zone that dies of it is listed by this number. A dead zone does not come here.
        let freed_at = &mut self.freed_at[zone.0 as usize];
        *freed_at = commit.max(*freed_at);
        self.change(zone, |z| {
            z.used -= blocks;
            Ok(())
        })
    }

    /// Closes an open zone early. What it has left is lost until its reset. Returns that, for the credits.
    ///
    /// # Errors
    /// The zone is not open.
    pub fn close(&mut self, zone: ZoneIndex) -> Result<Need, BookError> {
        self.shrink(zone, |z| {
            z.expect(zone, &[ZoneState::Open], "closing")?;
            z.state = ZoneState::Full;
            Ok(())
        })
    }

    /// The device says that the zone will not be written any more, whatever it was. Returns what is lost, for the credits.
    ///
    /// # Errors
    /// There is no such zone, or it is not ours.
    pub fn lose(&mut self, zone: ZoneIndex, how: Lost) -> Result<Need, BookError> {
        self.shrink(zone, |z| {
            if z.state == ZoneState::Reserved {
                return Err(BookError::State { zone, state: z.state, wanted: "a loss" });
            }
            z.state = match how {
                Lost::ReadOnly => ZoneState::ReadOnly,
                Lost::Offline => ZoneState::Offline,
            };
            Ok(())
        })
    }

    /// The free zone with the lowest index.
    pub fn lowest_free(&self) -> Option<ZoneIndex> {
        self.free.first().copied()
    }

    /// Gives a free zone to the metadata store. Returns what is gone, for the credits.
    ///
    /// # Errors
    /// It is not free.
    pub fn lend(&mut self, zone: ZoneIndex) -> Result<Need, BookError> {
        self.shrink(zone, |z| {
            z.expect(zone, &[ZoneState::Free], "the metadata store")?;
            z.state = ZoneState::Reserved;
            Ok(())
        })
    }

    /// The metadata store gives an empty zone of `capacity` blocks back: it is free. Returns what came, for the credits.
    ///
    /// # Errors
    /// The store did not have it.
    pub fn take_back(&mut self, zone: ZoneIndex, capacity: u32) -> Result<Need, BookError> {
        let before = self.totals();
        self.change(zone, |z| {
            z.expect(zone, &[ZoneState::Reserved], "the return of a zone")?;
            *z = Zone::new(capacity, ZoneState::Free);
            Ok(())
        })?;
        let Need { extents, available } = self.totals();
        Ok(Need { extents: extents - before.extents, available: available - before.available })
    }

    /// Applies `rule`, and returns how much less there is.
    fn shrink(
        &mut self,
        zone: ZoneIndex,
        rule: impl FnOnce(&mut Zone) -> Result<(), BookError>,
    ) -> Result<Need, BookError> {
        let before = self.totals();
        self.change(zone, rule)?;
        let Need { extents, available } = self.totals();
        Ok(Need { extents: before.extents.saturating_sub(extents), available: before.available - available })
    }

    /// Keeps the zone from being reset.
    ///
    /// # Errors
    /// The zone has nothing to read.
    pub fn pin(&mut self, zone: ZoneIndex, pin: Pin) -> Result<(), BookError> {
        let readable = [ZoneState::Open, ZoneState::Full, ZoneState::Dead, ZoneState::ReadOnly];
        self.change(zone, |z| {
            z.expect(zone, &readable, "a pin")?;
            let pins = match pin {
                Pin::Read => z.reads.checked_add(1).map(|n| z.reads = n),
                Pin::Copy => z.copies.checked_add(1).map(|n| z.copies = n),
            };
            pins.ok_or(BookError::Pins { zone })
        })
        .map(drop)
    }

    /// Removes a pin.
    ///
    /// # Errors
    /// There is none.
    pub fn unpin(&mut self, zone: ZoneIndex, pin: Pin) -> Result<(), BookError> {
        self.change(zone, |z| {
            let pins = match pin {
                Pin::Read => z.reads.checked_sub(1).map(|n| z.reads = n),
                Pin::Copy => z.copies.checked_sub(1).map(|n| z.copies = n),
            };
            pins.ok_or(BookError::Pins { zone })
        })
        .map(drop)
    }

    /// The zone to collect next: fully written, not being collected, with the fewest live blocks.
    pub fn victim(&self) -> Option<ZoneIndex> {
        self.victims.least(|zone| self.zones[zone.0 as usize].copies > 0)
    }

    /// Zones that became read-only and have live blocks, with no writes and no copies in flight.
    pub fn evacuees(&self) -> impl Iterator<Item = (ZoneIndex, &Zone)> {
        let zones = self.read_only.iter().map(|zone| (*zone, &self.zones[zone.0 as usize]));
        zones.filter(|(_, account)| account.copies == 0)
    }

    /// Whether there is a victim now.
    pub fn has_victim(&self) -> bool {
        self.victim().is_some()
    }

    /// Whether blocks can become available without a change by users. That is by a collection, by a reset that is due, or
    /// by writes in flight, whose end frees what they overwrote.
    pub fn is_reclaimable(&self) -> bool {
        let is_dying = !self.dead.is_empty() || self.count(ZoneState::Resetting) > 0;
        self.has_victim() || is_dying || self.sums.in_flight > 0
    }

    /// Fully written zones by live blocks.
    pub fn histogram(&self) -> Histogram {
        self.victims.histogram()
    }

    /// Dead zones that may be reset when commit number `committed` is durable.
    pub fn dead_zones(&self, committed: u64) -> impl Iterator<Item = ZoneIndex> {
        let due = self.dead.range(..=(committed, ZoneIndex(u32::MAX)));
        due.map(|&(_, zone)| zone).filter(|zone| {
            let z = &self.zones[zone.0 as usize];
            z.reads == 0 && z.copies == 0
        })
    }

    /// The lowest commit that lets a dead zone be reset, if the zone waits only for it.
    pub fn commit_wanted(&self) -> Option<u64> {
        self.dead.first().map(|&(commit, _)| commit)
    }

    /// The reset of a dead zone goes to the device.
    ///
    /// # Errors
    /// The zone is not dead, a read or copy is in flight, or what is durable refers to it.
    pub fn begin_reset(&mut self, zone: ZoneIndex, committed: u64) -> Result<(), BookError> {
        let freed_at = self.zone(zone).map(|_| self.freed_at[zone.0 as usize])?;
        self.change(zone, |z| {
            z.expect(zone, &[ZoneState::Dead], "a reset")?;
            if freed_at > committed {
                return Err(BookError::Referred { zone, committed, freed_at });
            }
            if z.reads > 0 || z.copies > 0 {
                return Err(BookError::Pinned { zone, reads: z.reads, copies: z.copies });
            }
            z.state = ZoneState::Resetting;
            Ok(())
        })
        .map(drop)
    }

    /// The reset succeeded: the zone is free. Returns how many blocks became available.
    ///
    /// # Errors
    /// It is not being reset.
    pub fn end_reset(&mut self, zone: ZoneIndex) -> Result<u32, BookError> {
        let free = self.change(zone, |z| {
            z.expect(zone, &[ZoneState::Resetting], "the end of a reset")?;
            *z = Zone::new(z.capacity, ZoneState::Free);
            Ok(())
        })?;
        self.freed_at[zone.0 as usize] = 0;
        let resets = &mut self.resets[zone.0 as usize];
        *resets = resets.saturating_add(1);
        Ok(free.capacity)
    }

    /// The reset failed: the zone is dead as before.
    ///
    /// # Errors
    /// It is not being reset.
    pub fn fail_reset(&mut self, zone: ZoneIndex) -> Result<(), BookError> {
        self.change(zone, |z| {
            z.expect(zone, &[ZoneState::Resetting], "the failure of a reset")?;
            z.state = ZoneState::Dead;
            Ok(())
        })
        .map(drop)
    }

    /// Applies `rule` to a zone, moves it on, and keeps indexes and sums in step; all or nothing.
    fn change(
        &mut self,
        zone: ZoneIndex,
        rule: impl FnOnce(&mut Zone) -> Result<(), BookError>,
    ) -> Result<Zone, BookError> {
        let before = *self.zone(zone)?;
        let mut after = before;
        rule(&mut after)?;
        after.settle();
        self.zones[zone.0 as usize] = after;
        self.counts[before.state as usize] -= 1;
        self.counts[after.state as usize] += 1;
        self.subtract(&before);
        self.add(&after);
        let (from, to) = (self.listed(&before), self.listed(&after));
        if from != to {
            self.unlist(zone, from);
            self.list(zone, to);
        }
        Ok(after)
    }

    fn add(&mut self, zone: &Zone) {
        let own = self.sums_of(zone);
        self.sums.each(own, |sum, own| sum + own);
    }

    fn subtract(&mut self, zone: &Zone) {
        let own = self.sums_of(zone);
        self.sums.each(own, |sum, own| sum - own);
    }

    fn sums_of(&self, zone: &Zone) -> Sums {
        let kept = |blocks: u32| if zone.is_writable() { u64::from(blocks) } else { 0 };
        Sums {
            available: zone.available().into(),
            used: zone.used.into(),
            reclaimable: zone.reclaimable().into(),
            data: kept(self.data_blocks(zone.capacity)),
            kept: kept(zone.used),
            in_flight: (zone.allocated - zone.written).into(),
        }
    }

    fn listed(&self, zone: &Zone) -> Listed {
        match zone.state {
            ZoneState::Free => Listed::Free,
            ZoneState::Full if zone.is_settled() => {
                Listed::Victim(Fill { used: zone.used, gains_below: self.gains_below(zone.capacity) })
            }
            ZoneState::Dead => Listed::Dead,
            ZoneState::ReadOnly if zone.used > 0 && zone.written == zone.allocated => Listed::ReadOnly,
            _ => Listed::Nowhere,
        }
    }

    fn list(&mut self, zone: ZoneIndex, place: Listed) {
        match place {
            Listed::Nowhere => {}
            Listed::Free => assert!(self.free.insert(zone)),
            Listed::Victim(fill) => self.victims.insert(zone, fill),
            Listed::Dead => assert!(self.dead.insert((self.freed_at[zone.0 as usize], zone))),
            Listed::ReadOnly => assert!(self.read_only.insert(zone)),
        }
    }

    fn unlist(&mut self, zone: ZoneIndex, place: Listed) {
        match place {
            Listed::Nowhere => {}
            Listed::Free => assert!(self.free.remove(&zone)),
            Listed::Victim(fill) => self.victims.remove(zone, fill),
            Listed::Dead => assert!(self.dead.remove(&(self.freed_at[zone.0 as usize], zone))),
            Listed::ReadOnly => assert!(self.read_only.remove(&zone)),
        }
    }

    /// Compares the indexes and sums with the zones.
    ///
    /// # Panics
    /// If they differ: a bug.
    pub fn check(&self) {
        let mut fresh = ZoneBook::empty(self.unit_blocks);
        for (zone, account) in self.iter() {
            let Zone { capacity, allocated, written, used, .. } = *account;
            assert!(used <= written && written <= allocated && allocated <= capacity, "{zone}: {account:?}");
            let mut settled = *account;
            settled.settle();
            assert_eq!(settled, *account, "zone {zone} has not moved on");
            fresh.push(*account);
        }
        assert_eq!(fresh.counts, self.counts);
        assert_eq!(fresh.sums, self.sums);
        assert_eq!(fresh.free, self.free);
        assert_eq!(fresh.read_only, self.read_only);
        assert_eq!(fresh.victims, self.victims);
        let dead = |book: &ZoneBook| book.dead.iter().map(|d| d.1).collect::<BTreeSet<_>>();
        assert_eq!(dead(&fresh), dead(self));
        assert!(self.dead.iter().all(|&(commit, zone)| self.freed_at[zone.0 as usize] == commit));
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
