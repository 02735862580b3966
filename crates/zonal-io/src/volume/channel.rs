//! Channels: where completions go.
//!
//! A channel is one submitter's context: a completion function, called once a request by whichever thread completes it, or
//! an inbox.
//!
//! # Delivery
//! - Never under a lock. Never while another completion function of any channel runs on the same thread: a function
//!   that submits does not nest, what completes meanwhile is delivered by the outermost frame, in order.
//! - A call of a volume delivers at most [`TURN_MAX`] completions and leaves the rest to the next poll, so neither a
//!   caller that keeps the pipe full from its completion function nor one whose thousand writes are aborted can hold a
//!   thread that only came to submit.
//! - A deferred channel's completions are delivered by polls only.
//! - An inbox's completions are put down where its thread takes them (`inbox`). No code of the caller runs, so none of this
//!   concerns them.
//! - A completion function that panics does so at the end of the call that ran it: everything else in that call has its
//!   end before.

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

/// Completions that one call of a volume delivers, and commands that one thread completes for one zone, before others get
/// a turn.
pub const TURN_MAX: usize = if IS_MODEL { 2 } else { 64 };

type CompletionFn = dyn Fn(Completion) + Send + Sync;

/// Where a channel's completions end.
#[allow(clippy::large_enum_variant, reason = "a channel has one for good, in memory of its own")]
enum Ends {
    /// Inside any call of the volume.
    AtOnce(Box<CompletionFn>),
    /// Inside polls only.
    InPolls(Box<CompletionFn>),
    InInbox(Mail),
}

pub(crate) struct ChannelInner {
    ends: Ends,
    backlog: Arc<Backlog>,
    closed: AtomicBool,
    /// The backlog of the volume that takes requests of this channel, or the address of `part`, which is none; null once it is
    /// cancelled.
    taken_by: AtomicPtr<Backlog>,
    /// The part of the volume that it was opened for.
    part: Option<Arc<PartPlace>>,
    /// The thread that has last submitted to it: it is woken when another one completes its requests.
    owner: AtomicUsize,
    /// Of the writers that use it.
    class: AtomicU32,
    /// Tokens of requests that are cancelled one at a time, while their [`Withdrawal`] lives.
    withdrawn: Mutex<Vec<u64>>,
    /// Requests that outlived their `submit`, counted by the channel's owner alone. Apart from what others read and from
    /// what they count: each would take the line away from the others with every request.
    issued: CachePadded<AtomicU64>,
    /// How many of them have ended; equal to `issued`, no request holds a pointer to this channel.
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

    /// Wakes the thread that waits for what another one has completed, if it sleeps.
    #[inline(always)]
    fn wake_owner(&self) {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != slot_if_any() || owner >= ENDING_SLOT {
            self.backlog.alarm.wake(owner);
        }
    }
}

/// A submitter's context. One thread uses it at a time.
pub struct Channel {
    /// On cache lines of its own: threads count on their channels side by side.
    inner: Arc<CachePadded<ChannelInner>>,
    /// `issued` is counted without a locked operation, which only one thread may do.
    not_sync: PhantomData<Cell<()>>,
}

impl Channel {
    /// The part of its volume that it was opened for.
    #[inline]
    pub(super) fn part(&self) -> Option<&PartPlace> {
        self.inner.part.as_deref()
    }

    /// What has ended, of an inbox's channel.
    #[inline]
    pub(super) fn mail(&self) -> &Mail {
        match &self.inner.ends {
            Ends::InInbox(mail) => mail,
            _ => unreachable!("an inbox has the channel that was opened for it"),
        }
    }

    /// The same channel, for writers of this class: what they write counts for it where the volume keeps a budget.
    ///
    /// # Panics
    /// If there is no such class.
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

/// Requests that [`Volume::cancel_request`](super::Volume::cancel_request) has cancelled: none of them issues another command
/// while this lives.
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

    /// Counts a request that will end after its `submit` has returned, or may.
    pub(super) fn count_issued(channel: &Channel) {
        let ChannelInner { issued, owner, .. } = &**channel.inner;
        // The request was counted, so the thread has a number.
        let me = slot_if_any();
        // Seldom: a store at each request would take the line away from the threads that complete.
        if owner.load(Ordering::Relaxed) != me {
            owner.store(me, Ordering::Relaxed);
        }
        // One thread at a time owns the channel.
        issued.store(issued.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Whether the channel's requests with this token issue no more commands.
    pub(super) fn is_cancelled(&self, token: u64) -> bool {
        self.get().is_cancelled() || self.get().is_withdrawn(token)
    }

    /// Whether it was opened for a part that is a drive to its users.
    #[cold]
    pub(super) fn is_of_drive(&self) -> bool {
        self.get().part.as_ref().is_some_and(|part| part.is_drive())
    }

    #[cold]
    pub(super) fn class(&self) -> WriterClass {
        WriterClass(self.get().class.load(Ordering::Relaxed) as u8)
    }

    fn get(&self) -> &ChannelInner {
        // SAFETY: `Channels` frees a channel only when every request that holds a pointer has ended, which `ended`
        // counts after its last use of the pointer.
        unsafe { self.inner().as_ref() }
    }

    /// What it points to: `of` alone makes one.
    const fn inner(self) -> NonNull<CachePadded<ChannelInner>> {
        self.0.cast()
    }

    fn to_owned(self) -> Arc<CachePadded<ChannelInner>> {
        // SAFETY: the pointer comes from an `Arc` that lives (see `get`); the increment pays for the new handle.
        unsafe {
            Arc::increment_strong_count(self.inner().as_ptr());
            Arc::from_raw(self.inner().as_ptr())
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

    fn deliver(self) {
        if let Ends::AtOnce(complete) | Ends::InPolls(complete) = &self.channel.ends {
            call(complete, self.completion);
        }
        self.channel.wake_owner();
    }
}

/// Completions left over by full frames and those of deferred channels.
pub(crate) struct Backlog {
    /// Of the volume.
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

    /// Delivers what the present call may still. From inside a completion function it does nothing: the outermost frame
    /// will.
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

/// In [`SHARE`]: a completion function runs on this thread.
const DELIVERING: i32 = -1;

/// In [`OWED`]: there is something in [`PANIC`].
const PANICKED: u64 = 1 << 63;

local! {
    /// Completions that this thread may still deliver in its present call of a volume.
    static SHARE: Cell<i32> = const { Cell::new(TURN_MAX as i32) };
    /// What the end of the present call owes: the ends of `ENDED` to be counted, and [`PANICKED`].
    static OWED: Cell<u64> = const { Cell::new(0) };
    /// The channel whose ends `OWED` counts.
    static ENDED: Cell<Option<ChannelRef>> = const { Cell::new(None) };
    /// The first panic of a completion function in the present call.
    static PANIC: Cell<Option<Box<dyn Any + Send>>> = const { Cell::new(None) };
    /// Length of `NESTED`, apart so that the usual case reads a plain cell.
    static NESTED_LEN: Cell<usize> = const { Cell::new(0) };
    static NESTED: RefCell<VecDeque<Waiting>> = const { RefCell::new(VecDeque::new()) };
}

/// Hands a completion to its channel now, or leaves it to the frame or poll that will.
///
/// Takes the completion's parts, and puts them together where the function is called: see [`IoBuf`](crate::buffer::IoBuf) for why.
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

/// Calls a channel's completion function. A panic is kept for the end of the call of the volume: every other
/// caller that is to hear of something hears of it, and no zone is left in the middle of a step.
#[inline(always)]
fn call(complete: &CompletionFn, completion: Completion) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| complete(completion))) {
        keep(panic);
    }
}

#[cold]
fn keep(panic: Box<dyn Any + Send>) {
    if OWED.get() & PANICKED == 0 {
        OWED.set(OWED.get() | PANICKED);
        PANIC.set(Some(panic));
    }
}

/// Counts the end of a request, which has used its channel. The channel is told at the end of the call, or when another
/// channel's request ends: one locked operation for all that a poll reaps.
#[inline]
fn count_ended(reference: ChannelRef) {
    if ENDED.get() != Some(reference) {
        tell_ended();
        ENDED.set(Some(reference));
    }
    OWED.set(OWED.get() + 1);
}

/// Tells the channel that ends were counted for.
#[inline(never)]
fn tell_ended() {
    let ended = OWED.get() & !PANICKED;
    OWED.set(OWED.get() & PANICKED);
    if ended > 0
        && let Some(reference) = ENDED.take()
    {
        // The last use of the pointer: from here on the channel may be freed.
        reference.get().ended.fetch_add(ended, Ordering::Release);
    }
}

/// Begins a call of a volume on this thread, unless it is one from inside a completion function.
#[inline]
pub(super) fn begin_call() {
    if SHARE.get() != DELIVERING {
        SHARE.set(TURN_MAX as i32);
    }
}

/// Ends what [`begin_call`] began.
///
/// # Panics
/// If a completion function did.
#[inline]
pub(super) fn end_call() {
    if OWED.get() > 0 {
        pay();
    }
}

#[inline(never)]
fn pay() {
    tell_ended();
    if OWED.get() & PANICKED != 0 && SHARE.get() != DELIVERING {
        OWED.set(0);
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

/// Ends the outermost delivery on this thread: delivers what completed inside it, up to `share`, and leaves the rest to
/// polls. Returns what is left of the share.
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

/// A volume's channels.
pub(super) struct Channels {
    all: Mutex<Vec<Arc<CachePadded<ChannelInner>>>>,
    /// A cancelled channel has requests that have not ended.
    is_cancelling: AtomicBool,
    backlog: Arc<Backlog>,
}

impl Channels {
    /// None yet, of a volume with this alarm.
    pub(super) fn new(alarm: Arc<Alarm>) -> Channels {
        let backlog = Backlog { alarm, len: AtomicUsize::new(0), waiting: Mutex::default() };
        Channels { all: Mutex::default(), is_cancelling: AtomicBool::new(false), backlog: Arc::new(backlog) }
    }

    /// A channel that calls `complete` inside any call of the volume.
    pub(super) fn open(&self, complete: Box<CompletionFn>, part: Option<Arc<PartPlace>>) -> Channel {
        self.open_for(Ends::AtOnce(complete), part)
    }

    /// A channel that calls `complete` inside polls only.
    pub(super) fn open_deferred(&self, complete: Box<CompletionFn>, part: Option<Arc<PartPlace>>) -> Channel {
        self.open_for(Ends::InPolls(complete), part)
    }

    /// The channel of an inbox of the calling thread.
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
        // `closed` first: no request comes after it, so equal counts then mean that none is left.
        all.retain(|c| {
            !(c.closed.load(Ordering::Acquire)
                && c.ended.load(Ordering::Acquire) == c.issued.load(Ordering::Acquire))
        });
        all.push(inner.clone());
        Channel { inner, not_sync: PhantomData }
    }

    /// Whether `channel` was opened here, for no part, and not cancelled. Only then, or with a part, it is kept until its
    /// requests have ended.
    #[inline]
    pub(super) fn takes(&self, channel: &Channel) -> bool {
        std::ptr::eq(channel.inner.taken_by.load(Ordering::Relaxed), Arc::as_ptr(&self.backlog))
    }

    /// The part of this volume that `channel` was opened for, if it is not cancelled.
    #[cold]
    pub(super) fn part_of<'a>(&self, channel: &'a Channel) -> Option<&'a PartPlace> {
        let is_taken = Arc::ptr_eq(&self.backlog, &channel.inner.backlog) && !channel.inner.is_cancelled();
        channel.part().filter(|_| is_taken)
    }

    /// Why a request to a channel is not [taken](Channels::takes).
    #[cold]
    pub(super) fn refusal(&self, channel: &Channel) -> RequestError {
        match Arc::ptr_eq(&self.backlog, &channel.inner.backlog) {
            true => RequestError::Cancelled,
            false => RequestError::Invalid("the channel is another volume's"),
        }
    }

    /// Marks a channel, and in `is_cancelling` that one is. Under the lock, so that the second mark is not taken away before
    /// the first has been seen.
    pub(super) fn mark_cancelled(&self, channel: &Channel) {
        let _all = self.all.lock();
        channel.inner.taken_by.store(std::ptr::null_mut(), Ordering::Release);
        self.is_cancelling.store(true, Ordering::Release);
    }

    /// The same for the requests of a channel that have this token, until the answer is dropped.
    pub(super) fn withdraw(&self, channel: &Channel, token: u64) -> Withdrawal {
        let _all = self.all.lock();
        channel.inner.withdrawn.lock().push(token);
        self.is_cancelling.store(true, Ordering::Release);
        Withdrawal { channel: channel.inner.clone(), token }
    }

    /// Whether a cancelled channel has requests that have not ended.
    #[inline]
    pub(super) fn is_cancelling(&self) -> bool {
        self.is_cancelling.load(Ordering::Relaxed)
    }

    /// Takes the mark away once nothing is left for it.
    #[inline]
    pub(super) fn look_after_cancelled(&self) {
        if self.is_cancelling() {
            self.unmark_cancelling();
        }
    }

    /// Takes the mark away if every request of every cancelled channel has ended, and none is withdrawn.
    #[cold]
    fn unmark_cancelling(&self) {
        let all = self.all.lock();
        let has_ended = |c: &ChannelInner| {
            // `ended` first: no request comes after the mark, so it does not pass `issued`.
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
