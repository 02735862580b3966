//! A volume as a SCSI disk of a virtual machine: a vhost-user-scsi back end.
//!
//! The virtual machine monitor, called front end, connects to a socket ([`server`]). It announces
//! the guest's memory and the rings set up by the guest's driver ([`session`]). [`queue`] takes the
//! guest's commands from these [`ring`]s, passes them to the disk of `zonal-scsi`, and returns the
//! answers. [`memory`] maps the guest's memory, so the device reads directly into its pages.
//! [`wire`] defines the formats.
//!
//! Everything except [`server`] works without a socket, a thread or a clock.
//!
//! Sources: QEMU's vhost-user specification; Virtual I/O Device (VIRTIO) 1.3, cited by section as
//! `VIRTIO`; SCSI Architecture Model 6 (`SAM`). `exceptions.txt` lists the clauses that are not
//! implemented, with the reasons.
//!
//! # Why not the rust-vmm crates
//! They are well maintained, but do not fit. `vhost-user-backend` owns the threads and the event
//! loop, which here also have to sleep on the volume. `vhost` alone answers each message within a
//! call of its reader, but the answer to GET_VRING_BASE has to wait for requests in flight, which
//! the same thread drives. `virtio-queue` treats an invalid chain as complete and logs a line,
//! while here the ring has to stop. The remaining savings would be about 400 lines of structures
//! and address arithmetic, for five more packages.

#![deny(unsafe_code)]

pub mod connection;
#[allow(unsafe_code)]
pub mod memory;
pub mod queue;
pub mod ring;
pub mod server;
pub mod session;
pub mod wire;
