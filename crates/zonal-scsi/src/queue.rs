//! Commands of one transport queue: tasks in, answers out.
//!
//! A queue has no socket and reads no clock. Its driver [submits](TaskQueue::submit) tasks,
//! processes completions ([`TaskQueue::poll`], after [`Volume::poll`](zonal_io::Volume::poll)), and
//! [takes](TaskQueue::take) answers. It stays on the thread that created it: its requests complete
//! in an inbox of that thread.
//!
//! # Driving contract
//! - After `submit` the driver polls until `poll` returns false, because an inline device has
//!   already completed requests by then.
//! - Before it sleeps it checks [`TaskQueue::has_news`] again, as in
//!   [`Volume::wait_unless`](zonal_io::Volume::wait_unless).
//! - Each task is answered exactly once, even if it is cancelled.
//!
//! # Order
//! Writes are submitted to the volume in task order. An initiator that sends the writes of a zone
//! in order, on one queue, need not wait between them.
//!
//! # Memory
//! A task's memory is lent to the volume and returned with the answer. In addition, a command that
//! compares or fills takes up to 256 KiB, and a step of a report up to 512 KiB.

use crate::disk::{Disk, Invocation, Started};
use crate::sense::Sense;
use crate::status::{self, Failure};
use crate::wire::Cdb;
use crate::work::{Memory, Step, Work, memory};
use std::collections::VecDeque;
use std::sync::Arc;
use zonal_core::{Nanos, Op};
use zonal_io::buffer::IoBufs;
use zonal_io::volume::{Completion, Inbox, Withdrawal};

/// Maximum tasks in flight per queue. Further tasks end with TASK SET FULL.
pub const TASKS_MAX: usize = 4096;

/// Maximum completions processed by one poll.
const POLL_MAX: usize = 256;

/// Command from a transport.
#[derive(Debug)]
pub struct Task {
    /// Tag chosen by the transport and returned in the answer. Tags need not be unique; a cancel
    /// then applies to all tasks with the tag.
    pub tag: u64,
    /// Logical unit number.
    pub lun: u16,
    /// Command descriptor, padded with zeroes.
    pub cdb: Cdb,
    /// Data from the initiator. May be longer than the command requires.
    pub data_out: IoBufs,
    /// Buffer for data to the initiator. Up to the length of the command, bytes that the answer
    /// does not count as transferred are undefined.
    pub data_in: IoBufs,
}

/// Result of a task. Each task has exactly one.
#[derive(Debug)]
pub struct Answer {
    /// Tag of the task.
    pub tag: u64,
    /// Status, see [`crate::status`].
    pub status: u8,
    /// Sense data. Empty unless the status is CHECK CONDITION.
    pub sense: Sense,
    /// Bytes stored in `data_in` or consumed from `data_out`.
    pub transferred: u32,
    /// Memory of the task.
    pub data_out: IoBufs,
    /// Memory of the task.
    pub data_in: IoBufs,
}

/// Task in progress.
struct RunningTask {
    tag: u64,
    memory: Memory,
    work: Work,
    /// True if its request was submitted to the whole volume, not to the part.
    is_of_whole: bool,
    /// Set if it was cancelled. The withdrawal stays in effect until its request has completed.
    cancelled: Option<Withdrawal>,
}

/// Commands of one transport queue.
pub struct TaskQueue {
    disk: Arc<Disk>,
    inbox: Inbox,
    /// Inbox of the whole volume, for a reset of all zones: the drive has a single command for it,
    /// the part would need one per zone.
    whole: Inbox,
    /// Indexed by request token. Each task has at most one request in flight.
    running: Vec<Option<Box<RunningTask>>>,
    free: Vec<usize>,
    answers: VecDeque<Answer>,
}

impl TaskQueue {
    /// Creates a queue on the calling thread.
    pub fn new(disk: Arc<Disk>) -> TaskQueue {
        let (inbox, whole) = (disk.part().inbox(), disk.volume().inbox());
        TaskQueue { disk, inbox, whole, running: Vec::new(), free: Vec::new(), answers: VecDeque::new() }
    }

    /// Disk of the queue.
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// Starts a task. Its answer may be available on return.
    pub fn submit(&mut self, now: Nanos, task: Task) {
        self.begin(now, task, false);
    }

    /// Starts a task that a previous queue of the disk left unanswered because its process was
    /// killed. A write may have been executed: it is compared with the contents of its zone below
    /// the write pointer, and the missing part is written.
    pub fn submit_again(&mut self, now: Nanos, task: Task) {
        self.begin(now, task, true);
    }

    fn begin(&mut self, now: Nanos, task: Task, is_reissued: bool) {
        let Task { tag, lun, cdb, data_out, data_in } = task;
        let mut memory = Memory { data_out, data_in };
        let data_in_len = memory.data_in.len();
        let invocation = Invocation { cdb: &cdb, data_out: &memory.data_out, data_in_len, is_reissued };
        match self.disk.begin(lun, &invocation) {
            Ok(Started::Done(transferred)) => self.answer(tag, memory, Ok(transferred)),
            Ok(Started::Data(mut data, len)) => {
                data.truncate(len as usize);
                let put = memory::put(&mut memory.data_in, 0, &data);
                self.answer(tag, memory, Ok(put as u32));
            }
            Ok(Started::Working(work)) => self.run(now, tag, memory, work),
            Err(failure) => self.answer(tag, memory, Err(failure)),
        }
    }

    fn run(&mut self, now: Nanos, tag: u64, memory: Memory, work: Work) {
        if self.in_flight() >= TASKS_MAX {
            return self.end(tag, memory, status::TASK_SET_FULL, Sense::EMPTY, 0);
        }
        let task = Box::new(RunningTask { tag, memory, work, is_of_whole: false, cancelled: None });
        let index = self.free.pop().unwrap_or_else(|| {
            self.running.push(None);
            self.running.len() - 1
        });
        self.advance(now, index, task, None);
    }

    /// Processes completions of the volume and continues commands with several steps. The driver
    /// calls [`Volume::poll`](zonal_io::Volume::poll) first. Returns true if there was progress;
    /// then there may be more.
    pub fn poll(&mut self, now: Nanos) -> bool {
        let mut has_moved = false;
        for _ in 0..POLL_MAX {
            let Some(end) = self.inbox.take().or_else(|| self.whole.take()) else { break };
            has_moved = true;
            let index = end.token as usize;
            if let Some(task) = self.running.get_mut(index).and_then(Option::take) {
                self.advance(now, index, task, Some(end));
            }
        }
        has_moved
    }

    /// Takes the next answer, in order of completion.
    pub fn take(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// True if [`TaskQueue::poll`] or [`TaskQueue::take`] would return something.
    pub fn has_news(&self) -> bool {
        !self.answers.is_empty() || !self.inbox.is_empty() || !self.whole.is_empty()
    }

    /// Cancels the tasks with this tag, like ABORT TASK. Returns false if there is none.
    ///
    /// Each is still answered once: with TASK ABORTED if its request was waiting or another would
    /// have followed. Commands at the device complete normally, and if that completes the task, its
    /// status is returned.
    pub fn cancel(&mut self, now: Nanos, tag: u64) -> bool {
        self.cancel_if(now, |task| task.tag == tag)
    }

    /// Cancels all tasks, like LOGICAL UNIT RESET. See [`TaskQueue::cancel`].
    pub fn cancel_all(&mut self, now: Nanos) {
        self.cancel_if(now, |_| true);
    }

    fn cancel_if(&mut self, now: Nanos, is_meant: impl Fn(&RunningTask) -> bool) -> bool {
        let mut is_any = false;
        for (index, slot) in self.running.iter_mut().enumerate() {
            let Some(task) = slot.as_mut().filter(|task| is_meant(task)) else { continue };
            is_any = true;
            if task.cancelled.is_none() {
                // Cancelled requests complete in the inbox, so no task changes here.
                let withdrawal = self.disk.volume().cancel_request(now, self.inbox.channel(), index as u64);
                task.cancelled = Some(withdrawal);
            }
        }
        is_any
    }

    /// Number of tasks in flight.
    pub fn in_flight(&self) -> usize {
        self.running.len() - self.free.len()
    }

    /// Performs the next step of the task taken from `index`.
    fn advance(&mut self, now: Nanos, index: usize, mut task: Box<RunningTask>, end: Option<Completion>) {
        let next = task.work.step(&self.disk, &mut task.memory, end);
        let result = match next {
            Step::Ask(request) if task.cancelled.is_some() => {
                task.work.abandon(&mut task.memory, request);
                Err(Failure::Aborted)
            }
            Step::Ask(request) => {
                task.is_of_whole = request.op == Op::ResetAll;
                let inbox = if task.is_of_whole { &self.whole } else { &self.inbox };
                self.running[index] = Some(task);
                return self.disk.part().submit(now, inbox.channel(), request.token(index as u64));
            }
            Step::End(result) => result,
        };
        // End the withdrawal before another task can reuse the index.
        drop(task.cancelled.take());
        self.free.push(index);
        self.answer(task.tag, task.memory, result);
    }

    fn answer(&mut self, tag: u64, memory: Memory, result: Result<u32, Failure>) {
        match result {
            Ok(transferred) => self.end(tag, memory, status::GOOD, Sense::EMPTY, transferred),
            Err(failure) => {
                let sense = match &failure {
                    Failure::Check(condition) => Sense::of(condition),
                    Failure::Busy | Failure::Aborted => Sense::EMPTY,
                };
                self.end(tag, memory, failure.status(), sense, 0);
            }
        }
    }

    fn end(&mut self, tag: u64, memory: Memory, status: u8, sense: Sense, transferred: u32) {
        let Memory { data_out, data_in } = memory;
        self.answers.push_back(Answer { tag, status, sense, transferred, data_out, data_in });
    }
}
