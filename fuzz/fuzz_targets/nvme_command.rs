//! NVMe commands: arbitrary 64 bytes are executed or fail with a status.
#![no_main]

#[path = "../../crates/zonal-nvme/tests/all/fuzz/cases/mod.rs"]
#[allow(dead_code)]
mod cases;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    cases::session::run_commands(bytes).unwrap();
});
