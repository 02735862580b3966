//! Request queue: commands for the disk (VIRTIO 5.6.6.1).

use super::control::{Management, ManagementEnd};
use crate::memory::GuestBuffers;
use crate::ring::{Chain, Ring, RingFault};
use crate::wire::scsi::{
    CommandHeader, CommandResponse, HEADER_LEN, RESPONSE_LEN, SENSE_LEN, address, function, response,
};
use std::collections::VecDeque;
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};
use zonal_core::Nanos;
use zonal_scsi::{Answer, Disk, Task, TaskQueue};

/// SAM status: aborted by request of an initiator.
const TASK_ABORTED: u8 = 0x40;

struct Running {
    buffers: GuestBuffers,
    lun: u16,
    tag: u64,
    /// Bytes of data, in either direction.
    data_len: u32,
    /// Response if the command is aborted.
    aborted_by: u8,
    /// Task management functions that wait for its completion.
    managed_by: Vec<u64>,
}

struct Managing {
    id: u64,
    left: usize,
    has_found: bool,
}

/// Commands of one ring. Tagged for the disk by the first descriptor of their chain, which is in
/// flight only once.
pub(super) struct Requests {
    tasks: TaskQueue,
    running: Vec<Option<Running>>,
    in_flight: usize,
    /// First descriptor of a request in flight that was left over by a killed process.
    left: Option<u64>,
    managing: Vec<Managing>,
    managed: VecDeque<ManagementEnd>,
}

impl Requests {
    pub(super) fn new(disk: Arc<Disk>) -> Requests {
        let tasks = TaskQueue::new(disk);
        Requests {
            tasks,
            running: Vec::new(),
            in_flight: 0,
            left: None,
            managing: Vec::new(),
            managed: VecDeque::new(),
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// True while a request left over by a killed process is in flight. It runs alone: a later one
    /// may start where it ends, and the comparison takes memory.
    pub(super) fn has_left(&self) -> bool {
        self.left.is_some()
    }

    pub(super) fn begin(&mut self, now: Nanos, ring: &mut Ring, chain: Chain) -> Result<(), RingFault> {
        let Chain { head, mut buffers, is_left } = chain;
        let (readable, writable) = (buffers.readable_len(), buffers.writable_len());
        let mut header = CommandHeader::new_zeroed();
        if !buffers.read(header.as_mut_bytes()) || (writable as usize) < RESPONSE_LEN {
            return Err(RingFault::TooShort { readable, writable });
        }
        if ring.is_lost() {
            // The header may be incomplete.
            return Err(RingFault::MemoryLost);
        }
        let Some(lun) = address(header.lun) else {
            let response = CommandResponse { response: response::BAD_TARGET, ..CommandResponse::default() };
            respond(ring, head, &buffers, &response, 0);
            return Ok(());
        };
        let (data_out, data_in) = buffers.lend(HEADER_LEN as u32, RESPONSE_LEN as u32);
        let data_len = data_out.len().max(data_in.len()) as u32;
        let place = usize::from(head);
        if self.running.len() <= place {
            self.running.resize_with(usize::from(ring.num()).max(place + 1), || None);
        }
        let tag = header.tag.get();
        let running =
            Running { buffers, lun, tag, data_len, aborted_by: response::ABORTED, managed_by: Vec::new() };
        self.running[place] = Some(running);
        self.in_flight += 1;
        let task = Task { tag: u64::from(head), lun, cdb: header.cdb, data_out, data_in };
        match is_left {
            true => {
                self.left = Some(task.tag);
                self.tasks.submit_again(now, task);
            }
            false => self.tasks.submit(now, task),
        }
        Ok(())
    }

    /// Returns completed chains. Returns true if there was progress.
    pub(super) fn poll(&mut self, now: Nanos, ring: &mut Ring) -> bool {
        let has_moved = self.tasks.poll(now);
        while let Some(answer) = self.tasks.take() {
            self.end(ring, answer);
        }
        has_moved
    }

    fn end(&mut self, ring: &mut Ring, answer: Answer) {
        let place = usize::try_from(answer.tag).ok().and_then(|place| self.running.get_mut(place));
        let running = place.and_then(Option::take);
        let Some(mut running) = running else { return };
        self.in_flight -= 1;
        self.left.take_if(|left| *left == answer.tag);
        let Answer { tag, status, sense, transferred, data_out, data_in } = answer;
        let read_len = if data_in.is_empty() { 0 } else { transferred };
        running.buffers.take_back(data_out, data_in);
        let mut response = CommandResponse { status, ..CommandResponse::default() };
        let sense = &sense[..sense.len().min(SENSE_LEN)];
        response.sense[..sense.len()].copy_from_slice(sense);
        response.sense_len = (sense.len() as u32).into();
        response.residual = running.data_len.saturating_sub(transferred).into();
        if status == TASK_ABORTED {
            response.response = running.aborted_by;
        }
        respond(ring, tag as u16, &running.buffers, &response, read_len);
        running.managed_by.into_iter().for_each(|id| self.function_done(id));
    }

    pub(super) fn manage(&mut self, now: Nanos, management: Management) {
        let mut found = Vec::new();
        for (head, running) in self.running.iter_mut().enumerate() {
            let Some(running) = running.as_mut().filter(|running| applies_to(&management, running)) else {
                continue;
            };
            found.push(head as u64);
            if !management.is_query() {
                running.managed_by.push(management.id);
                running.aborted_by = response_of(management.function);
            }
        }
        let left = if management.is_query() { 0 } else { found.len() };
        self.managing.push(Managing { id: management.id, left: left + 1, has_found: !found.is_empty() });
        match management.function {
            _ if management.is_query() => {}
            function::I_T_NEXUS_RESET | function::LOGICAL_UNIT_RESET => self.tasks.cancel_all(now),
            _ => found.into_iter().for_each(|head| {
                self.tasks.cancel(now, head);
            }),
        }
        self.function_done(management.id);
    }

    /// Counts down the commands that a function waits for.
    fn function_done(&mut self, id: u64) {
        let Some(place) = self.managing.iter().position(|managing| managing.id == id) else { return };
        self.managing[place].left -= 1;
        if self.managing[place].left == 0 {
            let Managing { id, has_found, .. } = self.managing.swap_remove(place);
            self.managed.push_back(ManagementEnd { id, has_found });
        }
    }

    pub(super) fn managed(&mut self) -> Option<ManagementEnd> {
        self.managed.pop_front()
    }
}

fn applies_to(management: &Management, running: &Running) -> bool {
    match management.function {
        function::ABORT_TASK | function::QUERY_TASK => {
            running.lun == management.lun && running.tag == management.tag
        }
        function::I_T_NEXUS_RESET => true,
        _ => running.lun == management.lun,
    }
}

fn response_of(function: u32) -> u8 {
    match function {
        function::I_T_NEXUS_RESET | function::LOGICAL_UNIT_RESET => response::RESET,
        _ => response::ABORTED,
    }
}

fn respond(ring: &mut Ring, head: u16, buffers: &GuestBuffers, response: &CommandResponse, read_len: u32) {
    buffers.write(response.as_bytes());
    ring.put(head, RESPONSE_LEN as u32 + read_len);
}
