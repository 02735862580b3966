//! Payloads: what was written is read, and no byte outside of a command is touched.

use super::Options;
use super::host::{Broken, Host, Memory, Order, done, payload};
use super::rules::Zones;
use crate::device::{DeviceInfo, Output, Settled};
use crate::volume::keeps_data;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::time::Duration;
use zonal_core::{DeviceError, Op, SECTOR_BYTES, Sector, Sectors, ZoneIndex};

const SECTOR: usize = SECTOR_BYTES as usize;

/// Bytes that a host has written to one zone.
pub(super) struct Shadow {
    pub zone: ZoneIndex,
    pub start: Sector,
    pub bytes: Vec<u8>,
}

impl Shadow {
    pub fn of(info: &DeviceInfo, zone: ZoneIndex) -> Shadow {
        Shadow { zone, start: info.geometry.start_of(zone), bytes: Vec::new() }
    }

    pub fn written(&self) -> u32 {
        (self.bytes.len() / SECTOR) as u32
    }

    pub fn end(&self) -> Sector {
        self.start + Sectors(self.written().into())
    }

    /// Reads some of it on this queue, and compares.
    pub fn verify(&self, host: &Host<'_>, chance: &mut Pcg64Mcg, queue: usize) -> Result<(), Broken> {
        let info = host.device.info();
        let (block, blocks) = (info.block_sectors, self.written() / info.block_sectors);
        if blocks == 0 {
            return Ok(());
        }
        let first = (chance.next_u64() % u64::from(blocks)) as u32;
        let most = (info.command_sectors_max / block).min(blocks - first).min(32);
        let count = 1 + (chance.next_u64() % u64::from(most)) as u32;
        self.verify_range(host, chance, queue, first * block, count * block)
    }

    fn verify_range(
        &self,
        host: &Host<'_>,
        chance: &mut Pcg64Mcg,
        queue: usize,
        offset: u32,
        sectors: u32,
    ) -> Result<(), Broken> {
        let sector = self.start + Sectors(offset.into());
        let memory = Memory::blank(sectors as usize * SECTOR, chance);
        let (answer, mut memory) = host.run(Order::new(Op::Read, sector, sectors).on(queue).with(memory))?;
        done(&answer, format_args!("read of {sectors} sectors at {sector}, in zone {}", self.zone))?;
        let from = offset as usize * SECTOR;
        let wanted = &self.bytes[from..from + sectors as usize * SECTOR];
        match memory.payload().iter().zip(wanted).position(|(got, wanted)| got != wanted) {
            None => Ok(()),
            Some(at) => Err(format!(
                "read of {sectors} sectors at {sector}, in zone {}: byte {at} is not the one written",
                self.zone
            )),
        }
    }

    /// Reads all of it, and compares.
    pub fn verify_all(&self, host: &Host<'_>, chance: &mut Pcg64Mcg, queue: usize) -> Result<(), Broken> {
        let info = host.device.info();
        let most = info.command_sectors_max / info.block_sectors * info.block_sectors;
        let mut offset = 0;
        while offset < self.written() {
            let sectors = most.min(self.written() - offset);
            self.verify_range(host, chance, queue, offset, sectors)?;
            offset += sectors;
        }
        Ok(())
    }
}

/// Bytes of a zone beyond which a check writes no more to it.
const ZONE_BYTES_MAX: u32 = 4 << 20;

/// Writes, appends, zeroes and flushes, read back. The memory of a command is overwritten after its
/// answer, since it belongs to the host from then on.
pub(super) fn payloads(host: &Host<'_>, options: &Options) -> Result<Option<String>, Broken> {
    if !keeps_data(host.device) {
        return Ok(Some("the device keeps no data".into()));
    }
    let mut zones = Zones::new(host, options)?;
    let info = zones.info;
    let mut shadows = zones.shadows()?;
    let (block, count) = (info.block_sectors, shadows.len());
    let mut chance = Pcg64Mcg::seed_from_u64(options.seed);
    for n in 0..options.steps {
        let shadow = &mut shadows[chance.next_u64() as usize % count];
        let capacity =
            info.geometry.capacity_of(shadow.zone).min(ZONE_BYTES_MAX / SECTOR as u32) / block * block;
        let kinds = [Op::Write, Op::Write, Op::Append, Op::WriteZeroes, Op::Flush, Op::Verify];
        let op = kinds[chance.next_u64() as usize % kinds.len()];
        let most = match op {
            Op::Append => info.append_sectors_max,
            Op::WriteZeroes => info.write_zeroes_sectors_max,
            Op::Verify => info.verify_sectors_max,
            _ => info.command_sectors_max,
        };
        if op == Op::Flush {
            done(&host.simple(op, Sector(0), 0)?, "flush")?;
            continue;
        }
        let blocks_max = (most / block).min(16);
        if blocks_max == 0 {
            continue;
        }
        let sectors = (1 + chance.next_u64() as u32 % blocks_max) * block;
        if op == Op::Verify {
            if shadow.written() >= sectors {
                done(&host.simple(op, shadow.start, sectors)?, "verify")?;
            }
            continue;
        }
        if shadow.written() + sectors > capacity {
            shadow.verify_all(host, &mut chance, 0)?;
            done(&host.simple(Op::ZoneReset, shadow.start, 0)?, "reset")?;
            shadow.bytes.clear();
            continue;
        }
        write(
            host,
            shadow,
            &mut chance,
            &Writing { op, sectors, seed: options.seed + u64::from(n), queue: 0 },
        )?;
        shadow.verify(host, &mut chance, 0)?;
    }
    for shadow in &shadows {
        shadow.verify_all(host, &mut chance, 0)?;
    }
    conventional(host, &zones, &mut chance)?;
    zones.reset_all()?;
    Ok(None)
}

/// A write to a zone.
pub(super) struct Writing {
    pub op: Op,
    pub sectors: u32,
    pub seed: u64,
    pub queue: usize,
}

/// Writes behind what was written.
pub(super) fn write(
    host: &Host<'_>,
    shadow: &mut Shadow,
    chance: &mut Pcg64Mcg,
    writing: &Writing,
) -> Result<(), Broken> {
    let &Writing { op, sectors, seed, queue } = writing;
    let len = sectors as usize * SECTOR;
    let bytes = if op == Op::WriteZeroes { vec![0; len] } else { payload(len, seed) };
    let at = shadow.end();
    let sector = if op == Op::Append { shadow.start } else { at };
    let memory = if op == Op::WriteZeroes { Memory::none() } else { Memory::holding(&bytes, chance) };
    let fua = host.device.info().fua && seed % 4 == 0;
    let (answer, mut memory) =
        host.run(Order { fua, ..Order::new(op, sector, sectors).on(queue).with(memory) })?;
    memory.payload().fill(0x11);
    let wanted = if op == Op::Append { Output::Appended(at) } else { Output::Done };
    if answer != Ok(wanted) {
        return Err(format!(
            "{} of {sectors} sectors at {at}, in zone {}: {answer:?}",
            op.name(),
            shadow.zone
        ));
    }
    shadow.bytes.extend(bytes);
    Ok(())
}

/// Overwrites and discards in a conventional zone.
fn conventional(host: &Host<'_>, zones: &Zones<'_, '_>, chance: &mut Pcg64Mcg) -> Result<(), Broken> {
    let info = zones.info;
    let block = info.block_sectors;
    let Some(zone) = zones.chosen().into_iter().find(|&zone| info.geometry.is_conventional(zone)) else {
        return Ok(());
    };
    let mut shadow = Shadow::of(info, zone);
    let most = (info.command_sectors_max / block * block).min(64 * block).min(info.geometry.size_of(zone));
    for round in 0..4 {
        shadow.bytes.clear();
        write(
            host,
            &mut shadow,
            chance,
            &Writing { op: Op::Write, sectors: most, seed: 77 + round, queue: 0 },
        )?;
        shadow.verify_all(host, chance, 0)?;
    }
    // A part of it once more, behind the start.
    let part = most / 2 / block * block;
    if part > 0 {
        let at = shadow.start + Sectors((most - part).into());
        let bytes = payload(part as usize * SECTOR, 99);
        let memory = Memory::holding(&bytes, chance);
        done(&host.run(Order::new(Op::Write, at, part).with(memory))?.0, "overwrite")?;
        shadow.bytes.truncate((most - part) as usize * SECTOR);
        shadow.bytes.extend(bytes);
        shadow.verify_all(host, chance, 0)?;
    }
    if info.discard_sectors_max >= block {
        done(&host.simple(Op::Discard, shadow.start, block)?, "discard")?;
        shadow.bytes[..block as usize * SECTOR].fill(0);
        shadow.verify_all(host, chance, 0)?;
    }
    Ok(())
}

/// Memory of commands that timed out, and the zone afterwards: once it is settled, nothing moves its
/// pointer, and what lies before the pointer is what was written.
pub(super) fn timeouts(host: &Host<'_>, options: &Options) -> Result<Option<String>, Broken> {
    let mut zones = Zones::new(host, options)?;
    let info = zones.info;
    let zone = zones.first()?;
    let keeps_data = keeps_data(host.device);
    let mut shadow = Shadow::of(info, zone);
    let (block, capacity) = (info.block_sectors, info.geometry.capacity_of(zone));
    let mut chance = Pcg64Mcg::seed_from_u64(options.seed);
    let mut timed_out = 0;
    for n in 0..options.steps.min(capacity / block) {
        if timed_out == TIMEOUTS || shadow.written() + block > capacity {
            break;
        }
        let bytes = payload(block as usize * SECTOR, options.seed ^ u64::from(n));
        let memory = Memory::holding(&bytes, &mut chance);
        let (answer, mut memory) = host.run(Order::new(Op::Write, shadow.end(), block).with(memory))?;
        memory.payload().fill(0x22);
        match answer {
            Ok(_) => shadow.bytes.extend(bytes),
            Err(DeviceError::TimedOut) => {
                timed_out += 1;
                settle(host, zone)?;
                let pointer = pointer(host, zone)?;
                let late = pointer.0 - shadow.end().0;
                if late > u64::from(block) {
                    return Err(format!(
                        "after a write of {block} sectors that timed out, the pointer moved by {late}"
                    ));
                }
                shadow.bytes.extend(&bytes[..late as usize * SECTOR]);
                for _ in 0..20 {
                    host.sleep(0, Duration::from_millis(1), || false);
                    host.poll(0)?;
                }
                if self::pointer(host, zone)? != pointer {
                    return Err(format!("the pointer of zone {zone} moved after the zone was settled"));
                }
            }
            Err(error) if error.is_uncertain() => {
                return Ok(Some(format!("a write failed with another error: {error}")));
            }
            Err(error) => return Err(format!("write at the pointer of zone {zone}: {error:?}")),
        }
    }
    if timed_out == 0 {
        return Ok(Some("no command timed out".into()));
    }
    if keeps_data {
        shadow.verify_all(host, &mut chance, 0)?;
    }
    zones.reset_all()?;
    Ok(None)
}

/// Commands that time out after which the check ends.
const TIMEOUTS: u32 = 8;

fn pointer(host: &Host<'_>, zone: ZoneIndex) -> Result<Sector, Broken> {
    let found = host.zone(zone)?;
    Ok(found.write_pointer.unwrap_or(found.start + found.capacity))
}

/// Calls `settle` until nothing of the zone can take effect any more.
fn settle(host: &Host<'_>, zone: ZoneIndex) -> Result<(), Broken> {
    for _ in 0..100_000 {
        match host.device.settle(host.now(), zone) {
            Settled::Yes => return Ok(()),
            Settled::Never(error) => return Err(format!("zone {zone} cannot be settled: {error}")),
            Settled::NotYet(_) => host.rest(0)?,
        }
    }
    Err(format!("zone {zone} is never settled"))
}

/// Without commands that timed out, every zone is settled.
pub(super) fn settled(host: &Host<'_>) -> Result<(), Broken> {
    let zones = host.device.info().geometry.zones();
    for zone in [0, zones / 2, zones - 1] {
        match host.device.settle(host.now(), ZoneIndex(zone)) {
            Settled::Yes => {}
            other => return Err(format!("zone {zone} without commands is settled: {other:?}")),
        }
    }
    Ok(())
}

/// A device opened for reading changes nothing.
pub(super) fn read_only(host: &Host<'_>, options: &Options) -> Result<(), Broken> {
    let info = host.device.info();
    let mut chance = Pcg64Mcg::seed_from_u64(options.seed);
    let zone = ZoneIndex(info.geometry.zones() - 1);
    let start = info.geometry.start_of(zone);
    let before = host.zone(zone)?;
    for op in [Op::Write, Op::ZoneReset, Op::ZoneFinish, Op::ZoneOpen, Op::ResetAll] {
        let sectors = if op == Op::Write { info.block_sectors } else { 0 };
        let memory = match op {
            Op::Write => Memory::holding(&payload(sectors as usize * SECTOR, 1), &mut chance),
            _ => Memory::none(),
        };
        match host.run(Order::new(op, start, sectors).with(memory))?.0 {
            Err(DeviceError::OpenedForReading) => {}
            other => return Err(format!("{} of a device opened for reading: {other:?}", op.name())),
        }
    }
    done(&host.simple(Op::Flush, Sector(0), 0)?, "flush of a device opened for reading")?;
    match host.zone(zone)? == before {
        true => Ok(()),
        false => Err(format!("zone {zone} changed, although the device is opened for reading")),
    }
}

/// Read of the first block of a zone.
pub(super) fn read_order(info: &DeviceInfo, chance: &mut Pcg64Mcg, zone: ZoneIndex) -> Order {
    let sectors = info.block_sectors;
    let memory = Memory::blank(sectors as usize * SECTOR, chance);
    Order::new(Op::Read, info.geometry.start_of(zone), sectors).with(memory)
}
