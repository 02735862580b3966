//! Host-managed zoned SCSI disk, without a transport.
//!
//! [`wire`] defines the formats for both sides, [`sense`] the sense codes under their standard
//! names, and [`status`] the mapping from errors to them. [`disk`] is one logical unit over a
//! volume, with the semantics of its commands. [`queue`] executes commands: memory in, memory out,
//! without a socket or a clock. A transport such as virtio-scsi or iSCSI drives it.
//!
//! ```
//! use std::sync::Arc;
//! use zonal_core::Nanos;
//! use zonal_io::Volume;
//! use zonal_io::buffer::{IoBuf, IoBufs};
//! use zonal_io::identity::Identity;
//! use zonal_io::registry::Registry;
//! use zonal_io::volume::VolumeOptions;
//! use zonal_scsi::wire::{Inquiry, cdb_of};
//! use zonal_scsi::{Disk, DiskOptions, Task, TaskQueue, status};
//!
//! let device = Registry::default().open("ram:size=64M,zone_size=1M,zone_nr_conv=4")?;
//! let volume = Arc::new(Volume::open(device, VolumeOptions::default())?);
//! let identity: Identity = "67e55044-10b1-426f-9247-bb680e5fe0c8".parse()?;
//! let disk = Arc::new(Disk::new(volume, DiskOptions::new(identity))?);
//! let mut queue = TaskQueue::new(disk);
//! let inquiry = Inquiry { len: 96.into(), ..Inquiry::default() };
//! queue.submit(Nanos(0), Task {
//!     tag: 7,
//!     lun: 0,
//!     cdb: cdb_of(&inquiry),
//!     data_out: IoBufs::empty(),
//!     data_in: IoBuf::zeroed(96).into(),
//! });
//! let answer = queue.take().expect("an inquiry is answered at once");
//! assert_eq!((answer.tag, answer.status), (7, status::GOOD));
//! assert_eq!(answer.data_in.pieces()[0][0], 0x14, "a host-managed zoned disk");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Citations: `SAM` is SAM-5, `SPC` is SPC-4, `SBC` is SBC-4 and `ZBC` is ZBC-2.

#![forbid(unsafe_code)]

pub mod disk;
pub mod queue;
pub mod sense;
pub mod status;
pub mod wire;
mod work;

pub use disk::{Disk, DiskError, DiskOptions};
pub use queue::{Answer, Task, TaskQueue};
pub use sense::Sense;
pub use wire::Cdb;
