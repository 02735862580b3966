//! Identify (Base 5.1.13, NVM 4.1.5, ZNS 4.1.5): every page that a host of a target asks for.

use super::aborts::ABORTS;
use super::controller::Controller;
use super::errors::ERROR_ENTRIES;
use super::features::{EVENTS_OPTIONAL, KEEP_ALIVE_UNIT};
use super::namespace::Namespace;
use super::notices::EVENT_REQUESTS;
use super::properties::VERSION;
use super::{DISCOVERY_NQN, IN_CAPSULE, QUEUE_ENTRIES};
use crate::status::Status;
use crate::wire::{
    IdentifyController, IdentifyNamespace, IdentifyZoned, IdentifyZonedController, IndependentNamespace,
    NamespaceDescriptor, Padded, Page, Sqe,
};

/// Command set of ordinary namespaces.
pub(super) const NVM: u8 = 0;

/// Command set of zoned namespaces.
pub(super) const ZNS: u8 = 2;

type Identified = Page<4096>;

impl Controller {
    pub(super) fn identify(&self, sqe: &Sqe) -> Result<Vec<u8>, Status> {
        let (cns, set, nsid) = (sqe.dword(10) as u8, (sqe.dword(11) >> 24) as u8, sqe.nsid.get());
        if self.is_discovery() {
            return match cns {
                0x01 => Ok(self.identify_controller().into_vec()),
                _ => Err(Status::INVALID_FIELD),
            };
        }
        let one = || match nsid {
            // All namespaces have nothing in common that could be told.
            u32::MAX => Err(Status::INVALID_NAMESPACE),
            nsid => self.target().namespace(nsid),
        };
        let page = match (cns, set) {
            // A namespace that is not there is all zeroes.
            (0x00, _) if nsid > 0 && nsid != u32::MAX => match self.target().namespace(nsid) {
                Ok(namespace) => identify_namespace(namespace),
                Err(_) => Identified::default(),
            },
            (0x00, _) => return Err(Status::INVALID_NAMESPACE),
            (0x01, _) => self.identify_controller(),
            (0x02, _) => self.list(nsid, |_| true)?,
            (0x03, _) => descriptors(one()?),
            (0x05, NVM) => {
                one()?;
                Identified::default()
            }
            (0x05, ZNS) => match one()? {
                namespace if namespace.is_zoned() => identify_zoned(namespace),
                _ => return Err(Status::INVALID_FIELD),
            },
            (0x06, NVM) => Identified::default(),
            (0x06, ZNS) => IdentifyZonedController { zasl: self.target().zasl }.emit(),
            (0x07, set @ (NVM | ZNS)) => self.list(nsid, |n| n.is_zoned() == (set == ZNS))?,
            (0x08, _) => identify_independent(one()?),
            (0x1C, _) => {
                // One combination of command sets: both.
                let mut page = Identified::default();
                page.u64(0, 1 << NVM | 1 << ZNS);
                page
            }
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok(page.into_vec())
    }

    /// Active namespaces above `nsid`, in their order.
    fn list(&self, nsid: u32, belongs: impl Fn(&Namespace) -> bool) -> Result<Identified, Status> {
        if nsid >= 0xFFFF_FFFE {
            return Err(Status::INVALID_NAMESPACE);
        }
        let mut page = Identified::default();
        let all = self.target().namespaces().iter().filter(|n| n.nsid() > nsid && belongs(n));
        for (n, namespace) in all.enumerate() {
            page.u32(4 * n, namespace.nsid());
        }
        Ok(page)
    }

    fn identify_controller(&self) -> Identified {
        const IO: u8 = 1;
        const DISCOVERY: u8 = 2;
        let target = self.target();
        let mut serial = String::new();
        for byte in &target.identity.bytes()[6..] {
            serial.push_str(&format!("{byte:02x}"));
        }
        let common = IdentifyController {
            serial: Padded(serial),
            model: "Zonal".into(),
            firmware: env!("CARGO_PKG_VERSION").into(),
            // Several ports and controllers.
            cmic: 0b011,
            cntlid: self.id(),
            version: VERSION,
            // Host identifiers of 128 bits; any traffic keeps the controller alive.
            ctratt: 1 | 1 << 6,
            acl: ABORTS as u8 - 1,
            aerl: EVENT_REQUESTS - 1,
            // One slot of firmware, read-only.
            frmw: 0b011,
            // The log of effects, and logs from any offset.
            lpa: 0b110,
            elpe: ERROR_ENTRIES as u8 - 1,
            kas: (KEEP_ALIVE_UNIT / 100) as u16,
            maxcmd: QUEUE_ENTRIES,
            // Any alignment, and offsets.
            sgls: 1 | 1 << 20,
            ioccsz: 64 / 16,
            iorcsz: 1,
            msdbd: 1,
            ..IdentifyController::default()
        };
        if self.is_discovery() {
            return IdentifyController { kind: DISCOVERY, subsystem: DISCOVERY_NQN.into(), ..common }.emit();
        }
        let info = target.volume().info();
        let last = target.namespaces().iter().map(Namespace::nsid).max().unwrap_or(0);
        let deallocates = u16::from(info.discard_sectors_max > 0) << 2;
        let verifies = u16::from(info.verify_sectors_max > 0) << 7;
        let of_io = IdentifyController {
            kind: IO,
            mdts: target.mdts,
            oaes: EVENTS_OPTIONAL,
            sqes: 0x66,
            cqes: 0x44,
            nn: last,
            // Write Zeroes always.
            oncs: deallocates | 1 << 3 | verifies,
            // A cache, if the device has one; a flush of all namespaces is supported.
            vwc: u8::from(info.volatile_cache) | 0b110,
            mnan: last,
            subsystem: target.nqn().into(),
            ioccsz: (64 + IN_CAPSULE) / 16,
            // Queues can be deleted one at a time.
            ofcs: 1,
            ..common
        };
        of_io.emit()
    }
}

fn identify_namespace(namespace: &Namespace) -> Identified {
    let blocks = namespace.blocks(namespace.part().info().geometry.sectors().0);
    // Several controllers may have it; deallocated blocks read as zeroes; one format, without metadata.
    let value = IdentifyNamespace {
        nsze: blocks,
        ncap: blocks,
        nuse: blocks,
        nmic: 1,
        dlfeat: 1,
        nsattr: u8::from(namespace.is_read_only()),
        nguid: namespace.identifiers().0,
        lbads: namespace.block_shift(),
        ..IdentifyNamespace::default()
    };
    value.emit()
}

fn descriptors(namespace: &Namespace) -> Identified {
    let (nguid, uuid) = namespace.identifiers();
    let set = if namespace.is_zoned() { ZNS } else { NVM };
    NamespaceDescriptor::emit_all(&[
        NamespaceDescriptor::Nguid(nguid),
        NamespaceDescriptor::Uuid(uuid),
        NamespaceDescriptor::CommandSet(set),
    ])
}

fn identify_independent(namespace: &Namespace) -> Identified {
    let info = namespace.part().info();
    let value = IndependentNamespace {
        nsfeat: u8::from(info.rotational) << 4 | u8::from(!info.volatile_cache) << 5,
        nmic: 1,
        nsattr: u8::from(namespace.is_read_only()),
        nstat: 1,
    };
    value.emit()
}

fn identify_zoned(namespace: &Namespace) -> Identified {
    let info = namespace.part().info();
    // Reads may cross zones. Limits count from zero, so that no limit is the largest number.
    let value = IdentifyZoned {
        zoc: 0,
        ozcs: 1,
        mar: info.active_max.wrapping_sub(1),
        mor: info.open_max.wrapping_sub(1),
        zsze: namespace.blocks(info.geometry.zone_size().0),
        zdes: 0,
    };
    value.emit()
}
