//! Runs a number of requests along one path, for a script that counts instructions.
//!
//! A run of 2N requests minus a run of N leaves the cost of N requests, without that of opening the
//! volume. `scripts/instructions.sh` does the counting.

use super::jobs::job;
use super::path::{NOW, SECTORS, Writer, null, terabyte};
use zonal_core::Sector;
use zonal_io::emulated::{CompleteMode, EmulatedOptions};
use zonal_io::volume::{Request, WriteMode};

/// Queue depth of the queued paths.
const DEPTH: u64 = 16;

/// A path: its name, and the function that runs requests along it.
pub type Path = (&'static str, fn(u64));

/// Counted paths of the write path, in mode `per-zone` unless the name says otherwise, on a device
/// without data. `scripts/against.sh` builds this file in earlier commits, too, so it uses only
/// items that exist there.
pub const PATHS: [Path; 9] = [
    ("write", |n| in_line().write(0, n, 1)),
    ("write-queued", |n| polled(false).write(0, n, DEPTH)),
    ("write-merged", |n| polled(true).write(0, n, DEPTH)),
    ("append", |n| append(&mut in_line(), n, 1)),
    ("append-queued", |n| append(&mut polled(false), n, DEPTH)),
    ("append-native", |n| append(&mut polled_in(WriteMode::Append), n, DEPTH)),
    ("pipelined", |n| polled_in(WriteMode::Pipelined).write(0, n, 8 * DEPTH)),
    ("read", |n| read(&mut in_line(), n)),
    ("job", |n| write_of_job(n)),
];

/// A device that completes inline, with few zones, because the cost of changing zones is not
/// measured.
fn in_line() -> Writer {
    let options = terabyte().with_zone_size(1 << 36);
    Writer::new(null(options), WriteMode::PerZone, false)
}

/// A device that completes when polled.
fn polled(merge: bool) -> Writer {
    Writer::new(null(answers_later()), WriteMode::PerZone, merge)
}

/// Like `polled` but in another mode, with a device queue that holds all writes in flight and
/// preserves their order.
fn polled_in(mode: WriteMode) -> Writer {
    let options = answers_later().with_preserves_write_order(true).with_hw_queue_depth(256);
    Writer::new(null(options), mode, false)
}

pub(super) fn answers_later() -> EmulatedOptions {
    terabyte().with_zone_size(1 << 36).with_complete(CompleteMode::Poll)
}

fn append(writer: &mut Writer, count: u64, depth: u64) {
    for _ in 0..count {
        writer.wait_below(depth);
        let buf = writer.payload(4096);
        writer.submit(Request::append(Sector(0), SECTORS, buf));
    }
    writer.wait_below(1);
}

fn read(writer: &mut Writer, count: u64) {
    for i in 0..count {
        let buf = writer.payload(4096);
        writer.volume.submit(
            NOW,
            &writer.channel,
            Request::read(Sector(i * u64::from(SECTORS)), SECTORS, buf),
        );
    }
}

/// Writes through a job of a job file at queue depth 1: the first path plus the overhead of jobs.
fn write_of_job(count: u64) {
    job(terabyte().with_zone_size(1 << 36), WriteMode::PerZone, false, 1, count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_carries_its_requests() {
        for (_, go) in PATHS {
            go(100);
        }
    }
}
