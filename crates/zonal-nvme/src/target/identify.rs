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
use crate::wire::{Page, Sqe};

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
            (0x06, ZNS) => {
                let mut page = Identified::default();
                page.u8(0, self.append_shift());
                page
            }
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

    /// Largest append, as a power of two of pages, less than what a command may transfer.
    fn append_shift(&self) -> u8 {
        let pages = self.target().volume().append_sectors_max() / 8;
        pages.checked_ilog2().map_or(0, |log| (log as u8).min(self.target().mdts))
    }

    fn identify_controller(&self) -> Identified {
        const IO: u8 = 1;
        const DISCOVERY: u8 = 2;
        let target = self.target();
        let is_discovery = self.is_discovery();
        let mut serial = String::new();
        for byte in &target.identity.bytes()[6..] {
            serial.push_str(&format!("{byte:02x}"));
        }
        let mut page = Identified::default();
        page.padded(4, 20, &serial);
        page.padded(24, 40, "Zonal");
        page.padded(64, 8, env!("CARGO_PKG_VERSION"));
        // Several ports and controllers.
        page.u8(76, 0b011);
        page.u8(77, if is_discovery { 0 } else { target.mdts });
        page.u16(78, self.id());
        page.u32(80, VERSION);
        page.u32(92, if is_discovery { 0 } else { EVENTS_OPTIONAL });
        // Host identifiers of 128 bits; any traffic keeps the controller alive.
        page.u32(96, 1 | 1 << 6);
        page.u8(111, if is_discovery { DISCOVERY } else { IO });
        page.u8(258, ABORTS as u8 - 1);
        page.u8(259, EVENT_REQUESTS - 1);
        // One slot of firmware, read-only.
        page.u8(260, 0b011);
        // The log of effects, and logs from any offset.
        page.u8(261, 0b110).u8(262, ERROR_ENTRIES as u8 - 1);
        // Time to keep alive in seconds.
        page.u16(320, (KEEP_ALIVE_UNIT / 100) as u16);
        page.u16(514, QUEUE_ENTRIES);
        if is_discovery {
            page.text(768, 256, DISCOVERY_NQN);
        } else {
            page.u8(512, 0x66);
            page.u8(513, 0x44);
            let last = target.namespaces().iter().map(Namespace::nsid).max().unwrap_or(0);
            page.u32(516, last);
            let info = target.volume().info();
            let deallocates = u16::from(info.discard_sectors_max > 0) << 2;
            let verifies = u16::from(info.verify_sectors_max > 0) << 7;
            page.u16(520, deallocates | 1 << 3 | verifies);
            // A cache, if the device has one; a flush of all namespaces is supported.
            page.u8(525, u8::from(info.volatile_cache) | 0b110);
            page.u32(540, last);
            page.text(768, 256, target.nqn());
            // Queues can be deleted one at a time.
            page.u16(1804, 1);
        }
        // Any alignment, and offsets.
        page.u32(536, 1 | 1 << 20);
        page.u32(1792, (64 + if is_discovery { 0 } else { IN_CAPSULE }) / 16);
        page.u32(1796, 1);
        page.u8(1803, 1);
        page
    }
}

fn identify_namespace(namespace: &Namespace) -> Identified {
    let blocks = namespace.blocks(namespace.part().info().geometry.sectors().0);
    let (nguid, _) = namespace.identifiers();
    let mut page = Identified::default();
    page.u64(0, blocks).u64(8, blocks).u64(16, blocks);
    // Deallocated blocks read as zeroes; several controllers may have it.
    page.u8(33, 1).u8(30, 1);
    page.u8(99, u8::from(namespace.is_read_only()));
    page.bytes(104, &nguid);
    // One format, without metadata.
    page.u8(128 + 2, namespace.block_shift());
    page
}

fn descriptors(namespace: &Namespace) -> Identified {
    let (nguid, uuid) = namespace.identifiers();
    let mut page = Identified::default();
    page.bytes(0, &[2, 16]).bytes(4, &nguid);
    page.bytes(20, &[3, 16]).bytes(24, &uuid);
    page.bytes(40, &[4, 1]).u8(44, if namespace.is_zoned() { ZNS } else { NVM });
    page
}

/// Base 5.1.13.2.8.
fn identify_independent(namespace: &Namespace) -> Identified {
    let info = namespace.part().info();
    let mut page = Identified::default();
    // Whether the medium turns, and whether it has no volatile cache.
    page.u8(0, u8::from(info.rotational) << 4 | u8::from(!info.volatile_cache) << 5);
    page.u8(1, 1);
    page.u8(8, u8::from(namespace.is_read_only()));
    page.u8(14, 1);
    page
}

/// ZNS 4.1.5.1.
fn identify_zoned(namespace: &Namespace) -> Identified {
    let info = namespace.part().info();
    let mut page = Identified::default();
    // Reads may cross zones. Limits count from zero, so that no limit is the largest number.
    page.u16(2, 1);
    page.u32(4, info.active_max.wrapping_sub(1));
    page.u32(8, info.open_max.wrapping_sub(1));
    page.u64(2816, namespace.blocks(info.geometry.zone_size().0));
    page
}
