//! Reports as text, as JSON, as a table and as a page.

mod html;
mod json;
mod quantity;
mod table;
mod text;

pub use html::About;
pub use json::Detail;
pub use table::{Comparison, Row};

/// A number of bytes for people.
pub(crate) fn binary(bytes: u64) -> String {
    quantity::quantity(bytes as f64, quantity::Prefixes::Binary, "B")
}
