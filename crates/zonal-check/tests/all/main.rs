//! Tests of zonal-check that share a process. `cargo test -p zonal-check --test all MODULE::` runs
//! one module.

mod append;
mod calibrate;
mod cancel;
mod cli;
mod compare;
mod conformance;
mod corners;
mod create;
mod draw;
mod events;
mod experiments;
mod files;
mod hosts;
mod local;
mod nowait;
mod operations;
mod options;
mod owners;
mod park;
mod part;
mod random;
mod reading;
mod recovery;
mod recovery_rows;
mod replay;
mod report_page;
mod results;
mod serve;
mod stat;
mod trees;
mod turned;
mod typed;
mod why;
