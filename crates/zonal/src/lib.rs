//! Zoned storage in user space. A host-managed SMR disk or a ZNS drive takes writes of a zone only at its write pointer; a
//! [`Volume`] takes them at any depth from any thread, keeps their order, and lets a failed write cost only itself.
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
//! Addresses and lengths are sectors of 512 bytes, whatever the drive's block is ([`SECTOR_BYTES`]). The ends of requests come to a
//! function of the caller ([`Volume::channel`]), to an [`Inbox`] of its thread, or are waited for as above ([`Volume::call`]). Threads
//! that share a volume have an inbox or a channel each, and wait by [`Backoff`](volume::Backoff); an event loop sleeps on the descriptor
//! of its [`news`].
//!
//! # Files
//! [`FileSystem`] has files on a drive, written out of place and verified when they are read:
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
//! - Names of devices and their options: `zonal help devices`, which docs/CLI.md has too.
//! - [`device`]: what a drive is, and what a device around it states ([`Wrapper`](device::Wrapper)); [`registry`]: names of devices; [`fault`]: a drive that misbehaves.
//! - [`volume`]: the write path, its modes and options. [`image`]: drives in files.
//! - [`fs`]: the file system. [`sim`]: drives in virtual time. [`nvme`]: drives over TCP, and the target.
//! - The directory `examples` has programs for appends of many threads, failed writes, drives with few open zones, an event loop, files,
//!   and a wrapper that sends commands of its own.
//!
//! The pages of the other crates are built with this one's: `cargo doc -p zonal`, without `--no-deps`.
//!
//! # Features
//! `program`, on by default, is the program `zonal`; a library does without it.

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

/// Every kind of device that there is, by name: emulated and simulated drives, images, remote drives, and what wraps them.
pub fn all_devices() -> Registry {
    let mut registry = Registry::default();
    sim::register(&mut registry);
    nvme::host::register(&mut registry);
    registry
}

/// Opens the device called `name`: see [`registry`], and `zonal help devices`.
///
/// # Errors
/// [`NameError`] if it is no name of a device, or the device cannot be opened; it says where in the name.
pub fn open(name: &str) -> Result<Arc<dyn Device>, NameError> {
    all_devices().open(name)
}

/// The page of the crate, whose program runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
