//! Job files: what is read is written back in canonical form and read to the same jobs.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| zonal_bench::job::fuzz_job(bytes));
