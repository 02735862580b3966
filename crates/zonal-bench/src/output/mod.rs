//! Reports as text, as JSON, as a table and as a page.

mod html;
mod json;
mod quantity;
mod table;
mod text;

pub use html::About;
pub use json::Detail;
pub use table::{Comparison, Row};
