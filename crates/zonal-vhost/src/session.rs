//! One connection of a front end: messages in, changes of queues and answers out.
//!
//! Owns what the front end has said: features, memory, and the settings of each queue. Owns no socket and no ring. A message may ask
//! queues to change ([`Change`]); the driver carries that out, waits until the queues confirm it, and then sends the answer.
//! It takes no other message meanwhile, so a front end that has its answer can rely on the change.
//!
//! # Front ends that misbehave
//! A message that has the wrong length, version or number of descriptors ends the connection ([`ProtocolError`]). A message that is
//! understood and cannot be obeyed is answered with a failure if the front end waits for one, and otherwise ends the connection.

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

/// Features of the device.
pub const FEATURES: u64 = VERSION_1 | EVENT_IDX | INDIRECT_DESC | PROTOCOL_FEATURES;

/// Features that are not offered, and which a front end may set all the same: QEMU asks no back end about them. They say that there are
/// events of a kind, which this device never sends, or that descriptors may divide a request anywhere, which it never minds.
pub const FEATURES_TOLERATED: u64 = HOTPLUG | CHANGE | ANY_LAYOUT;

/// Features of the protocol.
pub const FEATURES_OF_PROTOCOL: u64 = MULTIPLE_QUEUES | REPLY_ACK | INFLIGHT_FILE | MEMORY_SLOTS;

/// Why a connection ends.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The message is of another version.
    #[error("a message with flags {0:#x}")]
    Version(u32),
    /// The payload is too long or too short.
    #[error("message {request} with {len} bytes")]
    Length {
        /// What it asks for.
        request: u32,
        /// Bytes of its payload.
        len: usize,
    },
    /// It has too many or too few descriptors.
    #[error("message {request} with {descriptors} descriptors")]
    Descriptors {
        /// What it asks for.
        request: u32,
        /// Descriptors that came with it.
        descriptors: usize,
    },
    /// There is no such message.
    #[error("message {0} is not known")]
    Unknown(u32),
    /// There is no such queue.
    #[error("queue {0} of {QUEUES_MAX}")]
    Queue(u32),
    /// A value that cannot be.
    #[error("message {request} with the value {value:#x}")]
    Value {
        /// What it asks for.
        request: u32,
        /// The value.
        value: u64,
    },
    /// The queue's addresses or its number of descriptors are missing.
    #[error("queue {0} is started without its settings")]
    NotSet(u16),
    /// The memory cannot be used.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The operating system refuses.
    #[error("the operating system refuses: {0}")]
    System(#[from] rustix::io::Errno),
}

/// A message of the front end.
#[derive(Debug)]
pub struct Message {
    /// What it asks for.
    pub request: u32,
    /// [`NEED_REPLY`] and the version.
    pub flags: u32,
    /// What follows the header.
    pub payload: Vec<u8>,
    /// Descriptors that came with it.
    pub descriptors: Vec<OwnedFd>,
}

/// What is sent to the front end.
#[derive(Debug, Default)]
pub struct Reply {
    /// The message.
    pub bytes: Vec<u8>,
    /// What goes with it.
    pub descriptor: Option<Arc<OwnedFd>>,
}

/// What a message leads to.
#[derive(Default)]
pub struct Outcome {
    /// Changes of queues, in order.
    pub changes: Vec<(u16, Change)>,
    /// What is sent once these are confirmed.
    pub reply: Option<Reply>,
    /// The queue whose stop is awaited; then [`Session::stopped`] gives what is sent.
    pub awaits_base: Option<u16>,
}

/// What the front end has said.
#[derive(Default)]
pub struct Session {
    features: u64,
    protocol_features: u64,
    memory: Arc<Memory>,
    inflight: Option<InflightRegion>,
    queues: BTreeMap<u16, QueueSettings>,
}

impl Session {
    /// Takes a message.
    ///
    /// # Errors
    /// [`ProtocolError`]: the connection ends.
    pub fn take(&mut self, mut message: Message) -> Result<Outcome, ProtocolError> {
        if message.flags & VERSION_BITS != VERSION {
            return Err(ProtocolError::Version(message.flags));
        }
        let acknowledges = message.flags & NEED_REPLY != 0 && self.protocol_features & REPLY_ACK != 0;
        let request = message.request;
        match self.obey(&mut message) {
            Ok(mut outcome) => {
                if acknowledges && outcome.reply.is_none() && outcome.awaits_base.is_none() {
                    outcome.reply = Some(number(request, 0));
                }
                Ok(outcome)
            }
            // A front end that waits hears of it, and may do without.
            Err(_) if acknowledges => Ok(Outcome { reply: Some(number(request, 1)), ..Outcome::default() }),
            Err(error) => Err(error),
        }
    }

    /// What is sent when the queue has stopped that [`Outcome::awaits_base`] names.
    pub fn stopped(&mut self, queue: u16, base: u16) -> Reply {
        if let Some(settings) = self.queues.get_mut(&queue) {
            settings.base = base;
        }
        let payload = QueueNumber { queue: u32::from(queue).into(), number: u32::from(base).into() };
        answer(request::GET_BASE, payload.as_bytes())
    }

    /// True once a file of the front end's was found to be truncated.
    pub fn is_lost(&self) -> bool {
        self.memory.is_lost() || self.inflight.as_ref().is_some_and(InflightRegion::is_lost)
    }

    /// The connection is over: which queues have to stop.
    pub fn close(&mut self) -> Vec<(u16, Change)> {
        let mut changes = Vec::new();
        for (queue, settings) in &mut self.queues {
            if std::mem::take(&mut settings.is_started) {
                changes.push((*queue, Change::Stop));
            }
        }
        changes
    }

    fn obey(&mut self, message: &mut Message) -> Result<Outcome, ProtocolError> {
        let request = message.request;
        if !takes_descriptors(request) {
            message.no_descriptors()?;
        }
        match request {
            request::GET_FEATURES => Ok(told(number(request, FEATURES))),
            request::GET_PROTOCOL_FEATURES => Ok(told(number(request, FEATURES_OF_PROTOCOL))),
            request::GET_QUEUES => Ok(told(number(request, u64::from(QUEUES_MAX)))),
            request::GET_SLOTS => Ok(told(number(request, REGIONS_MAX as u64))),
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

/// Descriptors of one message: a memory table's.
const DESCRIPTORS_MAX_OF_MESSAGE: usize = crate::wire::message::DESCRIPTORS_MAX;

const _: () = assert!(DESCRIPTORS_MAX.is_power_of_two());

fn takes_descriptors(request: u32) -> bool {
    matches!(
        request,
        request::SET_MEMORY
            | request::ADD_REGION
            // The standard lets a front end send the file along.
            | request::REMOVE_REGION
            | request::SET_KICK
            | request::SET_CALL
            | request::SET_ERROR
            | request::SET_INFLIGHT
    )
}

fn told(reply: Reply) -> Outcome {
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

    /// The number that is the payload, of these bits.
    fn number_of(&self, bits: u64) -> Result<u64, ProtocolError> {
        let value = u64::from_le_bytes(self.payload_as::<[u8; 8]>()?);
        let is_offered = value & !bits == 0;
        is_offered.then_some(value).ok_or(ProtocolError::Value { request: self.request, value })
    }
}
