//! The commands of one transport queue: tasks in, answers out.
//!
//! A queue has no socket and reads no clock. Its driver [submits](TaskQueue::submit) tasks, lets it look for what has ended
//! ([`TaskQueue::poll`], after [`Volume::poll`](zonal_io::Volume::poll)), and [takes](TaskQueue::take) answers. It stays on the
//! thread that made it: its requests end in an inbox of that thread.
//!
//! # Driving contract
//! - After `submit` the driver polls until `poll` returns false: what the device answers at once is in the inbox by then.
//! - Before it sleeps it asks [`TaskQueue::has_news`] once more, as in [`Volume::wait_unless`](zonal_io::Volume::wait_unless).
//! - Each task is answered exactly once, whatever is cancelled.
//!
//! # Order
//! Writes go to the volume in the order of their tasks. An initiator that sends the writes of a zone in order, on one queue,
//! needs to wait for none.
//!
//! # Memory
//! A task's memory is lent to the volume and comes back with the answer. On top come at most 256 KiB for a command that compares or
//! fills, and 512 KiB for a report while a step runs.

use crate::disk::{Begun, Disk, Invocation};
use crate::sense::Sense;
use crate::status::{self, Failure};
use crate::wire::Cdb;
use crate::work::{Memory, Next, Work, memory};
use std::collections::VecDeque;
use std::sync::Arc;
use zonal_core::{Nanos, Op};
use zonal_io::buffer::IoBufs;
use zonal_io::volume::{Completion, Inbox, Withdrawal};

/// Tasks of a queue at most that have no answer. One more ends with TASK SET FULL.
pub const TASKS_MAX: usize = 4096;

/// Ends of requests that one poll looks at, at most.
const POLL_MAX: usize = 256;

/// A command as a transport hands it over.
#[derive(Debug)]
pub struct Task {
    /// The transport's number, which the answer has. Two tasks may have one: a cancel means both.
    pub tag: u64,
    /// The logical unit.
    pub lun: u16,
    /// The command descriptor, filled with zeroes.
    pub cdb: Cdb,
    /// Data from the initiator. Longer memory than the command takes is left alone.
    pub data_out: IoBufs,
    /// Memory for data to the initiator. What the answer does not count as transferred may be anything up to the command's length.
    pub data_in: IoBufs,
}

/// The one end of a task.
#[derive(Debug)]
pub struct Answer {
    /// The task's number.
    pub tag: u64,
    /// Its status: see [`crate::status`].
    pub status: u8,
    /// Why it has failed. Empty unless the status is CHECK CONDITION.
    pub sense: Sense,
    /// Bytes moved to `data_in`, or taken of `data_out`.
    pub transferred: u32,
    /// The task's memory.
    pub data_out: IoBufs,
    /// The task's memory.
    pub data_in: IoBufs,
}

/// A task that has work left.
struct RunningTask {
    tag: u64,
    memory: Memory,
    work: Work,
    /// Whether its request is the volume's, not the part's.
    is_of_whole: bool,
    /// Whether it was cancelled. The mark at the volume stays until its request has ended.
    cancelled: Option<Withdrawal>,
}

/// The commands of one transport queue. See the module.
pub struct TaskQueue {
    disk: Arc<Disk>,
    inbox: Inbox,
    /// Of the volume itself, for resets of all zones: the drive has one command for that, and its part would have one a zone.
    whole: Inbox,
    /// A request's token is its task's index here. Each task has one request at a time.
    running: Vec<Option<Box<RunningTask>>>,
    free: Vec<usize>,
    answers: VecDeque<Answer>,
}

impl TaskQueue {
    /// A queue of the calling thread.
    pub fn new(disk: Arc<Disk>) -> TaskQueue {
        let (inbox, whole) = (disk.part().inbox(), disk.volume().inbox());
        TaskQueue { disk, inbox, whole, running: Vec::new(), free: Vec::new(), answers: VecDeque::new() }
    }

    /// The disk.
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// Begins a task. Its answer may be there when this returns.
    pub fn submit(&mut self, now: Nanos, task: Task) {
        self.begin(now, task, false);
    }

    /// The same of a task that an earlier queue of the disk has left without an answer, because its process was killed. A write may
    /// have been carried out: it is compared with what its zone holds below the pointer, and what is missing is written.
    pub fn submit_again(&mut self, now: Nanos, task: Task) {
        self.begin(now, task, true);
    }

    fn begin(&mut self, now: Nanos, task: Task, is_reissued: bool) {
        let Task { tag, lun, cdb, data_out, data_in } = task;
        let mut memory = Memory { data_out, data_in };
        let data_in_len = memory.data_in.len();
        let invocation = Invocation { cdb: &cdb, data_out: &memory.data_out, data_in_len, is_reissued };
        match self.disk.begin(lun, &invocation) {
            Ok(Begun::Done(transferred)) => self.answer(tag, memory, Ok(transferred)),
            Ok(Begun::Data(mut data, len)) => {
                data.truncate(len as usize);
                let put = memory::put(&mut memory.data_in, 0, &data);
                self.answer(tag, memory, Ok(put as u32));
            }
            Ok(Begun::Working(work)) => self.run(now, tag, memory, work),
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

    /// Takes what the volume has ended, and continues commands of several steps. The driver calls
    /// [`Volume::poll`](zonal_io::Volume::poll) before. Returns whether something ended or moved; then there may be more.
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

    /// The next answer, in the order of their ends.
    pub fn take(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// Whether [`TaskQueue::poll`] or [`TaskQueue::take`] has something.
    pub fn has_news(&self) -> bool {
        !self.answers.is_empty() || !self.inbox.is_empty() || !self.whole.is_empty()
    }

    /// Asks for the end of the tasks with this number, as ABORT TASK does. Returns whether there is one.
    ///
    /// Each still answers once: with TASK ABORTED if its request waited, or another would have followed. What is at the device
    /// ends as it does there, and if that was all of the task, with that status.
    pub fn cancel(&mut self, now: Nanos, tag: u64) -> bool {
        self.cancel_if(now, |task| task.tag == tag)
    }

    /// Asks for the end of all tasks, as LOGICAL UNIT RESET does: see [`TaskQueue::cancel`].
    pub fn cancel_all(&mut self, now: Nanos) {
        self.cancel_if(now, |_| true);
    }

    fn cancel_if(&mut self, now: Nanos, is_meant: impl Fn(&RunningTask) -> bool) -> bool {
        let mut is_any = false;
        for (index, slot) in self.running.iter_mut().enumerate() {
            let Some(task) = slot.as_mut().filter(|task| is_meant(task)) else { continue };
            is_any = true;
            if task.cancelled.is_none() {
                // What ends by this lies in the inbox, so no task changes here.
                let withdrawal = self.disk.volume().cancel_request(now, self.inbox.channel(), index as u64);
                task.cancelled = Some(withdrawal);
            }
        }
        is_any
    }

    /// Tasks without an answer.
    pub fn in_flight(&self) -> usize {
        self.running.len() - self.free.len()
    }

    /// The next step of the task at `index`, which is not there meanwhile.
    fn advance(&mut self, now: Nanos, index: usize, mut task: Box<RunningTask>, end: Option<Completion>) {
        let next = task.work.step(&self.disk, &mut task.memory, end);
        let result = match next {
            Next::Ask(request) if task.cancelled.is_some() => {
                task.work.leave(&mut task.memory, request);
                Err(Failure::Aborted)
            }
            Next::Ask(request) => {
                task.is_of_whole = request.op == Op::ResetAll;
                let inbox = if task.is_of_whole { &self.whole } else { &self.inbox };
                self.running[index] = Some(task);
                return self.disk.part().submit(now, inbox.channel(), request.token(index as u64));
            }
            Next::End(result) => result,
        };
        // The mark goes before another task can have the number.
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
