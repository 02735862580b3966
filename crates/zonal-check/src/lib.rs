//! Whole-stack checks of the other crates: hazards, promises, command line.
//!
//! - [`script`]: a device that does what a test tells it, and watches what it is asked.
//! - [`rig`]: a volume on such a device, with everything that ended.

pub mod rig;
pub mod script;
