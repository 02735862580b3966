//! A volume as a SCSI disk of a virtual machine: a vhost-user-scsi back end.
//!
//! The virtual machine monitor, called front end, connects to a socket ([`server`]). It says where the guest's memory is and where
//! the rings lie that the guest's driver has made ([`session`]). [`queue`] takes the guest's commands out of these [`ring`]s, hands
//! them to the disk of `zonal-scsi`, and gives the answers back. [`memory`] is the guest's memory, mapped: a read of the guest is
//! written into its pages by the device itself. [`wire`] has the formats.
//!
//! All of it but [`server`] works without a socket, a thread or a clock.
//!
//! Sources: QEMU's vhost-user specification; Virtual I/O Device (VIRTIO) 1.3, whose sections are cited as `VIRTIO`; SCSI Architecture
//! Model 6 (`SAM`). What is left out stands in `exceptions.txt`, with the reason.
//!
//! # Why the formats are written here
//! The crates of rust-vmm have them as well, and are well kept. `vhost-user-backend` owns the threads and the event loop, which here
//! have to sleep on the volume too. `vhost` alone answers each message inside of a call of its reader. But the answer to GET_VRING_BASE
//! has to wait for requests in flight, while the same thread moves them on. `virtio-queue` ends a chain that is wrong as if it were
//! complete, and writes a line to a log; here the ring has to stop. What would be left is about 400 lines of structures and
//! address arithmetic, for five more packages.

#![deny(unsafe_code)]

pub mod connection;
#[allow(unsafe_code)]
pub mod memory;
pub mod queue;
pub mod ring;
pub mod server;
pub mod session;
pub mod wire;
