//! Image headers: arbitrary bytes are a header or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = zonal_io::image::format::fuzz_header(bytes);
});
