//! Unit headers: arbitrary bytes are a header that is encoded back unchanged, or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = zonal_fs::format::fuzz_header(bytes);
});
