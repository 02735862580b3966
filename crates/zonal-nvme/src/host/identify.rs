//! Device properties from the identify pages of a controller and a namespace (Base 5.1.13, NVM
//! 4.1.5, ZNS 4.1.5).

use super::attach::{Admin, AttachOptions, done};
use super::errors::AttachError;
use super::queue::Ended;
use crate::wire::command_set::{NVM, ZNS};
use crate::wire::{
    IdentifyController, IdentifyNamespace, IdentifyNvmController, IdentifyZoned, IdentifyZonedController,
    IndependentNamespace, Sqe, admin, descriptor, oncs, parse_descriptors,
};
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;
use zonal_core::{Geometry, Personality, Sectors};
use zonal_io::device::DeviceInfo;
use zonal_io::identity::Identity;

/// Size of an identify page in bytes.
const PAGE: u32 = 4096;

/// Maximum blocks per command, from its 16-bit field.
const BLOCKS_MAX: u32 = 1 << 16;

/// Zone size of a namespace without zones, in sectors: a common value, otherwise without
/// significance.
const CONVENTIONAL_ZONE: u64 = (256 << 20) / 512;

/// Namespace as described by its identify pages.
#[derive(Clone, Debug)]
pub(super) struct NamespaceFacts {
    pub(super) nsid: u32,
    pub(super) is_zoned: bool,
    pub(super) geometry: Geometry,
    pub(super) block_sectors: u32,
    pub(super) identity: Option<Identity>,
    pub(super) is_read_only: bool,
    is_rotational: bool,
    open_max: u32,
    active_max: u32,
    controller: ControllerFacts,
    /// Bytes of in-capsule data.
    pub(super) in_capsule: u32,
    /// Events supported by the controller (OAES).
    pub(super) events: u32,
}

/// Limits in sectors; 0 if the command is not supported.
#[derive(Clone, Copy, Debug)]
struct ControllerFacts {
    command_max: u32,
    append_max: u32,
    write_zeroes_max: u32,
    verify_max: u32,
    discard_max: u32,
    has_cache: bool,
}

impl NamespaceFacts {
    /// Device properties of the namespace.
    pub(super) fn info(&self, name: &str, options: &AttachOptions, queues: usize) -> DeviceInfo {
        let ControllerFacts { command_max, append_max, write_zeroes_max, verify_max, discard_max, has_cache } =
            self.controller;
        DeviceInfo {
            name: name.to_owned(),
            identity: self.identity,
            cache: None,
            geometry: self.geometry,
            block_sectors: self.block_sectors,
            open_max: self.open_max,
            active_max: self.active_max,
            command_sectors_max: command_max,
            label: None,
            memory_align: 1,
            append_sectors_max: if self.is_zoned { append_max } else { 0 },
            write_zeroes_sectors_max: write_zeroes_max,
            verify_sectors_max: verify_max,
            discard_sectors_max: if self.is_zoned { 0 } else { discard_max },
            volatile_cache: has_cache,
            fua: true,
            rotational: self.is_rotational,
            spindles: Vec::new(),
            read_only: self.is_read_only,
            keeps_order: options.keeps_order,
            personality: Personality::Zns,
            queues,
        }
    }
}

fn ask(admin: &mut Admin, cns: u8, set: u8, nsid: u32) -> Result<Ended<Vec<u8>>, AttachError> {
    let cdw = [cns.into(), u32::from(set) << 24, 0, 0, 0, 0];
    admin.call(Sqe::new(admin::IDENTIFY, nsid, cdw).with_data(PAGE), vec![0; PAGE as usize])
}

/// Reads an identify page; all zeroes if the controller refuses it.
fn page_if_there<T: FromBytes>(admin: &mut Admin, cns: u8, set: u8, nsid: u32) -> Result<T, AttachError> {
    let ended = ask(admin, cns, set, nsid)?;
    Ok(match ended.status.is_ok() && ended.received == PAGE {
        true => parsed(&ended.data),
        false => T::new_zeroed(),
    })
}

fn page<T: FromBytes>(admin: &mut Admin, cns: u8, set: u8, nsid: u32) -> Result<T, AttachError> {
    Ok(parsed(&done("Identify", ask(admin, cns, set, nsid)?)?.data))
}

fn parsed<T: FromBytes>(page: &[u8]) -> T {
    T::read_from_bytes(page).expect("4096 bytes")
}

/// Describes the requested namespace. These pages lack the zone capacity; it is set to the zone
/// size.
pub(super) fn namespace(admin: &mut Admin, wanted: Option<u32>) -> Result<NamespaceFacts, AttachError> {
    let nsid = choose(admin, wanted)?;
    let descriptors: [u8; PAGE as usize] = page(admin, 0x03, 0, nsid)?;
    let identifiers = Identifiers::of(&descriptors);
    let is_zoned = identifiers.command_set == ZNS;
    let pages = Pages {
        controller: page(admin, 0x01, 0, 0)?,
        namespace: page(admin, 0x00, 0, nsid)?,
        zoned: if is_zoned { Some(page(admin, 0x05, ZNS, nsid)?) } else { None },
        // Missing on older controllers.
        nvm_limits: page_if_there(admin, 0x06, NVM, 0)?,
        zns_limits: page_if_there(admin, 0x06, ZNS, 0)?,
        independent: page_if_there(admin, 0x08, 0, nsid)?,
    };
    pages.facts(nsid, identifiers.identity)
}

/// Selects the requested namespace, or the first zoned one, or the first.
fn choose(admin: &mut Admin, wanted: Option<u32>) -> Result<u32, AttachError> {
    let all: [U32; PAGE as usize / 4] = page(admin, 0x02, 0, 0)?;
    if let Some(nsid) = wanted {
        let found = Some(nsid).filter(|nsid| *nsid > 0 && all.iter().any(|other| other == nsid));
        return found.ok_or(AttachError::NoNamespace { nsid: Some(nsid) });
    }
    let zoned: [U32; PAGE as usize / 4] = page_if_there(admin, 0x07, ZNS, 0)?;
    let first = if zoned[0] > 0 { zoned[0] } else { all[0] };
    Some(first.get()).filter(|nsid| *nsid > 0).ok_or(AttachError::NoNamespace { nsid: None })
}

/// Identifiers of a namespace (Base 5.1.13.2.3).
#[derive(Default)]
struct Identifiers {
    identity: Option<Identity>,
    command_set: u8,
}

impl Identifiers {
    fn of(page: &[u8]) -> Identifiers {
        let mut identifiers = Identifiers::default();
        for (kind, value) in parse_descriptors(page) {
            match (kind, <[u8; 16]>::try_from(value)) {
                (descriptor::UUID, Ok(bytes)) => identifiers.identity = Identity::from_bytes(bytes),
                (descriptor::NGUID, Ok(bytes)) if identifiers.identity.is_none() => {
                    identifiers.identity = Identity::from_bytes(bytes);
                }
                (descriptor::COMMAND_SET, _) => identifiers.command_set = value[0],
                _ => {}
            }
        }
        identifiers
    }
}

/// Identify pages of a namespace and its controller.
struct Pages {
    controller: IdentifyController,
    namespace: IdentifyNamespace,
    /// Only for a zoned namespace.
    zoned: Option<IdentifyZoned>,
    nvm_limits: IdentifyNvmController,
    zns_limits: IdentifyZonedController,
    independent: IndependentNamespace,
}

impl Pages {
    fn facts(&self, nsid: u32, identity: Option<Identity>) -> Result<NamespaceFacts, AttachError> {
        let wrong = |what| AttachError::Namespace { nsid, what };
        let IdentifyNamespace { nsze, flbas, nsattr, formats, .. } = &self.namespace;
        let format = usize::from(flbas & 0x0F | (flbas & 0x60) >> 1);
        let shift = formats[format].lbads;
        if !(9..=12).contains(&shift) {
            return Err(wrong("an unsupported logical block size, not 512 to 4096 bytes"));
        }
        if formats[format].metadata != 0 {
            return Err(wrong("metadata"));
        }
        let block_sectors = 1u32 << (shift - 9);
        let in_sectors = |blocks: u64| blocks.checked_mul(u64::from(block_sectors)).map(Sectors);
        let size = in_sectors(nsze.get()).ok_or(wrong("more bytes than can be counted"))?;
        let mut limits = (0, 0);
        let geometry = match &self.zoned {
            Some(zoned) => {
                if zoned.zoc.get() & 1 != 0 {
                    return Err(wrong("zones of various capacities"));
                }
                // Zero-based; no limit is all ones.
                limits = (zoned.mor.get().wrapping_add(1), zoned.mar.get().wrapping_add(1));
                let zone = zoned.formats[format].zsze.get();
                let zone = in_sectors(zone).ok_or(wrong("an invalid zone size"))?;
                Geometry::new(size, zone, Sectors(0), 0)?
            }
            None => {
                let zones = u32::try_from(size.0.div_ceil(CONVENTIONAL_ZONE)).unwrap_or(u32::MAX);
                Geometry::of_part(size, Sectors(CONVENTIONAL_ZONE), Sectors(0), zones)?
            }
        };
        Ok(NamespaceFacts {
            nsid,
            is_zoned: self.zoned.is_some(),
            geometry,
            block_sectors,
            identity,
            is_read_only: nsattr & 1 != 0,
            is_rotational: self.independent.nsfeat & 1 << 4 != 0,
            open_max: limits.0,
            active_max: limits.1,
            controller: self.limits(block_sectors),
            in_capsule: self.controller.ioccsz.get().saturating_mul(16).saturating_sub(64),
            events: self.controller.oaes.get(),
        })
    }

    /// Decodes limits: powers of two in pages of 4 KiB; 0 means no limit beyond the command's
    /// fields.
    fn limits(&self, block_sectors: u32) -> ControllerFacts {
        let field = BLOCKS_MAX * block_sectors;
        let power = |power: u8| match power {
            0 => field,
            power => {
                8u32.checked_shl(power.into()).filter(|max| *max > 0).map_or(field, |max| max.min(field))
            }
        };
        let commands = self.controller.oncs.get();
        let if_there = |bit, max| if commands & bit != 0 { max } else { 0 };
        let command_max = power(self.controller.mdts);
        let append_max = match self.zns_limits.zasl {
            0 => command_max,
            limit => power(limit).min(command_max),
        };
        ControllerFacts {
            command_max,
            append_max,
            write_zeroes_max: if_there(oncs::WRITE_ZEROES, power(self.nvm_limits.wzsl)),
            verify_max: if_there(oncs::VERIFY, power(self.nvm_limits.vsl)),
            discard_max: if_there(oncs::DATASET_MANAGEMENT, u32::MAX - u32::MAX % block_sectors),
            has_cache: self.controller.vwc & 1 != 0,
        }
    }
}
