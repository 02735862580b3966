//! Rows of metadata: any key and value are a row that comes back as it went, or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = zonal_fs::format::fuzz_row(bytes);
});
