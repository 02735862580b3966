//! The fio engine, judged by the fio that is installed. Jobs end without errors and with what they wrote. Failures have
//! the numbers that a kernel's device would give. `zonal bench` does the same with the same job files.
//!
//! Where fio is not installed the tests say that they skip; in continuous integration that is an error.

mod examples;
mod failures;
mod jobs;
mod licence;
mod parity;
mod support;
