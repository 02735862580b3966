//! Commands that read, write, compare or unmap blocks.

use super::identify::{UNMAP_RANGES_MAX, own};
use super::{Disk, Invocation, Started};
use crate::sense::{CheckCondition, SenseCode};
use crate::status::Failure;
use crate::wire::{
    ByteCheck, Cdb, Read, StartStopUnit, SynchronizeCache, Unmap, UnmapList, Verify, Write, WriteSame, bits,
    cdb::PreventAllowMediumRemoval,
};
use crate::work::{CompareWork, FillWork, Moved, OneRequest, ReissuedWork, UnmapWork, Work, memory};
use zonal_core::Sector;
use zonal_io::buffer::IoBuf;
use zonal_io::volume::{ReissuedWrite, Request};

/// Offset of the number of blocks in a descriptor.
fn count_at(cdb: &Cdb) -> u16 {
    match cdb[0] >> 5 {
        4 => 10,
        5 => 6,
        _ => 7,
    }
}

impl Disk {
    /// Range of a transfer, as sector, number of sectors and number of bytes.
    fn transfer(&self, cdb: &Cdb, lba: u64, blocks: u32) -> Result<(Sector, u32, u32), CheckCondition> {
        if blocks > self.transfer_blocks_max() {
            return Err(CheckCondition::in_cdb(count_at(cdb)));
        }
        let (sector, sectors) = self.range(lba, blocks)?;
        // Transfers are limited to far less than 4 GiB.
        Ok((sector, sectors as u32, sectors as u32 * 512))
    }

    pub(super) fn read(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        let Read { lba, blocks, .. } =
            Read::parse(invocation.cdb).ok_or(SenseCode::INVALID_OPERATION_CODE)?;
        let (sector, sectors, bytes) = self.transfer(invocation.cdb, lba, blocks)?;
        self.check_read(sector, sectors.into())?;
        check_len(invocation.data_in_len, bytes)?;
        if sectors == 0 {
            return Ok(Started::Done(0));
        }
        let request = Request::read(sector, sectors, IoBuf::empty());
        Ok(Started::Working(OneRequest::new(request, Moved::In(bytes)).into()))
    }

    pub(super) fn write(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        let write = Write::parse(invocation.cdb).ok_or(SenseCode::INVALID_OPERATION_CODE)?;
        let (sector, sectors, bytes) = self.transfer(invocation.cdb, write.lba, write.blocks)?;
        self.check_write(sector, sectors.into())?;
        check_len(invocation.data_out.len(), bytes)?;
        if sectors == 0 {
            return Ok(Started::Done(0));
        }
        let reissued = ReissuedWrite::of(self.part(), sector, sectors, write.fua);
        if let Some(reissued) = reissued.filter(|_| invocation.is_reissued) {
            return Ok(Started::Working(Work::Reissued(ReissuedWork::new(reissued))));
        }
        let request = Request::write(sector, sectors, IoBuf::empty());
        let request = if write.fua { request.fua() } else { request };
        Ok(Started::Working(OneRequest::new(request, Moved::Out(bytes)).into()))
    }

    pub(super) fn verify(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        let Verify { lba, blocks, check } =
            Verify::parse(invocation.cdb).ok_or(SenseCode::INVALID_OPERATION_CODE)?;
        let check = check.ok_or(CheckCondition::in_cdb_bit(1, 2))?;
        let (sector, sectors, bytes) = self.transfer(invocation.cdb, lba, blocks)?;
        self.check_read(sector, sectors.into())?;
        let data = match check {
            ByteCheck::None => 0,
            ByteCheck::All => bytes,
            ByteCheck::Each => bytes.min(self.block_len()),
        };
        check_len(invocation.data_out.len(), data)?;
        if sectors == 0 {
            return Ok(Started::Done(0));
        }
        if check == ByteCheck::None && self.part().info().verify_sectors_max > 0 {
            return Ok(Started::Working(
                OneRequest::new(Request::verify(sector, sectors), Moved::Nothing).into(),
            ));
        }
        Ok(Started::Working(Work::Compare(CompareWork::new(self, sector, sectors, data))))
    }

    pub(super) fn synchronize(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        let SynchronizeCache { lba, blocks, .. } =
            SynchronizeCache::parse(invocation.cdb).ok_or(SenseCode::INVALID_OPERATION_CODE)?;
        self.range(lba, blocks)?;
        Ok(Started::Working(flush()))
    }

    pub(super) fn start_stop(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        let StartStopUnit { flags, .. } = own(invocation)?;
        match flags & (bits::START | bits::NO_FLUSH) != 0 {
            true => Ok(Started::Done(0)),
            false => Ok(Started::Working(flush())),
        }
    }

    /// Handles PREVENT ALLOW MEDIUM REMOVAL. The medium is never removable.
    pub(super) fn prevent_removal(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        let PreventAllowMediumRemoval { prevent, .. } = own(invocation)?;
        match prevent {
            0 | 1 => Ok(Started::Done(0)),
            _ => Err(CheckCondition::in_cdb_bit(4, 1).into()),
        }
    }

    pub(super) fn write_same(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        let same = WriteSame::parse(invocation.cdb).ok_or(SenseCode::INVALID_OPERATION_CODE)?;
        let WriteSame { lba, blocks, is_unmap, has_data } = same;
        if is_unmap && !self.has_discard() {
            return Err(CheckCondition::in_cdb_bit(1, 3).into());
        }
        // Zero blocks would mean all up to the end (SBC 5.50), which WSNZ excludes.
        if blocks == 0 || blocks > self.write_same_blocks_max() {
            return Err(CheckCondition::in_cdb(count_at(invocation.cdb)).into());
        }
        let (sector, sectors) = self.range(lba, blocks)?;
        self.check_write(sector, sectors)?;
        // At most one zone, so fewer than 2^32 sectors.
        let sectors = sectors as u32;
        let data = if has_data { self.block_len() } else { 0 };
        check_len(invocation.data_out.len(), data)?;
        let mut block = memory::copy(invocation.data_out, 0, data as usize);
        block.resize(self.block_len() as usize, 0);
        let reissued = ReissuedWrite::of(self.part(), sector, sectors, false);
        let reissued = reissued.filter(|_| invocation.is_reissued);
        if reissued.is_some() || block.iter().any(|byte| *byte != 0) {
            let held = reissued.map_or(0, |write| write.held_len() / 512);
            return Ok(Started::Working(Work::Fill(FillWork::new(sector, sectors, &block, data).held(held))));
        }
        let is_conventional = sector.0 + u64::from(sectors) <= self.conventional_end().0;
        let request = match is_unmap && is_conventional {
            true => Request::discard(sector, sectors),
            false => Request::write_zeroes(sector, sectors),
        };
        Ok(Started::Working(OneRequest::new(request, Moved::Kept(data)).into()))
    }

    /// Handles UNMAP, which is advisory (SBC 4.7.3.3): sequential zones are left unchanged, as they
    /// are reset instead.
    pub(super) fn unmap(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        let Unmap { len, .. } = own(invocation)?;
        let len = len.get();
        if len == 0 {
            return Ok(Started::Done(0));
        }
        check_len(invocation.data_out.len(), len.into())?;
        // One range above the limit is read, so that the check below detects it.
        let looked_at = usize::from(len).min(8 + 16 * (UNMAP_RANGES_MAX as usize + 1));
        let list = UnmapList::parse(&memory::copy(invocation.data_out, 0, looked_at))
            .ok_or(SenseCode::PARAMETER_LIST_LENGTH_ERROR)?;
        if list.ranges.len() > UNMAP_RANGES_MAX as usize {
            return Err(CheckCondition::in_list(2).into());
        }
        let blocks: u64 = list.ranges.iter().map(|range| u64::from(range.blocks)).sum();
        if blocks > self.unmap_blocks_max().into() {
            return Err(CheckCondition::in_list(2).into());
        }
        let end = self.conventional_end().0;
        let mut ranges = Vec::new();
        for range in list.ranges {
            if range.blocks == 0 {
                continue;
            }
            let (sector, sectors) = self.range(range.lba, range.blocks)?;
            let conventional = sectors.min(end.saturating_sub(sector.0));
            if conventional > 0 {
                ranges.push((sector, conventional));
            }
        }
        Ok(Started::Working(Work::Unmap(UnmapWork::new(ranges, len.into()))))
    }
}

fn flush() -> Work {
    OneRequest::new(Request::flush(), Moved::Nothing).into()
}

/// Checks that the transport's buffer covers the data of the command.
fn check_len(there: usize, needed: u32) -> Result<(), CheckCondition> {
    match there >= needed as usize {
        true => Ok(()),
        false => Err(SenseCode::DATA_PHASE_ERROR.into()),
    }
}
