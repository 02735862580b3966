//! Simulated drives: processor cost of a simulated I/O through the whole stack.

use super::Effort;
use super::measure::{Case, Samples, interleave, time};
use super::report::{Bound, Report};
use zonal_bench::job::JobFile;
use zonal_bench::workload::Dir;
use zonal_bench::{BenchOptions, run};
use zonal_io::volume::WriteMode;
use zonal_sim::Profile;

/// Bytes of a zone of the disks.
const ZONE: u64 = 256 << 20;

/// A drive of `zones` zones, and the job that writes to it.
#[derive(Clone, Copy)]
struct Rehearsal {
    profile: &'static str,
    /// 0: as many as the profile has.
    zones: u64,
    block: u64,
    options: &'static [&'static str],
}

/// One sequential job.
const DISK: Rehearsal =
    Rehearsal { profile: "smr-hdd-30t", zones: 0, block: 1 << 20, options: &["--rw=write", "--iodepth=32"] };

/// Sixteen jobs that write zones in turn.
const CROWD: Rehearsal = Rehearsal {
    profile: "smr-hdd-30t",
    zones: 0,
    block: 1 << 20,
    options: &["--rw=randwrite", "--iodepth=32", "--numjobs=16", "--max_open_zones=128", "--group_reporting"],
};

const FLASH: Rehearsal = Rehearsal {
    profile: "zns-1t",
    zones: 0,
    block: 4096,
    options: &["--rw=randwrite", "--iodepth=16", "--max_open_zones=14"],
};

/// Sixteen open zones out of a hundred.
const FEW: Rehearsal = Rehearsal {
    profile: "smr-hdd-30t",
    zones: 100,
    block: 64 << 10,
    options: &["--rw=randwrite", "--iodepth=32", "--max_open_zones=16"],
};

/// Sixteen open zones out of those of a whole disk.
const MANY: Rehearsal = Rehearsal { zones: 112_000, ..FEW };

impl Rehearsal {
    /// Runs `count` requests in total.
    ///
    /// # Panics
    /// If one fails.
    fn play(&self, count: u64) {
        let jobs: u64 =
            self.options.iter().find_map(|o| o.strip_prefix("--numjobs=")?.parse().ok()).unwrap_or(1);
        let own = ["--name=rehearsal", "--zonemode=zbd"].into_iter().chain(self.options.iter().copied());
        let sizes =
            [format!("--bs={}", self.block), format!("--io_size={}", count.div_ceil(jobs) * self.block)];
        let args = own.map(str::to_owned).chain(sizes);
        let mut options = BenchOptions::new(JobFile::parse_inline(args).expect("the options are right"));
        options.modes = vec![WriteMode::PerZone];
        options.volume.merge = false;
        let size = (self.zones * ZONE).to_string();
        let changes = [("size", size.as_str())];
        let changes = if self.zones == 0 { &[][..] } else { &changes[..] };
        let profile = Profile::open(self.profile, changes).expect("it came with the program");
        let report = run(&|| Ok(profile.simulated(self.profile)?), &options).expect("the job fits the drive");
        assert!(!report.is_failed(), "{}", report.to_text());
        let ios: u64 = report.modes[0].jobs.iter().map(|job| job.dir(Dir::Write).ios).sum();
        assert!(ios >= count, "{ios} of {count} requests");
    }

    /// Cost of a request after the first `count`, in nanoseconds: a run of twice as many minus a
    /// run of `count`, which cancels the cost of opening the drive. At least 1, because runs that
    /// only check that the row works are too short for a difference.
    fn beyond(&self, count: u64) -> f64 {
        let [once, twice] = [count, 2 * count].map(|count| time(1, || self.play(count)));
        ((twice - once) / count as f64).max(1.0)
    }
}

/// All rows but the last include opening the drive and its volume.
pub(super) fn rows(effort: Effort, report: &mut Report) {
    let count = effort.operations / 2;
    let mut cases = [
        Case::new("disk", || time(count, || DISK.play(count))),
        Case::new("crowd", || time(count, || CROWD.play(count))),
        Case::new("flash", || time(count, || FLASH.play(count))),
        Case::new("112,000 zones", || time(count, || MANY.play(count))),
        Case::new("100 zones, beyond", || FEW.beyond(count)),
        Case::new("112,000 zones, beyond", || MANY.beyond(count)),
    ];
    let samples = interleave(effort.rounds.min(5), &mut cases);
    let [disk, crowd, flash, many, few_beyond, many_beyond] = &samples[..] else { unreachable!("six cases") };
    let rate = |samples: &Samples| Samples { rounds: samples.rounds.iter().map(|ns| 1e3 / ns).collect() };
    let mut add = |name: &str, samples| report.add(name, "", &rate(samples), "M/s", Bound::None);
    add("rehearsal: 1 MiB in order, 30 TB disk", disk);
    add("rehearsal: sixteen jobs, 1 MiB to 128 zones, 30 TB disk", crowd);
    add("rehearsal: 4 KiB to 14 zones, ZNS SSD", flash);
    add("rehearsal: 64 KiB to 16 zones, disk of 112,000 zones", many);
    let slope = many_beyond.against(few_beyond, |many, few| many / few);
    report.add("  its cost once it is open", "disk of 100 zones", &slope, "times", Bound::AtMost(1.5));
}
