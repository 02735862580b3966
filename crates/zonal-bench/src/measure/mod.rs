//! What is counted and timed, whatever is run.

mod cpu;
mod latency;
mod samples;
pub mod series;

pub(crate) use cpu::Usage;
pub use latency::{HISTOGRAM_MAX, Latency};
pub use samples::Samples;
