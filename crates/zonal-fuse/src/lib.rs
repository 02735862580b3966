//! Mounts of [`zonal_fs`], on any Linux with FUSE.
//!
//! - [`wire`] is the protocol: parses requests and encodes replies, without I/O.
//! - [`mount`] attaches to a directory and detaches from it.
//! - [`probe`] tests if the kernel honours synchronous writes on a write-back mount.
//! - [`front`] answers each request with calls of the file system.
//! - [`scrub`] reads and verifies everything, at a limited share of the drive's time.
//! - [`session`] owns the kernel's device and the threads: it reads requests, passes them to the
//!   front, and runs maintenance of the file system.
//!
//! `serve` is the interface between a thread and its server; `waiter` and `pool` let other threads
//! work while one sleeps; `maintenance` syncs; `least` is the baseline of benchmarks.
//!
//! # Ownership
//! The kernel is the only caller of the file system, so it may cache names and attributes
//! indefinitely. With [`Options::writeback`](front::Options::writeback) it owns the sizes and times
//! of files being written and reports them when it is done. Locks, positions of appends,
//! permissions and the rules of sticky directories are up to the kernel.
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
