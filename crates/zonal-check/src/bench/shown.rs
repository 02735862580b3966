//! Commands of a kernel for a drive that it has as a disk, without the kernel: to count their instructions.

use super::instructions::{Path, answers_later};
use super::path::{NOW, SECTORS, null};
use std::io;
use std::sync::Arc;
use zonal_io::volume::{Part, PartKind, Volume, VolumeOptions};
use zonal_ublk::parameters::BYTES_MAX;
use zonal_ublk::queue::{Drive, Payload, Queue};
use zonal_ublk::wire::{Descriptor, KernelCommand, KernelOp};

/// Requests in flight.
const DEPTH: u16 = 16;

/// What is counted of a drive's disk: requests of 4 KiB at depth 16, without their data and the kernel.
pub const PATHS: [Path; 2] =
    [("ublk-read", |n| ublk(KernelOp::Read, n)), ("ublk-write", |n| ublk(KernelOp::Write, n))];

/// The data of a request stay where they are.
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
