//! Messages from a vhost-user front end: each is executed or refused, and the affected queues can
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

use cases::{FILES, Given};
use choices::Choices;
use guest::{Driver, Guest};
use zerocopy::IntoBytes;
use zonal_vhost::session::{FEATURES, FEATURES_OF_PROTOCOL};
use zonal_vhost::wire::message::*;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    if choices.is(32) {
        let cut = choices.below(40) as usize + 1;
        return cases::stream(choices.take(usize::MAX), cut);
    }
    // Its addresses are valid in the memory of any front end.
    let driver = Driver::new(&Guest::new(), 2);
    let mut all = Vec::new();
    while !choices.is_over() {
        let waits = choices.is(64);
        let (request, payload, files) = message(&mut choices, &driver);
        all.push(Given { request, waits, payload, files });
    }
    cases::messages(all);
});

/// An arbitrary message, or more often one of those needed to start a ring.
fn message(choices: &mut Choices<'_>, driver: &Driver) -> (u32, Vec<u8>, Vec<u8>) {
    let setup = driver.setup();
    match choices.below(9) {
        0 => {
            let request = choices.below(42);
            let len = choices.one_of(&[8, 8, 40, 12, 20, 24, 0, 72, 264]);
            let mut payload = choices.take(len).to_vec();
            payload.resize(len, 0);
            let files = choices.below(4);
            (request, payload, (0..files).map(|_| choices.below(u32::from(FILES)) as u8).collect())
        }
        1 => {
            let table = MemoryTable { regions: 2.into(), padding: 0.into() };
            (request::SET_MEMORY, [table.as_bytes(), Guest::regions().as_bytes()].concat(), vec![0, 0])
        }
        2 => {
            let region = choices.one_of(&Guest::regions());
            let payload = SingleRegion { padding: 0.into(), region }.as_bytes().to_vec();
            match choices.is(128) {
                true => (request::ADD_REGION, payload, vec![choices.below(u32::from(FILES)) as u8]),
                false => (request::REMOVE_REGION, payload, Vec::new()),
            }
        }
        3 => {
            let is_all = choices.is(192);
            let bits = if is_all { u64::MAX } else { u64::from(choices.number()) << 8 };
            match choices.is(128) {
                true => (request::SET_FEATURES, (FEATURES & bits).to_le_bytes().to_vec(), Vec::new()),
                false => {
                    let bits = FEATURES_OF_PROTOCOL & bits;
                    (request::SET_PROTOCOL_FEATURES, bits.to_le_bytes().to_vec(), Vec::new())
                }
            }
        }
        4 => {
            let request = choices.one_of(&[
                request::SET_NUMBER,
                request::SET_BASE,
                request::GET_BASE,
                request::SET_ENABLED,
            ]);
            let number = if choices.is(32) { choices.number() } else { choices.one_of(&[1, 0, 16, 1024]) };
            let payload = QueueNumber { queue: queue(choices).into(), number: number.into() };
            (request, payload.as_bytes().to_vec(), Vec::new())
        }
        5 => {
            let shift = choices.one_of(&[0u64, 0, 0, 16, 4096]);
            let addresses = QueueAddresses {
                queue: queue(choices).into(),
                flags: 0.into(),
                descriptors: (setup.descriptors + shift).into(),
                used: (setup.used + shift).into(),
                available: (setup.available + shift).into(),
                log: 0.into(),
            };
            (request::SET_ADDRESSES, addresses.as_bytes().to_vec(), Vec::new())
        }
        6 => {
            let request = choices.one_of(&[request::SET_KICK, request::SET_CALL, request::SET_ERROR]);
            let (none, files) = match choices.is(192) {
                true => (0, vec![FILES - 1 - choices.below(2) as u8]),
                false => (NO_DESCRIPTOR, Vec::new()),
            };
            (request, (u64::from(queue(choices)) | none).to_le_bytes().to_vec(), files)
        }
        7 => {
            let facts = InflightFile {
                len: choices.one_of(&[4096u64, 0, 64]).into(),
                offset: choices.one_of(&[0u64, 64, 1]).into(),
                queues: (choices.below(5) as u16).into(),
                num: choices.one_of(&[16u16, 1, 1024, 2000]).into(),
            };
            match choices.is(128) {
                true => (request::GET_INFLIGHT, facts.as_bytes().to_vec(), Vec::new()),
                false => (request::SET_INFLIGHT, facts.as_bytes().to_vec(), vec![choices.below(2) as u8]),
            }
        }
        _ => (request::RESET_OWNER, Vec::new(), Vec::new()),
    }
}

/// One of the first queues, which include all three kinds, or rarely another number.
fn queue(choices: &mut Choices<'_>) -> u32 {
    choices.one_of(&[2, 2, 2, 0, 1, 3, 129, 130])
}
