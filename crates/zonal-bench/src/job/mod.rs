//! The job language: fio's job files and inline options, read into typed [`JobSpec`]s.
//!
//! Owns the text format, the table of options and the values. Owns no device, no geometry and no clock: a size in
//! zones or in percent stays symbolic in an [`Extent`] until a runner resolves it.
//!
//! # Three tables
//! Each option name of fio 3.33 is in exactly one of them, and a name in none of them is an error:
//! - *supported*: acted upon, see [`supported`];
//! - *ignored*: accepted, because it alters neither offsets, sizes, order, timing nor verification, see [`ignored`];
//! - *refused*: an error, because obeying fio would need what the runner does not have, see [`refused`].
//!
//! # Stricter than fio
//! Where fio reads a value as something else than it says, this parser refuses it: `1.5k` (1 byte in fio), `0x10k`
//! (16 bytes), `2sec` (2 microseconds), `bs= 8k` (8 bytes). A value that is accepted means what fio means by it, so
//! `kib` is 1000 bytes here too. Blanks around `=` are accepted otherwise.
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
pub use ignored::{Except, Ignored, Told};
pub use limits::*;
pub use options::{Form, Supported, supported};
pub use pace::{Pace, RateProcess, ThinkBlocks};
pub use parser::JobParser;
pub use refused::Refused;
pub use spec::{BlockSize, Direction, Extent, JobSpec, Pattern, Verify, ZoneMode};
pub use tables::{Table, ignored, refused, table_of};

/// Feeds any bytes to the parser, as a job file and as command line arguments, one a line.
///
/// For fuzzing: does nothing but panic when an invariant is broken. What parses must print to a text that parses to
/// the same jobs.
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
            // Globals are printed once a job, so a file near a limit may pass it.
            Err(JobError::TooMany { .. }) => {}
            Err(error) => panic!("the printed form does not parse: {error}\n{printed}"),
        }
    }
}
