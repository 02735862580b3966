//! NVMe/TCP PDUs: arbitrary bytes are accepted or end the connection, independently of their
//! fragmentation.
#![no_main]

#[path = "../../crates/zonal-nvme/tests/all/fuzz/cases/mod.rs"]
#[allow(dead_code)]
mod cases;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    cases::session::run_units(bytes).unwrap();
});
