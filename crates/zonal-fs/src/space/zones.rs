//! The book of zones: state and account of every zone of a drive.
//!
//! Owns the counters of each zone: allocated blocks (headers included), blocks with ended writes,
//! live data blocks, reads and copies in flight. Also owns everything derived from them: free
//! zones, victims, dead zones, sums. Independent of files, extents and the device.
//!
//! # States
//! `Free` -> `Open` ([`ZoneBook::take_free`]) -> `Full` (last block allocated, or
//! [`ZoneBook::close`]) -> `Dead` (all writes ended, nothing live) -> `Resetting` -> `Free`.
//! `ReadOnly` and `Offline` are reported by the device and final. `Reserved` zones are not managed
//! here.
//!
//! # Invariants
//! - `used <= written <= allocated <= capacity`; a call that would violate this fails and changes
//!   nothing.
//! - A zone becomes a victim or dead only once it is full and all its writes have ended. Blocks
//!   freed in an open zone are taken into account when it becomes full.
//! - A zone is a victim only if its capacity exceeds the blocks needed to copy its live data, waste
//!   included.
//! - A read-only zone is never a victim, because collecting it gains no space. It is in a separate
//!   list while it has live blocks.
//! - A zone is reset only after the commit that freed its last block is durable, and with no reads
//!   or copies in flight.
//!
//! # Why ending a write and making its blocks live is one call
//! In between, the zone's last blocks would be written but not live. The zone would be dead, and
//! could be reset while a file is about to refer to it.

use super::cost::Need;
use super::error::BookError;
use super::victims::{COPY_WASTE, Fill, Histogram, Victims};
use super::zone::{Lost, Pin, Zone, ZoneState};
use std::collections::BTreeSet;
use zonal_core::ZoneIndex;

/// Order in which free zones are opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ZoneOrder {
    /// Lowest index first: the outer, faster tracks of a disk.
    #[default]
    LowestIndex,
    /// The next one after the last. The position is not kept across mounts.
    RoundRobin,
}

/// Membership of a zone in the book's indexes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Listed {
    Nowhere,
    Free,
    Victim(Fill),
    Dead,
    ReadOnly,
}

/// Totals of all zones, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// Free zones and tails of open zones.
    pub available: u64,
    /// Live data.
    pub used: u64,
    /// Neither live nor available: garbage, headers, abandoned blocks.
    pub reclaimable: u64,
    /// Data blocks that fit into writable zones.
    pub data: u64,
    /// Live data in writable zones.
    pub kept: u64,
    /// Allocated, but not ended.
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

/// The book of zones.
#[derive(Clone, Debug)]
pub struct ZoneBook {
    zones: Vec<Zone>,
    /// Commit that freed a zone's last block; 0 if everything is durable.
    freed_at: Vec<u64>,
    /// Resets of each zone, for statistics only.
    resets: Vec<u32>,
    /// Size of a unit in blocks, header included, with maximally scattered data.
    unit_blocks: u32,
    /// Capacity of the largest zone.
    zone_blocks: u32,
    free: BTreeSet<ZoneIndex>,
    victims: Victims,
    /// Dead zones, by the commit that has to be durable.
    dead: BTreeSet<(u64, ZoneIndex)>,
    /// Read-only zones with live blocks.
    read_only: BTreeSet<ZoneIndex>,
    counts: [u32; ZoneState::ALL.len()],
    sums: Sums,
    cursor: u32,
}

impl ZoneBook {
    /// A book without zones. For `unit_blocks` see [`ZoneBook::load`].
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

    /// Number of zones.
    pub fn len(&self) -> u32 {
        self.zones.len() as u32
    }

    /// True if there are no zones.
    pub fn is_empty(&self) -> bool {
        self.zones.is_empty()
    }

    /// Account of a zone.
    ///
    /// # Errors
    /// If the zone does not exist.
    pub fn zone(&self, zone: ZoneIndex) -> Result<&Zone, BookError> {
        self.zones.get(zone.0 as usize).ok_or(BookError::NoZone { zone })
    }

    /// All zones and their accounts, by index.
    pub fn iter(&self) -> impl Iterator<Item = (ZoneIndex, &Zone)> {
        self.zones.iter().enumerate().map(|(index, zone)| (ZoneIndex(index as u32), zone))
    }

    /// Number of zones in `state`.
    pub fn count(&self, state: ZoneState) -> u32 {
        self.counts[state as usize]
    }

    /// Totals of all zones.
    pub fn sums(&self) -> Sums {
        self.sums
    }

    /// Resets of `zone`, including those before the mount.
    pub fn resets(&self, zone: ZoneIndex) -> u32 {
        self.resets.get(zone.0 as usize).copied().unwrap_or(0)
    }

    /// Sets the number of resets of `zone` at mount.
    ///
    /// # Errors
    /// If the zone does not exist.
    pub fn set_resets(&mut self, zone: ZoneIndex, resets: u32) -> Result<(), BookError> {
        self.zone(zone)?;
        self.resets[zone.0 as usize] = resets;
        Ok(())
    }

    /// Capacity of the largest zone.
    pub fn zone_blocks(&self) -> u32 {
        self.zone_blocks
    }

    /// Data blocks that fit into `capacity` blocks, however scattered.
    pub fn data_blocks(&self, capacity: u32) -> u32 {
        capacity - capacity.div_ceil(self.unit_blocks)
    }

    /// Blocks needed for `data` blocks and their headers, however scattered.
    pub(super) fn blocks_for(&self, data: u32) -> u32 {
        data + data.div_ceil(self.unit_blocks - 1)
    }

    /// Number of live blocks at which collecting a zone of `capacity` blocks gains nothing.
    fn gains_below(&self, capacity: u32) -> u32 {
        self.data_blocks(capacity.saturating_sub(COPY_WASTE)) + 1
    }

    /// True if closing an open zone without writes in flight would make it worth collecting.
    pub fn gains_once_closed(&self, zone: ZoneIndex) -> bool {
        self.zone(zone).is_ok_and(|account| {
            let is_at_rest = account.state == ZoneState::Open && account.written == account.allocated;
            // The gain has to exceed the blocks that are lost until its reset.
            is_at_rest && account.used + account.available() < self.gains_below(account.capacity)
        })
    }

    /// Total space for files and the collector: the initial credits.
    pub fn totals(&self) -> Need {
        let Sums { available, data, kept, .. } = self.sums;
        Need { extents: data.saturating_sub(kept), available }
    }

    /// Number of live data blocks that exceed the space: they are packed closer than was reckoned, or
    /// zones were lost.
    pub fn debt(&self) -> u64 {
        self.sums.kept.saturating_sub(self.sums.data)
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

    /// Allocates `blocks` of an open zone, headers included. The last block makes the zone full.
    ///
    /// # Errors
    /// If the zone is not open or has less left.
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

    /// Ends the write of `blocks`, `live` of which are data that files refer to from now on. A
    /// failed write has none, and neither has a copy that was overtaken.
    ///
    /// # Errors
    /// If more blocks end than are allocated, or more become live than have ended.
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

    /// Frees `blocks` live blocks. `commit` is the number of the first commit that does not refer
    /// to them. Blocks of a lost zone are not regained: check [`Zone::is_writable`] of the result.
    ///
    /// # Errors
    /// If fewer are live: the metadata are corrupt.
    pub fn free(&mut self, zone: ZoneIndex, blocks: u32, commit: u64) -> Result<Zone, BookError> {
        let used = self.zone(zone)?.used;
        if blocks > used {
            return Err(BookError::Underused { zone, used, blocks });
        }
        if blocks == 0 {
            return self.zone(zone).copied();
        }
        // Set before the change, because a zone that dies is listed under this number. A dead zone
        // has no live blocks and does not get here.
        let freed_at = &mut self.freed_at[zone.0 as usize];
        *freed_at = commit.max(*freed_at);
        self.change(zone, |z| {
            z.used -= blocks;
            Ok(())
        })
    }

    /// Closes an open zone early. The rest of it is lost until its reset. Returns the loss, for the
    /// credits.
    ///
    /// # Errors
    /// If the zone is not open.
    pub fn close(&mut self, zone: ZoneIndex) -> Result<Need, BookError> {
        self.shrink(zone, |z| {
            z.expect(zone, &[ZoneState::Open], "closing")?;
            z.state = ZoneState::Full;
            Ok(())
        })
    }

    /// Makes a zone read-only or offline, in any state. Returns the loss, for the credits.
    ///
    /// # Errors
    /// If the zone does not exist or is reserved.
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

    /// Gives a free zone to the metadata store. Returns the loss, for the credits.
    ///
    /// # Errors
    /// If the zone is not free.
    pub fn lend(&mut self, zone: ZoneIndex) -> Result<Need, BookError> {
        self.shrink(zone, |z| {
            z.expect(zone, &[ZoneState::Free], "the metadata store")?;
            z.state = ZoneState::Reserved;
            Ok(())
        })
    }

    /// Takes an empty zone of `capacity` blocks back from the metadata store, as a free zone.
    /// Returns the gain, for the credits.
    ///
    /// # Errors
    /// If the store did not have it.
    pub fn take_back(&mut self, zone: ZoneIndex, capacity: u32) -> Result<Need, BookError> {
        let before = (self.totals(), self.debt());
        self.change(zone, |z| {
            z.expect(zone, &[ZoneState::Reserved], "the return of a zone")?;
            *z = Zone::new(capacity, ZoneState::Free);
            Ok(())
        })?;
        Ok(difference((self.totals(), self.debt()), before))
    }

    /// Applies `rule`, and returns the decrease of the totals.
    fn shrink(
        &mut self,
        zone: ZoneIndex,
        rule: impl FnOnce(&mut Zone) -> Result<(), BookError>,
    ) -> Result<Need, BookError> {
        let before = (self.totals(), self.debt());
        self.change(zone, rule)?;
        Ok(difference(before, (self.totals(), self.debt())))
    }

    /// Pins the zone, so that it is not reset. A copy may have been read before its zone went
    /// offline.
    ///
    /// # Errors
    /// If the zone has nothing to read.
    pub fn pin(&mut self, zone: ZoneIndex, pin: Pin) -> Result<(), BookError> {
        use ZoneState::{Dead, Full, Offline, Open, ReadOnly};
        let states: &[ZoneState] = match pin {
            Pin::Read => &[Open, Full, Dead, ReadOnly],
            Pin::Copy => &[Open, Full, Dead, ReadOnly, Offline],
        };
        self.change(zone, |z| {
            z.expect(zone, states, "a pin")?;
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
    /// If there is none.
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

    /// The next zone to collect: full, settled, not being collected, with the fewest live blocks.
    pub fn victim(&self) -> Option<ZoneIndex> {
        self.victims.least(|zone| self.zones[zone.0 as usize].copies > 0)
    }

    /// Read-only zones with live blocks, and no writes or copies in flight.
    pub fn evacuees(&self) -> impl Iterator<Item = (ZoneIndex, &Zone)> {
        let zones = self.read_only.iter().map(|zone| (*zone, &self.zones[zone.0 as usize]));
        zones.filter(|(_, account)| account.copies == 0)
    }

    /// True if there is a victim.
    pub fn has_victim(&self) -> bool {
        self.victim().is_some()
    }

    /// True if blocks can become available without changes by users: by a collection, by a pending
    /// reset, or by writes in flight, which free what they overwrote when they end.
    pub fn is_reclaimable(&self) -> bool {
        self.has_victim() || self.is_freeing()
    }

    /// True if blocks can become available without a collection: by a pending reset or by writes in
    /// flight.
    pub fn is_freeing(&self) -> bool {
        let is_dying = !self.dead.is_empty() || self.count(ZoneState::Resetting) > 0;
        is_dying || self.sums.in_flight > 0
    }

    /// Histogram of settled zones by live blocks.
    pub fn histogram(&self) -> Histogram {
        self.victims.histogram()
    }

    /// Dead zones that may be reset once commit `committed` is durable.
    pub fn dead_zones(&self, committed: u64) -> impl Iterator<Item = ZoneIndex> {
        let due = self.dead.range(..=(committed, ZoneIndex(u32::MAX)));
        due.map(|&(_, zone)| zone).filter(|zone| {
            let z = &self.zones[zone.0 as usize];
            z.reads == 0 && z.copies == 0
        })
    }

    /// The lowest commit that a dead zone is waiting for.
    pub fn commit_wanted(&self) -> Option<u64> {
        self.dead.first().map(|&(commit, _)| commit)
    }

    /// Starts the reset of a dead zone.
    ///
    /// # Errors
    /// If the zone is not dead, a read or copy is in flight, or the durable metadata refer to it.
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

    /// Ends a successful reset: the zone is free. Returns the number of blocks that became
    /// available.
    ///
    /// # Errors
    /// If the zone is not being reset.
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

    /// Ends a failed reset: the zone is dead again.
    ///
    /// # Errors
    /// If the zone is not being reset.
    pub fn fail_reset(&mut self, zone: ZoneIndex) -> Result<(), BookError> {
        self.change(zone, |z| {
            z.expect(zone, &[ZoneState::Resetting], "the failure of a reset")?;
            z.state = ZoneState::Dead;
            Ok(())
        })
        .map(drop)
    }

    /// Applies `rule` to a zone, settles its state, and updates indexes and sums; all or nothing.
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

    /// Compares indexes and sums with the zones.
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

/// Returns how much more space there is with some totals and debt than with others.
fn difference((more, debt): (Need, u64), (less, more_debt): (Need, u64)) -> Need {
    let extents = (more.extents + more_debt).saturating_sub(less.extents + debt);
    Need { extents, available: more.available - less.available }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
