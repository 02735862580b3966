mod cases;

use super::*;
use cases::{DRIVE, NOW, queue_of, volume};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use zonal_io::Volume;

/// Sectors per zone.
const ZONE: u64 = 2048;

/// Kernel side of the data: data for writes, and data returned by reads.
#[derive(Default)]
struct Pages {
    data: RefCell<BTreeMap<u16, Vec<u8>>>,
    is_broken: bool,
}

impl Payload for Pages {
    fn read(&self, tag: u16, into: &mut [u8]) -> io::Result<()> {
        if self.is_broken {
            return Err(io::ErrorKind::Other.into());
        }
        into.copy_from_slice(&self.data.borrow()[&tag]);
        Ok(())
    }

    fn write(&self, tag: u16, from: &[u8]) -> io::Result<()> {
        if self.is_broken {
            return Err(io::ErrorKind::Other.into());
        }
        self.data.borrow_mut().insert(tag, from.to_vec());
        Ok(())
    }
}

struct Rig {
    volume: Arc<Volume>,
    queue: Queue,
    pages: Pages,
}

impl Rig {
    fn new(name: &str) -> Rig {
        Rig::of(volume(name), false)
    }

    fn of(volume: Arc<Volume>, is_taken_over: bool) -> Rig {
        let queue = queue_of(&volume, is_taken_over);
        Rig { volume, queue, pages: Pages::default() }
    }

    /// Rig for the same drive after its server was killed.
    fn restarted(self) -> Rig {
        Rig::of(self.volume, true)
    }

    fn begin(&mut self, tag: u16, op: KernelOp, sector: u64, count: u32) {
        self.begin_with(tag, KernelCommand { op, fua: false, sector, count });
    }

    fn begin_with(&mut self, tag: u16, command: KernelCommand) {
        self.queue.begin(NOW, tag, &command.emit(), &self.pages);
    }

    fn end(&mut self) -> Commit {
        for _ in 0..1000 {
            if let Some(commit) = self.queue.take(NOW, &self.pages) {
                return commit;
            }
            self.volume.poll(NOW);
        }
        panic!("{} requests do not end", self.queue.in_flight());
    }

    /// Result of one request, with the returned sector.
    fn call(&mut self, op: KernelOp, sector: u64, count: u32) -> (i32, u64) {
        self.begin(5, op, sector, count);
        let commit = self.end();
        assert_eq!((commit.queue, commit.tag), (3, 5));
        (commit.result, commit.sector)
    }

    fn write(&mut self, sector: u64, blocks: &[u8]) -> i32 {
        self.put(blocks);
        self.call(KernelOp::Write, sector, blocks.len() as u32 * 8).0
    }

    /// Sets the data of the next write: blocks filled with one byte each.
    fn put(&mut self, blocks: &[u8]) {
        let data = blocks.iter().flat_map(|&byte| [byte; 4096]).collect();
        self.pages.data.get_mut().insert(5, data);
    }

    fn read(&mut self, sector: u64, blocks: u32) -> Vec<u8> {
        assert_eq!(self.call(KernelOp::Read, sector, blocks * 8).0, blocks as i32 * 4096);
        self.pages.data.get_mut()[&5].chunks(4096).map(|block| block[0]).collect()
    }

    fn zones(&mut self, sector: u64, count: u32) -> Vec<ReportedZone> {
        assert!(self.call(KernelOp::ReportZones, sector, count).0 >= count as i32 * 64);
        let read = |bytes: &[u8]| zerocopy::FromBytes::read_from_bytes(bytes).unwrap();
        self.pages.data.get_mut()[&5].chunks(64).map(read).collect()
    }

    fn condition(&mut self, zone: u64) -> u8 {
        self.zones(zone * ZONE, 1)[0].condition
    }
}

#[test]
fn writes_reads_and_appends_end_with_their_bytes_and_places() {
    let mut rig = Rig::new(DRIVE);
    assert_eq!(rig.write(0, &[1, 2]), 8192);
    assert_eq!(rig.write(8, &[3]), 4096, "conventional");
    assert_eq!(rig.read(0, 3), [1, 3, 0]);
    assert_eq!(rig.write(2 * ZONE, &[4, 5]), 8192);
    rig.put(&[6]);
    assert_eq!(rig.call(KernelOp::ZoneAppend, 2 * ZONE, 8), (4096, 2 * ZONE + 16));
    assert_eq!(rig.read(2 * ZONE, 3), [4, 5, 6]);
    assert_eq!(rig.call(KernelOp::WriteZeroes, 2 * ZONE + 24, 8).0, 4096);
    assert_eq!(rig.call(KernelOp::Flush, 0, 0).0, 0);
    assert_eq!(rig.queue.in_flight(), 0);
}

#[test]
fn zones_change_as_their_operations_say() {
    let mut rig = Rig::new(DRIVE);
    let zone = 4 * ZONE;
    let order = |rig: &mut Rig, op| (rig.call(op, zone, 0).0, rig.condition(4));
    assert_eq!(order(&mut rig, KernelOp::ZoneOpen), (0, 3));
    assert_eq!(rig.write(zone, &[1]), 4096);
    assert_eq!(order(&mut rig, KernelOp::ZoneClose), (0, 4));
    assert_eq!(order(&mut rig, KernelOp::ZoneFinish), (0, 14));
    assert_eq!(rig.write(zone + 8, &[1]), -5, "a full zone");
    assert_eq!(order(&mut rig, KernelOp::ZoneReset), (0, 1));
    assert_eq!(rig.write(zone, &[1]), 4096);
    assert_eq!(order(&mut rig, KernelOp::ZoneResetAll), (0, 1));
}

#[test]
fn report_has_zones_as_the_kernel_has_them() {
    let mut rig = Rig::new("ram:size=16M,zone_size=1M,zone_capacity=768k,zone_nr_conv=2,blocksize=4096");
    assert_eq!(rig.write(3 * ZONE, &[1]), 4096);
    assert_eq!(rig.call(KernelOp::ZoneFinish, 4 * ZONE, 0).0, 0);
    let zones = rig.zones(ZONE, 100);
    assert_eq!(zones.len(), 15, "from the second zone to the last");
    let fields = |zone: &ReportedZone| (zone.start, zone.pointer, zone.kind, zone.condition, zone.capacity);
    assert_eq!(fields(&zones[0]), (ZONE, 2 * ZONE, 1, 0, ZONE));
    assert_eq!(fields(&zones[1]), (2 * ZONE, 2 * ZONE, 2, 1, 1536));
    assert_eq!(fields(&zones[2]), (3 * ZONE, 3 * ZONE + 8, 2, 2, 1536));
    assert_eq!(fields(&zones[3]), (4 * ZONE, 5 * ZONE, 2, 14, 1536));
    assert!(zones.iter().all(|zone| zone.len == ZONE));
}

#[test]
fn refusals_have_the_kernels_numbers() {
    let mut rig = Rig::new(DRIVE);
    assert_eq!(rig.write(3 * ZONE + 8, &[1]), -5, "not at the pointer");
    for zone in 3..6 {
        assert_eq!(rig.call(KernelOp::ZoneOpen, zone * ZONE, 0).0, 0);
    }
    assert_eq!(rig.write(6 * ZONE, &[1]), -109, "no open zone is left");
    assert_eq!(rig.call(KernelOp::Read, 16 * ZONE, 8).0, -28, "beyond the end");
    assert_eq!(rig.call(KernelOp::Read, 0, 1).0, -22, "part of a block");
    assert_eq!(rig.call(KernelOp::Read, 0, u32::MAX).0, -22, "longer than any request");
    rig.queue.begin(NOW, 5, &Descriptor { operation: 77, ..Descriptor::default() }, &rig.pages);
    assert_eq!(rig.end().result, -95, "an operation without a name");
    rig.pages.is_broken = true;
    assert_eq!(rig.call(KernelOp::Write, 0, 8).0, -5);
    assert_eq!(rig.call(KernelOp::Read, 0, 8).0, -5);
    assert_eq!(rig.queue.in_flight(), 0);
}

#[test]
fn discard_of_a_sequential_zone_is_advice() {
    let mut rig = Rig::new(DRIVE);
    assert_eq!(rig.write(3 * ZONE, &[7]), 4096);
    assert_eq!(rig.call(KernelOp::Discard, 3 * ZONE, 8).0, 0);
    assert_eq!(rig.read(3 * ZONE, 1), [7]);
    assert_eq!(rig.call(KernelOp::Discard, 0, 8).0, 0);
    assert_eq!(rig.call(KernelOp::Discard, u64::MAX, 8).0, 0, "no place that there is");
}

#[test]
fn requests_of_several_tags_are_under_way_together() {
    let mut rig = Rig::new(DRIVE);
    rig.put(&[9]);
    let data = rig.pages.data.get_mut()[&5].clone();
    for tag in 0..8 {
        rig.pages.data.get_mut().insert(tag, data.clone());
        rig.begin(tag, KernelOp::ZoneAppend, 7 * ZONE, 8);
    }
    let mut ends: Vec<(u16, u64)> = (0..8).map(|_| rig.end()).map(|end| (end.tag, end.sector)).collect();
    ends.sort_unstable();
    assert!(ends.iter().map(|end| end.0).eq(0..8));
    let mut places: Vec<u64> = ends.iter().map(|end| end.1).collect();
    places.sort_unstable();
    assert!(places.into_iter().eq((0..8).map(|n| 7 * ZONE + n * 8)));
}

#[test]
fn tag_that_is_taken_or_beyond_the_queue_begins_nothing() {
    let mut rig = Rig::new("ram:size=16M,zone_size=1M,blocksize=4096,completion_nsec=1000");
    rig.begin(2, KernelOp::Read, 0, 8);
    rig.begin(2, KernelOp::Read, 8, 8);
    rig.begin(8, KernelOp::Read, 0, 8);
    assert_eq!(rig.queue.in_flight(), 1);
}

/// The killed server had written all of it.
#[test]
fn write_that_a_killed_server_has_carried_out_succeeds_again() {
    let mut rig = Rig::new(DRIVE);
    assert_eq!(rig.write(3 * ZONE, &[1, 2, 3]), 3 * 4096);
    let mut rig = rig.restarted();
    assert_eq!(rig.write(3 * ZONE + 8, &[2, 3]), 2 * 4096);
    assert_eq!(rig.write(3 * ZONE + 24, &[4]), 4096);
    assert_eq!(rig.read(3 * ZONE, 5), [1, 2, 3, 4, 0]);
}

#[test]
fn write_that_a_killed_server_has_begun_is_completed() {
    let mut rig = Rig::new(DRIVE);
    assert_eq!(rig.write(3 * ZONE, &[1, 2]), 2 * 4096);
    let mut rig = rig.restarted();
    rig.put(&[2, 3, 4]);
    rig.begin_with(5, KernelCommand { op: KernelOp::Write, fua: true, sector: 3 * ZONE + 8, count: 24 });
    assert_eq!(rig.end().result, 3 * 4096);
    assert_eq!(rig.read(3 * ZONE, 5), [1, 2, 3, 4, 0]);
}

#[test]
fn zeroes_that_a_killed_server_has_written_succeed_again() {
    let mut rig = Rig::new(DRIVE);
    assert_eq!(rig.write(3 * ZONE, &[1, 0]), 2 * 4096);
    let mut rig = rig.restarted();
    assert_eq!(rig.call(KernelOp::WriteZeroes, 3 * ZONE + 8, 16).0, 2 * 4096);
    assert_eq!(rig.zones(3 * ZONE, 1)[0].pointer, 3 * ZONE + 24);
}

#[test]
fn write_differing_from_data_left_by_a_killed_server_is_refused() {
    let mut rig = Rig::new(DRIVE);
    assert_eq!(rig.write(3 * ZONE, &[1, 2]), 2 * 4096);
    let mut rig = rig.restarted();
    assert_eq!(rig.write(3 * ZONE + 8, &[3]), -5);
    assert_eq!(rig.read(3 * ZONE, 2), [1, 2]);
}

/// Only the first write of a zone can be left over by a killed server.
#[test]
fn later_write_below_the_pointer_is_refused_though_it_is_the_same() {
    let mut rig = Rig::new(DRIVE);
    assert_eq!(rig.write(3 * ZONE, &[1, 2]), 2 * 4096);
    let mut rig = rig.restarted();
    assert_eq!(rig.write(3 * ZONE + 16, &[3]), 4096);
    assert_eq!(rig.write(3 * ZONE + 8, &[2]), -5);
}

#[test]
fn without_a_kill_a_write_below_the_pointer_is_refused() {
    let mut rig = Rig::new(DRIVE);
    assert_eq!(rig.write(3 * ZONE, &[1, 2]), 2 * 4096);
    assert_eq!(rig.write(3 * ZONE + 8, &[2]), -5);
}

/// Arbitrary descriptor, mostly with valid operations and ranges.
fn any_descriptor() -> impl Strategy<Value = Descriptor> {
    let operation = prop_oneof![8 => (0u32..20).prop_flat_map(|op| prop_oneof![Just(op), Just(op | 1 << 13)]), 1 => any::<u32>()];
    let sector = prop_oneof![8 => (0u64..17 * ZONE / 8).prop_map(|block| block * 8), 1 => any::<u64>()];
    let count = prop_oneof![8 => (0u32..40).prop_map(|blocks| blocks * 8), 1 => any::<u32>()];
    let descriptor = |(operation, sector, count)| Descriptor { operation, count, sector, address: 0 };
    (operation, sector, count).prop_map(descriptor)
}

proptest! {
    /// Each request on a free tag completes once, with a valid result, and no tag stays in use.
    #[test]
    fn arbitrary_requests_end_once(
        requests in prop::collection::vec((0u16..10, any_descriptor()), 1..40),
        is_taken_over in any::<bool>(),
    ) {
        cases::check(requests, is_taken_over);
    }
}
