//! Open zones, and the choice of one for a writer.
//!
//! Owns the list of open zones in order of use. Each has the lifetime of its data, an owner, and
//! the number of files assigned to it. Owns no accounts: the caller reports when a zone is full
//! ([`OpenZones::filled`]).
//!
//! # Invariants
//! - At most `max - 1` zones belong to users and at most one to the collector, so it can always
//!   have one.
//! - A zone counts as open until all its writes have ended, because until then it holds resources
//!   of the device.
//! - Users never get the collector's zone: copied data has proved long-lived, and the collector
//!   does not wait for users.
//!
//! # Why a handle and not the zone's index
//! A file remembers the zone of its last write. By its next write, that zone may have been filled,
//! reset and opened for others. The serial number of the opening shows that.

use zonal_core::ZoneIndex;

/// Maximum number of open zones, unless limited by an option or the device.
pub const OPEN_DEFAULT: u32 = 128;

/// Minimum number of open zones: one for users, one for the collector.
pub const OPEN_MIN: u32 = 2;

/// Number of open zones of the collector.
pub const OPEN_GC: u32 = 1;

/// Minimum number of data zones.
pub const ZONES_MIN: u32 = 5;

/// Number of zones for copies of the superblock, on a drive without conventional zones.
pub const HOMES: u32 = 2;

/// Minimum number of active zones on a drive without conventional zones: those for data, one of the
/// store, and two homes of the superblock while an update moves from one to the other.
pub const ACTIVE_MIN: u32 = OPEN_MIN + 1 + HOMES;

/// Minimum number of free zones for a user to open one. The last free zone is the collector's.
const FREE_MIN: u32 = 2;

/// Expected lifetime of data, numbered as in `fcntl(F_SET_RW_HINT)`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Lifetime {
    /// No hint was set.
    #[default]
    NotSet,
    /// Explicitly set to unknown.
    None,
    /// Short.
    Short,
    /// Medium.
    Medium,
    /// Long.
    Long,
    /// Extreme.
    Extreme,
}

impl Lifetime {
    /// All lifetimes, by number.
    pub const ALL: [Lifetime; 6] = [
        Lifetime::NotSet,
        Lifetime::None,
        Lifetime::Short,
        Lifetime::Medium,
        Lifetime::Long,
        Lifetime::Extreme,
    ];
}

/// Suitability of a zone for a file's data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Score {
    Any,
    Ok,
    Good,
}

/// Score of a zone with lifetime `zone` for data with lifetime `file`.
fn score(zone: Lifetime, file: Lifetime) -> Score {
    use Lifetime::{Extreme, Long, Medium, None, NotSet, Short};
    match (zone, file) {
        (Short, Short) | (Medium, Medium) => Score::Good,
        (NotSet, NotSet) | (None, None) | (Long | Extreme, Long | Extreme) => Score::Ok,
        _ => Score::Any,
    }
}

/// A limit of the drive that is too low for a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// Too few data zones.
    #[error("{zones} data zones; a file system needs {ZONES_MIN}")]
    Zones {
        /// Data zones.
        zones: u32,
    },
    /// The limit of open or active zones is too low.
    #[error(
        "the drive allows {limit} open or active zones, but a file system needs {needed}; use a drive with a higher limit"
    )]
    Active {
        /// The lower of the drive's two limits.
        limit: u32,
        /// Zones needed for data, the metadata store and the copies of the superblock.
        needed: u32,
    },
    /// Too few zones for the copies of the superblock.
    #[error(
        "the copies of the superblock have {homes} zones and need {HOMES}; make a new file system on a drive of {} zones or more",
        ZONES_MIN + HOMES
    )]
    Homes {
        /// Zones ahead of the data zones.
        homes: u32,
    },
    /// Fewer than one open zone for users and one for the collector.
    #[error("{limit} open zones; a file system needs {OPEN_MIN}")]
    Open {
        /// The limit.
        limit: u32,
    },
}

/// Inputs for the limit of open zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenLimits {
    /// Limit set by the user.
    pub option: Option<u32>,
    /// Limit of the device, minus zones that are open for other purposes.
    pub device: Option<u32>,
    /// Data zones.
    pub zones: u32,
}

/// Maximum number of open zones, the collector's included.
///
/// # Errors
/// If that is fewer than two, or the drive is too small.
pub fn open_limit(limits: OpenLimits) -> Result<u32, LimitError> {
    let OpenLimits { option, device, zones } = limits;
    if zones < ZONES_MIN {
        return Err(LimitError::Zones { zones });
    }
    let limit = option.or(device).unwrap_or(OPEN_DEFAULT).min(device.unwrap_or(u32::MAX));
    if limit < OPEN_MIN {
        return Err(LimitError::Open { limit });
    }
    let drive = ((zones - ZONES_MIN) / 2 + OPEN_MIN).min(zones / 4).max(OPEN_MIN);
    Ok(limit.min(drive))
}

/// The owner of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Owner {
    /// Writers of files.
    User,
    /// The collector.
    Gc,
}

/// One opening of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Opened {
    /// The zone.
    pub zone: ZoneIndex,
    serial: u64,
}

/// An open zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenZone {
    /// Handle of the opening.
    pub opened: Opened,
    /// Lifetime of its data.
    pub hint: Lifetime,
    /// Its owner.
    pub owner: Owner,
    /// Number of files assigned to the zone.
    pub users: u32,
    /// True if blocks can be allocated in it.
    pub has_room: bool,
}

/// Placement request of a writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlacementRequest {
    /// A file of a user.
    User {
        /// Zone of the file's last write.
        cached: Option<Opened>,
        /// Expected lifetime.
        hint: Lifetime,
        /// Placement policy.
        packing: Packing,
    },
    /// Live data of a victim.
    Gc,
}

impl PlacementRequest {
    /// Request for short pieces of several files.
    pub fn of_many(hint: Lifetime) -> PlacementRequest {
        PlacementRequest::User { cached: None, hint, packing: Packing::Tight }
    }
}

/// Placement of a file among others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Packing {
    /// Apart from other files, as far as open zones allow.
    #[default]
    Spread,
    /// Next to the file written before, for a complete file smaller than a zone that was not only
    /// appended to.
    Tight,
}

/// Result of a placement request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Use this zone.
    Zone(Opened),
    /// Open a new zone: the caller calls [`super::zones::ZoneBook::take_free`], then
    /// [`OpenZones::open`].
    OpenNew,
    /// Wait until the writes of an open zone have ended or a zone becomes free.
    Wait,
}

/// Treatment of partly written zones at mount.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MountPlan {
    /// Zones to finish, because there are more than may be open.
    pub finish: Vec<ZoneIndex>,
    /// Zone to give to the collector, because it could not open one otherwise.
    pub steal: Option<ZoneIndex>,
}

/// Plans the treatment of partly written zones. `partial` lists them with their allocated blocks,
/// `max` zones may be open, and `free` zones are free. The fullest are finished until the rest
/// fits. If no zone is free then, or none can be opened, the collector gets the zone with the most
/// room.
pub fn plan_mount(partial: impl IntoIterator<Item = (ZoneIndex, u32)>, max: u32, free: u32) -> MountPlan {
    let mut zones: Vec<(u32, ZoneIndex)> = partial.into_iter().map(|(zone, blocks)| (blocks, zone)).collect();
    zones.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let surplus = zones.len().saturating_sub(max as usize);
    let kept = zones.split_off(surplus);
    let is_stuck = free == 0 || kept.len() == max as usize;
    let least = kept.iter().min_by_key(|(blocks, zone)| (*blocks, *zone)).map(|&(_, zone)| zone);
    MountPlan { finish: zones.into_iter().map(|(_, zone)| zone).collect(), steal: least.filter(|_| is_stuck) }
}

/// The open zones.
#[derive(Clone, Debug)]
pub struct OpenZones {
    max: u32,
    /// Least recently assigned first.
    zones: Vec<OpenZone>,
    serial: u64,
}

impl OpenZones {
    /// An empty list with the limit from [`open_limit`].
    ///
    /// # Panics
    /// If `max` is below [`OPEN_MIN`].
    pub fn new(max: u32) -> OpenZones {
        assert!(max >= OPEN_MIN, "one zone for users and one for the collector");
        OpenZones { max, zones: Vec::with_capacity(max as usize), serial: 0 }
    }

    /// Maximum number of open zones.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// The open zones, least recently assigned first.
    pub fn iter(&self) -> impl Iterator<Item = &OpenZone> {
        self.zones.iter()
    }

    /// Number of open zones of `owner`.
    pub fn count(&self, owner: Owner) -> u32 {
        self.zones.iter().filter(|z| z.owner == owner).count() as u32
    }

    /// The entry of `zone`, if it is open.
    pub fn get(&self, zone: ZoneIndex) -> Option<&OpenZone> {
        self.zones.iter().find(|z| z.opened.zone == zone)
    }

    /// Chooses a zone for a writer, while `free` zones are free. A newly assigned zone becomes the
    /// most recent, and adopts the file's lifetime if it has none. A file that returns to its zone
    /// changes nothing.
    ///
    /// The order is the policy: the file's own zone, then a zone with the same lifetime, then (for
    /// complete files) the most recent zone if it is suitable, then a new zone, a suitable zone,
    /// and finally any zone.
    pub fn choose(&mut self, request: PlacementRequest, free: u32) -> Choice {
        match request {
            PlacementRequest::User { cached, hint, packing } => {
                self.choose_for_user(cached, hint, packing, free)
            }
            PlacementRequest::Gc => self.choose_for_gc(free),
        }
    }

    fn choose_for_user(
        &mut self,
        cached: Option<Opened>,
        hint: Lifetime,
        packing: Packing,
        free: u32,
    ) -> Choice {
        if let Some(own) = cached.filter(|own| self.takes_user(*own)) {
            return Choice::Zone(own);
        }
        let found = self.least_recent(hint, Score::Good).or_else(|| match packing {
            Packing::Tight => self.most_recent(hint, Score::Ok),
            Packing::Spread => None,
        });
        if found.is_none() && self.count(Owner::User) < self.max - OPEN_GC && free >= FREE_MIN {
            return Choice::OpenNew;
        }
        let found = found.or_else(|| self.least_recent(hint, Score::Ok));
        match found.or_else(|| self.least_recent(hint, Score::Any)) {
            Some(place) => Choice::Zone(self.give(place, hint)),
            None => Choice::Wait,
        }
    }

    /// The collector's zone, or a new one once all writes to the previous one have ended.
    fn choose_for_gc(&self, free: u32) -> Choice {
        match self.zones.iter().find(|z| z.owner == Owner::Gc) {
            Some(zone) if zone.has_room => Choice::Zone(zone.opened),
            None if free > 0 => Choice::OpenNew,
            _ => Choice::Wait,
        }
    }

    fn takes_user(&self, own: Opened) -> bool {
        self.zones.iter().any(|z| z.opened == own && z.owner == Owner::User && z.has_room)
    }

    fn least_recent(&self, hint: Lifetime, least: Score) -> Option<usize> {
        self.zones.iter().position(|z| z.fits(hint, least))
    }

    fn most_recent(&self, hint: Lifetime, least: Score) -> Option<usize> {
        self.zones.iter().rposition(|z| z.fits(hint, least))
    }

    fn give(&mut self, place: usize, hint: Lifetime) -> Opened {
        let mut zone = self.zones.remove(place);
        if zone.hint == Lifetime::NotSet {
            zone.hint = hint;
        }
        self.zones.push(zone);
        zone.opened
    }

    /// Opens `zone` for `owner` and data of lifetime `hint`.
    ///
    /// # Panics
    /// If the zone is already open, or `owner` has reached its limit.
    pub fn open(&mut self, zone: ZoneIndex, hint: Lifetime, owner: Owner) -> Opened {
        assert!(self.get(zone).is_none(), "zone {zone} is open already");
        let max = match owner {
            Owner::User => self.max - OPEN_GC,
            Owner::Gc => OPEN_GC,
        };
        assert!(self.count(owner) < max, "no zone left to open for {owner:?}");
        let opened = Opened { zone, serial: self.serial };
        self.serial += 1;
        self.zones.push(OpenZone { opened, hint, owner, users: 0, has_room: true });
        opened
    }

    /// Opens the partly written zones that [`plan_mount`] decided to keep.
    ///
    /// # Panics
    /// If there are more than may be open.
    pub fn remount(&mut self, kept: impl IntoIterator<Item = ZoneIndex>, steal: Option<ZoneIndex>) {
        for zone in kept {
            let owner = if steal == Some(zone) { Owner::Gc } else { Owner::User };
            self.open(zone, Lifetime::NotSet, owner);
        }
    }

    /// Assigns a file to this zone.
    pub fn join(&mut self, opened: Opened) {
        if let Some(zone) = self.find(opened) {
            zone.users += 1;
        }
    }

    /// Ends the assignment of a file. No-op if the opening has ended.
    pub fn leave(&mut self, opened: Opened) {
        if let Some(zone) = self.find(opened) {
            zone.users = zone.users.checked_sub(1).expect("a file leaves a zone that it joined");
        }
    }

    fn find(&mut self, opened: Opened) -> Option<&mut OpenZone> {
        self.zones.iter_mut().find(|z| z.opened == opened)
    }

    /// Marks `zone` as full, because its last block was allocated or it was closed early. It stays
    /// open at the device until its writes end.
    pub fn filled(&mut self, zone: ZoneIndex) {
        if let Some(zone) = self.zones.iter_mut().find(|z| z.opened.zone == zone) {
            zone.has_room = false;
        }
    }

    /// Removes `zone`, because all its writes have ended or the device made it unwritable. Returns
    /// true if it was open.
    pub fn remove(&mut self, zone: ZoneIndex) -> bool {
        let before = self.zones.len();
        self.zones.retain(|z| z.opened.zone != zone);
        self.zones.len() < before
    }

    /// Checks the limits.
    ///
    /// # Panics
    /// If one is violated: a bug.
    pub fn check(&self) {
        assert!(self.count(Owner::User) <= self.max - OPEN_GC);
        assert!(self.count(Owner::Gc) <= OPEN_GC);
        let mut zones: Vec<_> = self.zones.iter().map(|z| z.opened.zone).collect();
        zones.sort_unstable();
        assert!(zones.windows(2).all(|w| w[0] != w[1]), "a zone is here twice: {zones:?}");
    }
}

impl OpenZone {
    fn fits(&self, hint: Lifetime, least: Score) -> bool {
        self.owner == Owner::User && self.has_room && score(self.hint, hint) >= least
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
