//! Log pages (Base 5.1.12, ZNS 4.1.4).

use super::controller::{Controller, State};
use super::identify::{NVM, ZNS};
use super::{DISCOVERY_NQN, HostCounts, Target};
use crate::status::Status;
use crate::wire::{Page, Sqe, admin, io};
use std::collections::BTreeSet;
use std::net::SocketAddr;

mod id {
    pub const SUPPORTED: u8 = 0x00;
    pub const ERRORS: u8 = 0x01;
    pub const HEALTH: u8 = 0x02;
    pub const FIRMWARE: u8 = 0x03;
    pub const NAMESPACES: u8 = 0x04;
    pub const EFFECTS: u8 = 0x05;
    pub const DISCOVERY: u8 = 0x70;
    pub const ZONES: u8 = 0xBF;
}

/// The transport, as a number (Base 5.1.12.3.1).
pub(super) const TCP: u8 = 3;

/// Zones whose descriptors have changed since the host has read the log (ZNS 4.1.4.1).
#[derive(Default)]
pub(super) struct ChangedZones {
    /// First blocks.
    zones: BTreeSet<u64>,
    is_too_many: bool,
}

impl ChangedZones {
    const MAX: usize = 511;

    /// Notes a zone.
    pub(super) fn add(&mut self, start: u64) {
        if self.is_too_many {
            return;
        }
        self.zones.insert(start);
        if self.zones.len() > Self::MAX {
            self.is_too_many = true;
            self.zones.clear();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.zones.is_empty() && !self.is_too_many
    }

    fn page(&self) -> Page<4096> {
        let mut page = Page::default();
        match self.is_too_many {
            true => _ = page.u16(0, 0xFFFF),
            false => {
                page.u16(0, self.zones.len() as u16);
                for (n, start) in self.zones.iter().enumerate() {
                    page.u64(8 + 8 * n, *start);
                }
            }
        }
        page
    }
}

impl Controller {
    pub(super) fn log_page(&self, sqe: &Sqe, state: &mut State) -> Result<Vec<u8>, Status> {
        let number = sqe.dword(10) as u8;
        let dwords = u64::from(sqe.dword(10) >> 16) | u64::from(sqe.dword(11) & 0xFFFF) << 16;
        let len = (dwords + 1) * 4;
        let offset = u64::from(sqe.dword(12)) | u64::from(sqe.dword(13)) << 32;
        let set = (sqe.dword(14) >> 24) as u8;
        let retains = sqe.dword(10) & 1 << 15 != 0;
        if offset % 4 != 0 || len > u64::from(self.target().transfer_max()) {
            return Err(Status::INVALID_FIELD);
        }
        let page = match (number, self.is_discovery()) {
            (id::DISCOVERY, true) => discovery(self.target(), self.local()),
            (_, true) | (id::DISCOVERY, false) => return Err(Status::INVALID_LOG_PAGE),
            (id::SUPPORTED, false) => supported(),
            (id::ERRORS, false) => state.errors.page(),
            // Of the controller: namespaces have none of their own.
            (id::HEALTH, false) if matches!(sqe.nsid.get(), 0 | u32::MAX) => self.health(state),
            (id::HEALTH, false) => return Err(Status::INVALID_FIELD),
            (id::FIRMWARE, false) => {
                let mut page = Page::<512>::default();
                page.u8(0, 1).padded(8, 8, env!("CARGO_PKG_VERSION"));
                page.into_vec()
            }
            (id::NAMESPACES, false) => {
                let mut page = Page::<4096>::default();
                for (n, nsid) in state.notices.namespaces.log.iter().enumerate() {
                    page.u32(4 * n, *nsid);
                }
                if !retains {
                    state.notices.namespaces.clear();
                }
                page.into_vec()
            }
            (id::EFFECTS, false) if matches!(set, NVM | ZNS) => effects(self.target(), set == ZNS).into_vec(),
            (id::EFFECTS, false) => return Err(Status::INVALID_FIELD),
            (id::ZONES, false) => {
                let all = self.target().namespaces();
                let place = all.iter().position(|n| n.nsid() == sqe.nsid.get() && n.is_zoned());
                let changed = &mut state.notices.zones[place.ok_or(Status::INVALID_NAMESPACE)?];
                let page = changed.log.page().into_vec();
                if !retains {
                    changed.clear();
                }
                page
            }
            _ => return Err(Status::INVALID_LOG_PAGE),
        };
        if offset > page.len() as u64 {
            return Err(Status::INVALID_FIELD);
        }
        let mut page = page[offset as usize..].to_vec();
        page.resize(len as usize, 0);
        Ok(page)
    }
}

/// Base 5.1.12.1.1.
fn supported() -> Vec<u8> {
    let mut page = Page::<1024>::default();
    for id in [id::SUPPORTED, id::ERRORS, id::HEALTH, id::FIRMWARE, id::NAMESPACES, id::EFFECTS, id::ZONES] {
        page.u32(4 * usize::from(id), 1);
    }
    page.into_vec()
}

impl Controller {
    /// SMART / Health Information (Base 5.1.12.1.3): what hosts have moved since the target was made.
    fn health(&self, state: &State) -> Vec<u8> {
        const KELVIN: u16 = 273 + 30;
        const HOUR: u64 = 3_600_000_000_000;
        /// Thousands of 512 bytes.
        const DATA_UNIT: u64 = 512_000;
        let HostCounts { reads, read_bytes, writes, written_bytes, media_errors } =
            self.target().host_counts();
        let mut page = Page::<512>::default();
        // All of the spare, and a threshold for it.
        page.u16(1, KELVIN).u8(3, 100).u8(4, 10);
        page.u64(32, read_bytes.div_ceil(DATA_UNIT)).u64(48, written_bytes.div_ceil(DATA_UNIT));
        page.u64(64, reads).u64(80, writes);
        // It was switched on once, when the clock began.
        page.u64(112, 1).u64(128, self.heard().0 / HOUR);
        page.u64(160, media_errors).u64(176, state.errors.count());
        page.into_vec()
    }
}

/// Base 5.1.12.1.6: what is supported, and what changes data.
fn effects(target: &Target, is_zoned: bool) -> Page<4096> {
    const SUPPORTED: u32 = 1;
    const WRITES: u32 = 1 << 1;
    let mut page = Page::default();
    let admin = [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
        admin::KEEP_ALIVE,
    ];
    for opcode in admin {
        page.u32(4 * usize::from(opcode), SUPPORTED);
    }
    let reads = [io::FLUSH, io::READ].map(|opcode| (opcode, SUPPORTED));
    let verify = [(io::VERIFY, SUPPORTED)];
    let verify = if target.volume().info().verify_sectors_max > 0 { &verify[..] } else { &[] };
    let writes =
        [io::WRITE, io::WRITE_ZEROES, io::DATASET_MANAGEMENT].map(|opcode| (opcode, SUPPORTED | WRITES));
    let zoned = [
        (io::ZONE_MANAGEMENT_RECEIVE, SUPPORTED),
        (io::ZONE_MANAGEMENT_SEND, SUPPORTED | WRITES),
        (io::ZONE_APPEND, SUPPORTED | WRITES),
    ];
    let zoned = if is_zoned { &zoned[..] } else { &[] };
    for (opcode, effect) in reads.iter().chain(verify).chain(&writes).chain(zoned) {
        page.u32(1024 + 4 * usize::from(*opcode), *effect);
    }
    page
}

/// Base 5.1.12.3.1: the discovery subsystem itself, and the target.
fn discovery(target: &Target, local: SocketAddr) -> Vec<u8> {
    const SUBSYSTEM: u8 = 2;
    const CURRENT_DISCOVERY: u8 = 3;
    let mut bytes = Page::<1024>::default();
    bytes.u64(0, 1).u64(8, 2);
    let mut bytes = bytes.into_vec();
    for (kind, nqn) in [(CURRENT_DISCOVERY, DISCOVERY_NQN), (SUBSYSTEM, target.nqn())] {
        let mut entry = Page::<1024>::default();
        // No requirement of security; flow control of queues can be left out.
        entry.u8(0, TCP).u8(1, if local.is_ipv4() { 1 } else { 2 }).u8(2, kind).u8(3, 1 << 2);
        entry.u16(4, 1).u16(6, 0xFFFF).u16(8, 32);
        entry.padded(32, 32, &local.port().to_string());
        entry.text(256, 256, nqn);
        entry.padded(512, 256, &local.ip().to_string());
        bytes.extend(entry.into_vec());
    }
    bytes
}
