//! Record of the chains in flight, in a file that outlives this process.
//!
//! The front end keeps the file. After the back end was killed, its successor gets the file and
//! resubmits the chains marked there, in the order in which they were taken (QEMU's vhost-user
//! specification, Inflight I/O tracking).
//!
//! # Why a list and a copy of the index
//! The process may be killed between the updates of the used index and the marks. So each completed
//! chain is added to a list first, and the copy of the index is written after the marks. If the
//! copy and the index differ, the chains at the head of the list have completed.

use super::DESCRIPTORS_MAX;
use crate::memory::{Area, Region};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Offsets of the header fields of a queue, before the entries.
const VERSION: usize = 8;
const NUM: usize = 10;
const LAST_HEAD: usize = 12;
const USED_INDEX: usize = 14;
const ENTRIES: usize = 16;

/// Entry of a descriptor: a mark, the next one of the list, and the order in which chains were
/// taken.
const ENTRY_LEN: usize = 16;
const MARK: usize = 0;
const NEXT: usize = 6;
const COUNTER: usize = 8;

/// Alignment of the part of a queue.
const ALIGN: usize = 64;

/// Version of the format.
const CURRENT: u16 = 1;

/// Length of the part of a queue, in bytes.
pub fn queue_len(num: u16) -> usize {
    (ENTRIES + ENTRY_LEN * usize::from(num)).next_multiple_of(ALIGN)
}

/// Part of the file for one queue.
pub struct InflightQueue {
    area: Area,
    num: u16,
    counter: u64,
    /// Chains returned but not published.
    ended: Vec<u16>,
}

impl InflightQueue {
    /// Part at `offset` of the file; `None` if it is beyond the end.
    pub fn new(file: &Arc<Region>, offset: u64, num: u16) -> Option<InflightQueue> {
        if num == 0 || num > DESCRIPTORS_MAX {
            return None;
        }
        let area = Area::of(file, offset, queue_len(num), 8)?;
        Some(InflightQueue { area, num, counter: 0, ended: Vec::new() })
    }

    pub(super) fn is_lost(&self) -> bool {
        self.area.is_lost()
    }

    fn entry(head: u16) -> usize {
        ENTRIES + ENTRY_LEN * usize::from(head)
    }

    /// Completes the updates started by the previous process, and returns its left-over chains,
    /// oldest first. The contents of the file are not trusted.
    pub(super) fn recover(&mut self, used: u16) -> Vec<u16> {
        let is_known =
            self.area.load_u16(VERSION, Acquire) == CURRENT && self.area.load_u16(NUM, Relaxed) == self.num;
        if !is_known {
            self.format(used);
            return Vec::new();
        }
        let mut head = self.area.load_u16(LAST_HEAD, Relaxed);
        let missing = used.wrapping_sub(self.area.load_u16(USED_INDEX, Relaxed)).min(self.num);
        for _ in 0..missing {
            if head >= self.num {
                break;
            }
            self.area.store_u8(Self::entry(head) + MARK, 0, Relaxed);
            head = self.area.load_u16(Self::entry(head) + NEXT, Relaxed);
        }
        self.area.store_u16(USED_INDEX, used, Release);
        let is_marked = |head: &u16| self.area.load_u8(Self::entry(*head) + MARK, Relaxed) != 0;
        let mut left: Vec<u16> = (0..self.num).filter(is_marked).collect();
        let counter = |head: u16| self.area.load_u64(Self::entry(head) + COUNTER, Relaxed);
        left.sort_by_key(|head| counter(*head));
        self.counter = left.last().map_or(0, |head| counter(*head).wrapping_add(1));
        left
    }

    fn format(&mut self, used: u16) {
        (0..self.num).for_each(|head| self.area.store_u8(Self::entry(head) + MARK, 0, Relaxed));
        self.area.store_u16(NUM, self.num, Relaxed);
        self.area.store_u16(LAST_HEAD, 0, Relaxed);
        self.area.store_u16(USED_INDEX, used, Relaxed);
        self.area.store_u16(VERSION, CURRENT, Release);
    }

    pub(super) fn begin(&mut self, head: u16) {
        self.area.store_u64(Self::entry(head) + COUNTER, self.counter, Relaxed);
        self.counter = self.counter.wrapping_add(1);
        self.area.store_u8(Self::entry(head) + MARK, 1, Release);
    }

    pub(super) fn end(&mut self, head: u16) {
        let last = self.area.load_u16(LAST_HEAD, Relaxed);
        self.area.store_u16(Self::entry(head) + NEXT, last, Relaxed);
        self.area.store_u16(LAST_HEAD, head, Release);
        self.ended.push(head);
    }

    /// Clears the marks after the used index was written.
    pub(super) fn publish(&mut self, used: u16) {
        for head in self.ended.drain(..) {
            self.area.store_u8(Self::entry(head) + MARK, 0, Release);
        }
        self.area.store_u16(USED_INDEX, used, Release);
    }
}
