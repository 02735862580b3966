//! Creation of an image, as a complete file or none at all.
//!
//! The file is written under another name in the same directory, synced, and then renamed, which
//! fails if the name exists. Only the header and the ledger pages of zones that do not start empty
//! are written: a ledger of zeroes means that all zones are empty, and unwritten data takes no
//! space.
//!
//! If the file system does not support a file of this length, the image is in several files. The
//! maximum length is found by trying. The first file is renamed last, so that an image always has
//! all of its files.

use crate::badblocks::BadBlocks;
use crate::emulated::{are_sectors, are_sequential};
use crate::identity::Identity;
use crate::image::backing::{Backing, FileBacking};
use crate::image::error::{ImageError, OptionsError};
use crate::image::flight;
use crate::image::format::{
    self, Header, LEDGER_OFFSET, PROFILE_NAME_MAX, Page, PartHead, Session, Side, ZONES_MAX, ZONES_PER_PAGE,
    initial_state, session_words,
};
use crate::image::open::part_path;
use crate::image::profile::{PROFILES, Profile};
use rustix::fs::{CWD, FallocateFlags, RenameFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use zonal_core::device::ZoneState;
use zonal_core::{Geometry, Personality, SECTOR_BYTES, Sectors, ZoneCondition, ZoneIndex};

/// Default zone size in bytes.
pub const ZONE_SIZE_DEFAULT: u64 = 256 << 20;

/// Default logical block size in bytes.
pub const BLOCK_DEFAULT: u32 = 4096;

/// Parameters of an image. Names and units follow the Linux null block device: sizes in bytes, and
/// 0 for no limit. Omitted values are taken from the profile, and without one from the defaults
/// given here.
///
/// ```
/// use zonal_io::image::{ImageDevice, ImageError, ImageOptions, OpenOptions};
/// let dir = tempfile::tempdir().unwrap();
/// let path = dir.path().join("drive.img");
/// let options = ImageOptions::default().with_size(1 << 30).with_zone_size(16 << 20);
/// options.create(&path)?;
/// assert!(matches!(options.create(&path), Err(ImageError::Exists { .. })));
/// let device = ImageDevice::open(&path, &OpenOptions::default())?;
/// device.close()?;
/// # Ok::<(), ImageError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ImageOptions {
    /// Name of a [`Profile`].
    pub profile: Option<String>,
    /// Size of the device. Required without a profile.
    pub size: Option<u64>,
    /// Zone size, a power of two. Default: 256 MiB.
    pub zone_size: Option<u64>,
    /// Writable part of a sequential zone. Default: all of it.
    pub zone_capacity: Option<u64>,
    /// Number of conventional zones. Default: none.
    pub zone_nr_conv: Option<u32>,
    /// Maximum number of open zones. Default: no limit.
    pub zone_max_open: Option<u32>,
    /// Maximum number of active zones. Default: no limit.
    pub zone_max_active: Option<u32>,
    /// Logical block size, a power of two from 512 to 65536. Default: 4096.
    pub blocksize: Option<u32>,
    /// Largest native zone append; 0 means not supported. Default: unlimited for ZNS; none for ZBC,
    /// which has no such command.
    pub zone_append_max_sectors: Option<u32>,
    /// True to report a rotational medium. Default: false.
    pub rotational: Option<bool>,
    /// Standard to follow. Default: ZNS.
    pub personality: Option<Personality>,
    /// Random number that distinguishes this image from others. Default: a random one.
    pub creation: Option<[u8; 16]>,
    /// Permanent identity, independent of the name. Default: a random one.
    pub identity: Option<Identity>,
    /// State of each zone before a power cycle; the image has the state after it. Empty for a new
    /// drive. Data below a write pointer reads as zeroes.
    pub states: Vec<ZoneState>,
    /// Sequential zones that are read-only.
    pub zone_readonly: Vec<RangeInclusive<u32>>,
    /// Sequential zones that are offline.
    pub zone_offline: Vec<RangeInclusive<u32>>,
    /// Bad blocks.
    pub badblocks: BadBlocks,
    /// Maximum length of a file of the image in bytes. Default: the limit of the file system,
    /// found by trying.
    pub file_max: Option<u64>,
}

zonal_core::setters! {
    ImageOptions
    /// Name of a [`Profile`].
    with_profile profile: impl Into<Option<String>>;
    /// Size of the device in bytes. Required without a profile.
    with_size size: impl Into<Option<u64>>;
    /// Zone size in bytes, a power of two.
    with_zone_size zone_size: impl Into<Option<u64>>;
    /// Writable part of a sequential zone in bytes.
    with_zone_capacity zone_capacity: impl Into<Option<u64>>;
    /// Number of conventional zones.
    with_zone_nr_conv zone_nr_conv: impl Into<Option<u32>>;
    /// Maximum number of open zones.
    with_zone_max_open zone_max_open: impl Into<Option<u32>>;
    /// Maximum number of active zones.
    with_zone_max_active zone_max_active: impl Into<Option<u32>>;
    /// Logical block size in bytes, a power of two from 512 to 65536.
    with_blocksize blocksize: impl Into<Option<u32>>;
    /// Largest native zone append in sectors; 0 means not supported.
    with_zone_append_max_sectors zone_append_max_sectors: impl Into<Option<u32>>;
    /// True to report a rotational medium.
    with_rotational rotational: impl Into<Option<bool>>;
    /// Standard to follow.
    with_personality personality: impl Into<Option<Personality>>;
    /// Random number that distinguishes this image from others.
    with_creation creation: impl Into<Option<[u8; 16]>>;
    /// Permanent identity, independent of the name.
    with_identity identity: impl Into<Option<Identity>>;
    /// State of each zone before a power cycle; empty for a new drive.
    with_states states: Vec<ZoneState>;
    /// Sequential zones that are read-only.
    with_zone_readonly zone_readonly: Vec<RangeInclusive<u32>>;
    /// Sequential zones that are offline.
    with_zone_offline zone_offline: Vec<RangeInclusive<u32>>;
    /// Bad blocks.
    with_badblocks badblocks: BadBlocks;
    /// Maximum length of a file of the image in bytes.
    with_file_max file_max: impl Into<Option<u64>>;
}

impl ImageOptions {
    /// Creates the image at `path` durably, and returns its header.
    ///
    /// # Errors
    /// [`ImageError`]; nothing of the image is left.
    pub fn create(&self, path: &Path) -> Result<Header, ImageError> {
        let at = |fault| ImageError::Options { path: path.to_owned(), fault };
        let mut header = self.header().map_err(at)?;
        let states = self.words(&header).map_err(at)?;
        // Only an early check that saves work. The rename is what prevents replacing a file.
        if path.symlink_metadata().is_ok() {
            return Err(ImageError::Exists { path: path.to_owned() });
        }
        let mut first = Temporary::create(path)?;
        let described = |header: &Header, e| describe(path, header, e);
        header.zones_per_file =
            zones_per_file(&first.file, &header, self.file_max).map_err(|e| described(&header, e))?;
        write_new(&first.file, &header, &states, &self.badblocks).map_err(|e| described(&header, e))?;
        let mut parts = Vec::new();
        for index in 1..header.split().map_or(1, |split| split.files()) {
            let name = part_path(path, index);
            let part = Temporary::create(&name)?;
            write_part(&part.file, &header, index).map_err(|e| described(&header, e))?;
            parts.push((part, name));
        }
        for (part, name) in &mut parts {
            part.publish(name).map_err(|e| match e {
                ImageError::Exists { path: part } => ImageError::PartExists { path: path.to_owned(), part },
                e => e,
            })?;
        }
        // The first file completes the image. The names of the parts are made durable before it,
        // and are removed if this fails.
        if !parts.is_empty() {
            sync_directory(path)?;
        }
        first.publish(path)?;
        sync_directory(path)?;
        first.keep();
        parts.into_iter().for_each(|(part, _)| part.keep());
        Ok(header)
    }

    /// Writes a new image to an empty backing and syncs it.
    ///
    /// # Errors
    /// Those of the backing; `InvalidInput` for invalid options.
    pub fn format(&self, backing: &dyn Backing) -> io::Result<Header> {
        let invalid = |e| io::Error::new(io::ErrorKind::InvalidInput, e);
        let header = self.header().map_err(invalid)?;
        format(backing, &header, &self.words(&header).map_err(invalid)?, &self.badblocks)?;
        Ok(header)
    }

    /// Ledger words of the zones after a power cycle.
    fn words(&self, header: &Header) -> Result<Vec<u64>, OptionsError> {
        let geometry = &header.geometry;
        are_sequential(geometry, "zone_readonly", &self.zone_readonly)?;
        are_sequential(geometry, "zone_offline", &self.zone_offline)?;
        are_sectors(geometry, &self.badblocks)?;
        let mut words = self.words_of_states(header)?;
        let conditions =
            [(&self.zone_readonly, ZoneCondition::ReadOnly), (&self.zone_offline, ZoneCondition::Offline)];
        for (zones, condition) in conditions {
            for zone in zones.iter().cloned().flatten() {
                if words.is_empty() {
                    words = (0..geometry.zones())
                        .map(|z| initial_state(geometry, ZoneIndex(z)).to_bits())
                        .collect();
                }
                // An offline zone has no data.
                let word = &mut words[zone as usize];
                let written =
                    if condition == ZoneCondition::Offline { 0 } else { ZoneState::from_word(*word).written };
                *word = ZoneState { condition, written }.to_bits();
            }
        }
        Ok(words)
    }

    /// Ledger words of [`ImageOptions::states`].
    fn words_of_states(&self, header: &Header) -> Result<Vec<u64>, OptionsError> {
        let geometry = &header.geometry;
        if self.states.is_empty() {
            return Ok(Vec::new());
        }
        if self.states.len() as u64 != u64::from(geometry.zones()) {
            return Err(OptionsError::States { states: self.states.len(), zones: geometry.zones() });
        }
        let mut active = 0;
        let mut words = Vec::with_capacity(self.states.len());
        for (zone, &state) in (0..).map(ZoneIndex).zip(&self.states) {
            let capacity = geometry.capacity_of(zone);
            let wrong = OptionsError::State { zone, state };
            // Checked first, because `restarted` accepts valid states only.
            if ZoneState::from_bits(state.to_bits(), capacity).is_err()
                || !state.written.is_multiple_of(header.block_sectors)
            {
                return Err(wrong);
            }
            let word = flight::restarted(header.personality, capacity, state).to_bits();
            if format::state_from_word(geometry, zone, word).is_err() {
                return Err(wrong);
            }
            active += u32::from(ZoneState::from_word(word).condition.is_active());
            words.push(word);
        }
        if header.active_max != 0 && active > header.active_max {
            return Err(OptionsError::Active { active, limit: header.active_max });
        }
        Ok(words)
    }

    /// Header for these options.
    ///
    /// # Errors
    /// [`OptionsError`].
    pub fn header(&self) -> Result<Header, OptionsError> {
        let profile = match &self.profile {
            None => None,
            Some(name) => Some(Profile::named(name).ok_or_else(|| OptionsError::UnknownProfile {
                name: name.clone(),
                known: PROFILES.iter().map(|(name, _)| *name).collect(),
            })?),
        };
        let geometry = self.geometry(profile)?;
        let blocksize = self.blocksize.or(profile.map(|p| p.blocksize)).unwrap_or(BLOCK_DEFAULT);
        let block_sectors = blocksize / SECTOR_BYTES as u32;
        if !blocksize.is_multiple_of(SECTOR_BYTES as u32) || !format::is_block(&geometry, block_sectors) {
            return Err(OptionsError::Range {
                option: "blocksize",
                value: blocksize.into(),
                range: "a power of two from 512 to 65536 that divides size, zone_size and zone_capacity",
            });
        }
        let open_max = self.zone_max_open.or(profile.map(|p| p.zone_max_open)).unwrap_or(0);
        let active_max = self.zone_max_active.or(profile.map(|p| p.zone_max_active)).unwrap_or(0);
        let (open_max, active_max) = geometry.limits(open_max, active_max)?;
        let personality = self.personality.or(profile.map(|p| p.personality)).unwrap_or_default();
        let append_default = match personality {
            Personality::Zns => u32::MAX,
            Personality::Zbc => 0,
        };
        let header = Header {
            creation: self.creation.unwrap_or_else(random_number),
            geometry,
            open_max,
            active_max,
            block_sectors,
            append_sectors_max: self
                .zone_append_max_sectors
                .or(profile.map(|p| p.zone_append_max_sectors))
                .unwrap_or(append_default),
            personality,
            rotational: self.rotational.or(profile.map(|p| p.rotational)).unwrap_or(false),
            profile: profile.map_or(String::new(), |p| p.name.to_owned()),
            zones_per_file: 0,
            identity: self.identity.or_else(Identity::random),
            version: format::VERSION,
        };
        match header.layout().file_len() {
            Some(_) => Ok(header),
            None => Err(OptionsError::Range {
                option: "size",
                value: geometry.sectors().bytes(),
                range: "less than 2^63, the limit of files",
            }),
        }
    }

    fn geometry(&self, profile: Option<&Profile>) -> Result<Geometry, OptionsError> {
        let size = self.size.or(profile.map(|p| p.size)).ok_or(OptionsError::NoSize)?;
        let zone_size = self.zone_size.or(profile.map(|p| p.zone_size)).unwrap_or(ZONE_SIZE_DEFAULT);
        // A profile's capacity applies only to its own zone size.
        let preset = profile.filter(|_| self.zone_size.is_none()).map(|p| p.zone_capacity);
        let capacity = self.zone_capacity.or(preset).unwrap_or(zone_size);
        let conventional = self.zone_nr_conv.or(profile.map(|p| p.zone_nr_conv)).unwrap_or(0);
        let geometry = Geometry::new(
            sectors("size", size)?,
            sectors("zone_size", zone_size)?,
            sectors("zone_capacity", capacity)?,
            conventional,
        )?;
        if geometry.zones() > ZONES_MAX {
            return Err(OptionsError::Range {
                option: "the number of zones",
                value: geometry.zones().into(),
                range: "at most 2^24; use larger zones",
            });
        }
        Ok(geometry)
    }
}

const _: () = {
    let mut i = 0;
    while i < PROFILES.len() {
        assert!(PROFILES[i].0.len() <= PROFILE_NAME_MAX);
        i += 1;
    }
};

fn sectors(option: &'static str, bytes: u64) -> Result<Sectors, OptionsError> {
    Sectors::from_bytes(bytes).ok_or(OptionsError::Unit { option, bytes, unit: SECTOR_BYTES })
}

fn random_number() -> [u8; 16] {
    let mut bytes = [0; 16];
    // If the kernel's random number generator is not ready yet, the number is zero. Then pages of
    // another such image would not be recognised, but they can only get here by manual copying.
    let _ = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    bytes
}

fn format(backing: &dyn Backing, header: &Header, words: &[u64], bad: &BadBlocks) -> io::Result<()> {
    let layout = header.layout();
    backing.set_len(first_len(header))?;
    if *bad != BadBlocks::default() {
        let words = session_words(Session::Closed, bad);
        let page = Page { index: 0, sequence: 1, words, tails: Vec::new() };
        backing.write_at(&page.emit(&header.creation), layout.slot(0, Side::A))?;
    }
    for (index, words) in (1..).zip(words.chunks(ZONES_PER_PAGE)) {
        let first = (index - 1) * ZONES_PER_PAGE as u32;
        let is_new =
            |(zone, &word): (u32, &u64)| word == initial_state(&header.geometry, ZoneIndex(zone)).to_bits();
        if (first..).zip(words).all(is_new) {
            continue;
        }
        let mut page = Page { index, sequence: 1, words: [0; ZONES_PER_PAGE], tails: Vec::new() };
        page.words[..words.len()].copy_from_slice(words);
        backing.write_at(&page.emit(&header.creation), layout.slot(index, Side::A))?;
    }
    backing.write_at(&header.emit(), 0)?;
    backing.sync()
}

/// Length of the first file.
fn first_len(header: &Header) -> u64 {
    match header.split() {
        None => header.layout().file_len().expect("checked with the options"),
        Some(split) => split.file_len(0),
    }
}

/// Number of zones per file, tried on `file`, the first one; 0 if one file is sufficient.
fn zones_per_file(file: &File, header: &Header, file_max: Option<u64>) -> io::Result<u32> {
    let (zones, zone_size) = (header.geometry.zones(), header.geometry.zone_size().bytes());
    let fits = |len: u64| {
        if file_max.is_some_and(|max| len > max) {
            return Ok(false);
        }
        match file.set_len(len) {
            Err(e) if is_too_large(&e) => Ok(false),
            set => set.map(|()| true),
        }
    };
    if fits(first_len(header))? {
        return Ok(0);
    }
    // The first file is the longest, because it also has the ledger.
    let (mut held, mut too_many) = (0, zones);
    while too_many - held > 1 {
        let n = held.midpoint(too_many);
        let is_held = fits(header.layout().data_offset + u64::from(n) * zone_size)?;
        *(if is_held { &mut held } else { &mut too_many }) = n;
    }
    match format::is_split(&header.geometry, held) {
        true => Ok(held),
        false => Err(Errno::FBIG.into()),
    }
}

fn is_too_large(e: &io::Error) -> bool {
    matches!(Errno::from_io_error(e), Some(Errno::FBIG | Errno::INVAL | Errno::OVERFLOW))
}

/// Sizes and writes part `index`, from 1.
fn write_part(file: &File, header: &Header, index: u32) -> io::Result<()> {
    let split = header.split().expect("a part has an image in several files");
    let backing = FileBacking::new(file.try_clone()?);
    backing.set_len(split.file_len(index))?;
    let head = PartHead { creation: header.creation, index, files: split.files() };
    backing.write_at(&head.emit(), 0)?;
    file.sync_all()
}

/// Sizes, allocates and writes `file`.
fn write_new(file: &File, header: &Header, words: &[u64], bad: &BadBlocks) -> io::Result<()> {
    // Allocate the ledger and the current states now, so that on a full file system data writes may
    // fail, but no flush.
    let ledger = header.layout().data_offset - LEDGER_OFFSET;
    match rustix::fs::fallocate(file, FallocateFlags::empty(), LEDGER_OFFSET, ledger) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => {}
        Err(e) => return Err(e.into()),
    }
    format(&FileBacking::new(file.try_clone()?), header, words, bad)?;
    file.sync_all()
}

fn describe(path: &Path, header: &Header, e: io::Error) -> ImageError {
    let path = path.to_owned();
    match Errno::from_io_error(&e) {
        _ if is_too_large(&e) => {
            ImageError::TooLarge { path, bytes: header.layout().file_len().unwrap_or(u64::MAX) }
        }
        Some(Errno::NOSPC | Errno::DQUOT) => ImageError::NoSpace { path },
        _ => ImageError::Io { path, doing: "creating the image", source: e },
    }
}

/// File of an incomplete image, removed on drop under its current name unless kept.
struct Temporary {
    file: File,
    path: PathBuf,
    is_kept: bool,
}

/// Number of names tried for the temporary file. Only leftovers of a crashed process with the same
/// process ID can be in the way.
const NAMES_TRIED: u32 = 100;

impl Temporary {
    fn create(path: &Path) -> Result<Temporary, ImageError> {
        let io = |source| ImageError::Io { path: path.to_owned(), doing: "creating the image", source };
        let name = path.file_name().ok_or_else(|| io(io::ErrorKind::InvalidInput.into()))?;
        for n in 0..NAMES_TRIED {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{}-{n}.tmp", std::process::id()));
            let path = path.with_file_name(hidden);
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(Temporary { file, path, is_kept: false }),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(io(e)),
            }
        }
        Err(io(io::ErrorKind::AlreadyExists.into()))
    }

    /// Gives the file its final name, unless the name exists.
    fn publish(&mut self, path: &Path) -> Result<(), ImageError> {
        let renamed = match rustix::fs::renameat_with(CWD, &self.path, CWD, path, RenameFlags::NOREPLACE) {
            // File systems without this kind of rename can link instead.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                std::fs::hard_link(&self.path, path).map(|()| {
                    let _ = std::fs::remove_file(&self.path);
                })
            }
            other => other.map_err(io::Error::from),
        };
        match renamed {
            Ok(()) => {
                self.path = path.to_owned();
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Err(ImageError::Exists { path: path.to_owned() })
            }
            Err(source) => Err(ImageError::Io { path: path.to_owned(), doing: "naming the image", source }),
        }
    }

    /// Keeps the file.
    fn keep(mut self) {
        self.is_kept = true;
    }
}

/// Makes the names in the directory of `path` durable.
fn sync_directory(path: &Path) -> Result<(), ImageError> {
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(directory).and_then(|d| d.sync_all());
    synced.map_err(|source| ImageError::Io { path: path.to_owned(), doing: "naming the image", source })
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
