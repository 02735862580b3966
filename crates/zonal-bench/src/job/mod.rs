//! The job language: parses fio's job files and command line options into typed [`JobSpec`]s.
//!
//! Owns the text format, the table of options and the values. Owns no device, no geometry and no
//! clock: a size in zones or percent stays symbolic in an [`Extent`] until a runner resolves it.
//!
//! # Three tables
//! Each option of fio 3.33 is in exactly one of three tables. Any other name is an error.
//! - *supported*: implemented, see [`supported`];
//! - *ignored*: accepted, because it alters neither offsets, sizes, order, timing nor verification,
//!   see [`ignored`];
//! - *refused*: an error, because the runner cannot do what fio does, see [`refused`].
//!
//! # Stricter than fio
//! The parser rejects values that fio misreads: `1.5k` (1 byte in fio), `0x10k` (16 bytes), `2sec`
//! (2 microseconds), `bs= 8k` (8 bytes). An accepted value has the same meaning as in fio, so `kib`
//! is 1000 bytes here too. Otherwise blanks around `=` are accepted.
//!
//! # Example
//! ```
//! use zonal_bench::job::{Extent, JobFile};
//!
//! let file = JobFile::parse("[fill]\nrw=write\nzonemode=zbd\nbs=64k\nsize=10z\n", "fill.fio")?;
//! assert_eq!(file.jobs()[0].spec.size, Extent::Zones(10));
//! # Ok::<(), zonal_bench::job::JobError>(())
//! ```

mod blocks;
mod canonical;
mod draft;
mod engines;
mod environment;
mod error;
mod file;
mod ignored;
mod include;
mod inline;
mod lexer;
mod limits;
mod options;
mod pace;
mod parser;
mod refused;
mod spec;
mod tables;
mod value;

pub use blocks::{BlockMix, BlockShare, PerDirection};
pub use environment::{Environment, Files};
pub use error::{JobError, Limit, Origin, ValueError};
pub use file::{Change, IgnoredUse, Job, JobFile};
pub use ignored::{Except, Ignored, Warn};
pub use limits::*;
pub use options::{Form, Supported, supported};
pub use pace::{Pace, RateProcess, ThinkBlocks};
pub use parser::JobParser;
pub use refused::Refused;
pub use spec::{BlockSize, Direction, Extent, JobSpec, Pattern, Verify, ZoneMode};
pub use tables::{Table, ignored, refused, table_of};

/// Feeds arbitrary bytes to the parser, as a job file and as command line arguments, one per line.
///
/// Entry point for fuzzing: panics if an invariant is broken. Input that parses must print as a
/// text that parses to the same jobs.
pub fn fuzz_job(bytes: &[u8]) {
    let environment = Environment::fixed();
    let mut files = vec![JobParser::new(environment.clone()).parse_one_bytes(bytes, "fuzz")];
    if let Ok(text) = std::str::from_utf8(bytes) {
        files.push(JobFile::parse_inline(text.lines()));
    }
    for file in files.into_iter().flatten() {
        let printed = file.to_canonical();
        match JobParser::new(environment.clone()).parse_one(&printed, "printed") {
            Ok(again) => {
                assert!(file.specs().eq(again.specs()), "the printed form means something else:\n{printed}")
            }
            // Globals are repeated for each job, so a file near a limit may exceed it.
            Err(JobError::TooMany { .. }) => {}
            Err(error) => panic!("the printed form does not parse: {error}\n{printed}"),
        }
    }
}
