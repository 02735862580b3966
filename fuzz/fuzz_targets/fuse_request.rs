//! FUSE requests: arbitrary bytes are a request or an error.
#![no_main]

use zonal_fuse::wire::request::{Operation, parse};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for has_setxattr_ext in [true, false] {
        if let Ok(request) = parse(bytes, has_setxattr_ext)
            && let Operation::BatchForget(forgets) = request.operation
        {
            assert!(forgets.iter().count() <= bytes.len());
        }
    }
});
