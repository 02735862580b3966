//! The image device against power cuts, killed processes, damage and time.

mod crash;
mod drive;
mod model;
