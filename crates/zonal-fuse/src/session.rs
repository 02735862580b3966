//! Session of a mount: the kernel's device, and the threads that answer its requests.

use crate::front::{Front, Log, Options};
use crate::least::{Least, Work};
use crate::maintenance::{Changed, maintain};
use crate::pool::{Next, Pool};
use crate::serve::{Buffer, Serve, request_pool};
use crate::waiter::MountWaiter;
use crate::wire::init::{Agreed, PAGE_BYTES, Wanted, negotiate};
use crate::wire::layout::{InHeader, OutHeader};
use crate::wire::reply;
use crate::wire::request::{Operation, parse};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};
use zonal_fs::waiter::Polling;
use zonal_fs::{FileSystem, IN_PLACE_BLOCKS_MIN};
use zonal_io::buffer::BufferPool;
use zonal_io::clock::Clock;
use zonal_io::threads;

/// Maximum number of requests in flight from the page cache and of asynchronous direct ones. Enough
/// for a deep queue at the drive; each occupies a thread only while the drive makes it wait.
const BACKGROUND: u16 = 128;

/// Maximum number of pages per request: 4 MiB are several units of a drive.
const PAGES_MAX: u16 = 1024;

/// The kernel's limit of pages per request. Before 6.13 it is 256, and the file does not exist.
const PAGES_LIMIT: &str = "/proc/sys/fs/fuse/max_pages_limit";
const PAGES_DEFAULT: u16 = 256;

/// Number of operations that are counted, more than the protocol has.
const OPERATIONS: usize = 64;

/// Options of a session.
#[derive(Clone)]
pub struct SessionOptions {
    /// View of the file system.
    pub front: Options,
    /// Maximum number of active threads.
    pub threads: usize,
    /// Time after which a change is durable.
    pub sync_every: Duration,
    /// Log of errors.
    pub log: Log,
}

/// A running session.
pub struct Session(Arc<Shared>);

struct Shared {
    device: OwnedFd,
    front: Box<dyn Serve>,
    pool: Pool,
    clock: Clock,
    /// Memory of threads.
    buffers: BufferPool,
    log: Log,
    /// Number of requests, by code.
    requests: [AtomicU64; OPERATIONS],
    changed: Arc<Changed>,
    life: Mutex<Life>,
    ended: Condvar,
}

/// State that the end of the session depends on.
#[derive(Default)]
struct Life {
    /// Number of threads that have not ended.
    threads: usize,
    /// The session no longer waits for them.
    is_given_up: bool,
    /// A thread has ended in the middle of a request, which will never be answered.
    has_panicked: bool,
}

/// Parameters of the negotiation with the kernel.
struct SessionParameters {
    writeback: bool,
    threads: usize,
    /// Maximum number of pages per request.
    pages: u16,
}

impl Session {
    /// Serves `fs` on the kernel's device, after negotiation with the kernel.
    ///
    /// # Errors
    /// The kernel is too old, or the operating system's error.
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
        let parameters = SessionParameters { writeback: front.writeback, threads, pages: pages_of(&fs) };
        let session = Session::start_with(device, clock, parameters, (changed, log), made)?;
        let tended = session.0.clone();
        session.0.spawn("zonal-tend", move || {
            maintain(&fs, &Polling::new(clock), &tended.changed, sync_every, &*tended.log);
        })?;
        Ok(session)
    }

    /// Serves the kernel's device with the minimal server.
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
        let parameters = SessionParameters {
            writeback: options.front.writeback,
            threads: options.threads,
            pages: pages_limit(),
        };
        Session::start_with(device, clock, parameters, common, |agreed| Box::new(Least::new(work, &agreed)))
    }

    fn start_with(
        device: OwnedFd,
        clock: Clock,
        SessionParameters { writeback, threads, pages }: SessionParameters,
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
            requests: std::array::from_fn(|_| AtomicU64::new(0)),
            changed,
            life: Mutex::default(),
            ended: Condvar::new(),
        });
        for _ in 0..shared.pool.first() {
            shared.start()?;
        }
        Ok(Session(shared))
    }

    /// True if the file system is mounted anywhere, according to the kernel. Works also while
    /// requests are pending.
    pub fn is_mounted(&self) -> bool {
        let mut device = [PollFd::new(&self.0.device, PollFlags::empty())];
        let told = rustix::io::retry_on_intr(|| poll(&mut device, Some(&Timespec::default())));
        told.is_ok() && !device[0].revents().contains(PollFlags::ERR)
    }

    /// Number of requests read from the kernel so far with this code
    /// ([`opcode`](crate::wire::numbers::opcode)), the first one excluded.
    pub fn requests(&self, code: u32) -> u64 {
        self.0.requests.get(code as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Waits until the directory is unmounted and all requests are answered.
    pub fn join(&self) {
        let mut life = self.0.life.lock();
        while life.threads > 0 && !life.is_given_up {
            self.0.ended.wait(&mut life);
        }
    }

    /// As [`Session::join`], with a time limit. Returns true if the session has ended.
    pub fn join_for(&self, longest: Duration) -> bool {
        let mut life = self.0.life.lock();
        if life.threads > 0 {
            self.0.ended.wait_for(&mut life, longest);
        }
        life.threads == 0
    }

    /// True if a thread has ended in the middle of a request. The session does not wait for the
    /// others then; callers get an error when the process ends.
    pub fn has_panicked(&self) -> bool {
        self.0.life.lock().has_panicked
    }

    /// Stops waiting, because programs still have files open in the unmounted directory. They lose
    /// access when the process ends.
    pub fn give_up(&self) {
        self.0.life.lock().is_given_up = true;
        self.0.ended.notify_all();
    }
}

fn pages_limit() -> u16 {
    let said = std::fs::read_to_string(PAGES_LIMIT).ok().and_then(|text| text.trim().parse().ok());
    said.unwrap_or(PAGES_DEFAULT).clamp(1, PAGES_MAX)
}

/// Maximum number of pages per request. If units are long, it is the length of a unit, so that a
/// large write is one unit and is sent to the drive without copying.
fn pages_of(fs: &FileSystem) -> u16 {
    let unit = fs.superblock().unit_blocks - 1;
    match u16::try_from(unit) {
        Ok(pages) if unit >= IN_PLACE_BLOCKS_MIN => pages_limit().min(pages),
        _ => pages_limit(),
    }
}

/// Answers the first request, the negotiation.
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
        return Err(io::Error::other("the kernel's first request is not INIT"));
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
    /// Starts a thread, which is already counted as active.
    fn start(self: &Arc<Self>) -> io::Result<()> {
        let shared = self.clone();
        self.spawn("zonal-fuse", move || shared.work()).inspect_err(|_| self.pool.thread_ended())
    }

    fn spawn(self: &Arc<Self>, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let counted = Counted::new(self);
        threads::spawn(name, move || {
            let _counted = counted;
            work();
        })?;
        Ok(())
    }

    fn count(&self, request: &[u8]) {
        let Ok((header, _)) = InHeader::ref_from_prefix(request) else { return };
        if let Some(count) = self.requests.get(header.opcode as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn work(self: &Arc<Self>) {
        let mut buffer = Buffer::new(&self.buffers);
        let start = || {
            // Without another thread, requests wait until this one is back.
            if let Err(error) = self.start() {
                (self.log)(&error.to_string());
            }
        };
        let waiter = MountWaiter::new(self.clock, &self.pool, &start);
        while self.pool.next() == Next::Read {
            let served = match rustix::io::read(&self.device, buffer.for_request()) {
                Ok(length) => {
                    self.count(&buffer.for_request()[..length]);
                    let served = self.front.serve(&self.device, &mut buffer, length, &waiter);
                    // An error may have ended the request while the thread was away.
                    waiter.come_back();
                    served
                }
                // The request was withdrawn before it was read.
                Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => Ok(()),
                Err(error) => Err(error.into()),
            };
            if let Err(error) = served {
                // Errors by which the kernel reports that the directory is unmounted.
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

/// Counts a thread of a session.
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
