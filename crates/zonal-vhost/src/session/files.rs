//! File that records requests in flight: created here and kept by the front end.

use super::{Message, Outcome, ProtocolError, Session, answer, with_reply};
use crate::memory::{Region, map_area};
use crate::queue::QUEUES_MAX;
use crate::ring::{DESCRIPTORS_MAX, InflightQueue, queue_len};
use crate::wire::message::InflightFile;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zerocopy::IntoBytes;

pub(super) struct InflightRegion {
    region: Arc<Region>,
    queues: u16,
    num: u16,
}

impl InflightRegion {
    fn new(file: &OwnedFd, facts: &InflightFile) -> Result<InflightRegion, ProtocolError> {
        let region = map_area(file, facts.offset.get(), facts.len.get())?;
        Ok(InflightRegion { region, queues: facts.queues.get(), num: facts.num.get() })
    }

    pub(super) fn is_lost(&self) -> bool {
        self.region.is_lost()
    }

    /// Part of one queue, if its ring has at most as many descriptors.
    pub(super) fn queue(&self, queue: u16, num: u16) -> Option<InflightQueue> {
        if queue >= self.queues || num > self.num {
            return None;
        }
        InflightQueue::new(&self.region, u64::from(queue) * queue_len(self.num) as u64, self.num)
    }
}

impl Session {
    /// Creates a file for the number of queues and descriptors given by the front end.
    pub(super) fn make_inflight(&mut self, message: &mut Message) -> Result<Outcome, ProtocolError> {
        let mut facts = checked(message)?;
        let len = u64::from(facts.queues.get()) * queue_len(facts.num.get()) as u64;
        (facts.len, facts.offset) = (len.into(), 0.into());
        let file = memfd_create("zonal-vhost-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len)?;
        self.inflight = Some(InflightRegion::new(&file, &facts)?);
        // With the front end's length: see `checked`.
        let mut payload = facts.as_bytes().to_vec();
        payload.resize(message.payload.len(), 0);
        let mut reply = answer(message.request, &payload);
        reply.descriptor = Some(Arc::new(file));
        Ok(with_reply(reply))
    }

    /// Takes the file kept by the front end.
    pub(super) fn set_inflight(&mut self, message: &mut Message) -> Result<Outcome, ProtocolError> {
        let facts = checked(message)?;
        let [file] = &message.descriptors[..] else { return Err(message.wrong_descriptors()) };
        self.inflight = Some(InflightRegion::new(file, &facts)?);
        Ok(Outcome::default())
    }
}

fn checked(message: &Message) -> Result<InflightFile, ProtocolError> {
    let facts: InflightFile = match message.payload.len() {
        // Front ends in C send the structure with padding.
        24 => zerocopy::FromBytes::read_from_prefix(&message.payload).map_err(|_| message.length())?.0,
        _ => message.payload_as()?,
    };
    let (queues, num) = (facts.queues.get(), facts.num.get());
    if queues == 0 || queues > QUEUES_MAX {
        return Err(ProtocolError::Queue(u32::from(queues)));
    }
    if num == 0 || num > DESCRIPTORS_MAX {
        return Err(ProtocolError::Value { request: message.request, value: u64::from(num) });
    }
    Ok(facts)
}
