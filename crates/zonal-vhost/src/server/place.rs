//! Where a server listens: a socket file of its own.

use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Front ends that wait for the one before them to leave.
const BACKLOG: i32 = 16;

/// Time between two attempts of a server to have its turn.
const TURN_PAUSE: Duration = Duration::from_millis(2);

/// Attempts: a second in all.
const TURN_ATTEMPTS: u32 = 500;

/// A socket file on which a server listens. The file is removed with it.
#[derive(Debug)]
pub struct VhostListener {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode, by which another's file is known.
    identity: (u64, u64),
}

impl VhostListener {
    /// Listens at `path`. The file is its user's alone (mode 0600). A socket there on which no process listens is replaced.
    ///
    /// # Errors
    /// [`ErrorKind::AddrInUse`] if a process listens there, [`ErrorKind::AlreadyExists`] if there is a file that is no socket, and the
    /// operating system's.
    pub fn bind(path: &Path) -> io::Result<VhostListener> {
        let address = SocketAddrUnix::new(path)?;
        let _turn = turn(path);
        remove_stale(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The file gets the mode of the socket, so at no moment others may connect.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        bind(&socket, &address)?;
        let meta = path.symlink_metadata()?;
        let identity = (meta.dev(), meta.ino());
        let listener = VhostListener { listener: socket.into(), path: path.to_owned(), identity };
        listen(&listener.listener, BACKLOG)?;
        Ok(listener)
    }

    /// Where it listens.
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

/// Servers that start at once take turns, until this is dropped: between its binding and its listening one looks stale to the other. It
/// is the lock of the socket's directory. Where that cannot be had in [`TURN_ATTEMPTS`], because another program has it or the directory
/// may not be read, the server starts all the same.
fn turn(path: &Path) -> Option<File> {
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
        return error(ErrorKind::AlreadyExists, "there is a file that is no socket");
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
    fn file_is_its_users_alone_and_goes_with_the_listener() {
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
        // A standard listener leaves its file.
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
