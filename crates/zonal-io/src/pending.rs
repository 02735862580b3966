//! A request that has not ended: what travels with a command as its context.
//!
//! Below the device and the volume, which both hold it: the device as what its host wants back, the volume as what it moves on.
//! What a request is lies here; how it begins and ends, and which of its caller's wishes it obeys, is the volume's
//! (`volume::pending`).

use crate::buffer::{IoBuf, IoBufs};
use crate::data::{Data, Segment};
use crate::sync::{Arc, AtomicBool, IS_MODEL, Mutex, local};
use std::cell::Cell;
use std::ptr::{self, NonNull};
use zonal_core::budget::WriterClass;
use zonal_core::plug::Failed;
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

/// Pointer to a channel, held by a request.
///
/// Valid for the life of the request: the volume keeps every channel until it is closed and all its requests have ended. What
/// it points to is the volume's secret (`volume::channel`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChannelRef(pub(crate) NonNull<()>);

// SAFETY: it points to a `ChannelInner`, which is `Sync`.
unsafe impl Send for ChannelRef {}
// SAFETY: as above.
unsafe impl Sync for ChannelRef {}

/// A scheduler that has given a request a tag.
pub(crate) trait Scheduled: Send + Sync {
    /// A request has ended, and with it its tag, and the lock of the zone of this sector if it had one.
    fn ended(&self, locked: Option<Sector>);
}

/// One request, or its part that lies in one zone. Owned by what moves it on: a queue, a device, a thread.
///
/// Boxed, so that moving it on moves a pointer: copying what was just written costs more than the box does.
pub(crate) struct PendingRequest {
    pub(crate) owner: Owner,
    pub(crate) buf: IoBufs,
    pub(crate) token: u64,
    /// First sector; of an emulated append, the one it was given at issue.
    pub(crate) sector: Sector,
    pub(crate) sectors: u32,
    /// Sectors that earlier commands of this request have covered.
    pub(crate) done: u32,
    /// Where its zone's plug has put it, in sectors from the zone's start.
    pub(crate) at: u32,
    pub(crate) op: Op,
    pub(crate) stage: RequestStage,
    /// Rounds of recovery that it has itself failed in.
    pub(crate) rounds: u8,
    /// Whether a plug counts it as in flight.
    pub(crate) plugged: bool,
    pub(crate) fua: bool,
    pub(crate) nowait: bool,
    /// The write that follows this one without asking the zone's queue.
    pub(crate) behind: Option<Box<PendingRequest>>,
    /// In mode `zone-lock`: the scheduler that it came through, whose tag it has.
    pub(crate) tag: Option<Arc<dyn Scheduled>>,
    /// With a tag: whether it has locked its zone.
    pub(crate) locks_zone: bool,
    /// While unused: how many unused ones of this thread there are from this one on.
    spares: u32,
    /// While unused: the next of them, owned.
    next: *mut PendingRequest,
}

/// Unused requests that a thread keeps. More come together where one thread submits and another completes.
const SPARES_MAX: u32 = if IS_MODEL { 1 } else { 256 };

local! {
    /// The first unused request of this thread, owned. Without a destructor, so that the hot path reads a plain cell.
    static SPARES: Cell<*mut PendingRequest> = const { Cell::new(ptr::null_mut()) };
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
fn pop_spare() -> Option<Box<PendingRequest>> {
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
pub(crate) enum RequestStage {
    /// What the request asks for.
    Main,
    /// Zeroes, as ordinary writes: the device has no command for them.
    ZeroesAsWrites,
    /// Durability of a write, on a device that cannot do it with the write.
    FlushBehind,
}

const _: () = assert!(size_of::<PendingRequest>() <= 128, "a request fits two cache lines");

// SAFETY: `next` is null or not looked at while a request is in use; everything else is `Send`.
unsafe impl Send for PendingRequest {}

impl PendingRequest {
    /// Memory for a request, which holds nothing.
    #[inline(always)]
    pub(crate) fn unused() -> Box<PendingRequest> {
        pop_spare().unwrap_or_else(PendingRequest::fresh)
    }

    #[cold]
    fn fresh() -> Box<PendingRequest> {
        // A thread that is ending has no guard any more: what it recycles from here on is not freed.
        let _ = SPARES_GUARD.try_with(|_| ());
        Box::new(PendingRequest {
            owner: Owner::Unused,
            buf: IoBufs::empty(),
            token: 0,
            sector: Sector(0),
            sectors: 0,
            done: 0,
            at: 0,
            op: Op::Read,
            stage: RequestStage::Main,
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

    /// Keeps its memory for the next request of this thread.
    #[inline(always)]
    pub(crate) fn recycle(mut self: Box<PendingRequest>) {
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
    pub(crate) fn is_management(&self) -> bool {
        self.plugged && self.op.is_zone_management()
    }

    /// The payload's part that `sectors` from `done` on cover, for a command.
    ///
    /// # Safety
    /// As [`IoBufs::data`].
    #[inline(always)]
    pub(crate) unsafe fn data(&mut self, sectors: u32) -> Data {
        let (from, len) = bytes(self.done, sectors);
        // SAFETY: the caller's promise.
        unsafe { self.buf.data(from, len) }
    }

    /// Adds where the payload of all sectors lies to those of a shared command.
    #[inline]
    pub(crate) fn push_segments(&self, segments: &mut Vec<Segment>) {
        let (from, len) = bytes(self.done, self.sectors);
        self.buf.push_segments(from, len, segments);
    }

    /// Whether the payload from sector `from` on is `found`, as the medium has it.
    #[cold]
    pub(crate) fn has_payload(&self, from: u32, found: &mut [u8]) -> bool {
        if self.op == Op::WriteZeroes {
            return found.iter().all(|&byte| byte == 0);
        }
        let mut is_same = true;
        self.buf.beside(bytes(from, 0).0, found, |ours, found| is_same &= ours == found);
        is_same
    }

    /// Fills `bytes` with others than those of the payload from sector `from` on.
    #[cold]
    pub(crate) fn fill_unlike(&self, from: u32, unlike: &mut [u8]) {
        unlike.fill(!0);
        if self.op != Op::WriteZeroes {
            let invert = |ours: &[u8], unlike: &mut [u8]| {
                unlike.iter_mut().zip(ours).for_each(|(byte, ours)| *byte = !ours);
            };
            self.buf.beside(bytes(from, 0).0, unlike, invert);
        }
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
    pub(crate) parts: Vec<Box<PendingRequest>>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) sectors: u32,
}

/// A request that spans zones; its parts go their own ways.
pub(crate) struct Split {
    pub(crate) state: Mutex<SplitState>,
    /// A part of it has failed, and the statistics know.
    pub(crate) has_failed: AtomicBool,
    /// Of the whole.
    pub(crate) class: WriterClass,
    /// Of the whole, which ends after its parts.
    pub(crate) channel: Option<ChannelRef>,
    pub(crate) token: u64,
}

pub(crate) struct SplitState {
    pub(crate) parts_left: u32,
    /// Sectors of the parts that have ended which are on the medium, and whether others may be.
    pub(crate) written: u32,
    pub(crate) is_uncertain: bool,
    /// The error of the lowest address.
    pub(crate) error: Option<(Sector, RequestError)>,
    /// The whole, and its buffer, to which the parts point.
    pub(crate) whole: Option<(Box<PendingRequest>, IoBufs)>,
}

/// A covered write that is being read back.
pub(crate) struct ReadBack {
    pub(crate) write: Failed<Box<PendingRequest>>,
    /// Sectors to compare, and how many were.
    pub(crate) covered: u32,
    pub(crate) compared: u32,
    /// Times that the next piece was asked for in vain.
    pub(crate) retries: u8,
    /// What the device has of the next piece.
    pub(crate) piece: IoBuf,
}
