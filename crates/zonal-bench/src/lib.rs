//! Workloads in fio's job language, run through the write path and verified.
//!
//! [`job`] reads the language, [`workload`] draws the requests of a job, [`run()`] executes them in real time and
//! [`verify`] reads back what was acknowledged. Results are a [`Report`]. [`calibrate`] makes the profile of a drive from a few
//! such runs.

#![forbid(unsafe_code)]

pub mod calibrate;
mod error;
mod files;
pub mod job;
mod latency;
mod output;
mod plan;
mod progress;
pub mod replay;
mod report;
mod run;
pub mod series;
pub mod verify;
pub mod workload;

pub use error::{BenchError, OpenerError, PlanError};
pub use files::{FilesOptions, FilesReport, MetadataPlace};
pub use latency::{HISTOGRAM_MAX, Latency};
pub use output::{About, Comparison, Detail, Row};
pub use plan::{BUFFER_BYTES_MAX, Plan, WorkerPlan};
pub use report::{Depths, DirReport, Ended, Failure, JobReport, Lack, ModeReport, Report};
pub use run::samples::Samples;
pub use run::{BenchOptions, Opener, Reopen, as_a_kernel, run};
pub use workload::HostRules;
