//! Several queues of one disk, each on its own thread, which sleeps when idle.

use crate::rig::{IDENTITY, filled, memory, volume};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use zonal_io::buffer::IoBufs;
use zonal_io::clock::Clock;
use zonal_scsi::wire::{Read, Write, ZoneAction, ZoneOut};
use zonal_scsi::{Answer, Cdb, Disk, DiskOptions, Task, TaskQueue, status};

/// Far longer than any command: a lost wake-up makes the test exceed its time.
const SLEEP: Duration = Duration::from_secs(60);

const BLOCKS: u64 = 64;

struct Thread {
    queue: TaskQueue,
    clock: Clock,
}

impl Thread {
    fn submit(&mut self, tag: u64, cdb: Cdb, data_out: IoBufs, data_in: IoBufs) {
        self.queue.submit(self.clock.now(), Task { tag, lun: 0, cdb, data_out, data_in });
    }

    /// Driver loop: poll, take, sleep.
    fn wait(&mut self) -> Answer {
        let volume = self.queue.disk().volume().clone();
        loop {
            let until = volume.poll(self.clock.now());
            while self.queue.poll(self.clock.now()) {}
            if let Some(answer) = self.queue.take() {
                assert_eq!(answer.status, status::GOOD, "{:?}", answer.sense);
                return answer;
            }
            let now = self.clock.now();
            let sleep = until.map_or(SLEEP, |until| Duration::from_nanos(until.0.saturating_sub(now.0)));
            volume.wait_unless(sleep, || self.queue.has_news());
        }
    }
}

/// Writes, reads and resets a zone several times.
fn work(disk: Arc<Disk>, zone: u64) {
    let mut thread = Thread { queue: TaskQueue::new(disk), clock: Clock::start() };
    let start = zone * 256;
    for round in 0..20 {
        let byte = |n: u64| (zone * 31 + round * 7 + n) as u8;
        for n in 0..BLOCKS {
            let write = Write { lba: start + n, blocks: 1, fua: false };
            thread.submit(n, write.emit(), filled(&[byte(n); 4096]), IoBufs::empty());
        }
        (0..BLOCKS).for_each(|_| _ = thread.wait());
        let read = Read { lba: start, blocks: BLOCKS as u32, fua: false };
        thread.submit(0, read.emit(), IoBufs::empty(), memory(BLOCKS as usize * 4096));
        let data = thread.wait().data_in.into_buf();
        for (n, block) in (0..).zip(data.chunks(4096)) {
            assert!(block.iter().all(|own| *own == byte(n)), "zone {zone} round {round} block {n}");
        }
        let reset = ZoneOut { action: ZoneAction::Reset, lba: start, is_all: false };
        thread.submit(0, reset.emit(), IoBufs::empty(), IoBufs::empty());
        thread.wait();
    }
}

#[test]
fn queues_on_several_threads_share_a_disk() {
    for queues in [1, 3] {
        let device = format!(
            "ram:size=64M,zone_size=1M,blocksize=4096,complete=poll,submit_queues={queues},zone_max_open=3"
        );
        let options = DiskOptions::new(IDENTITY.parse().unwrap());
        let disk = Arc::new(Disk::new(volume(&device), options).unwrap());
        let begun = std::time::Instant::now();
        thread::scope(|scope| {
            for zone in [5, 6, 7] {
                let disk = disk.clone();
                scope.spawn(move || work(disk, zone));
            }
        });
        assert!(begun.elapsed() < SLEEP, "a wake-up was lost");
    }
}
