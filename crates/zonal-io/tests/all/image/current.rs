//! Current states: what remains after a killed process, in which cache it is valid, and what does
//! not depend on it.

use crate::image::drive;
use crate::image::opening::{create, open, small};
use std::io;
use std::path::Path;
use std::sync::Arc;
use zonal_core::{Op, ZoneCondition};
use zonal_io::device::OpenMode;
use zonal_io::image::backing::Backing;
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::image::{ImageDevice, OpenOptions};

/// Sectors of a zone.
const ZONE: u64 = 2048;

fn twin(seed: u64) -> Arc<CutBacking> {
    let backing = Arc::new(CutBacking::new(seed));
    small().format(&*backing).unwrap();
    backing
}

fn open_twin(backing: Arc<dyn Backing>) -> ImageDevice {
    let options = OpenOptions::default().with_threads(0);
    ImageDevice::open_backing(Path::new("twin"), backing, &options).unwrap()
}

fn append(device: &ImageDevice, zone: u64, stamps: &[u64]) {
    let command = drive::command(Op::Append, zone * ZONE, stamps.len() as u32);
    drive::write(device, command, stamps).unwrap();
}

fn manage(device: &ImageDevice, op: Op, zone: u64) {
    drive::plain(device, op, zone * ZONE, 0).unwrap();
}

fn flush(device: &ImageDevice) {
    drive::plain(device, Op::Flush, 0, 0).unwrap();
}

/// Condition and write pointer of `zone`.
fn zone(device: &ImageDevice, zone: u32) -> (ZoneCondition, Option<u64>) {
    let found = drive::describe(device, zone);
    (found.condition, found.write_pointer.map(|p| p.0 - found.start.0))
}

use ZoneCondition::{Closed, Empty, Full};

/// Zone 1 is flushed and reset, 2 flushed and written again, 3 never flushed, 4 finished, 5 reset
/// and written again.
fn acknowledged(device: &ImageDevice) {
    (1..3).for_each(|zone| append(device, zone, &[zone, zone]));
    append(device, 5, &[50, 51, 52]);
    flush(device);
    manage(device, Op::ZoneReset, 1);
    append(device, 2, &[22]);
    append(device, 3, &[3]);
    append(device, 4, &[4]);
    manage(device, Op::ZoneFinish, 4);
    manage(device, Op::ZoneReset, 5);
    append(device, 5, &[5]);
}

fn has_what_was_acknowledged(device: &ImageDevice) {
    assert_eq!(
        [1, 2, 3, 4, 5].map(|z| zone(device, z)),
        [(Empty, Some(0)), (Closed, Some(3)), (Closed, Some(1)), (Full, None), (Closed, Some(1))]
    );
    let read = |zone: u64| drive::read(device, zone * ZONE, 3).unwrap();
    assert_eq!([1, 2, 3, 4, 5].map(read), [[0; 3], [2, 2, 22], [3, 0, 0], [4, 0, 0], [5, 0, 0]]);
}

#[test]
fn flush_repeated_to_the_next_process_covers_the_killed_one() {
    for seed in 0..50 {
        let backing = twin(seed);
        let device = open_twin(backing.clone());
        acknowledged(&device);
        // Before or during its flush.
        backing.kill_at(backing.calls() + seed % 10);
        let _ = drive::plain(&device, Op::Flush, 0, 0);
        backing.kill();
        device.abandon();
        backing.revive();
        let device = open_twin(backing.clone());
        has_what_was_acknowledged(&device);
        flush(&device);
        device.abandon();
        has_what_was_acknowledged(&open_twin(Arc::new(backing.restart(seed))));
    }
}

/// A process does `work` and is killed in one of the first `calls` calls of its flush; the next
/// process flushes, and the power is cut. `judge` checks the result of each case.
fn killed_in_a_flush(work: impl Fn(&ImageDevice), calls: u64, judge: impl Fn(&ImageDevice)) {
    let mut doubtful = 0;
    for seed in 0..300 {
        let backing = twin(seed);
        let device = open_twin(backing.clone());
        work(&device);
        backing.kill_at(backing.calls() + seed % calls);
        let _ = drive::plain(&device, Op::Flush, 0, 0);
        device.abandon();
        doubtful += u32::from(backing.revive());
        let device = open_twin(backing.clone());
        flush(&device);
        device.abandon();
        judge(&open_twin(Arc::new(backing.restart(seed))));
    }
    assert!(doubtful > 15, "a sync failed in {doubtful} cases");
}

#[test]
fn failed_sync_of_a_killed_process_is_made_good() {
    // The page, and the sync with the notes around it.
    killed_in_a_flush(acknowledged, 4, has_what_was_acknowledged);
}

/// The first flush of a page syncs only data, which no tail records.
#[test]
fn failed_sync_of_data_under_a_killed_process_is_made_good() {
    // The session and its sync, with a note before and after; an anchor, a note, the sync of the
    // data, a note.
    killed_in_a_flush(
        |device| append(device, 3, &[3]),
        8,
        |device| {
            assert_eq!(zone(device, 3), (Closed, Some(1)));
            assert_eq!(drive::read(device, 3 * ZONE, 2).unwrap(), [3, 0]);
        },
    );
}

#[test]
fn closing_after_a_kill_makes_all_durable() {
    let backing = twin(1);
    let device = open_twin(backing.clone());
    acknowledged(&device);
    device.abandon();
    open_twin(backing.clone()).close().unwrap();
    has_what_was_acknowledged(&open_twin(Arc::new(backing.restart(1))));
}

#[test]
fn states_of_another_boot_do_not_count() {
    for seed in 0..50 {
        let backing = twin(seed);
        let device = open_twin(backing.clone());
        append(&device, 3, &[3]);
        device.abandon();
        // Data and states have reached the medium or not, in any order.
        let device = open_twin(Arc::new(backing.restart(seed)));
        assert_eq!(zone(&device, 3), (Empty, Some(0)));
    }
}

#[test]
fn image_copied_in_the_same_boot_holds_only_flushed_data() {
    let (dir, path) = create(&small());
    let device = open(&path).unwrap();
    append(&device, 2, &[2]);
    flush(&device);
    append(&device, 2, &[22]);
    device.abandon();
    let copy = dir.path().join("copy.img");
    std::fs::copy(&path, &copy).unwrap();
    assert_eq!(zone(&open(&copy).unwrap(), 2), (Closed, Some(1)));
    assert_eq!(zone(&open(&path).unwrap(), 2), (Closed, Some(2)));
}

#[test]
fn reader_after_a_kill_sees_acknowledged_data() {
    let (_dir, path) = create(&small());
    let device = open(&path).unwrap();
    acknowledged(&device);
    device.abandon();
    let before = std::fs::read(&path).unwrap();
    let reading = OpenOptions::default().with_mode(OpenMode::Reading);
    has_what_was_acknowledged(&ImageDevice::open(&path, &reading).unwrap());
    assert!(std::fs::read(&path).unwrap() == before);
}

#[test]
fn closed_image_needs_no_cache() {
    let (_dir, path) = create(&small());
    let device = open(&path).unwrap();
    acknowledged(&device);
    device.close().unwrap();
    let layout = small().header().unwrap().layout();
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes[layout.current_offset as usize..][..64].iter().all(|&b| b == 0), "no stamp");
}

#[test]
fn damaged_word_leaves_the_ledger_to_count() {
    let backing = twin(1);
    let device = open_twin(backing.clone());
    append(&device, 2, &[2]);
    flush(&device);
    append(&device, 2, &[22]);
    device.abandon();
    let at = small().header().unwrap().layout().current_words().start + 2 * 8;
    let mut word = [0; 8];
    backing.read_at(&mut word, at).unwrap();
    word[0] ^= 1;
    backing.write_at(&word, at).unwrap();
    let device = open_twin(backing);
    assert_eq!(zone(&device, 2), (Closed, Some(1)));
    append(&device, 2, &[23]);
    device.close().unwrap();
}

/// Twin whose cache is unknown, or has no room for the current states.
struct Lacking {
    twin: Arc<CutBacking>,
    has_cache: bool,
}

impl Backing for Lacking {
    fn len(&self) -> io::Result<u64> {
        self.twin.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.twin.set_len(len)
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.twin.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        if self.has_cache && small().header().unwrap().layout().current_words().contains(&at) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.twin.write_at(buf, at)
    }

    fn zero(&self, at: u64, len: u64) -> io::Result<()> {
        self.twin.zero(at, len)
    }

    fn discard(&self, at: u64, len: u64) {
        self.twin.discard(at, len);
    }

    fn cache(&self) -> Option<zonal_io::image::backing::CacheId> {
        self.twin.cache().filter(|_| self.has_cache)
    }

    fn sync(&self) -> io::Result<()> {
        self.twin.sync()
    }
}

#[test]
fn opener_that_keeps_no_states_ends_those_of_the_one_before() {
    for has_cache in [false, true] {
        let twin = twin(1);
        let device = open_twin(twin.clone());
        append(&device, 2, &[2]);
        device.abandon();
        // A cut ends the cache but leaves the stamp: the next opener finds a stamp that is not
        // valid for it.
        let twin = if has_cache { Arc::new(twin.restart(2)) } else { twin };
        let device = open_twin(Arc::new(Lacking { twin: twin.clone(), has_cache }));
        assert_eq!(zone(&device, 2), (Empty, Some(0)));
        append(&device, 2, &[9]);
        device.abandon();
        let device = open_twin(twin.clone());
        assert_eq!(zone(&device, 2), (Empty, Some(0)), "not the pointer of one and the data of another");
        append(&device, 2, &[7, 7]);
        device.abandon();
        assert_eq!(drive::read(&open_twin(twin), 2 * ZONE, 3).unwrap(), [7, 7, 0]);
    }
}
