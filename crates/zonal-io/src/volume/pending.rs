//! Requests that have not ended: what travels with a command as its context.

use super::channel::{ChannelRef, Counted, deliver};
use super::front::Front;
use super::request::Request;
use crate::buffer::IoBufs;
use crate::data::{Data, Segment};
use crate::device::Output;
use crate::sync::{Arc, AtomicBool, IS_MODEL, Mutex, Ordering, local};
use std::cell::Cell;
use std::{mem, ptr};
use zonal_core::budget::Class;
use zonal_core::{Op, RequestError, SECTOR_BYTES, Sector};

/// Who hears of a request's end.
#[derive(Clone, Default)]
pub(crate) enum Owner {
    /// None: the memory waits for its next request.
    #[default]
    Unused,
    /// The caller.
    Channel(ChannelRef),
    /// A request that was split at zone boundaries.
    Split(Arc<Split>),
    /// The volume itself, which made it.
    Volume,
}

/// One request, or its part that lies in one zone. Owned by what moves it on: a queue, a device, a thread.
///
/// Boxed, so that moving it on moves a pointer: copying what was just written costs more than the box does.
pub(crate) struct Pending {
    pub(super) owner: Owner,
    pub(super) buf: IoBufs,
    pub(super) token: u64,
    /// First sector; of an emulated append, the one it was given at issue.
    pub(super) sector: Sector,
    pub(super) sectors: u32,
    /// Sectors that earlier commands of this request have covered.
    pub(super) done: u32,
    /// Where its zone's plug has put it, in sectors from the zone's start.
    pub(super) at: u32,
    pub(super) op: Op,
    pub(super) stage: Stage,
    /// Rounds of recovery that it has itself failed in.
    pub(super) rounds: u8,
    /// Whether a plug counts it as in flight.
    pub(super) plugged: bool,
    pub(super) fua: bool,
    pub(super) nowait: bool,
    /// The write that follows this one without asking the zone's queue.
    pub(super) behind: Option<Box<Pending>>,
    /// In mode `zone-lock`: the scheduler that it came through, whose tag it has.
    pub(super) tag: Option<Arc<Front>>,
    /// With a tag: whether it has locked its zone.
    pub(super) locks_zone: bool,
    /// While unused: how many unused ones of this thread there are from this one on.
    spares: u32,
    /// While unused: the next of them, owned.
    next: *mut Pending,
}

/// Unused requests that a thread keeps. More come together where one thread submits and another completes.
const SPARES_MAX: u32 = if IS_MODEL { 1 } else { 256 };

local! {
    /// The first unused request of this thread, owned. Without a destructor, so that the hot path reads a plain cell.
    static SPARES: Cell<*mut Pending> = const { Cell::new(ptr::null_mut()) };
    /// Frees them when the thread ends; made with the thread's first request.
    static SPARES_GUARD: SparesGuard = const { SparesGuard };
}

struct SparesGuard;

impl Drop for SparesGuard {
    fn drop(&mut self) {
        while let Some(p) = pop_spare() {
            drop(p);
        }
    }
}

#[inline(always)]
fn pop_spare() -> Option<Box<Pending>> {
    let first = SPARES.get();
    if first.is_null() {
        return None;
    }
    // SAFETY: a pointer in the list owns its request, which came from `Box::into_raw`; taking it off the list takes it over.
    let first = unsafe { Box::from_raw(first) };
    SPARES.set(first.next);
    Some(first)
}

/// What the next command of a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// What the request asks for.
    Main,
    /// Zeroes, as ordinary writes: the device has no command for them.
    ZeroesAsWrites,
    /// Durability of a write, on a device that cannot do it with the write.
    FlushBehind,
}

const _: () = assert!(size_of::<Pending>() <= 128, "a request fits two cache lines");

// SAFETY: `next` is null or not looked at while a request is in use; everything else is `Send`.
unsafe impl Send for Pending {}

impl Pending {
    /// Inlined into the caller, so that the request is built where it will stay: reading back in one piece what was just
    /// written in several costs a stall.
    #[inline(always)]
    pub(super) fn new(owner: Owner, request: Request) -> Box<Pending> {
        let mut p = pop_spare().unwrap_or_else(Pending::fresh);
        debug_assert!(
            matches!(p.owner, Owner::Unused) && p.buf.is_empty(),
            "an unused request holds nothing"
        );
        // So there is nothing to drop, which is not worth asking each time.
        mem::forget(mem::replace(&mut p.owner, owner));
        mem::forget(mem::replace(&mut p.buf, request.buf));
        p.token = request.token;
        p.sector = request.sector;
        p.sectors = request.sectors;
        p.done = 0;
        p.op = request.op;
        p.stage = Stage::Main;
        p.rounds = 0;
        p.plugged = false;
        p.fua = request.fua;
        p.nowait = request.nowait;
        p
    }

    #[cold]
    fn fresh() -> Box<Pending> {
        // A thread that is ending has no guard any more: what it recycles from here on is not freed.
        let _ = SPARES_GUARD.try_with(|_| ());
        Box::new(Pending {
            owner: Owner::Unused,
            buf: IoBufs::empty(),
            token: 0,
            sector: Sector(0),
            sectors: 0,
            done: 0,
            at: 0,
            op: Op::Read,
            stage: Stage::Main,
            rounds: 0,
            plugged: false,
            fua: false,
            nowait: false,
            behind: None,
            tag: None,
            locks_zone: false,
            spares: 0,
            next: ptr::null_mut(),
        })
    }

    #[inline(always)]
    fn recycle(mut self: Box<Pending>) {
        debug_assert!(self.behind.is_none(), "a request ends after those behind it have left it");
        let next = SPARES.get();
        // SAFETY: a pointer in the list owns its request, so it is valid, and only this thread reaches it.
        let behind = if next.is_null() { 0 } else { unsafe { (*next).spares } };
        self.spares = behind + 1;
        if self.spares <= SPARES_MAX {
            self.next = next;
            SPARES.set(Box::into_raw(self));
        }
    }

    /// Whether a plug waits for this request's end as for a reset or finish.
    #[inline]
    pub(super) fn is_management(&self) -> bool {
        self.plugged && self.op.is_zone_management()
    }

    /// Whether an error of this one fails a request that nothing has failed yet: parts of one fail it once.
    #[cold]
    pub(super) fn is_first_to_fail(&self) -> bool {
        match &self.owner {
            Owner::Split(split) => !split.has_failed.swap(true, Ordering::Relaxed),
            Owner::Volume => false,
            _ => true,
        }
    }

    /// Whether it, or its channel, was cancelled: it issues no more commands.
    #[cold]
    pub(super) fn is_cancelled(&self) -> bool {
        match &self.owner {
            Owner::Channel(channel) => channel.is_cancelled(self.token),
            Owner::Split(split) => split.channel.is_some_and(|channel| channel.is_cancelled(split.token)),
            Owner::Volume | Owner::Unused => false,
        }
    }

    /// Whether its caller takes the zones for a drive, which lets no write wait for an open or active zone.
    #[cold]
    pub(super) fn is_of_drive(&self) -> bool {
        match &self.owner {
            Owner::Channel(channel) => channel.is_of_drive(),
            Owner::Split(split) => split.channel.is_some_and(|channel| channel.is_of_drive()),
            Owner::Volume | Owner::Unused => false,
        }
    }

    /// The class of the caller that made this request.
    #[cold]
    pub(super) fn class(&self) -> Class {
        match &self.owner {
            Owner::Channel(channel) => channel.class(),
            Owner::Split(split) => split.class,
            Owner::Volume | Owner::Unused => Class::default(),
        }
    }

    /// The payload's part that `sectors` from `done` on cover, for a command.
    ///
    /// # Safety
    /// As [`IoBufs::data`].
    #[inline(always)]
    pub(super) unsafe fn data(&mut self, sectors: u32) -> Data {
        let (from, len) = bytes(self.done, sectors);
        // SAFETY: the caller's promise.
        unsafe { self.buf.data(from, len) }
    }

    /// Adds where the payload of all sectors lies to those of a shared command.
    #[inline]
    pub(super) fn push_segments(&self, segments: &mut Vec<Segment>) {
        let (from, len) = bytes(self.done, self.sectors);
        self.buf.push_segments(from, len, segments);
    }

    /// Whether the payload from sector `from` on is `found`, as the medium has it.
    #[cold]
    pub(super) fn has_payload(&self, from: u32, found: &mut [u8]) -> bool {
        if self.op == Op::WriteZeroes {
            return found.iter().all(|&byte| byte == 0);
        }
        let mut is_same = true;
        self.buf.beside(bytes(from, 0).0, found, |ours, found| is_same &= ours == found);
        is_same
    }

    /// Fills `bytes` with others than those of the payload from sector `from` on.
    #[cold]
    pub(super) fn fill_unlike(&self, from: u32, unlike: &mut [u8]) {
        unlike.fill(!0);
        if self.op != Op::WriteZeroes {
            let invert = |ours: &[u8], unlike: &mut [u8]| {
                unlike.iter_mut().zip(ours).for_each(|(byte, ours)| *byte = !ours);
            };
            self.buf.beside(bytes(from, 0).0, unlike, invert);
        }
    }

    /// Ends the request and tells the caller, unless it is a part of one whose other parts have not ended.
    #[inline(always)]
    pub(super) fn end(mut self: Box<Pending>, result: Result<Output, RequestError>, counted: Counted) {
        if self.tag.is_some() {
            return self.end_with_tag(result);
        }
        let buf = mem::take(&mut self.buf);
        let (token, sector, sectors) = (self.token, self.sector, self.sectors);
        let owner = mem::take(&mut self.owner);
        // Before the completion function runs, so that it finds the memory for its next request.
        self.recycle();
        match owner {
            Owner::Channel(channel) => deliver(channel, token, result, buf, counted),
            Owner::Split(split) => split.end_part(sector, sectors, result),
            Owner::Volume => {}
            Owner::Unused => unreachable!("a request has an owner until it ends"),
        }
    }
}

impl Pending {
    /// Ends a request that has been scheduled: its submit has counted it, whichever thread sees its end.
    #[cold]
    #[inline(never)]
    fn end_with_tag(mut self: Box<Pending>, result: Result<Output, RequestError>) {
        if let Some(scheduler) = self.tag.take() {
            let locked = std::mem::take(&mut self.locks_zone);
            scheduler.ended(locked.then_some(self.sector));
        }
        self.end(result, Counted::Yes);
    }
}

/// Where `sectors` sectors from `from` on begin in a payload, and how long they are, in bytes.
#[inline(always)]
const fn bytes(from: u32, sectors: u32) -> (usize, usize) {
    (from as usize * SECTOR_BYTES as usize, sectors as usize * SECTOR_BYTES as usize)
}

/// Writes that go out as one command, in order, or one request whose payload is not its buffer.
#[derive(Default)]
pub(crate) struct Merged {
    #[expect(clippy::vec_box, reason = "requests move on as boxes, in and out of here")]
    pub(super) parts: Vec<Box<Pending>>,
    pub(super) segments: Vec<Segment>,
    pub(super) sectors: u32,
}

/// A request that spans zones; its parts go their own ways.
pub(crate) struct Split {
    state: Mutex<SplitState>,
    /// A part of it has failed, and the statistics know.
    has_failed: AtomicBool,
    /// Of the whole.
    class: Class,
    /// Of the whole, which ends after its parts.
    channel: Option<ChannelRef>,
    token: u64,
}

struct SplitState {
    parts_left: u32,
    /// Sectors of the parts that have ended which are on the medium, and whether others may be.
    landed: u32,
    is_uncertain: bool,
    /// The error of the lowest address.
    error: Option<(Sector, RequestError)>,
    /// The whole, and its buffer, to which the parts point.
    whole: Option<(Box<Pending>, IoBufs)>,
}

impl Split {
    pub(super) fn new(parts: u32, whole: Box<Pending>, buf: IoBufs) -> Split {
        let (class, token) = (whole.class(), whole.token);
        let channel = match &whole.owner {
            Owner::Channel(channel) => Some(*channel),
            _ => None,
        };
        let whole = Some((whole, buf));
        let state =
            Mutex::new(SplitState { parts_left: parts, landed: 0, is_uncertain: false, error: None, whole });
        Split { state, has_failed: AtomicBool::new(false), class, channel, token }
    }

    #[cold]
    fn end_part(&self, at: Sector, sectors: u32, result: Result<Output, RequestError>) {
        let mut state = self.state.lock();
        match result {
            Ok(_) => state.landed += sectors,
            Err(error) => {
                state.landed += error.landed();
                state.is_uncertain |= error.is_uncertain();
                if state.error.is_none_or(|(lowest, _)| at < lowest) {
                    state.error = Some((at, error));
                }
            }
        }
        state.parts_left -= 1;
        if state.parts_left > 0 {
            return;
        }
        let (mut whole, buf) = state.whole.take().expect("the last part ends once");
        let result = match state.error {
            None => Ok(Output::Done),
            Some((sector, error)) if whole.op.is_write() && (state.landed > 0 || state.is_uncertain) => {
                Err(RequestError::InPart { sector, landed: state.landed, error: error.as_device() })
            }
            Some((_, error)) => Err(error),
        };
        drop(state);
        whole.buf = buf;
        whole.end(result, Counted::Yes);
    }
}
