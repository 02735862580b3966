//! A mount that is served: the kernel's device, and the threads that answer it.

use crate::front::{Front, Log, Options};
use crate::least::{Least, Work};
use crate::maintenance::{Changed, maintain};
use crate::pool::{Next, Pool};
use crate::serve::{Buffer, Serve, request_pool};
use crate::waiter::MountWaiter;
use crate::wire::init::{Agreed, PAGE_BYTES, Wanted, negotiate};
use crate::wire::layout::OutHeader;
use crate::wire::reply;
use crate::wire::request::{Operation, parse};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::IntoBytes;
use zonal_fs::waiter::Polling;
use zonal_fs::{FileSystem, IN_PLACE_BLOCKS_MIN};
use zonal_io::buffer::BufferPool;
use zonal_io::clock::Clock;
use zonal_io::threads;

/// Requests of the page cache under way at most, and direct ones that their callers do not wait for: enough for a deep queue of a
/// drive, and each takes a thread's memory only where the drive makes it wait.
const BACKGROUND: u16 = 128;

/// Pages of a request at most: 4 MiB are several units of a drive.
const PAGES_MAX: u16 = 1024;

/// Where the kernel says how many pages a request may have; before 6.13 it has 256 and does not say so.
const PAGES_LIMIT: &str = "/proc/sys/fs/fuse/max_pages_limit";
const PAGES_DEFAULT: u16 = 256;

/// How a mount is served.
#[derive(Clone)]
pub struct SessionOptions {
    /// What the kernel is shown.
    pub front: Options,
    /// Threads that work or wait for requests, at most.
    pub threads: usize,
    /// After this time, what was changed is durable.
    pub sync_every: Duration,
    /// Where it says what goes wrong.
    pub log: Log,
}

/// A mount that is served.
pub struct Session(Arc<Shared>);

struct Shared {
    device: OwnedFd,
    front: Box<dyn Serve>,
    pool: Pool,
    clock: Clock,
    /// Memory of threads.
    buffers: BufferPool,
    log: Log,
    changed: Arc<Changed>,
    life: Mutex<Life>,
    ended: Condvar,
}

/// What is waited for in the end.
#[derive(Default)]
struct Life {
    /// Threads that have not ended.
    threads: usize,
    /// They are not waited for any more.
    is_given_up: bool,
    /// One has ended in the midst of a request, which nothing will answer.
    has_panicked: bool,
}

/// What a session asks the kernel for.
struct How {
    writeback: bool,
    threads: usize,
    /// Pages of a request at most.
    pages: u16,
}

impl Session {
    /// Serves `fs` on the kernel's device, once the kernel has said what it can.
    ///
    /// # Errors
    /// If the kernel is too old; the operating system's.
    pub fn start(
        device: OwnedFd,
        fs: FileSystem,
        clock: Clock,
        options: SessionOptions,
    ) -> io::Result<Session> {
        let SessionOptions { front, threads, sync_every, log } = options;
        let changed = Arc::<Changed>::default();
        let made = {
            let (fs, changed, log) = (fs.clone(), changed.clone(), log.clone());
            |agreed| Box::new(Front::new(fs, front, agreed, changed, log)) as Box<dyn Serve>
        };
        let how = How { writeback: front.writeback, threads, pages: pages_of(&fs) };
        let session = Session::start_with(device, clock, how, (changed, log), made)?;
        let tended = session.0.clone();
        session.0.spawn("zonal-tend", move || {
            maintain(&fs, &Polling::new(clock), &tended.changed, sync_every, &*tended.log);
        })?;
        Ok(session)
    }

    /// Serves the kernel's device by a server that does the least.
    ///
    /// # Errors
    /// As [`Session::start`].
    pub fn start_least(
        device: OwnedFd,
        clock: Clock,
        work: Work,
        options: &SessionOptions,
    ) -> io::Result<Session> {
        let common = (Arc::default(), options.log.clone());
        let how = How { writeback: options.front.writeback, threads: options.threads, pages: pages_limit() };
        Session::start_with(device, clock, how, common, |agreed| Box::new(Least::new(work, &agreed)))
    }

    fn start_with(
        device: OwnedFd,
        clock: Clock,
        How { writeback, threads, pages }: How,
        (changed, log): (Arc<Changed>, Log),
        make: impl FnOnce(Agreed) -> Box<dyn Serve>,
    ) -> io::Result<Session> {
        let wanted = Wanted { writeback, pages, background: BACKGROUND };
        let agreed = first_request(&device, &wanted)?;
        let payload = agreed.max_write().max(u32::from(agreed.answer.max_pages) * PAGE_BYTES);
        let shared = Arc::new(Shared {
            device,
            front: make(agreed),
            pool: Pool::new(threads),
            clock,
            buffers: request_pool(payload),
            log,
            changed,
            life: Mutex::default(),
            ended: Condvar::new(),
        });
        for _ in 0..shared.pool.first() {
            shared.start()?;
        }
        Ok(Session(shared))
    }

    /// Whether the file system is mounted anywhere. The kernel knows, also while the session has requests to answer.
    pub fn is_mounted(&self) -> bool {
        let mut device = [PollFd::new(&self.0.device, PollFlags::empty())];
        let told = rustix::io::retry_on_intr(|| poll(&mut device, Some(&Timespec::default())));
        told.is_ok() && !device[0].revents().contains(PollFlags::ERR)
    }

    /// Waits until the directory is unmounted and all requests are answered.
    pub fn join(&self) {
        let mut life = self.0.life.lock();
        while life.threads > 0 && !life.is_given_up {
            self.0.ended.wait(&mut life);
        }
    }

    /// The same, for at most so long; whether it is over.
    pub fn join_for(&self, longest: Duration) -> bool {
        let mut life = self.0.life.lock();
        if life.threads > 0 {
            self.0.ended.wait_for(&mut life, longest);
        }
        life.threads == 0
    }

    /// Whether a thread has ended in the midst of a request. The others are not waited for then: the end of the process tells callers.
    pub fn has_panicked(&self) -> bool {
        self.0.life.lock().has_panicked
    }

    /// Waits no longer: programs still have the directory open, though it is mounted no more. They lose it when the process ends.
    pub fn give_up(&self) {
        self.0.life.lock().is_given_up = true;
        self.0.ended.notify_all();
    }
}

fn pages_limit() -> u16 {
    let said = std::fs::read_to_string(PAGES_LIMIT).ok().and_then(|text| text.trim().parse().ok());
    said.unwrap_or(PAGES_DEFAULT).clamp(1, PAGES_MAX)
}

/// Pages of a request at most: where units are long, what the kernel writes at once is a unit, which the drive takes from where it lies.
fn pages_of(fs: &FileSystem) -> u16 {
    let unit = fs.superblock().unit_blocks - 1;
    match u16::try_from(unit) {
        Ok(pages) if unit >= IN_PLACE_BLOCKS_MIN => pages_limit().min(pages),
        _ => pages_limit(),
    }
}

/// Answers the request that comes before all others.
pub(crate) fn first_request(device: &OwnedFd, wanted: &Wanted) -> io::Result<Agreed> {
    let mut memory = vec![0; 16 << 10];
    let length = loop {
        match rustix::io::read(device, &mut *memory) {
            Ok(length) => break length,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let request = parse(&memory[..length], true).map_err(io::Error::other)?;
    let Operation::Init(asked) = request.operation else {
        return Err(io::Error::other("the kernel does not say first which FUSE it speaks"));
    };
    let unique = request.header.unique;
    let answer = |head: OutHeader, body: &[u8]| {
        rustix::io::writev(device, &[IoSlice::new(head.as_bytes()), IoSlice::new(body)]).map(|_| ())
    };
    match negotiate(&asked, wanted) {
        Ok(agreed) => {
            let body = agreed.answer.as_bytes();
            answer(reply::header(unique, body.len()), body)?;
            Ok(agreed)
        }
        Err(why) => {
            answer(reply::error(unique, Errno::PROTO.raw_os_error()), &[])?;
            Err(io::Error::other(why))
        }
    }
}

impl Shared {
    /// Starts a thread that is counted as active.
    fn start(self: &Arc<Self>) -> io::Result<()> {
        let shared = self.clone();
        self.spawn("zonal-fuse", move || shared.work()).inspect_err(|_| self.pool.gone())
    }

    fn spawn(self: &Arc<Self>, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let counted = Counted::new(self);
        threads::spawn(name, move || {
            let _counted = counted;
            work();
        })?;
        Ok(())
    }

    fn work(self: &Arc<Self>) {
        let mut buffer = Buffer::new(&self.buffers);
        let start = || {
            // Without another thread requests wait until this one is back.
            if let Err(error) = self.start() {
                (self.log)(&error.to_string());
            }
        };
        let waiter = MountWaiter::new(self.clock, &self.pool, &start);
        while self.pool.next() == Next::Read {
            let served = match rustix::io::read(&self.device, buffer.for_request()) {
                Ok(length) => self.front.serve(&self.device, &mut buffer, length, &waiter),
                // A request was taken back before it was read.
                Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => Ok(()),
                Err(error) => Err(error.into()),
            };
            if let Err(error) = served {
                // So the kernel says that the directory is unmounted.
                let gone = [Errno::NODEV, Errno::CONNABORTED].map(|errno| Some(errno.raw_os_error()));
                if !gone.contains(&error.raw_os_error()) {
                    (self.log)(&format!("the kernel's device: {error}"));
                }
                self.pool.end();
                self.changed.end();
                return;
            }
        }
    }
}

/// A thread of a session.
struct Counted(Arc<Shared>);

impl Counted {
    fn new(shared: &Arc<Shared>) -> Counted {
        shared.life.lock().threads += 1;
        Counted(shared.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut life = self.0.life.lock();
        life.threads -= 1;
        if std::thread::panicking() {
            (life.has_panicked, life.is_given_up) = (true, true);
        }
        if life.threads == 0 || life.is_given_up {
            self.0.ended.notify_all();
        }
    }
}
