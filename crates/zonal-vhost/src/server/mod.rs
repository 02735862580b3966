//! Driver: the socket, the threads and the clock.
//!
//! Each thread owns request queues and drives the volume. The first thread also owns the socket,
//! the control queue and the event queue. A thread sleeps until a guest notifies it, the volume has
//! work, or another thread rings its bell; or never, if polling is enabled. The completions of one
//! turn are signalled to the guest once.
//!
//! # One front end at a time
//! A second front end waits in the backlog until the first has left. Requests in flight complete
//! first and are returned in the memory in which they were taken. A guest with a reconnecting front
//! end finds them there.
//!
//! # Misbehaving front ends
//! Descriptors of a front end are never read and never block a thread. A connection that violates
//! the protocol is closed. A ring broken by a guest is abandoned and reported to the front end if
//! it has set an error descriptor; other rings are still served.

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

/// Options of a server.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct VhostOptions {
    /// Number of threads, at least 1. Each request queue belongs to one of them.
    pub threads: usize,
    /// True if the threads poll instead of sleeping.
    pub polls: bool,
}

impl Default for VhostOptions {
    /// One sleeping thread.
    fn default() -> VhostOptions {
        VhostOptions { threads: 1, polls: false }
    }
}

zonal_core::setters! {
    VhostOptions
    /// Number of threads, at least 1.
    with_threads threads: usize;
    /// True if the threads poll instead of sleeping.
    with_polls polls: bool;
}

/// Snapshot of a queue, possibly slightly stale.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueueFacts {
    /// Queue number: 0 for control, 1 for events, requests from 2 on.
    pub number: u16,
    /// Requests in flight.
    pub in_flight: u32,
    /// Fault caused by the guest, if any.
    pub fault: Option<RingFault>,
}

/// State of a queue as published by its thread.
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
    /// True if any request queue has started, and all started ones are enabled.
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
    /// Serves `disk` to front ends that connect to `listener`, until `has_to_end` is set.
    ///
    /// # Errors
    /// Errors of the operating system.
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
            // Ends the threads that were started.
            drop(EndOfThread(&shared));
        }
        Ok(VhostServer { threads: threads?, shared, path })
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if a front end is connected.
    pub fn is_connected(&self) -> bool {
        self.shared.is_connected.load(Ordering::Relaxed)
    }

    /// Queues in use by the guest, in order of number.
    pub fn queues(&self) -> Vec<QueueFacts> {
        self.shared.queues()
    }

    /// Returns a function that lists the queues, for threads without access to the server.
    pub fn queues_source(&self) -> impl Fn() -> Vec<QueueFacts> + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || shared.queues()
    }

    /// Requests shutdown.
    pub fn end(&self) {
        drop(EndOfThread(&self.shared));
    }

    /// Waits for shutdown: until it is requested, no more requests are taken, requests at the
    /// device have completed, and the volume is flushed.
    ///
    /// # Errors
    /// Errors of a thread or of the flush.
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

/// Ends the server when one of its threads ends. A disk that answers only on some of its queues
/// would be worse than none.
struct EndOfThread<'a>(&'a Shared);

impl Drop for EndOfThread<'_> {
    fn drop(&mut self) {
        self.0.has_to_end.store(true, Ordering::Release);
        self.0.post.ring_all();
    }
}
