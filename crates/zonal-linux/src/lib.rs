//! Zoned block devices of this machine's Linux.
//!
//! - [`BlockDevice`]: a host-managed drive as a [`Device`](zonal_io::device::Device), opened by
//!   [`BlockDevice::open`] or under the name `blk:PATH` ([`register`]).
//! - [`sysfs`]: what the kernel says of a block device.
//! - [`stale`]: the kernel's own write pointers.
//! - [`doctor`]: problems of drives and of this machine.
//! - [`mounts`]: mounted file systems.
//! - [`ioctl`]: zone operations of the block layer. [`aio`]: asynchronous writes.
//! - [`errors`]: what the errors of block devices mean.

pub mod aio;
mod device;
pub mod doctor;
pub mod errors;
pub mod ioctl;
pub mod mounts;
mod open;
mod pointers;
mod queue;
mod registry;
pub mod stale;
pub mod sysfs;

pub use device::BlockDevice;
pub use open::{BlkError, BlkOptions, BlkProblem, is_block_device};
pub use registry::register;

/// Prints a message about the device `name`. Unlike `eprintln`, it does not panic if standard error
/// is closed.
fn say(name: &str, text: impl std::fmt::Display) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "zonal: {name}: {text}");
}
