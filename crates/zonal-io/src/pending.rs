//! Unfinished requests, which travel with commands as their context.
//!
//! This module is below both the device and the volume, which hold requests: the device as a value
//! to return to its host, the volume as work in progress. The data of a request is defined here;
//! its start and end, and the handling of its caller's options, are in `volume::pending`.

use crate::buffer::{IoBuf, IoBufs};
use crate::data::{Data, Segment};
use crate::sync::{Arc, AtomicBool, IS_MODEL, Mutex, local};
use std::cell::Cell;
use std::ptr::{self, NonNull};
use zonal_core::budget::WriterClass;
use zonal_core::plug::Failed;
use zonal_core::{Op, RequestError, SECTOR_BYTES, Sector};

/// Receiver of a request's completion.
#[derive(Clone, Default)]
pub(crate) enum Owner {
    /// None: the memory is free for the next request.
    #[default]
    Unused,
    /// A caller's channel.
    Channel(ChannelRef),
    /// Request that was split at zone boundaries.
    Split(Arc<Split>),
    /// The volume itself, which created the request.
    Volume,
}

/// Pointer to a channel, held by a request.
///
/// Valid for the lifetime of the request: the volume keeps every channel until it is closed and all
/// its requests have ended. The type behind it is private to the volume (`volume::channel`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChannelRef(pub(crate) NonNull<()>);

// SAFETY: it points to a `ChannelInner`, which is `Sync`.
unsafe impl Send for ChannelRef {}
// SAFETY: as above.
unsafe impl Sync for ChannelRef {}

/// Scheduler that has given a request a tag.
pub(crate) trait Scheduled: Send + Sync {
    /// Releases the tag of an ended request, and the lock of the zone of this sector if it held
    /// one.
    fn ended(&self, locked: Option<Sector>);
}

/// Request, or the part of a request in one zone. Owned by a queue, a device, or a thread.
///
/// Boxed, so that passing it on moves a pointer: copying freshly written memory costs more than the
/// box.
pub(crate) struct PendingRequest {
    pub(crate) owner: Owner,
    pub(crate) buf: IoBufs,
    pub(crate) token: u64,
    /// First sector; for an emulated append, the one assigned when it is issued.
    pub(crate) sector: Sector,
    pub(crate) sectors: u32,
    /// Sectors completed by earlier commands of this request.
    pub(crate) done: u32,
    /// Position assigned by the zone's plug, in sectors from the zone's start.
    pub(crate) at: u32,
    pub(crate) op: Op,
    pub(crate) stage: RequestStage,
    /// Rounds of recovery in which this request itself failed.
    pub(crate) rounds: u8,
    /// True while a plug counts the request as in flight.
    pub(crate) plugged: bool,
    pub(crate) fua: bool,
    pub(crate) nowait: bool,
    /// The submitting thread waits for this request. Cleared once the request is queued, because
    /// another thread may issue it.
    pub(crate) awaited: bool,
    /// Next write of a chain, issued without a look at the zone's queue.
    pub(crate) behind: Option<Box<PendingRequest>>,
    /// In mode `zone-lock`, the scheduler that gave the request a tag.
    pub(crate) tag: Option<Arc<dyn Scheduled>>,
    /// With a tag: true if the request has locked its zone.
    pub(crate) locks_zone: bool,
    /// While unused: length of this thread's list of unused requests from here on.
    spares: u32,
    /// While unused: next in the list, owned.
    next: *mut PendingRequest,
}

/// Maximum of unused requests kept by a thread. More accumulate if one thread submits and another
/// completes.
const SPARES_MAX: u32 = if IS_MODEL { 1 } else { 256 };

local! {
    /// First unused request of this thread, owned. Without a destructor, so that the hot path reads
    /// a plain cell.
    static SPARES: Cell<*mut PendingRequest> = const { Cell::new(ptr::null_mut()) };
    /// Frees the list when the thread ends; created with the thread's first request.
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
    // SAFETY: a pointer in the list owns its request, which is from `Box::into_raw`; removing it
    // transfers the ownership.
    let first = unsafe { Box::from_raw(first) };
    SPARES.set(first.next);
    Some(first)
}

/// Purpose of a request's next command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestStage {
    /// The requested operation.
    Main,
    /// Zeroes as ordinary writes, since the device has no command for them.
    ZeroesAsWrites,
    /// Flush to make a write durable, on a device without FUA.
    FlushBehind,
}

const _: () = assert!(size_of::<PendingRequest>() <= 128, "a request fits two cache lines");

// SAFETY: `next` is null or not accessed while a request is in use; everything else is `Send`.
unsafe impl Send for PendingRequest {}

impl PendingRequest {
    /// Returns an empty request, reusing memory of this thread.
    #[inline(always)]
    pub(crate) fn unused() -> Box<PendingRequest> {
        pop_spare().unwrap_or_else(PendingRequest::fresh)
    }

    #[cold]
    fn fresh() -> Box<PendingRequest> {
        // An exiting thread has lost its guard: memory recycled from here on is leaked.
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
            awaited: false,
            behind: None,
            tag: None,
            locks_zone: false,
            spares: 0,
            next: ptr::null_mut(),
        })
    }

    /// Keeps the memory for the next request of this thread.
    #[inline(always)]
    pub(crate) fn recycle(mut self: Box<PendingRequest>) {
        debug_assert!(self.behind.is_none(), "a request ends after those behind it have left it");
        let next = SPARES.get();
        // SAFETY: a pointer in the list owns its request, so it is valid, and only this thread
        // accesses it.
        let behind = if next.is_null() { 0 } else { unsafe { (*next).spares } };
        self.spares = behind + 1;
        if self.spares <= SPARES_MAX {
            self.next = next;
            SPARES.set(Box::into_raw(self));
        }
    }

    /// True for a zone management command that a plug waits for.
    #[inline]
    pub(crate) fn is_management(&self) -> bool {
        self.plugged && self.op.is_zone_management()
    }

    /// Payload of the next `sectors` sectors from `done`, for a command.
    ///
    /// # Safety
    /// As for [`IoBufs::data`].
    #[inline(always)]
    pub(crate) unsafe fn data(&mut self, sectors: u32) -> Data {
        let (from, len) = bytes(self.done, sectors);
        // SAFETY: the caller's promise.
        unsafe { self.buf.data(from, len) }
    }

    /// Appends the payload of all sectors to the segments of a merged command.
    #[inline]
    pub(crate) fn push_segments(&self, segments: &mut Vec<Segment>) {
        let (from, len) = bytes(self.done, self.sectors);
        self.buf.push_segments(from, len, segments);
    }

    /// True if `found`, read from the medium, equals the payload from sector `from`.
    #[cold]
    pub(crate) fn has_payload(&self, from: u32, found: &mut [u8]) -> bool {
        if self.op == Op::WriteZeroes {
            return found.iter().all(|&byte| byte == 0);
        }
        let mut is_same = true;
        self.buf.beside(bytes(from, 0).0, found, |ours, found| is_same &= ours == found);
        is_same
    }

    /// Fills `unlike` with bytes that differ from the payload from sector `from`.
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

/// Offset and length in bytes of `sectors` sectors from `from` in a payload.
#[inline(always)]
const fn bytes(from: u32, sectors: u32) -> (usize, usize) {
    (from as usize * SECTOR_BYTES as usize, sectors as usize * SECTOR_BYTES as usize)
}

/// Contiguous writes issued as one command, or one request with a payload that is not its buffer.
#[derive(Default)]
pub(crate) struct Merged {
    #[expect(clippy::vec_box, reason = "requests move on as boxes, in and out of here")]
    pub(crate) parts: Vec<Box<PendingRequest>>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) sectors: u32,
}

/// Request that spans zones, for its parts.
pub(crate) struct Split {
    pub(crate) state: Mutex<SplitState>,
    /// True once a failure of a part has been counted.
    pub(crate) has_failed: AtomicBool,
    /// Class of the whole request.
    pub(crate) class: WriterClass,
    /// Channel of the whole request, which ends after its parts.
    pub(crate) channel: Option<ChannelRef>,
    pub(crate) token: u64,
}

pub(crate) struct SplitState {
    pub(crate) parts_left: u32,
    /// Sectors on the medium from ended parts, and a flag if there may be more.
    pub(crate) written: u32,
    pub(crate) is_uncertain: bool,
    /// Error with the lowest address.
    pub(crate) error: Option<(Sector, RequestError)>,
    /// The whole request, and its buffer, to which the parts point.
    pub(crate) whole: Option<(Box<PendingRequest>, IoBufs)>,
}

/// Covered write that is being read back.
pub(crate) struct ReadBack {
    pub(crate) write: Failed<Box<PendingRequest>>,
    /// Sectors to compare, and those compared so far.
    pub(crate) covered: u32,
    pub(crate) compared: u32,
    /// Failed reads of the next piece.
    pub(crate) retries: u8,
    /// Next piece as read from the device.
    pub(crate) piece: IoBuf,
}
