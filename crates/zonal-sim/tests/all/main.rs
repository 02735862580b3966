//! The tests of zonal-sim that share a process. `cargo test -p zonal-sim --test all MODULE::` runs one module.

mod checked;
mod models;
mod profiles;
