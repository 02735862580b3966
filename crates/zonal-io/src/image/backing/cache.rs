//! Identity of the cache of a file.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// Identity of the operating system's cache of unsynced writes. Two openers of a backing with equal
/// identities see the same bytes. It changes with a reboot, with another file, and when a disk is
/// removed and inserted again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheId(pub [u64; 5]);

impl CacheId {
    /// Identity for an open file; `None` if the kernel does not provide it.
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

    /// Combines the numbers of two files, in this order.
    pub(super) const fn with(self, other: CacheId) -> CacheId {
        let CacheId([boot_high, boot_low, device, inode, sequence]) = self;
        // The factor is odd, so that different inodes give different products. The rotation makes
        // the order count.
        let mixed = inode.rotate_left(7) ^ other.0[3].wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ other.0[2];
        CacheId([boot_high, boot_low, device, mixed, sequence])
    }
}

/// Random ID of this boot.
fn boot() -> Option<u128> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
}

/// Sequence number that Linux assigns to a disk each time it appears; 0 for a file system without a
/// disk.
fn disk_sequence(device: u64) -> u64 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // For a partition it is in the directory of its disk.
    ["diskseq", "../diskseq"]
        .into_iter()
        .find_map(|name| std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{name}")).ok())
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}
