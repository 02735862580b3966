//! `zonal mount` on this machine's kernel: what programs do in a directory, how a mount ends, and what is there afterwards.
//!
//! Needs root and FUSE. `ZONAL_MOUNT_OPS` sets how many operations each run of fsx does,
//! `ZONAL_MOUNT_KILLS` how often one is killed under each
//! program.

mod ends;
mod files;
mod kills;
mod listing;
mod outside;
mod power;
mod programs;
mod scrub;
mod told;
mod trouble;
