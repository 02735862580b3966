//! Queue of a plug: the waiting requests in order, and the decision about the next one.
//!
//! Writes and management commands wait in one queue, so a later write waits for an earlier reset.
//! The queue decides one step at a time: the caller applies [`Queue::next`] until it returns
//! [`Next::Nothing`].

mod repair;
mod state;

use super::flight::{self, FlightRecord};
use super::item::{Item, Items, RequestKind, Shape};
use super::word::{Rules, Word, WriteKind, ZoneClass};
use crate::command::Op;
use crate::error::RequestError;
use repair::Repair;
pub use state::PlugState;
pub(super) use state::{Hold, Inquiry};

/// Next action of the shell for a zone. The requests concerned are still at the head of the queue:
/// remove them with [`Queue::pop`] before the next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Nothing to do: either no request waits, or something in flight has to complete first.
    Nothing,
    /// Remove `parts` writes and issue them as one command of `sectors` at offset `at`.
    Issue {
        /// Offset from the zone's start, in sectors.
        at: u32,
        /// Total length of the command, in sectors.
        sectors: u32,
        /// Number of writes merged into the command.
        parts: u32,
    },
    /// Remove one request and issue this command. For a reset or finish, call
    /// [`Queue::abandon_for_management`] for the failed writes.
    Manage(Op),
    /// Read the zone's write pointer from the device, then call [`Queue::resynced`] or
    /// [`Queue::resync_failed`].
    Resync,
    /// Have the device settle the zone's timed-out commands, then call [`Queue::settled`] or
    /// [`Queue::cannot_settle`].
    Settle,
    /// Take a write with [`Queue::take_covered`] and read back its covered part, then call
    /// [`Queue::was_read_back`].
    ReadBack,
    /// The zone, held by [`Queue::hold`], is quiet and frozen until [`Queue::release`]. Failed
    /// writes as for [`Next::Manage`].
    Held,
    /// Remove one request and complete it with this error.
    Fail(RequestError),
}

/// State of a zone as reported by the device after a failed write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resync {
    /// Present class of the zone.
    pub class: ZoneClass,
    /// Offset of the device's write pointer; the capacity for a full zone.
    pub pointer: u32,
}

/// Waiting requests of one zone.
#[derive(Debug)]
pub struct Queue<T> {
    pub(super) items: Items<T>,
    /// Pending question about the zone.
    pub(super) inquiry: Inquiry,
    /// The zone may have changed in a way that no report has shown yet. A reset does not show it
    /// either.
    pub(super) changed: bool,
    /// Reason for making the zone quiet. Ends with [`Queue::release`].
    pub(super) hold: Hold,
    /// Offset of the first lost write, unless its place has been taken since. Distinguishes a
    /// dependent write from a misplaced one.
    pub(super) lost_at: Option<u32>,
    /// State of recovery from failed writes.
    repair: Option<Box<Repair<T>>>,
    /// Record since the pointer became unknown.
    pub(super) flight: Option<Box<FlightRecord>>,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue {
            items: Items::default(),
            inquiry: Inquiry::default(),
            changed: false,
            hold: Hold::default(),
            lost_at: None,
            repair: None,
            flight: None,
        }
    }
}

impl<T> Queue<T> {
    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True if no request waits.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Resets an empty queue for reuse by another zone: all state belongs to the old zone.
    ///
    /// # Panics
    /// If a request waits.
    pub fn recycle(&mut self) {
        assert!(self.items.is_empty() && !self.is_in_repair(), "a write waits");
        let items = std::mem::take(&mut self.items);
        *self = Queue { items, ..Queue::default() };
    }

    /// Appends a request and returns the word, waiting. Inlined because every waiting write is
    /// queued here.
    #[inline(always)]
    pub fn push(&mut self, word: Word, item: Item<T>) -> Word {
        if self.flight.is_some() {
            self.note_push(word, &item);
        }
        self.inquiry.renew();
        self.items.push_back(item);
        word.waiting()
    }

    #[cold]
    fn note_push(&mut self, word: Word, item: &Item<T>) {
        let call = format!("push {}", flight::show_item(item.kind, item.mergeable));
        self.note(word, &call, &flight::show_word(&word.waiting()));
    }

    /// Puts an issued request that was not executed back at the head. It is issued first once the
    /// zone can issue again.
    ///
    /// Failed writes are put back in the same way, from the last to the first.
    pub fn push_front(&mut self, word: Word, item: Item<T>) -> Word {
        let Item { kind, mergeable, token } = item;
        let call = || format!("front {}", flight::show_item(kind, mergeable));
        let push = |queue: &mut Queue<T>| {
            queue.inquiry.renew();
            queue.hold.set_ahead(|ahead| ahead + 1);
            queue.items.push_front(Item { kind, mergeable, token });
            word.waiting()
        };
        self.noted(word, call, push, flight::show_word)
    }

    /// Queues a reset or finish. Waiting writes are aborted into `aborted`; later ones wait for the
    /// command.
    pub fn push_management(&mut self, word: Word, op: Op, token: T, aborted: &mut Vec<T>) -> Word {
        let call = || format!("manage {}", op.name());
        let push = |queue: &mut Queue<T>| {
            queue.abort_writes(aborted);
            queue.push(word, Item { kind: RequestKind::Manage(op), mergeable: false, token })
        };
        self.noted(word, call, push, flight::show_word)
    }

    /// Removes all waiting writes, in order. Management commands stay.
    pub fn abort_writes(&mut self, aborted: &mut Vec<T>) {
        let call = || "abort".to_owned();
        self.noted(Word::default(), call, |queue| queue.abort(aborted, stays_at_abort), usize::to_string);
    }

    /// Returns the number of aborted requests in total.
    fn abort(&mut self, aborted: &mut Vec<T>, stays: impl Fn(RequestKind) -> bool) -> usize {
        let mut stay = Items::default();
        let (were_ahead, mut ahead) = (self.hold.ahead(), 0);
        for (n, item) in self.items.drain().enumerate() {
            if stays(item.kind) {
                ahead += usize::from(n < were_ahead);
                stay.push_back(item);
            } else {
                aborted.push(item.token);
            }
        }
        self.items = stay;
        self.hold.set_ahead(|_| ahead);
        self.try_again();
        aborted.len()
    }

    /// Removes all waiting requests that are cancelled, in order. The zone's pointer stays.
    /// Positional writes behind a cancelled one fail because it is lost; appends do not depend on
    /// it.
    pub fn cancel(&mut self, word: Word, is_cancelled: impl Fn(&T) -> bool, cancelled: &mut Vec<T>) {
        let picked = self.items.tokens().enumerate().filter(|(_, token)| is_cancelled(token));
        let picked: Vec<usize> = picked.map(|(at, _)| at).collect();
        if !picked.is_empty() {
            self.cancel_at(word, &picked, cancelled);
        }
    }

    /// Cancels the requests at these positions in the queue, given in ascending order.
    pub(super) fn cancel_at(&mut self, word: Word, picked: &[usize], cancelled: &mut Vec<T>) {
        let call = || {
            let places: Vec<String> = picked.iter().map(usize::to_string).collect();
            format!("cancel {}", places.join(" "))
        };
        let cancel = |queue: &mut Queue<T>| {
            let (mut all, mut stay) = (std::mem::take(&mut queue.items), Items::default());
            let (were_ahead, mut ahead) = (queue.hold.ahead(), 0);
            for (at, item) in all.drain().enumerate() {
                if picked.binary_search(&at).is_err() {
                    ahead += usize::from(at < were_ahead);
                    stay.push_back(item);
                    continue;
                }
                // A write below the pointer was misplaced, and no other write depends on it.
                if let RequestKind::Write(WriteKind::At(place) | WriteKind::Alone(place), _) = item.kind
                    && place >= word.pointer()
                {
                    queue.record_loss(place);
                }
                cancelled.push(item.token);
            }
            queue.items = stay;
            queue.hold.set_ahead(|_| ahead);
            queue.try_again();
            cancelled.len()
        };
        self.noted(word, call, cancel, usize::to_string);
    }

    /// Decides the next step. See [`Next`] for the caller's obligations.
    #[inline]
    pub fn next(&mut self, word: Word, rules: &Rules) -> (Word, Next) {
        let next = self.step(word, rules);
        if self.flight.is_some() {
            self.note_next(word, &next);
        }
        next
    }

    #[cold]
    fn note_next(&mut self, word: Word, next: &(Word, Next)) {
        self.note(word, "next", &flight::show_next(next));
        if !next.0.recovers() && !self.is_in_repair() {
            self.flight = None;
        }
    }

    fn step(&mut self, word: Word, rules: &Rules) -> (Word, Next) {
        if word.frozen() || self.inquiry.is_report() {
            return (word, Next::Nothing);
        }
        if self.is_in_repair()
            && let Some(next) = self.next_repair(word)
        {
            return (word, next);
        }
        if self.hold.is_due() {
            if word.is_busy() {
                return (word, Next::Nothing);
            }
            self.hold = Hold::Quiet { keeps: self.hold.keeps() };
            return (word.freezing(), Next::Held);
        }
        match (word.recovers(), self.items.front().map(|(i, _)| i.kind())) {
            (_, Some(kind @ RequestKind::Manage(op))) if kind.moves_pointer() => next_management(word, op),
            (true, _) => self.next_recovery(word),
            (false, Some(RequestKind::Manage(op))) => next_management(word, op),
            (false, Some(RequestKind::Write(kind, sectors))) => self.next_write(word, kind, sectors, rules),
            (false, None) => (word.not_waiting(), Next::Nothing),
        }
    }

    /// True if the state of the zone allows the request at the head to be issued.
    #[inline]
    fn is_open(&self, word: Word) -> bool {
        !(word.frozen()
            || word.recovers()
            || self.inquiry.is_report()
            || self.hold.is_due()
            || self.is_blocked())
    }

    /// True if [`Queue::next`] would issue or refuse a write.
    #[inline]
    pub fn would_write(&self, word: Word) -> bool {
        let front = self.items.front().map(|(shape, _)| shape.kind());
        self.is_open(word) && word.in_flight() == 0 && matches!(front, Some(RequestKind::Write(..)))
    }

    /// True if the head is an append that could be issued.
    pub fn head_append(&self, word: Word) -> bool {
        let is_append =
            |(shape, _): (Shape, &T)| matches!(shape.kind(), RequestKind::Write(WriteKind::Append, _));
        self.is_open(word) && self.items.front().is_some_and(is_append)
    }

    /// Offset of the first lost write that waiting writes may depend on.
    pub fn lost_at(&self) -> Option<u32> {
        self.lost_at
    }

    /// Records the loss of the data at `place`, on which waiting writes may depend.
    pub(super) fn record_loss(&mut self, place: u32) {
        self.lost_at = Some(self.lost_at.map_or(place, |lost_at| lost_at.min(place)));
    }

    /// Forgets the loss, once no write is left that arrived after it: later ones do not depend on
    /// it.
    pub fn forget_loss(&mut self) {
        self.lost_at = None;
    }

    /// True if a zone without a slot has to request one: its head could be issued now and needs a
    /// slot.
    #[cold]
    pub fn wants_slot(&self, word: Word, rules: &Rules) -> bool {
        let open = RequestKind::Manage(Op::ZoneOpen);
        let is_open = self.items.front().is_some_and(|(shape, _)| shape.kind() == open);
        if is_open {
            return self.is_open(word);
        }
        let Some((shape, _)) = self.items.front().filter(|_| self.would_write(word)) else { return false };
        let RequestKind::Write(kind, sectors) = shape.kind() else { return false };
        refusal(word.class(), rules).is_none() && word.place(kind, sectors, rules).is_ok()
    }

    /// Denies the zone a slot: moves all requests that need one to `denied`, in order. Closes stay,
    /// since they need none.
    pub fn deny(&mut self, denied: &mut Vec<T>) {
        self.abort_writes(denied);
    }

    /// Decides if the write at the head can be chained to the write just issued, or to the last one
    /// of its chain. The thread that completes the preceding write issues it without consulting the
    /// queue. Returns the word and the offset.
    ///
    /// Only for writes whose decision cannot change later: emulated appends, and positional writes
    /// at the end of the preceding one. Mergeable writes wait for others to share a command with.
    #[inline]
    pub fn follow(&self, word: Word, rules: &Rules) -> Option<(Word, u32)> {
        let (front, _) = self.items.front().filter(|(i, _)| !i.mergeable())?;
        let RequestKind::Write(kind, sectors) = front.kind() else { return None };
        // Native appends are issued in parallel, not in a chain, and so are writes in a window.
        // After a loss each write is decided when it is issued.
        let together =
            rules.writes_in_flight_max > 1 || kind == WriteKind::Append && rules.appends_in_flight_max > 0;
        if together || word.appending() || self.hold.is_wanted() || self.lost_at.is_some() {
            return None;
        }
        let at = word.place(kind, sectors, rules).ok()?;
        Some((word.followed(sectors), at))
    }

    /// Recalls, in order, the remaining writes of a chain behind the write that has just completed.
    /// They return to the head of the queue, or to `aborted` if a reset or finish was queued after
    /// them.
    pub fn break_chain<I>(&mut self, word: Word, rest: I, aborted: &mut Vec<T>) -> Word
    where
        I: DoubleEndedIterator<Item = Item<T>>,
    {
        if self.is_superseded() {
            let promised = rest.map(|item| {
                aborted.push(item.token);
                item.kind.sectors()
            });
            return word.taken_back(promised.sum());
        }
        let mut promised = 0;
        for item in rest.rev() {
            promised += item.kind.sectors();
            self.push_front(word, item);
        }
        word.taken_back(promised).waiting()
    }

    /// True if a reset or finish was queued after the commands at the device.
    fn is_superseded(&self) -> bool {
        (self.hold.is_wanted() && !self.hold.keeps()) || self.items.shapes().any(|s| s.kind().moves_pointer())
    }

    /// Token of the request at the head.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.items.front().map(|(_, token)| token)
    }

    /// Mutable token of the request at the head.
    pub fn front_mut(&mut self) -> Option<&mut T> {
        self.items.front_mut()
    }

    /// Removes the request at the head, after a decision by [`Queue::next`] or [`Queue::follow`].
    ///
    /// # Panics
    /// If no request waits.
    pub fn pop(&mut self) -> T {
        if self.flight.is_some() {
            self.note(Word::default(), "pop", "");
        }
        self.hold.set_ahead(|ahead| ahead.saturating_sub(1));
        self.items.pop_front().expect("the step was about the head")
    }

    /// Commands in flight may still move the device's pointer: the report has to wait for them.
    fn next_recovery(&mut self, word: Word) -> (Word, Next) {
        if word.is_busy() || self.inquiry == Inquiry::GaveUp {
            return (word, Next::Nothing);
        }
        self.inquiry = Inquiry::Report { is_outdated: false };
        (word, Next::Resync)
    }

    fn next_write(&mut self, word: Word, kind: WriteKind, sectors: u32, rules: &Rules) -> (Word, Next) {
        if word.issuing() || word.in_flight() > 0 && !word.has_room(kind, rules) {
            return (word, Next::Nothing);
        }
        if let Some(error) = refusal(word.class(), rules) {
            return (word, Next::Fail(error));
        }
        match word.place(kind, sectors, rules) {
            // A write in flight may fail, which could make this place the right one.
            Err(_) if word.is_unsure() => (word, Next::Nothing),
            Err(error) => (word, Next::Fail(self.explain(error))),
            Ok(at) => {
                let (sectors, parts) = self.merge(at, sectors, rules);
                // A positional write takes the place of the lost one, so a write misplaced from
                // here on is itself at fault. Writes resubmitted in front of the loss do not take
                // its place, and appends do not depend on it.
                if kind != WriteKind::Append && self.lost_at.is_some_and(|lost_at| at + sectors > lost_at) {
                    self.lost_at = None;
                }
                (word.issued_as(kind, sectors, rules), Next::Issue { at, sectors, parts })
            }
        }
    }

    /// Number of sectors and writes, from the head on, that fit one command at `at` beginning with
    /// `sectors`.
    fn merge(&self, at: u32, mut sectors: u32, rules: &Rules) -> (u32, u32) {
        let mut parts = 1;
        let mut shapes = self.items.shapes();
        if !shapes.next().is_some_and(Shape::mergeable) {
            return (sectors, parts);
        }
        for item in shapes {
            let RequestKind::Write(WriteKind::At(offset), n) = item.kind() else { break };
            let total = sectors.saturating_add(n);
            let fits = total <= rules.merge_sectors_max && total <= rules.capacity - at;
            if !item.mergeable() || offset != at + sectors || !fits {
                break;
            }
            sectors = total;
            parts += 1;
        }
        (sectors, parts)
    }

    /// A misplaced write behind a loss is not itself at fault; its lost predecessor is.
    fn explain(&self, error: RequestError) -> RequestError {
        match (error, self.lost_at) {
            (RequestError::NotAtWritePointer { zone, offset, .. }, Some(lost_at)) if offset > lost_at => {
                RequestError::PredecessorLost { zone, lost_at, offset }
            }
            _ => error,
        }
    }

    /// Handles a failed report: waiting writes fail, and the next one causes another report.
    pub fn resync_failed(&mut self, failed: &mut Vec<T>) {
        let Inquiry::Report { is_outdated } = self.inquiry else { panic!("no report was asked for") };
        let give_up = |queue: &mut Queue<T>| {
            queue.inquiry = if is_outdated { Inquiry::None } else { Inquiry::GaveUp };
            // An open or close needs a known pointer as a write does.
            queue.abort(failed, RequestKind::moves_pointer)
        };
        self.noted(Word::default(), || "resync-failed".to_owned(), give_up, usize::to_string);
    }

    /// Marks the pointer as unknown because the caller has reason to doubt it. The device is asked
    /// again, even if the last report failed.
    pub fn invalidate_pointer(&mut self, word: Word) -> Word {
        let invalidate = |queue: &mut Queue<T>| {
            queue.inquiry.renew();
            word.recovering()
        };
        self.noted(word, || "distrust".to_owned(), invalidate, flight::show_word)
    }

    /// As [`Queue::invalidate_pointer`], and also discards a report in progress, which may be
    /// outdated: the device is asked once more. It is asked even after an intervening reset or
    /// finish, which determines only the pointer.
    pub fn invalidate_report(&mut self, word: Word) -> Word {
        let invalidate = |queue: &mut Queue<T>| {
            queue.inquiry.renew();
            if let Inquiry::Report { is_outdated } = &mut queue.inquiry {
                *is_outdated = true;
            }
            queue.changed = true;
            word.recovering()
        };
        self.noted(word, || "doubt".to_owned(), invalidate, flight::show_word)
    }

    /// Completes a reset or finish. `pointer` is the zone's pointer if it succeeded.
    pub fn managed(&mut self, word: Word, pointer: Option<u32>) -> Word {
        assert!(word.frozen(), "no management command was issued");
        let call = || format!("managed {}", flight::show_pointer(pointer));
        self.noted(word, call, |queue| queue.thaw(word, pointer), flight::show_word)
    }

    /// Requests that the zone become quiet and stay so; [`Queue::next`] reports when it is. Waiting
    /// writes are moved to `aborted`; waiting management commands are issued first.
    pub fn hold(&mut self, word: Word, aborted: &mut Vec<T>) -> Word {
        let hold = |queue: &mut Queue<T>| {
            queue.hold = Hold::Reset { ahead: 0 };
            queue.abort_writes(aborted);
            queue.hold = Hold::Reset { ahead: queue.items.len() };
            word.waiting()
        };
        self.noted(word, || "hold".to_owned(), hold, flight::show_word)
    }

    /// As [`Queue::hold`], but waiting and arriving requests are kept and continue afterwards.
    pub fn pause(&mut self, word: Word) -> Word {
        let pause = |queue: &mut Queue<T>| {
            queue.hold = Hold::Switch;
            word.waiting()
        };
        self.noted(word, || "pause".to_owned(), pause, flight::show_word)
    }

    /// Ends [`Queue::hold`] or [`Queue::pause`]. `pointer` is the zone's pointer if it was reset.
    pub fn release(&mut self, word: Word, pointer: Option<u32>) -> Word {
        assert!(word.frozen(), "the zone was not held");
        let call = || format!("release {}", flight::show_pointer(pointer));
        let release = |queue: &mut Queue<T>| {
            queue.hold = Hold::None;
            queue.thaw(word, pointer)
        };
        self.noted(word, call, release, flight::show_word)
    }

    fn thaw(&mut self, word: Word, pointer: Option<u32>) -> Word {
        // The state has changed since the last failed report, so another may succeed.
        self.inquiry.renew();
        match pointer {
            Some(p) => {
                self.lost_at = None;
                let word = word.thawed().at(word.class(), p);
                // A command that is not settled may still move the pointer.
                if self.is_unsettled() || self.changed { word.recovering() } else { word.recovered() }
            }
            None => word.thawed(),
        }
    }

    /// Checks the queue against its zone's word. For tests and simulations, after every step.
    ///
    /// # Errors
    /// The violated relation.
    pub fn check(&self, word: Word, rules: &Rules) -> Result<(), String> {
        let waits = word.recovers()
            || word.frozen()
            || self.hold.is_wanted()
            || !self.is_empty()
            || self.is_in_repair();
        let (is_asked, gave_up) = (self.inquiry.is_report(), self.inquiry == Inquiry::GaveUp);
        let Rules { appends_in_flight_max: appends, writes_in_flight_max: writes, .. } = *rules;
        let most = if word.appending() { appends } else { writes };
        let relations = [
            (!waits || word.waits(), "the word waits if the queue is not idle"),
            (word.pointer() <= rules.capacity, "the pointer is within the zone"),
            (!word.appending() || word.in_flight() > 0, "the word is appending only with appends in flight"),
            (word.in_flight() <= most.max(1), "no more in flight than the rules allow"),
            (!word.issuing() || writes > 1 && !word.appending(), "only writes of a window are issuing"),
            (!word.frozen() || !word.is_busy(), "a reset or finish excludes other commands"),
            (word.has_slot() || !word.is_busy(), "a zone with commands in flight has a slot"),
            (
                !word.wants_quiet() || word.waits() && !word.frozen(),
                "a chain is recalled only while the word waits and is not frozen",
            ),
            (!is_asked || word.recovers(), "a report is requested only for an unknown pointer"),
            (!is_asked || !word.is_busy() && !word.frozen(), "a report excludes other commands"),
            (!self.changed || word.recovers(), "the pointer of a changed zone is unknown"),
            (!gave_up || word.recovers(), "only an unknown pointer is given up"),
        ];
        match relations.iter().chain(&self.check_repair(word)).find(|r| !r.0) {
            Some((_, broken)) => Err(format!("violated: {broken}; {word:?}, {} waiting", self.len())),
            None => Ok(()),
        }
    }
}

/// A reset or finish is issued alone. It does not need a known pointer, because it sets the
/// pointer, so it is possible even if the device cannot report.
fn next_management(word: Word, op: Op) -> (Word, Next) {
    if word.is_busy() { (word, Next::Nothing) } else { (word.freezing(), Next::Manage(op)) }
}

/// True if a request stays queued when a reset or finish is queued. An open may be waiting for a
/// slot, which these commands do not wait for.
fn stays_at_abort(kind: RequestKind) -> bool {
    kind.moves_pointer() || matches!(kind, RequestKind::Manage(Op::ZoneClose | Op::ZoneOffline))
}

/// Reason why a zone of this class rejects writes.
fn refusal(class: ZoneClass, rules: &Rules) -> Option<RequestError> {
    let zone = rules.zone;
    match class {
        ZoneClass::Sequential => None,
        ZoneClass::Conventional => Some(RequestError::Conventional { zone }),
        ZoneClass::ReadOnly => Some(RequestError::ZoneReadOnly { zone }),
        ZoneClass::Offline => Some(RequestError::ZoneOffline { zone }),
    }
}

#[cfg(test)]
mod tests;
