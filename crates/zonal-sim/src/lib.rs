//! Timing models of zoned drives: an SMR disk, a ZNS SSD, a zoned UFS device.
//!
//! A [`Model`] determines when a drive completes a command; it has no payload and no zone states. A
//! [`Timed`] device adds a model to any other device, which determines the result of a command.
//! Around an image, it slows the image down to the drive's speed in real time. Around a null
//! device, it is a complete simulated drive in virtual time, advanced by its caller. Nothing here
//! reads a clock, and the same write path drives both.
//!
//! The parameters of a drive are a [`Profile`], a file with a source for each value.
#![forbid(unsafe_code)]

pub mod checked;
pub mod engine;
pub mod executor;
pub mod flash;
pub mod hibernation;
pub mod model;
pub mod profile;
mod registry;
mod remote;
pub mod smr;
mod timed;

pub use checked::{Checked, Concurrency};
pub use executor::{Executor, Timeline};
pub use hibernation::Hibernation;
pub use model::{Job, Model, Tag, Totals};
pub use profile::{Aspect, CalibratedRuns, Profile, ProfileError, Quantity, Standing, Workload};
pub use registry::{NAME_OPTIONS, register};
pub use remote::Remote;
pub use timed::Timed;
