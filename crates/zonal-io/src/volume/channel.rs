//! Channels: destinations of completions.
//!
//! A channel is the context of one submitter: either a completion function, called once per request
//! by whichever thread completes it, or an inbox.
//!
//! # Delivery
//! - Never under a lock, and never while another completion function of any channel runs on the
//!   same thread. A completion function may submit without nesting: requests that complete
//!   meanwhile are delivered by the outermost frame, in order.
//! - A call of a volume delivers at most [`TURN_MAX`] completions and leaves the rest to the next
//!   poll. Neither a caller that resubmits from its completion function nor a thousand aborted
//!   writes can hold up a thread that only wants to submit.
//! - Completions of a deferred channel are delivered only by polls.
//! - Completions of an inbox are stored for its thread (`inbox`). No code of the caller runs, so
//!   these rules do not apply.
//! - A panic of a completion function is resumed at the end of the call that ran it, after
//!   everything else in that call is finished.

use super::alarm::Alarm;
use super::budget::CLASSES;
use super::inbox::Mail;
use super::part::PartPlace;
use super::request::Completion;
use crate::buffer::IoBufs;
use crate::device::Output;
pub(crate) use crate::pending::ChannelRef;
use crate::sync::{
    Arc, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, CachePadded, ENDING_SLOT, IS_MODEL, Mutex,
    Ordering, local, slot_if_any, thread_slot,
};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use zonal_core::RequestError;
use zonal_core::budget::WriterClass;

/// Completions that one call of a volume delivers, and commands that one thread completes for a
/// zone, before others get a turn.
pub const TURN_MAX: usize = if IS_MODEL { 2 } else { 64 };

type CompletionFn = dyn Fn(Completion) + Send + Sync;

/// Destination of a channel's completions.
#[allow(clippy::large_enum_variant, reason = "each channel has exactly one, in its own allocation")]
enum Ends {
    /// A function called inside any call of the volume.
    AtOnce(Box<CompletionFn>),
    /// A function called only inside polls.
    InPolls(Box<CompletionFn>),
    InInbox(Mail),
}

pub(crate) struct ChannelInner {
    ends: Ends,
    backlog: Arc<Backlog>,
    closed: AtomicBool,
    /// Address of the backlog of the volume that accepts this channel's requests, or of `part`,
    /// which never equals a backlog; null once the channel is cancelled.
    taken_by: AtomicPtr<Backlog>,
    /// Part of the volume for which the channel was opened.
    part: Option<Arc<PartPlace>>,
    /// Last thread that submitted; woken when another thread completes its requests.
    owner: AtomicUsize,
    /// Class of the writers that use the channel.
    class: AtomicU32,
    /// Tokens of individually cancelled requests, as long as their [`Withdrawal`] exists.
    withdrawn: Mutex<Vec<u64>>,
    /// Requests that outlived their `submit`. Counted only by the thread that uses the channel. On
    /// a cache line of its own, since every request would otherwise contend with readers and with
    /// `ended`.
    issued: CachePadded<AtomicU64>,
    /// Ended requests among `issued`. If both are equal, no request points to this channel.
    ended: CachePadded<AtomicU64>,
}

impl ChannelInner {
    fn is_deferred(&self) -> bool {
        matches!(self.ends, Ends::InPolls(_))
    }

    fn is_cancelled(&self) -> bool {
        self.taken_by.load(Ordering::Acquire).is_null()
    }

    fn is_withdrawn(&self, token: u64) -> bool {
        self.withdrawn.lock().contains(&token)
    }

    /// Wakes the channel's thread, if it sleeps, after a completion by another thread.
    #[inline(always)]
    fn wake_owner(&self) {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != slot_if_any() || owner >= ENDING_SLOT {
            self.backlog.alarm.wake(owner);
        }
    }
}

/// Context of a submitter. Used by one thread at a time.
pub struct Channel {
    /// On cache lines of its own, since threads update their channels concurrently.
    inner: Arc<CachePadded<ChannelInner>>,
    /// `issued` is incremented without an atomic read-modify-write, so only one thread may do it.
    not_sync: PhantomData<Cell<()>>,
}

impl Channel {
    /// Part of the volume for which the channel was opened.
    #[inline]
    pub(super) fn part(&self) -> Option<&PartPlace> {
        self.inner.part.as_deref()
    }

    /// Mail of an inbox's channel.
    #[inline]
    pub(super) fn mail(&self) -> &Mail {
        match &self.inner.ends {
            Ends::InInbox(mail) => mail,
            _ => unreachable!("an inbox has the channel that was opened for it"),
        }
    }

    /// Assigns the channel to a class of writers, to which a volume with a budget charges its
    /// writes.
    ///
    /// # Panics
    /// If the class does not exist.
    pub fn of_class(self, class: WriterClass) -> Channel {
        assert!(usize::from(class.0) < CLASSES, "there is no class {}", class.0);
        self.inner.class.store(class.0.into(), Ordering::Relaxed);
        self
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.inner.closed.store(true, Ordering::Release);
    }
}

/// Cancellation by [`Volume::cancel_request`](super::Volume::cancel_request). The cancelled
/// requests issue no further commands as long as this value exists.
pub struct Withdrawal {
    channel: Arc<CachePadded<ChannelInner>>,
    token: u64,
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        let mut withdrawn = self.channel.withdrawn.lock();
        if let Some(at) = withdrawn.iter().position(|token| *token == self.token) {
            withdrawn.swap_remove(at);
        }
    }
}

impl ChannelRef {
    pub(super) fn of(channel: &Channel) -> ChannelRef {
        ChannelRef(NonNull::from(&*channel.inner).cast())
    }

    /// Counts a request that ends, or may end, after its `submit` has returned.
    pub(super) fn count_issued(channel: &Channel) {
        let ChannelInner { issued, owner, .. } = &**channel.inner;
        // Counting the request has assigned the thread its number.
        let me = slot_if_any();
        // Stored only on change: a store for each request would contend with the completing
        // threads.
        if owner.load(Ordering::Relaxed) != me {
            owner.store(me, Ordering::Relaxed);
        }
        // Only one thread at a time uses the channel.
        issued.store(issued.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// True if the channel's requests with this token issue no more commands.
    pub(super) fn is_cancelled(&self, token: u64) -> bool {
        self.get().is_cancelled() || self.get().is_withdrawn(token)
    }

    /// True if the channel was opened for a part that its users see as a drive.
    #[cold]
    pub(super) fn is_of_drive(&self) -> bool {
        self.get().part.as_ref().is_some_and(|part| part.is_drive())
    }

    #[cold]
    pub(super) fn class(&self) -> WriterClass {
        WriterClass(self.get().class.load(Ordering::Relaxed) as u8)
    }

    fn get(&self) -> &ChannelInner {
        // SAFETY: `Channels` frees a channel only after every request that points to it has ended,
        // and `ended` is incremented after the last use of the pointer.
        unsafe { self.inner().as_ref() }
    }

    /// Pointer to the channel; created only by `of`.
    const fn inner(self) -> NonNull<CachePadded<ChannelInner>> {
        self.0.cast()
    }

    fn to_owned(self) -> Arc<CachePadded<ChannelInner>> {
        // SAFETY: the pointer is from a live `Arc` (see `get`); the increment accounts for the new
        // handle.
        unsafe {
            Arc::increment_strong_count(self.inner().as_ptr());
            Arc::from_raw(self.inner().as_ptr())
        }
    }
}

/// Counting of a request by [`ChannelRef::count_issued`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counted {
    /// Counted, now or before its `submit` returns.
    Yes,
    /// Seen only by its `submit`.
    No,
}

/// Postponed delivery; keeps its channel alive by itself.
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

    fn deliver(self) {
        if let Ends::AtOnce(complete) | Ends::InPolls(complete) = &self.channel.ends {
            call(complete, self.completion);
        }
        self.channel.wake_owner();
    }
}

/// Completions left over by calls that used up their share, and those of deferred channels.
pub(crate) struct Backlog {
    /// The volume's alarm.
    alarm: Arc<Alarm>,
    len: AtomicUsize,
    waiting: Mutex<VecDeque<Waiting>>,
}

impl Backlog {
    fn push(&self, waiting: Waiting) {
        let mut list = self.waiting.lock();
        list.push_back(waiting);
        self.len.store(list.len(), Ordering::Release);
        drop(list);
        self.alarm.ring();
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

    /// Delivers as many completions as the current call may. A no-op inside a completion function,
    /// since the outermost frame delivers.
    #[inline]
    pub(super) fn deliver(&self) {
        if !self.is_empty() {
            self.deliver_share();
        }
    }

    #[cold]
    fn deliver_share(&self) {
        let mut share = SHARE.get();
        while share > 0
            && let Some(waiting) = self.pop()
        {
            SHARE.set(DELIVERING);
            waiting.deliver();
            share = end_frame(share - 1);
        }
    }
}

/// Value of [`SHARE`] while a completion function runs on this thread.
const DELIVERING: i32 = -1;

/// Bit of [`PENDING_ENDS`]: [`PANIC`] holds a panic.
const PANICKED: u64 = 1 << 63;

local! {
    /// Completions that this thread may still deliver in its current call of a volume.
    static SHARE: Cell<i32> = const { Cell::new(TURN_MAX as i32) };
    /// Work due at the end of the current call: the count of ended requests of `ENDED`, and
    /// [`PANICKED`].
    static PENDING_ENDS: Cell<u64> = const { Cell::new(0) };
    /// Channel of the ended requests counted in `PENDING_ENDS`.
    static ENDED: Cell<Option<ChannelRef>> = const { Cell::new(None) };
    /// First panic of a completion function in the current call.
    static PANIC: Cell<Option<Box<dyn Any + Send>>> = const { Cell::new(None) };
    /// Length of `NESTED`. Separate, so that the common case reads a plain cell.
    static NESTED_LEN: Cell<usize> = const { Cell::new(0) };
    static NESTED: RefCell<VecDeque<Waiting>> = const { RefCell::new(VecDeque::new()) };
}

/// Delivers a completion to its channel now, or leaves it to an outer frame or a poll.
///
/// Takes the parts of the completion and assembles them at the call: see
/// [`IoBuf`](crate::buffer::IoBuf) for the reason.
#[inline(always)]
pub(super) fn deliver(
    reference: ChannelRef,
    token: u64,
    result: Result<Output, RequestError>,
    buf: IoBufs,
    counted: Counted,
) {
    let channel = reference.get();
    let share = SHARE.get();
    if let Ends::AtOnce(complete) = &channel.ends
        && share > 0
    {
        SHARE.set(DELIVERING);
        call(complete, Completion { token, result, buf });
        end_frame(share - 1);
    } else if let Ends::InInbox(mail) = &channel.ends {
        mail.put(token, result, buf);
    } else {
        return leave(reference, Completion { token, result, buf }, counted);
    }
    if counted == Counted::Yes {
        channel.wake_owner();
        count_ended(reference);
    }
}

/// Calls a channel's completion function. A panic is kept until the end of the call of the volume,
/// so that all other callers are notified and no zone is left in the middle of a step.
#[inline(always)]
fn call(complete: &CompletionFn, completion: Completion) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| complete(completion))) {
        keep(panic);
    }
}

#[cold]
fn keep(panic: Box<dyn Any + Send>) {
    if PENDING_ENDS.get() & PANICKED == 0 {
        PENDING_ENDS.set(PENDING_ENDS.get() | PANICKED);
        PANIC.set(Some(panic));
    }
}

/// Counts an ended request after the last use of its channel. The count is published at the end of
/// the call, or when a request of another channel ends: one atomic operation for all requests of a
/// poll.
#[inline]
fn count_ended(reference: ChannelRef) {
    if ENDED.get() != Some(reference) {
        publish_ended();
        ENDED.set(Some(reference));
    }
    PENDING_ENDS.set(PENDING_ENDS.get() + 1);
}

/// Publishes the counted ends to their channel.
#[inline(never)]
fn publish_ended() {
    let ended = PENDING_ENDS.get() & !PANICKED;
    PENDING_ENDS.set(PENDING_ENDS.get() & PANICKED);
    if ended > 0
        && let Some(reference) = ENDED.take()
    {
        // Last use of the pointer: the channel may be freed from here on.
        reference.get().ended.fetch_add(ended, Ordering::Release);
    }
}

/// Begins a call of a volume on this thread, unless it is made inside a completion function.
#[inline]
pub(super) fn begin_call() {
    if SHARE.get() != DELIVERING {
        SHARE.set(TURN_MAX as i32);
    }
}

/// Ends the call started by [`begin_call`].
///
/// # Panics
/// If a completion function panicked.
#[inline]
pub(super) fn end_call() {
    if PENDING_ENDS.get() > 0 {
        finish_call();
    }
}

#[inline(never)]
fn finish_call() {
    publish_ended();
    if PENDING_ENDS.get() & PANICKED != 0 && SHARE.get() != DELIVERING {
        PENDING_ENDS.set(0);
        if let Some(panic) = PANIC.take() {
            resume_unwind(panic);
        }
    }
}

#[cold]
#[inline(never)]
fn leave(reference: ChannelRef, completion: Completion, counted: Counted) {
    let waiting = Waiting::new(reference, completion, counted);
    if waiting.channel.is_deferred() || SHARE.get() != DELIVERING {
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

/// Ends the outermost delivery on this thread: delivers requests that completed inside it, up to
/// `share`, and leaves the rest to polls. Returns the unused share.
#[inline]
fn end_frame(mut share: i32) -> i32 {
    if NESTED_LEN.get() > 0 {
        share = drain_nested(share);
    }
    SHARE.set(share);
    share
}

#[cold]
fn drain_nested(mut share: i32) -> i32 {
    while let Some(waiting) = pop_nested() {
        if share > 0 {
            waiting.deliver();
            share -= 1;
        } else {
            let backlog = waiting.channel.backlog.clone();
            backlog.push(waiting);
        }
    }
    share
}

/// Channels of a volume.
pub(super) struct Channels {
    all: Mutex<Vec<Arc<CachePadded<ChannelInner>>>>,
    /// True while a cancelled channel has unfinished requests.
    is_cancelling: AtomicBool,
    backlog: Arc<Backlog>,
}

impl Channels {
    /// Creates an empty set for a volume with this alarm.
    pub(super) fn new(alarm: Arc<Alarm>) -> Channels {
        let backlog = Backlog { alarm, len: AtomicUsize::new(0), waiting: Mutex::default() };
        Channels { all: Mutex::default(), is_cancelling: AtomicBool::new(false), backlog: Arc::new(backlog) }
    }

    /// Opens a channel that calls `complete` inside any call of the volume.
    pub(super) fn open(&self, complete: Box<CompletionFn>, part: Option<Arc<PartPlace>>) -> Channel {
        self.open_for(Ends::AtOnce(complete), part)
    }

    /// Opens a channel that calls `complete` only inside polls.
    pub(super) fn open_deferred(&self, complete: Box<CompletionFn>, part: Option<Arc<PartPlace>>) -> Channel {
        self.open_for(Ends::InPolls(complete), part)
    }

    /// Opens the channel of an inbox for the calling thread.
    pub(super) fn open_inbox(&self, part: Option<Arc<PartPlace>>) -> Channel {
        self.open_for(Ends::InInbox(Mail::new()), part)
    }

    fn open_for(&self, ends: Ends, part: Option<Arc<PartPlace>>) -> Channel {
        let takes = match &part {
            None => Arc::as_ptr(&self.backlog).cast_mut(),
            Some(part) => Arc::as_ptr(part).cast_mut().cast(),
        };
        let inner = Arc::new(CachePadded::new(ChannelInner {
            ends,
            backlog: self.backlog.clone(),
            closed: AtomicBool::new(false),
            taken_by: AtomicPtr::new(takes),
            part,
            owner: AtomicUsize::new(thread_slot()),
            class: AtomicU32::new(0),
            withdrawn: Mutex::default(),
            issued: CachePadded::new(AtomicU64::new(0)),
            ended: CachePadded::new(AtomicU64::new(0)),
        }));
        let mut all = self.all.lock();
        // `closed` is read first: no request follows it, so equal counts then mean that none is
        // left.
        all.retain(|c| {
            !(c.closed.load(Ordering::Acquire)
                && c.ended.load(Ordering::Acquire) == c.issued.load(Ordering::Acquire))
        });
        all.push(inner.clone());
        Channel { inner, not_sync: PhantomData }
    }

    /// True if `channel` was opened by this volume, for no part, and is not cancelled. Only such
    /// channels, and those of a part, are kept until their requests have ended.
    #[inline]
    pub(super) fn takes(&self, channel: &Channel) -> bool {
        std::ptr::eq(channel.inner.taken_by.load(Ordering::Relaxed), Arc::as_ptr(&self.backlog))
    }

    /// Part of this volume for which `channel` was opened, if the channel is not cancelled.
    #[cold]
    pub(super) fn part_of<'a>(&self, channel: &'a Channel) -> Option<&'a PartPlace> {
        let is_taken = Arc::ptr_eq(&self.backlog, &channel.inner.backlog) && !channel.inner.is_cancelled();
        channel.part().filter(|_| is_taken)
    }

    /// Reason for refusing a request of a channel that is not [accepted](Channels::takes).
    #[cold]
    pub(super) fn refusal(&self, channel: &Channel) -> RequestError {
        match Arc::ptr_eq(&self.backlog, &channel.inner.backlog) {
            true => RequestError::Cancelled,
            false => RequestError::Invalid("the channel belongs to another volume"),
        }
    }

    /// Marks a channel as cancelled and sets `is_cancelling`. Under the lock, so that the second
    /// mark is not cleared before the first is visible.
    pub(super) fn mark_cancelled(&self, channel: &Channel) {
        let _all = self.all.lock();
        channel.inner.taken_by.store(std::ptr::null_mut(), Ordering::Release);
        self.is_cancelling.store(true, Ordering::Release);
    }

    /// Marks the requests of a channel with this token as cancelled, until the returned value is
    /// dropped.
    pub(super) fn withdraw(&self, channel: &Channel, token: u64) -> Withdrawal {
        let _all = self.all.lock();
        channel.inner.withdrawn.lock().push(token);
        self.is_cancelling.store(true, Ordering::Release);
        Withdrawal { channel: channel.inner.clone(), token }
    }

    /// True while a cancelled channel has unfinished requests.
    #[inline]
    pub(super) fn is_cancelling(&self) -> bool {
        self.is_cancelling.load(Ordering::Relaxed)
    }

    /// Clears the mark if it is no longer needed.
    #[inline]
    pub(super) fn clear_cancel_mark(&self) {
        if self.is_cancelling() {
            self.unmark_cancelling();
        }
    }

    /// Clears the mark if all requests of all cancelled channels have ended and none is withdrawn.
    #[cold]
    fn unmark_cancelling(&self) {
        let all = self.all.lock();
        let has_ended = |c: &ChannelInner| {
            // `ended` is read first: no request follows the mark, so `ended` does not exceed
            // `issued`.
            let ended = c.ended.load(Ordering::Acquire);
            let has_left = c.is_cancelled() && ended != c.issued.load(Ordering::Acquire);
            !has_left && c.withdrawn.lock().is_empty()
        };
        if all.iter().all(|c| has_ended(c)) {
            self.is_cancelling.store(false, Ordering::Release);
        }
    }

    pub(super) fn backlog(&self) -> &Backlog {
        &self.backlog
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        for channel in self.all.get_mut().drain(..) {
            // Requests still at the device may return through another volume on it, and point to
            // their channel, so the channel is leaked.
            if channel.ended.load(Ordering::Acquire) != channel.issued.load(Ordering::Acquire) {
                std::mem::forget(channel);
            }
        }
        // These keep their channels alive, which in turn keep the backlog.
        while let Some(waiting) = self.backlog.pop() {
            drop(waiting);
        }
    }
}
