//! Zoned storage in user space. A host-managed SMR disk or a ZNS drive consists of zones. Most of
//! them accept a write only at their write pointer, which advances with each write, and are emptied
//! as a whole, by a reset. A [`Volume`] accepts writes at any queue depth from any thread, and
//! keeps the order of each zone. After a failed write it resubmits what was not executed: appends
//! continue, and only positional writes queued behind a lost one in the same zone fail with it.
//!
//! ```
//! use zonal::{Clock, IoBuf, Output, Request, Sector, Volume, VolumeOptions};
//!
//! let device = zonal::open("ram:size=1G,zone_size=16M")?; // or an image, a simulated drive, a remote one
//! let volume = Volume::open(device, VolumeOptions::default())?;
//! let clock = Clock::start(); // one for all callers of the volume
//! let zone = Sector(0); // the zone that starts at this sector
//! let written = volume.call(&clock, Request::append(zone, 8, IoBuf::zeroed(4096)));
//! assert_eq!(written.result, Ok(Output::Appended(Sector(0))));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Addresses and lengths are in sectors of 512 bytes, whatever the drive's block size
//! ([`SECTOR_BYTES`]).
//!
//! # Devices
//! Block devices of this machine (`/dev/sdX`, `/dev/nvmeXnY`), and emulated, simulated and remote
//! drives (NVMe/TCP). A device has one volume at a time, shared by all threads.
//!
//! # Completions
//! There are three ways to learn that a request has completed: a completion function
//! ([`Volume::channel`]), an [`Inbox`] that its thread empties, or a call that blocks, as above
//! ([`Volume::call`]).
//!
//! A volume has no thread of its own and reads no clock. Its callers pass the time, all from the
//! same [`Clock`], and somebody has to call [`Volume::poll`] for requests to make progress.
//! [`Volume::call`] does that itself. Threads that share a volume have a channel or an inbox each;
//! between polls they wait with [`Backoff`](volume::Backoff), which spins, yields and then sleeps.
//! An event loop sleeps on the descriptor of its [`news`].
//!
//! # Errors
//! A failed request returns a [`RequestError`]. Besides mistakes in the request itself, a writer
//! has to handle these:
//!
//! | error | meaning | what to do |
//! |---|---|---|
//! | `ZoneFull`, `BeyondCapacity` | the zone has no room for the write | use another zone |
//! | `ZoneReadOnly`, `ZoneOffline` | the zone has failed | use another zone; data of a read-only zone can still be read |
//! | `NoSlot` | the limit of open or active zones is reached, and nothing in flight will free a slot | finish, close or reset one of the zones that hold the slots; the error names them (`holders`) |
//! | `NotAtWritePointer`, `PredecessorMissing` | the positional write is not at the write pointer, and no write before it fills the gap | write what is missing first, or append |
//! | `PredecessorLost` | a write before this positional write was lost; this one was not executed | write again, from `lost_at` on |
//! | `GaveUp` | the write was not executed, or only its beginning was, and three retries failed | write again, or treat the device as faulty |
//! | `TornAppend` | the append failed and left garbage; the zone continues behind it | append again, and skip the garbage when reading |
//! | `FateUnknown` | the data may be in the zone in whole, in part or not at all; the zone continues at `write_pointer` | read the zone and compare, or write the data again at the write pointer |
//! | `InPart` | a part of a request that was split failed; all sectors before `sector` are written, later ones may be | [report](Volume::report) the zones, then write the rest |
//! | `Aborted`, `Cancelled`, `WouldWait` | the zone was reset or finished, the channel was cancelled, or a `nowait` request would wait | nothing was written |
//! | `Device` | error of the device | [`DeviceError::is_uncertain`] is true if data may be on the medium |
//!
//! # Durability
//! On a device with a volatile cache ([`DeviceInfo`]), completed writes are durable once a later
//! [`Request::flush`] has completed. A write with [`Request::fua()`] is durable when it completes;
//! if the device has no FUA, the volume flushes for it.
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
//!   ([`Wrapper`](device::Wrapper): it implements only what differs), and a
//!   [conformance kit](device::conformance) that checks them. [`registry`]: opens devices by
//!   name. [`fault`]: fault injection.
//! - [`volume`]: the write path, its modes and options. [`image`]: drives in files.
//! - [`fs`]: the file system. [`sim`]: drives in virtual time. [`nvme`]: drives over NVMe/TCP, and
//!   the target.
//! - `bench`, with the feature of that name: jobs in fio's language, and their simulation in virtual
//!   time (`bench::simulate`).
//! - The directory `examples`: appends from many threads, failed writes, drives with few open
//!   zones, an event loop, files, and a wrapper that issues its own commands.
//!
//! `cargo doc -p zonal`, without `--no-deps`, also builds the pages of the other crates.
//!
//! # Dependency and features
//! The crate is not on a registry. A program depends on it by path or by git:
//!
//! ```toml
//! zonal = { path = "../zonal/crates/zonal", default-features = false }
//! ```
//!
//! The feature `program`, on by default, adds the program `zonal` and its dependencies. Libraries
//! do not need it. The feature `bench` adds the module `bench`.

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
#[cfg(feature = "bench")]
pub use zonal_bench as bench;
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
pub use zonal_linux as linux;
pub use zonal_nvme as nvme;
pub use zonal_sim as sim;

use registry::{NameError, Registry};
use std::sync::Arc;

/// Registry of all kinds of devices: block devices, emulated, simulated and remote drives, images,
/// and wrappers.
pub fn all_devices() -> Registry {
    let mut registry = Registry::default();
    sim::register(&mut registry);
    linux::register(&mut registry);
    nvme::host::register(&mut registry);
    registry
}

/// Opens the device `name`: see [`registry`], and `zonal help devices`.
///
/// # Errors
/// [`NameError`] if `name` is not the name of a device, or the device cannot be opened. The error
/// points to the part of the name that is at fault.
pub fn open(name: &str) -> Result<Arc<dyn Device>, NameError> {
    all_devices().open(name)
}

/// README of the crate, tested as documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
