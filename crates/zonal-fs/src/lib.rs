//! A file system for zoned drives.
//!
//! Files are written out of place, by zone appends to a few open zones, and garbage collection
//! frees zones. File maps and all other metadata are rows in sorted tables. The file system
//! is crash-consistent: metadata survives any power cut, synced data is there afterwards, and no
//! file contains data of another file.
//!
//! Nothing here reads a clock or sleeps: see [`waiter`].
//!
//! # Getting started
//! [`make`] makes and opens file systems; [`FileSystem`] has the operations. Clone it to share it
//! between threads; each thread has its own waiter. Sync before dropping the last clone.
//!
//! ```
//! use std::sync::Arc;
//! use zonal_fs::drive::Drive;
//! use zonal_fs::make::{self, MakeOptions};
//! use zonal_fs::waiter::{Polling, polling};
//! use zonal_fs::{FileKind, MountOptions, NewFile, Payload, ROOT, Target};
//! use zonal_io::clock::Clock;
//! use zonal_io::registry::Registry;
//! use zonal_io::volume::{Volume, VolumeOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A drive in memory; `image:PATH` is one in a file. `zonal_sim::register` adds simulated ones.
//! let device = Registry::default().open("ram:size=1G,zone_size=16M")?;
//! // The file system keeps the drive's limits of open zones itself.
//! let options = VolumeOptions::default().without_budget();
//! let drive = Arc::new(Drive::new(Arc::new(Volume::open(device, options)?)));
//! let clock = Clock::start();
//! let (waiters, waiter) = (polling(clock), Polling::new(clock));
//!
//! let name_for_itself = *b"sixteen bytes id";
//! make::make(&drive, &waiters, name_for_itself, &MakeOptions::default())?;
//! let fs = make::open(&drive, &waiters, None, MountOptions::default())?;
//!
//! let file = fs.create(&waiter, ROOT, b"notes", &NewFile::new(FileKind::File, 0o644))?;
//! // While it is open, small consecutive writes are collected to units.
//! let open = fs.open_file(file)?;
//! fs.write(&waiter, file, 0, Payload::Bytes(b"written out of place"))?;
//! // Durable from here on, with its name.
//! fs.fsync(&waiter, file)?;
//! // Dropping it closes it, too, and waits for nothing.
//! open.close(&waiter)?;
//!
//! let mut bytes = [0; 100];
//! let length = fs.read(&waiter, fs.resolve(b"notes")?, 0, Target::Bytes(&mut bytes))?;
//! assert_eq!(&bytes[..length as usize], b"written out of place");
//! fs.sync(&waiter)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//! `insides` exports the modules of the on-disk format, the space accounting and the store to
//! the programs and tests of this workspace. They change with every version.

#![forbid(unsafe_code)]

pub mod drive;
mod fs;
pub mod fsck;
/// Modules that programs outside this workspace do not need, except for the types exported below.
#[path = "."]
#[cfg_attr(
    not(feature = "insides"),
    allow(dead_code, unused_imports, reason = "only the workspace uses all of it")
)]
mod insides {
    pub mod dump;
    pub mod format;
    pub mod scan;
    pub mod space;
    pub mod store;
    pub mod superblocks;
}
pub mod make;
pub mod rebuild;
pub mod waiter;

pub use format::{Attributes, Entry, FileKind, Position};
pub use fs::*;
#[cfg(feature = "insides")]
pub use insides::{dump, format, scan, space, store, superblocks};
#[cfg(not(feature = "insides"))]
use insides::{dump, format, scan, space, store, superblocks};
pub use scan::Depth;
pub use space::{Lifetime, ZoneOrder};

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a block, the unit of file maps and zone accounts.
pub const BLOCK_BYTES: u32 = 4096;

/// Sectors of a block.
pub const BLOCK_SECTORS: u32 = BLOCK_BYTES / 512;

/// Number of shards of state that threads would otherwise contend for: see [`stripe`].
const STRIPES: usize = 4;

/// Shard of the calling thread. It never changes, and few other threads use it.
fn stripe() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static STRIPE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    STRIPE.with(|stripe| *stripe)
}

/// Returns the shard of a file, out of `parts`. Both consecutive numbers and every 64th one are
/// spread over all shards.
fn spread(ino: u64, parts: usize) -> usize {
    (ino.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % parts
}
