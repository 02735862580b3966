//! Devices for the tests of the runner, and helpers to run jobs on them.
#![allow(dead_code)]

use std::collections::HashMap;
use std::process::{Command as Process, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use zonal_bench::job::JobFile;
use zonal_bench::{BenchError, BenchOptions, HostRules, Reopen, Report, run};
use zonal_core::{DeviceError, Geometry, Nanos, Op, ZoneIndex};
use zonal_io::data::Data;
use zonal_io::device::{Command, Context, Device, Insight, Submitted, Wrapper};
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Extent, Null, Storage};
use zonal_io::volume::WriteMode;

/// Output of an external program. `None` if it is not installed, which is a failure in CI.
pub fn output_of(process: &mut Process) -> Option<Output> {
    match process.output() {
        Ok(output) => Some(output),
        Err(error) => {
            let program = process.get_program();
            assert!(std::env::var_os("CI").is_none(), "{program:?}: {error}");
            println!("skipped: {program:?}: {error}");
            None
        }
    }
}

/// Bytes of a zone.
pub const ZONE: u64 = 1 << 20;

/// 64 zones of 1 MiB, four of them conventional.
pub fn options() -> EmulatedOptions {
    EmulatedOptions::default().with_size(64 * ZONE).with_zone_size(ZONE).with_zone_nr_conv(4)
}

/// As [`options`], with completion by polling.
pub fn polled() -> EmulatedOptions {
    options().with_complete(CompleteMode::Poll)
}

/// A single fault of a storage device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No fault.
    None,
    /// The write to this place (zone, offset in sectors) changes its byte number `byte`.
    Flip { zone: u32, offset: u32, byte: usize },
    /// The write to this place is dropped.
    Drop { zone: u32, offset: u32 },
    /// The writes to these two places are swapped.
    Swap { zone: u32, offsets: [u32; 2] },
    /// Resets of this zone keep its data, and later writes to its start are dropped.
    Stale { zone: u32 },
    /// Writes to this place fail.
    Fail { zone: u32, offset: u32 },
}

/// Memory that keeps every sector, with an optional fault.
pub struct Memory {
    sectors: Mutex<HashMap<(u32, u32), [u8; 512]>>,
    discarded: Mutex<Vec<u32>>,
    fault: Fault,
}

impl Memory {
    pub fn new(fault: Fault) -> Memory {
        Memory { sectors: Mutex::default(), discarded: Mutex::default(), fault }
    }

    fn put(&self, zone: u32, offset: u32, bytes: &[u8]) {
        let mut sectors = self.sectors.lock().unwrap();
        for (n, sector) in bytes.chunks(512).enumerate() {
            sectors.insert((zone, offset + n as u32), sector.try_into().unwrap());
        }
    }
}

impl Storage for Memory {
    const KEEPS_DATA: bool = true;

    fn write(&self, to: Extent, data: &Data) -> Result<(), DeviceError> {
        let mut bytes = Vec::new();
        data.for_each(|_, piece| bytes.extend_from_slice(piece));
        let (zone, mut offset) = (to.zone.0, to.offset);
        let holds = |at: u32| offset <= at && at < to.offset + to.sectors;
        match self.fault {
            Fault::Flip { zone: z, offset: at, byte } if z == zone && holds(at) => {
                bytes[(at - offset) as usize * 512 + byte] ^= 0x40;
            }
            Fault::Drop { zone: z, offset: at } if z == zone && holds(at) => return Ok(()),
            Fault::Fail { zone: z, offset: at } if z == zone && holds(at) => return Err(DeviceError::Medium),
            Fault::Swap { zone: z, offsets: [a, b] } if z == zone && (offset == a || offset == b) => {
                offset = a + b - offset;
            }
            Fault::Stale { zone: z }
                if z == zone && offset == 0 && self.discarded.lock().unwrap().contains(&z) =>
            {
                return Ok(());
            }
            _ => {}
        }
        self.put(zone, offset, &bytes);
        Ok(())
    }

    fn write_zeroes(&self, to: Extent) -> Result<(), DeviceError> {
        self.put(to.zone.0, to.offset, &vec![0; to.sectors as usize * 512]);
        Ok(())
    }

    fn read(&self, from: Extent, data: &Data) -> Result<(), DeviceError> {
        let sectors = self.sectors.lock().unwrap();
        data.for_each_mut(|at, piece| {
            for (n, sector) in piece.chunks_mut(512).enumerate() {
                let offset = from.offset + (at / 512 + n) as u32;
                let stored = sectors.get(&(from.zone.0, offset)).unwrap_or(&[0; 512]);
                if offset < from.offset + from.sectors {
                    sector.copy_from_slice(stored);
                }
            }
        });
        Ok(())
    }

    fn punch(&self, range: Extent) {
        self.put(range.zone.0, range.offset, &vec![0; range.sectors as usize * 512]);
    }

    fn discard(&self, zone: ZoneIndex, _: u32) {
        self.discarded.lock().unwrap().push(zone.0);
        if self.fault != (Fault::Stale { zone: zone.0 }) {
            self.sectors.lock().unwrap().retain(|(z, _), _| *z != zone.0);
        }
    }
}

pub fn memory(options: &EmulatedOptions, fault: Fault) -> Arc<dyn Device> {
    Arc::new(Emulated::new("memory", options, Memory::new(fault)).unwrap())
}

pub fn null(options: &EmulatedOptions) -> Arc<dyn Device> {
    Arc::new(Emulated::new("null", options, Null).unwrap())
}

pub fn geometry(options: &EmulatedOptions) -> Geometry {
    options.geometry().unwrap()
}

pub fn jobs(arguments: &str) -> JobFile {
    JobFile::parse_inline(arguments.split_whitespace()).unwrap()
}

/// Runs jobs on `device`, which keeps its content across modes and for verification.
pub fn try_run(device: &Arc<dyn Device>, modes: &[WriteMode], arguments: &str) -> Result<Report, BenchError> {
    let mut options = BenchOptions::new(jobs(arguments));
    options.modes = modes.to_vec();
    options.reopen = Reopen::Same;
    run(&|| Ok(device.clone()), &options)
}

/// Runs jobs that share zones by the rules of `host`.
pub fn run_as(device: &Arc<dyn Device>, mode: WriteMode, host: HostRules, arguments: &str) -> Report {
    let mut options = BenchOptions::new(jobs(arguments));
    (options.modes, options.host, options.reopen) = (vec![mode], host, Reopen::Same);
    run(&|| Ok(device.clone()), &options).unwrap()
}

/// Both rules by which workers share zones.
pub const HOSTS: [HostRules; 2] = [HostRules::Fio, HostRules::Zonal];

pub fn run_on(device: &Arc<dyn Device>, mode: WriteMode, arguments: &str) -> Report {
    try_run(device, &[mode], arguments).unwrap()
}

/// Report of job number `n` of the first mode, which must have succeeded.
pub fn job(report: &Report, n: usize) -> &zonal_bench::JobReport {
    let job = &report.modes[0].jobs[n];
    assert_eq!(job.failure, None, "{}", report.to_text());
    job
}

/// A device with virtual time, derived from the times passed to the inner device.
pub struct Timeless {
    inside: Arc<dyn Device>,
    virtual_time: bool,
    /// Write commands in order, as offset and length.
    pub writes: Mutex<Vec<(u64, u32)>>,
    /// Number of writes and resets that will still be answered.
    pub left: AtomicU64,
    /// Unanswered writes: zone, completion time and length.
    under_way: Mutex<Vec<(u64, u64, u32)>>,
    /// Maximum number of concurrent writes in a zone, and of different lengths among them.
    pub most_at_once: Mutex<(usize, usize)>,
    nanos: u64,
}

impl Timeless {
    pub fn new(inside: Arc<dyn Device>) -> Arc<Timeless> {
        Timeless::with(inside, true)
    }

    /// A device in real time.
    pub fn new_real(inside: Arc<dyn Device>) -> Arc<Timeless> {
        Timeless::with(inside, false)
    }

    fn with(inside: Arc<dyn Device>, virtual_time: bool) -> Arc<Timeless> {
        let left = AtomicU64::new(u64::MAX);
        Arc::new(Timeless {
            inside,
            virtual_time,
            writes: Mutex::default(),
            left,
            under_way: Mutex::default(),
            most_at_once: Mutex::default(),
            nanos: 0,
        })
    }
}

impl Timeless {
    fn note(&self, now: Nanos, sector: u64, sectors: u32) {
        let mut under_way = self.under_way.lock().unwrap();
        under_way.retain(|&(_, end, _)| end > now.0);
        let zone = sector * 512 / ZONE;
        under_way.push((zone, now.0 + self.nanos, sectors));
        let mut lengths: Vec<u32> = under_way.iter().filter(|write| write.0 == zone).map(|w| w.2).collect();
        let mut most = self.most_at_once.lock().unwrap();
        most.0 = most.0.max(lengths.len());
        lengths.sort_unstable();
        lengths.dedup();
        most.1 = most.1.max(lengths.len());
    }
}

impl Wrapper for Timeless {
    fn inner(&self) -> &dyn Device {
        &*self.inside
    }

    fn insight(&self) -> Insight {
        Insight { virtual_time: self.virtual_time, ..self.inside.insight() }
    }

    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        let changes = matches!(command.op, Op::Write | Op::Append | Op::ZoneReset);
        if changes && self.left.load(Ordering::Relaxed) == 0 {
            std::mem::forget(context.take());
            return Submitted::Accepted;
        }
        let submitted = self.inside.submit(now, queue, command, context);
        if changes && !matches!(submitted, Submitted::Busy) {
            self.left.fetch_sub(1, Ordering::Relaxed);
            let sectors = if command.op == Op::ZoneReset { 0 } else { command.sectors };
            self.writes.lock().unwrap().push((command.sector.0, sectors));
            if sectors > 0 {
                self.note(now, command.sector.0, sectors);
            }
        }
        submitted
    }
}

/// A null device in virtual time that takes `nanos` for each command.
pub fn timeless(nanos: u64, options: EmulatedOptions) -> Arc<Timeless> {
    let options = options.clone().with_complete(CompleteMode::Poll).with_completion_nsec(nanos);
    let mut device = Timeless::new(null(&options));
    Arc::get_mut(&mut device).expect("the test alone has it").nanos = nanos;
    device
}
