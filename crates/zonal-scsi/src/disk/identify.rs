//! Identification: INQUIRY, capacity, units.

use super::{Disk, Invocation, Started};
use crate::sense::{CheckCondition, SenseCode};
use crate::status::Failure;
use crate::wire::{
    Association, BlockCharacteristics, BlockLimits, BlockProvisioning, Capacity10, Capacity16, CodeSet,
    Command, Designator, Inquiry, InquiryData, LunList, ReadCapacity16, ReportLuns, RequestSense, SenseData,
    VpdHeader, ZonedCharacteristics, bits, flag, padded, parse_as, vpd,
};
use zerocopy::IntoBytes;
use zerocopy::big_endian::{U16, U32};

/// Peripheral device type of a host-managed zoned disk (SPC table 150).
const HOST_MANAGED: u8 = 0x14;

/// Peripheral qualifier and type of a unit that does not exist (SPC table 149).
const NO_UNIT: u8 = 3 << 5 | 0x1F;

const VENDOR: &str = "ZONAL";
const PRODUCT: &str = "ZONED DISK";
const REVISION: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

/// Version descriptors without a claimed version (SPC table 151): SAM-5, SPC-4, SBC-4, ZBC.
const STANDARDS: [u16; 4] = [0x00A0, 0x0460, 0x0600, 0x0620];

/// Maximum ranges of one UNMAP: a list of 4 KiB.
pub(super) const UNMAP_RANGES_MAX: u32 = 256;

impl Disk {
    pub(super) fn test_unit_ready(&self, _: &Invocation<'_>) -> Result<Started, Failure> {
        Ok(Started::Done(0))
    }

    pub(super) fn request_sense(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        request_sense(invocation, SenseCode::NO_ADDITIONAL_SENSE)
    }

    /// Handles a command for a nonexistent unit (SPC 6.6.2, 6.39; SAM 5.11.4).
    pub(super) fn begin_missing_unit(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        if let Some(inquiry) = parse_as::<Inquiry>(invocation.cdb).filter(|one| one.flags & bits::EVPD == 0) {
            let data = InquiryData { peripheral: NO_UNIT, ..self.inquiry_data() };
            return Ok(Started::Data(data.as_bytes().to_vec(), inquiry.len.into()));
        }
        match parse_as::<RequestSense>(invocation.cdb) {
            Some(_) => request_sense(invocation, SenseCode::LOGICAL_UNIT_NOT_SUPPORTED),
            None => Err(SenseCode::LOGICAL_UNIT_NOT_SUPPORTED.into()),
        }
    }

    pub(super) fn inquiry(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        let Inquiry { flags, page, len } = own(invocation)?;
        match (flags & bits::EVPD != 0, page) {
            (true, page) => Ok(Started::Data(self.vpd_page(page)?, len.into())),
            (false, 0) => Ok(Started::Data(self.inquiry_data().as_bytes().to_vec(), len.into())),
            // Page code without EVPD (SPC 6.6.1).
            (false, _) => Err(CheckCondition::in_cdb(2).into()),
        }
    }

    fn inquiry_data(&self) -> InquiryData {
        const CMDQUE: u8 = 0x02;
        InquiryData {
            peripheral: HOST_MANAGED,
            version: 6,
            format: 2,
            len: (size_of::<InquiryData>() - 5) as u8,
            flags: CMDQUE,
            vendor: padded(VENDOR),
            product: padded(PRODUCT),
            revision: padded(REVISION),
            standards: STANDARDS.map(U16::new),
            ..InquiryData::default()
        }
    }

    fn vpd_page(&self, page: u8) -> Result<Vec<u8>, CheckCondition> {
        let body = match page {
            vpd::SUPPORTED_PAGES => self.vpd_pages(),
            vpd::UNIT_SERIAL_NUMBER => self.serial().into_bytes(),
            vpd::DEVICE_IDENTIFICATION => self.designators(),
            vpd::BLOCK_LIMITS => self.block_limits().as_bytes().to_vec(),
            vpd::BLOCK_DEVICE_CHARACTERISTICS => self.characteristics().as_bytes().to_vec(),
            vpd::LOGICAL_BLOCK_PROVISIONING => self.provisioning().as_bytes().to_vec(),
            vpd::ZONED_BLOCK_DEVICE_CHARACTERISTICS => self.zoned_characteristics().as_bytes().to_vec(),
            _ => return Err(CheckCondition::in_cdb(2)),
        };
        let header = VpdHeader { peripheral: HOST_MANAGED, page, len: (body.len() as u16).into() };
        Ok([header.as_bytes(), &body].concat())
    }

    fn vpd_pages(&self) -> Vec<u8> {
        vec![
            vpd::SUPPORTED_PAGES,
            vpd::UNIT_SERIAL_NUMBER,
            vpd::DEVICE_IDENTIFICATION,
            vpd::BLOCK_LIMITS,
            vpd::BLOCK_DEVICE_CHARACTERISTICS,
            vpd::LOGICAL_BLOCK_PROVISIONING,
            vpd::ZONED_BLOCK_DEVICE_CHARACTERISTICS,
        ]
    }

    /// Serial number: the 32 hex digits of the identity.
    fn serial(&self) -> String {
        self.identity.to_string().replace('-', "")
    }

    /// Designators derived from the identity: a locally assigned NAA name, and a T10 vendor ID with
    /// text (SPC 7.8.6.4, 7.8.6.6.4).
    fn designators(&self) -> Vec<u8> {
        const LOCALLY_ASSIGNED: u64 = 3 << 60;
        let identity = u128::from_be_bytes(self.identity.bytes());
        let folded = (identity >> 64) as u64 ^ identity as u64;
        let name = LOCALLY_ASSIGNED | folded & ((1 << 60) - 1);
        let (vendor, product) = (padded::<8>(VENDOR), padded::<16>(PRODUCT));
        let naa = Designator {
            code_set: CodeSet::Binary,
            association: Association::LogicalUnit,
            designator_type: Designator::NAA,
            bytes: name.to_be_bytes().to_vec(),
        };
        let t10 = Designator {
            code_set: CodeSet::Ascii,
            association: Association::LogicalUnit,
            designator_type: Designator::T10_VENDOR,
            bytes: [&vendor[..], &product, self.serial().as_bytes()].concat(),
        };
        let mut page = Vec::new();
        [naa, t10].iter().for_each(|designator| designator.emit(&mut page));
        page
    }

    fn block_limits(&self) -> BlockLimits {
        let unmap = |value: u32| if self.has_discard() { value.into() } else { U32::ZERO };
        BlockLimits {
            flags: BlockLimits::WSNZ,
            transfer_granularity: 1.into(),
            transfer_max: self.transfer_blocks_max().into(),
            transfer_best: self.command_blocks_max().into(),
            unmap_blocks_max: unmap(self.unmap_blocks_max()),
            unmap_ranges_max: unmap(UNMAP_RANGES_MAX),
            unmap_granularity: unmap(1),
            write_same_max: u64::from(self.write_same_blocks_max()).into(),
            ..BlockLimits::default()
        }
    }

    /// Maximum blocks of an UNMAP: all conventional zones.
    pub(super) fn unmap_blocks_max(&self) -> u32 {
        self.in_blocks(self.conventional_end().0).min(u32::MAX.into()) as u32
    }

    /// Maximum blocks of a WRITE SAME: one zone.
    pub(super) fn write_same_blocks_max(&self) -> u32 {
        // A zone has at most 2^31 sectors.
        self.in_blocks(self.geometry().zone_size().0) as u32
    }

    fn characteristics(&self) -> BlockCharacteristics {
        const DOES_NOT_ROTATE: u16 = 1;
        let rotation = if self.part().info().rotational { 7200 } else { DOES_NOT_ROTATE };
        BlockCharacteristics { rotation: rotation.into(), ..BlockCharacteristics::default() }
    }

    fn provisioning(&self) -> BlockProvisioning {
        const THIN: u8 = 2;
        if !self.has_discard() {
            return BlockProvisioning::default();
        }
        let flags = BlockProvisioning::LBPU
            | BlockProvisioning::LBPWS
            | BlockProvisioning::LBPWS10
            | BlockProvisioning::LBPRZ;
        BlockProvisioning { flags, provisioning: THIN, ..BlockProvisioning::default() }
    }

    fn zoned_characteristics(&self) -> ZonedCharacteristics {
        let (alignment, granularity) = self.alignment();
        ZonedCharacteristics {
            // Linux rejects host-managed disks with restricted reads.
            flags: ZonedCharacteristics::URSWRZ,
            preferred_open_best: U32::MAX_VALUE,
            preferred_random_best: U32::MAX_VALUE,
            open_max: match self.part().info().open_max {
                0 => U32::MAX_VALUE,
                open_max => open_max.into(),
            },
            alignment,
            granularity: granularity.into(),
            ..ZonedCharacteristics::default()
        }
    }

    pub(super) fn capacity_10(&self, _: &Invocation<'_>) -> Result<Started, Failure> {
        let last_lba = u32::try_from(self.blocks() - 1).unwrap_or(u32::MAX);
        let data = Capacity10 { last_lba: last_lba.into(), block_len: self.block_len().into() };
        Ok(Started::Data(data.as_bytes().to_vec(), size_of::<Capacity10>() as u32))
    }

    pub(super) fn capacity_16(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        const OF_THE_DISK: u8 = 1 << 4;
        let ReadCapacity16 { len, .. } = own(invocation)?;
        let capacity = Capacity16 {
            last_lba: (self.blocks() - 1).into(),
            block_len: self.block_len().into(),
            basis: OF_THE_DISK,
            flags: flag(Capacity16::LBPME | Capacity16::LBPRZ, self.has_discard()),
            ..Capacity16::default()
        };
        Ok(Started::Data(capacity.as_bytes().to_vec(), len.get()))
    }

    pub(super) fn report_luns(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        let ReportLuns { select, len, .. } = own(invocation)?;
        let list = LunList { len: 8.into(), ..LunList::default() };
        match select {
            0 | 2 => Ok(Started::Data(list.as_bytes().to_vec(), len.get())),
            // Well-known logical units; there are none.
            1 => Ok(Started::Data(vec![0; 8], len.get())),
            _ => Err(CheckCondition::in_cdb(2).into()),
        }
    }
}

/// Decodes the descriptor as `T`, the type in the operation's table entry.
pub(super) fn own<T: Command>(invocation: &Invocation<'_>) -> Result<T, CheckCondition> {
    parse_as(invocation.cdb).ok_or(SenseCode::INVALID_OPERATION_CODE.into())
}

fn request_sense(invocation: &Invocation<'_>, code: SenseCode) -> Result<Started, Failure> {
    let RequestSense { flags, len, .. } = own(invocation)?;
    let data: SenseData = code.data();
    let data = if flags & bits::DESC != 0 { data.emit_descriptor() } else { data.emit_fixed() };
    Ok(Started::Data(data, len.into()))
}
