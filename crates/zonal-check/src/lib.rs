//! Whole-stack checks of the other crates: hazards, promises, command line, speed.
//!
//! The checks are this crate's tests; the library holds what several of them need.
//!
//! - [`mod@bench`]: the tables of the write path's speed and memory.
//! - [`experiment`]: published experiments, made again.
//! - [`guest`]: a Linux that attaches what the program serves.
//! - [`program`]: the built command line.
//! - [`script`]: a device that does what a test tells it, and watches what it is asked.
//! - [`rig`]: a volume on such a device, with everything that ended.
//! - [`suite`]: the test programs of the workspace, and their times.

pub mod bench;
pub mod experiment;
pub mod guest;
pub mod program;
pub mod rig;
pub mod script;
pub mod suite;
