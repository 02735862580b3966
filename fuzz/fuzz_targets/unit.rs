//! Headers of units: any bytes are a header that comes back as it went, or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = zonal_fs::format::fuzz_header(bytes);
});
