//! Session of a front end: messages in, queue changes and replies out.
//!
//! Owns the settings made by the front end: features, memory, and the parameters of each queue.
//! Owns no socket and no ring. A message may result in queue changes ([`Change`]); the driver
//! executes them, waits for the queues to confirm, and then sends the reply. It processes no other
//! message meanwhile, so a front end with the reply can rely on the change.
//!
//! # Misbehaving front ends
//! A message of wrong length, version or number of descriptors ends the connection
//! ([`ProtocolError`]). A valid message that cannot be obeyed is answered with a failure if the
//! front end expects a reply, and otherwise ends the connection.

mod files;
mod settings;

pub use settings::{Change, RingStart};

use crate::memory::{Memory, MemoryError, REGIONS_MAX, Region};
use crate::queue::QUEUES_MAX;
use crate::ring::DESCRIPTORS_MAX;
use crate::wire::message::*;
use crate::wire::scsi::{ANY_LAYOUT, CHANGE, EVENT_IDX, HOTPLUG, INDIRECT_DESC, VERSION_1};
use files::InflightRegion;
use settings::QueueSettings;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Device features.
pub const FEATURES: u64 = VERSION_1 | EVENT_IDX | INDIRECT_DESC | PROTOCOL_FEATURES;

/// Features that are not offered but tolerated, because QEMU sets them without asking the back end.
/// They stand for kinds of events, which this device never sends, or for arbitrary descriptor
/// boundaries, which it always accepts.
pub const FEATURES_TOLERATED: u64 = HOTPLUG | CHANGE | ANY_LAYOUT;

/// Protocol features.
pub const FEATURES_OF_PROTOCOL: u64 = MULTIPLE_QUEUES | REPLY_ACK | INFLIGHT_FILE | MEMORY_SLOTS;

/// Reason for ending a connection.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Unsupported protocol version.
    #[error("unsupported protocol version: message with flags {0:#x}")]
    Version(u32),
    /// Invalid length of the payload.
    #[error("message {request}: invalid length of {len} bytes")]
    Length {
        /// Message type.
        request: u32,
        /// Payload length in bytes.
        len: usize,
    },
    /// Wrong number of descriptors.
    #[error("message {request}: unexpected number of descriptors: {descriptors}")]
    Descriptors {
        /// Message type.
        request: u32,
        /// Number of descriptors received.
        descriptors: usize,
    },
    /// Unknown message type.
    #[error("unknown message {0}")]
    Unknown(u32),
    /// Invalid queue number.
    #[error("no queue {0}: a device has at most {QUEUES_MAX}")]
    Queue(u32),
    /// Invalid value.
    #[error("message {request}: invalid value {value:#x}")]
    Value {
        /// Message type.
        request: u32,
        /// Value.
        value: u64,
    },
    /// The queue's addresses or its number of descriptors have not been set.
    #[error("queue {0} started before its ring was configured")]
    NotSet(u16),
    /// Unusable memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Error of the operating system.
    #[error("system call failed: {0}")]
    System(#[from] rustix::io::Errno),
}

/// Message of the front end.
#[derive(Debug)]
pub struct Message {
    /// Message type.
    pub request: u32,
    /// [`NEED_REPLY`] and the version.
    pub flags: u32,
    /// Bytes after the header.
    pub payload: Vec<u8>,
    /// Descriptors received with it.
    pub descriptors: Vec<OwnedFd>,
}

/// Reply to the front end.
#[derive(Debug, Default)]
pub struct Reply {
    /// Header and payload.
    pub bytes: Vec<u8>,
    /// Descriptor to send along.
    pub descriptor: Option<Arc<OwnedFd>>,
}

/// Result of a message.
#[derive(Default)]
pub struct Outcome {
    /// Queue changes, in order.
    pub changes: Vec<(u16, Change)>,
    /// Reply to send once the changes are confirmed.
    pub reply: Option<Reply>,
    /// Queue to wait for until it stops; [`Session::stopped`] then returns the reply.
    pub awaits_base: Option<u16>,
}

/// Settings made by a front end.
#[derive(Default)]
pub struct Session {
    features: u64,
    protocol_features: u64,
    memory: Arc<Memory>,
    inflight: Option<InflightRegion>,
    queues: BTreeMap<u16, QueueSettings>,
}

impl Session {
    /// Processes a message.
    ///
    /// # Errors
    /// [`ProtocolError`]; the connection has to be closed.
    pub fn take(&mut self, mut message: Message) -> Result<Outcome, ProtocolError> {
        if message.flags & VERSION_BITS != VERSION {
            return Err(ProtocolError::Version(message.flags));
        }
        let acknowledges = message.flags & NEED_REPLY != 0 && self.protocol_features & REPLY_ACK != 0;
        let request = message.request;
        match self.execute(&mut message) {
            Ok(mut outcome) => {
                if acknowledges && outcome.reply.is_none() && outcome.awaits_base.is_none() {
                    outcome.reply = Some(number(request, 0));
                }
                Ok(outcome)
            }
            // A failure reported in a reply need not end the connection.
            Err(_) if acknowledges => Ok(Outcome { reply: Some(number(request, 1)), ..Outcome::default() }),
            Err(error) => Err(error),
        }
    }

    /// Reply once the queue in [`Outcome::awaits_base`] has stopped.
    pub fn stopped(&mut self, queue: u16, base: u16) -> Reply {
        if let Some(settings) = self.queues.get_mut(&queue) {
            settings.base = base;
        }
        let payload = QueueNumber { queue: u32::from(queue).into(), number: u32::from(base).into() };
        answer(request::GET_BASE, payload.as_bytes())
    }

    /// True if a file of the front end was found to be truncated.
    pub fn is_lost(&self) -> bool {
        self.memory.is_lost() || self.inflight.as_ref().is_some_and(InflightRegion::is_lost)
    }

    /// Ends the session. Returns stops for the started queues.
    pub fn close(&mut self) -> Vec<(u16, Change)> {
        let mut changes = Vec::new();
        for (queue, settings) in &mut self.queues {
            if std::mem::take(&mut settings.is_started) {
                changes.push((*queue, Change::Stop));
            }
        }
        changes
    }

    fn execute(&mut self, message: &mut Message) -> Result<Outcome, ProtocolError> {
        let request = message.request;
        if !takes_descriptors(request) {
            message.no_descriptors()?;
        }
        match request {
            request::GET_FEATURES => Ok(with_reply(number(request, FEATURES))),
            request::GET_PROTOCOL_FEATURES => Ok(with_reply(number(request, FEATURES_OF_PROTOCOL))),
            request::GET_QUEUES => Ok(with_reply(number(request, u64::from(QUEUES_MAX)))),
            request::GET_SLOTS => Ok(with_reply(number(request, REGIONS_MAX as u64))),
            request::SET_FEATURES => {
                self.features = message.number_of(FEATURES | FEATURES_TOLERATED)?;
                Ok(Outcome::default())
            }
            request::SET_PROTOCOL_FEATURES => {
                self.protocol_features = message.number_of(FEATURES_OF_PROTOCOL)?;
                Ok(Outcome::default())
            }
            request::SET_OWNER => Ok(Outcome::default()),
            request::RESET_OWNER => Ok(Outcome { changes: self.close(), ..Outcome::default() }),
            request::SET_MEMORY => self.set_memory(message),
            request::ADD_REGION => self.add_region(message),
            request::REMOVE_REGION => self.remove_region(message),
            request::GET_INFLIGHT => self.make_inflight(message),
            request::SET_INFLIGHT => self.set_inflight(message),
            request::SET_NUMBER
            | request::SET_ADDRESSES
            | request::SET_BASE
            | request::GET_BASE
            | request::SET_KICK
            | request::SET_CALL
            | request::SET_ERROR
            | request::SET_ENABLED => self.set_queue(message),
            _ => Err(ProtocolError::Unknown(request)),
        }
    }

    fn set_memory(&mut self, message: &mut Message) -> Result<Outcome, ProtocolError> {
        let wrong = message.length();
        let (table, rest) = MemoryTable::read_from_prefix(&message.payload).map_err(|_| wrong.clone())?;
        let len = table.regions.get() as usize;
        if len > DESCRIPTORS_MAX_OF_MESSAGE {
            return Err(wrong);
        }
        let bytes = rest.get(..len * size_of::<MemoryRegion>()).ok_or(wrong)?;
        let regions: Vec<MemoryRegion> = bytes
            .chunks_exact(size_of::<MemoryRegion>())
            .filter_map(|r| MemoryRegion::read_from_bytes(r).ok())
            .collect();
        if message.descriptors.len() != regions.len() {
            return Err(message.wrong_descriptors());
        }
        let mut memory = Memory::default();
        for (region, file) in regions.iter().zip(&message.descriptors) {
            memory = memory.with(Region::new(region, file)?)?;
        }
        Ok(self.use_memory(memory))
    }

    fn add_region(&mut self, message: &mut Message) -> Result<Outcome, ProtocolError> {
        let SingleRegion { region, .. } = message.payload_as()?;
        let [file] = &message.descriptors[..] else { return Err(message.wrong_descriptors()) };
        let memory = self.memory.with(Region::new(&region, file)?)?;
        Ok(self.use_memory(memory))
    }

    fn remove_region(&mut self, message: &mut Message) -> Result<Outcome, ProtocolError> {
        let SingleRegion { region, .. } = message.payload_as()?;
        let memory = self.memory.without(&region)?;
        Ok(self.use_memory(memory))
    }

    fn use_memory(&mut self, memory: Memory) -> Outcome {
        self.memory = Arc::new(memory);
        let started = self.queues.iter().filter(|(_, settings)| settings.is_started);
        let changes = started.map(|(queue, _)| (*queue, Change::Memory(self.memory.clone()))).collect();
        Outcome { changes, ..Outcome::default() }
    }
}

/// Maximum descriptors of a message, as needed for a memory table.
const DESCRIPTORS_MAX_OF_MESSAGE: usize = crate::wire::message::DESCRIPTORS_MAX;

const _: () = assert!(DESCRIPTORS_MAX.is_power_of_two());

fn takes_descriptors(request: u32) -> bool {
    matches!(
        request,
        request::SET_MEMORY
            | request::ADD_REGION
            // The specification allows a front end to send the file along.
            | request::REMOVE_REGION
            | request::SET_KICK
            | request::SET_CALL
            | request::SET_ERROR
            | request::SET_INFLIGHT
    )
}

fn with_reply(reply: Reply) -> Outcome {
    Outcome { reply: Some(reply), ..Outcome::default() }
}

fn answer(request: u32, payload: &[u8]) -> Reply {
    let (flags, len) = (VERSION | REPLY, payload.len() as u32);
    let header = Header { request: request.into(), flags: flags.into(), len: len.into() };
    Reply { bytes: [header.as_bytes(), payload].concat(), descriptor: None }
}

fn number(request: u32, value: u64) -> Reply {
    answer(request, &value.to_le_bytes())
}

impl Message {
    fn length(&self) -> ProtocolError {
        ProtocolError::Length { request: self.request, len: self.payload.len() }
    }

    fn wrong_descriptors(&self) -> ProtocolError {
        ProtocolError::Descriptors { request: self.request, descriptors: self.descriptors.len() }
    }

    fn no_descriptors(&self) -> Result<(), ProtocolError> {
        self.descriptors.is_empty().then_some(()).ok_or_else(|| self.wrong_descriptors())
    }

    fn payload_as<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<T, ProtocolError> {
        T::read_from_bytes(&self.payload).map_err(|_| self.length())
    }

    /// Numeric payload, in which only these bits may be set.
    fn number_of(&self, bits: u64) -> Result<u64, ProtocolError> {
        let value = u64::from_le_bytes(self.payload_as::<[u8; 8]>()?);
        let is_offered = value & !bits == 0;
        is_offered.then_some(value).ok_or(ProtocolError::Value { request: self.request, value })
    }
}
