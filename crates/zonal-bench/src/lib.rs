//! Benchmarks in fio's job language, run through the write path and verified.
//!
//! [`job`] parses the language, [`workload`] generates the requests of a job, [`run()`] executes
//! them and [`verify`] reads acknowledged writes back. The result is a [`Report`]. [`simulate()`]
//! does all that for a simulated drive in one call. [`calibrate`] derives the profile of a drive
//! from a few such runs.

#![forbid(unsafe_code)]

pub mod calibrate;
pub mod compare;
mod error;
pub mod job;
mod jobs;
mod measure;
mod output;
pub mod replay;
mod report;
mod simulate;

pub use error::{BenchError, OpenerError, PlanError};
pub use jobs::plan::{BUFFER_BYTES_MAX, Plan, WorkerPlan};
pub use jobs::run::{BenchOptions, FilesOptions, MetadataPlace, Opener, Reopen, as_a_kernel, run};
pub use jobs::workload::HostRules;
pub use jobs::{verify, workload};
pub use measure::{Dir, HISTOGRAM_MAX, Latency, Samples, series};
pub use output::{About, Comparison, Detail, Row, columns};
pub use report::{Depths, DirReport, Ended, Failure, FilesReport, JobReport, Lack, ModeReport, Report};
pub use simulate::{SimulateError, simulate};
