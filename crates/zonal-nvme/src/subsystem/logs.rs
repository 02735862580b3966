//! Log pages (Base 5.1.12, ZNS 4.1.4).

use super::controller::{Controller, ControllerState, admin_command};
use super::{DISCOVERY_NQN, HostCounts, Namespace, Target};
use crate::status::Status;
use crate::wire::command_set::{NVM, ZNS};
use crate::wire::{
    ChangedZoneList, ConnectData, DiscoveryEntry, DiscoveryHeader, FirmwareLog, GetLogPage, HealthLog, Sqe,
    emit_namespaces, log, padded, zero_ended,
};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use zerocopy::little_endian::U32;
use zerocopy::{FromZeros, IntoBytes};

/// Transport type of TCP (Base 5.1.12.3.1).
pub(super) const TCP: u8 = 3;

/// Zones with changed descriptors since the host last read the log (ZNS 4.1.4.1).
#[derive(Default)]
pub(super) struct ChangedZones {
    /// First logical block of each zone.
    zones: BTreeSet<u64>,
    is_too_many: bool,
}

impl ChangedZones {
    /// Adds a zone.
    pub(super) fn add(&mut self, start: u64) {
        if self.is_too_many {
            return;
        }
        self.zones.insert(start);
        if self.zones.len() > ChangedZoneList::MAX {
            self.is_too_many = true;
            self.zones.clear();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.zones.is_empty() && !self.is_too_many
    }

    fn list(&self) -> ChangedZoneList {
        let count = if self.is_too_many { ChangedZoneList::TOO_MANY } else { self.zones.len() as u16 };
        let mut list = ChangedZoneList { count: count.into(), ..FromZeros::new_zeroed() };
        for (entry, start) in list.starts.iter_mut().zip(&self.zones) {
            entry.set(*start);
        }
        list
    }
}

impl Controller {
    pub(super) fn log_page(&self, sqe: &Sqe, state: &mut ControllerState) -> Result<Vec<u8>, Status> {
        let GetLogPage { lid, len, offset, csi, retains, nsid } = GetLogPage::parse(sqe);
        if offset % 4 != 0 || len > u64::from(self.target().transfer_max()) {
            return Err(Status::INVALID_FIELD);
        }
        let page = match (lid, self.is_discovery()) {
            (log::DISCOVERY, true) => discovery(self.target(), self.local()),
            (_, true) | (log::DISCOVERY, false) => return Err(Status::INVALID_LOG_PAGE),
            (log::SUPPORTED, false) => supported(),
            (log::ERRORS, false) => state.errors.page(),
            // Health is per controller, not per namespace.
            (log::HEALTH, false) if matches!(nsid, 0 | u32::MAX) => self.health(state),
            (log::HEALTH, false) => return Err(Status::INVALID_FIELD),
            (log::FIRMWARE, false) => {
                let revision = padded(env!("CARGO_PKG_VERSION"));
                FirmwareLog { slot: 1, revision, ..FromZeros::new_zeroed() }.as_bytes().to_vec()
            }
            (log::NAMESPACES, false) => {
                let page = emit_namespaces(state.notices.namespaces.log.iter().copied());
                if !retains {
                    state.notices.namespaces.clear();
                }
                page
            }
            (log::EFFECTS, false) if matches!(csi, NVM | ZNS) => effects(self.target(), csi == ZNS),
            (log::EFFECTS, false) => return Err(Status::INVALID_FIELD),
            (log::ZONES, false) => {
                let all = self.target().namespaces();
                let place = all.iter().position(|n| n.nsid() == nsid && n.is_zoned());
                let changed = &mut state.notices.zones[place.ok_or(Status::INVALID_NAMESPACE)?];
                let page = changed.log.list().as_bytes().to_vec();
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

/// Supported Log Pages (Base 5.1.12.1.1).
fn supported() -> Vec<u8> {
    let mut page = [U32::ZERO; 256];
    for lid in
        [log::SUPPORTED, log::ERRORS, log::HEALTH, log::FIRMWARE, log::NAMESPACES, log::EFFECTS, log::ZONES]
    {
        page[usize::from(lid)] = 1.into();
    }
    page.as_bytes().to_vec()
}

impl Controller {
    /// SMART / Health Information (Base 5.1.12.1.3), with data transferred by all hosts since the
    /// target was created.
    fn health(&self, state: &ControllerState) -> Vec<u8> {
        const KELVIN: u16 = 273 + 30;
        const HOUR: u64 = 3_600_000_000_000;
        /// Data unit: 1000 times 512 bytes.
        const DATA_UNIT: u64 = 512_000;
        let HostCounts { reads, read_bytes, writes, written_bytes, media_errors } =
            self.target().host_counts();
        let health = HealthLog {
            temperature: KELVIN.into(),
            // All spare capacity is available, with an arbitrary threshold.
            spare: 100,
            spare_min: 10,
            units_read: u128::from(read_bytes.div_ceil(DATA_UNIT)).into(),
            units_written: u128::from(written_bytes.div_ceil(DATA_UNIT)).into(),
            reads: u128::from(reads).into(),
            writes: u128::from(writes).into(),
            // One power cycle, when the clock started.
            power_cycles: 1.into(),
            power_on_hours: u128::from(self.last_message().0 / HOUR).into(),
            media_errors: u128::from(media_errors).into(),
            error_entries: u128::from(state.errors.count()).into(),
            ..HealthLog::new_zeroed()
        };
        health.as_bytes().to_vec()
    }
}

/// Commands Supported and Effects (Base 5.1.12.1.6).
fn effects(target: &Target, is_zoned: bool) -> Vec<u8> {
    let verifies = target.volume().info().verify_sectors_max > 0;
    let mut page = [U32::ZERO; 1024];
    for opcode in 0..=u8::MAX {
        page[usize::from(opcode)] = u32::from(admin_command(opcode).is_some()).into();
        page[256 + usize::from(opcode)] = Namespace::effects(opcode, is_zoned, verifies).into();
    }
    page.as_bytes().to_vec()
}

/// Discovery log (Base 5.1.12.3.1): the discovery subsystem itself and the target.
fn discovery(target: &Target, local: SocketAddr) -> Vec<u8> {
    const SUBSYSTEM: u8 = 2;
    const CURRENT_DISCOVERY: u8 = 3;
    let kinds = [(CURRENT_DISCOVERY, DISCOVERY_NQN), (SUBSYSTEM, target.nqn())];
    let (generation, records) = (1.into(), (kinds.len() as u64).into());
    let header = DiscoveryHeader { generation, records, ..FromZeros::new_zeroed() };
    let mut bytes = header.as_bytes().to_vec();
    for (kind, nqn) in kinds {
        // No secure channel required; submission queue flow control can be disabled.
        let entry = DiscoveryEntry {
            transport: TCP,
            family: if local.is_ipv4() { 1 } else { 2 },
            kind,
            requirements: 1 << 2,
            port: 1.into(),
            cntlid: ConnectData::ANY_CONTROLLER.into(),
            admin_entries: 32.into(),
            service: padded(local.port().to_string()),
            subsystem: zero_ended(nqn),
            address: padded(local.ip().to_string()),
            ..DiscoveryEntry::new_zeroed()
        };
        bytes.extend_from_slice(entry.as_bytes());
    }
    bytes
}
