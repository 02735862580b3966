//! Turns: which file sends its data next, while more is waiting than may be in flight.
//!
//! On a rotational drive, a seek between zones costs as much as megabytes of transfer. If free room
//! went to the writers unit by unit, each in a zone of its own, nearly every unit would cost a
//! seek, whatever order the write path chooses. So one file has a turn, its write quantum: a zone's
//! worth of its units is sent before those of other files.
//!
//! # Invariants
//! - A file keeps its turn only as long as it asks for more; otherwise the first in line gets it.
//! - The line is in order of arrival. It has each file at most once, while its writer waits.
//!
//! A writer of less than a whole unit needs no turn, so a sync or a small file does not wait for
//! another file's stream.

use std::collections::VecDeque;

/// Turns of files that wait to send; see the module.
#[derive(Debug)]
pub(super) struct Turns {
    /// Blocks of a turn; 0 disables turns.
    length: u64,
    /// File that has the turn, and the blocks that it has sent in it.
    holder: Option<(u64, u64)>,
    line: VecDeque<u64>,
}

impl Turns {
    pub(super) fn new(length: u64) -> Turns {
        Turns { length, holder: None, line: VecDeque::new() }
    }

    /// True if the writer of a file may send a unit now, given whether there is room. Otherwise the
    /// file is put in line, and its writer has to ask again or to leave.
    pub(super) fn may_send(&mut self, ino: u64, has_room: bool) -> bool {
        if self.length == 0 {
            return has_room;
        }
        if !has_room || !self.is_next(ino) {
            self.enlist(ino);
            return false;
        }
        self.leave(ino);
        if self.continues() != Some(ino) {
            self.holder = Some((ino, 0));
        }
        true
    }

    /// Returns the file with an unfinished turn.
    fn continues(&self) -> Option<u64> {
        self.holder.filter(|(_, had)| *had < self.length).map(|(ino, _)| ino)
    }

    /// Returns the next file to get room; `None` if it may be any, because none is in line.
    pub(super) fn next(&self) -> Option<u64> {
        let holder = self.continues().filter(|holder| self.line.contains(holder));
        holder.or_else(|| self.line.front().copied())
    }

    fn is_next(&self, ino: u64) -> bool {
        match self.continues() {
            Some(holder) if holder == ino => true,
            Some(holder) if self.line.contains(&holder) => false,
            _ => self.line.front().is_none_or(|first| *first == ino),
        }
    }

    /// Counts blocks sent by the file.
    pub(super) fn sends(&mut self, ino: u64, blocks: u64) {
        if let Some((_, had)) = self.holder.as_mut().filter(|(holder, _)| *holder == ino) {
            *had += blocks;
        }
    }

    fn enlist(&mut self, ino: u64) {
        if !self.line.contains(&ino) {
            self.line.push_back(ino);
        }
    }

    /// Removes the file from the line.
    pub(super) fn leave(&mut self, ino: u64) {
        self.line.retain(|waiting| *waiting != ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(turns: &mut Turns, ino: u64, units: u64) {
        for _ in 0..units {
            assert!(turns.may_send(ino, true), "{ino}: {turns:?}");
            turns.sends(ino, 10);
        }
    }

    #[test]
    fn file_has_its_turn_to_the_end_and_then_the_first_in_line_has_one() {
        let mut turns = Turns::new(30);
        units(&mut turns, 1, 1);
        for ino in [3, 2, 1] {
            assert!(!turns.may_send(ino, false));
        }
        units(&mut turns, 1, 1);
        assert!(!turns.may_send(1, false) && !turns.may_send(3, true), "1 is not through and asks for more");
        units(&mut turns, 1, 1);
        assert!(!turns.may_send(1, true) && !turns.may_send(2, true), "3 was there before");
        units(&mut turns, 3, 1);
    }

    #[test]
    fn turn_of_a_file_that_asks_for_nothing_is_the_next_ones() {
        let mut turns = Turns::new(30);
        units(&mut turns, 1, 1);
        assert!(!turns.may_send(2, false));
        units(&mut turns, 2, 1);
        assert!(!turns.may_send(1, false) && !turns.may_send(2, false));
        assert!(!turns.may_send(1, true), "2 has a turn now");
    }

    #[test]
    fn writer_that_gives_up_holds_up_no_other() {
        let mut turns = Turns::new(30);
        units(&mut turns, 1, 1);
        for ino in [1, 2, 3] {
            assert!(!turns.may_send(ino, false));
        }
        turns.leave(1);
        turns.leave(2);
        units(&mut turns, 3, 3);
        units(&mut turns, 3, 1);
    }

    #[test]
    fn drive_without_turns_gives_room_to_the_first_that_looks() {
        let mut turns = Turns::new(0);
        assert!(!turns.may_send(1, false));
        assert!(turns.may_send(2, true) && turns.may_send(1, true));
    }
}
