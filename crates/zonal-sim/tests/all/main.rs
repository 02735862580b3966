//! Tests of zonal-sim in a shared process. `cargo test -p zonal-sim --test all MODULE::` runs one
//! module.

mod checked;
mod hibernation;
mod models;
mod profiles;
