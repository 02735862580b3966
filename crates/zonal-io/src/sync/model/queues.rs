//! Queues of `crossbeam_queue`, as lists under a lock: push and pop are atomic, as the originals
//! promise.

use super::{Canary, checker, is_broken, pause};
use std::collections::VecDeque;
use std::sync::PoisonError;

/// Replacement for `crossbeam_queue::SegQueue`.
pub struct SegQueue<T>(checker::sync::Mutex<VecDeque<T>>);

impl<T> SegQueue<T> {
    /// Creates an empty queue.
    pub fn new() -> SegQueue<T> {
        SegQueue(checker::sync::Mutex::new(VecDeque::new()))
    }

    #[track_caller]
    fn with<R>(&self, f: impl FnOnce(&mut VecDeque<T>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Appends a value.
    #[track_caller]
    pub fn push(&self, value: T) {
        if is_broken(Canary::LostPush) {
            let len = self.len();
            pause();
            return self.with(|l| {
                if l.len() == len {
                    l.push_back(value)
                }
            });
        }
        self.with(|l| l.push_back(value));
    }

    /// Removes the first value.
    #[track_caller]
    pub fn pop(&self) -> Option<T> {
        self.with(VecDeque::pop_front)
    }

    /// True if the queue is empty.
    #[track_caller]
    pub fn is_empty(&self) -> bool {
        self.with(|l| l.is_empty())
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.with(|l| l.len())
    }
}

impl<T> Default for SegQueue<T> {
    fn default() -> SegQueue<T> {
        SegQueue::new()
    }
}

/// Replacement for `crossbeam_queue::ArrayQueue`.
pub struct ArrayQueue<T> {
    list: SegQueue<T>,
    len_max: usize,
}

impl<T> ArrayQueue<T> {
    /// Creates an empty queue for up to `len_max` values.
    pub fn new(len_max: usize) -> ArrayQueue<T> {
        ArrayQueue { list: SegQueue::new(), len_max }
    }

    /// Appends a value.
    ///
    /// # Errors
    /// The value, if the queue is full.
    #[track_caller]
    pub fn push(&self, value: T) -> Result<(), T> {
        if is_broken(Canary::LostPush) {
            self.list.push(value);
            return Ok(());
        }
        self.list.with(|l| {
            if l.len() >= self.len_max {
                return Err(value);
            }
            l.push_back(value);
            Ok(())
        })
    }

    /// Removes the first value.
    #[track_caller]
    pub fn pop(&self) -> Option<T> {
        self.list.pop()
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
