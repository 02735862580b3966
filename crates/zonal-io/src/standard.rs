//! Which of the standard streams were closed when the process began.
//!
//! The runtime opens `/dev/null` in the place of a closed one before `main`, so that no other file gets its number. What is read from it
//! then is an empty input that there never was, and what is written to it is lost.

use rustix::fd::BorrowedFd;
use rustix::io::{Errno, fcntl_getfd};
use std::sync::atomic::{AtomicU8, Ordering};

/// A bit for each descriptor.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Standard input.
pub const INPUT: u8 = 0;

/// Standard output.
pub const OUTPUT: u8 = 1;

/// What the loader calls before the runtime begins.
#[used]
// SAFETY: the section is an array of functions without arguments.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for stream in [INPUT, OUTPUT] {
        // SAFETY: only asked about, while no other thread is there to close or open it.
        let descriptor = unsafe { BorrowedFd::borrow_raw(i32::from(stream)) };
        if fcntl_getfd(descriptor) == Err(Errno::BADF) {
            CLOSED.fetch_or(1 << stream, Ordering::Relaxed);
        }
    }
}

/// Whether a stream was closed when the process began.
pub fn was_closed(stream: u8) -> bool {
    // What is not mentioned anywhere may be left out of the program.
    std::hint::black_box(&LOOK);
    CLOSED.load(Ordering::Relaxed) & (1 << stream) != 0
}
