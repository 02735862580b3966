//! Changes zones of a drive behind the kernel's back while a volume writes others:
//! `passthrough DEVICE SG CHANGES`, with the SCSI generic file of the same drive.
//!
//! The drive is erased. Prints lines of a key and a value: the volume's requests that failed, the
//! bytes that were wrong, the changes, those that a report of the volume did not show, and the zones
//! that the volume could not write afterwards.

use rand::{RngExt, SeedableRng};
use std::error::Error;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use zonal::{Clock, IoBuf, Op, Request, Sector, Volume, VolumeOptions, ZoneIndex};
use zonal_core::zone::ZoneCondition;

const BLOCK: u32 = 4096;
const BLOCK_SECTORS: u32 = BLOCK / 512;
/// Zones that the volume writes all the time.
const OURS: u32 = 3;
/// Zones that are changed through the SCSI generic file.
const THEIRS: u32 = 6;
/// Requests in flight in each of the volume's zones.
const DEPTH: u64 = 4;
/// Writes that a stale zone may refuse: the second failure makes the drive look for the cause.
const ATTEMPTS: u32 = 4;

fn block(zone: u32, number: u64, round: u64) -> IoBuf {
    let mut data = IoBuf::zeroed(BLOCK);
    let words = [u64::from(zone), number, round].map(u64::to_le_bytes).concat();
    for chunk in data.chunks_mut(words.len()) {
        chunk.copy_from_slice(&words[..chunk.len()]);
    }
    data
}

/// Result of the volume's writer.
#[derive(Default)]
struct Written {
    requests: u64,
    failed: u64,
    wrong: u64,
}

/// Fills zones, compares them and resets them, until told to stop.
fn write(volume: &Volume, clock: &Clock, zones: &[u32], stop: &AtomicBool) -> Written {
    let geometry = &volume.info().geometry;
    let inbox = volume.inbox();
    let mut result = Written::default();
    for round in 0.. {
        let blocks = |zone| geometry.capacity_of(ZoneIndex(zone)) / BLOCK_SECTORS;
        let blocks = zones.iter().map(|zone| u64::from(blocks(*zone))).min().expect("there are zones");
        for number in (0..blocks).step_by(DEPTH as usize) {
            if stop.load(Ordering::Relaxed) {
                return result;
            }
            let batch = number..(number + DEPTH).min(blocks);
            for zone in zones {
                for number in batch.clone() {
                    let at =
                        Sector(geometry.start_of(ZoneIndex(*zone)).0 + number * u64::from(BLOCK_SECTORS));
                    let request = Request::write(at, BLOCK_SECTORS, block(*zone, number, round));
                    volume.submit(clock.now(), inbox.channel(), request);
                    result.requests += 1;
                }
            }
            for _ in 0..zones.len() * batch.count() {
                let completion = loop {
                    match inbox.take() {
                        Some(completion) => break completion,
                        None => _ = volume.poll(clock.now()),
                    }
                };
                result.failed += u64::from(completion.result.is_err());
            }
        }
        for zone in zones {
            let start = geometry.start_of(ZoneIndex(*zone));
            for number in 0..blocks {
                let at = Sector(start.0 + number * u64::from(BLOCK_SECTORS));
                let read = volume.call(clock, Request::read(at, BLOCK_SECTORS, IoBuf::zeroed(BLOCK)));
                result.failed += u64::from(read.result.is_err());
                result.wrong += u64::from(read.buf.into_buf()[..] != block(*zone, number, round)[..]);
            }
            let reset = volume.call(clock, Request::zone(Op::ZoneReset, start));
            result.failed += u64::from(reset.result.is_err());
        }
    }
    unreachable!("the rounds do not end")
}

/// Change of a zone by a command of its own.
#[derive(Clone, Copy)]
enum Change {
    Write,
    Finish,
    Reset,
}

/// Sends a change to the drive. `at` is in logical blocks.
fn change(sg: &str, change: Change, at: u64, data: &str) -> Result<(), Box<dyn Error>> {
    let (head, blocks) = match change {
        Change::Write => ([0x8a, 0], 1),
        Change::Finish => ([0x94, 2], 0),
        Change::Reset => ([0x94, 4], 0),
    };
    let mut bytes = head.to_vec();
    bytes.extend(at.to_be_bytes());
    bytes.extend(u32::to_be_bytes(blocks));
    bytes.extend([0, 0]);
    let mut command = Command::new("sg_raw");
    if blocks > 0 {
        command.args(["-s", &BLOCK.to_string(), "-i", data]);
    }
    command.arg(sg).args(bytes.iter().map(|byte| format!("{byte:02x}")));
    let output = command.stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, sg, changes] = &arguments[..] else {
        return Err("usage: passthrough DEVICE SG CHANGES".into());
    };
    let changes: u32 = changes.parse()?;
    let volume = Volume::open(zonal::open(device)?, VolumeOptions::default())?;
    let clock = Clock::start();
    let geometry = &volume.info().geometry;
    volume.call(&clock, Request::zone(Op::ResetAll, Sector(0))).result?;
    let (first, zones) = (geometry.conventional_zones(), geometry.zones());
    let ours: Vec<u32> = (first..first + OURS).collect();
    let theirs: Vec<u32> = (zones - THEIRS..zones).collect();
    let data = tempfile::NamedTempFile::new()?;
    std::fs::write(data.path(), [0x5a; BLOCK as usize])?;
    let data = data.path().to_string_lossy().into_owned();
    let stop = AtomicBool::new(false);
    // The kernel has a write pointer of its own for a zone that it has written.
    for zone in &theirs {
        let write = Request::write(geometry.start_of(ZoneIndex(*zone)), BLOCK_SECTORS, block(*zone, 0, 0));
        volume.call(&clock, write).result?;
    }

    let (written, unseen) = std::thread::scope(|scope| -> Result<_, Box<dyn Error>> {
        let writer = scope.spawn(|| write(&volume, &clock, &ours, &stop));
        let mut random = rand_pcg::Pcg64::seed_from_u64(1);
        // Blocks that were written; `None` for a full zone.
        let mut pointers = vec![Some(1u64); theirs.len()];
        let mut all = || -> Result<u32, Box<dyn Error>> {
            let mut unseen = 0;
            for _ in 0..changes {
                let one = random.random_range(0..theirs.len());
                let start = geometry.start_of(ZoneIndex(theirs[one]));
                let in_blocks = start.0 / u64::from(BLOCK_SECTORS);
                match (random.random_range(0..8), pointers[one]) {
                    (0, _) | (_, None) => {
                        change(sg, Change::Reset, in_blocks, &data)?;
                        pointers[one] = Some(0);
                    }
                    (1, _) => {
                        change(sg, Change::Finish, in_blocks, &data)?;
                        pointers[one] = None;
                    }
                    (_, Some(written)) => {
                        change(sg, Change::Write, in_blocks + written, &data)?;
                        pointers[one] = Some(written + 1);
                    }
                }
                let report = volume.report(&clock, start, 1)?;
                let pointer = report[0].write_pointer.map(|at| (at.0 - start.0) / u64::from(BLOCK_SECTORS));
                let is_full = report[0].condition == ZoneCondition::Full;
                unseen += u32::from((pointer, is_full) != (pointers[one], pointers[one].is_none()));
            }
            Ok(unseen)
        };
        let unseen = all();
        stop.store(true, Ordering::Relaxed);
        Ok((writer.join().expect("the writer ends well"), unseen?))
    })?;

    let mut refused = 0;
    for zone in theirs {
        let start = geometry.start_of(ZoneIndex(zone));
        if volume.report(&clock, start, 1)?[0].condition == ZoneCondition::Full {
            continue;
        }
        let is_written = (0..ATTEMPTS).any(|attempt| {
            let Ok(report) = volume.report(&clock, start, 1) else { return false };
            let Some(at) = report[0].write_pointer else { return false };
            let write = Request::write(at, BLOCK_SECTORS, block(zone, 0, 0));
            match volume.call(&clock, write).result {
                Ok(_) => true,
                Err(error) => {
                    eprintln!("zone {zone}, attempt {attempt}: {error}");
                    false
                }
            }
        });
        refused += u32::from(!is_written);
    }
    println!("requests {}", if written.requests > 0 { "some" } else { "none" });
    println!("failed {}", written.failed);
    println!("wrong {}", written.wrong);
    println!("changes {changes}");
    println!("unseen {unseen}");
    println!("refused {refused}");
    Ok(())
}
