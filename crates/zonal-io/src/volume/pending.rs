//! Requests on their way: what travels with a command as its context.

use super::channel::{ChannelRef, Counted, Delivery, deliver};
use super::request::{Completion, Request};
use crate::buffer::IoBuf;
use crate::data::Segment;
use crate::device::Output;
use crate::sync::{Arc, Mutex};
use zonal_core::{Op, RequestError, SECTOR_BYTES, Sector};

/// Who hears of a request's end.
#[derive(Clone)]
pub(crate) enum Owner {
    /// The caller.
    Channel(ChannelRef),
    /// A request that was split at zone boundaries.
    Split(Arc<Split>),
}

/// One request, or the part of one that lies in one zone. Owned by whoever moves it on: a queue, a device, a thread.
pub(crate) struct Pending {
    pub(super) owner: Owner,
    pub(super) buf: IoBuf,
    pub(super) token: u64,
    /// First sector; of an emulated append, the one it was given at issue.
    pub(super) sector: Sector,
    pub(super) sectors: u32,
    /// Sectors that earlier commands of this request have covered.
    pub(super) done: u32,
    pub(super) op: Op,
    pub(super) stage: Stage,
    /// Whether a plug counts it as in flight.
    pub(super) plugged: bool,
    pub(super) fua: bool,
    pub(super) nowait: bool,
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

impl Pending {
    /// Inlined so that the request is built where it will stay: a copy of what was just written costs a stall.
    #[inline(always)]
    pub(super) fn new(owner: Owner, request: Request, stage: Stage) -> Pending {
        let Request { op, fua, nowait, sector, sectors, buf, token } = request;
        Pending { owner, buf, token, sector, sectors, done: 0, op, stage, plugged: false, fua, nowait }
    }

    /// Whether a plug waits for this request's end as for a reset or finish.
    #[inline]
    pub(super) fn is_management(&self) -> bool {
        self.plugged && self.op.is_zone_management()
    }

    /// The payload's part that `sectors` from `done` on cover.
    pub(super) fn segment(&self, sectors: u32) -> Segment {
        let from = self.done as usize * SECTOR_BYTES as usize;
        let len = sectors as usize * SECTOR_BYTES as usize;
        debug_assert!(from + len <= self.buf.len());
        Segment::new(self.buf.as_ptr().wrapping_add(from), len)
    }

    /// Ends the request and tells the caller, unless it is a part of one whose other parts are still on their way.
    #[inline(always)]
    pub(super) fn end(self, result: Result<Output, RequestError>, counted: Counted) {
        match self.owner {
            Owner::Channel(channel) => {
                deliver(channel, Completion { token: self.token, result, buf: self.buf }, counted);
            }
            Owner::Split(split) => split.end_part(self.sector, result),
        }
    }
}

/// Writes that go out as one command, in order, or one request whose payload is not its buffer.
#[derive(Default)]
pub(crate) struct Merged {
    pub(super) parts: Vec<Pending>,
    pub(super) segments: Vec<Segment>,
    pub(super) sectors: u32,
}

/// A request that spans zones; its parts go their own ways.
pub(crate) struct Split {
    state: Mutex<SplitState>,
}

struct SplitState {
    parts_left: u32,
    /// The error of the lowest address, which is what the whole ends with.
    error: Option<(Sector, RequestError)>,
    whole: Option<Delivery>,
}

impl Split {
    pub(super) fn new(parts: u32, channel: ChannelRef, token: u64, buf: IoBuf) -> Split {
        let completion = Completion { token, result: Ok(Output::Done), buf };
        let whole = Some(Delivery { channel, completion, counted: Counted::Yes });
        Split { state: Mutex::new(SplitState { parts_left: parts, error: None, whole }) }
    }

    #[cold]
    fn end_part(&self, at: Sector, result: Result<Output, RequestError>) {
        let mut state = self.state.lock();
        if let Err(e) = result
            && state.error.is_none_or(|(lowest, _)| at < lowest)
        {
            state.error = Some((at, e));
        }
        state.parts_left -= 1;
        if state.parts_left > 0 {
            return;
        }
        let mut whole = state.whole.take().expect("the last part ends once");
        if let Some((_, e)) = state.error {
            whole.completion.result = Err(e);
        }
        drop(state);
        deliver(whole.channel, whole.completion, whole.counted);
    }
}
