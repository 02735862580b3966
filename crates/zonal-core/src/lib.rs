//! Pure model of zoned storage: units, geometry, zone states, write plugs, zone budget, scheduler.
//!
//! Everything here is a value or a `&mut self` state machine. There is no I/O, no clock, no thread, no atomic and no
//! payload byte: the crate deals in zone, offset, length and token, so that the shipping write path and a simulation
//! run the very same decisions.

#![forbid(unsafe_code)]

/// Makes the setters of a type of options, each of which returns the options with one field set.
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

/// Arrows of the graph that follows the line `title` in docs/STATES.md, which tests draw again from the code.
#[cfg(test)]
fn drawn_states(title: &str) -> &'static str {
    let page = include_str!("../../../docs/STATES.md");
    let (_, after) = page.split_once(&format!("\n{title}\n")).expect("the page has this title");
    let (_, graph) = after.split_once("```mermaid\nstateDiagram-v2\n").expect("a graph follows it");
    graph.split_once("```").expect("the graph ends").0
}
