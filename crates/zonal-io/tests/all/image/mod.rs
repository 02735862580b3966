//! The image device against power cuts, killed processes, damage and time.

mod corpus;
mod crash;
mod current;
mod damage;
mod drive;
mod golden;
mod kill;
mod model;
mod opening;
mod threads;
