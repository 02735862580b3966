//! Commands that a kernel sends to a drive attached as a disk (ublk or SCSI), without the kernel:
//! to count their instructions.

use super::instructions::{Path, answers_later};
use super::path::{NOW, SECTORS, null};
use super::ring::Driver;
use std::io;
use std::sync::Arc;
use zonal_io::buffer::{IoBuf, IoBufs};
use zonal_io::volume::{Part, PartKind, Volume, VolumeOptions};
use zonal_scsi::wire::{Read, Write};
use zonal_scsi::{Cdb, Disk, DiskOptions, Task, TaskQueue, status};
use zonal_ublk::parameters::BYTES_MAX;
use zonal_ublk::queue::{Drive, Payload, Queue};
use zonal_ublk::wire::{Descriptor, KernelCommand, KernelOp};
use zonal_vhost::queue::FIRST_REQUESTS;

/// Requests in flight.
const DEPTH: u16 = 16;

/// Counted paths of a drive attached as a disk: requests of 4 KiB at queue depth 16, without the
/// kernel, and for ublk also without the copy of their data. For vhost they include a guest's ring
/// and the driver's work on it.
pub const PATHS: [Path; 6] = [
    ("ublk-read", |n| ublk(KernelOp::Read, n)),
    ("ublk-write", |n| ublk(KernelOp::Write, n)),
    ("scsi-read", |n| scsi(true, n)),
    ("scsi-write", |n| scsi(false, n)),
    ("vhost-read", |n| vhost(true, n)),
    ("vhost-write", |n| vhost(false, n)),
];

/// The data of a request is not copied.
struct NoData;

impl Payload for NoData {
    fn read(&self, _tag: u16, _into: &mut [u8]) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, _tag: u16, _from: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

fn volume() -> Arc<Volume> {
    let options = VolumeOptions::default().without_park().without_budget();
    Arc::new(Volume::open(null(answers_later()), options).expect("a volume"))
}

fn ublk(op: KernelOp, count: u64) {
    let volume = volume();
    let geometry = volume.info().geometry;
    let part = Part::with(volume.clone(), 0..geometry.zones(), PartKind::Drive).expect("all zones");
    let mut queue = Queue::new(Arc::new(Drive::new(part, BYTES_MAX, None)), 0, DEPTH);
    let first = u64::from(geometry.conventional_zones()) * geometry.zone_size().0;
    let command =
        |n: u64| KernelCommand { op, fua: false, sector: first + n * u64::from(SECTORS), count: SECTORS };
    let mut begun = 0;
    while begun < count {
        for tag in 0..DEPTH {
            let descriptor: Descriptor = command(begun).emit();
            queue.begin(NOW, tag, &descriptor, &NoData);
            begun += 1;
        }
        let mut left = DEPTH;
        while left > 0 {
            volume.poll(NOW);
            while let Some(commit) = queue.take(NOW, &NoData) {
                assert_eq!(commit.result, SECTORS as i32 * 512);
                left -= 1;
            }
        }
    }
}

fn disk(volume: &Arc<Volume>) -> Arc<Disk> {
    let identity = "67e55044-10b1-426f-9247-bb680e5fe0c8".parse().expect("a UUID");
    Arc::new(Disk::new(volume.clone(), DiskOptions::new(identity)).expect("a disk"))
}

/// Command number `n` of a sequential initiator.
fn cdb(volume: &Volume, is_read: bool, n: u64) -> Cdb {
    let blocks = SECTORS / volume.info().block_sectors;
    let lba = n * u64::from(blocks);
    match is_read {
        true => Read { lba, blocks, fua: false }.emit(),
        false => Write { lba, blocks, fua: false }.emit(),
    }
}

fn scsi(is_read: bool, count: u64) {
    let volume = volume();
    let mut queue = TaskQueue::new(disk(&volume));
    let mut memory: Vec<IoBufs> = (0..DEPTH).map(|_| IoBuf::zeroed(SECTORS * 512).into()).collect();
    let mut begun = 0;
    while begun < count {
        for tag in 0..u64::from(DEPTH) {
            let buf = memory.pop().expect("memory for each");
            let (data_out, data_in) = if is_read { (IoBufs::empty(), buf) } else { (buf, IoBufs::empty()) };
            let cdb = cdb(&volume, is_read, begun);
            queue.submit(NOW, Task { tag, lun: 0, cdb, data_out, data_in });
            begun += 1;
        }
        while queue.in_flight() > 0 {
            volume.poll(NOW);
            while queue.poll(NOW) {}
        }
        while let Some(answer) = queue.take() {
            assert_eq!(answer.status, status::GOOD);
            memory.push(if is_read { answer.data_in } else { answer.data_out });
        }
    }
}

fn vhost(is_read: bool, count: u64) {
    let volume = volume();
    let (memory, mut driver) = Driver::new(is_read, DEPTH).expect("memory of a guest");
    let mut queue = zonal_vhost::queue::Queue::new(FIRST_REQUESTS, &disk(&volume));
    queue.start(memory, Driver::setup(), Driver::log());
    queue.set_enabled(true);
    let mut begun = 0;
    while begun < count {
        for tag in 0..DEPTH {
            driver.offer(tag, &cdb(&volume, is_read, begun));
            begun += 1;
        }
        driver.publish();
        queue.run_once(NOW, false);
        let mut left = DEPTH;
        while left > 0 {
            volume.poll(NOW);
            queue.run_once(NOW, false);
            left -= driver.take();
        }
    }
}
