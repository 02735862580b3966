//! Invariants for arbitrary tasks. The fuzz target `scsi_task` runs its own, and the test next to
//! this module runs seeded ones.

use crate::rig::{Rig, UNTOUCHED, filled, memory, report_zones};
use std::collections::BTreeMap;
use zonal_scsi::wire::SenseData;
use zonal_scsi::{Cdb, Task, status};

/// Task, and the initiator's actions after it.
#[derive(Clone, Debug)]
pub struct Given {
    pub lun: u16,
    pub cdb: Cdb,
    /// Data from the initiator.
    pub out: Vec<u8>,
    /// Buffer size for data to the initiator, in bytes.
    pub len: usize,
    /// Tag of a task to cancel.
    pub cancels: Option<u64>,
    pub polls: bool,
}

/// True for commands that read from the device into the initiator's memory, which is undefined
/// after a failure.
fn is_read(cdb: &Cdb) -> bool {
    matches!(cdb[0], 0x28 | 0x88 | 0xA8)
}

/// Runs these tasks on the named drive.
pub fn check(device: &str, all: &[Given]) {
    let mut rig = Rig::new(device);
    let mut answers = BTreeMap::new();
    for (tag, given) in (0..).zip(all) {
        let (data_out, data_in) = (filled(&given.out), memory(given.len));
        rig.queue.submit(rig.now, Task { tag, lun: given.lun, cdb: given.cdb, data_out, data_in });
        if let Some(other) = given.cancels {
            rig.queue.cancel(rig.now, other);
        }
        if given.polls {
            rig.disk.volume().poll(rig.now);
            rig.queue.poll(rig.now);
        }
    }
    // A command has at most 40 blocks, four ranges, or all zones.
    let mut polls = 0;
    while answers.len() < all.len() {
        rig.disk.volume().poll(rig.now);
        rig.queue.poll(rig.now);
        while let Some(answer) = rig.queue.take() {
            assert!(answers.insert(answer.tag, answer).is_none(), "answered twice");
        }
        rig.now.0 += 1_000_000;
        polls += 1;
        assert!(polls < 10_000, "no end");
    }
    assert_eq!(rig.queue.in_flight(), 0);
    assert!(!rig.queue.poll(rig.now) && rig.queue.take().is_none());
    for (tag, answer) in answers {
        let given = &all[tag as usize];
        let moved = answer.transferred as usize;
        assert!(moved <= given.len.max(given.out.len()));
        assert_eq!(&answer.data_out.into_buf()[..], given.out);
        assert_eq!(answer.sense.is_empty(), answer.status != status::CHECK_CONDITION);
        assert!(answer.sense.is_empty() || SenseData::parse(&answer.sense).is_some());
        assert!(answer.status == status::GOOD || moved == 0);
        let data_in = answer.data_in.into_buf();
        assert_eq!(data_in.len(), given.len);
        let has_failed = answer.status != status::GOOD;
        if !(has_failed && (is_read(&given.cdb) || given.cdb[0] == 0x95)) {
            let from = if given.out.is_empty() || is_read(&given.cdb) { moved } else { moved.min(given.len) };
            assert!(data_in[from..].iter().all(|byte| *byte == UNTOUCHED), "{given:?}");
        }
    }
    // The disk still reports its zones.
    assert!(!rig.data(report_zones(0, 64, 0), 64).is_empty());
    assert!(!rig.report(0, 0).1.is_empty());
}
