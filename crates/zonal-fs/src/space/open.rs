//! The zones that blocks are handed out of, and which one a writer gets.
//!
//! Owns the list of open zones in order of use. Each has the lifetime of its data, its owner, and the number of files that
//! come back to it. Owns no account: whether a zone has room it is told ([`OpenZones::filled`]).
//!
//! # Invariants
//! - At most `max - 1` zones are the users', at most one is the collector's: it can always have one.
//! - A zone counts as open until all its writes have ended, because until then it holds the device's resources.
//! - A user never gets the collector's zone: what was copied has proved to live long, and the collector does not wait for
//!   users.
//!
//! # Why a handle and not the zone's index
//! A file remembers the zone that it wrote to last. By the time it writes again the zone may have been filled, reset and
//! opened for others; the serial number of the opening tells.

use zonal_core::ZoneIndex;

/// Open zones if neither an option nor the device says how many.
pub const OPEN_DEFAULT: u32 = 128;

/// Open zones that a file system needs: one for users, one for the collector.
pub const OPEN_MIN: u32 = 2;

/// Open zones of the collector.
pub const OPEN_GC: u32 = 1;

/// Data zones that a file system needs.
pub const ZONES_MIN: u32 = 5;

/// Zones for copies of the superblock, on a drive without conventional zones.
pub const HOMES: u32 = 2;

/// Active zones that a file system needs without conventional zones: those for data, one of the store, and two homes of the superblock
/// while an update goes from one to the other.
pub const ACTIVE_MIN: u32 = OPEN_MIN + 1 + HOMES;

/// Free zones at least for a user to open one: the last is the collector's.
const FREE_MIN: u32 = 2;

/// How long data are said to live, as with `fcntl(F_SET_RW_HINT)` and by its numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Lifetime {
    /// The file has no hint.
    #[default]
    NotSet,
    /// It is known that nothing is known.
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
    /// Every lifetime, by number.
    pub const ALL: [Lifetime; 6] = [
        Lifetime::NotSet,
        Lifetime::None,
        Lifetime::Short,
        Lifetime::Medium,
        Lifetime::Long,
        Lifetime::Extreme,
    ];
}

/// How well a file's data go into a zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Score {
    Any,
    Ok,
    Good,
}

/// The score of a zone of `zone`'s lifetime for data of `file`'s.
fn score(zone: Lifetime, file: Lifetime) -> Score {
    use Lifetime::{Extreme, Long, Medium, None, NotSet, Short};
    match (zone, file) {
        (Short, Short) | (Medium, Medium) => Score::Good,
        (NotSet, NotSet) | (None, None) | (Long | Extreme, Long | Extreme) => Score::Ok,
        _ => Score::Any,
    }
}

/// Limits of a drive that are too low for a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The drive is too small.
    #[error("{zones} data zones; a file system needs {ZONES_MIN}")]
    Zones {
        /// Data zones.
        zones: u32,
    },
    /// The drive's limit of open or of active zones is too low.
    #[error(
        "the drive lets {limit} zones be open or active at once; a file system there needs {needed}; use a drive with a higher limit"
    )]
    Active {
        /// The lower one of the drive's two limits.
        limit: u32,
        /// Active zones for data, the metadata store and the copies of the superblock.
        needed: u32,
    },
    /// The copies of the superblock lack zones.
    #[error(
        "the copies of the superblock have {homes} zones, and need {HOMES}; make the file system anew, on a drive of {} zones or more",
        ZONES_MIN + HOMES
    )]
    Homes {
        /// Zones before those for data.
        homes: u32,
    },
    /// One zone for users and one for the collector is the least.
    #[error("{limit} open zones; a file system needs {OPEN_MIN}")]
    Open {
        /// The limit.
        limit: u32,
    },
}

/// What limits the open zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenLimits {
    /// The user's wish.
    pub option: Option<u32>,
    /// The device's limit, less what else is kept open on it.
    pub device: Option<u32>,
    /// Data zones.
    pub zones: u32,
}

/// How many zones may be open, the collector's included.
///
/// # Errors
/// Fewer than two, or the drive is too small for any.
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
    /// Which one, and which time.
    pub opened: Opened,
    /// Lifetime of its data.
    pub hint: Lifetime,
    /// Its owner.
    pub owner: Owner,
    /// Files that come back to it.
    pub users: u32,
    /// Whether blocks can be handed out of it.
    pub has_room: bool,
}

/// What is known of the file to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// A user's.
    User {
        /// The zone that it wrote to last.
        cached: Option<Opened>,
        /// Lifetime.
        hint: Lifetime,
        /// How it is placed.
        packing: Packing,
    },
    /// Live data of a victim.
    Gc,
}

impl Wish {
    /// That of short pieces of several files.
    pub fn of_many(hint: Lifetime) -> Wish {
        Wish::User { cached: None, hint, packing: Packing::Tight }
    }
}

/// How a file is placed among others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Packing {
    /// Away from others, as far as open zones go.
    #[default]
    Spread,
    /// With the file written before: it is done, is not only appended to, and is smaller than a zone.
    Tight,
}

/// Where a writer may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// To this zone.
    Zone(Opened),
    /// To a zone that the caller opens: [`super::zones::ZoneBook::take_free`], then [`OpenZones::open`].
    OpenNew,
    /// Nowhere, before an open zone has ended its writes or a free one has come.
    Wait,
}

/// What a mount does with partly written zones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MountPlan {
    /// To be finished, because there are more than may be open.
    pub finish: Vec<ZoneIndex>,
    /// To be the collector's, because it could not open one.
    pub steal: Option<ZoneIndex>,
}

/// What becomes of the partly written zones `partial`, each with its blocks handed out, where `max` may be open and `free`
/// zones are free. The fullest are finished until the rest fits. If then no zone is free, or none may be opened, the
/// collector gets the zone with the most room.
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
    /// The zone that was given to a file the longest ago comes first.
    zones: Vec<OpenZone>,
    serial: u64,
}

impl OpenZones {
    /// None, and at most `max`, as [`open_limit`] says.
    ///
    /// # Panics
    /// If `max` is below [`OPEN_MIN`].
    pub fn new(max: u32) -> OpenZones {
        assert!(max >= OPEN_MIN, "one zone for users and one for the collector");
        OpenZones { max, zones: Vec::with_capacity(max as usize), serial: 0 }
    }

    /// Zones that may be open.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// The open zones; the zone that was given to a file the longest ago comes first.
    pub fn iter(&self) -> impl Iterator<Item = &OpenZone> {
        self.zones.iter()
    }

    /// How many zones of `owner` are open.
    pub fn count(&self, owner: Owner) -> u32 {
        self.zones.iter().filter(|z| z.owner == owner).count() as u32
    }

    /// The opening of `zone`, if it is open.
    pub fn get(&self, zone: ZoneIndex) -> Option<&OpenZone> {
        self.zones.iter().find(|z| z.opened.zone == zone)
    }

    /// Where a writer goes, while `free` zones are free. A zone that is found moves to the end of the order, and takes on
    /// the file's lifetime if it has none. A file that comes back to its zone changes nothing.
    ///
    /// The order is the policy. A file's own zone comes first, then a zone of the same lifetime, then for files that are
    /// done the zone used last, if it fits. A new zone, a zone that fits and any zone follow.
    pub fn choose(&mut self, wish: Wish, free: u32) -> Choice {
        match wish {
            Wish::User { cached, hint, packing } => self.choose_for_user(cached, hint, packing, free),
            Wish::Gc => self.choose_for_gc(free),
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

    /// The collector's zone, or a new one once all writes to the one before have ended.
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

    /// `zone` is open for `owner`, with data of `hint` to come.
    ///
    /// # Panics
    /// If it is open already, or `owner` may have no more.
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

    /// The zones that a mount found partly written and keeps, as [`plan_mount`] said.
    ///
    /// # Panics
    /// If there are more than may be open.
    pub fn remount(&mut self, kept: impl IntoIterator<Item = ZoneIndex>, steal: Option<ZoneIndex>) {
        for zone in kept {
            let owner = if steal == Some(zone) { Owner::Gc } else { Owner::User };
            self.open(zone, Lifetime::NotSet, owner);
        }
    }

    /// A file comes back to this zone from now on.
    pub fn join(&mut self, opened: Opened) {
        if let Some(zone) = self.find(opened) {
            zone.users += 1;
        }
    }

    /// A file comes back to it no more. An opening that has ended has no count.
    pub fn leave(&mut self, opened: Opened) {
        if let Some(zone) = self.find(opened) {
            zone.users = zone.users.checked_sub(1).expect("a file leaves a zone that it joined");
        }
    }

    fn find(&mut self, opened: Opened) -> Option<&mut OpenZone> {
        self.zones.iter_mut().find(|z| z.opened == opened)
    }

    /// The last block of `zone` is handed out, or it was closed early: it stays open at the device until its writes end.
    pub fn filled(&mut self, zone: ZoneIndex) {
        if let Some(zone) = self.zones.iter_mut().find(|z| z.opened.zone == zone) {
            zone.has_room = false;
        }
    }

    /// All writes to `zone` have ended, or the device took it away: it is not open any more. Returns whether it was.
    pub fn remove(&mut self, zone: ZoneIndex) -> bool {
        let before = self.zones.len();
        self.zones.retain(|z| z.opened.zone != zone);
        self.zones.len() < before
    }

    /// Compares the list with its limits.
    ///
    /// # Panics
    /// If it breaks them: a bug.
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
