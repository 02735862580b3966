//! Final check: reads every acknowledged block from the bare device.

use super::pattern::{Header, check_block, is_mixture};
use super::record::{Overwrite, Recorder};
use crate::jobs::workload::Zones;
use crate::report::{Expected, Found, Mismatch, VerifyReport};
use std::collections::HashMap;
use zonal_core::{SECTOR_BYTES, Sector};
use zonal_io::buffer::IoBuf;
use zonal_io::device::Device;
use zonal_io::volume::read_alone;

/// Reads back the writes in `recorders` from `device`, which must have no other user.
pub fn check_device(device: &dyn Device, recorders: &[Recorder], zones: &Zones) -> VerifyReport {
    let mut check = Check { device, zones, report: VerifyReport::default() };
    for recorder in recorders {
        check.runs(recorder);
    }
    check.overwrites(recorders);
    check.report
}

struct Check<'a> {
    device: &'a dyn Device,
    zones: &'a Zones,
    report: VerifyReport,
}

impl Check<'_> {
    fn runs(&mut self, recorder: &Recorder) {
        let sectors = u64::from(recorder.sectors);
        let at_once = (u64::from(self.device.info().command_sectors_max) / sectors).max(1);
        let mut buffer = IoBuf::empty();
        for run in &recorder.runs {
            let zone = self.zones.geometry().zone_of(Sector(run.sector));
            if self.zones.generation(zone) != run.generation {
                self.report.gone += u64::from(run.blocks);
                continue;
            }
            let mut done = 0;
            while done < u64::from(run.blocks) {
                let blocks = at_once.min(u64::from(run.blocks) - done);
                let sector = Sector(run.sector + done * sectors);
                let error;
                (buffer, error) = self.read(buffer, sector, blocks * sectors);
                for n in 0..blocks {
                    let expected = Expected {
                        sector: Sector(sector.0 + n * sectors),
                        id: Some(run.id + done + n),
                        generation: Some(run.generation),
                        seed: Some(recorder.seed),
                    };
                    let bytes = (sectors * SECTOR_BYTES) as usize;
                    let block = &buffer[n as usize * bytes..][..bytes];
                    self.block(recorder, block, error, &expected);
                }
                done += blocks;
            }
        }
    }

    fn block(
        &mut self,
        recorder: &Recorder,
        block: &[u8],
        error: Option<zonal_core::DeviceError>,
        expected: &Expected,
    ) {
        let geometry = self.zones.geometry();
        self.report.blocks += 1;
        self.report.bytes += block.len() as u64;
        let problem = match error {
            Some(error) => Some((*expected, Found::Unreadable(error))),
            None => check_block(block, expected.sector, geometry, Some(expected)),
        };
        if let Some((expected, found)) = problem {
            self.report.mismatch(Mismatch {
                job: recorder.job.clone(),
                sector: expected.sector,
                zone: geometry.zone_of(expected.sector),
                sectors: recorder.sectors,
                expected,
                found,
            });
        }
    }

    /// Reads into a separate buffer per command. Blocks above the device's command limit are read
    /// in pieces.
    fn read(&self, buffer: IoBuf, sector: Sector, sectors: u64) -> (IoBuf, Option<zonal_core::DeviceError>) {
        let bytes = |sectors: u64| (sectors * SECTOR_BYTES) as usize;
        let max = u64::from(self.device.info().command_sectors_max);
        if sectors <= max {
            let buffer = fitting(buffer, bytes(sectors));
            let (buffer, result) = read_alone(self.device, sector, buffer);
            return (buffer, result.err());
        }
        let mut whole = fitting(buffer, bytes(sectors));
        let mut done = 0;
        while done < sectors {
            let part = max.min(sectors - done);
            let buffer = IoBuf::zeroed(bytes(part) as u32);
            let (buffer, result) = read_alone(self.device, Sector(sector.0 + done), buffer);
            if let Err(error) = result {
                return (whole, Some(error));
            }
            whole[bytes(done)..bytes(done + part)].copy_from_slice(&buffer);
            done += part;
        }
        (whole, None)
    }

    /// Checks places that may have been overwritten: each has to hold one of the writes that may
    /// have completed last.
    fn overwrites(&mut self, recorders: &[Recorder]) {
        let mut places: HashMap<(u64, u32), Vec<(&Recorder, &Overwrite)>> = HashMap::new();
        for recorder in recorders {
            for overwrite in &recorder.overwrites {
                let place = (overwrite.sector, recorder.sectors);
                places.entry(place).or_default().push((recorder, overwrite));
            }
        }
        let extents = Extents::of(&places);
        let mut buffer = IoBuf::empty();
        for (&(sector, sectors), writes) in &places {
            if extents.is_overlapped(sector, sectors) {
                // Blocks of different sizes overlap here. The record does not say which part
                // belongs to which write.
                self.report.gone += writes.len() as u64;
                continue;
            }
            let acknowledged = writes.iter().filter(|(_, w)| w.ended != u64::MAX);
            let Some(last_begun) = acknowledged.map(|(_, w)| w.begun).max() else { continue };
            let candidates: Vec<_> = writes.iter().filter(|(_, w)| w.ended >= last_begun).collect();
            self.report.gone += (writes.len() - candidates.len()) as u64;
            let error;
            (buffer, error) = self.read(buffer, Sector(sector), u64::from(sectors));
            let expect = |recorder: &Recorder, write: &Overwrite| Expected {
                sector: Sector(sector),
                id: Some(write.id),
                generation: None,
                seed: Some(recorder.seed),
            };
            let geometry = self.zones.geometry();
            let is_one = candidates.iter().find(|(recorder, write)| {
                let expected = expect(recorder, write);
                check_block(&buffer, expected.sector, geometry, Some(&expected)).is_none()
            });
            if is_one.is_none() && error.is_none() && self.is_partly_overwritten(&buffer, sector, &candidates)
            {
                self.report.gone += candidates.iter().filter(|(_, w)| w.ended != u64::MAX).count() as u64;
                continue;
            }
            let (recorder, write) = *is_one.or(candidates.last()).copied().expect("one is acknowledged");
            self.block(recorder, &buffer, error, &expect(recorder, write));
        }
    }

    /// True if the place is a mixture of the candidates, because a failed write left part of
    /// itself. Any other content is still an error.
    fn is_partly_overwritten(
        &self,
        block: &[u8],
        sector: u64,
        candidates: &[&(&Recorder, &Overwrite)],
    ) -> bool {
        if candidates.iter().all(|(_, write)| write.ended != u64::MAX) {
            return false;
        }
        let zone = self.zones.geometry().zone_of(Sector(sector));
        let generation = self.zones.generation(zone);
        let write = |(recorder, write): &&(&Recorder, &Overwrite)| {
            let (seed, id) = (recorder.seed, write.id);
            Header { sector, seed, id, generation, zone: zone.0, bytes: block.len() as u32 }.block()
        };
        is_mixture(block, &candidates.iter().map(write).collect::<Vec<_>>())
    }
}

fn fitting(buffer: IoBuf, bytes: usize) -> IoBuf {
    if buffer.len() == bytes { buffer } else { IoBuf::zeroed(bytes as u32) }
}

/// Sorted places, to find those that overlap without being equal.
struct Extents(Vec<(u64, u32)>);

impl Extents {
    fn of<T>(places: &HashMap<(u64, u32), T>) -> Extents {
        let mut sorted: Vec<_> = places.keys().copied().collect();
        sorted.sort_unstable();
        Extents(sorted)
    }

    fn is_overlapped(&self, sector: u64, sectors: u32) -> bool {
        let at = self.0.partition_point(|place| *place < (sector, sectors));
        // The longest block bounds how far back an overlapping place can begin. Neighbours are
        // examined as long as they may reach this place.
        let reaches = |&&(s, n): &&(u64, u32)| s + u64::from(n) > sector;
        let before = self.0[..at].iter().rev().take(NEIGHBOURS_MAX).any(|place| reaches(&place));
        let behind = self.0.get(at + 1).is_some_and(|&(s, _)| s < sector + u64::from(sectors));
        before || behind
    }
}

/// Maximum number of preceding places examined for an overlap. In practice blocks differ by at most
/// this many sectors of 512 bytes. A missed overlap makes the check stricter, not weaker.
const NEIGHBOURS_MAX: usize = 4096;
