//! A file system for zoned drives.
//!
//! Files are written out of place, by zone appends to a few open zones, and a garbage collector makes zones free again. The
//! map from files to zones, and all else that is known of files, lies in rows of an embedded database. Rows survive any cut
//! of power. What was synced is there after a cut, and no file has another file's data.
//!
//! Nothing here reads a clock or sleeps: see [`waiter`].
//!
//! # To begin with
//! [`make`] makes and opens file systems; [`FileSystem`] has what can be done with one. It is shared by cloning it; each thread
//! has a waiter of its own. The caller syncs before it drops the last clone.
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
//! `insides` opens the modules of the format, the space and the database to the programs and tests of the workspace. They change with each
//! version.

#![forbid(unsafe_code)]

pub mod drive;
mod fs;
pub mod fsck;
/// What a program outside does without, but for the types that are exported below.
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

/// Bytes of a block, the unit of files' maps and of zones' accounts.
pub const BLOCK_BYTES: u32 = 4096;

/// Sectors of a block.
pub const BLOCK_SECTORS: u32 = BLOCK_BYTES / 512;

/// How many parts there are of what threads would take from each other: see [`stripe`].
const STRIPES: usize = 4;

/// The part that the calling thread uses: always the same, and few other threads use it.
fn stripe() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static STRIPE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    STRIPE.with(|stripe| *stripe)
}

/// Which of `parts` a file belongs to. Files that are made one after the other, and every 64th of them, are spread over all.
fn spread(ino: u64, parts: usize) -> usize {
    (ino.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % parts
}
