//! Hosts of an NVMe/TCP target: whatever they do, each command ends once, and nothing is left.
#![no_main]

#[path = "../../crates/zonal-nvme/tests/all/fuzz/cases/mod.rs"]
#[allow(dead_code)]
mod cases;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    cases::session::run(bytes, None).unwrap();
});
