//! The plug compared with a model of plain lists, without bits or counters: it looks up everything
//! on demand.

use super::shell::{End, Sent, Shell, Write};
use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

#[derive(Clone, Debug)]
enum WaitingRequest {
    Write(u32, Write),
    Manage(u32, Op),
    /// A reset of all zones.
    Hold,
}

/// A zone that scans everything each time.
#[derive(Clone)]
struct Naive {
    rules: Rules,
    class: ZoneClass,
    /// Last pointer known for certain, and the writes issued since.
    known: u32,
    issued_since: Vec<(u32, u32)>,
    trusted: bool,
    report_failed: bool,
    hold_wanted: bool,
    lost: Option<u32>,
    waiting: Vec<WaitingRequest>,
    sent: Vec<Sent>,
    ended: Vec<(u32, End)>,
    /// A write of a window is being submitted. With `lags`, that lasts until its arrival is
    /// reported.
    on_its_way: bool,
    lags: bool,
    /// The last write that was issued alone.
    alone: Option<u32>,
}

impl Naive {
    fn new(rules: Rules, lags: bool) -> Naive {
        Naive {
            rules,
            class: ZoneClass::Sequential,
            known: 0,
            issued_since: Vec::new(),
            trusted: true,
            report_failed: false,
            hold_wanted: false,
            lost: None,
            waiting: Vec::new(),
            sent: Vec::new(),
            ended: Vec::new(),
            on_its_way: false,
            lags,
            alone: None,
        }
    }

    fn pointer(&self) -> u32 {
        self.known + self.issued_since.iter().map(|i| i.1).sum::<u32>()
    }

    fn is_native(&self, kind: WriteKind) -> bool {
        kind == WriteKind::Append && self.rules.appends_in_flight_max > 0
    }

    fn only_appends_are_out(&self) -> bool {
        self.sent.iter().all(|s| matches!(s, Sent::Write { native: true, .. }))
    }

    fn is_closed_to_others(&self) -> bool {
        self.sent.iter().any(|s| !matches!(s, Sent::Write { .. }))
    }

    /// True if a write of this kind may be issued alongside those at the device.
    fn may_go(&self, kind: WriteKind) -> bool {
        let room = |most| (self.sent.len() as u32) < most;
        let joins = match kind {
            WriteKind::Append if self.is_native(kind) => {
                self.only_appends_are_out() && room(self.rules.appends_in_flight_max)
            }
            WriteKind::Alone(_) => false,
            _ => self.may_be_joined() && room(self.rules.writes_in_flight_max),
        };
        !self.on_its_way && (self.sent.is_empty() || joins)
    }

    /// True if the writes at the device may be joined by others, in order.
    fn may_be_joined(&self) -> bool {
        let may = |s: &Sent| matches!(s, Sent::Write { native: false, tokens, .. } if self.alone != Some(tokens[0]));
        self.sent.iter().all(may)
    }

    /// True if a write at the device excludes all others.
    fn is_alone(&self, token: u32) -> bool {
        self.rules.writes_in_flight_max <= 1 || self.alone == Some(token)
    }

    /// True if a write at the device may still turn out not to have reached it. In a window, only
    /// the write being submitted.
    fn may_be_withdrawn(&self, token: u32) -> bool {
        let is_last = self.issued_since.last().is_some_and(|i| i.0 == token);
        self.is_alone(token) || self.on_its_way && is_last
    }

    /// True if a command at the device may still move the pointer in a way that a write depends on.
    fn is_unsure(&self) -> bool {
        !self.sent.is_empty() && !self.only_appends_are_out()
    }

    fn place(&self, write: Write) -> Result<u32, RequestError> {
        let Rules { zone, capacity, .. } = self.rules;
        match self.class {
            ZoneClass::ReadOnly => return Err(RequestError::ZoneReadOnly { zone }),
            ZoneClass::Offline => return Err(RequestError::ZoneOffline { zone }),
            ZoneClass::Conventional => return Err(RequestError::Conventional { zone }),
            ZoneClass::Sequential => {}
        }
        let pointer = self.pointer();
        if pointer >= capacity {
            return Err(RequestError::ZoneFull { zone });
        }
        if let WriteKind::At(offset) | WriteKind::Alone(offset) = write.kind
            && offset != pointer
        {
            return Err(match self.lost {
                Some(lost_at) if offset > lost_at => RequestError::PredecessorLost { zone, lost_at, offset },
                _ => RequestError::NotAtWritePointer { zone, write_pointer: pointer, offset },
            });
        }
        let end = pointer + write.sectors;
        if end > capacity { Err(RequestError::BeyondCapacity { zone, end, capacity }) } else { Ok(pointer) }
    }

    fn submit(&mut self, token: u32, write: Write) {
        let refused_at_once = self.class != ZoneClass::Sequential;
        let must_wait = !self.waiting.is_empty()
            || !self.trusted
            || self.hold_wanted
            || self.is_closed_to_others()
            || !self.may_go(write.kind)
            || self.place(write).is_err() && self.is_unsure();
        if must_wait && !refused_at_once {
            self.waiting.push(WaitingRequest::Write(token, write));
            // A new request has arrived, so the device is asked again.
            self.report_failed = false;
            return self.settle();
        }
        match self.place(write) {
            Ok(at) => self.send(at, write, vec![token], write.sectors),
            Err(e) => self.ended.push((token, End::Refused(e))),
        }
        self.settle();
    }

    fn manage(&mut self, token: u32, op: Op) {
        self.abort_writes(End::Aborted);
        self.waiting.push(WaitingRequest::Manage(token, op));
        self.report_failed = false;
        self.settle();
    }

    fn abort_writes(&mut self, end: End) {
        for waiter in std::mem::take(&mut self.waiting) {
            match waiter {
                WaitingRequest::Write(token, _) => self.ended.push((token, end.clone())),
                manage => self.waiting.push(manage),
            }
        }
    }

    fn end(&mut self, n: usize, ok: bool) {
        let end = if ok { End::Done } else { End::Failed };
        match self.sent.remove(n) {
            Sent::Write { tokens, .. } => {
                self.trusted &= ok;
                self.ended.extend(tokens.into_iter().map(|t| (t, end.clone())));
            }
            Sent::Manage { op, token } => {
                if ok {
                    self.stands_at(if op == Op::ZoneReset { 0 } else { self.rules.capacity });
                }
                self.report_failed = false;
                self.ended.push((token, end));
            }
            Sent::ResetAll => {
                if ok {
                    self.stands_at(0);
                }
                self.trusted = ok;
                self.hold_wanted = false;
                self.report_failed = false;
            }
            Sent::Report => panic!("a report is answered"),
        }
        self.settle();
    }

    /// Sets a pointer known for certain.
    fn stands_at(&mut self, pointer: u32) {
        self.known = pointer;
        self.issued_since.clear();
        self.trusted = true;
        self.lost = None;
    }

    fn withdraw(&mut self, n: usize) {
        let Sent::Write { tokens, .. } = self.sent.remove(n) else { panic!("not a write") };
        self.issued_since.retain(|i| i.0 != tokens[0]);
        self.on_its_way = false;
        self.ended.extend(tokens.into_iter().map(|t| (t, End::Withdrawn)));
        self.settle();
    }

    fn retry(&mut self, n: usize) {
        let Sent::Write { at, tokens, sectors, .. } = self.sent.remove(n) else { panic!("not a write") };
        let write = Write { kind: WriteKind::Alone(at), sectors, mergeable: false };
        self.waiting.insert(0, WaitingRequest::Write(tokens[0], write));
        self.trusted = false;
        self.report_failed = false;
        self.settle();
    }

    fn answer(&mut self, resync: Option<Resync>) {
        self.sent.retain(|s| *s != Sent::Report);
        match resync {
            Some(Resync { class, pointer }) => {
                let (before, issued) = (self.lost, self.pointer());
                self.stands_at(pointer);
                self.class = class;
                self.lost = match pointer == issued {
                    true => before,
                    false => Some(before.map_or(pointer, |lost| lost.min(pointer))),
                };
            }
            None => {
                self.report_failed = true;
                self.abort_writes(End::NoAnswer);
            }
        }
        self.settle();
    }

    fn cancel(&mut self, pointer: u32, cancelled: &[u32]) {
        for waiter in std::mem::take(&mut self.waiting) {
            match waiter {
                WaitingRequest::Write(token, write) if cancelled.contains(&token) => {
                    if let WriteKind::At(place) | WriteKind::Alone(place) = write.kind
                        && place >= pointer
                    {
                        self.lost = Some(self.lost.map_or(place, |lost| lost.min(place)));
                    }
                    self.ended.push((token, End::Cancelled));
                }
                other => self.waiting.push(other),
            }
        }
        self.settle();
    }

    fn hold(&mut self) {
        self.hold_wanted = true;
        self.abort_writes(End::Aborted);
        self.waiting.push(WaitingRequest::Hold);
        self.settle();
    }

    fn invalidate_pointer(&mut self) {
        self.trusted = false;
        self.report_failed = false;
        self.settle();
    }

    /// The write being submitted has reached the device.
    fn issued(&mut self) {
        self.on_its_way = false;
        self.settle();
    }

    fn send(&mut self, at: u32, write: Write, tokens: Vec<u32>, sectors: u32) {
        self.issued_since.push((tokens[0], sectors));
        if self.rules.writes_in_flight_max > 1 && !self.is_native(write.kind) {
            match write.kind {
                WriteKind::Alone(_) => self.alone = Some(tokens[0]),
                _ => self.on_its_way = self.lags,
            }
        }
        self.sent.push(Sent::Write { at, sectors, tokens, native: self.is_native(write.kind) });
    }

    fn settle(&mut self) {
        while self.step() {}
        if self.waiting.is_empty() && self.trusted && !self.hold_wanted && !self.is_closed_to_others() {
            self.lost = None;
        }
    }

    /// Performs one step, if there is one.
    fn step(&mut self) -> bool {
        if self.is_closed_to_others() {
            return false;
        }
        match self.waiting.first().cloned() {
            Some(WaitingRequest::Hold) => {
                let goes = self.send_alone(Sent::ResetAll);
                if goes {
                    self.waiting.remove(0);
                }
                goes
            }
            Some(WaitingRequest::Manage(token, op)) => {
                let goes = self.send_alone(Sent::Manage { op, token });
                if goes {
                    self.waiting.remove(0);
                }
                goes
            }
            _ if !self.trusted => !self.report_failed && self.send_alone(Sent::Report),
            Some(WaitingRequest::Write(_, write)) if self.place(write).is_err() && self.is_unsure() => false,
            Some(WaitingRequest::Write(token, write)) if self.may_go(write.kind) => {
                self.waiting.remove(0);
                match self.place(write) {
                    Ok(at) => self.issue(at, token, write),
                    Err(e) => self.ended.push((token, End::Refused(e))),
                }
                true
            }
            _ => false,
        }
    }

    fn send_alone(&mut self, what: Sent) -> bool {
        let goes = self.sent.is_empty() && !self.on_its_way;
        if goes {
            self.sent.push(what);
        }
        goes
    }

    /// Issues a waiting write, merged with those behind it if possible.
    fn issue(&mut self, at: u32, token: u32, write: Write) {
        let (mut tokens, mut sectors) = (vec![token], write.sectors);
        while write.mergeable
            && let Some(&WaitingRequest::Write(
                next,
                Write { kind: WriteKind::At(offset), sectors: more, mergeable: true },
            )) = self.waiting.first()
            && offset == at + sectors
            && sectors + more <= self.rules.merge_sectors_max
            && at + sectors + more <= self.rules.capacity
        {
            tokens.push(next);
            sectors += more;
            self.waiting.remove(0);
        }
        if write.kind != WriteKind::Append {
            // The place of the lost write is taken.
            self.lost = self.lost.filter(|&lost_at| at + sectors <= lost_at);
        }
        self.send(at, write, tokens, sectors);
    }

    /// Offset behind all issued and waiting writes, if all succeed.
    fn tail(&self) -> u32 {
        let begin = if self.sent.contains(&Sent::ResetAll) { 0 } else { self.pointer() };
        self.waiting.iter().fold(begin, |at, w| match w {
            WaitingRequest::Write(_, w) => at + w.sectors,
            WaitingRequest::Manage(_, Op::ZoneReset) | WaitingRequest::Hold => 0,
            WaitingRequest::Manage(..) => self.rules.capacity,
        })
    }
}

/// Sorted by token: the real plug aborts the rest of a chain only when its current write completes,
/// so the order differs.
fn by_token(ended: &[(u32, End)]) -> Vec<(u32, End)> {
    let mut ended = ended.to_vec();
    ended.sort_by_key(|e| e.0);
    ended
}

/// An event. `pick` selects among the commands at the device.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Write {
        delta: i32,
        sectors: u32,
        mergeable: bool,
    },
    Alone {
        sectors: u32,
    },
    Append {
        sectors: u32,
    },
    Manage(Op),
    End {
        pick: usize,
        ok: bool,
    },
    Withdraw {
        pick: usize,
    },
    Retry {
        pick: usize,
    },
    Answer {
        class: ZoneClass,
        pointer: u32,
    },
    NoAnswer,
    Hold,
    Distrust,
    Issued,
    /// Cancels every third waiting write.
    Cancel {
        pick: u32,
    },
}

fn happenings() -> impl Strategy<Value = Happening> {
    use Happening::*;
    let delta = prop_oneof![12 => Just(0), 1 => -4..=4];
    let mergeable = prop_oneof![4 => Just(true), 1 => Just(false)];
    let pick = 0..8usize;
    let class = prop_oneof![20 => Just(ZoneClass::Sequential), 1 => Just(ZoneClass::ReadOnly), 1 => Just(ZoneClass::Offline)];
    prop_oneof![
        10 => (delta, 1..=4u32, mergeable)
            .prop_map(|(delta, sectors, mergeable)| Write { delta, sectors, mergeable }),
        6 => (1..=3u32).prop_map(|sectors| Append { sectors }),
        1 => (1..=3u32).prop_map(|sectors| Alone { sectors }),
        6 => Just(Issued),
        1 => prop_oneof![4 => Just(Op::ZoneReset), 1 => Just(Op::ZoneFinish)].prop_map(Manage),
        12 => (pick.clone(), prop::bool::weighted(0.85)).prop_map(|(pick, ok)| End { pick, ok }),
        1 => pick.clone().prop_map(|pick| Withdraw { pick }),
        1 => pick.prop_map(|pick| Retry { pick }),
        2 => (class, 0..=CAPACITY).prop_map(|(class, pointer)| Answer { class, pointer }),
        1 => Just(NoAnswer),
        1 => Just(Hold),
        1 => Just(Distrust),
        2 => (0..3u32).prop_map(|pick| Cancel { pick }),
    ]
}

/// Both plugs, and the tokens used so far.
struct Pair {
    real: Shell,
    naive: Naive,
    tokens: u32,
    /// Tokens in the order of their first issue.
    order: Vec<u32>,
}

impl Pair {
    fn new(rules: Rules, lags: bool) -> Pair {
        let mut real = Shell::new(rules);
        real.lags = lags;
        Pair { real, naive: Naive::new(rules, lags), tokens: 0, order: Vec::new() }
    }

    fn token(&mut self) -> u32 {
        self.tokens += 1;
        self.tokens
    }

    fn submit(&mut self, write: Write) {
        let token = self.token();
        self.real.submit(token, write);
        self.naive.submit(token, write);
    }

    /// The number of something at the device that fits.
    fn pick(&self, pick: usize, fits: impl Fn(&Sent) -> bool) -> Option<usize> {
        let fitting: Vec<usize> = (0..self.real.sent.len()).filter(|&n| fits(&self.real.sent[n])).collect();
        (!fitting.is_empty()).then(|| fitting[pick % fitting.len()])
    }

    fn happen(&mut self, happening: Happening) {
        let is_report = |s: &Sent| *s == Sent::Report;
        match happening {
            Happening::Write { delta, sectors, mergeable } => {
                let offset = self.naive.tail().saturating_add_signed(delta);
                self.submit(Write { kind: WriteKind::At(offset), sectors, mergeable });
            }
            Happening::Alone { sectors } => {
                let kind = WriteKind::Alone(self.naive.tail());
                self.submit(Write { kind, sectors, mergeable: false });
            }
            Happening::Issued => {
                if self.naive.on_its_way {
                    self.real.issued();
                    self.naive.issued();
                }
            }
            Happening::Append { sectors } => {
                self.submit(Write { kind: WriteKind::Append, sectors, mergeable: false });
            }
            Happening::Manage(op) => {
                let token = self.token();
                self.real.manage(token, op);
                self.naive.manage(token, op);
            }
            Happening::End { pick, ok } => {
                if let Some(n) = self.pick(pick, |s| !is_report(s)) {
                    self.real.end(n, ok);
                    self.naive.end(n, ok);
                }
            }
            Happening::Withdraw { pick } => {
                let naive = self.naive.clone();
                let single = |s: &Sent| match s {
                    Sent::Write { tokens, .. } => tokens.len() == 1 && naive.may_be_withdrawn(tokens[0]),
                    _ => false,
                };
                if let Some(n) = self.pick(pick, single) {
                    self.real.withdraw(n);
                    self.naive.withdraw(n);
                }
            }
            Happening::Retry { pick } => {
                let naive = self.naive.clone();
                let zeroes = |s: &Sent| match s {
                    Sent::Write { tokens, native: false, .. } => {
                        tokens.len() == 1 && naive.is_alone(tokens[0])
                    }
                    _ => false,
                };
                if let Some(n) = self.pick(pick, zeroes) {
                    self.real.retry(n);
                    self.naive.retry(n);
                }
            }
            Happening::Answer { class, pointer } => {
                let pointer = if class == ZoneClass::Sequential { pointer } else { CAPACITY };
                self.answer(Some(Resync { class, pointer }));
            }
            Happening::NoAnswer => self.answer(None),
            Happening::Hold => {
                if !self.naive.hold_wanted {
                    self.real.hold();
                    self.naive.hold();
                }
            }
            // The naive plug has no chains: their writes are still waiting there, and it does not
            // forget a loss.
            Happening::Cancel { .. } if self.real.follow_still() > 0 => {}
            Happening::Cancel { pick } => {
                let waits = |token: u32| {
                    self.naive.waiting.iter().any(|w| matches!(w, WaitingRequest::Write(t, _) if *t == token))
                };
                let picked: Vec<u32> = (1..=self.tokens).filter(|&t| t % 3 == pick && waits(t)).collect();
                let pointer = self.real.word.pointer();
                let cancelled = self.real.cancel(|token| picked.contains(token));
                self.naive.cancel(pointer, &cancelled);
            }
            Happening::Distrust => {
                self.real.invalidate_pointer();
                self.naive.invalidate_pointer();
            }
        }
    }

    fn answer(&mut self, resync: Option<Resync>) {
        if self.real.sent.contains(&Sent::Report) {
            self.real.answer(resync);
            self.naive.answer(resync);
        }
    }

    /// Checks that both agree, and the invariants.
    fn check(&mut self) -> Result<(), TestCaseError> {
        let Pair { real, naive, .. } = self;
        prop_assert_eq!(&real.sent, &naive.sent);
        prop_assert_eq!(by_token(&real.ended_and_aborted()), by_token(&naive.ended));
        prop_assert_eq!(real.word.pointer() - real.promised(), naive.pointer());
        prop_assert_eq!(real.word.recovers(), !naive.trusted);
        prop_assert_eq!(real.word.class(), naive.class);
        let requests = naive.waiting.iter().filter(|w| !matches!(w, WaitingRequest::Hold)).count();
        prop_assert_eq!(real.queue.len() + real.follow_still(), requests);
        prop_assert_eq!(real.queue.check(real.word, &real.rules), Ok(()));
        let writes = real.sent.iter().filter(|s| matches!(s, Sent::Write { .. })).count();
        let positional = real.sent.iter().filter(|s| matches!(s, Sent::Write { native: false, .. })).count();
        let together = real.rules.writes_in_flight_max as usize;
        prop_assert!(positional <= together && (positional == 0 || writes == positional), "{:?}", real.sent);
        prop_assert_eq!(real.word.issuing(), naive.on_its_way);
        prop_assert!(writes == real.sent.len() || real.sent.len() == 1, "{:?}", real.sent);
        prop_assert_eq!(real.word.in_flight() as usize, writes);
        for sent in &real.sent {
            let Sent::Write { tokens, .. } = sent else { continue };
            for token in tokens {
                if !self.order.contains(token) {
                    prop_assert!(self.order.last() < Some(token), "{} after {:?}", token, self.order);
                    self.order.push(*token);
                }
            }
        }
        Ok(())
    }

    /// Completes everything.
    fn drain(&mut self) -> Result<(), TestCaseError> {
        while !self.real.sent.is_empty() || self.naive.on_its_way {
            self.happen(Happening::Issued);
            match self.real.sent.first() {
                None => continue,
                Some(Sent::Report) => self.answer(Some(Resync { class: ZoneClass::Sequential, pointer: 4 })),
                _ => self.happen(Happening::End { pick: 0, ok: true }),
            }
            self.check()?;
        }
        let mut ends = HashMap::new();
        for (token, _) in &self.real.ended {
            *ends.entry(*token).or_insert(0) += 1;
        }
        prop_assert_eq!(ends.len(), self.tokens as usize, "every request ends");
        prop_assert!(ends.values().all(|&n| n == 1), "once");
        let idle = Word::new(self.real.word.class(), self.real.word.pointer());
        let gave_up = self.naive.report_failed;
        prop_assert!(self.real.word == idle || gave_up, "{:?}", self.real.word);
        Ok(())
    }
}

proptest! {
    #[test]
    fn plug_does_what_the_naive_one_does(
        (appends_in_flight_max, writes_in_flight_max) in
            prop_oneof![Just((0, 1)), Just((1, 1)), Just((3, 1)), Just((0, 2)), Just((0, 4))],
        lags: bool,
        merge_sectors_max in prop_oneof![Just(0), Just(8)],
        happenings in prop::collection::vec(happenings(), 1..120),
    ) {
        let rules = Rules { merge_sectors_max, writes_in_flight_max, ..rules(appends_in_flight_max) };
        let mut pair = Pair::new(rules, lags);
        for happening in happenings {
            pair.happen(happening);
            pair.check()?;
        }
        pair.drain()?;
    }
}
