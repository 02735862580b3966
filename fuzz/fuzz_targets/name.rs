//! Device names: any text is a name or an error that says where it is wrong.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(e) = zonal_io::registry::Registry::default().parse(text) {
        assert!(text.get(e.place()).is_some());
        assert!(!e.to_string().is_empty());
    }
});
