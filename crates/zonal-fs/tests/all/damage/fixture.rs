//! A file system with damaged metadata: its history, the location of its metadata, and the damage.

use crate::common::{bytes, impatient, waiter};
use crate::damage::answers::{Answers, answers, difference};
use parking_lot::Mutex;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, LazyLock, OnceLock};
use zonal_core::ZoneIndex;
use zonal_fs::drive::Drive;
use zonal_fs::format::{Anchor, FileKind, SuperblockCopy};
use zonal_fs::fsck::{Finding, Loss, Options, check, repair, salvage};
use zonal_fs::make::{self, Access, Beside, MakeError, MakeOptions};
use zonal_fs::space::open::ACTIVE_MIN;
use zonal_fs::store::Rows;
use zonal_fs::store::backend::SegmentId;
use zonal_fs::store::backend::log::begun;
use zonal_fs::superblocks;
use zonal_fs::waiter::{Waiters, polling};
use zonal_fs::{Changes, FileSystem, MountOptions, NewFile, Payload, ROOT, SetTime};
use zonal_io::clock::Clock;
use zonal_io::image::backing::Backing;
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};
use zonal_io::volume::{Volume, VolumeOptions};

const UUID: [u8; 16] = *b"damaged metadata";
const BLOCK: usize = 4096;
const CONVENTIONAL: u32 = 16;
/// Offset of sector 0 in an image of this size.
const DATA: u64 = 1 << 20;
/// Number of openings for writing.
const OPENINGS: usize = 7;
/// Number of syncs in each opening.
const SYNCS: usize = 26;
/// Interval at which the bytes are kept, in states.
const KEPT_EVERY: usize = 4;

/// Location of the metadata.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Where {
    Conventional,
    Logged,
    Beside,
}

/// A drive, and the location of its metadata.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    pub place: Where,
    /// Maximum number of active zones; 0 for no limit.
    active_max: u32,
    zones: u64,
    zone_bytes: u64,
}

impl Shape {
    pub const CONVENTIONAL: Shape = Shape::usual(Where::Conventional);
    pub const LOGGED: Shape = Shape::usual(Where::Logged);
    pub const BESIDE: Shape = Shape::usual(Where::Beside);
    /// A drive with the lowest limit.
    pub const FEWEST_ACTIVE: Shape = Shape { active_max: ACTIVE_MIN, ..Shape::LOGGED };
    /// The smallest drive, with larger zones because five of them have to hold the data.
    pub const SMALLEST: Shape =
        Shape { zones: 7, zone_bytes: 4 << 20, active_max: ACTIVE_MIN, ..Shape::BESIDE };

    /// Distinguishes the drives, except the usual ones.
    fn salt(self) -> u64 {
        u64::from(self.active_max) << 8 | (Shape::LOGGED.zones - self.zones)
    }

    const fn usual(place: Where) -> Shape {
        Shape { place, active_max: 0, zones: 40, zone_bytes: 512 << 10 }
    }
}

/// End of the last opening, after which everything is synced. Closing records the last batch in the
/// superblock, so that its loss is found. After a power cut it is not recorded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    Closed,
    Cut,
}

pub fn waiters() -> Waiters {
    polling(Clock::start())
}

/// A drive, and the file beside it.
pub struct Disk {
    shape: Shape,
    pub image: Arc<CutBacking>,
    pub file: Option<Arc<CutBacking>>,
}

impl Disk {
    fn new(shape: Shape, seed: u64) -> Disk {
        let place = shape.place;
        let image = Arc::new(CutBacking::new(seed));
        let options = ImageOptions::default()
            .with_size(shape.zones * shape.zone_bytes)
            .with_zone_size(shape.zone_bytes)
            .with_zone_max_active(shape.active_max)
            .with_zone_nr_conv(if place == Where::Conventional { CONVENTIONAL } else { 0 })
            .with_blocksize(BLOCK as u32)
            .with_creation([9; 16]);
        options.format(&*image).unwrap();
        let file = (place == Where::Beside).then(|| Arc::new(CutBacking::new(seed)));
        let disk = Disk { shape, image, file };
        let options = MakeOptions::default().with_unit_bytes(8 * BLOCK as u32);
        match &disk.file {
            Some(file) => make::make_in(&disk.drive(), &waiters(), UUID, &options, file.clone()).unwrap(),
            None => make::make(&disk.drive(), &waiters(), UUID, &options).unwrap(),
        };
        disk
    }

    /// Copies the disk.
    pub fn copy(&self) -> Disk {
        let file = self.file.as_ref().map(|file| Arc::new(file.restart(1)));
        Disk { shape: self.shape, image: Arc::new(self.image.restart(1)), file }
    }

    pub fn drive(&self) -> Arc<Drive> {
        let options = OpenOptions::default().with_threads(0);
        let device = ImageDevice::open_backing(Path::new("twin"), self.image.clone(), &options).unwrap();
        let options = VolumeOptions::default().without_budget();
        Arc::new(Drive::new(Arc::new(Volume::open(Arc::new(device), options).unwrap())))
    }

    fn options() -> MountOptions {
        MountOptions::default().with_cache_bytes(1 << 20)
    }

    /// Opens the file system, for use or read-only.
    pub fn open(&self, is_used: bool) -> Result<FileSystem, MakeError> {
        let (drive, waiters) = (self.drive(), waiters());
        let Some(file) = &self.file else {
            let open = if is_used { make::open } else { make::look };
            return open(&drive, &waiters, None, Disk::options());
        };
        let options = Disk::options();
        let access = if is_used { Access::Use(&options) } else { Access::Look(&options) };
        let superblock = make::superblock(&drive, &waiter())?;
        let rows = make::open_rows_in(&drive, &waiters, file.clone(), access)?;
        let fs = FileSystem::open(drive.volume().clone(), rows, superblock, options, true, &waiter())?;
        if !is_used {
            fs.forbid_changes("it is only looked at");
        }
        Ok(fs)
    }

    pub fn rows(&self, drive: &Arc<Drive>, access: Access<'_>) -> Result<Rows, MakeError> {
        match &self.file {
            Some(file) => make::open_rows_in(drive, &waiters(), file.clone(), access),
            None => {
                let superblock = make::superblock(drive, &waiter())?;
                make::open_rows(drive, &waiters(), None, &superblock, access)
            }
        }
    }

    /// Repairs lost pages of the metadata in the same way as the command. Returns the losses, and
    /// the findings that are left.
    pub fn salvage(&self, rounds_max: u32) -> Result<(Vec<Loss>, Vec<Finding>), MakeError> {
        let (drive, waiters) = (self.drive(), waiters());
        let beside = || self.file.clone().map(|file| Beside::Backing(file));
        let salvaged = salvage(&drive, &waiters, beside())?;
        let superblock = make::superblock(&drive, &waiter())?;
        let mut rows = salvaged.rows()?;
        let look =
            |rows: &Rows| check(rows, &superblock, &drive, &waiter(), Options::default().with_data(true));
        let mut found = look(&rows)?;
        for _ in 0..rounds_max {
            if !found.iter().any(Finding::is_repairable) {
                break;
            }
            repair(&mut rows, &found)?;
            found = look(&rows)?;
        }
        drop(rows);
        salvaged.put_back(&drive, &waiters, beside())?;
        Ok((salvaged.losses, found))
    }

    fn backing(&self, side: Side) -> &CutBacking {
        match side {
            Side::Drive => &self.image,
            Side::File => self.file.as_ref().unwrap(),
        }
    }

    fn read(&self, side: Side, at: u64, blocks: u64) -> Vec<u8> {
        let mut bytes = vec![0; blocks as usize * BLOCK];
        let len = self.backing(side).len().unwrap();
        let there = (len.saturating_sub(at)).min(bytes.len() as u64) as usize;
        self.backing(side).read_at(&mut bytes[..there], at).unwrap();
        bytes
    }

    fn write(&self, side: Side, at: u64, bytes: &[u8]) {
        let backing = self.backing(side);
        if backing.len().unwrap() < at + bytes.len() as u64 {
            backing.set_len(at + bytes.len() as u64).unwrap();
        }
        backing.write_at(bytes, at).unwrap();
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Side {
    Drive,
    File,
}

/// A contiguous area of metadata: a segment, or the copies of the superblock.
#[derive(Clone, Debug)]
struct Area {
    side: Side,
    at: u64,
    blocks: u64,
    segment: Option<SegmentId>,
}

/// A block of an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    area: usize,
    block: u64,
}

/// Damage to the metadata.
#[derive(Clone, Debug)]
pub enum Damage {
    Bits(Vec<(Spot, u32)>),
    Zeroed(Spot, u64),
    Copied {
        from: Spot,
        to: Spot,
        blocks: u64,
    },
    Swapped(Spot, Spot),
    /// Restores a segment to an earlier moment.
    Segment {
        area: usize,
        moment: usize,
    },
    /// Restores all segments, and the file beside, to an earlier moment. Copies of the superblock
    /// on the drive are kept.
    Place {
        moment: usize,
    },
}

/// Metadata at a moment, as the bytes of each area.
struct Moment {
    state: usize,
    areas: Vec<Vec<u8>>,
}

pub struct Fixture {
    pub disk: Disk,
    pub paths: BTreeSet<String>,
    /// Synced states, in order.
    pub states: Vec<Answers>,
    /// First permissible state of a store that has lost its last batches: the superblock names no
    /// later beginning.
    pub first: usize,
    areas: Vec<Area>,
    moments: Vec<Moment>,
    /// Blocks in use: copies of the superblock, blocks of the newest segment, and all of them.
    copies: Vec<Spot>,
    newest: Vec<Spot>,
    all: Vec<Spot>,
}

/// Known contents of files.
type Known = Vec<(String, Vec<u8>)>;

struct Builder {
    random: Pcg64Mcg,
    known: Known,
    paths: BTreeSet<String>,
    next: usize,
}

impl Builder {
    /// Makes one change of those that a file system allows.
    fn step(&mut self, fs: &FileSystem, n: usize) {
        let waiter = impatient();
        let new = |kind| NewFile { uid: n as u32, gid: 7, ..NewFile::new(kind, 0o640) };
        if n < 5 {
            let path = format!("d{n}");
            fs.create(&waiter, ROOT, path.as_bytes(), &new(FileKind::Directory)).unwrap();
            self.paths.insert(path);
            return;
        }
        let directory = format!("d{}", self.random.random_range(0..5));
        let parent = fs.resolve(directory.as_bytes()).unwrap();
        let pick = if self.known.len() < 12 { 0 } else { self.random.random_range(0..10) };
        match pick {
            0..3 if self.known.len() < 40 => {
                let name = format!("f{}", self.next);
                self.next += 1;
                let ino = fs.create(&waiter, parent, name.as_bytes(), &new(FileKind::File)).unwrap();
                let path = format!("{directory}/{name}");
                self.paths.insert(path.clone());
                let data = if self.next.is_multiple_of(9) { Vec::new() } else { self.data(n) };
                fs.write(&waiter, ino, 0, Payload::Bytes(&data)).unwrap();
                self.known.push((path, data));
            }
            0..6 => {
                let which = self.random.random_range(0..self.known.len());
                let data = self.data(n);
                let (path, old) = &mut self.known[which];
                let ino = fs.resolve(path.as_bytes()).unwrap();
                fs.write(&waiter, ino, 0, Payload::Bytes(&data)).unwrap();
                if data.len() < old.len() {
                    fs.truncate(&waiter, ino, data.len() as u64).unwrap();
                }
                *old = data;
            }
            6 => {
                let name = format!("s{n}");
                let target = format!("to/where/{n}").into_bytes();
                let link = NewFile { target, ..new(FileKind::Symlink) };
                fs.create(&waiter, parent, name.as_bytes(), &link).unwrap();
                self.paths.insert(format!("{directory}/{name}"));
            }
            7 => {
                let (path, _) = &self.known[n % self.known.len()];
                let ino = fs.resolve(path.as_bytes()).unwrap();
                let value = bytes(n as u64, 1500 + 10 * n);
                fs.set_xattr(&waiter, ino, format!("user.a{}", n % 4).as_bytes(), &value).unwrap();
            }
            8 => {
                let (path, _) = &self.known[n % self.known.len()];
                let ino = fs.resolve(path.as_bytes()).unwrap();
                let changes = Changes {
                    mode: Some(0o400 + (n as u16 & 0o77)),
                    uid: Some(1000 + n as u32),
                    mtime: Some(SetTime::At(n as i64 * 1_000_000_007)),
                    ..Changes::default()
                };
                fs.set_attributes(&waiter, ino, &changes).unwrap();
            }
            _ => {
                let (path, _) = &self.known[n % 3];
                let ino = fs.resolve(path.as_bytes()).unwrap();
                let name = format!("h{n}");
                fs.link(&waiter, ino, parent, name.as_bytes()).unwrap();
                self.paths.insert(format!("{directory}/{name}"));
            }
        }
    }

    fn data(&mut self, n: usize) -> Vec<u8> {
        let length = self.random.random_range(1..20_000);
        bytes(n as u64, length)
    }
}

/// First permissible state of a store that was restored without detection: `known` is the number in
/// the superblock. `stores` has the store's own number after each sync, with the number of its
/// batches that have it.
fn first_state(known: u64, stores: &[(u64, usize)]) -> usize {
    let Some(first) = stores.iter().position(|(number, _)| *number >= known) else {
        // Closing wrote batches, which change no answer, and an update.
        return stores.len() - 1;
    };
    // A sync is several batches. Only the last one contains the synced changes; the earlier ones
    // leave the state as it was.
    first.saturating_sub(usize::from(stores[first].1 > 1))
}

/// Checks that `numbers`, those of the superblock after each sync, are the store's, or those of its
/// previous batch.
fn check_numbers(numbers: &[u64], stores: &[(u64, usize)]) {
    let is_behind = numbers.iter().zip(stores).filter(|(number, (store, _))| *number < store).count();
    assert!(is_behind * 10 < numbers.len(), "{is_behind}");
}

/// Checks that `seen` equals what was written.
fn agrees(seen: &Answers, known: &Known) {
    for (path, data) in known {
        let read: Vec<u8> = (0..data.len().div_ceil(BLOCK))
            .flat_map(|block| seen[&format!("data:{path}#{block}")].clone().unwrap())
            .collect();
        assert!(read == *data, "{path}");
    }
    assert!(seen.values().all(Result::is_ok));
}

/// Highest store number in the parts in `bytes`, and the number of batches with it.
fn come(bytes: &[u8]) -> (u64, usize) {
    const PART: u32 = 2;
    let u64_at = |block: &[u8], at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
    let is_part = |block: &&[u8]| block.starts_with(b"zonallog") && block[12..16] == PART.to_le_bytes();
    let mut batches: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for part in bytes.chunks_exact(BLOCK).filter(is_part) {
        batches.entry(u64_at(part, 104)).or_default().insert(u64_at(part, 48));
    }
    batches.last_key_value().map_or((0, 0), |(number, batches)| (*number, batches.len()))
}

impl Fixture {
    /// The fixture of a drive, shared by all tests.
    pub fn of(shape: Shape, end: End) -> &'static Fixture {
        type Cell = OnceLock<Fixture>;
        static ALL: LazyLock<Mutex<HashMap<(Shape, End), &'static Cell>>> = LazyLock::new(Mutex::default);
        // The lock is not held while a fixture is built, so that two can be built in parallel.
        let cell = *ALL.lock().entry((shape, end)).or_insert_with(|| Box::leak(Box::default()));
        cell.get_or_init(|| Fixture::new(shape, end))
    }

    fn new(shape: Shape, end: End) -> Fixture {
        let disk = Disk::new(shape, 1);
        let mut builder = Builder {
            random: Pcg64Mcg::seed_from_u64(5),
            known: Vec::new(),
            paths: BTreeSet::new(),
            next: 0,
        };
        let (mut states, mut numbers, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        // Number of the store after each sync, and its batches with this number.
        let mut stores = Vec::new();
        let mut cut = None;
        for opening in 0..OPENINGS {
            let fs = disk.open(true).unwrap();
            for sync in 0..SYNCS {
                builder.step(&fs, opening * SYNCS + sync);
                fs.sync(&waiter()).unwrap();
                let found = superblocks::find(&Drive::new(fs.volume().clone()), &waiter()).unwrap();
                states.push((answers(&fs, &builder.paths), builder.known.clone()));
                numbers.push(found.copy.anchor.number);
                let areas = segments(shape, &found.copy.anchor).into_iter();
                let bytes = areas.map(|area| come(&disk.read(area.side, area.at, area.blocks)));
                stores.push(bytes.fold((0, 0), |(most, all), (number, batches)| match number.cmp(&most) {
                    Ordering::Less => (most, all),
                    Ordering::Equal => (most, all + batches),
                    Ordering::Greater => (number, batches),
                }));
                if sync + 1 == SYNCS || sync % KEPT_EVERY == 0 {
                    let segments = segments(shape, &found.copy.anchor).into_iter();
                    let read =
                        |area: Area| ((area.side, area.at), disk.read(area.side, area.at, area.blocks));
                    kept.push((states.len() - 1, segments.map(read).collect::<BTreeMap<_, _>>()));
                }
            }
            cut = Some(disk.copy());
        }
        let disk = match end {
            End::Cut => cut.expect("it was opened"),
            End::Closed => {
                disk.image.sync().unwrap();
                disk.file.iter().for_each(|file| file.sync().unwrap());
                disk.copy()
            }
        };
        // Also ask for paths that did not exist yet. The answer is that there is none.
        let paths = builder.paths;
        let states: Vec<Answers> = states
            .into_iter()
            .map(|(seen, known)| {
                agrees(&seen, &known);
                let absent = paths.iter().map(|path| (format!("ino:{path}"), Ok(b"none".to_vec())));
                absent.chain(seen).collect()
            })
            .collect();
        let areas = areas(&disk);
        let moments = kept.into_iter().map(|(state, bytes)| {
            let of = |area: &Area| {
                let mut bytes = bytes.get(&(area.side, area.at)).cloned().unwrap_or_default();
                bytes.resize(area.blocks as usize * BLOCK, 0);
                bytes
            };
            Moment { state, areas: areas.iter().map(of).collect() }
        });
        let moments: Vec<Moment> = moments.collect();
        check_numbers(&numbers, &stores);
        let known = superblocks::find(&disk.drive(), &waiter()).unwrap().copy.anchor.number;
        let first = first_state(known, &stores);
        let mut fixture = Fixture {
            disk,
            paths,
            states,
            first,
            areas,
            moments,
            copies: Vec::new(),
            newest: Vec::new(),
            all: Vec::new(),
        };
        fixture.find_blocks();
        let seen = answers(&fixture.disk.open(false).unwrap(), &fixture.paths);
        assert_eq!(difference(&seen, fixture.states.last().unwrap()), None);
        fixture
    }

    fn find_blocks(&mut self) {
        let begins = |area: &Area| {
            let block = self.disk.read(area.side, area.at, 1);
            area.segment.and_then(|segment| begun(&block, &UUID, segment).ok()).map_or(0, |b| b.beginning)
        };
        let beginnings: Vec<u64> = self.areas.iter().map(begins).collect();
        let newest = beginnings.iter().max().copied().unwrap();
        for (n, area) in self.areas.iter().enumerate() {
            let bytes = self.disk.read(area.side, area.at, area.blocks);
            let is_used = |&block: &u64| bytes[block as usize * BLOCK..][..BLOCK].iter().any(|b| *b != 0);
            let spots: Vec<Spot> =
                (0..area.blocks).filter(is_used).map(|block| Spot { area: n, block }).collect();
            self.all.extend(&spots);
            if area.segment.is_none() {
                self.copies.extend(spots);
            } else if beginnings[n] == newest {
                self.newest.extend(spots);
            }
        }
        let begun = beginnings.iter().filter(|beginning| **beginning > 0).count();
        // All segments were reused: more beginnings than segments.
        assert!(newest > self.areas.len() as u64 && begun >= 2, "{beginnings:?}");
        assert!(!self.copies.is_empty() && self.newest.len() > 5 && self.all.len() > 100);
    }

    fn spot(&self, random: &mut impl Rng) -> Spot {
        let from = match random.random_range(0..20) {
            0..3 => &self.copies,
            3..10 => &self.newest,
            _ => &self.all,
        };
        from[random.random_range(0..from.len())]
    }

    /// Random damage for a case.
    pub fn draw(&self, seed: u64) -> Damage {
        // Different on each drive, because the files beside them are alike.
        let random = &mut Pcg64Mcg::seed_from_u64(seed ^ self.disk.shape.salt() << 32);
        let bit = |random: &mut Pcg64Mcg| (self.spot(random), random.random_range(0..BLOCK as u32 * 8));
        match random.random_range(0..16) {
            0..3 => Damage::Bits(vec![bit(random)]),
            3..5 => Damage::Bits((0..random.random_range(2..20)).map(|_| bit(random)).collect()),
            5..8 => Damage::Zeroed(self.spot(random), random.random_range(1..=8)),
            8..10 => {
                let (from, to) = (self.spot(random), self.spot(random));
                Damage::Copied { from, to, blocks: random.random_range(1..=4) }
            }
            10..12 => Damage::Swapped(self.spot(random), self.spot(random)),
            12..15 => {
                let segments = (0..self.areas.len()).filter(|n| self.areas[*n].segment.is_some());
                let segments: Vec<usize> = segments.collect();
                let area = segments[random.random_range(0..segments.len())];
                Damage::Segment { area, moment: random.random_range(0..self.moments.len()) }
            }
            _ => Damage::Place { moment: random.random_range(0..self.moments.len()) },
        }
    }

    /// A copy of the disk with the damage.
    pub fn damaged(&self, damage: &Damage) -> Disk {
        let disk = self.disk.copy();
        let at = |spot: &Spot| self.areas[spot.area].at + spot.block * BLOCK as u64;
        let side = |spot: &Spot| self.areas[spot.area].side;
        let clamp = |spot: &Spot, blocks: u64| blocks.min(self.areas[spot.area].blocks - spot.block);
        match damage {
            Damage::Bits(bits) => {
                for (spot, bit) in bits {
                    let mut bytes = disk.read(side(spot), at(spot), 1);
                    bytes[*bit as usize / 8] ^= 1 << (bit % 8);
                    disk.write(side(spot), at(spot), &bytes);
                }
            }
            Damage::Zeroed(spot, blocks) => {
                let blocks = clamp(spot, *blocks) as usize;
                disk.write(side(spot), at(spot), &vec![0; blocks * BLOCK]);
            }
            Damage::Copied { from, to, blocks } => {
                let bytes = disk.read(side(from), at(from), clamp(from, clamp(to, *blocks)));
                disk.write(side(to), at(to), &bytes);
            }
            Damage::Swapped(one, other) => {
                let bytes = [one, other].map(|spot| disk.read(side(spot), at(spot), 1));
                disk.write(side(one), at(one), &bytes[1]);
                disk.write(side(other), at(other), &bytes[0]);
            }
            Damage::Segment { area, moment } => self.put_back(&disk, *area, *moment),
            Damage::Place { moment } => {
                let areas = (0..self.areas.len()).filter(|n| self.areas[*n].segment.is_some());
                areas.for_each(|area| self.put_back(&disk, area, *moment));
            }
        }
        disk.image.sync().unwrap();
        disk.file.iter().for_each(|file| file.sync().unwrap());
        disk
    }

    fn put_back(&self, disk: &Disk, area: usize, moment: usize) {
        let Area { side, at, .. } = self.areas[area];
        disk.write(side, at, &self.moments[moment].areas[area]);
    }

    /// State of a moment, and the damage that restores all metadata to it.
    pub fn put_back_to(&self, moment: usize) -> (usize, Damage) {
        (self.moments[moment].state, Damage::Place { moment })
    }

    /// True if a copy of the superblock is left.
    pub fn has_copy(&self, disk: &Disk) -> bool {
        self.areas.iter().filter(|area| area.segment.is_none()).any(|area| {
            let bytes = disk.read(area.side, area.at, area.blocks);
            bytes.chunks(BLOCK).any(|block| SuperblockCopy::decode(block).is_ok())
        })
    }

    /// Damage that destroys some copies of the superblock: each update in conventional blocks, or
    /// the first eight blocks of a home.
    pub fn lost_copies(&self) -> Vec<Damage> {
        let area = self.areas.iter().position(|area| area.segment.is_none()).unwrap();
        let zeroed = |block, blocks| Damage::Zeroed(Spot { area, block }, blocks);
        match self.disk.shape.place {
            Where::Conventional => vec![zeroed(0, 2), zeroed(2, 2)],
            _ => vec![zeroed(0, 2), zeroed(0, 8)],
        }
    }

    pub fn moments(&self) -> usize {
        self.moments.len()
    }
}

/// The segments named by `anchor`, in full length.
fn segments(shape: Shape, anchor: &Anchor) -> Vec<Area> {
    let piece = |piece: u32| {
        let (side, begin, segment) = match shape.place {
            Where::Beside => (Side::File, BLOCK as u64, SegmentId::file(piece)),
            _ => (Side::Drive, DATA + 4 * BLOCK as u64, SegmentId::conventional(piece)),
        };
        let blocks = u64::from(anchor.piece_blocks);
        let at = begin + u64::from(piece) * blocks * BLOCK as u64;
        Area { side, at, blocks, segment: Some(segment) }
    };
    let zone = |zone: &ZoneIndex| Area { segment: Some(SegmentId::zone(*zone)), ..zone_area(shape, *zone) };
    (0..anchor.pieces).map(piece).chain(anchor.zones.iter().map(zone)).collect()
}

fn zone_area(shape: Shape, zone: ZoneIndex) -> Area {
    let at = DATA + u64::from(zone.0) * shape.zone_bytes;
    Area { side: Side::Drive, at, blocks: shape.zone_bytes / BLOCK as u64, segment: None }
}

/// Areas of metadata according to superblock and geometry, up to the write pointer if there is one.
fn areas(disk: &Disk) -> Vec<Area> {
    let drive = disk.drive();
    let anchor = superblocks::find(&drive, &waiter()).unwrap().copy.anchor;
    let report = drive.report(&waiter()).unwrap();
    let shape = disk.shape;
    let mut areas: Vec<Area> = match shape.place {
        Where::Conventional => vec![Area { side: Side::Drive, at: DATA, blocks: 4, segment: None }],
        _ => anchor.homes.iter().map(|home| zone_area(shape, *home)).collect(),
    };
    areas.extend(segments(shape, &anchor));
    for area in areas.iter_mut().filter(|area| area.side == Side::Drive) {
        let described = &report[((area.at - DATA) / shape.zone_bytes) as usize];
        if let Some(pointer) = described.write_pointer {
            area.blocks = (pointer - described.start).0 / 8;
        }
    }
    areas.retain(|area| area.blocks > 0);
    for area in areas.iter().filter(|area| area.segment.is_none()) {
        let bytes = disk.read(area.side, area.at, area.blocks);
        assert!(bytes.chunks(BLOCK).all(|block| SuperblockCopy::decode(block).is_ok()));
    }
    areas
}
