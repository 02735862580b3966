//! `zonal mount` on this machine's kernel: operations of programs in a directory, ends of mounts,
//! and the state afterwards.
//!
//! Needs root and FUSE. `ZONAL_MOUNT_OPS` sets the number of operations of each run of fsx,
//! `ZONAL_MOUNT_KILLS` the number of kills under each program.

mod ends;
mod files;
mod kills;
mod listing;
mod outside;
mod power;
mod programs;
mod requests;
mod scrub;
mod told;
mod trouble;
