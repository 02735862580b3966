//! One zone's plug in front of a device: the single-threaded equivalent of the write path for one
//! zone.

use super::*;
use crate::plug::Admission;
use std::collections::VecDeque;

/// Maximum length of a chain.
const CHAIN_MAX: usize = 3;

/// A command at the device.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Sent {
    Write {
        at: u32,
        sectors: u32,
        tokens: Vec<u32>,
        native: bool,
    },
    Manage {
        op: Op,
        token: u32,
    },
    Report,
    /// The reset of all zones, issued once this zone is quiet.
    ResetAll,
}

/// Result of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    Done,
    /// The device failed the command.
    Failed,
    Refused(RequestError),
    Aborted,
    /// The device could not report the zone's pointer.
    NoAnswer,
    Withdrawn,
    Cancelled,
}

/// A write as submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Write {
    pub(super) kind: WriteKind,
    pub(super) sectors: u32,
    pub(super) mergeable: bool,
}

#[derive(Debug)]
pub(super) struct Shell {
    pub(super) rules: Rules,
    pub(super) word: Word,
    pub(super) queue: Queue<u32>,
    /// In order of issue.
    pub(super) sent: Vec<Sent>,
    pub(super) ended: Vec<(u32, End)>,
    /// Chain behind the write at the device: items in order, with their offsets.
    following: VecDeque<(u32, Item<u32>)>,
    /// True if the submission of a window's write lasts until [`Shell::issued`].
    pub(super) lags: bool,
}

impl Shell {
    pub(super) fn new(rules: Rules) -> Shell {
        Shell {
            rules,
            word: Word::default(),
            queue: Queue::default(),
            sent: Vec::new(),
            ended: Vec::new(),
            following: VecDeque::new(),
            lags: false,
        }
    }

    pub(super) fn submit(&mut self, token: u32, write: Write) {
        match self.word.admit(write.kind, write.sectors, &self.rules) {
            Admission::Issue(word, at) => {
                self.word = word;
                self.send(at, write.sectors, vec![token]);
            }
            Admission::Refuse(e) => self.ended.push((token, End::Refused(e))),
            Admission::Wait => {
                let kind = RequestKind::Write(write.kind, write.sectors);
                self.word = self.queue.push(self.word, Item { kind, mergeable: write.mergeable, token });
            }
        }
        self.settle();
    }

    pub(super) fn manage(&mut self, token: u32, op: Op) {
        let mut aborted = Vec::new();
        self.word = self.queue.push_management(self.word.recalling(), op, token, &mut aborted);
        self.abort(aborted, End::Aborted);
        self.settle();
    }

    /// Completes command number `n` at the device.
    pub(super) fn end(&mut self, n: usize, ok: bool) {
        match self.sent.remove(n) {
            Sent::Write { tokens, .. } => {
                self.abort(tokens, if ok { End::Done } else { End::Failed });
                if ok
                    && self.word.chain_may_continue()
                    && let Some((at, item)) = self.following.pop_front()
                {
                    let RequestKind::Write(_, sectors) = item.kind else { panic!("only writes follow") };
                    return self.send(at, sectors, vec![item.token]);
                }
                self.word = if ok { self.word.completed() } else { self.word.completed().recovering() };
                self.break_chain();
            }
            Sent::Manage { op, token } => {
                let pointer = if op == Op::ZoneReset { 0 } else { self.rules.capacity };
                self.word = self.queue.managed(self.word, ok.then_some(pointer));
                self.ended.push((token, if ok { End::Done } else { End::Failed }));
            }
            Sent::ResetAll => {
                let word = self.queue.release(self.word, ok.then_some(0));
                // Some zones may have been reset.
                self.word = if ok { word } else { word.recovering() };
            }
            Sent::Report => panic!("a report is answered"),
        }
        self.settle();
    }

    /// Ends a request because its write never reached the device.
    pub(super) fn withdraw(&mut self, n: usize) {
        let Sent::Write { tokens, sectors, .. } = self.sent.remove(n) else { panic!("not a write") };
        self.word = self.word.unissued(sectors);
        self.abort(tokens, End::Withdrawn);
        self.break_chain();
        self.settle();
    }

    /// Resubmits a positional write alone because it was not executed.
    pub(super) fn retry(&mut self, n: usize) {
        let Sent::Write { at, tokens, sectors, .. } = self.sent.remove(n) else { panic!("not a write") };
        let kind = RequestKind::Write(WriteKind::Alone(at), sectors);
        self.word = self.word.completed().recovering();
        self.break_chain();
        self.word = self.queue.push_front(self.word, Item { kind, mergeable: false, token: tokens[0] });
        self.settle();
    }

    pub(super) fn answer(&mut self, resync: Option<Resync>) {
        let n = self.sent.iter().position(|s| *s == Sent::Report).expect("a report is under way");
        self.sent.remove(n);
        match resync {
            Some(resync) => self.word = self.queue.resynced(self.word, resync, &self.rules).0,
            None => {
                let mut failed = Vec::new();
                self.queue.resync_failed(&mut failed);
                self.abort(failed, End::NoAnswer);
            }
        }
        self.settle();
    }

    pub(super) fn hold(&mut self) {
        let mut aborted = Vec::new();
        self.word = self.queue.hold(self.word.recalling(), &mut aborted);
        self.abort(aborted, End::Aborted);
        self.settle();
    }

    /// Cancels waiting requests and returns them.
    pub(super) fn cancel(&mut self, is_cancelled: impl Fn(&u32) -> bool) -> Vec<u32> {
        let mut cancelled = Vec::new();
        self.queue.cancel(self.word, is_cancelled, &mut cancelled);
        self.abort(cancelled.clone(), End::Cancelled);
        self.settle();
        cancelled
    }

    pub(super) fn invalidate_pointer(&mut self) {
        self.word = self.queue.invalidate_pointer(self.word);
        self.settle();
    }

    /// Returns the rest of the chain to the queue, or aborts it.
    fn break_chain(&mut self) {
        if self.following.is_empty() {
            return;
        }
        let mut aborted = Vec::new();
        let rest = std::mem::take(&mut self.following);
        self.word = self.queue.break_chain(self.word, rest.into_iter().map(|(_, item)| item), &mut aborted);
        self.abort(aborted, End::Aborted);
    }

    /// Results so far, including those that a recall will produce.
    pub(super) fn ended_and_aborted(&self) -> Vec<(u32, End)> {
        let aborted = self.following.iter().filter(|_| self.word.wants_quiet());
        self.ended.iter().cloned().chain(aborted.map(|(_, item)| (item.token, End::Aborted))).collect()
    }

    /// Sectors of the rest of the chain.
    pub(super) fn promised(&self) -> u32 {
        self.following.iter().map(|(_, item)| item.kind.sectors()).sum()
    }

    /// Number of writes in the chain behind the one at the device, which no longer wait in the
    /// queue.
    pub(super) fn follow_still(&self) -> usize {
        if self.word.wants_quiet() { 0 } else { self.following.len() }
    }

    /// Adds writes to the chain behind the one being issued.
    fn chain(&mut self) {
        while self.following.len() < CHAIN_MAX
            && let Some((word, at)) = self.queue.follow(self.word, &self.rules)
        {
            self.word = word;
            let kind = self.queue.items.front().unwrap().0.kind();
            let item = Item { kind, mergeable: false, token: self.queue.pop() };
            self.following.push_back((at, item));
        }
    }

    fn abort(&mut self, tokens: Vec<u32>, end: End) {
        self.ended.extend(tokens.into_iter().map(|t| (t, end.clone())));
    }

    fn send(&mut self, at: u32, sectors: u32, tokens: Vec<u32>) {
        let native = self.word.appending();
        self.sent.push(Sent::Write { at, sectors, tokens, native });
        if self.word.issuing() && !self.lags {
            self.word = self.word.has_issued();
        }
    }

    /// The write being submitted has reached the device.
    pub(super) fn issued(&mut self) {
        self.word = self.word.has_issued();
        self.settle();
    }

    /// Applies all steps.
    fn settle(&mut self) {
        while self.word.waits() {
            let (word, next) = self.queue.next(self.word, &self.rules);
            self.word = word;
            match next {
                Next::Nothing => break,
                Next::Issue { at, sectors, parts } => {
                    let tokens = (0..parts).map(|_| self.queue.pop()).collect();
                    self.send(at, sectors, tokens);
                    if parts == 1 && !self.word.appending() {
                        self.chain();
                    }
                    if !self.following.is_empty() {
                        // The zone stays waiting because of the chain.
                        break;
                    }
                }
                Next::Manage(op) => {
                    let token = self.queue.pop();
                    self.sent.push(Sent::Manage { op, token });
                }
                Next::Resync => self.sent.push(Sent::Report),
                Next::Held => self.sent.push(Sent::ResetAll),
                Next::Settle | Next::ReadBack => panic!("nothing fails in a way that needs it"),
                Next::Fail(e) => {
                    let token = self.queue.pop();
                    self.ended.push((token, End::Refused(e)));
                }
            }
        }
        if !self.word.waits() {
            self.queue.recycle();
        }
    }
}
