//! Emulated drives, compared with their backing store.

use super::Effort;
use super::measure::{Case, interleave, time};
use super::path::{NOW, Writer};
use super::report::{Bound, Report};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use zonal_core::{Op, Sector};
use zonal_io::buffer::IoBuf;
use zonal_io::device::Device;
use zonal_io::emulated::{Emulated, EmulatedOptions, Ram};
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};
use zonal_io::volume::{Request, WriteMode};

const ZONE: u64 = 16 << 20;

/// Working set: larger than most caches, but no more than the device keeps for reuse, so that every
/// page is already touched.
const SET: u64 = 48 << 20;

fn ram(size: u64, zone_size: u64) -> Arc<dyn Device> {
    let options = EmulatedOptions::default().with_size(size).with_zone_size(zone_size);
    let geometry = options.geometry().expect("the options are valid");
    Arc::new(Emulated::new("ram", &options, Ram::new(&geometry)).expect("the options are valid"))
}

/// 128 KiB sequential writes to pages that have been written before.
pub(super) fn ram_writes(effort: Effort, report: &mut Report) {
    const LEN: u64 = 128 << 10;
    let set = if effort.operations < 100_000 { 4 * LEN } else { SET };
    let count = set / LEN;
    let mut writer = Writer::new(ram(16 * ZONE, ZONE), WriteMode::PerZone, true);
    let source = IoBuf::zeroed(LEN as u32);
    let mut target = vec![0u8; set as usize];
    let mut cases = [
        Case::new("memcpy", || {
            time(count, || {
                for piece in target.chunks_exact_mut(LEN as usize) {
                    piece.copy_from_slice(black_box(&source));
                }
                black_box(&mut target);
            })
        }),
        Case::new("ram:", || {
            let ns = time(count, || {
                for i in 0..count {
                    let buf = writer.payload(LEN as u32);
                    writer.submit(Request::write(Sector(i * LEN / 512), (LEN / 512) as u32, buf));
                }
                writer.wait_below(1);
            });
            writer.reset_all();
            ns
        }),
    ];
    let [copy, ram] = &interleave(effort.rounds, &mut cases)[..] else { unreachable!("two cases") };
    let ratio = ram.against(copy, |r, c| c / r);
    report.add("ram: 128 KiB writes, touched pages", "memcpy", &ratio, "x", Bound::AtLeast(0.95));
}

/// 128 KiB writes that rewrite a large set zone by zone, each zone after its reset, with the
/// default zone size and with smaller zones. The pages that a reset frees are reused by the writes
/// after it.
pub(super) fn ram_rewrites(effort: Effort, report: &mut Report) {
    let is_full = effort.operations >= 100_000;
    let names = ["ram: 128 KiB rewrites, zones of 256 MiB", "ram: 128 KiB rewrites, zones of 16 MiB"];
    for (name, zone_size) in names.into_iter().zip([256 << 20, ZONE]) {
        rewrites(effort, report, name, zone_size, if is_full { 1 << 30 } else { zone_size });
    }
}

/// Rewrites zones of `set` bytes in total. A run with few operations writes only the beginning of
/// each zone.
fn rewrites(effort: Effort, report: &mut Report, name: &'static str, zone_size: u64, set: u64) {
    const LEN: u64 = 128 << 10;
    let zones = set / zone_size;
    let writes = (zone_size / LEN).min(effort.operations / 100);
    let mut writer = Writer::new(ram(set, zone_size), WriteMode::PerZone, true);
    let source = IoBuf::zeroed(LEN as u32);
    let mut target = vec![0u8; (zones * writes * LEN) as usize];
    let mut cases = [
        Case::new("memcpy", || {
            time(zones * writes, || {
                for piece in target.chunks_exact_mut(LEN as usize) {
                    piece.copy_from_slice(black_box(&source));
                }
                black_box(&mut target);
            })
        }),
        Case::new("ram:", || {
            time(zones * writes, || {
                for zone in 0..zones {
                    let start = zone * zone_size / 512;
                    writer.submit(Request::zone(Op::ZoneReset, Sector(start)));
                    for i in 0..writes {
                        let buf = writer.payload(LEN as u32);
                        writer.submit(Request::write(Sector(start + i * LEN / 512), (LEN / 512) as u32, buf));
                    }
                }
                writer.wait_below(1);
            })
        }),
    ];
    let [copy, ram] = &interleave(effort.rounds, &mut cases)[..] else { unreachable!("two cases") };
    let ratio = ram.against(copy, |r, c| c / r);
    report.add(name, "memcpy", &ratio, "x", Bound::AtLeast(0.95));
}

/// 4 KiB random reads.
pub(super) fn ram_reads(effort: Effort, report: &mut Report) {
    let count = effort.operations / 4;
    let mut writer = Writer::new(ram(16 * ZONE, ZONE), WriteMode::PerZone, true);
    let blocks = SET / 4096;
    writer.write(0, blocks, 1);
    let source = vec![1u8; SET as usize];
    let mut target = IoBuf::zeroed(4096);
    let random = |state: &mut u64| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % blocks
    };
    let mut seeds = [1u64, 1];
    let [copy_seed, read_seed] = &mut seeds;
    let mut cases = [
        Case::new("copy", || {
            time(count, || {
                for _ in 0..count {
                    let at = random(copy_seed) as usize * 4096;
                    target.copy_from_slice(black_box(&source[at..at + 4096]));
                    black_box(&mut target);
                }
            })
        }),
        Case::new("ram:", || {
            time(count, || {
                for _ in 0..count {
                    let buf = writer.payload(4096);
                    writer.submit(Request::read(Sector(random(read_seed) * 8), 8, buf));
                }
                writer.wait_below(1);
            })
        }),
    ];
    let [copy, ram] = &interleave(effort.rounds, &mut cases)[..] else { unreachable!("two cases") };
    let ratio = ram.against(copy, |r, c| c / r);
    report.add("ram: 4 KiB random reads", "a bare copy", &ratio, "x", Bound::AtLeast(0.75));
}

/// Opens an image of many zones that is in the page cache.
pub(super) fn image_open(effort: Effort, report: &mut Report) {
    const ZONES: u64 = 112_000;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("drive.zonal");
    let zone = 128 << 20;
    let options = ImageOptions::default().with_size(ZONES * zone).with_zone_size(zone);
    options.create(&path).expect("the image is created");
    touch_every_page(&path, zone);
    let open =
        || drop(black_box(ImageDevice::open(&path, &OpenOptions::default()).expect("the image opens")));
    let mut cases = [Case::new("open", || time(1, open) / 1e6)];
    let samples = interleave(effort.rounds, &mut cases);
    report.add("opening an image of 112,000 zones", "", &samples[0], "ms", Bound::AtMost(200.0));
}

/// Writes to one zone on every page of the zone states, so that none of them is a hole.
fn touch_every_page(path: &Path, zone: u64) {
    let device: Arc<dyn Device> =
        Arc::new(ImageDevice::open(path, &OpenOptions::default()).expect("the image opens"));
    let mut writer = Writer::new(device, WriteMode::PerZone, true);
    for z in (0..112_000).step_by(400) {
        writer.wait_below(16);
        let buf = writer.payload(4096);
        writer.submit(Request::write(Sector(z * zone / 512), 8, buf));
    }
    writer.wait_below(1);
    writer.submit(Request { op: Op::Flush, ..Request::flush() });
    writer.wait_below(1);
    writer.volume.poll(NOW);
}
