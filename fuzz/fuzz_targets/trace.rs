//! Traces: arbitrary bytes are records in order of time, or an error with a position that ends the
//! trace.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| zonal_bench::replay::trace::fuzz_trace(bytes));
