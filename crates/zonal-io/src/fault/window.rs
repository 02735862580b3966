//! Windows: commands or answers of one rule and queue, held back to proceed in another order.

use super::flight::{InnerCommand, Ready};
use super::rule::{Effect, shuffle};
use super::state::{FaultState, later};
use zonal_core::Nanos;

/// A window; see the module.
pub(super) struct Window {
    rule: usize,
    pub(super) queue: usize,
    /// Time at which it opens even if it is not full.
    due: Nanos,
    size: u32,
    seed: u64,
    pub(super) commands: Vec<InnerCommand>,
    pub(super) answers: Vec<Ready>,
}

impl Window {
    fn is_full(&self) -> bool {
        self.commands.len() + self.answers.len() >= self.size as usize
    }
}

impl FaultState {
    /// Holds a command until its window opens.
    pub(super) fn hold_command(&mut self, now: Nanos, rule: usize, flight: InnerCommand) {
        let at = self.window(now, rule, flight.queue);
        self.windows[at].commands.push(flight);
        self.open_if_full(now, at);
    }

    /// Holds an answer until its window opens.
    pub(super) fn hold_answer(&mut self, now: Nanos, rule: usize, queue: usize, ready: Ready) {
        let at = self.window(now, rule, queue);
        self.windows[at].answers.push(ready);
        self.open_if_full(now, at);
    }

    /// Index of the window of a rule and queue, created if necessary.
    fn window(&mut self, now: Nanos, rule: usize, queue: usize) -> usize {
        if let Some(at) = self.windows.iter().position(|w| (w.rule, w.queue) == (rule, queue)) {
            return at;
        }
        let (what, tally) = &mut self.rules[rule];
        let Effect::Reorder { window, hold, .. } = what.effect else {
            unreachable!("only a rule that reorders gathers")
        };
        let (due, seed) = (later(now, hold), tally.window_seed());
        let (commands, answers) = (Vec::new(), Vec::new());
        self.windows.push(Window { rule, queue, due, size: window, seed, commands, answers });
        self.queues[queue].has_news = true;
        self.windows.len() - 1
    }

    fn open_if_full(&mut self, now: Nanos, at: usize) {
        if self.windows[at].is_full() {
            self.open(now, at);
        }
    }

    /// Opens all windows that are due.
    pub(super) fn open_windows(&mut self, now: Nanos) {
        while let Some(at) = self.windows.iter().position(|w| w.due <= now) {
            self.open(now, at);
        }
    }

    fn open(&mut self, now: Nanos, at: usize) {
        let Window { queue, seed, mut commands, mut answers, .. } = self.windows.remove(at);
        shuffle(seed, &mut commands);
        shuffle(seed, &mut answers);
        for flight in commands {
            self.send_on(now, flight);
        }
        for ready in answers {
            self.add_ready(now, queue, ready);
        }
    }

    /// Time at which the next window of `queue` opens.
    pub(super) fn next_window(&self, queue: usize) -> Option<Nanos> {
        self.windows.iter().filter(|w| w.queue == queue).map(|w| w.due).min()
    }
}
