//! Measurements common to benchmarks and replays.

mod cpu;
mod dir;
mod latency;
mod samples;
pub mod series;

pub(crate) use cpu::Usage;
pub use dir::Dir;
pub use latency::{HISTOGRAM_MAX, Latency};
pub use samples::Samples;
