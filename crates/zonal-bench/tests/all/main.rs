//! Tests of zonal-bench that share a process. `cargo test -p zonal-bench --test all MODULE::` runs
//! one module.

mod any_jobs;
mod calibrate;
mod compare;
mod files;
mod job_corpus;
mod job_every_option;
mod output;
mod page;
mod replay;
mod rounds;
mod run;
mod series;
mod simulate;
#[path = "../support/mod.rs"]
mod support;
mod trace;
mod verify;
mod virtual_time;
