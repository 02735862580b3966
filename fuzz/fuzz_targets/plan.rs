//! Fault plans: arbitrary text is a plan or an error with a position.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(e) = zonal_io::fault::Plan::parse(text) {
        assert!(text.get(e.place()).is_some());
        assert!(!e.to_string().is_empty());
    }
});
