//! Channels: where completions go.
//!
//! A channel is one submitter's context: a completion function, called once a request by whichever thread completes it.
//!
//! # Delivery
//! - Never under a lock. Never while another completion function of any channel runs on the same thread: one that
//!   submits does not nest, what completes meanwhile is delivered by the outermost frame, in order.
//! - A frame delivers at most [`TURN_MAX`] completions and leaves the rest to the next poll, so a caller that keeps the
//!   pipe full from its completion function cannot hold a thread that only came to submit.
//! - A deferred channel's completions are delivered by polls only.

use super::request::Completion;
use crate::buffer::IoBuf;
use crate::device::Output;
use crate::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, CachePadded, Mutex, Ordering};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ptr::NonNull;
use zonal_core::RequestError;

/// Completions that one frame delivers, and commands that one thread completes for one zone, before others get a turn.
pub const TURN_MAX: usize = 64;

type CompletionFn = dyn Fn(Completion) + Send + Sync;

pub(crate) struct ChannelInner {
    complete: Box<CompletionFn>,
    deferred: bool,
    backlog: Arc<Backlog>,
    /// Requests that outlived their `submit`, counted by the channel's owner alone.
    issued: AtomicU64,
    /// How many of them have ended; equal to `issued`, nobody holds a pointer to this channel.
    ended: AtomicU64,
    closed: AtomicBool,
}

/// A submitter's context. One thread uses it at a time.
pub struct Channel {
    /// On cache lines of its own: threads count on their channels side by side.
    inner: Arc<CachePadded<ChannelInner>>,
    /// `issued` is counted without a locked operation, which only one thread may do.
    not_sync: PhantomData<Cell<()>>,
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.inner.closed.store(true, Ordering::Release);
    }
}

/// Pointer to a channel, held by a request.
///
/// Valid as long as the request: the volume keeps every channel until it is closed and all its requests have ended.
#[derive(Clone, Copy)]
pub(crate) struct ChannelRef(NonNull<CachePadded<ChannelInner>>);

// SAFETY: it points to a `ChannelInner`, which is `Sync`.
unsafe impl Send for ChannelRef {}
// SAFETY: as above.
unsafe impl Sync for ChannelRef {}

impl ChannelRef {
    pub(super) fn of(channel: &Channel) -> ChannelRef {
        ChannelRef(NonNull::from(&*channel.inner))
    }

    /// Counts a request that will end after its `submit` has returned, or may.
    pub(super) fn count_issued(channel: &Channel) {
        let issued = &channel.inner.issued;
        // One thread at a time owns the channel.
        issued.store(issued.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    fn get(&self) -> &ChannelInner {
        // SAFETY: `Channels` frees a channel only when every request that holds a pointer has ended, which `ended`
        // counts after its last use of the pointer.
        unsafe { self.0.as_ref() }
    }

    fn to_owned(self) -> Arc<CachePadded<ChannelInner>> {
        // SAFETY: the pointer comes from an `Arc` that lives (see `get`); the increment pays for the new handle.
        unsafe {
            Arc::increment_strong_count(self.0.as_ptr());
            Arc::from_raw(self.0.as_ptr())
        }
    }
}

/// Whether a request was counted by [`ChannelRef::count_issued`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counted {
    /// It was, or will be before its `submit` returns.
    Yes,
    /// Only its `submit` has seen it.
    No,
}

/// A delivery that waits for a later frame, and keeps its channel alive on its own.
struct Waiting {
    channel: Arc<CachePadded<ChannelInner>>,
    completion: Completion,
}

impl Waiting {
    fn new(channel: ChannelRef, completion: Completion, counted: Counted) -> Waiting {
        let channel = channel.to_owned();
        if counted == Counted::Yes {
            channel.ended.fetch_add(1, Ordering::Release);
        }
        Waiting { channel, completion }
    }
}

/// Completions left over by full frames and those of deferred channels.
#[derive(Default)]
pub(crate) struct Backlog {
    len: AtomicUsize,
    waiting: Mutex<VecDeque<Waiting>>,
}

impl Backlog {
    fn push(&self, waiting: Waiting) {
        let mut list = self.waiting.lock();
        list.push_back(waiting);
        self.len.store(list.len(), Ordering::Release);
    }

    fn pop(&self) -> Option<Waiting> {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut list = self.waiting.lock();
        let waiting = list.pop_front();
        self.len.store(list.len(), Ordering::Release);
        waiting
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    /// Delivers up to a turn. From inside a completion function it does nothing: the outermost frame will.
    pub(super) fn deliver(&self) {
        if DELIVERING.get() {
            return;
        }
        let frame = Frame::enter();
        for _ in 0..TURN_MAX {
            let Some(waiting) = self.pop() else { break };
            (waiting.channel.complete)(waiting.completion);
            frame.drain(TURN_MAX);
        }
    }
}

thread_local! {
    static DELIVERING: Cell<bool> = const { Cell::new(false) };
    /// Length of `NESTED`, apart so that the usual case reads a plain cell.
    static NESTED_LEN: Cell<usize> = const { Cell::new(0) };
    static NESTED: RefCell<VecDeque<Waiting>> = const { RefCell::new(VecDeque::new()) };
}

/// Hands a completion to its channel now, or leaves it to the frame or poll that will.
///
/// Takes the completion's parts, and puts them together where the function is called: see [`IoBuf`] for why.
#[inline(always)]
pub(super) fn deliver(
    reference: ChannelRef,
    token: u64,
    result: Result<Output, RequestError>,
    buf: IoBuf,
    counted: Counted,
) {
    let channel = reference.get();
    if channel.deferred || DELIVERING.get() {
        return leave(reference, Completion { token, result, buf }, counted);
    }
    let frame = Frame::enter();
    (channel.complete)(Completion { token, result, buf });
    if counted == Counted::Yes {
        // The last use of the pointer: from here on the channel may be freed.
        channel.ended.fetch_add(1, Ordering::Release);
    }
    frame.drain(TURN_MAX - 1);
}

#[cold]
#[inline(never)]
fn leave(reference: ChannelRef, completion: Completion, counted: Counted) {
    let waiting = Waiting::new(reference, completion, counted);
    if waiting.channel.deferred {
        let backlog = waiting.channel.backlog.clone();
        backlog.push(waiting);
    } else {
        NESTED.with_borrow_mut(|nested| {
            nested.push_back(waiting);
            NESTED_LEN.set(nested.len());
        });
    }
}

fn pop_nested() -> Option<Waiting> {
    NESTED.with_borrow_mut(|nested| {
        let first = nested.pop_front();
        NESTED_LEN.set(nested.len());
        first
    })
}

/// The outermost delivery on this thread.
struct Frame;

impl Frame {
    #[inline]
    fn enter() -> Frame {
        DELIVERING.set(true);
        Frame
    }

    /// Delivers what completed inside this frame, up to `turn`, and leaves the rest to polls.
    #[inline]
    fn drain(&self, turn: usize) {
        if NESTED_LEN.get() > 0 {
            self.drain_nested(turn);
        }
    }

    #[cold]
    fn drain_nested(&self, turn: usize) {
        for _ in 0..turn {
            let Some(w) = pop_nested() else { return };
            (w.channel.complete)(w.completion);
        }
        leave_nested();
    }
}

/// Leaves what completed inside this frame to the polls of its channels.
#[cold]
fn leave_nested() {
    while let Some(w) = pop_nested() {
        let backlog = w.channel.backlog.clone();
        backlog.push(w);
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        DELIVERING.set(false);
        // Something is left only if a completion function panicked: its neighbours still end exactly once.
        if NESTED_LEN.get() > 0 {
            leave_nested();
        }
    }
}

/// A volume's channels.
#[derive(Default)]
pub(super) struct Channels {
    all: Mutex<Vec<Arc<CachePadded<ChannelInner>>>>,
    backlog: Arc<Backlog>,
}

impl Channels {
    pub(super) fn open(&self, deferred: bool, complete: Box<CompletionFn>) -> Channel {
        let inner = Arc::new(CachePadded::new(ChannelInner {
            complete,
            deferred,
            backlog: self.backlog.clone(),
            issued: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }));
        let mut all = self.all.lock();
        // `closed` first: no request comes after it, so equal counts then mean that none is left.
        all.retain(|c| {
            !(c.closed.load(Ordering::Acquire)
                && c.ended.load(Ordering::Acquire) == c.issued.load(Ordering::Acquire))
        });
        all.push(inner.clone());
        Channel { inner, not_sync: PhantomData }
    }

    /// Whether `channel` was opened here. Only then it is kept until its requests have ended.
    #[inline]
    pub(super) fn has(&self, channel: &Channel) -> bool {
        Arc::ptr_eq(&self.backlog, &channel.inner.backlog)
    }

    pub(super) fn backlog(&self) -> &Backlog {
        &self.backlog
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        for channel in self.all.get_mut().drain(..) {
            // Requests that are still at the device may come back to another volume on it, and point to their channel: it
            // is not freed any more.
            if channel.ended.load(Ordering::Acquire) != channel.issued.load(Ordering::Acquire) {
                std::mem::forget(channel);
            }
        }
        // They keep their channels alive, and these the backlog.
        while let Some(waiting) = self.backlog.pop() {
            drop(waiting);
        }
    }
}
