//! Commands waiting for the link, in order of arrival, with the choice of the next one.
//!
//! # Invariant
//! The first [`Stuck`] commands cannot proceed before the head has finished an operation, because
//! nothing else frees room in the cache or completes a read. So they are checked once, and not
//! again whenever a command arrives or leaves.

use super::cache::Cache;
use super::{bytes, reads};
use crate::model::{Job, Span, Tag};
use std::collections::VecDeque;
use zonal_core::{Nanos, ZoneIndex};

/// A command waiting for the link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) tag: Tag,
    pub(super) job: Job,
    pub(super) since: Nanos,
    pub(super) zone: ZoneIndex,
    pub(super) stage: CommandStage,
    /// Time that it takes on the link.
    pub(super) link_time: Span,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CommandStage {
    New,
    /// A read at the head.
    Reading,
    /// A read with its data in the drive's buffer.
    HasData,
}

/// Commands at the front that cannot proceed.
#[derive(Clone, Copy, Default, Debug)]
struct Stuck {
    /// Number of commands.
    count: usize,
    /// True if they block writes behind them.
    holds_up: bool,
}

/// The command queue. See the module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    stuck: Stuck,
    /// Number of reads that the head has not started.
    new_reads: u32,
    /// Shortest link time, and the number of commands with it.
    least: Option<(Span, u32)>,
    /// True if a write waits for earlier ones without room.
    admits_in_order: bool,
}

impl Waiting {
    /// True if it needs room in the cache.
    #[inline]
    pub(super) fn is_write(&self) -> bool {
        !self.job.refused && self.job.sectors != 0 && !self.job.op.is_read()
    }
}

impl Queue {
    pub(super) fn new(admits_in_order: bool) -> Queue {
        Queue { admits_in_order, ..Queue::default() }
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.new_reads += u32::from(reads(&waiting.job));
        self.waiting.push_back(waiting);
        self.count(waiting.link_time);
    }

    fn count(&mut self, time: Span) {
        self.least = match self.least {
            Some((least, count)) if time > least => Some((least, count)),
            Some((least, count)) if time == least => Some((least, count + 1)),
            _ => Some((time, 1)),
        };
    }

    /// Shortest link time of any command.
    #[inline]
    pub(super) fn least_link_time(&self) -> Option<Span> {
        self.least.map(|(time, _)| time)
    }

    /// Makes all commands candidates again, because the head has finished an operation.
    pub(super) fn reconsider_all(&mut self) {
        self.stuck = Stuck::default();
    }

    /// Removes the next command for the link.
    pub(super) fn next(&mut self, cache: &Cache) -> Option<Waiting> {
        let Stuck { count, mut holds_up } = self.stuck;
        let mut behind = count..self.waiting.len();
        let found = behind.find(|&at| self.can_go(at, &self.waiting[at], cache, &mut holds_up));
        self.stuck = Stuck { count: found.unwrap_or(self.waiting.len()), holds_up };
        self.remove(found?)
    }

    #[inline]
    fn can_go(&self, at: usize, w: &Waiting, cache: &Cache, is_held_up: &mut bool) -> bool {
        if w.is_write() {
            let has_room = !*is_held_up && cache.has_room(w.zone, bytes(w.job.sectors));
            *is_held_up = self.admits_in_order && !has_room;
            return has_room && !self.waits_for_one_of(w.zone, at);
        }
        !reads(&w.job) || w.stage == CommandStage::HasData
    }

    /// True if a write of `zone` waits before position `at`. A smaller one behind it must not
    /// overtake it.
    fn waits_for_one_of(&self, zone: ZoneIndex, at: usize) -> bool {
        self.waiting.iter().take(at).any(|w| w.zone == zone && w.is_write())
    }

    fn remove(&mut self, at: usize) -> Option<Waiting> {
        let gone = self.waiting.remove(at)?;
        match &mut self.least {
            Some((least, count)) if *least == gone.link_time && *count > 1 => *count -= 1,
            Some((least, _)) if *least < gone.link_time => {}
            _ => self.count_all(),
        }
        Some(gone)
    }

    fn count_all(&mut self) {
        self.least = None;
        for at in 0..self.waiting.len() {
            self.count(self.waiting[at].link_time);
        }
    }

    /// True if a read waits for the head.
    pub(super) fn has_new_reads(&self) -> bool {
        self.new_reads > 0
    }

    /// Reads waiting for the head, with their positions.
    pub(super) fn new_reads(&self) -> impl Iterator<Item = (usize, &Job)> {
        let all = self.waiting.iter().enumerate();
        all.filter(|(_, w)| reads(&w.job) && w.stage == CommandStage::New).map(|(at, w)| (at, &w.job))
    }

    /// Starts the read at this position.
    pub(super) fn read_begins(&mut self, at: usize) -> (Tag, Job) {
        let waiting = &mut self.waiting[at];
        waiting.stage = CommandStage::Reading;
        self.new_reads -= 1;
        (waiting.tag, waiting.job)
    }

    /// The data of this read is in the drive's buffer.
    pub(super) fn read_ends(&mut self, tag: Tag) {
        if let Some(waiting) = self.waiting.iter_mut().find(|w| w.tag == tag) {
            waiting.stage = CommandStage::HasData;
        }
    }

    /// Writes, in order of arrival.
    pub(super) fn writes(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().filter(|w| w.job.op.is_write() && !w.job.refused)
    }

    /// Writes that wait for room in the cache, not only for the link.
    pub(super) fn writes_without_room<'a>(&'a self, cache: &'a Cache) -> impl Iterator<Item = &'a Waiting> {
        let mut is_held_up = false;
        self.writes().filter(move |w| {
            let has_room = !is_held_up && cache.has_room(w.zone, bytes(w.job.sectors));
            is_held_up = self.admits_in_order && !has_room;
            !has_room
        })
    }

    /// Total sectors of all writes.
    pub(super) fn sectors_written(&self) -> u64 {
        self.writes().map(|w| u64::from(w.job.sectors)).sum()
    }
}
