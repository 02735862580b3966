//! Units of NVMe/TCP: any bytes are taken, or end the connection, the same in whatever pieces they come.
#![no_main]

#[path = "../../crates/zonal-nvme/tests/all/fuzz/cases/mod.rs"]
#[allow(dead_code)]
mod cases;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    cases::session::run_units(bytes).unwrap();
});
