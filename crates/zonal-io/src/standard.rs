//! Which of the standard streams were closed when the process began.
//!
//! The runtime opens `/dev/null` in the place of a closed one before `main`, so that no other file gets its number. What is read from it
//! then is an empty input that there never was, and what is written to it is lost.

use rustix::fd::BorrowedFd;
use rustix::io::{Errno, fcntl_getfd};
use std::sync::atomic::{AtomicU8, Ordering};

/// A bit for each descriptor.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// A standard stream, by its descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// Standard input.
    Input = 0,
    /// Standard output.
    Output = 1,
}

/// A standard stream that was closed when the process began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("standard {} is closed", match .0 { Stream::Input => "input", Stream::Output => "output" })]
pub struct Closed(pub Stream);

/// What the loader calls before the runtime begins.
#[used]
// SAFETY: the section is an array of functions without arguments.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for stream in [Stream::Input, Stream::Output] {
        // SAFETY: only asked about, while no other thread is there to close or open it.
        let descriptor = unsafe { BorrowedFd::borrow_raw(stream as i32) };
        if fcntl_getfd(descriptor) == Err(Errno::BADF) {
            CLOSED.fetch_or(1 << stream as u8, Ordering::Relaxed);
        }
    }
}

/// An error if a stream was closed when the process began.
///
/// # Errors
/// [`Closed`].
pub fn check(stream: Stream) -> Result<(), Closed> {
    // What is not mentioned anywhere may be left out of the program.
    std::hint::black_box(&LOOK);
    match CLOSED.load(Ordering::Relaxed) & (1 << stream as u8) {
        0 => Ok(()),
        _ => Err(Closed(stream)),
    }
}
