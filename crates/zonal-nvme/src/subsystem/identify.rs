//! Identify pages (Base 5.1.13, NVM 4.1.5, ZNS 4.1.5).

use super::aborts::ABORTS;
use super::controller::Controller;
use super::errors::ERROR_ENTRIES;
use super::features::{EVENTS_OPTIONAL, KEEP_ALIVE_UNIT};
use super::namespace::Namespace;
use super::notices::EVENT_REQUESTS;
use super::properties::VERSION;
use super::{DISCOVERY_NQN, IN_CAPSULE, QUEUE_ENTRIES};
use crate::status::Status;
use crate::wire::command_set::{NVM, ZNS};
use crate::wire::{
    BlockFormat, IdentifyController, IdentifyNamespace, IdentifyZoned, IdentifyZonedController,
    IndependentNamespace, Sqe, ZoneFormat, descriptor, emit_descriptors, emit_namespaces, oncs, padded,
    zero_ended,
};
use zerocopy::little_endian::U64;
use zerocopy::{FromZeros, IntoBytes};

impl Controller {
    pub(super) fn identify(&self, sqe: &Sqe) -> Result<Vec<u8>, Status> {
        let (cns, set, nsid) = (sqe.dword(10) as u8, (sqe.dword(11) >> 24) as u8, sqe.nsid.get());
        if self.is_discovery() {
            return match cns {
                0x01 => Ok(self.identify_controller().as_bytes().to_vec()),
                _ => Err(Status::INVALID_FIELD),
            };
        }
        let one = || match nsid {
            // The namespaces have no common properties to report.
            u32::MAX => Err(Status::INVALID_NAMESPACE),
            nsid => self.target().namespace(nsid),
        };
        let nothing = || vec![0; 4096];
        Ok(match (cns, set) {
            // An inactive namespace is all zeroes.
            (0x00, _) if nsid > 0 && nsid != u32::MAX => match self.target().namespace(nsid) {
                Ok(namespace) => identify_namespace(namespace).as_bytes().to_vec(),
                Err(_) => nothing(),
            },
            (0x00, _) => return Err(Status::INVALID_NAMESPACE),
            (0x01, _) => self.identify_controller().as_bytes().to_vec(),
            (0x02, _) => self.list(nsid, |_| true)?,
            (0x03, _) => descriptors(one()?),
            (0x05, NVM) => {
                one()?;
                nothing()
            }
            (0x05, ZNS) => match one()? {
                namespace if namespace.is_zoned() => identify_zoned(namespace).as_bytes().to_vec(),
                _ => return Err(Status::INVALID_FIELD),
            },
            (0x06, NVM) => nothing(),
            (0x06, ZNS) => {
                let zasl = self.target().zasl;
                IdentifyZonedController { zasl, ..FromZeros::new_zeroed() }.as_bytes().to_vec()
            }
            (0x07, set @ (NVM | ZNS)) => self.list(nsid, |n| n.is_zoned() == (set == ZNS))?,
            (0x08, _) => identify_independent(one()?).as_bytes().to_vec(),
            (0x1C, _) => {
                // A single combination of command sets: both.
                let mut page = [U64::ZERO; 512];
                page[0] = (1 << NVM | 1 << ZNS).into();
                page.as_bytes().to_vec()
            }
            _ => return Err(Status::INVALID_FIELD),
        })
    }

    /// Active namespaces above `nsid`, in ascending order.
    fn list(&self, nsid: u32, belongs: impl Fn(&Namespace) -> bool) -> Result<Vec<u8>, Status> {
        if nsid >= 0xFFFF_FFFE {
            return Err(Status::INVALID_NAMESPACE);
        }
        let all = self.target().namespaces().iter().filter(|n| n.nsid() > nsid && belongs(n));
        Ok(emit_namespaces(all.map(Namespace::nsid)))
    }

    fn identify_controller(&self) -> IdentifyController {
        const IO: u8 = 1;
        const DISCOVERY: u8 = 2;
        let target = self.target();
        let mut serial = String::new();
        for byte in &target.identity.bytes()[6..] {
            serial.push_str(&format!("{byte:02x}"));
        }
        let common = IdentifyController {
            serial: padded(serial),
            model: padded("Zonal"),
            firmware: padded(env!("CARGO_PKG_VERSION")),
            // Multiple ports and controllers.
            cmic: 0b011,
            cntlid: self.id().into(),
            version: VERSION.into(),
            // 128-bit host identifiers; any traffic counts as keep alive.
            ctratt: (1 | 1 << 6).into(),
            acl: ABORTS as u8 - 1,
            aerl: EVENT_REQUESTS - 1,
            // One read-only firmware slot.
            frmw: 0b011,
            // Commands supported and effects log, and log page offsets.
            lpa: 0b110,
            elpe: ERROR_ENTRIES as u8 - 1,
            kas: ((KEEP_ALIVE_UNIT / 100) as u16).into(),
            maxcmd: QUEUE_ENTRIES.into(),
            // Any alignment, and offsets.
            sgls: (1 | 1 << 20).into(),
            ioccsz: (64 / 16).into(),
            iorcsz: 1.into(),
            msdbd: 1,
            ..IdentifyController::new_zeroed()
        };
        if self.is_discovery() {
            return IdentifyController { kind: DISCOVERY, subsystem: zero_ended(DISCOVERY_NQN), ..common };
        }
        let info = target.volume().info();
        let last = target.namespaces().iter().map(Namespace::nsid).max().unwrap_or(0);
        let deallocates = if info.discard_sectors_max > 0 { oncs::DATASET_MANAGEMENT } else { 0 };
        let verifies = if info.verify_sectors_max > 0 { oncs::VERIFY } else { 0 };
        IdentifyController {
            kind: IO,
            mdts: target.mdts,
            oaes: EVENTS_OPTIONAL.into(),
            sqes: 0x66,
            cqes: 0x44,
            nn: last.into(),
            // Write Zeroes is always supported.
            oncs: (deallocates | oncs::WRITE_ZEROES | verifies).into(),
            // Volatile cache if the device has one; flush of all namespaces supported.
            vwc: u8::from(info.volatile_cache) | 0b110,
            mnan: last.into(),
            subsystem: zero_ended(target.nqn()),
            ioccsz: ((64 + IN_CAPSULE) / 16).into(),
            // I/O queues can be deleted individually.
            ofcs: 1.into(),
            ..common
        }
    }
}

fn identify_namespace(namespace: &Namespace) -> IdentifyNamespace {
    let blocks = namespace.blocks(namespace.part().info().geometry.sectors().0).into();
    let mut formats = [BlockFormat::new_zeroed(); 64];
    formats[0].lbads = namespace.block_shift();
    // Shared between controllers; deallocated blocks read as zeroes; one format, without metadata.
    IdentifyNamespace {
        nsze: blocks,
        ncap: blocks,
        nuse: blocks,
        nmic: 1,
        dlfeat: 1,
        nsattr: u8::from(namespace.is_read_only()),
        nguid: namespace.identifiers().0,
        formats,
        ..IdentifyNamespace::new_zeroed()
    }
}

fn descriptors(namespace: &Namespace) -> Vec<u8> {
    let (nguid, uuid) = namespace.identifiers();
    let set = if namespace.is_zoned() { ZNS } else { NVM };
    emit_descriptors(&[
        (descriptor::NGUID, &nguid),
        (descriptor::UUID, &uuid),
        (descriptor::COMMAND_SET, &[set]),
    ])
}

fn identify_independent(namespace: &Namespace) -> IndependentNamespace {
    let info = namespace.part().info();
    IndependentNamespace {
        nsfeat: u8::from(info.rotational) << 4 | u8::from(!info.volatile_cache) << 5,
        nmic: 1,
        nsattr: u8::from(namespace.is_read_only()),
        nstat: 1,
        ..IndependentNamespace::new_zeroed()
    }
}

fn identify_zoned(namespace: &Namespace) -> IdentifyZoned {
    let info = namespace.part().info();
    let mut formats = [ZoneFormat::new_zeroed(); 64];
    formats[0].zsze = namespace.blocks(info.geometry.zone_size().0).into();
    // Reads may cross zone boundaries. Limits are zero-based, so that no limit becomes all ones.
    IdentifyZoned {
        ozcs: 1.into(),
        mar: info.active_max.wrapping_sub(1).into(),
        mor: info.open_max.wrapping_sub(1).into(),
        formats,
        ..IdentifyZoned::new_zeroed()
    }
}
