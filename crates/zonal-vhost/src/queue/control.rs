//! Control queue: task management, and asynchronous notifications, which this device does not have
//! (VIRTIO 5.6.6.2).
//!
//! A task management function applies to commands of all request queues, possibly on other threads.
//! It is handed out, and its response is written once all of them have executed it.

use crate::memory::GuestBuffers;
use crate::ring::{Chain, Ring, RingFault};
use crate::wire::scsi::{
    ManagementRequest, NotificationRequest, NotificationResponse, address, control, function, response,
};
use std::collections::VecDeque;
use zerocopy::{FromZeros, IntoBytes};

/// Maximum functions in progress. A guest sends few, and each scans all commands.
const MANAGEMENTS_MAX: usize = 16;

/// Task management function, for all request queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Management {
    /// Identifier chosen by this device.
    pub id: u64,
    /// Function code, see [`function`].
    pub function: u32,
    /// Logical unit.
    pub lun: u16,
    /// Tag of a command, chosen by the guest.
    pub tag: u64,
}

impl Management {
    /// True for a query without effects.
    pub fn is_query(&self) -> bool {
        matches!(self.function, function::QUERY_TASK | function::QUERY_TASK_SET)
    }
}

/// Completion of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManagementEnd {
    /// Identifier of the function.
    pub id: u64,
    /// True if it applied to any command.
    pub has_found: bool,
}

struct Managing {
    management: Management,
    head: u16,
    buffers: GuestBuffers,
}

#[derive(Default)]
pub(super) struct Control {
    last_id: u64,
    managing: Vec<Managing>,
    next: VecDeque<Management>,
}

impl Control {
    pub(super) fn in_flight(&self) -> usize {
        self.managing.len()
    }

    pub(super) fn has_room(&self) -> bool {
        self.managing.len() < MANAGEMENTS_MAX
    }

    pub(super) fn next(&mut self) -> Option<Management> {
        self.next.pop_front()
    }

    pub(super) fn begin(&mut self, ring: &mut Ring, chain: Chain) -> Result<(), RingFault> {
        let mut kind = [0; 4];
        let short = RingFault::TooShort {
            readable: chain.buffers.readable_len(),
            writable: chain.buffers.writable_len(),
        };
        if !chain.buffers.read(&mut kind) {
            return Err(short);
        }
        match u32::from_le_bytes(kind) {
            control::MANAGEMENT => self.begin_management(ring, chain).ok_or(short),
            control::QUERY | control::SUBSCRIBE => notifications(ring, &chain).ok_or(short),
            _ => {
                ring.put(chain.head, 0);
                Ok(())
            }
        }
    }

    fn begin_management(&mut self, ring: &mut Ring, chain: Chain) -> Option<()> {
        let mut request = ManagementRequest::new_zeroed();
        if !chain.buffers.read(request.as_mut_bytes()) || chain.buffers.writable_len() == 0 {
            return None;
        }
        let (function, tag) = (request.function.get(), request.tag.get());
        let refused = match address(request.lun) {
            None => Some(response::BAD_TARGET),
            Some(_) if function == function::CLEAR_ACA || function > function::QUERY_TASK_SET => {
                Some(response::FUNCTION_REJECTED)
            }
            Some(0) => None,
            Some(_) if function == function::I_T_NEXUS_RESET => None,
            Some(_) => Some(response::INCORRECT_LUN),
        };
        if let Some(response) = refused {
            respond(ring, chain.head, &chain.buffers, &[response]);
            return Some(());
        }
        self.last_id += 1;
        let lun = address(request.lun).unwrap_or_default();
        let management = Management { id: self.last_id, function, lun, tag };
        self.next.push_back(management);
        self.managing.push(Managing { management, head: chain.head, buffers: chain.buffers });
        Some(())
    }

    pub(super) fn end(&mut self, ring: &mut Ring, end: ManagementEnd) {
        let Some(place) = self.managing.iter().position(|managing| managing.management.id == end.id) else {
            return;
        };
        let managing = self.managing.swap_remove(place);
        let response = match managing.management.is_query() && end.has_found {
            true => response::FUNCTION_SUCCEEDED,
            false => response::OK,
        };
        respond(ring, managing.head, &managing.buffers, &[response]);
    }
}

/// Answers requests for notifications. None are supported, for any unit.
fn notifications(ring: &mut Ring, chain: &Chain) -> Option<()> {
    let mut request = NotificationRequest::new_zeroed();
    let answer_len = size_of::<NotificationResponse>() as u32;
    if !chain.buffers.read(request.as_mut_bytes()) || chain.buffers.writable_len() < answer_len {
        return None;
    }
    let response = match address(request.lun) {
        None => response::BAD_TARGET,
        Some(0) => response::OK,
        Some(_) => response::INCORRECT_LUN,
    };
    let answer = NotificationResponse { events: 0.into(), response };
    respond(ring, chain.head, &chain.buffers, answer.as_bytes());
    Some(())
}

fn respond(ring: &mut Ring, head: u16, buffers: &GuestBuffers, bytes: &[u8]) {
    buffers.write(bytes);
    ring.put(head, bytes.len() as u32);
}
