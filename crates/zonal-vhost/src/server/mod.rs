//! The driver: the socket, the threads and the clock.
//!
//! Each thread owns queues of requests and moves the volume on. The first thread owns the socket, the control queue and the event
//! queue as well. A thread sleeps until a guest notifies it, the volume has something for it, or another thread rings its bell; or it
//! never sleeps, if it is to poll. What has ended in a turn is told to the guest once.
//!
//! # One front end at a time
//! A second one waits in the listener's queue until the first has left. Then requests in flight end first, and are given back in the
//! memory in which they were taken. A guest whose front end connects again finds them there.
//!
//! # Front ends that misbehave
//! No descriptor of a front end is read, and none makes a thread wait. A connection that does not keep to the protocol is closed. A ring
//! that a guest has broken is left, the front end hears of it if it has given a descriptor for errors, and other rings are served.

mod front;
mod place;
mod post;
mod thread;

pub use place::VhostListener;

use crate::queue::{FIRST_REQUESTS, QUEUES_MAX};
use crate::ring::RingFault;
use parking_lot::Mutex;
use post::Post;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use thread::Thread;
use zonal_io::clock::Clock;
use zonal_io::threads;
use zonal_io::volume::Request;
use zonal_scsi::Disk;

/// How a server runs.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct VhostOptions {
    /// Threads, at least one. A queue of requests belongs to one of them.
    pub threads: usize,
    /// Whether they poll instead of sleeping.
    pub polls: bool,
}

impl Default for VhostOptions {
    /// One thread, which sleeps.
    fn default() -> VhostOptions {
        VhostOptions { threads: 1, polls: false }
    }
}

zonal_core::setters! {
    VhostOptions
    /// Number of threads, at least one.
    with_threads threads: usize;
    /// Whether they poll instead of sleeping.
    with_polls polls: bool;
}

/// A queue, as it was a moment ago.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueueFacts {
    /// Its number: 0 for control, 1 for events, requests from 2 on.
    pub number: u16,
    /// Requests in flight.
    pub in_flight: u32,
    /// How the guest has broken it, if it has.
    pub fault: Option<RingFault>,
}

/// What a queue's thread tells of it.
#[derive(Default)]
struct Gauge {
    is_started: AtomicBool,
    is_enabled: AtomicBool,
    in_flight: AtomicU32,
    fault: Mutex<Option<RingFault>>,
}

struct Shared {
    disk: Arc<Disk>,
    clock: Clock,
    options: VhostOptions,
    has_to_end: Arc<AtomicBool>,
    post: Post,
    gauges: Vec<Gauge>,
    is_connected: AtomicBool,
}

impl Shared {
    /// Whether queues of requests have started, and all that have are enabled.
    fn takes_requests(&self) -> bool {
        let requests = self.gauges.iter().skip(FIRST_REQUESTS.into());
        let mut started = requests.filter(|gauge| gauge.is_started.load(Ordering::Relaxed)).peekable();
        started.peek().is_some() && started.all(|gauge| gauge.is_enabled.load(Ordering::Relaxed))
    }

    fn queues(&self) -> Vec<QueueFacts> {
        let started =
            self.gauges.iter().enumerate().filter(|(_, gauge)| gauge.is_started.load(Ordering::Relaxed));
        let facts = |(number, gauge): (usize, &Gauge)| QueueFacts {
            number: number as u16,
            in_flight: gauge.in_flight.load(Ordering::Relaxed),
            fault: *gauge.fault.lock(),
        };
        started.map(facts).collect()
    }
}

/// A running server.
pub struct VhostServer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    path: PathBuf,
}

impl VhostServer {
    /// Serves `disk` to the front end that connects to `listener`, until `has_to_end` is set.
    ///
    /// # Errors
    /// The operating system's.
    pub fn start(
        disk: Arc<Disk>,
        listener: VhostListener,
        clock: Clock,
        options: VhostOptions,
        has_to_end: Arc<AtomicBool>,
    ) -> io::Result<VhostServer> {
        let count = options.threads.max(1);
        let path = listener.path().to_owned();
        let post = Post::new(count)?;
        let gauges = (0..QUEUES_MAX).map(|_| Gauge::default()).collect();
        let is_connected = AtomicBool::new(false);
        let shared = Arc::new(Shared { disk, clock, options, has_to_end, post, gauges, is_connected });
        let mut listener = Some(listener);
        let threads = (0..count).map(|n| {
            let (shared, listener) = (shared.clone(), listener.take());
            threads::spawn(&format!("vhost-scsi-{n}"), move || {
                let _end = EndOfThread(&shared);
                Thread::new(&shared, n, listener)?.run()
            })
        });
        let threads = threads.collect::<io::Result<Vec<_>>>();
        if threads.is_err() {
            // Those that were started end.
            drop(EndOfThread(&shared));
        }
        Ok(VhostServer { threads: threads?, shared, path })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a front end is connected.
    pub fn is_connected(&self) -> bool {
        self.shared.is_connected.load(Ordering::Relaxed)
    }

    /// The queues that a guest uses, in the order of their numbers.
    pub fn queues(&self) -> Vec<QueueFacts> {
        self.shared.queues()
    }

    /// A function that lists them, for a thread that does not have the server.
    pub fn queues_teller(&self) -> impl Fn() -> Vec<QueueFacts> + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || shared.queues()
    }

    /// Asks its threads to end.
    pub fn end(&self) {
        drop(EndOfThread(&self.shared));
    }

    /// Waits until it was asked to end and its threads have: no more requests are taken, what is at the device ends, and all is flushed.
    ///
    /// # Errors
    /// A thread's, or the flush's.
    pub fn join(self) -> io::Result<()> {
        let mut result = Ok(());
        for thread in self.threads {
            let ended = thread.join().map_err(|_| io::Error::other("a thread of the server panicked"));
            result = result.and(ended.and_then(|ended| ended));
        }
        let flush = self.shared.disk.volume().call(&self.shared.clock, Request::flush());
        result.and(flush.result.map(drop).map_err(io::Error::other))
    }
}

/// Ends the server where a thread ends: a disk that answers on some of its queues is worse than none.
struct EndOfThread<'a>(&'a Shared);

impl Drop for EndOfThread<'_> {
    fn drop(&mut self) {
        self.0.has_to_end.store(true, Ordering::Release);
        self.0.post.ring_all();
    }
}
