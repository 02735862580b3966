//! Cost of one I/O of a job on the null device, in nanoseconds: generators, depths, clocks.

use std::sync::Arc;
use zonal_bench::job::JobFile;
use zonal_bench::{BenchOptions, run};
use zonal_io::device::Device;
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Null};
use zonal_io::volume::WriteMode;

const JOBS: [(&str, &str); 9] = [
    ("sequential", "--rw=write --zonemode=zbd --gtod_reduce=1"),
    ("sequential, plain", "--rw=write --gtod_reduce=1"),
    ("sequential, timed", "--rw=write --zonemode=zbd"),
    ("random", "--rw=randwrite --zonemode=zbd --norandommap --gtod_reduce=1"),
    ("random, map", "--rw=randwrite --zonemode=zbd --gtod_reduce=1"),
    ("random, 16 open", "--rw=randwrite --zonemode=zbd --norandommap --max_open_zones=16 --gtod_reduce=1"),
    (
        "2 jobs",
        "--rw=write --zonemode=zbd --gtod_reduce=1 --numjobs=2 --offset_increment=100z --group_reporting",
    ),
    ("2 jobs, one zone", "--rw=write --zonemode=zbd --gtod_reduce=1 --numjobs=2 --group_reporting"),
    ("random read", "--rw=randread --norandommap --gtod_reduce=1"),
];

fn cost(arguments: &str, poll: bool, depth: u32, mode: WriteMode) -> f64 {
    let arguments = format!("--name=x --bs=4k --size=20g --io_size=20g --iodepth={depth} {arguments}");
    let jobs = JobFile::parse_inline(arguments.split(' ')).expect("the arguments are right");
    let open = move || {
        let complete = if poll { CompleteMode::Poll } else { CompleteMode::Inline };
        let options = EmulatedOptions { size: 1 << 40, complete, ..Default::default() };
        Ok(Arc::new(Emulated::new("null", &options, Null)?) as Arc<dyn Device>)
    };
    let mut options = BenchOptions::new(jobs);
    options.modes = vec![mode];
    let report = run(&open, &options).expect("the job fits");
    let job = &report.modes[0].jobs[0];
    assert!(job.failure.is_none(), "{:?}", job.failure);
    let ios: u64 = job.dirs.iter().map(|dir| dir.ios).sum();
    job.elapsed.as_secs_f64() * 1e9 / ios as f64
}

fn main() {
    for (name, arguments) in JOBS {
        for (poll, depth) in [(false, 1), (true, 1), (true, 16)] {
            let [per_zone, append] =
                [WriteMode::PerZone, WriteMode::Append].map(|mode| cost(arguments, poll, depth, mode));
            let complete = if poll { "poll" } else { "inline" };
            println!(
                "{name:20} {complete:6} depth {depth:2}: per-zone {per_zone:6.1} append {append:6.1} ns"
            );
        }
    }
}
