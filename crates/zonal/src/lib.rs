//! Zoned storage in user space. A host-managed SMR disk or a ZNS drive accepts writes to a zone
//! only at its write pointer. A [`Volume`] accepts them at any queue depth from any thread, keeps
//! their order, and confines a failure to the write that failed.
//!
//! ```
//! use zonal::{Clock, IoBuf, Output, Request, Sector, Volume, VolumeOptions};
//!
//! let device = zonal::open("ram:size=1G,zone_size=16M")?; // or an image, a simulated drive, a remote one
//! let volume = Volume::open(device, VolumeOptions::default())?;
//! let written = volume.call(&Clock::start(), Request::append(Sector(0), 8, IoBuf::zeroed(4096)));
//! assert_eq!(written.result, Ok(Output::Appended(Sector(0))));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Addresses and lengths are in sectors of 512 bytes, whatever the drive's block size
//! ([`SECTOR_BYTES`]). A request completes through a function of the caller ([`Volume::channel`])
//! or through an [`Inbox`] of its thread, or is waited for as above ([`Volume::call`]). Threads
//! that share a volume have an inbox or a channel each, and wait with [`Backoff`](volume::Backoff).
//! An event loop sleeps on the descriptor of its [`news`].
//!
//! # Files
//! [`FileSystem`] stores files on a drive. It writes out of place, and verifies data when reading:
//!
//! ```
//! use zonal::fs::{FileSystem, FileKind, NewFile, Payload, ROOT};
//!
//! let fs = FileSystem::format(zonal::open("ram:size=256M,zone_size=16M")?)?;
//! let waiter = fs.waiter();
//! let file = fs.create(&*waiter, ROOT, b"notes", &NewFile::new(FileKind::File, 0o644))?;
//! fs.write(&*waiter, file, 0, Payload::Bytes(b"written out of place"))?;
//! fs.sync(&*waiter)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to look
//! - Names of devices and their options: `zonal help devices`, also in docs/CLI.md.
//! - [`device`]: the interface of drives, and of wrappers around them
//!   ([`Wrapper`](device::Wrapper)). [`registry`]: names of devices. [`fault`]: fault injection.
//! - [`volume`]: the write path, its modes and options. [`image`]: drives in files.
//! - [`fs`]: the file system. [`sim`]: drives in virtual time. [`nvme`]: drives over NVMe/TCP, and
//!   the target.
//! - The directory `examples`: appends from many threads, failed writes, drives with few open
//!   zones, an event loop, files, and a wrapper that issues its own commands.
//!
//! `cargo doc -p zonal`, without `--no-deps`, also builds the pages of the other crates.
//!
//! # Features
//! `program`, on by default, is the program `zonal`. Libraries do not need it.

#![forbid(unsafe_code)]

#[cfg(feature = "program")]
mod atomic_file;
#[cfg(feature = "program")]
pub mod cli;
#[cfg(feature = "program")]
mod commands;
#[cfg(feature = "program")]
mod defaults;
#[cfg(feature = "program")]
mod devices;
#[cfg(feature = "program")]
pub mod docs;
#[cfg(feature = "program")]
mod examples;
#[cfg(feature = "program")]
mod exit;
#[cfg(feature = "program")]
mod interrupt;
#[cfg(feature = "program")]
mod kept;
#[cfg(feature = "program")]
mod output;
#[cfg(feature = "program")]
mod program;
#[cfg(feature = "program")]
mod progress;
#[cfg(feature = "program")]
mod topics;
#[cfg(feature = "program")]
mod value;
#[cfg(feature = "program")]
mod wrap;
#[cfg(feature = "program")]
mod write_path;

#[cfg(feature = "program")]
pub use exit::{CLOSED_PIPE, Exit, Failure, INTERRUPTED, TERMINATED};
#[cfg(feature = "program")]
pub use program::{fuzz_archive, run};
pub use zonal_core::{
    DeviceError, Geometry, Nanos, Op, Personality, RequestError, SECTOR_BYTES, Sector, Sectors,
    ZoneCondition, ZoneDescriptor, ZoneError, ZoneIndex, ZoneType,
};
pub use zonal_fs as fs;
pub use zonal_fs::FileSystem;
pub use zonal_io::buffer::{BufferPool, IoBuf, IoBufs};
pub use zonal_io::clock::Clock;
pub use zonal_io::device::{Device, DeviceInfo, Output};
#[cfg(feature = "program")]
use zonal_io::text;
pub use zonal_io::volume::{Channel, Completion, Inbox, Request, Volume, VolumeOptions, WriteMode};
pub use zonal_io::{device, fault, image, news, registry, volume};
pub use zonal_nvme as nvme;
pub use zonal_sim as sim;

use registry::{NameError, Registry};
use std::sync::Arc;

/// Registry of all kinds of devices: emulated, simulated and remote drives, images, and wrappers.
pub fn all_devices() -> Registry {
    let mut registry = Registry::default();
    sim::register(&mut registry);
    nvme::host::register(&mut registry);
    registry
}

/// Opens the device `name`: see [`registry`], and `zonal help devices`.
///
/// # Errors
/// [`NameError`], with the position in the name, if the name is invalid or the device cannot be
/// opened.
pub fn open(name: &str) -> Result<Arc<dyn Device>, NameError> {
    all_devices().open(name)
}

/// README of the crate, tested as documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
