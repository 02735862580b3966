//! Tests of the image device: power cuts, killed processes, damage, and performance.

mod badblocks;
mod corpus;
mod crash;
mod current;
mod damage;
mod drive;
mod golden;
mod kill;
mod model;
mod opening;
mod parts;
mod threads;
