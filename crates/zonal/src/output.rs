//! Buffered standard output that distinguishes a closed pipe from other errors.

use std::io::{self, BufWriter, StdoutLock, Write};

/// Marker of a write error caused by a standard output without readers.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
pub(crate) struct ClosedPipe;

/// Buffered standard output.
pub(crate) struct Output {
    inner: BufWriter<StdoutLock<'static>>,
}

impl Output {
    pub(crate) fn stdout() -> Output {
        Output { inner: BufWriter::with_capacity(64 << 10, io::stdout().lock()) }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes).map_err(tell)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush().map_err(tell)
    }
}

fn tell(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(io::ErrorKind::BrokenPipe, ClosedPipe),
        // `write_all` retries these.
        io::ErrorKind::Interrupted => error,
        kind => io::Error::new(kind, format!("standard output: {error}")),
    }
}
