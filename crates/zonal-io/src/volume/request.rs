//! Requests and their completions.

use crate::buffer::IoBufs;
use crate::device::Output;
use zonal_core::{DeviceError, Op, RequestError, Sector, ZoneDescriptor};

/// Request to a [`Volume`](super::Volume).
#[derive(Debug)]
pub struct Request {
    /// Operation.
    pub op: Op,
    /// Make this write durable before it is acknowledged (force unit access).
    pub fua: bool,
    /// Fail with [`RequestError::WouldWait`] rather than wait for other requests.
    pub nowait: bool,
    /// The calling thread waits for this request and submits no other one before its completion.
    /// `submit` may then block while the device executes it, which saves a helper thread.
    pub awaited: bool,
    /// First sector; the zone's start for an append and zone management.
    pub sector: Sector,
    /// Length in sectors; for a report, the maximum number of zones; 0 for operations without a
    /// length.
    pub sectors: u32,
    /// Payload, in one piece or several; for read, write and append at least as long as the
    /// request. Returned with the completion.
    pub buf: IoBufs,
    /// Number chosen by the caller, returned with the completion.
    pub token: u64,
}

impl Request {
    pub(super) fn new(op: Op, sector: Sector, sectors: u32, buf: IoBufs) -> Request {
        Request { op, fua: false, nowait: false, awaited: false, sector, sectors, buf, token: 0 }
    }

    /// Read `sectors` from `sector` into `buf`.
    pub fn read(sector: Sector, sectors: u32, buf: impl Into<IoBufs>) -> Request {
        Request::new(Op::Read, sector, sectors, buf.into())
    }

    /// Write `sectors` from `buf` at `sector`.
    pub fn write(sector: Sector, sectors: u32, buf: impl Into<IoBufs>) -> Request {
        Request::new(Op::Write, sector, sectors, buf.into())
    }

    /// Write `sectors` of zeroes at `sector`.
    pub fn write_zeroes(sector: Sector, sectors: u32) -> Request {
        Request::new(Op::WriteZeroes, sector, sectors, IoBufs::empty())
    }

    /// Verify `sectors` from `sector` on the medium, without returning data.
    pub fn verify(sector: Sector, sectors: u32) -> Request {
        Request::new(Op::Verify, sector, sectors, IoBufs::empty())
    }

    /// Deallocate `sectors` from `sector`, all of them in conventional zones.
    pub fn discard(sector: Sector, sectors: u32) -> Request {
        Request::new(Op::Discard, sector, sectors, IoBufs::empty())
    }

    /// Append `sectors` from `buf` to the zone that starts at `zone_start`.
    pub fn append(zone_start: Sector, sectors: u32, buf: impl Into<IoBufs>) -> Request {
        Request::new(Op::Append, zone_start, sectors, buf.into())
    }

    /// Make all acknowledged writes durable.
    pub fn flush() -> Request {
        Request::new(Op::Flush, Sector(0), 0, IoBufs::empty())
    }

    /// Reset, finish, open, close or take offline the zone that starts at `zone_start`.
    pub fn zone(op: Op, zone_start: Sector) -> Request {
        Request::new(op, zone_start, 0, IoBufs::empty())
    }

    /// Reset every sequential zone.
    pub fn reset_all() -> Request {
        Request::new(Op::ResetAll, Sector(0), 0, IoBufs::empty())
    }

    /// Report up to `zones` zones, from the zone that contains `sector`.
    pub fn report(sector: Sector, zones: u32) -> Request {
        Request::new(Op::Report, sector, zones, IoBufs::empty())
    }

    /// Sets the number returned with the completion.
    pub fn token(mut self, token: u64) -> Request {
        self.token = token;
        self
    }

    /// Requests durability before the acknowledgement.
    pub fn fua(mut self) -> Request {
        self.fua = true;
        self
    }

    /// Announces that the calling thread waits for this request, and submits no other one before its
    /// completion. Not in a completion function.
    pub fn awaited(mut self) -> Request {
        self.awaited = true;
        self
    }

    /// Requests failure instead of waiting.
    pub fn nowait(mut self) -> Request {
        self.nowait = true;
        self
    }
}

/// Result of a request; each request has exactly one.
#[derive(Debug)]
pub struct Completion {
    /// The request's number.
    pub token: u64,
    /// Output or error. For an append, the output has the address of the data.
    pub result: Result<Output, RequestError>,
    /// The request's buffers. [`IoBufs::into_buf`] takes a single buffer out.
    pub buf: IoBufs,
}

impl Completion {
    /// Returns the zones of a report.
    ///
    /// # Errors
    /// The request's error; [`DeviceError::InvalidField`] if it was not a report.
    pub fn into_zones(self) -> Result<Box<[ZoneDescriptor]>, RequestError> {
        match self.result? {
            Output::Zones(zones) => Ok(zones),
            _ => Err(DeviceError::InvalidField.into()),
        }
    }
}
