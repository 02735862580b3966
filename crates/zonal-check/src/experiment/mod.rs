//! Published experiments, repeated on emulated drives.
//!
//! An experiment is a directory of `experiments/`: job files for `zonal bench`, and
//! `experiment.toml`, which lists the measurements (rows), the ways to run them (variants), and the
//! published figures with their source. The first variant is the baseline. See [`spec`] for the
//! keys.
//!
//! All variants of a row are measured in turn, round by round, so that drift of the machine's speed
//! affects all of them. Only ratios can be compared with the published ones, because the absolute
//! numbers are those of other machines.
//!
//! On simulated drives ([`simulated`]) the figures themselves are comparable, and Linux can repeat
//! them as well ([`linux`]).

pub mod linux;
mod run;
pub mod simulated;
pub mod spec;
mod table;

pub use run::{Cell, Measured, Scale, run};
pub use spec::{Experiment, SpecError};
