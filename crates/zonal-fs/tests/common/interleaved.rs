//! A waiter that makes other calls to the file system in the middle of a call.

use std::cell::Cell;
use zonal_core::Nanos;
use zonal_fs::waiter::{Polling, Wait};
use zonal_io::volume::Volume;

/// Maximum number of waits of one call, whatever others do meanwhile.
const WAITS_MAX: u32 = 1000;

/// Trigger of the other calls.
enum When {
    /// Once, ahead of the next wait after this number of waits.
    Once(u32),
    /// After every wait, to catch a call that never ends while others keep writing.
    Always,
}

/// Waits as usual, and makes other calls meanwhile.
pub struct Interleaved<'a> {
    usual: Polling,
    waits: Cell<u32>,
    when: When,
    what: &'a dyn Fn(),
}

impl<'a> Interleaved<'a> {
    /// Calls `what` after `turn` waits.
    pub fn new(turn: u32, what: &'a dyn Fn()) -> Interleaved<'a> {
        Interleaved { usual: super::waiter(), waits: Cell::new(0), when: When::Once(turn), what }
    }

    /// Calls `what` after each wait.
    pub fn streaming(what: &'a dyn Fn()) -> Interleaved<'a> {
        Interleaved { when: When::Always, ..Interleaved::new(0, what) }
    }

    /// True if the other call was made.
    pub fn has_come(&self) -> bool {
        match self.when {
            When::Once(turn) => self.waits.get() > turn,
            When::Always => self.waits.get() > 0,
        }
    }
}

impl Wait for Interleaved<'_> {
    fn now(&self) -> Nanos {
        self.usual.now()
    }

    fn wall(&self) -> i64 {
        self.usual.wall()
    }

    fn wait(&self, volume: &Volume) {
        let waits = self.waits.replace(self.waits.get() + 1);
        if matches!(self.when, When::Once(turn) if turn == waits) {
            (self.what)();
        }
        self.usual.wait(volume);
        if matches!(self.when, When::Always) {
            assert!(waits < WAITS_MAX, "it waits while others continue");
            (self.what)();
        }
    }
}
