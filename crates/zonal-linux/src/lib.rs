//! Zoned block devices of this machine's Linux.
//!
//! - [`sysfs`]: what the kernel says of a block device.
//! - [`ioctl`]: its zone operations.

pub mod ioctl;
pub mod sysfs;
