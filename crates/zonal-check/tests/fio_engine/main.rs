//! The fio engine, judged by the installed fio. Jobs succeed and their data is written. Failures
//! have the error numbers of a kernel device. `zonal bench` gives equal results for equal job
//! files.
//!
//! Without fio the tests are skipped with a message; in continuous integration that is an error.

mod examples;
mod failures;
mod jobs;
mod licence;
mod parity;
mod support;
