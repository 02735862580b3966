//! What the disk says of itself: INQUIRY, capacity, units.

use super::{Begun, Disk, Invocation};
use crate::sense::{CheckCondition, SenseCode};
use crate::status::Failure;
use crate::wire::{
    Association, BlockCharacteristics, BlockLimits, BlockProvisioning, Capacity10, Capacity16, CodeSet,
    Designator, Inquiry, InquiryData, Layout, LunList, ReadCapacity16, ReportLuns, RequestSense, SenseData,
    VpdHeader, ZonedCharacteristics, padded, parse_as, vpd,
};

/// Peripheral device type of a host-managed zoned disk (SPC table 150).
const HOST_MANAGED: u8 = 0x14;

/// No unit is there, and none can be (SPC table 149).
const NO_UNIT: (u8, u8) = (3, 0x1F);

const VENDOR: &str = "ZONAL";
const PRODUCT: &str = "ZONED DISK";
const REVISION: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

/// Standards without a version claimed (SPC table 151): SAM-5, SPC-4, SBC-4, ZBC.
const STANDARDS: [u16; 4] = [0x00A0, 0x0460, 0x0600, 0x0620];

/// Ranges of one UNMAP at most: 4 KiB of list.
pub(super) const UNMAP_RANGES_MAX: u32 = 256;

impl Disk {
    pub(super) fn test_unit_ready(&self, _: &Invocation<'_>) -> Result<Begun, Failure> {
        Ok(Begun::Done(0))
    }

    pub(super) fn request_sense(&self, invocation: &Invocation<'_>) -> Result<Begun, Failure> {
        request_sense(invocation, SenseCode::NO_ADDITIONAL_SENSE)
    }

    /// A command to a unit that is not there (SPC 6.6.2, 6.39; SAM 5.11.4).
    pub(super) fn begin_elsewhere(&self, invocation: &Invocation<'_>) -> Result<Begun, Failure> {
        if let Some(inquiry) = parse_as::<Inquiry>(invocation.cdb).filter(|inquiry| !inquiry.is_vpd) {
            let data = InquiryData { qualifier: NO_UNIT.0, device_type: NO_UNIT.1, ..self.inquiry_data() };
            return Ok(Begun::Data(data.emit(), inquiry.len.into()));
        }
        match parse_as::<RequestSense>(invocation.cdb) {
            Some(_) => request_sense(invocation, SenseCode::LOGICAL_UNIT_NOT_SUPPORTED),
            None => Err(SenseCode::LOGICAL_UNIT_NOT_SUPPORTED.into()),
        }
    }

    pub(super) fn inquiry(&self, invocation: &Invocation<'_>) -> Result<Begun, Failure> {
        let Inquiry { is_vpd, page, len } = own(invocation)?;
        match (is_vpd, page) {
            (true, page) => Ok(Begun::Data(self.vpd_page(page)?, len.into())),
            (false, 0) => Ok(Begun::Data(self.inquiry_data().emit(), len.into())),
            // A page without EVPD (SPC 6.6.1).
            (false, _) => Err(CheckCondition::in_cdb(2).into()),
        }
    }

    fn inquiry_data(&self) -> InquiryData {
        let [standard_0, standard_1, standard_2, standard_3] = STANDARDS;
        InquiryData {
            qualifier: 0,
            device_type: HOST_MANAGED,
            version: 6,
            is_hierarchical: false,
            format: 2,
            additional_len: (InquiryData::LEN - 5) as u8,
            has_queue: true,
            vendor: padded(VENDOR),
            product: padded(PRODUCT),
            revision: padded(REVISION),
            standard_0,
            standard_1,
            standard_2,
            standard_3,
        }
    }

    fn vpd_page(&self, page: u8) -> Result<Vec<u8>, CheckCondition> {
        let body = match page {
            vpd::SUPPORTED_PAGES => self.vpd_pages(),
            vpd::UNIT_SERIAL_NUMBER => self.serial().into_bytes(),
            vpd::DEVICE_IDENTIFICATION => self.designators(),
            vpd::BLOCK_LIMITS => self.block_limits().emit(),
            vpd::BLOCK_DEVICE_CHARACTERISTICS => self.characteristics().emit(),
            vpd::LOGICAL_BLOCK_PROVISIONING => self.provisioning().emit(),
            vpd::ZONED_BLOCK_DEVICE_CHARACTERISTICS => self.zoned_characteristics().emit(),
            _ => return Err(CheckCondition::in_cdb(2)),
        };
        let header = VpdHeader { qualifier: 0, device_type: HOST_MANAGED, page, len: body.len() as u16 };
        Ok([header.emit(), body].concat())
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

    /// The identity's 32 digits.
    fn serial(&self) -> String {
        self.identity.to_string().replace('-', "")
    }

    /// A name of the type *locally assigned*, and a text that begins with the vendor (SPC 7.8.6.4, 7.8.6.6.4). Both follow from the
    /// identity.
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
        let unmap = |value| if self.has_discard() { value } else { 0 };
        BlockLimits {
            is_write_same_counted: true,
            transfer_granularity: 1,
            transfer_max: self.transfer_blocks_max(),
            transfer_best: self.command_blocks_max(),
            unmap_blocks_max: unmap(self.unmap_blocks_max()),
            unmap_ranges_max: unmap(UNMAP_RANGES_MAX),
            unmap_granularity: unmap(1),
            write_same_max: self.write_same_blocks_max().into(),
        }
    }

    /// Most blocks of an UNMAP: those of all conventional zones.
    pub(super) fn unmap_blocks_max(&self) -> u32 {
        self.in_blocks(self.conventional_end().0).min(u32::MAX.into()) as u32
    }

    /// Most blocks of a WRITE SAME: those of a zone.
    pub(super) fn write_same_blocks_max(&self) -> u32 {
        // A zone has 2^31 sectors at most.
        self.in_blocks(self.geometry().zone_size().0) as u32
    }

    fn characteristics(&self) -> BlockCharacteristics {
        const DOES_NOT_ROTATE: u16 = 1;
        let rotation = if self.part().info().rotational { 7200 } else { DOES_NOT_ROTATE };
        BlockCharacteristics { rotation, form_factor: 0, zoned: 0 }
    }

    fn provisioning(&self) -> BlockProvisioning {
        const THIN: u8 = 2;
        let has = self.has_discard();
        BlockProvisioning {
            has_unmap: has,
            has_write_same_16: has,
            has_write_same_10: has,
            reads_zeroes: has.into(),
            provisioning: if has { THIN } else { 0 },
        }
    }

    fn zoned_characteristics(&self) -> ZonedCharacteristics {
        const NOT_TOLD: u32 = u32::MAX;
        let (alignment, granularity) = self.alignment();
        ZonedCharacteristics {
            // Linux takes no host-managed disk with constrained reads.
            has_free_reads: true,
            preferred_open_best: NOT_TOLD,
            preferred_random_best: NOT_TOLD,
            open_max: match self.part().info().open_max {
                0 => NOT_TOLD,
                open_max => open_max,
            },
            alignment,
            granularity,
        }
    }

    pub(super) fn capacity_10(&self, _: &Invocation<'_>) -> Result<Begun, Failure> {
        let last_lba = u32::try_from(self.blocks() - 1).unwrap_or(u32::MAX);
        let data = Capacity10 { last_lba, block_len: self.block_len() }.emit();
        Ok(Begun::Data(data, Capacity10::LEN as u32))
    }

    pub(super) fn capacity_16(&self, invocation: &Invocation<'_>) -> Result<Begun, Failure> {
        const OF_THE_DISK: u8 = 1;
        let ReadCapacity16 { len } = own(invocation)?;
        let capacity = Capacity16 {
            last_lba: self.blocks() - 1,
            block_len: self.block_len(),
            basis: OF_THE_DISK,
            physical_exponent: 0,
            is_provisioned: self.has_discard(),
            reads_zeroes: self.has_discard(),
        };
        Ok(Begun::Data(capacity.emit(), len))
    }

    pub(super) fn report_luns(&self, invocation: &Invocation<'_>) -> Result<Begun, Failure> {
        let ReportLuns { select, len } = own(invocation)?;
        match select {
            0 | 2 => Ok(Begun::Data(LunList { len: 8, lun: 0 }.emit(), len)),
            // Well-known units, of which there is none.
            1 => Ok(Begun::Data(LunList::default().emit()[..8].to_vec(), len)),
            _ => Err(CheckCondition::in_cdb(2).into()),
        }
    }
}

/// The descriptor as what its operation's entry in the table says.
pub(super) fn own<T: crate::wire::CommandLayout>(invocation: &Invocation<'_>) -> Result<T, CheckCondition> {
    parse_as(invocation.cdb).ok_or(SenseCode::INVALID_OPERATION_CODE.into())
}

fn request_sense(invocation: &Invocation<'_>, code: SenseCode) -> Result<Begun, Failure> {
    let RequestSense { is_descriptor, len } = own(invocation)?;
    let data: SenseData = code.data();
    let data = if is_descriptor { data.emit_descriptor() } else { data.emit_fixed() };
    Ok(Begun::Data(data, len.into()))
}
