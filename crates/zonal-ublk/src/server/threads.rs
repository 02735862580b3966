//! Threads of a server: a thread and a ring for each queue of the device.
//!
//! A thread sleeps in its ring until the kernel has a request or the volume a completion; the ring
//! polls the volume's bell. All results of an iteration and all requests received meanwhile share
//! one system call; transferring the data of a request takes another.

use super::Shared;
use crate::queue::{Drive, Payload, Queue};
use crate::wire::{self, Commit, Descriptor, DeviceFacts};
use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::ffi::c_void;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use zerocopy::IntoBytes;
use zonal_core::Nanos;
use zonal_io::news::News;
use zonal_io::threads;

/// Longest sleep of a thread.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// User data of the poll of the volume's bell; other completions are identified by tag.
const NEWS: u64 = u64::MAX;

/// Threads, one per queue, with all resources except the device.
pub(super) struct QueueThreads(Vec<(JoinHandle<io::Result<()>>, Post)>);

/// Channels to and from a thread.
struct Post {
    orders: mpsc::Sender<Order>,
    words: mpsc::Receiver<io::Result<()>>,
}

/// Next task of a thread.
enum Order {
    /// Map the request descriptors of the queue.
    Map(Arc<Shared>),
    /// Tell the kernel that requests are accepted.
    Fetch,
}

impl QueueThreads {
    /// Starts the threads. They end if this is dropped.
    pub(super) fn start(drive: &Arc<Drive>, facts: &DeviceFacts) -> io::Result<QueueThreads> {
        let start = |queue| {
            let (drive, depth) = (drive.clone(), facts.depth);
            let ((orders, next), (words, told)) = (mpsc::channel(), mpsc::channel());
            let run = move || run(queue, depth, &drive, &next, &Replies(words));
            let thread = threads::spawn(&format!("ublk-{queue}"), run)?;
            Ok((thread, Post { orders, words: told }))
        };
        let threads = QueueThreads((0..facts.queues).map(start).collect::<io::Result<_>>()?);
        threads.wait_replies()?;
        Ok(threads)
    }

    /// Hands the device to the threads. No thread accepts requests before all are able to.
    pub(super) fn begin(self, shared: &Arc<Shared>) -> io::Result<Vec<JoinHandle<io::Result<()>>>> {
        self.order(|| Order::Map(shared.clone()))?;
        self.order(|| Order::Fetch)?;
        Ok(self.0.into_iter().map(|(thread, _)| thread).collect())
    }

    fn order(&self, order: impl Fn() -> Order) -> io::Result<()> {
        for (_, post) in &self.0 {
            let _ = post.orders.send(order());
        }
        self.wait_replies()
    }

    /// Waits for a reply of every thread, so that none is still working when one has failed.
    fn wait_replies(&self) -> io::Result<()> {
        let panicked = || io::Error::other("a thread of the server panicked");
        let words = self.0.iter().map(|(_, post)| post.words.recv().unwrap_or_else(|_| Err(panicked())));
        words.fold(Ok(()), io::Result::and)
    }
}

/// Replies of a thread to its set-up tasks.
struct Replies(mpsc::Sender<io::Result<()>>);

impl Replies {
    fn send<T>(&self, done: io::Result<T>) -> Option<T> {
        let (value, word) = match done {
            Ok(value) => (Some(value), Ok(())),
            Err(error) => (None, Err(error)),
        };
        let _ = self.0.send(word);
        value
    }
}

/// Body of a thread, which ends with the device. A failure during set-up is reported and ends it.
fn run(
    queue: u16,
    depth: u16,
    drive: &Drive,
    orders: &mpsc::Receiver<Order>,
    words: &Replies,
) -> io::Result<()> {
    let needs = ring(depth).and_then(|ring| Ok((ring, drive.part().volume().news()?)));
    let Some((ring, news)) = words.send(needs) else { return Ok(()) };
    let Ok(Order::Map(shared)) = orders.recv() else { return Ok(()) };
    let mut end = EndOfThread { shared: &shared, has_failed: true };
    let Some(mut thread) = words.send(QueueThread::new(&shared, queue, ring)) else { return Ok(()) };
    let Ok(Order::Fetch) = orders.recv() else { return Ok(()) };
    if words.send(thread.fetch_all()).is_none() {
        return Ok(());
    }
    let ended = thread.run(news);
    end.has_failed = ended.is_err();
    ended
}

/// Creates a ring with an entry per tag and one for the bell. Completions are processed only when
/// this thread waits, without interrupting it at other times. The ring is not inherited by forked
/// processes: see `Control::command_in_child`.
fn ring(depth: u16) -> io::Result<IoUring> {
    IoUring::builder()
        .dontfork()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(u32::from(depth) + 1)
}

/// Ends the server if a thread ends unexpectedly, because the kernel would wait for its queue.
struct EndOfThread<'a> {
    shared: &'a Shared,
    /// True until the kernel has taken back all tags.
    has_failed: bool,
}

impl Drop for EndOfThread<'_> {
    fn drop(&mut self) {
        if self.has_failed {
            self.shared.is_broken.store(true, Ordering::Release);
        }
        self.shared.has_to_end.store(true, Ordering::Release);
    }
}

/// Data of a request, accessed through the character device.
struct CharacterDevice<'a> {
    file: &'a OwnedFd,
    queue: u16,
}

impl CharacterDevice<'_> {
    /// Repeats a partial transfer until it is complete. `part` gets the bytes done and the file
    /// offset.
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

/// Mapping in which the kernel stores the requests of a queue.
struct Descriptors {
    mapped: *mut c_void,
    len: usize,
    depth: u16,
}

impl Descriptors {
    fn map(file: &OwnedFd, queue: u16, depth: u16) -> io::Result<Descriptors> {
        let page = rustix::param::page_size();
        let (len, at) = (wire::descriptors_len(depth, page), wire::descriptors_of(queue, page));
        // SAFETY: a new mapping at an address chosen by the kernel.
        let mapped = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, at)? };
        let descriptors = Descriptors { mapped, len, depth };
        // A process sharing the mapping would keep the device: see `Control::command_in_child`.
        // SAFETY: applies to this mapping.
        unsafe { madvise(mapped, len, Advice::LinuxDontFork)? };
        Ok(descriptors)
    }

    fn of(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "the kernel names tag {tag} of {}", self.depth);
        // SAFETY: the mapping has `depth` descriptors, any bytes are valid, and the kernel changes
        // the descriptor of a tag only after its request was committed.
        unsafe { self.mapped.cast::<Descriptor>().add(tag.into()).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and not used again.
        let _ = unsafe { munmap(self.mapped, self.len) };
    }
}

/// Queue with its ring, on its own thread: the kernel accepts commands of a queue from one thread
/// only.
struct QueueThread<'a> {
    shared: &'a Shared,
    number: u16,
    queue: Queue,
    descriptors: Descriptors,
    ring: IoUring,
    /// Number of tags that the kernel has taken back.
    stopped: u16,
    /// The ring is polling the volume's bell.
    is_listening: bool,
}

impl<'a> QueueThread<'a> {
    fn new(shared: &'a Shared, number: u16, ring: IoUring) -> io::Result<QueueThread<'a>> {
        let depth = shared.depth;
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
        // SAFETY: the commands of a queue refer to no memory, and the descriptor of a poll stays
        // open.
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
        self.ring.submit()?;
        // None of them completes before the disk starts, unless the kernel refuses it.
        match self.ring.completion().next() {
            Some(refused) => Err(io::Error::from_raw_os_error(-refused.result())),
            None => Ok(()),
        }
    }

    /// Serves until the kernel has taken back all tags.
    fn run(mut self, mut news: News) -> io::Result<()> {
        let volume = self.shared.drive.part().volume().clone();
        let (clock, polls) = (self.shared.clock, self.shared.polls);
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

    /// Queues all available results for the kernel.
    fn commit_all(&mut self, now: Nanos) -> io::Result<()> {
        let payload = CharacterDevice { file: &self.shared.file, queue: self.number };
        while let Some(commit) = self.queue.take(now, &payload) {
            self.push_commit(wire::io::COMMIT_AND_FETCH, &commit)?;
        }
        Ok(())
    }

    /// Submits the queued entries, and waits for a completion or until `due`.
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
        match waited.map_err(|error| (Errno::from_io_error(&error), error)) {
            Ok(_) | Err((Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Starts the requests received.
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
