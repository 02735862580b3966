//! Communication between threads of a server: orders to queues, and their confirmations.

use crate::queue::{FIRST_REQUESTS, Management, ManagementEnd};
use crate::session::Change;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;

/// Order of the first thread to a thread.
pub(super) enum Order {
    /// Change a queue. Confirmed by one [`Confirmation::Changed`] or [`Confirmation::Stopped`].
    Change(u16, Change),
    /// Execute a function in all request queues of the thread. Confirmed by one
    /// [`Confirmation::Managed`].
    Manage(Management),
}

/// Confirmation to the first thread.
pub(super) enum Confirmation {
    /// A queue was changed.
    Changed,
    /// A queue has stopped, with the base for continuing.
    Stopped(u16),
    /// A function was executed in all request queues of a thread.
    Managed(ManagementEnd),
}

struct OrderBox {
    orders: Mutex<Vec<Order>>,
    bell: OwnedFd,
}

/// Orders for each thread, and confirmations for the first one.
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

    /// Thread that owns a queue.
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
        // Fails only if the bell is already readable.
        let _ = rustix::io::write(&self.boxes[thread].bell, &1u64.to_ne_bytes());
    }

    pub(super) fn ring_all(&self) {
        (0..self.boxes.len()).for_each(|thread| self.ring(thread));
    }
}
