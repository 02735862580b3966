//! What a queue keeps while its zone recovers from failed writes, and the steps that this takes.
//!
//! Failed writes stay here until the device has said where the zone stands. Before it is asked, commands that timed out
//! have to be settled; after it has answered, covered writes are read back one by one; and a zone that found no free
//! resource waits until one may be free. All of that is apart from the queue, which most zones never need it for.

use super::super::flight;
use super::super::recovery::{Decision, Failed, Verdict, ZoneFacts, hole, plan};
use super::{Inquiry, Next, Queue, RequestKind, Resync};
use crate::error::DeviceError;
use crate::plug::word::{Rules, Word};
use std::collections::VecDeque;

/// See the module. It exists only while there is something in it.
#[derive(Debug)]
pub(super) struct Repair<T> {
    /// Not yet decided, in the order of their places.
    failed: Vec<Failed<T>>,
    /// Decided to be read back, in the order of their places.
    covered: VecDeque<Failed<T>>,
    /// A command that timed out may still be executed.
    unsettled: bool,
    /// The first write waits for an open or active zone, which this error denied it.
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

    /// Changes what is kept, and forgets it when nothing is left.
    fn mend<R>(&mut self, change: impl FnOnce(&mut Repair<T>) -> R) -> R {
        let result = change(self.repair());
        self.repair.take_if(|r| r.is_over());
        result
    }

    /// Number of requests that failed and are not decided, or are to be read back.
    pub fn in_repair(&self) -> usize {
        let kept = self.repair.as_ref().map_or(0, |r| r.failed.len() + r.covered.len());
        kept + usize::from(self.is_read_back())
    }

    /// Whether anything is kept of a failure.
    #[inline]
    pub fn is_in_repair(&self) -> bool {
        self.repair.is_some() || self.is_read_back()
    }

    fn is_read_back(&self) -> bool {
        matches!(self.inquiry, Inquiry::ReadBack { .. })
    }

    /// Whether recovery keeps writes from going out.
    pub(super) fn is_blocked(&self) -> bool {
        let is_kept = |r: &Repair<T>| r.unsettled || !r.covered.is_empty() || r.slot_denied.is_some();
        self.is_read_back() || self.repair.as_deref().is_some_and(is_kept)
    }

    /// The step that recovery wants before any other, if it wants one.
    pub(super) fn next_repair(&mut self, word: Word) -> Option<Next> {
        if self.is_read_back() {
            return Some(Next::Nothing);
        }
        let is_held = self.hold.is_wanted();
        let head = self.items.front().map(|(shape, _)| shape.kind());
        let repair = self.repair.as_mut()?;
        if repair.unsettled {
            // Where the device cannot settle, nothing goes out but a reset of all zones, which cannot leave one out.
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

    /// Keeps a write that failed until its zone's pointer is known. The word is recovering.
    pub fn fail(&mut self, word: Word, failed: Failed<T>) {
        assert!(word.recovers(), "the pointer of a zone with a failed write is not known");
        let call = format!("fail {}", flight::show_failed(&failed));
        let fail = |queue: &mut Queue<T>| {
            queue.inquiry.renew();
            let repair = queue.repair();
            repair.unsettled |= failed.error.may_come_late();
            let place = repair.failed.partition_point(|f| f.at <= failed.at);
            repair.failed.insert(place, failed);
        };
        self.noted(word, || call, fail, |()| String::new());
    }

    /// A command that names no place has timed out and may still be executed.
    pub fn unsettle(&mut self, word: Word) -> Word {
        let unsettle = |queue: &mut Queue<T>| {
            queue.repair().unsettled = true;
            queue.inquiry.renew();
            word.recovering()
        };
        self.noted(word, || "unsettle".to_owned(), unsettle, flight::show_word)
    }

    /// Whether a command that timed out may still be executed.
    pub fn is_unsettled(&self) -> bool {
        self.repair.as_ref().is_some_and(|r| r.unsettled)
    }

    /// No command of the zone that timed out can be executed any more.
    pub fn settled(&mut self) {
        let settled = |queue: &mut Queue<T>| {
            if queue.inquiry == Inquiry::Settle {
                queue.inquiry = Inquiry::None;
            }
            queue.mend(|r| r.unsettled = false);
        };
        self.noted(Word::default(), || "settled".to_owned(), settled, |()| String::new());
    }

    /// The device cannot settle what timed out: everything that waits goes to `failed`, management too, since whatever
    /// went out now might meet the old command. Returns the writes that failed, and the word.
    pub fn cannot_settle(&mut self, word: Word, failed: &mut Vec<T>) -> (Word, Vec<Failed<T>>) {
        let give_up = |queue: &mut Queue<T>| {
            queue.inquiry = Inquiry::GaveUp;
            failed.extend(queue.items.drain().map(|item| item.token));
            queue.hold.set_ahead(|_| 0);
            (word.recovering(), queue.abandon())
        };
        self.noted(word, || "cannot-settle".to_owned(), give_up, |r| flight::show_word(&r.0))
    }

    /// Gives up the failed writes undecided, because the zone is about to be reset or finished; not where it is held for
    /// something that leaves it as it is.
    pub fn abandon_for_management(&mut self) -> Vec<Failed<T>> {
        if self.hold.keeps() { Vec::new() } else { self.abandon() }
    }

    /// Gives up the failed writes undecided, because the zone is reset or finished, or the device cannot say where
    /// it stands.
    pub fn abandon(&mut self) -> Vec<Failed<T>> {
        if self.repair.is_none() {
            return Vec::new();
        }
        let abandon = |queue: &mut Queue<T>| queue.mend(|r| std::mem::take(&mut r.failed));
        self.noted(Word::default(), || "abandon".to_owned(), abandon, |f| f.len().to_string())
    }

    /// The device said where the zone stands: the zone continues there. Returns the failed writes, in the order of
    /// their places, each with what is to become of it: [`Decision::Redrive`] goes to [`Queue::push_front`], from the
    /// last to the first, [`Decision::Verify`] to [`Queue::read_back`], everything else ends.
    ///
    /// After [`Queue::doubt`] nothing is decided, and the device is asked again.
    pub fn resynced(
        &mut self,
        word: Word,
        resync: Resync,
        rules: &Rules,
    ) -> (Word, Vec<(Failed<T>, Verdict)>) {
        let is_asked = self.inquiry.is_report();
        assert!(word.recovers() && is_asked && !word.is_busy(), "no report was asked for");
        let call = || format!("resynced {:?} {}", resync.class, resync.pointer);
        self.noted(word, call, |queue| queue.go_on_from(word, resync, rules), flight::show_decided)
    }

    fn go_on_from(&mut self, word: Word, resync: Resync, rules: &Rules) -> (Word, Vec<(Failed<T>, Verdict)>) {
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
            Some(place) => self.lose(place),
            // The first of several losses stands: writes after it wait after what is sent again.
            None if verdicts.is_empty() || verdicts.iter().any(|v| v.is_lost()) => self.lose(pointer),
            None => {}
        }
        (word.at(class, pointer).recovered(), failed.into_iter().zip(verdicts).collect())
    }

    /// Keeps a decided write until [`Next::ReadBack`] asks for it.
    pub fn read_back(&mut self, covered: Failed<T>) {
        let call = format!("read-back {}", flight::show_failed(&covered));
        let keep = |queue: &mut Queue<T>| queue.repair().covered.push_back(covered);
        self.noted(Word::default(), || call, keep, |()| String::new());
    }

    /// True if a write waits to be read back.
    pub(in crate::plug) fn has_covered(&self) -> bool {
        self.repair.as_ref().is_some_and(|r| !r.covered.is_empty())
    }

    /// The write that [`Next::ReadBack`] is about.
    pub fn take_covered(&mut self) -> Failed<T> {
        let take = |queue: &mut Queue<T>| {
            let covered = queue.mend(|r| r.covered.pop_front());
            covered.expect("the step was about a covered write")
        };
        self.noted(Word::default(), || "take-covered".to_owned(), take, flight::show_failed)
    }

    /// The write was read back; `lost`: it was not found.
    pub fn was_read_back(&mut self, word: Word, lost: bool) {
        let call = || format!("was-read-back {}", if lost { "lost" } else { "found" });
        let read = |queue: &mut Queue<T>| {
            let Inquiry::ReadBack { end } = std::mem::take(&mut queue.inquiry) else {
                panic!("nothing is read back")
            };
            match word.pointer() {
                pointer if lost && end > pointer => queue.lose(pointer),
                // Its place is taken, and no write after it is misplaced.
                pointer if lost => drop(queue.lost_at.get_or_insert(pointer)),
                _ => {}
            }
        };
        self.noted(word, call, read, |()| String::new());
    }

    /// The write that goes first waits until an open or active zone may be free; this error denied it one.
    pub fn wait_for_slot(&mut self, error: DeviceError) {
        let call = || format!("starve {}", flight::show_error(error));
        let wait_for_slot = |queue: &mut Queue<T>| queue.repair().slot_denied = Some(error);
        self.noted(Word::default(), call, wait_for_slot, |()| String::new());
    }

    /// It need not wait any longer. Returns what denied it its zone, if it did wait.
    pub fn try_again(&mut self) -> Option<DeviceError> {
        self.repair.as_ref()?;
        let try_again = |queue: &mut Queue<T>| queue.mend(|r| r.slot_denied.take());
        self.noted(Word::default(), || "feed".to_owned(), try_again, |_| String::new())
    }

    /// Takes the write at the head, which has been tried often enough: the writes after it depend on it.
    pub fn give_up(&mut self, word: Word) -> T {
        let give_up = |queue: &mut Queue<T>| {
            queue.lose(word.pointer());
            queue.pop()
        };
        self.noted(word, || "give-up".to_owned(), give_up, |_| String::new())
    }

    /// What [`Queue::check`] has to say about recovery.
    pub(super) fn check_repair(&self, word: Word) -> [(bool, &'static str); 4] {
        let is_settled = self.inquiry == Inquiry::Settle;
        let is_asked = is_settled || self.is_read_back();
        let quiet = !word.is_busy() && !word.frozen();
        let is_rightly_kept = |kept: &Repair<T>| word.waits() && !kept.is_over();
        let has_failed = self.repair.as_ref().is_some_and(|r| !r.failed.is_empty());
        [
            (
                self.repair.as_deref().is_none_or(is_rightly_kept),
                "what is kept of a failure is kept with a zone that waits",
            ),
            (!has_failed || word.recovers() || word.frozen(), "a failed write is decided by the pointer"),
            (!is_asked || quiet, "a zone is read back, and settled, when nothing else is there"),
            (!is_settled || self.is_unsettled(), "settled is what is not"),
        ]
    }
}
