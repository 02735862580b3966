//! Reports as text, JSON, comparison table and HTML page.

mod columns;
mod compared;
mod html;
mod json;
mod quantity;
mod table;
mod text;

pub use columns::columns;
pub use html::About;
pub(crate) use html::quantities;
pub use json::Detail;
pub use table::{Comparison, Row};

/// Appends a line to a string, which cannot fail.
macro_rules! line {
    ($text:expr, $($argument:tt)*) => {{
        use std::fmt::Write as _;
        let _ = writeln!($text, $($argument)*);
    }};
}

pub(crate) use line;

/// Formats bytes in human-readable form.
pub(crate) fn binary(bytes: u64) -> String {
    quantity::quantity(bytes as f64, quantity::Prefixes::Binary, "B")
}
