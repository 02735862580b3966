//! Rows on each kind of storage: durability across power cuts, and behaviour when
//! full.

mod cuts;
mod log;
mod pieces;
mod rig;
