//! Rings of a guest: whatever its memory contains, requests in flight complete, and the queue can
//! be stopped.
#![no_main]

#[path = "../../crates/zonal-vhost/tests/all/random/cases.rs"]
#[allow(dead_code)]
mod cases;
#[path = "../../crates/zonal-nvme/tests/all/fuzz/cases/choices.rs"]
#[allow(dead_code)]
mod choices;
#[path = "../../crates/zonal-vhost/tests/all/guest.rs"]
#[allow(dead_code)]
mod guest;

use cases::{Ask, Deed, LOG_LEN, RingRestart};
use choices::Choices;
use guest::{HIGH, LOW, NUM, REGION, descriptor};
use zonal_vhost::queue::{CONTROL, FIRST_REQUESTS};
use zonal_vhost::wire::ring::Descriptor;

/// Size of the driver's memory in bytes: its rings, headers, responses and indirect tables.
const DRIVER_LEN: u32 = 0xC000;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let number = choices.one_of(&[FIRST_REQUESTS, FIRST_REQUESTS, FIRST_REQUESTS, CONTROL]);
    let mut deeds = Vec::new();
    while !choices.is_over() {
        deeds.push(deed(&mut choices));
    }
    cases::run(number, deeds);
});

fn deed(choices: &mut Choices<'_>) -> Deed {
    match choices.below(16) {
        0 | 1 => Deed::Set(choices.below(u32::from(NUM)) as u16, entry(choices)),
        2 | 3 => {
            Deed::Offer(if choices.is(16) { number(choices) } else { choices.below(u32::from(NUM)) as u16 })
        }
        4 => Deed::Index(number(choices)),
        5 | 6 => {
            let offset = u64::from(choices.below(DRIVER_LEN));
            let len = choices.below(64) as usize;
            Deed::Bytes(LOW + 0x2_0000 + offset, choices.take(len).to_vec())
        }
        7 => Deed::Poll,
        8 => Deed::Manage(choices.below(9)),
        9 => Deed::Memory(choices.is(128)),
        10 => {
            let offset = u64::from(choices.below(LOG_LEN as u32));
            let len = choices.below(32) as usize;
            Deed::Log(offset, choices.take(len).to_vec())
        }
        11 => Deed::Restart(RingRestart {
            index: if choices.is(64) { number(choices) } else { 0 },
            base: if choices.is(64) { number(choices) } else { 0 },
            event_idx: choices.is(128),
            indirect: choices.is(128),
            has_log: choices.is(128),
        }),
        12 | 13 => Deed::Ask(Ask {
            cdb: choices.take(16).to_vec(),
            out: choices.below(4) * 4096,
            into: choices.below(4) * 4096,
            is_indirect: choices.is(128),
        }),
        _ => Deed::Turn,
    }
}

fn number(choices: &mut Choices<'_>) -> u16 {
    choices.number() as u16
}

/// A descriptor with a buffer mostly within memory, and often near the end of a region.
fn entry(choices: &mut Choices<'_>) -> Descriptor {
    let address = match choices.below(4) {
        0 => LOW + 0x2_0000 + u64::from(choices.below(DRIVER_LEN)),
        1 => HIGH + u64::from(choices.below(REGION as u32)),
        2 => choices.one_of(&[LOW, HIGH]) + REGION - u64::from(choices.below(64)),
        _ => u64::from(choices.number()) << 32 | u64::from(choices.number()),
    };
    let len = match choices.below(4) {
        0 => choices.number(),
        1 => choices.below(17) * 4096,
        2 => choices.below(17) * 16,
        _ => choices.below(256),
    };
    let flags = if choices.is(16) { number(choices) } else { choices.below(8) as u16 };
    let next = if choices.is(16) { number(choices) } else { choices.below(u32::from(NUM)) as u16 };
    descriptor(address, len, flags, next)
}
