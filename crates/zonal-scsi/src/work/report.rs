//! REPORT ZONES: a sequence of volume reports, encoded as descriptors in the initiator's memory.
//!
//! Each step stores the descriptors that fit. A report that is not partial also counts matching
//! zones that do not fit. If all zones match, their number follows from the geometry, without a
//! request to the volume.

use super::{Memory, REPORT_ZONES, Step, memory, zones_of};
use crate::disk::{Disk, ZoneFilter};
use crate::wire::{ReportHeader, ReportedZone};
use zerocopy::IntoBytes;
use zonal_core::{Sector, ZoneDescriptor, ZoneIndex};
use zonal_io::volume::{Completion, Request};

/// Progress of a REPORT ZONES.
pub(crate) struct ReportWork {
    filter: ZoneFilter,
    is_partial: bool,
    /// Bytes available: allocation length, limited by the transport's buffer.
    room: u32,
    /// First zone not yet processed.
    next: u32,
    zones: u32,
    /// True if the report starts with the gap of the first zone.
    begins_in_gap: bool,
    /// Matching descriptors of zones before `next`.
    matched: u64,
}

const HEADER: usize = size_of::<ReportHeader>();
const DESCRIPTOR: usize = size_of::<ReportedZone>();

impl ReportWork {
    /// Starts a report at the zone of `sector`.
    pub(crate) fn new(
        disk: &Disk,
        sector: Sector,
        filter: ZoneFilter,
        is_partial: bool,
        room: u32,
    ) -> ReportWork {
        let geometry = disk.geometry();
        let zone = geometry.zone_of(sector);
        let begins_in_gap = geometry.offset_of(sector) >= geometry.capacity_of(zone);
        let zones = geometry.zones();
        ReportWork { filter, is_partial, room, next: zone.0, zones, begins_in_gap, matched: 0 }
    }

    pub(super) fn step(&mut self, disk: &Disk, memory: &mut Memory, end: Option<Completion>) -> Step {
        match end.map(zones_of) {
            Some(Ok(zones)) => self.put_zones(disk, memory, &zones),
            Some(Err(failure)) => return Step::End(Err(failure)),
            None => {}
        }
        self.skip_known_zones(disk);
        if self.next < self.zones {
            let start = disk.geometry().start_of(ZoneIndex(self.next));
            return Step::Ask(Request::report(start, self.zones_wanted()));
        }
        let header = disk.report_header(self.matched * DESCRIPTOR as u64);
        let len = HEADER.min(self.room as usize);
        memory::put(&mut memory.data_in, 0, &header.as_bytes()[..len]);
        let end = HEADER as u64 + self.matched * DESCRIPTOR as u64;
        Step::End(Ok(end.min(self.room.into()) as u32))
    }

    /// Number of whole descriptors that fit.
    fn fits(&self) -> u64 {
        (self.room as usize).saturating_sub(HEADER) as u64 / DESCRIPTOR as u64
    }

    /// True if the buffer is full. A final partial descriptor fills it, too.
    fn is_filled(&self) -> bool {
        HEADER as u64 + self.matched * DESCRIPTOR as u64 >= self.room.into()
    }

    /// Size of the next volume report: no more zones than fit, if all match.
    fn zones_wanted(&self) -> u32 {
        let left = (self.room as usize).saturating_sub(HEADER).div_ceil(DESCRIPTOR) as u64;
        let wanted = match self.filter {
            ZoneFilter::All | ZoneFilter::AllButGaps => left.saturating_sub(self.matched).max(1),
            _ => u64::MAX,
        };
        wanted.min(REPORT_ZONES.into()) as u32
    }

    /// Skips zones that need not be requested from the volume.
    fn skip_known_zones(&mut self, disk: &Disk) {
        if self.is_partial && self.matched >= self.fits() || self.filter == ZoneFilter::WithProperties {
            self.next = self.zones;
            return;
        }
        let is_all = matches!(self.filter, ZoneFilter::All | ZoneFilter::AllButGaps);
        if is_all && self.is_filled() {
            let left = u64::from(self.zones - self.next);
            let sequential = self.zones - disk.geometry().conventional_zones().clamp(self.next, self.zones);
            let has_gaps = disk.has_gaps() && self.filter.has_gaps();
            // The first zone itself may be skipped in favour of its gap.
            self.matched += left - u64::from(self.begins_in_gap);
            self.matched += if has_gaps { sequential.into() } else { 0 };
            self.next = self.zones;
        }
    }

    fn put_zones(&mut self, disk: &Disk, memory: &mut Memory, zones: &[ZoneDescriptor]) {
        let at = HEADER as u64 + self.matched * DESCRIPTOR as u64;
        let room = u64::from(self.room).saturating_sub(at);
        let mut bytes = Vec::new();
        for zone in zones {
            // Ignore zones that the device reports beyond its end.
            if self.next >= self.zones || self.is_partial && self.matched >= self.fits() {
                break;
            }
            self.next += 1;
            let own = (!self.begins_in_gap && self.filter.has(zone)).then(|| disk.described(zone));
            self.begins_in_gap = false;
            let gap = disk.gap_after(zone).filter(|_| self.filter.has_gaps());
            for described in own.into_iter().chain(gap) {
                if self.is_partial && self.matched >= self.fits() {
                    break;
                }
                self.matched += 1;
                if (bytes.len() as u64) < room {
                    bytes.extend_from_slice(described.as_bytes());
                }
            }
        }
        bytes.truncate(room as usize);
        memory::put(&mut memory.data_in, at as usize, &bytes);
    }
}
