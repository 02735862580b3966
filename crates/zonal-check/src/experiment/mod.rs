//! Published experiments, made again on emulated drives.
//!
//! An experiment is a folder of `experiments/`: job files for `zonal bench`, and `experiment.toml`. That file says what
//! is measured (rows), in which ways it is done (variants), and what others have published about it, with the source.
//! The first variant is the one to compare with. See [`spec`] for its keys.
//!
//! All variants of a row are measured in turn, round by round, so that a machine whose speed drifts slows each of them.
//! What can be compared with what was published are the ratios: the absolute numbers are those of other machines.
//!
//! On simulated drives ([`simulated`]) it is the figures themselves, and Linux can make them as well ([`linux`]).

pub mod linux;
mod run;
pub mod simulated;
pub mod spec;
mod table;

pub use run::{Cell, Measured, Scale, run};
pub use spec::{Experiment, SpecError};
