//! The driver of queues: a thread and a ring for each, and the device's life.
//!
//! A thread sleeps in its ring until the kernel has a request or the volume an answer, whose bell the ring polls. All results of
//! a turn and all requests that have come meanwhile pass in one system call; the data of a request cost one more.

mod takeover;

use crate::control::{Control, UblkError, character_device, disk};
use crate::parameters;
use crate::queue::{Drive, Payload, Queue, Reissued};
use crate::wire::{self, Commit, Descriptor, DeviceFacts, feature};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use zerocopy::IntoBytes;
use zonal_core::Nanos;
use zonal_io::Volume;
use zonal_io::clock::Clock;
use zonal_io::volume::{Part, PartKind, Request};

/// Requests of a queue.
const DEPTH: u16 = 128;

/// Longest sleep of a thread.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// How often the server's owner looks whether it has to end.
const LOOK: Duration = Duration::from_millis(100);

/// A completion of the ring with this number is the volume's bell; others are of tags.
const NEWS: u64 = u64::MAX;

/// How a device is served.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct UblkOptions {
    /// Hardware queues, each with a thread: at least one, and no more than processors.
    pub queues: u16,
    /// Whether the threads poll instead of sleeping.
    pub polls: bool,
    /// Whether the disk is only read.
    pub read_only: bool,
}

impl Default for UblkOptions {
    /// One queue, whose thread sleeps, of a disk that is written.
    fn default() -> UblkOptions {
        UblkOptions { queues: 1, polls: false, read_only: false }
    }
}

zonal_core::setters! {
    UblkOptions
    /// Number of hardware queues.
    with_queues queues: u16;
    /// Whether the threads poll instead of sleeping.
    with_polls polls: bool;
    /// Whether the disk is only read.
    with_read_only read_only: bool;
}

struct Shared {
    drive: Arc<Drive>,
    file: OwnedFd,
    clock: Clock,
    depth: u16,
    polls: bool,
    has_to_end: Arc<AtomicBool>,
    /// Requests in flight by queue, as each thread tells before it waits.
    in_flight: Arc<[AtomicU32]>,
}

/// Tells the kernel that this thread, and those that it makes from now on, write out its memory: when they need some, the kernel does not
/// wait until dirty pages of a disk are written, which would wait for these threads. A server calls it before it opens its device, whose
/// threads write as well. Without the right (`CAP_SYS_RESOURCE`) nothing happens.
pub fn serve_the_kernels_memory() {
    let _ = rustix::process::configure_io_flusher_behavior(true);
}

/// A running server of a block device.
pub struct UblkServer {
    shared: Arc<Shared>,
    control: Control,
    device: u32,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl UblkServer {
    /// Shows `volume` as a block device, until `has_to_end` is set. A device that a killed server of the same drive has left is
    /// taken over, with its number and its users, if the drive has an identity of its own.
    ///
    /// # Errors
    /// [`UblkError`].
    pub fn start(
        volume: Arc<Volume>,
        clock: Clock,
        options: UblkOptions,
        has_to_end: Arc<AtomicBool>,
    ) -> Result<UblkServer, UblkError> {
        let mut control = Control::open()?;
        serve_the_kernels_memory();
        let info = volume.info();
        let parameters = parameters::of(info, volume.append_sectors_max(), options.read_only)?;
        let mark = takeover::mark_of(info.identity);
        let left = takeover::find(&mut control, mark, &parameters)?;
        let is_new = left.is_none();
        let facts = match left {
            Some(facts) => facts,
            None => add(&mut control, options.queues, mark, info.identity.is_some())?,
        };
        let start = || {
            match is_new {
                true => control
                    .set_parameters(facts.device, &parameters)
                    .map_err(UblkError::refused("its sizes and limits"))?,
                false => takeover::begin(&mut control, facts.device)?,
            }
            let shared = Arc::new(Shared {
                drive: drive(&volume, facts.bytes_max, !is_new),
                file: open_character_device(facts.device)?,
                clock,
                depth: facts.depth,
                polls: options.polls,
                has_to_end,
                in_flight: (0..facts.queues).map(|_| AtomicU32::new(0)).collect(),
            });
            let command = if is_new { wire::control::START } else { wire::control::END_RECOVERY };
            let threads = start_threads(&shared, facts.queues).and_then(|threads| {
                control.order(command, facts.device, std::process::id().into())?;
                Ok(threads)
            });
            Ok((shared, threads.map_err(UblkError::refused("the start of its disk"))?))
        };
        match start() {
            Ok((shared, threads)) => Ok(UblkServer { shared, control, device: facts.device, threads }),
            Err(error) => {
                // Its threads end with it. A device that was to be taken over waits for another try.
                if is_new {
                    let _ = control.delete(facts.device);
                }
                Err(error)
            }
        }
    }

    /// The block device.
    pub fn disk(&self) -> String {
        disk(self.device)
    }

    /// A function that lists how many requests of the kernel are in flight, by hardware queue.
    pub fn in_flight_teller(&self) -> impl Fn() -> Vec<u32> + Send + Sync + 'static {
        let in_flight = self.shared.in_flight.clone();
        move || in_flight.iter().map(|in_flight| in_flight.load(Ordering::Relaxed)).collect()
    }

    /// Waits until it was asked to end: the disk is taken away, what is at the drive ends, and all is flushed.
    ///
    /// # Errors
    /// A thread's, the kernel's, or the flush's.
    pub fn join(mut self) -> io::Result<()> {
        while !self.shared.has_to_end.load(Ordering::Acquire) {
            std::thread::park_timeout(LOOK);
        }
        // Requests end meanwhile, by the threads, which end with the disk.
        let mut result = self.control.order(wire::control::STOP, self.device, 0);
        for thread in self.threads {
            let ended = thread.join().map_err(|_| io::Error::other("a thread of the server panicked"));
            result = result.and(ended.and_then(|ended| ended));
        }
        let Shared { drive, clock, .. } = &*self.shared;
        let flush = drive.part().volume().call(clock, Request::flush());
        // Before Linux 6.9 the kernel removes a device only once nothing has it open, this process included.
        drop(self.shared);
        let removed = self.control.delete(self.device);
        result.and(removed).and(flush.result.map(drop).map_err(io::Error::other))
    }
}

/// Makes a device, which outlives its server if that can be found again.
fn add(control: &mut Control, queues: u16, mark: u64, outlives: bool) -> Result<DeviceFacts, UblkError> {
    let recovery = feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE;
    let recovery = if outlives { recovery } else { 0 };
    let mut facts = DeviceFacts {
        queues: queues.max(1),
        depth: DEPTH,
        bytes_max: parameters::BYTES_MAX,
        device: u32::MAX,
        pid: std::process::id() as i32,
        features: feature::IOCTL_ENCODE | feature::USER_COPY | feature::ZONED | recovery,
        mark,
        ..DeviceFacts::default()
    };
    control.add(&mut facts).map_err(UblkError::refused("a new device"))?;
    Ok(facts)
}

fn drive(volume: &Arc<Volume>, bytes_max: u32, is_taken_over: bool) -> Arc<Drive> {
    let zones = volume.info().geometry.zones();
    let part = Part::with(volume.clone(), 0..zones, PartKind::Drive).expect("a volume has its own zones");
    let bytes_max = bytes_max.min(wire::BYTES_MAX);
    Arc::new(Drive::new(part, bytes_max, is_taken_over.then(|| Reissued::new(zones))))
}

fn open_character_device(device: u32) -> Result<OwnedFd, UblkError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let opened = rustix::fs::open(character_device(device), flags, Mode::empty());
    opened.map_err(|error| UblkError::Refused { what: "its character device", error: error.into() })
}

/// Starts a thread a queue, each of which has told the kernel that it takes requests.
fn start_threads(shared: &Arc<Shared>, queues: u16) -> io::Result<Vec<JoinHandle<io::Result<()>>>> {
    let (sender, ready) = mpsc::channel();
    let threads = (0..queues).map(|queue| {
        let (shared, sender) = (shared.clone(), sender.clone());
        std::thread::Builder::new().name(format!("ublk-{queue}")).spawn(move || {
            let _end = EndOfThread(&shared);
            let thread = QueueThread::new(&shared, queue).and_then(|mut thread| {
                thread.fetch_all()?;
                Ok(thread)
            });
            match thread {
                Ok(thread) => {
                    let _ = sender.send(Ok(()));
                    drop(sender);
                    thread.run()
                }
                Err(error) => {
                    let _ = sender.send(Err(error));
                    Ok(())
                }
            }
        })
    });
    let threads = threads.collect::<io::Result<Vec<_>>>()?;
    drop(sender);
    for _ in 0..queues {
        ready.recv().unwrap_or_else(|_| Err(io::Error::other("a thread of the server panicked")))?;
    }
    Ok(threads)
}

/// Ends the server where a thread ends that was not asked to: the kernel would wait for its queue.
struct EndOfThread<'a>(&'a Shared);

impl Drop for EndOfThread<'_> {
    fn drop(&mut self) {
        self.0.has_to_end.store(true, Ordering::Release);
    }
}

/// A request's data in the character device.
struct CharacterDevice<'a> {
    file: &'a OwnedFd,
    queue: u16,
}

impl CharacterDevice<'_> {
    /// Calls `part` with the beginning of what is left, and the place of that, until nothing is.
    fn whole(
        &self,
        tag: u16,
        len: usize,
        mut part: impl FnMut(usize, u64) -> rustix::io::Result<usize>,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            match part(done, wire::data_of(self.queue, tag) + done as u64) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(more) => done += more,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Payload for CharacterDevice<'_> {
    fn read(&self, tag: u16, into: &mut [u8]) -> io::Result<()> {
        let len = into.len();
        self.whole(tag, len, |done, at| rustix::io::pread(self.file, &mut into[done..], at))
    }

    fn write(&self, tag: u16, from: &[u8]) -> io::Result<()> {
        self.whole(tag, from.len(), |done, at| rustix::io::pwrite(self.file, &from[done..], at))
    }
}

/// Where the kernel puts the requests of a queue.
struct Descriptors {
    mapped: *mut c_void,
    len: usize,
    depth: u16,
}

impl Descriptors {
    fn map(file: &OwnedFd, queue: u16, depth: u16) -> io::Result<Descriptors> {
        let page = rustix::param::page_size();
        let (len, at) = (wire::descriptors_len(depth, page), wire::descriptors_of(queue, page));
        // SAFETY: a new mapping, where the kernel likes.
        let mapped = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, at)? };
        Ok(Descriptors { mapped, len, depth })
    }

    fn of(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "the kernel names tag {tag} of {}", self.depth);
        // SAFETY: the mapping has `depth` descriptors, any bytes are one, and the kernel changes that of a tag only after the tag's
        // request was committed.
        unsafe { self.mapped.cast::<Descriptor>().add(tag.into()).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and not used again.
        let _ = unsafe { munmap(self.mapped, self.len) };
    }
}

/// A queue with its ring, on its thread: the kernel takes commands of a queue from one thread only.
struct QueueThread<'a> {
    shared: &'a Shared,
    number: u16,
    queue: Queue,
    descriptors: Descriptors,
    ring: IoUring<squeue::Entry, cqueue::Entry>,
    /// Tags that the kernel has taken back.
    stopped: u16,
    /// The ring polls the volume's bell.
    is_listening: bool,
}

impl<'a> QueueThread<'a> {
    fn new(shared: &'a Shared, number: u16) -> io::Result<QueueThread<'a>> {
        let depth = shared.depth;
        // A command a tag, and the bell. Completions come when this thread waits for them, and interrupt it at no other time.
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(u32::from(depth) + 1)?;
        Ok(QueueThread {
            shared,
            number,
            queue: Queue::new(shared.drive.clone(), number, depth),
            descriptors: Descriptors::map(&shared.file, number, depth)?,
            ring,
            stopped: 0,
            is_listening: false,
        })
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the commands of a queue name no memory, and a poll's descriptor stays open.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    fn push_commit(&mut self, command: u32, commit: &Commit) -> io::Result<()> {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(commit.as_bytes());
        let file = types::Fd(self.shared.file.as_raw_fd());
        let entry = opcode::UringCmd16::new(file, command).cmd(bytes).build();
        self.push(&entry.user_data(commit.tag.into()))
    }

    fn fetch_all(&mut self) -> io::Result<()> {
        for tag in 0..self.shared.depth {
            let commit = Commit { queue: self.number, tag, ..Commit::default() };
            self.push_commit(wire::io::FETCH, &commit)?;
        }
        self.ring.submit().map(drop)
    }

    /// Serves until the kernel has taken all tags back.
    fn run(mut self) -> io::Result<()> {
        let volume = self.shared.drive.part().volume().clone();
        let (clock, polls) = (self.shared.clock, self.shared.polls);
        let mut news = volume.news()?;
        let mut now = clock.now();
        loop {
            if !polls {
                news.arm();
            }
            let due = volume.poll(now);
            self.commit_all(now)?;
            let in_flight = &self.shared.in_flight[usize::from(self.number)];
            in_flight.store(self.queue.in_flight() as u32, Ordering::Relaxed);
            if self.stopped == self.shared.depth && self.queue.in_flight() == 0 {
                return Ok(());
            }
            if !polls && !std::mem::replace(&mut self.is_listening, true) {
                let bell = types::Fd(news.as_fd().as_raw_fd());
                let entry = opcode::PollAdd::new(bell, rustix::event::PollFlags::IN.bits().into()).build();
                self.push(&entry.user_data(NEWS))?;
            }
            self.wait(due, now)?;
            news.disarm();
            now = clock.now();
            self.begin_all(now)?;
        }
    }

    /// Hands the kernel what has ended.
    fn commit_all(&mut self, now: Nanos) -> io::Result<()> {
        let payload = CharacterDevice { file: &self.shared.file, queue: self.number };
        while let Some(commit) = self.queue.take(now, &payload) {
            self.push_commit(wire::io::COMMIT_AND_FETCH, &commit)?;
        }
        Ok(())
    }

    /// Submits what is in the ring, and waits for a completion, or until `due`.
    fn wait(&mut self, due: Option<Nanos>, now: Nanos) -> io::Result<()> {
        let left =
            due.map_or(SLEEP_MAX, |due| Duration::from_nanos(due.0.saturating_sub(now.0)).min(SLEEP_MAX));
        let waited = match left.is_zero() || self.shared.polls {
            true => self.ring.submit(),
            false => {
                let left = types::Timespec::from(left);
                self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&left))
            }
        };
        match waited.map_err(|error| (error.raw_os_error().map(Errno::from_raw_os_error), error)) {
            Ok(_) | Err((Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Takes the requests that have come.
    fn begin_all(&mut self, now: Nanos) -> io::Result<()> {
        let payload = CharacterDevice { file: &self.shared.file, queue: self.number };
        for ended in self.ring.completion() {
            match (ended.user_data(), ended.result()) {
                (NEWS, _) => self.is_listening = false,
                (_, wire::STOPPED) => self.stopped += 1,
                (tag, 0) => {
                    let descriptor = self.descriptors.of(tag as u16);
                    self.queue.begin(now, tag as u16, &descriptor, &payload);
                }
                (_, number) => return Err(io::Error::from_raw_os_error(-number)),
            }
        }
        Ok(())
    }
}
