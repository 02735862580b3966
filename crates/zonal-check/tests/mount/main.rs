//! `zonal mount` on this machine's kernel: what programs do in a directory, how a mount ends, and what is there afterwards.
//!
//! Needs root and FUSE. `ZONAL_MOUNT_OPS` sets how many operations each run of fsx does.

mod ends;
mod files;
mod listing;
mod mounted;
mod outside;
