//! Volumes by device name: opened by the first job that names the device, closed with the last.
//!
//! fio's jobs are threads of one process. Two volumes on one device would be unaware of each
//! other's writes, and opening an image locks it, so all jobs on a device share one volume.

use crate::clock;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use zonal_core::{Op, RequestError, SECTOR_BYTES, Sector, ZoneDescriptor, ZoneIndex};
use zonal_io::Volume;
use zonal_io::device::Output;
use zonal_io::errno;
use zonal_io::owner::{self, Owned};
use zonal_io::registry::Registry;
use zonal_io::volume::{OptionChanges, OptionError, OptionKey, Request, SetBy, VolumeOptions};

/// Maximum number of zones per report.
pub(crate) const REPORT_ZONES_MAX: u32 = 1 << 13;

static OPEN: LazyLock<Mutex<HashMap<String, Weak<Shared>>>> = LazyLock::new(Mutex::default);

/// A device shared by jobs.
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) volume: Volume,
    /// Requested options.
    asked: OptionChanges,
    /// Result of the check for other data on the device. Made before the first job writes, because
    /// later jobs would find the data of earlier ones.
    checked: OnceLock<Result<(), Owned>>,
    /// True once a failed request was reported.
    told: AtomicBool,
}

/// Opens the device `name` with the write mode `mode` (empty: the default for the device) and
/// `options` in the format of [`OptionChanges`].
///
/// # Errors
/// A text for the user.
pub(crate) fn open(name: &str, mode: &str, options: &str) -> Result<Arc<Shared>, String> {
    let mut asked: OptionChanges = options.parse().map_err(|e: OptionError| e.to_string())?;
    if !mode.is_empty() {
        asked.set(OptionKey::Mode.name(), mode).map_err(|e| e.to_string())?;
    }
    let mut open = OPEN.lock();
    if let Some(shared) = open.get(name).and_then(Weak::upgrade) {
        return match shared.asked == asked {
            true => Ok(shared),
            false => {
                Err(format!("{name}: jobs on the same device need the same write_mode and volume_options"))
            }
        };
    }
    let mut registry = Registry::default();
    zonal_nvme::host::register(&mut registry);
    let device = registry.open(name).map_err(|e| e.to_string())?;
    // Like a kernel's device: early writes fail, and fio itself keeps to the limits of open zones.
    let mut options = VolumeOptions::default().without_park().without_budget();
    asked.apply(&mut options, SetBy::Caller);
    let volume = Volume::open(device, options).map_err(|e| e.to_string())?;
    let shared = Arc::new(Shared {
        name: name.to_owned(),
        volume,
        asked,
        checked: OnceLock::new(),
        told: AtomicBool::new(false),
    });
    open.retain(|_, shared| shared.strong_count() > 0);
    open.insert(name.to_owned(), Arc::downgrade(&shared));
    Ok(shared)
}

impl Shared {
    /// Refuses a device with data of a known kind.
    pub(crate) fn check(&self) -> Result<(), Owned> {
        self.checked.get_or_init(|| owner::check(&**self.volume.device())).clone()
    }

    /// Prints the error of the first failed request of this device to standard error, because fio
    /// gets only a number.
    #[cold]
    pub(crate) fn tell(&self, what: &str, error: &RequestError) {
        if !self.told.swap(true, Ordering::Relaxed) {
            let name = &self.name;
            eprintln!("zonal: {name}: {what} failed: {error} (later failures of this device are not shown)");
        }
    }

    /// Runs a request outside of any job and waits for its completion.
    ///
    /// # Errors
    /// An error number.
    pub(crate) fn run(&self, request: Request) -> Result<Output, i32> {
        let op = request.op;
        let result = self.volume.call(&clock::CLOCK, request).result;
        result.map_err(|error| {
            self.tell(op.name(), &error);
            errno::of(&error)
        })
    }

    /// Reports the zones from the one of byte `offset` on, at most [`REPORT_ZONES_MAX`]; none past
    /// the end.
    ///
    /// # Errors
    /// An error number.
    pub(crate) fn report(&self, offset: u64, zones: u32) -> Result<Box<[ZoneDescriptor]>, i32> {
        let sector = Sector(offset / SECTOR_BYTES);
        if sector.0 >= self.volume.info().geometry.sectors().0 {
            return Ok(Box::default());
        }
        match self.run(Request::report(sector, zones.min(REPORT_ZONES_MAX)))? {
            Output::Zones(zones) => Ok(zones),
            _ => Err(Errno::IO.raw_os_error()),
        }
    }

    /// Resets the sequential zones that start within `length` bytes from `offset`.
    ///
    /// # Errors
    /// An error number.
    pub(crate) fn reset(&self, offset: u64, length: u64) -> Result<(), i32> {
        let geometry = self.volume.info().geometry;
        let size = geometry.zone_size().bytes();
        let end = offset.saturating_add(length).div_ceil(size).min(geometry.zones().into()) as u32;
        let begin = offset.div_ceil(size).min(end.into()) as u32;
        for zone in (begin..end).map(ZoneIndex).filter(|z| !geometry.is_conventional(*z)) {
            self.run(Request::zone(Op::ZoneReset, geometry.start_of(zone)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_io::volume::{ParkOptions, Qd1Quantum, WriteMode};

    #[test]
    fn same_name_shares_one_volume_until_its_last_user_drops_it() {
        let name = "ram:size=64M,zone_size=1M";
        let (a, b) = (open(name, "", "").unwrap(), open(name, "", "").unwrap());
        assert!(Arc::ptr_eq(&a, &b));
        a.run(Request::zone(Op::ZoneFinish, Sector(0))).unwrap();
        drop((a, b));
        let again = open(name, "", "").unwrap();
        assert_eq!(again.report(0, 1).unwrap()[0].condition, zonal_core::ZoneCondition::Empty);
    }

    #[test]
    fn another_mode_for_an_open_device_is_refused() {
        let name = "null:size=64M,zone_size=1M";
        let _open = open(name, "per-zone", "").unwrap();
        let refused = |name, mode, options| open(name, mode, options).err().unwrap();
        assert!(refused(name, "qd1", "").contains("need the same write_mode"));
        assert!(refused(name, "per-zone", "merge=no").contains("and volume_options"));
        assert!(refused(name, "fast", "").contains("unknown write mode"));
        assert!(refused("null:sise=1", "", "").contains("did you mean"));
    }

    #[test]
    fn options_of_a_job_are_the_volumes() {
        let name = "null:size=32M,zone_size=1M";
        let text = "window=3 merge=no;park=1M,1s budget=wait,grace=1ms qd1_quantum=0 force=yes nr_requests=9";
        let shared = open(name, "qd1", text).unwrap();
        let options = shared.volume.options();
        assert_eq!((options.window, options.merge, options.force, options.nr_requests), (3, false, true, 9));
        assert_eq!((options.mode, options.park), (Some(WriteMode::Qd1), Some(ParkOptions::default())));
        assert_eq!(options.qd1_quantum, Qd1Quantum::NONE);
        assert!(Arc::ptr_eq(&shared, &open(name, "", &format!("{text} mode=qd1")).unwrap()));
        for (mode, text, said) in [
            ("", "window=0", "option window: not a number from 1 to 255"),
            ("", "windo=3", "did you mean window?"),
            ("qd1", "mode=qd1", "set twice"),
        ] {
            let error = open("null:size=16M,zone_size=1M", mode, text).err().unwrap();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn reset_of_a_range_leaves_its_neighbours_and_conventional_zones() {
        let shared = open("null:size=8M,zone_size=1M,zone_nr_conv=2", "", "").unwrap();
        let zones = |condition| {
            let report = shared.report(0, 8).unwrap();
            report.iter().filter(|z| z.condition == condition).map(|z| z.zone.0).collect::<Vec<_>>()
        };
        let start = |zone| shared.volume.info().geometry.start_of(ZoneIndex(zone));
        (2..8).for_each(|z| drop(shared.run(Request::zone(Op::ZoneFinish, start(z)))));
        shared.reset(0, 4 << 20).unwrap();
        assert_eq!(zones(zonal_core::ZoneCondition::Empty), [2, 3]);
        shared.reset(6 << 20, u64::MAX).unwrap();
        assert_eq!(zones(zonal_core::ZoneCondition::Full), [4, 5]);
        assert_eq!(shared.report(8 << 20, 1).unwrap().len(), 0);
    }
}
