//! Requests and their completions.

use crate::buffer::IoBufs;
use crate::device::Output;
use zonal_core::{DeviceError, Op, RequestError, Sector, ZoneDescriptor};

/// What a caller asks of a [`Volume`](super::Volume).
#[derive(Debug)]
pub struct Request {
    /// What to do.
    pub op: Op,
    /// Make this write durable before it is acknowledged.
    pub fua: bool,
    /// Fail with [`RequestError::WouldWait`] rather than wait for other requests.
    pub nowait: bool,
    /// First sector; the zone's start for an append and zone management.
    pub sector: Sector,
    /// Length in sectors; for a report, the largest number of zones; 0 where the operation has no length.
    pub sectors: u32,
    /// Payload, in one piece or several: for read, write and append not shorter than the request. It moves back with the
    /// completion.
    pub buf: IoBufs,
    /// The caller's number, returned with the completion.
    pub token: u64,
}

impl Request {
    fn new(op: Op, sector: Sector, sectors: u32, buf: IoBufs) -> Request {
        Request { op, fua: false, nowait: false, sector, sectors, buf, token: 0 }
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

    /// Read `sectors` from `sector` on the medium, without their data.
    pub fn verify(sector: Sector, sectors: u32) -> Request {
        Request::new(Op::Verify, sector, sectors, IoBufs::empty())
    }

    /// Forget `sectors` from `sector`, all of them in conventional zones.
    pub fn discard(sector: Sector, sectors: u32) -> Request {
        Request::new(Op::Discard, sector, sectors, IoBufs::empty())
    }

    /// Append `sectors` from `buf` to the zone that starts at `zone_start`.
    pub fn append(zone_start: Sector, sectors: u32, buf: impl Into<IoBufs>) -> Request {
        Request::new(Op::Append, zone_start, sectors, buf.into())
    }

    /// Make everything acknowledged so far durable.
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

    /// Describe up to `zones` zones from the zone of `sector` on.
    pub fn report(sector: Sector, zones: u32) -> Request {
        Request::new(Op::Report, sector, zones, IoBufs::empty())
    }

    /// The same request with the caller's number.
    pub fn token(mut self, token: u64) -> Request {
        self.token = token;
        self
    }

    /// The same request, durable before it is acknowledged.
    pub fn fua(mut self) -> Request {
        self.fua = true;
        self
    }

    /// The same request, failing rather than waiting.
    pub fn nowait(mut self) -> Request {
        self.nowait = true;
        self
    }
}

/// The one end of a request.
#[derive(Debug)]
pub struct Completion {
    /// The request's number.
    pub token: u64,
    /// What came of it. After an append, where the data went.
    pub result: Result<Output, RequestError>,
    /// The request's memory. [`IoBufs::into_buf`] takes one buffer out.
    pub buf: IoBufs,
}

impl Completion {
    /// The zones that a report has described.
    ///
    /// # Errors
    /// The request's; [`DeviceError::InvalidField`] if it was no report.
    pub fn into_zones(self) -> Result<Box<[ZoneDescriptor]>, RequestError> {
        match self.result? {
            Output::Zones(zones) => Ok(zones),
            _ => Err(DeviceError::InvalidField.into()),
        }
    }
}
