//! Detection of standard streams that were closed when the process started.
//!
//! Before `main`, the runtime opens `/dev/null` in place of a closed stream so that no other file
//! gets its number. Reading from it would silently return empty input, and output to it would be
//! lost.

use rustix::fd::BorrowedFd;
use rustix::io::{Errno, fcntl_getfd};
use std::sync::atomic::{AtomicU8, Ordering};

/// One bit per descriptor.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// A standard stream, by its descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// Standard input.
    Input = 0,
    /// Standard output.
    Output = 1,
}

/// A standard stream that was closed when the process started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("standard {} is closed", match .0 { Stream::Input => "input", Stream::Output => "output" })]
pub struct Closed(pub Stream);

/// Called by the loader before the runtime starts.
#[used]
// SAFETY: the section is an array of functions without arguments.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for stream in [Stream::Input, Stream::Output] {
        // SAFETY: only queried, before any other thread exists that could close or open it.
        let descriptor = unsafe { BorrowedFd::borrow_raw(stream as i32) };
        if fcntl_getfd(descriptor) == Err(Errno::BADF) {
            CLOSED.fetch_or(1 << stream as u8, Ordering::Relaxed);
        }
    }
}

/// Fails if a stream was closed when the process started.
///
/// # Errors
/// [`Closed`].
pub fn check(stream: Stream) -> Result<(), Closed> {
    // Keeps the linker from dropping the static as unused.
    std::hint::black_box(&LOOK);
    match CLOSED.load(Ordering::Relaxed) & (1 << stream as u8) {
        0 => Ok(()),
        _ => Err(Closed(stream)),
    }
}
