//! Settings of each queue, and the resulting changes.

use super::{Message, Outcome, ProtocolError, Session};
use crate::memory::Memory;
use crate::queue::QUEUES_MAX;
use crate::ring::{DESCRIPTORS_MAX, InflightQueue, RingSetup};
use crate::wire::message::{NO_DESCRIPTOR, PROTOCOL_FEATURES, QueueAddresses, QueueNumber, request};
use crate::wire::scsi::{EVENT_IDX, INDIRECT_DESC};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Parameters for starting a queue.
pub struct RingStart {
    /// Guest memory.
    pub memory: Arc<Memory>,
    /// Ring.
    pub setup: RingSetup,
    /// Record of requests in flight.
    pub log: Option<InflightQueue>,
    /// Descriptor signalled by the guest.
    pub kick: Arc<OwnedFd>,
    /// Descriptor to signal to the guest.
    pub call: Option<Arc<OwnedFd>>,
    /// Descriptor to signal errors to the front end.
    pub error: Option<Arc<OwnedFd>>,
    /// True if chains may be taken.
    pub is_enabled: bool,
}

/// Change of a queue.
pub enum Change {
    /// Start.
    Start(Box<RingStart>),
    /// Stop after the requests in flight have completed.
    Stop,
    /// Set whether chains are taken.
    Enable(bool),
    /// Replace the guest memory.
    Memory(Arc<Memory>),
    /// Replace the descriptor signalled by the guest.
    Kick(Arc<OwnedFd>),
    /// Replace or remove the descriptor to signal to the guest.
    Call(Option<Arc<OwnedFd>>),
    /// Replace or remove the descriptor for errors.
    Error(Option<Arc<OwnedFd>>),
}

#[derive(Default)]
pub(super) struct QueueSettings {
    num: u16,
    addresses: Option<[u64; 3]>,
    pub(super) base: u16,
    call: Option<Arc<OwnedFd>>,
    error: Option<Arc<OwnedFd>>,
    is_enabled: bool,
    pub(super) is_started: bool,
}

impl Session {
    pub(super) fn set_queue(&mut self, message: &mut Message) -> Result<Outcome, ProtocolError> {
        match message.request {
            request::SET_ADDRESSES => self.set_addresses(message),
            request::SET_KICK => self.set_kick(message),
            request::SET_CALL => self.set_call(message),
            request::SET_ERROR => self.set_error(message),
            _ => self.set_number(message),
        }
    }

    fn settings(&mut self, queue: u32) -> Result<(u16, &mut QueueSettings), ProtocolError> {
        let number = u16::try_from(queue).ok().filter(|number| *number < QUEUES_MAX);
        let number = number.ok_or(ProtocolError::Queue(queue))?;
        Ok((number, self.queues.entry(number).or_default()))
    }

    fn set_number(&mut self, message: &Message) -> Result<Outcome, ProtocolError> {
        let QueueNumber { queue, number } = message.payload_as()?;
        let (value, request) = (number.get(), message.request);
        let (queue, settings) = self.settings(queue.get())?;
        let wrong = ProtocolError::Value { request, value: u64::from(value) };
        match request {
            request::SET_NUMBER => {
                let num =
                    u16::try_from(value).ok().filter(|num| num.is_power_of_two() && *num <= DESCRIPTORS_MAX);
                settings.num = num.ok_or(wrong)?;
            }
            request::SET_BASE => settings.base = u16::try_from(value).map_err(|_| wrong)?,
            request::SET_ENABLED if value > 1 => return Err(wrong),
            request::SET_ENABLED => {
                settings.is_enabled = value == 1;
                let is_started = settings.is_started;
                return Ok(changed(queue, is_started, || Change::Enable(value == 1)));
            }
            _ => return Ok(Self::get_base(queue, settings)),
        }
        Ok(Outcome::default())
    }

    fn get_base(queue: u16, settings: &mut QueueSettings) -> Outcome {
        if std::mem::take(&mut settings.is_started) {
            let changes = vec![(queue, Change::Stop)];
            return Outcome { changes, awaits_base: Some(queue), ..Outcome::default() };
        }
        let payload = QueueNumber { queue: u32::from(queue).into(), number: u32::from(settings.base).into() };
        super::with_reply(super::answer(request::GET_BASE, zerocopy::IntoBytes::as_bytes(&payload)))
    }

    fn set_addresses(&mut self, message: &Message) -> Result<Outcome, ProtocolError> {
        let addresses: QueueAddresses = message.payload_as()?;
        let (_, settings) = self.settings(addresses.queue.get())?;
        let QueueAddresses { descriptors, available, used, .. } = addresses;
        settings.addresses = Some([descriptors, available, used].map(|address| address.get()));
        Ok(Outcome::default())
    }

    fn set_kick(&mut self, message: &mut Message) -> Result<Outcome, ProtocolError> {
        let (queue, kick) = message.queue_descriptor()?;
        let value = u64::from(queue) | NO_DESCRIPTOR;
        // Without it the ring would have to be polled continuously.
        let kick = kick.ok_or(ProtocolError::Value { request: message.request, value })?;
        let has_protocol_features = self.features & PROTOCOL_FEATURES != 0;
        let event_idx = self.features & EVENT_IDX != 0;
        let indirect = self.features & INDIRECT_DESC != 0;
        let (queue, settings) = self.settings(queue)?;
        if settings.is_started {
            return Ok(changed(queue, true, || Change::Kick(kick)));
        }
        let Some([descriptors, available, used]) = settings.addresses.filter(|_| settings.num > 0) else {
            return Err(ProtocolError::NotSet(queue));
        };
        settings.is_started = true;
        let (num, base) = (settings.num, settings.base);
        let setup = RingSetup { num, descriptors, available, used, base, event_idx, indirect };
        let is_enabled = settings.is_enabled || !has_protocol_features;
        let (call, error) = (settings.call.clone(), settings.error.clone());
        let log = self.inflight.as_ref().and_then(|inflight| inflight.queue(queue, num));
        let memory = self.memory.clone();
        let start = RingStart { memory, setup, log, kick, call, error, is_enabled };
        Ok(changed(queue, true, || Change::Start(Box::new(start))))
    }

    fn set_call(&mut self, message: &mut Message) -> Result<Outcome, ProtocolError> {
        let (queue, call) = message.queue_descriptor()?;
        let (queue, settings) = self.settings(queue)?;
        settings.call = call.clone();
        Ok(changed(queue, settings.is_started, || Change::Call(call)))
    }

    fn set_error(&mut self, message: &mut Message) -> Result<Outcome, ProtocolError> {
        let (queue, error) = message.queue_descriptor()?;
        let (queue, settings) = self.settings(queue)?;
        settings.error = error.clone();
        Ok(changed(queue, settings.is_started, || Change::Error(error)))
    }
}

fn changed(queue: u16, is_started: bool, change: impl FnOnce() -> Change) -> Outcome {
    let changes = if is_started { vec![(queue, change())] } else { Vec::new() };
    Outcome { changes, ..Outcome::default() }
}

impl Message {
    /// Queue number and optional descriptor, which is set to non-blocking mode.
    fn queue_descriptor(&mut self) -> Result<(u32, Option<Arc<OwnedFd>>), ProtocolError> {
        let value = u64::from_le_bytes(self.payload_as::<[u8; 8]>()?);
        let wanted = usize::from(value & NO_DESCRIPTOR == 0);
        if self.descriptors.len() != wanted {
            return Err(self.wrong_descriptors());
        }
        let descriptor = self.descriptors.pop();
        if let Some(descriptor) = &descriptor {
            fcntl_setfl(descriptor, fcntl_getfl(descriptor)? | OFlags::NONBLOCK)?;
        }
        Ok(((value & 0xFF) as u32, descriptor.map(Arc::new)))
    }
}
