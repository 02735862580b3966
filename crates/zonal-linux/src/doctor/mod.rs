//! Diagnosis of zoned block devices and of this machine.
//!
//! [`gather`] collects [`Evidence`] and [`Machine`] from the kernel. [`examine`] and
//! [`examine_machine`] decide on [`Finding`]s from that alone, so that every decision can be tested
//! without hardware. Nothing here writes, neither to the drive nor to the kernel.
//!
//! # Severities
//! A [`Severity::Note`] is a property that needs no action. A [`Severity::Finding`] costs time,
//! risks data, or makes commands fail, and can be mended. A drive with a [`Severity::Unusable`]
//! finding cannot be used as it is.

mod drive;
mod finding;
pub mod gather;
mod log;
mod machine;
mod text;
mod uses;

pub use drive::{Access, CacheType, Evidence, examine};
pub use finding::{Finding, Severity};
pub use log::{Log, LogLine, Names};
pub use machine::{Machine, Module, SgOnly, examine_machine};
pub use text::Text;
pub use uses::Uses;

use crate::stale::Stale;
use std::fmt;

/// Version of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KernelVersion {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

/// Oldest kernel with the limits and capacities of zones that Zonal needs.
pub const KERNEL_MIN: KernelVersion = KernelVersion { major: 5, minor: 10 };

/// First kernel with write pointers of its own.
pub const KERNEL_WITH_POINTERS: KernelVersion = KernelVersion { major: 6, minor: 10 };

impl KernelVersion {
    /// Version of the running kernel; `None` if it cannot be told.
    pub fn running() -> Option<KernelVersion> {
        KernelVersion::parse(&gather::release())
    }

    /// Parses the release of a kernel, such as `6.12.48+deb13-amd64`.
    pub fn parse(release: &str) -> Option<KernelVersion> {
        let (major, rest) = release.trim().split_once('.')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        Some(KernelVersion { major: major.parse().ok()?, minor: rest[..digits].parse().ok()? })
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Result of comparing the kernel's write pointers with those of a drive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pointers {
    /// The pointers were compared, or the kernel has none.
    Compared(Vec<Stale>),
    /// The kernel's pointers cannot be read, with the reason.
    Unknown(String),
}

#[cfg(test)]
mod tests;
