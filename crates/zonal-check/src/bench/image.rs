//! Images, compared with fio on a plain file in the same state: one file each, in the page cache,
//! in the same directory.
//!
//! fio runs as a separate process and times its I/O only. It records no latencies, and does not
//! drop the file from the cache at the start.

use super::Effort;
use super::measure::{Case, interleave, time};
use super::path::{NOW, SECTORS, Writer};
use super::report::{Bound, Report};
use std::cell::RefCell;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use zonal_core::Sector;
use zonal_io::buffer::IoBuf;
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};
use zonal_io::volume::{Request, WriteMode};

const BLOCK: u64 = 4096;

/// Directory for fio's file and an image, with the same number of blocks.
struct Files {
    directory: tempfile::TempDir,
    blocks: u64,
}

impl Files {
    fn new(effort: Effort) -> Files {
        let directory = tempfile::tempdir().expect("a temporary directory");
        // 64 MiB: long enough for fio's millisecond clock, and short compared with other activity
        // of the machine.
        Files { directory, blocks: (effort.operations / 60).clamp(256, 16 << 10) }
    }

    fn plain(&self) -> PathBuf {
        self.directory.path().join("plain")
    }

    /// Creates an image of one zone, replacing the previous one. The old file goes away with its
    /// writer.
    fn new_image(&self, threads: usize) -> Writer {
        let path = self.directory.path().join("image");
        let _ = std::fs::remove_file(&path);
        let size = Some((self.blocks * BLOCK).next_power_of_two());
        let options = ImageOptions::default().with_size(size).with_zone_size(size);
        options.create(&path).expect("the image is created");
        let device = ImageDevice::open(&path, &OpenOptions::default().with_threads(threads));
        Writer::new(Arc::new(device.expect("the image opens")), WriteMode::PerZone, true)
    }

    /// Nanoseconds per I/O of fio for all blocks of the plain file.
    fn fio(&self, rw: &str, engine: &str, depth: u64) -> f64 {
        let output = Command::new("fio")
            .args(["--name=plain", "--bs=4k", "--invalidate=0", "--gtod_reduce=1", "--fallocate=none"])
            .args(["--output-format=json", "--thread"])
            .arg(format!("--filename={}", self.plain().display()))
            .args([format!("--rw={rw}"), format!("--ioengine={engine}"), format!("--iodepth={depth}")])
            .arg(format!("--size={}", self.blocks * BLOCK))
            .output()
            .expect("fio is installed: `make setup`");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "fio: {text}{}", String::from_utf8_lossy(&output.stderr));
        // fio prints its warnings before the report.
        let report = text.find('{').and_then(|begin| serde_json::from_str(&text[begin..]).ok());
        let report: serde_json::Value = report.expect("fio reports as JSON");
        // fio reports 0 if the run is too short for its clock.
        1e9 / report["jobs"][0][rw]["iops"].as_f64().expect("fio reports a rate").max(1.0)
    }

    /// Nanoseconds per I/O of requests to all blocks of an image.
    fn image(&self, writer: &mut Writer, depth: u64, request: fn(Sector, u32, IoBuf) -> Request) -> f64 {
        time(self.blocks, || {
            for i in 0..self.blocks {
                sleep_below(writer, depth);
                let buf = writer.payload(BLOCK as u32);
                writer.submit(request(Sector(i * u64::from(SECTORS)), SECTORS, buf));
            }
            sleep_below(writer, 1);
        })
    }
}

/// Waits until fewer than `depth` requests are in flight. It sleeps, like fio: on a busy machine, a
/// spinning thread would take the processor of the helper thread.
fn sleep_below(writer: &Writer, depth: u64) {
    while writer.issued - writer.done.load(Ordering::Relaxed) >= depth {
        let before = writer.done.load(Ordering::Relaxed);
        writer.volume.poll(NOW);
        if writer.done.load(Ordering::Relaxed) == before {
            writer.volume.wait(Duration::from_millis(1));
        }
    }
}

/// 4 KiB writes and reads: at queue depth 1 with file I/O in `submit`, and at queue depth 16 with a
/// helper thread; reads also at queue depth 32.
pub(super) fn against_fio(effort: Effort, report: &mut Report) {
    let files = Files::new(effort);
    // Rounds are short, and other load hits one side or the other, so there are many.
    let rounds = if effort.rounds > 1 { 2 * effort.rounds + 1 } else { 1 };
    for (threads, engine, depth, least) in [(0, "psync", 1, 0.9), (1, "io_uring", 16, 0.8)] {
        let place = if threads == 0 { "in `submit`" } else { "helper thread" };
        let names = ["write, fresh", "rewrite after a reset", "read"]
            .map(|what| format!("image: 4 KiB {what}, depth {depth}, {place}"));
        let writer = RefCell::new(files.new_image(threads));
        let mut cases = [
            Case::new("fio, fresh", || {
                let _ = std::fs::remove_file(files.plain());
                files.fio("write", engine, depth)
            }),
            Case::new("image, fresh", || {
                *writer.borrow_mut() = files.new_image(threads);
                files.image(&mut writer.borrow_mut(), depth, Request::write)
            }),
            Case::new("fio, again", || files.fio("write", engine, depth)),
            Case::new("image, again", || {
                let mut writer = writer.borrow_mut();
                writer.reset_all();
                files.image(&mut writer, depth, Request::write)
            }),
            Case::new("fio, reads", || files.fio("read", engine, depth)),
            Case::new("image, reads", || files.image(&mut writer.borrow_mut(), depth, Request::read)),
        ];
        let samples = interleave(rounds, &mut cases);
        for (name, pair) in names.iter().zip(samples.chunks_exact(2)) {
            let ratio = pair[1].against(&pair[0], |image, fio| fio / image);
            report.add(name, &format!("fio, {engine}"), &ratio, "x", Bound::AtLeast(least));
        }
    }
    const DEPTH: u64 = 32;
    let writer = RefCell::new(files.new_image(1));
    files.image(&mut writer.borrow_mut(), DEPTH, Request::write);
    let mut cases = [
        Case::new("fio, reads", || files.fio("read", "io_uring", DEPTH)),
        Case::new("image, reads", || files.image(&mut writer.borrow_mut(), DEPTH, Request::read)),
    ];
    let samples = interleave(rounds, &mut cases);
    let ratio = samples[1].against(&samples[0], |image, fio| fio / image);
    let name = format!("image: 4 KiB read, depth {DEPTH}, helper thread");
    report.add(&name, "fio, io_uring", &ratio, "x", Bound::AtLeast(0.95));
}
