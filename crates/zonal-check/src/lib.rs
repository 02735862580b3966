//! Whole-stack checks of the other crates: hazards, promises, command line, speed.
//!
//! The checks are the tests of this crate; the library holds the code that several of them share.
//!
//! - [`mod@bench`]: speed and memory of the write path, as tables.
//! - [`experiment`]: published experiments, repeated.
//! - [`guest`]: a Linux guest that attaches drives served by the program.
//! - [`program`]: the built command line.
//! - [`script`]: a scripted device that checks its commands.
//! - [`rig`]: a volume on such a device, with a record of completed requests.
//! - [`suite`]: test programs of the workspace, and their times.

pub mod bench;
pub mod experiment;
pub mod guest;
pub mod program;
pub mod rig;
pub mod script;
pub mod suite;
