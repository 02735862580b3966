//! Queues of `crossbeam_queue`, as lists under a lock: taking and giving are one step each, as theirs claim to be.

use super::{Canary, checker, is_broken, pause};
use std::collections::VecDeque;
use std::sync::PoisonError;

/// For `crossbeam_queue::SegQueue`.
pub struct SegQueue<T>(checker::sync::Mutex<VecDeque<T>>);

impl<T> SegQueue<T> {
    /// Empty.
    pub fn new() -> SegQueue<T> {
        SegQueue(checker::sync::Mutex::new(VecDeque::new()))
    }

    #[track_caller]
    fn with<R>(&self, f: impl FnOnce(&mut VecDeque<T>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds at the end.
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

    /// Takes the first.
    #[track_caller]
    pub fn pop(&self) -> Option<T> {
        self.with(VecDeque::pop_front)
    }

    /// Whether there is none.
    #[track_caller]
    pub fn is_empty(&self) -> bool {
        self.with(|l| l.is_empty())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.with(|l| l.len())
    }
}

impl<T> Default for SegQueue<T> {
    fn default() -> SegQueue<T> {
        SegQueue::new()
    }
}

/// For `crossbeam_queue::ArrayQueue`.
pub struct ArrayQueue<T> {
    list: SegQueue<T>,
    len_max: usize,
}

impl<T> ArrayQueue<T> {
    /// For `len_max` at most.
    pub fn new(len_max: usize) -> ArrayQueue<T> {
        ArrayQueue { list: SegQueue::new(), len_max }
    }

    /// Adds at the end.
    ///
    /// # Errors
    /// The value, if there is no room.
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

    /// Takes the first.
    #[track_caller]
    pub fn pop(&self) -> Option<T> {
        self.list.pop()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
