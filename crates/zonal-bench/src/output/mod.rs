//! Reports as text, as JSON and as a table.

mod json;
mod quantity;
mod table;
mod text;

pub use json::Detail;
pub use table::{Comparison, Row};

/// A number of bytes for people.
pub(crate) fn binary(bytes: u64) -> String {
    quantity::quantity(bytes as f64, quantity::Prefixes::Binary, "B")
}
