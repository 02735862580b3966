//! Hosts of an NVMe/TCP target: whatever they send, each command completes once, and nothing
//! remains.
#![no_main]

#[path = "../../crates/zonal-nvme/tests/all/fuzz/cases/mod.rs"]
#[allow(dead_code)]
mod cases;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    cases::session::run(bytes, None).unwrap();
});
