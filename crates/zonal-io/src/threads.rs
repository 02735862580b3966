//! Start of threads, with errors that name the limits of the operating system.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread. Unlike [`std::thread::spawn`] it does not panic at a limit.
///
/// # Errors
/// The operating system's, with the [limits](refused) behind it.
pub fn spawn<R: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<R>> {
    Builder::new().name(name.to_owned()).spawn(work).map_err(refused)
}

/// Adds the limits to the error of a thread that cannot be started. The kernel answers EAGAIN for each of them.
pub fn refused(error: io::Error) -> io::Error {
    let limits = "`ulimit -u`, `TasksMax` of a systemd unit, `pids.max` of a cgroup, or `kernel.threads-max`";
    io::Error::new(error.kind(), format!("cannot start a thread: {error}; look at the limits {limits}"))
}
