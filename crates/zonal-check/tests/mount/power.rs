//! A drive that loses power, and mounts of it served by the test's process.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use zonal_check::program::mounted::{mount_here, session_options};
use zonal_fs::drive::Drive;
use zonal_fs::fsck::{Options, check};
use zonal_fs::make::{Access, MakeOptions, make, open, open_rows, superblock};
use zonal_fs::waiter::polling;
use zonal_fs::{FileSystem, MountOptions};
use zonal_fuse::mount::{IfBusy, unmount};
use zonal_fuse::session::Session;
use zonal_io::clock::Clock;
use zonal_io::image::backing::Backing;
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};
use zonal_io::volume::{Volume, VolumeOptions};

/// Number of backing calls within which the power fails.
const CALLS: u64 = 20;

/// An image in memory that forgets unsynced data.
pub struct Powered {
    backing: Arc<CutBacking>,
}

/// A mount of the drive.
pub struct Mounted {
    pub dir: TempDir,
    session: Session,
    _fs: FileSystem,
}

impl Powered {
    /// Creates a drive with a new file system.
    pub fn new() -> Powered {
        let options = ImageOptions::default().with_size(256 << 20).with_zone_size(4 << 20);
        let drive = Powered { backing: Arc::new(CutBacking::new(1)) };
        options.format(&*drive.backing).unwrap();
        drive.backing.sync().unwrap();
        make(&drive.open(), &polling(Clock::start()), *b"zonal-check-cuts", &MakeOptions::default()).unwrap();
        drive
    }

    fn open(&self) -> Arc<Drive> {
        let device =
            ImageDevice::open_backing(Path::new("cut"), self.backing.clone(), &OpenOptions::default());
        let options = VolumeOptions::default().without_budget();
        Arc::new(Drive::new(Arc::new(Volume::open(Arc::new(device.unwrap()), options).unwrap())))
    }

    /// Mounts the drive.
    pub fn mount(&self, writeback: bool) -> Mounted {
        let clock = Clock::start();
        let fs = open(&self.open(), &polling(clock), None, MountOptions::default());
        let fs = fs.unwrap_or_else(|error| panic!("{error}"));
        let dir = tempfile::tempdir().unwrap();
        // Errors after the power cut are expected, so they are not logged.
        let options = session_options(writeback, Arc::new(|_| {}));
        let session = Session::start(mount_here(dir.path()), fs.clone(), clock, options).unwrap();
        Mounted { dir, session, _fs: fs }
    }

    /// Cuts the power during one of the next calls.
    pub fn cut(&self, random: &mut Pcg64Mcg) {
        self.backing.cut_at(self.backing.calls() + random.random_range(0..CALLS));
        let begin = Instant::now();
        while self.backing.is_on() && begin.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // No more calls are made, so cut it now.
        self.backing.cut();
    }

    /// Restores the power, and checks the file system.
    pub fn restart(&mut self, random: &mut Pcg64Mcg) {
        self.backing = Arc::new(self.backing.restart(random.random()));
        let (drive, waiters) = (self.open(), polling(Clock::start()));
        let superblock = superblock(&drive, &*waiters()).unwrap();
        let rows = open_rows(&drive, &waiters, None, &superblock, Access::Verify).unwrap();
        let found =
            check(&rows, &superblock, &drive, &*waiters(), Options::default().with_data(true)).unwrap();
        assert_eq!(found, []);
    }
}

impl Mounted {
    /// Number of requests with this code so far.
    pub fn requests(&self, code: u32) -> u64 {
        self.session.requests(code)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(self.dir.path(), IfBusy::Detach);
        self.session.join();
    }
}
