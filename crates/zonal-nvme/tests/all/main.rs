//! Tests of zonal-nvme that share a process. `cargo test -p zonal-nvme --test all MODULE::` runs
//! one module.

mod abort;
mod admin;
mod bounds;
mod conformance;
mod exceptions;
mod fuzz;
#[path = "../host/mod.rs"]
mod host;
mod killed;
mod remote;
mod replay;
mod server;
mod session;
mod wire;
