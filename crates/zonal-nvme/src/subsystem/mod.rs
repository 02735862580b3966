//! Exported subsystem: its namespaces and the controllers of its hosts.
//!
//! A device is exported as one volume. Its sequential zones form a zoned namespace; its
//! conventional zones, if any, form another namespace with ordinary blocks. Both are parts of the
//! same volume, so limits and ordering are those of the drive.

mod aborts;
mod controller;
mod counts;
mod errors;
mod features;
mod identify;
mod logs;
mod memory;
mod namespace;
mod notices;
mod properties;

pub use controller::{Association, Controller, Reply};
pub use counts::{HostCounts, QueueCounts};
pub(crate) use memory::QueueMemory;
pub use memory::{QUEUE_MEMORY_MIN, TARGET_MEMORY_MAX};
pub use namespace::{IoCommand, IoError, Namespace, ZoneReport};
pub use properties::PropertySet;

use crate::status::Status;
use crate::wire::{ConnectCommand, ConnectData, NQN_MAX, text};
use memory::TargetMemory;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use zerocopy::FromBytes;
use zonal_io::identity::Identity;
use zonal_io::linear::LinearError;
use zonal_io::volume::{Part, PartKind, Volume};

/// NQN of all discovery subsystems (Base 4.7).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Maximum entries of an I/O queue.
pub const QUEUE_ENTRIES: u16 = 128;

/// Maximum entries of an admin queue (Base 3.1.4.8).
const ADMIN_ENTRIES: u32 = 4096;

/// Maximum I/O queues per controller.
pub const IO_QUEUES: u16 = 128;

/// Maximum number of controllers.
const CONTROLLERS: u16 = 1024;

/// Maximum in-capsule data of a command, in bytes.
pub const IN_CAPSULE: u32 = 8192;

/// Maximum data transfer size of a command, as a power of two in pages of 4 KiB.
const MDTS_MAX: u8 = 8;

/// Options of a target.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TargetOptions {
    /// NQN of the subsystem; `None` derives it from the identity.
    pub nqn: Option<String>,
    /// Identity from which the namespace identifiers and the serial number are derived.
    pub identity: Identity,
    /// True if hosts may only read.
    pub read_only: bool,
    /// Maximum data of all queues in memory, in bytes.
    pub memory_max: usize,
}

impl TargetOptions {
    /// Options for a writable target with this identity and an NQN derived from it.
    pub const fn new(identity: Identity) -> TargetOptions {
        TargetOptions { nqn: None, identity, read_only: false, memory_max: TARGET_MEMORY_MAX }
    }
}

zonal_core::setters! {
    TargetOptions
    /// NQN of the subsystem; `None` derives it from the identity.
    with_nqn nqn: impl Into<Option<String>>;
    /// True if hosts may only read.
    with_read_only read_only: bool;
    /// Maximum data of all queues in memory, in bytes.
    with_memory_max memory_max: usize;
}

/// Reason why a volume cannot be exported.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TargetError {
    /// Invalid NQN (Base 4.7).
    #[error(
        "{0:?} is not a subsystem NQN: expected \"nqn.\", a date, a domain and a name, at most {NQN_MAX} bytes"
    )]
    Nqn(String),
    /// The zones of the device cannot form a namespace.
    #[error("{0}")]
    Namespace(String),
    /// Error of a zone range of the volume.
    #[error(transparent)]
    Part(#[from] LinearError),
}

/// Exported subsystem.
pub struct Target {
    nqn: String,
    identity: Identity,
    volume: Arc<Volume>,
    namespaces: Vec<Namespace>,
    mdts: u8,
    zasl: u8,
    is_baseline: bool,
    controllers: Mutex<Controllers>,
    counts: counts::AllCounts,
    memory: Arc<TargetMemory>,
}

#[derive(Default)]
struct Controllers {
    last: u16,
    all: BTreeMap<u16, Arc<Controller>>,
}

impl Target {
    /// Exports `volume`. The volume must not park writes or enforce a zone budget, because hosts
    /// see it as the bare drive.
    ///
    /// # Errors
    /// [`TargetError`] if the NQN or the zones are unacceptable to hosts.
    pub fn new(volume: Arc<Volume>, options: TargetOptions) -> Result<Target, TargetError> {
        let made = || format!("nqn.2014-08.org.nvmexpress:uuid:{}", options.identity);
        let nqn = options.nqn.clone().unwrap_or_else(made);
        if !nqn.starts_with("nqn.") || nqn.len() > NQN_MAX || nqn == DISCOVERY_NQN {
            return Err(TargetError::Nqn(nqn));
        }
        let pages = u64::from(volume.info().command_sectors_max) / 8;
        let mdts = pages.checked_ilog2().map_or(1, |log| log as u8).clamp(1, MDTS_MAX);
        let pages = volume.append_sectors_max() / 8;
        let zasl = pages.checked_ilog2().map_or(0, |log| log as u8).min(mdts);
        let geometry = volume.info().geometry;
        let (conventional, zones) = (geometry.conventional_zones(), geometry.zones());
        let mut namespaces = Vec::new();
        if conventional < zones {
            // ZNS 3.4.1: a write beyond its zone fails with Zone Boundary Error, and none of it is
            // written.
            let part = Part::with(volume.clone(), conventional..zones, PartKind::Drive)?;
            namespaces.push(Namespace::new(1, part, 8 << zasl, &options)?);
        }
        if conventional > 0 {
            let part = Part::new(volume.clone(), 0..conventional)?;
            namespaces.push(Namespace::new(2, part, 0, &options)?);
        }
        // ZNS 4.1.5.2: ZASL is a power of two in pages and at least two pages; 0 means the limit of
        // other commands.
        if conventional < zones && volume.append_sectors_max() < 16 {
            let most = "zone appends are limited to less than 8 KiB, which cannot be reported to hosts";
            return Err(TargetError::Namespace(most.to_owned()));
        }
        Ok(Target {
            nqn,
            identity: options.identity,
            volume,
            namespaces,
            mdts,
            zasl,
            is_baseline: false,
            controllers: Mutex::default(),
            counts: counts::AllCounts::default(),
            memory: TargetMemory::new(options.memory_max),
        })
    }

    /// Makes I/O commands succeed at once, without reaching the volume. A baseline for
    /// measurements.
    #[must_use]
    pub fn baseline(self) -> Target {
        Target { is_baseline: true, ..self }
    }

    /// True if I/O commands succeed without the volume.
    pub(crate) fn is_baseline(&self) -> bool {
        self.is_baseline
    }

    /// NQN of the subsystem.
    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    /// Exported volume.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Namespaces in ascending order of number.
    pub fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// Namespace with this number.
    ///
    /// # Errors
    /// [`Status::INVALID_NAMESPACE`].
    pub fn namespace(&self, nsid: u32) -> Result<&Namespace, Status> {
        self.namespaces.iter().find(|namespace| namespace.nsid() == nsid).ok_or(Status::INVALID_NAMESPACE)
    }

    /// Maximum data transfer size of a command, in bytes.
    pub fn transfer_max(&self) -> u32 {
        4096 << self.mdts
    }

    /// Transfer totals of all hosts.
    pub fn host_counts(&self) -> HostCounts {
        self.counts.sum()
    }

    /// NQNs of hosts by controller number.
    pub fn hosts(&self) -> BTreeMap<u16, String> {
        let controllers = self.controllers.lock();
        controllers.all.iter().map(|(id, controller)| (*id, controller.host_nqn().to_owned())).collect()
    }

    /// Number of controllers.
    pub fn controllers(&self) -> usize {
        self.controllers.lock().all.len()
    }

    /// Removes a controller that is over. It holds a reference to the target, so keeping it here
    /// would keep both alive.
    fn forget(&self, id: u16) {
        let mut controllers = self.controllers.lock();
        // The number may already be reused.
        if controllers.all.get(&id).is_some_and(|controller| controller.is_over()) {
            controllers.all.remove(&id);
        }
    }

    /// Connects a queue (Base 6.3) and reserves its memory. `data` is the 1024 bytes of data of the
    /// command, `local` the local address of the connection.
    ///
    /// # Errors
    /// A status, and dword 0 of the completion, which locates the error.
    pub(crate) fn connect(
        self: &Arc<Target>,
        sqe: &crate::wire::Sqe,
        data: &[u8],
        local: SocketAddr,
        now: zonal_core::Nanos,
    ) -> Result<(Association, QueueMemory), (Status, u32)> {
        /// Invalid parameter at this offset of the data.
        const fn in_data(at: u32) -> (Status, u32) {
            (Status::CONNECT_INVALID, 1 << 16 | at)
        }
        const fn in_command(at: u32) -> (Status, u32) {
            (Status::CONNECT_INVALID, at)
        }
        let command = ConnectCommand::parse(sqe).ok_or((Status::INVALID_OPCODE, 0))?;
        let ConnectCommand { format, qid, entries, has_flow_control, keep_alive } = command;
        if format != 0 {
            return Err((Status::CONNECT_FORMAT, 0));
        }
        let data = ConnectData::ref_from_bytes(data).map_err(|_| (Status::DATA_LENGTH_INVALID, 0))?;
        let (host, cntlid) = (data.host, data.cntlid.get());
        // Only names can be malformed.
        let names = text(&data.subsystem).zip(text(&data.host_nqn));
        let (nqn, host_nqn) = names.ok_or(in_data(256))?;
        if host_nqn.is_empty() {
            return Err(in_data(512));
        }
        let is_discovery = nqn == DISCOVERY_NQN;
        if !is_discovery && nqn != self.nqn {
            return Err(in_data(256));
        }
        if keep_alive > features::KEEP_ALIVE_MAX {
            return Err(in_command(48));
        }
        let entries_max = if qid == 0 { ADMIN_ENTRIES } else { QUEUE_ENTRIES.into() };
        if !(2..=entries_max).contains(&entries) {
            return Err(in_command(44));
        }
        let memory = self.memory.queue().ok_or((Status::CONNECT_BUSY, 0))?;
        let mut controllers = self.controllers.lock();
        controllers.all.retain(|_, controller| !controller.is_over());
        if qid == 0 {
            if cntlid != ConnectData::ANY_CONTROLLER {
                return Err(in_data(16));
            }
            let free = (1..=CONTROLLERS).map(|n| (controllers.last + n - 1) % CONTROLLERS + 1);
            let id = free
                .into_iter()
                .find(|id| !controllers.all.contains_key(id))
                .ok_or((Status::CONNECT_BUSY, 0))?;
            let events = self.namespaces.iter().map(|namespace| namespace.part().events()).collect();
            let controller = Controller::new(
                id,
                self.clone(),
                is_discovery,
                (host, host_nqn),
                local,
                keep_alive,
                now,
                events,
            );
            let controller = Arc::new(controller);
            controllers.last = id;
            controllers.all.insert(id, controller.clone());
            return Ok((Association::new(controller, (0, 0), entries as u16, has_flow_control), memory));
        }
        let controller = controllers.all.get(&cntlid).ok_or(in_data(16))?.clone();
        drop(controllers);
        if controller.is_discovery() || !controller.is_of(&host, host_nqn) {
            return Err(in_data(if controller.is_discovery() { 256 } else { 0 }));
        }
        if qid > IO_QUEUES {
            return Err(in_command(42));
        }
        let resets = controller.take_queue(qid)?.ok_or(in_command(42))?;
        Ok((Association::new(controller, (qid, resets), entries as u16, has_flow_control), memory))
    }
}
