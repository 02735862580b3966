//! Tests of zonal-io that share a process. `cargo test -p zonal-io --test all MODULE::` runs one
//! module.

mod callers;
mod image;
