//! Pure model of zoned storage: units, geometry, zone states, write plugs, zone budget, scheduler.
//!
//! Everything here is a value or a `&mut self` state machine: no I/O, clocks, threads, atomics or
//! payload. The crate works on zones, offsets, lengths and tokens only, so that the production
//! write path and the simulation make the same decisions.

#![forbid(unsafe_code)]

/// Defines builder-style setters for an options type.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($options:ident $($(#[$about:meta])* $with:ident $field:ident: $type:ty;)*) => {
        impl $options {
            $(
                $(#[$about])*
                #[must_use]
                pub fn $with(mut self, $field: $type) -> $options {
                    self.$field = $field.into();
                    self
                }
            )*
        }
    };
}

pub mod budget;
pub mod command;
pub mod device;
pub mod error;
pub mod geometry;
pub mod plug;
pub mod scheduler;
pub mod units;
pub mod zone;

pub use command::Op;
pub use error::{DeviceError, RequestError, ZoneError};
pub use geometry::{Geometry, GeometryError};
pub use units::{Nanos, SECTOR_BYTES, Sector, Sectors, ZoneIndex};
pub use zone::{Personality, ZoneCondition, ZoneDescriptor, ZoneType};

/// Returns the graph under the heading `title` in docs/STATES.md, which tests compare with the
/// code.
#[cfg(test)]
fn drawn_states(title: &str) -> &'static str {
    let page = include_str!("../../../docs/STATES.md");
    let (_, after) = page.split_once(&format!("\n{title}\n")).expect("the page has this title");
    let (_, graph) = after.split_once("```mermaid\nstateDiagram-v2\n").expect("a graph follows it");
    graph.split_once("```").expect("the graph ends").0
}
