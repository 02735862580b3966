//! Choice of the next request.

use crate::random::load::Run;
use crate::random::setup::Profile;
use rand::RngExt;
use zonal_core::{Op, Sector, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::volume::Request;

/// Longest request, in sectors.
const SECTORS_MAX: u32 = 20;

impl Run {
    fn any_zone(&mut self) -> u32 {
        self.rng.random_range(0..self.volume.info().geometry.zones())
    }

    fn capacity(&self, zone: u32) -> u32 {
        self.volume.info().geometry.capacity_of(ZoneIndex(zone))
    }

    fn is_conventional(&self, zone: u32) -> bool {
        self.volume.info().geometry.is_conventional(ZoneIndex(zone))
    }

    /// Any request, sensible or not.
    pub fn any_request(&mut self) -> Request {
        let zone = self.any_zone();
        let sectors = self.rng.random_range(1..=SECTORS_MAX);
        let start = self.sector(zone, 0);
        let request = match self.rng.random_range(0..1000) {
            0..300 => Request::append(start, sectors.min(8), IoBuf::empty()),
            300..560 => Request::write(self.guess(zone), sectors, IoBuf::empty()),
            560..620 => Request::write_zeroes(self.guess(zone), sectors),
            620..700 => Request::read(self.somewhere(zone), sectors, IoBuf::empty()),
            700..740 => Request::write(self.somewhere(zone), sectors, IoBuf::empty()),
            740..900 => self.follow(zone, sectors),
            900..970 => self.management(zone),
            970..978 => Request::report(start, 2),
            _ => Request::flush(),
        };
        let request = if self.rng.random_ratio(1, 16) { request.nowait() } else { request };
        if self.rng.random_ratio(1, 16) { request.fua() } else { request }
    }

    /// A request that can be submitted at any time. In profiles in which proper requests must
    /// succeed, it does not interfere with any other.
    pub fn any_successor(&mut self) -> Request {
        let zone = self.any_zone();
        let sectors = self.rng.random_range(1..=SECTORS_MAX);
        let start = self.sector(zone, 0);
        match self.rng.random_range(0..10) {
            0..3 if self.setup.is_wild() => Request::append(start, sectors.min(8), IoBuf::empty()),
            3..6 if self.setup.is_wild() => Request::write(self.guess(zone), sectors, IoBuf::empty()),
            0..8 => Request::read(start, sectors, IoBuf::empty()),
            8 => Request::report(start, 1),
            _ => Request::flush(),
        }
    }

    fn somewhere(&mut self, zone: u32) -> Sector {
        let offset = self.rng.random_range(0..crate::random::setup::ZONE as u32);
        self.sector(zone, offset)
    }

    /// The volume's write pointer, which is right unless requests are waiting.
    fn guess(&mut self, zone: u32) -> Sector {
        match self.volume.write_pointer(ZoneIndex(zone)) {
            // Without ordering by the volume, the caller's own count is the best guess.
            Some(_) if self.setup.is_direct() => self.sector(zone, self.next[zone as usize]),
            Some(pointer) => Sector(pointer.0.min(self.volume.info().geometry.sectors().0 - 1)),
            None => self.somewhere(zone),
        }
    }

    /// A write that follows the last submitted one.
    fn follow(&mut self, zone: u32, sectors: u32) -> Request {
        let offset = self.next[zone as usize];
        if offset + sectors > self.capacity(zone) {
            self.next[zone as usize] = 0;
            return Request::zone(Op::ZoneReset, self.sector(zone, 0));
        }
        self.next[zone as usize] += sectors;
        Request::write(self.sector(zone, offset), sectors, IoBuf::empty())
    }

    fn management(&mut self, zone: u32) -> Request {
        let start = self.sector(zone, 0);
        let op = match self.rng.random_range(0..100) {
            0..60 => Op::ZoneReset,
            60..70 => Op::ZoneFinish,
            70..80 => Op::ZoneOpen,
            80..95 => Op::ZoneClose,
            _ => {
                self.next.fill(0);
                return Request::reset_all();
            }
        };
        if matches!(op, Op::ZoneReset | Op::ZoneFinish) {
            self.next[zone as usize] = if op == Op::ZoneReset { 0 } else { self.capacity(zone) };
        }
        Request::zone(op, start)
    }

    /// A request that must succeed, and true if it is a write. Zones with even numbers take
    /// positional writes, the others appends.
    pub fn proper_request(&mut self) -> (Request, bool) {
        let zone = self.any_zone();
        let sectors = self.rng.random_range(1..=SECTORS_MAX);
        match self.rng.random_range(0..1000) {
            0..850 if !self.is_conventional(zone) => self.proper_write(zone, sectors),
            850..930 => (Request::read(self.sector(zone, 0), sectors, IoBuf::empty()), false),
            930..950 => (self.management(zone), false),
            950..970 => (Request::report(self.sector(zone, 0), 2), false),
            _ => (Request::flush(), false),
        }
    }

    fn proper_write(&mut self, zone: u32, sectors: u32) -> (Request, bool) {
        let is_positional = zone.is_multiple_of(2);
        let sectors = if is_positional { sectors } else { sectors.min(self.volume.append_sectors_max()) };
        let offset = self.next[zone as usize];
        // After a lost write, all positional writes behind it fail until a reset.
        let is_lost = self.setup.profile == Profile::Losing && self.rng.random_ratio(1, 40);
        if offset + sectors > self.capacity(zone) || is_lost {
            self.next[zone as usize] = 0;
            return (Request::zone(Op::ZoneReset, self.sector(zone, 0)), false);
        }
        self.next[zone as usize] += sectors;
        let at = self.sector(zone, offset);
        let request = match is_positional {
            true if self.rng.random_ratio(1, 10) => Request::write_zeroes(at, sectors),
            true => Request::write(at, sectors, IoBuf::empty()),
            false => Request::append(self.sector(zone, 0), sectors, IoBuf::empty()),
        };
        let request = if self.rng.random_ratio(1, 16) { request.fua() } else { request };
        (request, true)
    }
}
