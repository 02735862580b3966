//! State of a queue while its zone recovers from failed writes, and the steps of recovery.
//!
//! Failed writes are kept here until the device has reported the zone's write pointer. Before the
//! report, timed-out commands must be settled; after it, covered writes are read back one by one;
//! and a zone without a free resource waits until one may be free. Most zones never need this, so
//! it is separate from the queue.

use super::super::flight;
use super::super::recovery::{Decision, Failed, Verdict, ZoneFacts, hole, plan};
use super::{Inquiry, Next, Queue, RequestKind, Resync};
use crate::error::DeviceError;
use crate::plug::word::{Rules, Word};
use std::collections::VecDeque;

/// Recovery state. Exists only while it is not empty.
#[derive(Debug)]
pub(super) struct Repair<T> {
    /// Undecided writes, by offset.
    failed: Vec<Failed<T>>,
    /// Writes to be read back, by offset.
    covered: VecDeque<Failed<T>>,
    /// A timed-out command may still be executed.
    unsettled: bool,
    /// The first write waits for an open or active resource, which was denied with this error.
    slot_denied: Option<DeviceError>,
}

impl<T> Default for Repair<T> {
    fn default() -> Repair<T> {
        Repair { failed: Vec::new(), covered: VecDeque::new(), unsettled: false, slot_denied: None }
    }
}

impl<T> Repair<T> {
    fn is_over(&self) -> bool {
        let Repair { failed, covered, unsettled, slot_denied } = self;
        failed.is_empty() && covered.is_empty() && !(*unsettled || slot_denied.is_some())
    }
}

impl<T> Queue<T> {
    fn repair(&mut self) -> &mut Repair<T> {
        self.repair.get_or_insert_default()
    }

    /// Applies a change, and drops the recovery state if it is empty afterwards.
    fn update<R>(&mut self, change: impl FnOnce(&mut Repair<T>) -> R) -> R {
        let result = change(self.repair());
        self.repair.take_if(|r| r.is_over());
        result
    }

    /// Number of failed requests that are undecided or to be read back.
    pub fn in_repair(&self) -> usize {
        let kept = self.repair.as_ref().map_or(0, |r| r.failed.len() + r.covered.len());
        kept + usize::from(self.is_read_back())
    }

    /// True during recovery.
    #[inline]
    pub fn is_in_repair(&self) -> bool {
        self.repair.is_some() || self.is_read_back()
    }

    fn is_read_back(&self) -> bool {
        matches!(self.inquiry, Inquiry::ReadBack { .. })
    }

    /// True if recovery prevents writes from being issued.
    pub(super) fn is_blocked(&self) -> bool {
        let is_kept = |r: &Repair<T>| r.unsettled || !r.covered.is_empty() || r.slot_denied.is_some();
        self.is_read_back() || self.repair.as_deref().is_some_and(is_kept)
    }

    /// Next step of recovery, which takes precedence over all others.
    pub(super) fn next_repair(&mut self, word: Word) -> Option<Next> {
        if self.is_read_back() {
            return Some(Next::Nothing);
        }
        let is_held = self.hold.is_wanted();
        let head = self.items.front().map(|(shape, _)| shape.kind());
        let repair = self.repair.as_mut()?;
        if repair.unsettled {
            // If the device cannot settle, nothing is issued except a reset of all zones, which
            // cannot exclude this one.
            return match self.inquiry {
                Inquiry::GaveUp if is_held && !word.is_busy() => None,
                Inquiry::None if !word.is_busy() => {
                    self.inquiry = Inquiry::Settle;
                    Some(Next::Settle)
                }
                _ => Some(Next::Nothing),
            };
        }
        if let Some(covered) = repair.covered.front() {
            self.inquiry = Inquiry::ReadBack { end: covered.end() };
            return Some(Next::ReadBack);
        }
        let starves = repair.slot_denied.is_some()
            && !word.recovers()
            && !is_held
            && matches!(head, Some(RequestKind::Write(..)));
        starves.then_some(Next::Nothing)
    }

    /// Keeps a failed write until its zone's pointer is known. The word is recovering.
    pub fn fail(&mut self, word: Word, failed: Failed<T>) {
        assert!(word.recovers(), "the pointer of a zone with a failed write is not known");
        let call = format!("fail {}", flight::show_failed(&failed));
        let fail = |queue: &mut Queue<T>| {
            queue.inquiry.renew();
            let repair = queue.repair();
            repair.unsettled |= failed.error.may_execute_late();
            let place = repair.failed.partition_point(|f| f.at <= failed.at);
            repair.failed.insert(place, failed);
        };
        self.noted(word, || call, fail, |()| String::new());
    }

    /// Records the time-out of a command without an offset. It may still be executed.
    pub fn unsettle(&mut self, word: Word) -> Word {
        let unsettle = |queue: &mut Queue<T>| {
            queue.repair().unsettled = true;
            queue.inquiry.renew();
            word.recovering()
        };
        self.noted(word, || "unsettle".to_owned(), unsettle, flight::show_word)
    }

    /// True if a timed-out command may still be executed.
    pub fn is_unsettled(&self) -> bool {
        self.repair.as_ref().is_some_and(|r| r.unsettled)
    }

    /// Records that no timed-out command of the zone can be executed any more.
    pub fn settled(&mut self) {
        let settled = |queue: &mut Queue<T>| {
            if queue.inquiry == Inquiry::Settle {
                queue.inquiry = Inquiry::None;
            }
            queue.update(|r| r.unsettled = false);
        };
        self.noted(Word::default(), || "settled".to_owned(), settled, |()| String::new());
    }

    /// Handles a device that cannot settle: moves all waiting requests to `failed`, management
    /// commands included, because anything issued now might conflict with the timed-out command.
    /// Returns the word and the failed writes.
    pub fn cannot_settle(&mut self, word: Word, failed: &mut Vec<T>) -> (Word, Vec<Failed<T>>) {
        let give_up = |queue: &mut Queue<T>| {
            queue.inquiry = Inquiry::GaveUp;
            failed.extend(queue.items.drain().map(|item| item.token));
            queue.hold.set_ahead(|_| 0);
            (word.recovering(), queue.abandon())
        };
        self.noted(word, || "cannot-settle".to_owned(), give_up, |r| flight::show_word(&r.0))
    }

    /// Gives up the failed writes undecided because the zone is about to be reset or finished,
    /// unless it is held for an operation that leaves it unchanged.
    pub fn abandon_for_management(&mut self) -> Vec<Failed<T>> {
        if self.hold.keeps() { Vec::new() } else { self.abandon() }
    }

    /// Gives up the failed writes undecided, because the zone is reset or finished, or the device
    /// cannot report its pointer.
    pub fn abandon(&mut self) -> Vec<Failed<T>> {
        if self.repair.is_none() {
            return Vec::new();
        }
        let abandon = |queue: &mut Queue<T>| queue.update(|r| std::mem::take(&mut r.failed));
        self.noted(Word::default(), || "abandon".to_owned(), abandon, |f| f.len().to_string())
    }

    /// Continues the zone from the state reported by the device. Returns the failed writes by
    /// offset, each with its verdict. Pass [`Decision::Redrive`] to [`Queue::push_front`], from the
    /// last to the first, and [`Decision::Verify`] to [`Queue::read_back`]; all others are
    /// completed.
    ///
    /// After [`Queue::invalidate_report`] nothing is decided, and the device is asked again.
    pub fn resynced(
        &mut self,
        word: Word,
        resync: Resync,
        rules: &Rules,
    ) -> (Word, Vec<(Failed<T>, Verdict)>) {
        let is_asked = self.inquiry.is_report();
        assert!(word.recovers() && is_asked && !word.is_busy(), "no report was asked for");
        let call = || format!("resynced {:?} {}", resync.class, resync.pointer);
        self.noted(word, call, |queue| queue.continue_from(word, resync, rules), flight::show_decided)
    }

    fn continue_from(
        &mut self,
        word: Word,
        resync: Resync,
        rules: &Rules,
    ) -> (Word, Vec<(Failed<T>, Verdict)>) {
        if std::mem::take(&mut self.inquiry) == (Inquiry::Report { is_outdated: true }) {
            return (word, Vec::new());
        }
        self.changed = false;
        let Resync { class, pointer } = resync;
        let failed = self.abandon();
        let facts = ZoneFacts { class, pointer, capacity: rules.capacity, issued: word.pointer() };
        let mut verdicts = plan(&failed, &facts);
        if self.is_superseded() {
            // They would be aborted anyway.
            verdicts.iter_mut().for_each(|v| v.decision = Decision::Fail);
        }
        match hole(&failed, &verdicts, pointer) {
            Some(place) => self.record_loss(place),
            // A report that was only asked for, and says what is known.
            None if verdicts.is_empty() && pointer == word.pointer() => {}
            // The first of several losses counts: writes behind it wait for the resubmitted ones.
            None if verdicts.is_empty() || verdicts.iter().any(|v| v.is_lost()) => self.record_loss(pointer),
            None => {}
        }
        (word.at(class, pointer).recovered(), failed.into_iter().zip(verdicts).collect())
    }

    /// Keeps a decided write until [`Next::ReadBack`].
    pub fn read_back(&mut self, covered: Failed<T>) {
        let call = format!("read-back {}", flight::show_failed(&covered));
        let keep = |queue: &mut Queue<T>| queue.repair().covered.push_back(covered);
        self.noted(Word::default(), || call, keep, |()| String::new());
    }

    /// True if a write waits to be read back.
    pub(in crate::plug) fn has_covered(&self) -> bool {
        self.repair.as_ref().is_some_and(|r| !r.covered.is_empty())
    }

    /// Removes the write to read back after [`Next::ReadBack`].
    pub fn take_covered(&mut self) -> Failed<T> {
        let take = |queue: &mut Queue<T>| {
            let covered = queue.update(|r| r.covered.pop_front());
            covered.expect("the step was about a covered write")
        };
        self.noted(Word::default(), || "take-covered".to_owned(), take, flight::show_failed)
    }

    /// Records the result of a read-back. `lost` is true if the data was not found.
    pub fn was_read_back(&mut self, word: Word, lost: bool) {
        let call = || format!("was-read-back {}", if lost { "lost" } else { "found" });
        let read = |queue: &mut Queue<T>| {
            let Inquiry::ReadBack { end } = std::mem::take(&mut queue.inquiry) else {
                panic!("nothing is read back")
            };
            match word.pointer() {
                pointer if lost && end > pointer => queue.record_loss(pointer),
                // Its place is taken, so no write behind it is misplaced.
                pointer if lost => drop(queue.lost_at.get_or_insert(pointer)),
                _ => {}
            }
        };
        self.noted(word, call, read, |()| String::new());
    }

    /// Makes the write at the head wait until an open or active resource may be free. `error`
    /// denied it one.
    pub fn wait_for_slot(&mut self, error: DeviceError) {
        let call = || format!("starve {}", flight::show_error(error));
        let wait_for_slot = |queue: &mut Queue<T>| queue.repair().slot_denied = Some(error);
        self.noted(Word::default(), call, wait_for_slot, |()| String::new());
    }

    /// Ends this wait. Returns the error that caused it, if there was one.
    pub fn try_again(&mut self) -> Option<DeviceError> {
        self.repair.as_ref()?;
        let try_again = |queue: &mut Queue<T>| queue.update(|r| r.slot_denied.take());
        self.noted(Word::default(), || "feed".to_owned(), try_again, |_| String::new())
    }

    /// Removes the write at the head, which was resubmitted too often. Writes behind it depend on
    /// it.
    pub fn give_up(&mut self, word: Word) -> T {
        let give_up = |queue: &mut Queue<T>| {
            queue.record_loss(word.pointer());
            queue.pop()
        };
        self.noted(word, || "give-up".to_owned(), give_up, |_| String::new())
    }

    /// Relations of recovery, for [`Queue::check`].
    pub(super) fn check_repair(&self, word: Word) -> [(bool, &'static str); 4] {
        let is_settled = self.inquiry == Inquiry::Settle;
        let is_asked = is_settled || self.is_read_back();
        let quiet = !word.is_busy() && !word.frozen();
        let is_rightly_kept = |kept: &Repair<T>| word.waits() && !kept.is_over();
        let has_failed = self.repair.as_ref().is_some_and(|r| !r.failed.is_empty());
        [
            (
                self.repair.as_deref().is_none_or(is_rightly_kept),
                "recovery state exists only if it is not empty and the word waits",
            ),
            (
                !has_failed || word.recovers() || word.frozen(),
                "failed writes are undecided only while the word recovers or is frozen",
            ),
            (!is_asked || quiet, "a read-back or settling excludes other commands"),
            (!is_settled || self.is_unsettled(), "only an unsettled zone is being settled"),
        ]
    }
}
