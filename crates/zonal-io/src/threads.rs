//! Starting threads, with errors that name the limits of the operating system.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread. Unlike [`std::thread::spawn`], it does not panic when a limit is reached.
///
/// # Errors
/// Those of the operating system, with the [limits](refused) that may be the cause.
pub fn spawn<R: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<R>> {
    Builder::new().name(name.to_owned()).spawn(work).map_err(refused)
}

/// Adds the possible limits to the error of a thread that cannot be started. The kernel returns
/// EAGAIN for each of them.
pub fn refused(error: io::Error) -> io::Error {
    let limits = "`ulimit -u`, `TasksMax` of a systemd unit, `pids.max` of a cgroup, or `kernel.threads-max`";
    io::Error::new(error.kind(), format!("cannot start a thread: {error}; look at the limits {limits}"))
}
