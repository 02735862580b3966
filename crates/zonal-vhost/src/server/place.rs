//! Listening socket of a server, with its socket file.

use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Front ends that can wait for the current one to leave.
const BACKLOG: i32 = 16;

/// Interval between attempts to take the lock.
const TURN_PAUSE: Duration = Duration::from_millis(2);

/// Number of attempts: one second in total.
const TURN_ATTEMPTS: u32 = 500;

/// Listening socket file, removed on drop.
#[derive(Debug)]
pub struct VhostListener {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode, to recognise a file that was replaced.
    identity: (u64, u64),
}

impl VhostListener {
    /// Listens at `path`, with access for this user only (mode 0600). Replaces a stale socket that
    /// no process listens on.
    ///
    /// # Errors
    /// [`ErrorKind::AddrInUse`] if a process listens there, [`ErrorKind::AlreadyExists`] if there
    /// is a file other than a socket, and errors of the operating system.
    pub fn bind(path: &Path) -> io::Result<VhostListener> {
        let address = SocketAddrUnix::new(path)?;
        let _turn = bind_lock(path);
        remove_stale(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The file inherits the mode of the socket, so others can never connect.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        bind(&socket, &address)?;
        let meta = path.symlink_metadata()?;
        let identity = (meta.dev(), meta.ino());
        let listener = VhostListener { listener: socket.into(), path: path.to_owned(), identity };
        listen(&listener.listener, BACKLOG)?;
        Ok(listener)
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn socket(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for VhostListener {
    fn drop(&mut self) {
        let is_own = |meta: std::fs::Metadata| (meta.dev(), meta.ino()) == self.identity;
        if self.path.symlink_metadata().is_ok_and(is_own) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Serialises servers that start simultaneously, by a lock on the socket's directory until the
/// result is dropped. A socket that is bound but not yet listening would look stale to another
/// server. If the lock cannot be taken in [`TURN_ATTEMPTS`], because another program holds it or
/// the directory is not readable, the server starts regardless.
fn bind_lock(path: &Path) -> Option<File> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(directory.unwrap_or(Path::new("."))).ok()?;
    for _ in 0..TURN_ATTEMPTS {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(directory),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(TURN_PAUSE),
            Err(_) => return None,
        }
    }
    None
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(meta) = path.symlink_metadata() else { return Ok(()) };
    let error = |kind, what: &str| Err(io::Error::new(kind, format!("{}: {what}", path.display())));
    if !meta.file_type().is_socket() {
        return error(ErrorKind::AlreadyExists, "exists and is not a socket");
    }
    match UnixStream::connect(path) {
        Ok(_) => error(ErrorKind::AddrInUse, "a process listens there"),
        Err(refused) if refused.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_is_private_and_removed_with_its_listener() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vhost");
        let listener = VhostListener::bind(&path).unwrap();
        assert_eq!(path.symlink_metadata().unwrap().mode() & 0o7777, 0o600);
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn living_socket_and_file_are_refused_and_stale_socket_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vhost");
        std::fs::write(&path, "text").unwrap();
        assert_eq!(VhostListener::bind(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
        std::fs::remove_file(&path).unwrap();
        // A standard listener leaves its file behind.
        drop(UnixListener::bind(&path).unwrap());
        let listener = VhostListener::bind(&path).unwrap();
        assert_eq!(VhostListener::bind(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(listener);
    }

    #[test]
    fn of_servers_that_start_at_once_one_listens() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vhost");
        for _ in 0..50 {
            drop(UnixListener::bind(&path).unwrap());
            let bind = || {
                std::thread::scope(|scope| {
                    let threads = [(); 4].map(|()| scope.spawn(|| VhostListener::bind(&path)));
                    threads.map(|thread| thread.join().unwrap())
                })
            };
            let listeners = bind();
            assert_eq!(listeners.iter().filter(|listener| listener.is_ok()).count(), 1, "{listeners:?}");
            drop(listeners);
        }
    }

    #[test]
    fn lock_of_another_program_keeps_no_server_from_starting() {
        let directory = tempfile::tempdir().unwrap();
        let others = File::open(directory.path()).unwrap();
        flock(&others, FlockOperation::LockExclusive).unwrap();
        assert!(VhostListener::bind(&directory.path().join("vhost")).is_ok());
    }

    #[test]
    fn file_of_a_later_listener_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vhost");
        let first = VhostListener::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _second = VhostListener::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
    }
}
