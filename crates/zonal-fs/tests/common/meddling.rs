//! A waiter that does something else to the file system in the midst of a call.

use std::cell::Cell;
use zonal_core::Nanos;
use zonal_fs::waiter::{Polling, Waiter};
use zonal_io::volume::Volume;

/// Waits as usual, but once does something first.
pub struct Meddling<'a> {
    usual: Polling,
    left: Cell<Option<u32>>,
    what: &'a dyn Fn(),
}

impl<'a> Meddling<'a> {
    /// Does `what` when it has waited `turn` times.
    pub fn new(turn: u32, what: &'a dyn Fn()) -> Meddling<'a> {
        Meddling { usual: super::waiter(), left: Cell::new(Some(turn)), what }
    }

    /// Whether it has done it.
    pub fn has_come(&self) -> bool {
        self.left.get().is_none()
    }
}

impl Waiter for Meddling<'_> {
    fn now(&self) -> Nanos {
        self.usual.now()
    }

    fn wall(&self) -> u64 {
        self.usual.wall()
    }

    fn wait(&self, volume: &Volume) {
        match self.left.get() {
            Some(0) => {
                self.left.set(None);
                (self.what)();
            }
            left => self.left.set(left.map(|left| left - 1)),
        }
        self.usual.wait(volume);
    }
}

/// Waits as usual, and lets somebody else go on after each time: what waits for all that others do never ends.
pub struct Streaming<'a> {
    usual: Polling,
    waits: Cell<u32>,
    what: &'a dyn Fn(),
}

impl<'a> Streaming<'a> {
    /// Does `what` after each wait.
    pub fn new(what: &'a dyn Fn()) -> Streaming<'a> {
        Streaming { usual: super::waiter(), waits: Cell::new(0), what }
    }

    /// How often it has waited.
    pub fn waits(&self) -> u32 {
        self.waits.get()
    }
}

impl Waiter for Streaming<'_> {
    fn now(&self) -> Nanos {
        self.usual.now()
    }

    fn wall(&self) -> u64 {
        self.usual.wall()
    }

    fn wait(&self, volume: &Volume) {
        self.waits.set(self.waits.get() + 1);
        assert!(self.waits.get() < 1000, "it waits for as long as others go on");
        self.usual.wait(volume);
        (self.what)();
    }
}
