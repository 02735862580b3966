//! Zone append through a volume, observed by a trace of the device: several in flight per zone if
//! appends are native, one write at a time if they are emulated, and the right address in every
//! completion.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zonal_core::{Nanos, Op, Sector};
use zonal_io::buffer::IoBuf;
use zonal_io::device::{Device, Output};
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Ram};
use zonal_io::sync::Mutex;
use zonal_io::trace::{Trace, TraceLog};
use zonal_io::volume::{Request, Volume, VolumeOptions, WriteMode};

const ZONE: u64 = 1 << 20;
const BLOCK: u32 = 8;
const DEPTH: u64 = 16;

fn device() -> (Arc<dyn Device>, TraceLog) {
    let options =
        EmulatedOptions::default().with_size(8 * ZONE).with_zone_size(ZONE).with_complete(CompleteMode::Poll);
    let geometry = options.geometry().unwrap();
    let ram = Emulated::new("ram", &options, Ram::new(&geometry)).unwrap();
    let (trace, log) = Trace::to_memory(Arc::new(ram));
    (Arc::new(trace), log)
}

/// Fills a zone by appends that carry their number, at queue depth [`DEPTH`], and returns their
/// addresses.
fn fill(volume: &Volume) -> Vec<(u64, Sector)> {
    let places = Arc::new(Mutex::new(Vec::new()));
    let ended = Arc::new(AtomicU64::new(0));
    let (noted, counted) = (places.clone(), ended.clone());
    let channel = volume.channel(move |c| {
        let Ok(Output::Appended(sector)) = c.result else { panic!("{:?}", c.result) };
        noted.lock().push((c.token, sector));
        counted.fetch_add(1, Ordering::Release);
    });
    let count = ZONE / 512 / u64::from(BLOCK);
    for n in 0..count {
        while n - ended.load(Ordering::Acquire) >= DEPTH {
            volume.poll(Nanos(0));
        }
        let mut buf = IoBuf::zeroed(BLOCK * 512);
        buf[..8].copy_from_slice(&n.to_le_bytes());
        volume.submit(Nanos(0), &channel, Request::append(Sector(0), BLOCK, buf).token(n));
    }
    while ended.load(Ordering::Acquire) < count {
        volume.poll(Nanos(0));
    }
    std::mem::take(&mut *places.lock())
}

/// Number stored at `sector`.
fn read(volume: &Volume, sector: Sector) -> u64 {
    let found = Arc::new(Mutex::new(None));
    let left = found.clone();
    let channel = volume.channel(move |c| *left.lock() = Some((c.result, c.buf.into_buf())));
    volume.submit(Nanos(0), &channel, Request::read(sector, BLOCK, IoBuf::zeroed(BLOCK * 512)));
    loop {
        if let Some((result, buf)) = found.lock().take() {
            result.unwrap();
            return u64::from_le_bytes(buf[..8].try_into().unwrap());
        }
        volume.poll(Nanos(0));
    }
}

fn appended(mode: WriteMode) -> TraceLog {
    let (device, log) = device();
    let volume = Volume::open(device, VolumeOptions::default().with_mode(mode).with_merge(true)).unwrap();
    log.clear();
    let mut places = fill(&volume);
    assert!(places.iter().all(|&(n, sector)| read(&volume, sector) == n), "{mode}: an address is wrong");
    places.sort_by_key(|p| p.1);
    let sectors: Vec<u64> = places.iter().map(|p| p.1.0).collect();
    let all: Vec<u64> = (0..ZONE / 512).step_by(BLOCK as usize).collect();
    assert_eq!(sectors, all, "{mode}: the addresses are disjoint and fill the zone");
    log
}

#[test]
fn native_appends_are_issued_in_parallel_with_correct_addresses() {
    let log = appended(WriteMode::Append);
    assert_eq!(log.commands(Op::Write), 0);
    let most = log.max_in_flight(|r| r.op == Op::Append, |r| r.sector);
    assert_eq!(most, DEPTH as u32, "in flight a zone");
}

#[test]
fn emulated_appends_are_issued_one_at_a_time_with_correct_addresses() {
    let log = appended(WriteMode::PerZone);
    assert_eq!(log.commands(Op::Append), 0);
    assert_eq!(log.commands(Op::Write) as u64, ZONE / 512 / u64::from(BLOCK), "appends are never merged");
    assert_eq!(log.max_in_flight(|r| r.op.is_write(), |_| ()), 1, "in flight a zone");
}
