//! Rounds: a later one continues from the state left by an earlier one, in every write mode.

use zonal_bench::job::JobFile;
use zonal_bench::{BenchOptions, run};
use zonal_io::registry::Registry;
use zonal_io::volume::WriteMode;

#[test]
fn round_after_full_zones_resets_them() {
    let jobs = "--zonemode=zbd --bs=4k --size=4z --max_open_zones=4 --thread --name=fill --rw=write --name=again \
                --stonewall --rw=randwrite --iodepth=4 --numjobs=2 --io_size=2z";
    for device in ["null:size=16M,zone_size=1M", "null:size=16M,zone_size=1M,complete=poll"] {
        let registry = Registry::default();
        let open = || registry.open(device).map_err(Into::into);
        let mut options = BenchOptions::new(JobFile::parse_inline(jobs.split_whitespace()).unwrap());
        options.modes = WriteMode::ALL.to_vec();
        // Neither device guarantees order.
        options.volume.force = true;
        let report = run(&open, &options).unwrap();
        for mode in &report.modes {
            for job in &mode.jobs {
                assert_eq!(job.failure, None, "{} {}", mode.mode, job.name);
            }
            assert!(mode.jobs[1..].iter().map(|job| job.resets).sum::<u64>() > 0, "{}", mode.mode);
        }
    }
}
