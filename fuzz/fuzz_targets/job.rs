//! Job files: a valid file is written back in canonical form and parsed again to the same jobs.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| zonal_bench::job::fuzz_job(bytes));
