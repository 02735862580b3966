//! The database of rows on each kind of storage: what it keeps over power cuts, and what it does when it is full.

mod cuts;
mod log;
mod pieces;
mod rig;
