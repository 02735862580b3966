//! Invariants for arbitrary requests. The fuzz target `ublk_request` runs its own cases, and the
//! test next to this module seeded ones.

use crate::parameters::BYTES_MAX;
use crate::queue::{Drive, Payload, Queue, Reissued};
use crate::wire::Descriptor;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use zonal_core::Nanos;
use zonal_io::Volume;
use zonal_io::registry::Registry;
use zonal_io::volume::{Part, PartKind, VolumeOptions};

pub const NOW: Nanos = Nanos(0);

/// Blocks of 4096 bytes, sixteen zones of 1 MiB, the first two conventional.
pub const DRIVE: &str = "ram:size=16M,zone_size=1M,zone_nr_conv=2,blocksize=4096,zone_max_open=3";

/// Queue depth.
const DEPTH: u16 = 8;

pub fn volume(name: &str) -> Arc<Volume> {
    let device = Registry::default().open(name).unwrap();
    let options = VolumeOptions::default().without_park().without_budget();
    Arc::new(Volume::open(device, options).unwrap())
}

/// Queue of a server that may have taken over the drive from a killed one.
pub fn queue_of(volume: &Arc<Volume>, is_taken_over: bool) -> Queue {
    let zones = volume.info().geometry.zones();
    let part = Part::with(volume.clone(), 0..zones, PartKind::Drive).unwrap();
    let reissued = is_taken_over.then(|| Reissued::new(zones));
    Queue::new(Arc::new(Drive::new(part, BYTES_MAX, reissued)), 3, DEPTH)
}

/// Kernel side with data of any length.
struct Zeroes;

impl Payload for Zeroes {
    fn read(&self, _tag: u16, into: &mut [u8]) -> io::Result<()> {
        into.fill(0);
        Ok(())
    }

    fn write(&self, _tag: u16, from: &[u8]) -> io::Result<()> {
        assert!(from.len() <= BYTES_MAX as usize);
        Ok(())
    }
}

/// Starts the requests with a free tag. Each has to complete once, with a valid result.
pub fn check(requests: Vec<(u16, Descriptor)>, is_taken_over: bool) {
    let volume = volume(DRIVE);
    let mut queue = queue_of(&volume, is_taken_over);
    let mut begun = BTreeSet::new();
    for (tag, descriptor) in requests {
        // The kernel has one request per tag. A tag beyond the queue depth is ignored.
        if begun.insert(tag) || tag >= DEPTH {
            queue.begin(NOW, tag, &descriptor, &Zeroes);
        }
    }
    begun.retain(|&tag| tag < DEPTH);
    while !begun.is_empty() {
        let end = (0..1000).find_map(|_| {
            volume.poll(NOW);
            queue.take(NOW, &Zeroes)
        });
        let end = end.expect("a request that ends");
        assert!(begun.remove(&end.tag), "{end:?} of no request");
        assert!((-4095..=BYTES_MAX as i32).contains(&end.result), "{end:?}");
    }
    assert_eq!(queue.in_flight(), 0);
    assert!(queue.take(NOW, &Zeroes).is_none());
}
