//! Block requests from the kernel: whatever they contain, each completes once, with a result that
//! the kernel accepts.
#![no_main]

#[path = "../../crates/zonal-ublk/src/queue/tests/cases.rs"]
mod cases;
#[path = "../../crates/zonal-nvme/tests/all/fuzz/cases/choices.rs"]
#[allow(dead_code)]
mod choices;

use choices::Choices;
use zonal_ublk::wire::Descriptor;
// The cases are a module of the crate's own tests, which refers to the crate's modules by these
// names.
use zonal_ublk::{parameters, queue, wire};

/// Number of blocks of the drive, plus some beyond its end.
const BLOCKS: u32 = 17 * 256;

/// Sectors per block.
const BLOCK: u32 = 8;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let is_taken_over = choices.is(128);
    let mut requests = Vec::new();
    while !choices.is_over() {
        // Some tags are beyond the queue's size.
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
