//! Reports as text, as JSON and as a table.

mod json;
mod quantity;
mod table;
mod text;

pub use json::Detail;
pub use table::{Comparison, Row};
