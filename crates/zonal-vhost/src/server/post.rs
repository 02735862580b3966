//! What threads of a server tell each other: orders to queues, and what has come of them.

use crate::queue::{FIRST_REQUESTS, Management, ManagementEnd};
use crate::session::Change;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;

/// What the first thread asks of a thread.
pub(super) enum Order {
    /// A queue changes. One [`Confirmation::Changed`] or [`Confirmation::Stopped`] follows.
    Change(u16, Change),
    /// All its queues of requests carry out a function. One [`Confirmation::Managed`] follows.
    Manage(Management),
}

/// What a thread tells the first one.
pub(super) enum Confirmation {
    /// A change of a queue is made.
    Changed,
    /// A queue has stopped, and would continue there.
    Stopped(u16),
    /// A function has been carried out in all queues of requests of a thread.
    Managed(ManagementEnd),
}

struct OrderBox {
    orders: Mutex<Vec<Order>>,
    bell: OwnedFd,
}

/// The orders of each thread, and the confirmations for the first one.
pub(super) struct Post {
    boxes: Vec<OrderBox>,
    confirmations: Mutex<Vec<Confirmation>>,
}

impl Post {
    pub(super) fn new(threads: usize) -> io::Result<Post> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bells = (0..threads).map(|_| eventfd(0, flags)).collect::<Result<Vec<_>, _>>()?;
        let boxes = bells.into_iter().map(|bell| OrderBox { orders: Mutex::default(), bell }).collect();
        Ok(Post { boxes, confirmations: Mutex::default() })
    }

    pub(super) fn threads(&self) -> usize {
        self.boxes.len()
    }

    /// The thread that a queue belongs to.
    pub(super) fn thread_of(&self, queue: u16) -> usize {
        usize::from(queue.saturating_sub(FIRST_REQUESTS)) % self.threads()
    }

    pub(super) fn bell(&self, thread: usize) -> &OwnedFd {
        &self.boxes[thread].bell
    }

    pub(super) fn order(&self, thread: usize, order: Order) {
        self.boxes[thread].orders.lock().push(order);
        self.ring(thread);
    }

    pub(super) fn orders(&self, thread: usize) -> Vec<Order> {
        std::mem::take(&mut *self.boxes[thread].orders.lock())
    }

    pub(super) fn confirm(&self, confirmation: Confirmation) {
        self.confirmations.lock().push(confirmation);
        self.ring(0);
    }

    pub(super) fn confirmations(&self) -> Vec<Confirmation> {
        std::mem::take(&mut *self.confirmations.lock())
    }

    pub(super) fn ring(&self, thread: usize) {
        // It fails only where it is readable already.
        let _ = rustix::io::write(&self.boxes[thread].bell, &1u64.to_ne_bytes());
    }

    pub(super) fn ring_all(&self) {
        (0..self.boxes.len()).for_each(|thread| self.ring(thread));
    }
}
