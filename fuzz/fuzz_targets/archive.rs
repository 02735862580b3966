//! Archives of tar: any bytes are one, as far as they make sense, or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = zonal::fuzz_archive(bytes);
});
