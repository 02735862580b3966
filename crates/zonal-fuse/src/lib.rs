//! A file system of [`zonal_fs`] as a mount, on any Linux with FUSE.
//!
//! - [`wire`] is the protocol: requests parsed, answers encoded, no I/O.
//! - [`mount`] attaches a directory, and detaches it.
//! - [`probe`] finds out whether the kernel keeps a promise that the page cache makes.
//! - [`front`] answers each request with calls of the file system.
//! - [`scrub`] reads and verifies everything, at a share of the drive's time.
//! - [`session`] owns the kernel's device and the threads: it reads requests, lets the front answer, and tends the file system.
//!
//! `serve` has what a thread and its server have in common, `waiter` and `pool` let others work while a thread sleeps, `maintenance` syncs.
//! `least` is the yardstick of benchmarks.
//!
//! # Who owns what
//! The kernel is one caller of the file system, and the only one: so it may keep names and attributes for ever. With
//! [`Options::writeback`](front::Options::writeback) it owns the sizes and times of files that are being written: it tells them when
//! it is done. Locks, positions of appenders, permissions and the rules of sticky directories are the kernel's.
#![forbid(unsafe_code)]

mod acl;
pub mod front;
pub mod least;
mod maintenance;
pub mod mount;
mod pool;
pub mod probe;
pub mod scrub;
mod serve;
pub mod session;
mod waiter;
pub mod wire;
