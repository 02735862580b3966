//! Workloads in fio's job language, run through the write path and verified.

#![forbid(unsafe_code)]

pub mod job;
