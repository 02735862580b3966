//! Checks that every record is executed exactly once.
//!
//! Keeps two sums over the records, one updated when a record is read from the trace, the other
//! when its last request has completed. Each adds a hash of the record's number and all of its
//! fields, so the sums agree only if both cover the same records. The number of free slots alone
//! would not reveal that one record was executed twice and another not at all.

use super::trace::{Record, TracePlace};

/// Sums over the records of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ledger {
    pub(super) begun: u64,
    pub(super) ended: u64,
    begun_sum: u64,
    ended_sum: u64,
}

impl Ledger {
    /// Adds a record that was read, and returns its number.
    pub(super) fn begin(&mut self, record: &Record) -> u64 {
        let number = self.begun;
        self.begun += 1;
        self.begun_sum = self.begun_sum.wrapping_add(mixed(number, record, record.sectors.0));
        number
    }

    /// Adds a record that has ended, after requests for `sectors` sectors.
    pub(super) fn end(&mut self, number: u64, record: &Record, sectors: u64) {
        self.ended += 1;
        self.ended_sum = self.ended_sum.wrapping_add(mixed(number, record, sectors));
    }

    /// True if each started record has ended exactly once.
    pub(super) fn is_balanced(&self) -> bool {
        (self.begun, self.begun_sum) == (self.ended, self.ended_sum)
    }
}

fn mixed(number: u64, record: &Record, sectors: u64) -> u64 {
    let place = match record.place {
        TracePlace::Line(n) | TracePlace::Byte(n) => n,
    };
    let words = [number, record.op as u64, record.sector.0, sectors, record.at.0, place];
    words.into_iter().fold(0x9E37_79B9_7F4A_7C15, |sum: u64, word| {
        let mixed = (sum ^ word).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        mixed ^ (mixed >> 32)
    })
}

#[cfg(test)]
mod tests {
    use super::super::trace::TraceOp;
    use super::*;
    use zonal_core::{Nanos, Sector, Sectors};

    fn record(sector: u64) -> Record {
        let (sector, sectors) = (Sector(sector), Sectors(8));
        Record {
            at: Nanos(0),
            op: TraceOp::Write,
            fua: false,
            sector,
            sectors,
            place: TracePlace::Line(sector.0),
        }
    }

    #[test]
    fn record_done_twice_in_place_of_another_is_seen() {
        let mut ledger = Ledger::default();
        let numbers = [ledger.begin(&record(1)), ledger.begin(&record(2))];
        let mut wrong = ledger;
        ledger.end(numbers[1], &record(2), 8);
        assert!(!ledger.is_balanced());
        ledger.end(numbers[0], &record(1), 8);
        assert!(ledger.is_balanced());
        wrong.end(numbers[0], &record(1), 8);
        wrong.end(numbers[0], &record(1), 8);
        assert!(!wrong.is_balanced());
    }

    #[test]
    fn record_done_in_part_is_seen() {
        let mut ledger = Ledger::default();
        let number = ledger.begin(&record(1));
        ledger.end(number, &record(1), 7);
        assert!(!ledger.is_balanced());
    }
}
