//! What tells one cache of a file from another.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// Which cache of the operating system holds the bytes that were written and not synced: two openers of a backing that find the
/// same one have the same bytes before them. Another boot, another file, and a disk that was taken out and put back have others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheId(pub [u64; 5]);

impl CacheId {
    /// Of an open file; `None` where the kernel does not tell.
    pub(super) fn of(file: &File) -> Option<CacheId> {
        let boot = boot()?;
        let found = file.metadata().ok()?;
        Some(CacheId([
            (boot >> 64) as u64,
            boot as u64,
            found.dev(),
            found.ino(),
            disk_sequence(found.dev()),
        ]))
    }
}

/// The random number of this boot.
fn boot() -> Option<u128> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
}

/// The number that Linux gives a disk each time that it appears; 0 for a file system that is on none.
fn disk_sequence(device: u64) -> u64 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // A partition has it in the directory of its disk.
    ["diskseq", "../diskseq"]
        .into_iter()
        .find_map(|name| std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{name}")).ok())
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}
