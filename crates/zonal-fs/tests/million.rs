//! A million files: opening the file system takes few reads and little time, and memory use stays
//! within the cache size.
//!
//! `ZONAL_FILES` sets the number of files. The default is a million with `ZONAL_WHOLE`, and a tenth
//! of that otherwise.

mod common;

use common::watched::Watched;
use common::{cases_of, processor_time, waiter};
use parking_lot::{Mutex, MutexGuard};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use zonal_core::{Op, Sectors};
use zonal_fs::drive::Drive;
use zonal_fs::format::FileKind;
use zonal_fs::make::{MakeOptions, make, open};
use zonal_fs::waiter::polling;
use zonal_fs::{FileSystem, MountOptions, NewFile, ROOT};
use zonal_io::clock::Clock;
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};

/// Files in each directory.
const PER_DIRECTORY: u64 = 1000;

/// Maximum number of non-sequential reads of an opening.
const JUMPS_MAX: usize = 200;

/// Maximum CPU time of an opening.
const TIME_MAX: Duration = Duration::from_secs(1);

/// Cache size for metadata, in bytes.
const CACHE_BYTES: usize = 8 << 20;

/// Other memory of a file system: buffers of units, small ones, the books of zones.
const BESIDES_BYTES: usize = 4 << 20;

/// The system's allocator with a counter of live bytes.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The counters cover the whole process.
static ALONE: Mutex<()> = Mutex::new(());

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn files() -> u64 {
    std::env::var("ZONAL_FILES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or_else(|| cases_of(1_000_000, 100_000))
}

fn directory(n: u64) -> Vec<u8> {
    format!("d{n}").into_bytes()
}

fn name(n: u64) -> Vec<u8> {
    format!("file-{n:07}").into_bytes()
}

struct Bench {
    backing: Arc<CutBacking>,
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    /// A drive with `conventional` conventional zones, and a file system on it.
    fn new(conventional: u32) -> Bench {
        let backing = Arc::new(CutBacking::new(1));
        let options = ImageOptions::default()
            .with_size(8 << 30)
            .with_zone_size(16 << 20)
            .with_zone_nr_conv(conventional)
            .with_creation([9; 16]);
        options.format(&*backing).unwrap();
        let bench = Bench { backing, _alone: ALONE.lock() };
        let drive = Arc::new(Drive::new(common::volume(bench.device())));
        make(&drive, &polling(Clock::start()), *b"a million files.", &MakeOptions::default()).unwrap();
        bench
    }

    fn device(&self) -> Arc<Watched> {
        let options = OpenOptions::default().with_threads(0);
        let image = ImageDevice::open_backing(Path::new("twin"), self.backing.clone(), &options).unwrap();
        Arc::new(Watched::new(Arc::new(image)))
    }

    fn open(device: &Arc<Watched>) -> FileSystem {
        let drive = Arc::new(Drive::new(common::volume(device.clone())));
        let options = MountOptions::default().with_cache_bytes(CACHE_BYTES);
        open(&drive, &polling(Clock::start()), None, options).unwrap()
    }

    /// Makes the files.
    fn make_files(fs: &FileSystem) {
        let waiter = waiter();
        let mut inside = ROOT;
        for n in 0..files() {
            if n % PER_DIRECTORY == 0 {
                let new = NewFile::new(FileKind::Directory, 0o755);
                inside = fs.create(&waiter, ROOT, &directory(n / PER_DIRECTORY), &new).unwrap();
            }
            fs.create(&waiter, inside, &name(n), &NewFile::new(FileKind::File, 0o644)).unwrap();
        }
        fs.sync(&waiter).unwrap();
    }

    /// Opens the file system with few reads, and looks at all files with little memory.
    fn opens(&self, conventional: u32) {
        let device = self.device();
        let before = ALLOCATED.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let begin = processor_time();
        let fs = Bench::open(&device);
        let took = processor_time() - begin;
        let (reads, jumps) = reads(&device);
        let mut seen = 0;
        for n in 0..files().div_ceil(PER_DIRECTORY) {
            let inside = fs.lookup(ROOT, &directory(n)).unwrap();
            let mut inodes = Vec::new();
            fs.list(inside, None, |_, entry| {
                inodes.push(entry.ino);
                ControlFlow::Continue(())
            })
            .unwrap();
            for ino in inodes {
                assert_eq!(fs.attributes(ino).unwrap().kind, FileKind::File);
                seen += 1;
            }
        }
        // Memory of the recorded commands does not belong to the file system.
        let noted = device.seen().capacity() * 2 * size_of::<common::watched::Seen>();
        let most = MOST.load(Ordering::Relaxed) - before;
        println!(
            "{conventional} conventional zones, {seen} files: {reads} reads, {jumps} of them elsewhere, {took:?}; \
             at most {most} bytes, {noted} of them the test's"
        );
        assert!(seen >= files(), "{seen} files");
        assert!(jumps <= JUMPS_MAX, "{jumps} of {reads} reads begin elsewhere");
        assert!(took <= TIME_MAX, "{took:?}");
        assert!(most <= CACHE_BYTES + BESIDES_BYTES + noted, "{most} bytes, {noted} of them the test's");
    }
}

/// Number of reads so far, and of those that do not continue the previous one.
fn reads(device: &Watched) -> (usize, usize) {
    let seen = device.seen();
    let reads: Vec<_> = seen.iter().filter(|command| command.op == Op::Read).collect();
    let follows =
        |pair: &&[&common::watched::Seen]| pair[0].sector + Sectors(pair[0].sectors.into()) == pair[1].sector;
    let jumps = reads.len() - reads.windows(2).filter(follows).count();
    (reads.len(), jumps)
}

fn million(conventional: u32) {
    let mut bench = Bench::new(conventional);
    let fs = Bench::open(&bench.device());
    Bench::make_files(&fs);
    drop(fs);
    bench.opens(conventional);
    // Again after a power cut while more files are created.
    let fs = Bench::open(&bench.device());
    let waiter = waiter();
    for n in 0..10 * PER_DIRECTORY {
        fs.create(&waiter, ROOT, &name(n), &NewFile::new(FileKind::File, 0o644)).unwrap();
    }
    bench.backing.cut();
    drop(fs);
    bench.backing = Arc::new(bench.backing.restart(1));
    bench.opens(conventional);
}

#[test]
fn million_files_in_zones_open_with_few_reads() {
    million(0);
}

#[test]
fn million_files_in_conventional_zones_open_with_few_reads() {
    million(1);
}
