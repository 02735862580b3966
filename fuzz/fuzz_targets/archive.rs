//! tar archives: arbitrary bytes are an archive up to some point, or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = zonal::fuzz_archive(bytes);
});
