//! Metadata rows: an arbitrary key and value are a row that is encoded back unchanged, or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = zonal_fs::format::fuzz_row(bytes);
});
