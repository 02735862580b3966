//! Requests of a kernel for a block device: whatever they say, each ends once, with a result that the kernel takes.
#![no_main]

#[path = "../../crates/zonal-ublk/src/queue/tests/cases.rs"]
mod cases;
#[path = "../../crates/zonal-nvme/tests/all/fuzz/cases/choices.rs"]
#[allow(dead_code)]
mod choices;

use choices::Choices;
use zonal_ublk::wire::Descriptor;
// The cases are a module of the crate's own tests, and name its modules so.
use zonal_ublk::{parameters, queue, wire};

/// Blocks of the drive, and some beyond it.
const BLOCKS: u32 = 17 * 256;

/// Sectors of a block.
const BLOCK: u32 = 8;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let is_taken_over = choices.is(128);
    let mut requests = Vec::new();
    while !choices.is_over() {
        // A few tags are beyond the queue.
        requests.push((choices.below(10) as u16, descriptor(&mut choices)));
    }
    cases::check(requests, is_taken_over);
});

fn descriptor(choices: &mut Choices<'_>) -> Descriptor {
    if choices.is(16) {
        let (operation, count) = (choices.number(), choices.number());
        let sector = u64::from(choices.number()) << 32 | u64::from(choices.number());
        return Descriptor { operation, count, sector, address: 0 };
    }
    let fua = choices.below(2) << 13;
    let operation = choices.below(20) | fua;
    let sector = u64::from(choices.below(BLOCKS) * BLOCK);
    Descriptor { operation, count: choices.below(40) * BLOCK, sector, address: 0 }
}
