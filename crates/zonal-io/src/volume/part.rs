//! A range of a volume's zones as a unit of its own: a namespace of a target, or one tenant of a
//! drive.
//!
//! Zones and sectors are numbered from 0. A channel or inbox opened here belongs to the part: its
//! requests and completions use the part's addresses. Everything else is the volume's: plugs,
//! queues, limits, modes, and the poll that serves all parts.
//!
//! The check for a part's channel is made only where a request would otherwise be refused because
//! its channel belongs to another volume ([`Volume::submit`]). Requests to the volume itself pay
//! nothing for it.

use super::Volume;
use super::channel::Channel;
use super::counters::{Counter, Counters};
use super::events::Events;
use super::inbox::Inbox;
use super::listing::PlugStatus;
use super::mode::WriteMode;
use super::pending::{Owner, PendingRequest, Split};
use super::request::{Completion, Request};
use super::submit::{Fate, Route};
use crate::buffer::IoBufs;
use crate::clock::Clock;
use crate::device::{Context, DeviceInfo, Output};
use crate::linear::{LinearError, LinearPiece};
use crate::sync::Arc;
use std::ops::Range;
use zonal_core::plug::{Admission, WriteKind, ZoneClass};
use zonal_core::{Nanos, Op, RequestError, Sector, Sectors, ZoneDescriptor, ZoneIndex};

/// Range of a volume's zones. See the module documentation.
///
/// ```
/// use std::sync::Arc;
/// use zonal_core::{Nanos, Sector};
/// use zonal_io::buffer::IoBuf;
/// use zonal_io::device::Output;
/// use zonal_io::registry::Registry;
/// use zonal_io::volume::{Part, Request, Volume, VolumeOptions};
///
/// let device = Registry::default().open("ram:size=64M,zone_size=1M")?;
/// let volume = Arc::new(Volume::open(device, VolumeOptions::default())?);
/// let part = Part::new(volume, 60..64)?;
/// let inbox = part.inbox();
/// part.submit(Nanos(0), inbox.channel(), Request::append(Sector(0), 8, IoBuf::zeroed(4096)));
/// assert_eq!(inbox.take().unwrap().result, Ok(Output::Appended(Sector(0))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Part {
    volume: Arc<Volume>,
    info: DeviceInfo,
    place: Arc<PartPlace>,
}

/// Location of a part, its kind, and its counters.
pub(super) struct PartPlace {
    piece: LinearPiece,
    sectors: Sectors,
    kind: PartKind,
    counters: Counters,
}

/// Behavior of a part towards its users.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PartKind {
    /// A range of the volume's zones, with the conveniences of a volume: a write that spans zones
    /// is split at zone boundaries, and a write without a slot waits for one while others may give
    /// up theirs.
    #[default]
    Range,
    /// A drive of its own: a write that spans sequential zones is refused as a whole, with nothing
    /// written, and a write without a slot ends with the drive's error at once.
    Drive,
}

/// Sums of a part's counters since it was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PartStatistics {
    /// Requests submitted.
    pub requests: u64,
    /// Sectors of these requests.
    pub sectors: u64,
    /// Requests that ended with an error.
    pub failed: u64,
}

impl Part {
    /// Creates a part of the zones `zones` of `volume`. Parts may overlap; the volume orders their
    /// writes to a common zone.
    ///
    /// # Errors
    /// [`LinearError`] if the volume does not have these zones.
    pub fn new(volume: Arc<Volume>, zones: Range<u32>) -> Result<Part, LinearError> {
        Part::with(volume, zones, PartKind::default())
    }

    /// Like [`Part::new`], with a kind.
    ///
    /// # Errors
    /// As for [`Part::new`].
    pub fn with(volume: Arc<Volume>, zones: Range<u32>, kind: PartKind) -> Result<Part, LinearError> {
        let (piece, info) = LinearPiece::alone(volume.device().clone(), zones)?;
        let place = PartPlace { sectors: info.geometry.sectors(), piece, kind, counters: Counters::new() };
        Ok(Part { volume, info, place: Arc::new(place) })
    }

    /// Properties of a device with only these zones. The drive's slots are shared by all parts.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Volume of this part. A thread that waits for a request polls it.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Zones of this part, in the volume's numbering.
    pub fn zones(&self) -> Range<u32> {
        self.place.piece.zones.clone()
    }

    /// Opens a channel of this part: see [`Volume::channel`].
    pub fn channel(&self, complete: impl Fn(Completion) + Send + Sync + 'static) -> Channel {
        let place = self.place.clone();
        let complete = Box::new(move |completion| complete(place.outside(completion)));
        self.volume.channels.open(complete, Some(self.place.clone()))
    }

    /// Opens a deferred channel of this part: see [`Volume::deferred_channel`].
    pub fn deferred_channel(&self, complete: impl Fn(Completion) + Send + Sync + 'static) -> Channel {
        let place = self.place.clone();
        let complete = Box::new(move |completion| complete(place.outside(completion)));
        self.volume.channels.open_deferred(complete, Some(self.place.clone()))
    }

    /// Opens an inbox of this part for the calling thread: see [`Volume::inbox`].
    pub fn inbox(&self) -> Inbox {
        Inbox::of(self.volume.channels.open_inbox(Some(self.place.clone())))
    }

    /// Accepts a request with addresses of the part for which `channel` was opened. Equivalent to
    /// [`Volume::submit`].
    pub fn submit(&self, now: Nanos, channel: &Channel, request: Request) {
        self.volume.submit(now, channel, request);
    }

    /// Submits `request` and waits for its completion: see [`Volume::call`].
    pub fn call(&self, clock: &Clock, request: Request) -> Completion {
        self.volume.call_with(clock, &self.inbox(), request)
    }

    /// Reports up to `zones` zones, from the zone that contains `sector`. Blocks until the report
    /// is complete.
    ///
    /// # Errors
    /// The request's error.
    pub fn report(
        &self,
        clock: &Clock,
        sector: Sector,
        zones: u32,
    ) -> Result<Box<[ZoneDescriptor]>, RequestError> {
        self.call(clock, Request::report(sector, zones)).into_zones()
    }

    /// Address at which the next write to `zone` will be issued: see [`Volume::write_pointer`].
    /// Also `None` for a zone outside the part.
    pub fn write_pointer(&self, zone: ZoneIndex) -> Option<Sector> {
        let there = (zone.0 < self.info.geometry.zones()).then(|| self.place.piece.zone_to_inner(zone))?;
        self.volume.write_pointer(there).map(|sector| self.place.to_part(sector))
    }

    /// Plugs of the part's zones: see [`Volume::plugs`].
    pub fn plugs(&self) -> Vec<PlugStatus> {
        let zones = self.zones();
        let plugs = self.volume.plugs_of(zones.clone());
        plugs.map(|plug| PlugStatus { zone: plug.zone - zones.start, ..plug }).collect()
    }

    /// Subscribes to the device's events from now on, limited to the part's zones and in its
    /// numbering. See [`Volume::events`].
    pub fn events(&self) -> Events {
        let zones = self.zones();
        let first = zones.start;
        self.volume.events_of(zones, first)
    }

    /// Snapshot of the counters.
    pub fn statistics(&self) -> PartStatistics {
        let sum = self.place.counters.sum();
        PartStatistics { requests: sum.requests, sectors: sum.sectors, failed: sum.failed }
    }
}

impl PartPlace {
    /// True if the part's users see it as a drive.
    pub(super) fn is_drive(&self) -> bool {
        self.kind == PartKind::Drive
    }

    /// Wraps for a refused address, so that the error contains the address in the request.
    fn to_part(&self, sector: Sector) -> Sector {
        Sector(sector.0.wrapping_sub(self.start().0))
    }

    fn start(&self) -> Sector {
        self.piece.to_inner(Sector(0))
    }

    /// Translates a request to the volume's addresses.
    fn place(&self, request: &mut PendingRequest) -> Result<(), RequestError> {
        self.counters.line().add_request(if request.op == Op::Report { 0 } else { request.sectors });
        if matches!(request.op, Op::Flush | Op::ResetAll) {
            return Ok(());
        }
        let first = request.sector;
        request.sector = Sector(first.0.wrapping_add(self.start().0));
        // The length of a report is a number of zones; zone commands have no length.
        let has_length = request.op != Op::Report && !request.op.is_zone_management();
        let sectors = if has_length { u64::from(request.sectors) } else { 1 };
        if first.0.checked_add(sectors).is_none_or(|end| end > self.sectors.0) {
            return Err(RequestError::OutOfRange { sector: request.sector });
        }
        if request.op == Op::Report {
            let zone = self.piece.zone_of(request.sector);
            request.sectors = request.sectors.min(self.piece.zones.end - zone.0);
        }
        Ok(())
    }

    /// Translates a completion to the part's addresses.
    pub(super) fn outside(&self, completion: Completion) -> Completion {
        let Completion { token, mut result, buf } = completion;
        match &mut result {
            Ok(Output::Appended(sector)) => *sector = self.to_part(*sector),
            Ok(Output::Zones(zones)) => {
                zones.iter_mut().for_each(|zone| *zone = self.piece.descriptor_to_outer(*zone));
            }
            Ok(Output::Done) => {}
            Err(error) => {
                self.counters.line().add(Counter::Failed, 1);
                let zones = &self.piece.zones;
                let of_zone =
                    |zone: ZoneIndex| zones.contains(&zone.0).then(|| self.piece.zone_to_outer(zone));
                *error = error.renumbered(of_zone, |sector| self.to_part(sector));
            }
        }
        Completion { token, result, buf }
    }
}

impl Volume {
    /// Finds the route of a request on a channel of a part, or refuses it.
    #[cold]
    pub(super) fn check_of_part(
        &self,
        channel: &Channel,
        request: &mut PendingRequest,
    ) -> Result<Route, RequestError> {
        let Some(place) = self.channels.part_of(channel) else {
            return Err(self.channels.refusal(channel));
        };
        place.place(request)?;
        match self.terms.check(request)? {
            Route::Split if place.is_drive() && self.terms.begins_in_sequential(request) => {
                self.refuse_spanning(request)
            }
            Route::ResetAll => Ok(Route::ResetPart(place.piece.zones.clone())),
            Route::Plain if request.op == Op::ResetAll => Ok(Route::ResetPart(place.piece.zones.clone())),
            route => Ok(route),
        }
    }

    /// Refuses a write that extends beyond its zone, with the first reason that applies: the zone's
    /// condition, its write pointer, its capacity.
    fn refuse_spanning(&self, request: &PendingRequest) -> Result<Route, RequestError> {
        if self.terms.policy.is(WriteMode::Direct) {
            // The plug has no state in this mode; leave it to the device.
            return Ok(Route::Plain);
        }
        let geometry = &self.terms.info.geometry;
        let (zone, offset) = (geometry.zone_of(request.sector), geometry.offset_of(request.sector));
        let kind = WriteKind::At(offset);
        match self.plugs.load(zone).admit(kind, request.sectors, &self.terms.rules(zone)) {
            Admission::Refuse(error) => Err(error),
            // Other writes are ahead. Wherever they leave the write pointer, this one is too long.
            _ => Err(RequestError::BeyondCapacity {
                zone,
                end: offset.saturating_add(request.sectors),
                capacity: geometry.capacity_of(zone),
            }),
        }
    }

    /// Resets the sequential zones among `zones`, each by its own command, since a reset of all
    /// zones would affect other zones.
    #[cold]
    pub(super) fn reset_part(&self, now: Nanos, zones: Range<u32>, whole: Box<PendingRequest>) -> Fate {
        // Including empty zones, which may be open.
        let zones: Vec<ZoneIndex> = zones
            .map(ZoneIndex)
            .filter(|&zone| self.plugs.load(zone).class() == ZoneClass::Sequential)
            .collect();
        if zones.is_empty() {
            return self.end_submitted(whole);
        }
        let token = whole.token;
        let split = Arc::new(Split::new(zones.len() as u32, whole, IoBufs::empty()));
        let resets = zones.into_iter().map(|zone| {
            let start = self.terms.info.geometry.start_of(zone);
            let part = Request::zone(Op::ZoneReset, start).token(token);
            (zone, PendingRequest::new(Owner::Split(split.clone()), part))
        });
        if self.terms.policy.is(WriteMode::Direct) {
            resets.for_each(|(_, part)| _ = self.take(now, Route::Plain, &mut Some(Context::one(part))));
            return Fate::Later;
        }
        // All resets are queued before a caller learns of an abort, so its next writes follow all
        // of them.
        let queued: Vec<_> = resets.map(|(zone, part)| self.queue_management(zone, part)).collect();
        queued.into_iter().for_each(|reset| self.begin_management(now, reset));
        Fate::Later
    }
}
