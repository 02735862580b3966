//! Superblocks of file systems: any bytes are a superblock that comes back as it went, or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = zonal_fs::format::fuzz_superblock(bytes);
});
