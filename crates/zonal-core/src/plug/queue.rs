//! The plug's queue: what waits, in order, and which of it may go next.
//!
//! Writes and management commands wait in one queue, so a later write waits for an earlier reset. The queue decides
//! one step at a time: the caller applies [`Queue::next`] until it answers [`Next::Nothing`].

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

/// What the shell has to do next for a zone. Requests concerned are still at the queue's head: take them with
/// [`Queue::pop`] before the next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Nothing: something in flight will bring news, or no request waits.
    Nothing,
    /// Take `parts` writes and issue them as one command of `sectors` at offset `at`.
    Issue {
        /// Offset from the zone's start, in sectors.
        at: u32,
        /// Length of the whole command, in sectors.
        sectors: u32,
        /// How many writes share the command.
        parts: u32,
    },
    /// Take one request and issue this command. A reset or finish decides about the failed writes: see
    /// [`Queue::abandon_for_management`].
    Manage(Op),
    /// Ask the device where the zone stands, then call [`Queue::resynced`] or [`Queue::resync_failed`].
    Resync,
    /// Have the device settle the zone's timed-out commands, then call [`Queue::settled`] or [`Queue::cannot_settle`].
    Settle,
    /// Take a write by [`Queue::take_covered`] and read back what of it is covered, then call [`Queue::was_read_back`].
    ReadBack,
    /// The zone, held by [`Queue::hold`], is quiet and frozen until [`Queue::release`]; as for [`Next::Manage`].
    Held,
    /// Take one request and end it with this error.
    Fail(RequestError),
}

/// What a device said about a zone after a failed write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resync {
    /// What the zone is now.
    pub class: ZoneClass,
    /// Offset of the device's write pointer; the capacity for a full zone.
    pub pointer: u32,
}

/// Waiting requests of one zone.
#[derive(Debug)]
pub struct Queue<T> {
    pub(super) items: Items<T>,
    /// What is asked about the zone.
    pub(super) inquiry: Inquiry,
    /// The zone may have become something else, which no report has told yet. A reset does not tell it either.
    pub(super) changed: bool,
    /// For what the zone is made quiet; ends with [`Queue::release`].
    pub(super) hold: Hold,
    /// The first place that a write has lost and none has taken since; tells a dependent write from a misplaced one.
    pub(super) lost_at: Option<u32>,
    /// What recovery from failed writes keeps.
    repair: Option<Box<Repair<T>>>,
    /// What has happened since the pointer came into doubt.
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

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Makes a queue where no request waits as good as new, for another zone: what happened to this one is its own.
    ///
    /// # Panics
    /// If a request waits.
    pub fn recycle(&mut self) {
        assert!(self.items.is_empty() && !self.is_in_repair(), "a write waits");
        let items = std::mem::take(&mut self.items);
        *self = Queue { items, ..Queue::default() };
    }

    /// Puts a request at the end and returns the word, waiting. Inlined: every write that waits comes this way.
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

    /// Puts a request back at the head: it was issued, was not executed, and goes first once the zone can issue.
    ///
    /// Failed writes come back this way, too, from the last to the first.
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

    /// Queues a reset or finish: the writes that wait are aborted into `aborted`, later ones will wait for it.
    pub fn push_management(&mut self, word: Word, op: Op, token: T, aborted: &mut Vec<T>) -> Word {
        let call = || format!("manage {}", op.name());
        let push = |queue: &mut Queue<T>| {
            queue.abort_writes(aborted);
            queue.push(word, Item { kind: RequestKind::Manage(op), mergeable: false, token })
        };
        self.noted(word, call, push, flight::show_word)
    }

    /// Takes every waiting write out, in order. Management commands stay.
    pub fn abort_writes(&mut self, aborted: &mut Vec<T>) {
        let call = || "abort".to_owned();
        self.noted(Word::default(), call, |queue| queue.abort(aborted, stays_at_abort), usize::to_string);
    }

    /// Returns how many there are then.
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

    /// Takes out every waiting request that `is_cancelled`, in order. The zone's pointer stays. Positional writes that lie
    /// after a cancelled one learn that it was lost; appends need no place of it.
    pub fn cancel(&mut self, word: Word, is_cancelled: impl Fn(&T) -> bool, cancelled: &mut Vec<T>) {
        let picked = self.items.tokens().enumerate().filter(|(_, token)| is_cancelled(token));
        let picked: Vec<usize> = picked.map(|(at, _)| at).collect();
        if !picked.is_empty() {
            self.cancel_at(word, &picked, cancelled);
        }
    }

    /// The same for the requests at these places, ascending.
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
                // One below the pointer was misplaced, and no other write counts on it.
                if let RequestKind::Write(WriteKind::At(place) | WriteKind::Alone(place), _) = item.kind
                    && place >= word.pointer()
                {
                    queue.lose(place);
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

    /// One step. See [`Next`] for what the caller owes.
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

    /// Whether the request at the head may go out, as far as the zone is concerned.
    #[inline]
    fn is_open(&self, word: Word) -> bool {
        !(word.frozen()
            || word.recovers()
            || self.inquiry.is_report()
            || self.hold.is_due()
            || self.is_blocked())
    }

    /// Whether [`Queue::next`] would issue a write or refuse one.
    #[inline]
    pub fn would_write(&self, word: Word) -> bool {
        let front = self.items.front().map(|(shape, _)| shape.kind());
        self.is_open(word) && word.in_flight() == 0 && matches!(front, Some(RequestKind::Write(..)))
    }

    /// Whether an append is at the head and could go out.
    pub fn head_append(&self, word: Word) -> bool {
        let is_append =
            |(shape, _): (Shape, &T)| matches!(shape.kind(), RequestKind::Write(WriteKind::Append, _));
        self.is_open(word) && self.items.front().is_some_and(is_append)
    }

    /// Where the first write was lost that waiting writes may count on.
    pub fn lost_at(&self) -> Option<u32> {
        self.lost_at
    }

    /// The zone has lost what belongs at `place`, where waiting writes counted on it.
    pub(super) fn lose(&mut self, place: u32) {
        self.lost_at = Some(self.lost_at.map_or(place, |lost_at| lost_at.min(place)));
    }

    /// No write is left that came after a lost write: a write that comes now does not depend on it.
    pub fn forget_loss(&mut self) {
        self.lost_at = None;
    }

    /// Whether a zone without a slot has to ask for one: its head would go out now, and needs one.
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

    /// The zone gets no slot: everything that waits for one goes to `denied`, in order. Closes stay, who did not need any.
    pub fn deny(&mut self, denied: &mut Vec<T>) {
        self.abort_writes(denied);
    }

    /// The write at the head, if it can follow the write that [`Queue::next`] has just let go out, or the last that
    /// followed that. The thread that completes the write before issues it, without asking the queue. Returns the word
    /// and its offset.
    ///
    /// Only for writes that nothing can be said of later: emulated appends, and positional ones that lie at the end of
    /// the one before. What could share a command with others waits for them.
    #[inline]
    pub fn follow(&self, word: Word, rules: &Rules) -> Option<(Word, u32)> {
        let (front, _) = self.items.front().filter(|(i, _)| !i.mergeable())?;
        let RequestKind::Write(kind, sectors) = front.kind() else { return None };
        // Native appends go side by side and not in a chain, and after a loss each is decided when it goes out.
        // Where the device keeps order, writes go side by side, too.
        let together =
            rules.writes_in_flight_max > 1 || kind == WriteKind::Append && rules.appends_in_flight_max > 0;
        if together || word.appending() || self.hold.is_wanted() || self.lost_at.is_some() {
            return None;
        }
        let at = word.place(kind, sectors, rules).ok()?;
        Some((word.followed(sectors), at))
    }

    /// Takes back, in order, the writes that were to follow the write that has just ended, once something keeps them
    /// from it. They go to the head of the queue, or to `aborted` if a reset or finish has come after them.
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

    /// Whether a reset or finish has come after what is at the device.
    fn is_superseded(&self) -> bool {
        (self.hold.is_wanted() && !self.hold.keeps()) || self.items.shapes().any(|s| s.kind().moves_pointer())
    }

    /// The token of the request at the head.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.items.front().map(|(_, token)| token)
    }

    /// The same, to be changed.
    pub fn front_mut(&mut self) -> Option<&mut T> {
        self.items.front_mut()
    }

    /// Takes the request at the head, which [`Queue::next`] or [`Queue::follow`] has just decided about.
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

    /// What is in flight may still move the device's pointer: ask only when it has ended.
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
            // What is in flight may fail, and then the place may be right.
            Err(_) if word.is_unsure() => (word, Next::Nothing),
            Err(error) => (word, Next::Fail(self.explain(error))),
            Ok(at) => {
                let (sectors, parts) = self.merge(at, sectors, rules);
                // A positional write takes the lost one's place: from here on a misplaced write is itself at fault.
                // What is sent again in front of the loss takes no lost place, and an append counts on none.
                if kind != WriteKind::Append && self.lost_at.is_some_and(|lost_at| at + sectors > lost_at) {
                    self.lost_at = None;
                }
                (word.issued_as(kind, sectors, rules), Next::Issue { at, sectors, parts })
            }
        }
    }

    /// How many sectors and writes from the head on fit one command that begins at `at` with `sectors`.
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

    /// A misplaced write after a loss did not err, its predecessor did.
    fn explain(&self, error: RequestError) -> RequestError {
        match (error, self.lost_at) {
            (RequestError::NotAtWritePointer { zone, offset, .. }, Some(lost_at)) if offset > lost_at => {
                RequestError::PredecessorLost { zone, lost_at, offset }
            }
            _ => error,
        }
    }

    /// The device could not say where the zone stands: waiting writes learn why, the next one makes it ask again.
    pub fn resync_failed(&mut self, failed: &mut Vec<T>) {
        let Inquiry::Report { is_outdated } = self.inquiry else { panic!("no report was asked for") };
        let give_up = |queue: &mut Queue<T>| {
            queue.inquiry = if is_outdated { Inquiry::None } else { Inquiry::GaveUp };
            // An open or close waits for a known pointer as a write does.
            queue.abort(failed, RequestKind::moves_pointer)
        };
        self.noted(Word::default(), || "resync-failed".to_owned(), give_up, usize::to_string);
    }

    /// The caller has reason to think that the zone does not stand where the word says: the device is asked, also if it
    /// could not answer the last time.
    pub fn distrust(&mut self, word: Word) -> Word {
        let distrust = |queue: &mut Queue<T>| {
            queue.inquiry.renew();
            word.recovering()
        };
        self.noted(word, || "distrust".to_owned(), distrust, flight::show_word)
    }

    /// As [`Queue::distrust`], and a report that is under way may be from before: the device is asked once more after it. It is
    /// asked also if a reset or finish comes first, which tells the pointer alone.
    pub fn doubt(&mut self, word: Word) -> Word {
        let doubt = |queue: &mut Queue<T>| {
            queue.inquiry.renew();
            if let Inquiry::Report { is_outdated } = &mut queue.inquiry {
                *is_outdated = true;
            }
            queue.changed = true;
            word.recovering()
        };
        self.noted(word, || "doubt".to_owned(), doubt, flight::show_word)
    }

    /// A reset or finish ended; `pointer` is where the zone stands if it succeeded.
    pub fn managed(&mut self, word: Word, pointer: Option<u32>) -> Word {
        assert!(word.frozen(), "no management command was issued");
        let call = || format!("managed {}", flight::show_pointer(pointer));
        self.noted(word, call, |queue| queue.thaw(word, pointer), flight::show_word)
    }

    /// Asks for the zone to become quiet and stay so; [`Queue::next`] says when it is. Waiting writes go to `aborted`,
    /// waiting management commands go first.
    pub fn hold(&mut self, word: Word, aborted: &mut Vec<T>) -> Word {
        let hold = |queue: &mut Queue<T>| {
            queue.hold = Hold::Reset { ahead: 0 };
            queue.abort_writes(aborted);
            queue.hold = Hold::Reset { ahead: queue.items.len() };
            word.waiting()
        };
        self.noted(word, || "hold".to_owned(), hold, flight::show_word)
    }

    /// As [`Queue::hold`], but what waits stays and continues afterwards, and so does what arrives.
    pub fn pause(&mut self, word: Word) -> Word {
        let pause = |queue: &mut Queue<T>| {
            queue.hold = Hold::Switch;
            word.waiting()
        };
        self.noted(word, || "pause".to_owned(), pause, flight::show_word)
    }

    /// Ends what [`Queue::hold`] or [`Queue::pause`] began; `pointer` is where the zone stands if it was reset.
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
        // Something has happened to the zone since the device could not say where it stands.
        self.inquiry.renew();
        match pointer {
            Some(p) => {
                self.lost_at = None;
                let word = word.thawed().at(word.class(), p);
                // What is not settled may yet move the pointer.
                if self.is_unsettled() || self.changed { word.recovering() } else { word.recovered() }
            }
            None => word.thawed(),
        }
    }

    /// Compares the queue with its zone's word. For tests and simulations, after every step.
    ///
    /// # Errors
    /// The relation that does not hold.
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
            (!waits || word.waits(), "what only the queue's holder may change has the word waiting"),
            (word.pointer() <= rules.capacity, "the pointer lies in the zone"),
            (!word.appending() || word.in_flight() > 0, "appending ends with the last append"),
            (word.in_flight() <= most.max(1), "as many in flight as the rules allow"),
            (!word.issuing() || writes > 1 && !word.appending(), "only who is joined is waited for"),
            (!word.frozen() || !word.is_busy(), "a reset or finish goes alone"),
            (word.has_slot() || !word.is_busy(), "what is in flight has its slot"),
            (
                !word.wants_quiet() || word.waits() && !word.frozen(),
                "a chain is recalled for what waits for it",
            ),
            (!is_asked || word.recovers(), "a report is under way only for a pointer that is not known"),
            (!is_asked || !word.is_busy() && !word.frozen(), "a report goes alone"),
            (!self.changed || word.recovers(), "a zone that has changed is asked for"),
            (!gave_up || word.recovers(), "given up is only a pointer that is not known"),
        ];
        match relations.iter().chain(&self.check_repair(word)).find(|r| !r.0) {
            Some((_, broken)) => Err(format!("does not hold: {broken}; {word:?}, {} waiting", self.len())),
            None => Ok(()),
        }
    }
}

/// A reset or finish goes alone. It needs no known pointer: it sets it, also where the device cannot report.
fn next_management(word: Word, op: Op) -> (Word, Next) {
    if word.is_busy() { (word, Next::Nothing) } else { (word.freezing(), Next::Manage(op)) }
}

/// Whether a request stays when a reset or finish has come. An open may wait for a slot; these do not wait for that.
fn stays_at_abort(kind: RequestKind) -> bool {
    kind.moves_pointer() || matches!(kind, RequestKind::Manage(Op::ZoneClose | Op::ZoneOffline))
}

/// Why a zone of this class takes no write.
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
