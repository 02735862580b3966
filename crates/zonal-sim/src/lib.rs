//! Timing models of zoned drives: an SMR disk, a ZNS SSD, a zoned UFS device.
//!
//! A [`Model`] says when a drive answers what it was given; it knows no payload and no zone states. A [`Timed`] device
//! puts a model around any other device, which says how the answer looks. Around an image it slows the image down to the
//! drive's pace in real time; around a null device it is a whole simulated drive, which is as far as the time that it is told.
//! Nothing here reads a clock: the very same write path drives both.
//!
//! What a drive is made of is a [`Profile`], a file in which each value names its source.
#![forbid(unsafe_code)]

pub mod checked;
pub mod engine;
pub mod executor;
pub mod flash;
pub mod model;
pub mod profile;
mod registry;
pub mod smr;
mod timed;

pub use checked::{Checked, Company};
pub use executor::{Executor, Timeline};
pub use model::{Job, Model, Tag, Totals};
pub use profile::{Profile, ProfileError, Quantity, Standing};
pub use registry::register;
pub use timed::Timed;
