//! The tests of zonal-fs that share a process. `cargo test -p zonal-fs --test all MODULE::` runs one module.

mod attributes;
mod buffered;
mod claims;
mod cold;
mod combined_units;
#[path = "../common/mod.rs"]
mod common;
mod corpus;
mod crash;
mod damage;
mod edges;
mod faults;
mod front;
mod fsck;
mod golden;
mod identity;
mod in_place;
mod interleaved;
mod judge;
mod kept_sums;
mod lost_zones;
mod made;
mod many;
mod metadata_size;
mod model;
mod names_at_once;
mod plans;
mod positions;
mod rebuild;
mod room;
mod scrub;
mod small;
mod store;
mod unnamed;
mod worn;
mod wrong_rows;
