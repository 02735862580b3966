//! Checks of a request that do not depend on its zone's state, and its route.

use super::mode::WriteMode;
use super::pending::PendingRequest;
use super::submit::Route;
use super::terms::Terms;
use zonal_core::{DeviceError, Op, RequestError, SECTOR_BYTES, Sector, Sectors, ZoneIndex};

impl Terms {
    /// Checks a request without its zone's state, and returns its route.
    #[inline(always)]
    pub(super) fn check(&self, request: &PendingRequest) -> Result<Route, RequestError> {
        match request.op {
            Op::Read | Op::Write | Op::WriteZeroes => self.check_positional(request),
            Op::Append => self.check_append(request),
            _ => self.check_rare(request),
        }
    }

    /// Not inlined, so that the checks of reads and writes can be inlined into `submit`.
    #[inline(never)]
    fn check_rare(&self, request: &PendingRequest) -> Result<Route, RequestError> {
        match request.op {
            Op::Verify | Op::Discard => self.check_without_data(request),
            Op::Flush if !self.info.volatile_cache => Ok(Route::Done),
            Op::Flush => Ok(Route::Plain),
            Op::Report => self.check_range(request.sector, 1).map(|()| Route::Plain),
            Op::ResetAll if self.policy.is(WriteMode::Direct) => Ok(Route::Plain),
            Op::ResetAll => Ok(Route::ResetAll),
            _ => self.check_management(request),
        }
    }

    #[inline(always)]
    fn check_positional(&self, request: &PendingRequest) -> Result<Route, RequestError> {
        let PendingRequest { op, sector, sectors, .. } = *request;
        self.check_range(sector, sectors)?;
        self.check_block(sector, sectors)?;
        if matches!(op, Op::Read | Op::Write) {
            check_buffer(request)?;
        }
        let geometry = &self.info.geometry;
        let zone = geometry.zone_of(sector);
        // A smaller last zone ends with the device, which the range check covers.
        if u64::from(geometry.offset_of(sector)) + u64::from(sectors) > geometry.zone_size().0 {
            return if request.nowait {
                Err(RequestError::Invalid("a nowait request may not cross a zone boundary"))
            } else {
                Ok(Route::Split)
            };
        }
        Ok(self.route_in_zone(op, zone))
    }

    /// Checks a verify or discard, which not every device supports.
    fn check_without_data(&self, request: &PendingRequest) -> Result<Route, RequestError> {
        let route = self.check_positional(request)?;
        let end = Sector(request.sector.0 + u64::from(request.sectors) - 1);
        let geometry = &self.info.geometry;
        // Conventional zones precede the sequential ones.
        if request.op == Op::Discard && !geometry.is_conventional(geometry.zone_of(end)) {
            let first = geometry.zone_of(request.sector).0.max(geometry.conventional_zones());
            return Err(RequestError::Sequential { zone: ZoneIndex(first) });
        }
        match self.command_max(request.op) {
            0 => Err(RequestError::Device(DeviceError::Unsupported)),
            _ => Ok(route),
        }
    }

    #[inline]
    pub(super) fn route_in_zone(&self, op: Op, zone: ZoneIndex) -> Route {
        if op.is_read() || self.policy.is(WriteMode::Direct) || self.info.geometry.is_conventional(zone) {
            Route::Plain
        } else {
            Route::Plug(zone)
        }
    }

    #[inline(always)]
    fn check_append(&self, request: &PendingRequest) -> Result<Route, RequestError> {
        let PendingRequest { sector, sectors, .. } = *request;
        self.check_range(sector, sectors)?;
        self.check_block(sector, sectors)?;
        check_buffer(request)?;
        let zone = self.zone_at_its_start(sector)?;
        let is_direct = self.policy.is(WriteMode::Direct);
        let append_sectors_max = self.append_sectors_max_if(is_direct);
        if sectors > append_sectors_max {
            return Err(RequestError::Invalid(if append_sectors_max == 0 {
                "mode direct does not emulate zone append, and the device has none"
            } else {
                "longer than the largest zone append"
            }));
        }
        Ok(if is_direct { Route::Plain } else { Route::Plug(zone) })
    }

    fn check_management(&self, request: &PendingRequest) -> Result<Route, RequestError> {
        self.check_range(request.sector, 1)?;
        let zone = self.zone_at_its_start(request.sector)?;
        // Opens and closes matter only to the device, unless a budget tracks them.
        let concerns_writes = matches!(request.op, Op::ZoneReset | Op::ZoneFinish | Op::ZoneOffline);
        let plugged = (concerns_writes || self.has_budget) && !self.policy.is(WriteMode::Direct);
        Ok(if plugged { Route::Manage(zone) } else { Route::Plain })
    }

    /// Returns the sequential zone that starts at `sector`.
    fn zone_at_its_start(&self, sector: Sector) -> Result<ZoneIndex, RequestError> {
        let geometry = &self.info.geometry;
        let zone = geometry.zone_of(sector);
        if geometry.offset_of(sector) != 0 {
            return Err(RequestError::Invalid("the sector is not the start of a zone"));
        }
        if geometry.is_conventional(zone) {
            return Err(RequestError::Conventional { zone });
        }
        Ok(zone)
    }

    #[inline]
    fn check_range(&self, sector: Sector, sectors: u32) -> Result<(), RequestError> {
        if self.info.geometry.contains(sector, Sectors(sectors.into())) {
            Ok(())
        } else {
            Err(RequestError::OutOfRange { sector })
        }
    }

    #[inline]
    fn check_block(&self, sector: Sector, sectors: u32) -> Result<(), RequestError> {
        // Block sizes are powers of two, so one mask tests both.
        let mask = u64::from(self.info.block_sectors) - 1;
        if sectors == 0 {
            Err(RequestError::Invalid("the length is zero"))
        } else if (sector.0 | u64::from(sectors)) & mask != 0 {
            Err(RequestError::Invalid("not a multiple of the device's block size"))
        } else {
            Ok(())
        }
    }

    /// True for a write that begins in a sequential zone.
    pub(super) fn begins_in_sequential(&self, request: &PendingRequest) -> bool {
        let geometry = &self.info.geometry;
        request.op.is_write() && !geometry.is_conventional(geometry.zone_of(request.sector))
    }
}

fn check_buffer(request: &PendingRequest) -> Result<(), RequestError> {
    if (request.buf.len() as u64) < u64::from(request.sectors) * SECTOR_BYTES {
        return Err(RequestError::Invalid("the buffer is shorter than the request"));
    }
    Ok(())
}
