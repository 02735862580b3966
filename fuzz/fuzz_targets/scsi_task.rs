//! SCSI initiators: for arbitrary tasks, each completes once, and the disk still reports its zones.
#![no_main]

#[path = "../../crates/zonal-scsi/tests/all/arbitrary/cases.rs"]
mod cases;
#[path = "../../crates/zonal-nvme/tests/all/fuzz/cases/choices.rs"]
#[allow(dead_code)]
mod choices;
#[path = "../../crates/zonal-scsi/tests/all/rig.rs"]
#[allow(dead_code)]
mod rig;

use cases::Given;
use choices::Choices;
use zonal_scsi::Cdb;

/// Length of a command, by the group of its code. Longer ones would only make inputs longer.
const CDB_LENS: [usize; 8] = [6, 10, 10, 32, 16, 12, 32, 32];

/// Drives with and without conventional zones, gaps and limits. A task may cover all blocks, so the
/// drives are small.
const DRIVES: [&str; 3] = [
    "ram:size=1M,zone_size=64K,zone_nr_conv=4,zone_max_open=2,complete=poll,hw_queue_depth=2",
    "ram:size=1M,zone_size=64K,zone_nr_conv=4,blocksize=4096",
    "ram:size=1M,zone_size=64K,zone_capacity=48K",
];

/// Maximum number of tasks per case: the queue accepts all of them before it has to complete any.
const TASKS_MAX: usize = 40;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let drive = choices.one_of(&DRIVES);
    let mut all = Vec::new();
    while !choices.is_over() && all.len() < TASKS_MAX {
        all.push(given(&mut choices));
    }
    cases::check(drive, &all);
});

fn given(choices: &mut Choices<'_>) -> Given {
    let code = choices.byte();
    let mut cdb: Cdb = [0; 32];
    let rest = choices.take(CDB_LENS[usize::from(code >> 5)] - 1);
    cdb[0] = code;
    cdb[1..=rest.len()].copy_from_slice(rest);
    Given {
        lun: if choices.is(8) { choices.number() as u16 } else { 0 },
        cdb,
        // A parameter list, or data of about a whole number of blocks.
        out: match choices.below(4) {
            0 => Vec::new(),
            1 => {
                let len = choices.below(96) as usize;
                choices.take(len).to_vec()
            }
            2 => vec![choices.byte(); choices.one_of(&[511, 512, 513, 20_480])],
            _ => vec![choices.byte(); 4096],
        },
        len: choices.one_of(&[0, 3, 36, 64, 512, 700, 4096, 20_480]),
        cancels: choices.is(32).then(|| u64::from(choices.below(TASKS_MAX as u32))),
        polls: choices.is(128),
    }
}
