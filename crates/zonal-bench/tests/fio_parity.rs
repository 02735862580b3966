//! Runs jobs in fio, on zones that it emulates in a file, and in zonal: the numbers of reads,
//! writes and resets have to agree.
//!
//! fio uses an asynchronous engine, because with its synchronous engines a pass does not end at the
//! job's size.

mod support;

use std::process::Command;
use support::{Fault, job, jobs, memory, null, output_of, run_on, try_run};
use zonal_bench::job::JobFile;
use zonal_bench::workload::Dir;
use zonal_io::emulated::EmulatedOptions;
use zonal_io::volume::WriteMode;

/// Number of zones of the drive, of 1 MiB each.
const ZONES: u64 = 32;

/// Reads, writes and resets of each job.
type Counts = Vec<(u64, u64, u64)>;

/// Output of fio for `arguments` without a device; `None` if it is not installed.
fn by_fio_alone(arguments: &str) -> Option<String> {
    let output = output_of(
        Command::new("fio")
            .args(["--name=j", "--ioengine=null", "--output-format=normal"])
            .args(arguments.split_whitespace()),
    )?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {errors}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Runs `arguments` on a null device of zonal.
fn by_us_alone(arguments: &str) -> zonal_bench::JobReport {
    let device = null(&EmulatedOptions::default().with_size(8 << 30).with_zone_nr_conv(16));
    job(&run_on(&device, WriteMode::PerZone, &format!("--name=j {arguments}")), 0).clone()
}

/// Number of reads and writes in fio's report.
fn issued(text: &str) -> [u64; 2] {
    let (_, rest) = text.split_once("issued rwts: total=").expect("fio did something");
    let mut numbers = rest.split(',').map(|n| n.parse().unwrap());
    [numbers.next().unwrap(), numbers.next().unwrap()]
}

/// Asserts that `found` is within `percent` percent of `expected`.
#[track_caller]
fn assert_near(what: &str, found: f64, expected: f64, percent: f64) {
    let is_near = (found - expected).abs() <= expected.abs() * percent / 100.0;
    assert!(is_near, "{what}: {found} here, {expected} by fio");
}

/// Runs `arguments` in fio; `None` if it is not installed.
fn by_fio(capacity: u64, arguments: &str) -> Option<Counts> {
    let directory = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(directory.path().join("drive")).unwrap();
    file.set_len(ZONES << 20).unwrap();
    let output = output_of(
        Command::new("fio")
            .args(["--filename=drive", "--ioengine=posixaio", "--thread", "--output-format=normal"])
            .args(["--zonemode=zbd", "--zonesize=1M", &format!("--zonecapacity={capacity}")])
            .args(arguments.split_whitespace())
            .current_dir(directory.path()),
    )?;
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    let mut counts = Vec::new();
    let mut resets = 0;
    for line in text.lines() {
        if let Some((before, _)) = line.split_once(" zone resets") {
            resets = before.rsplit(' ').next().unwrap().parse().unwrap();
        }
        if let Some(issued) = line.trim().strip_prefix("issued rwts: total=") {
            let mut numbers = issued.split([',', ' ']).map(|n| n.parse::<u64>().unwrap());
            counts.push((numbers.next().unwrap(), numbers.next().unwrap(), std::mem::take(&mut resets)));
        }
    }
    Some(counts)
}

fn by_us(capacity: u64, arguments: &str, mode: WriteMode) -> Counts {
    let options = EmulatedOptions::default()
        .with_size(ZONES << 20)
        .with_zone_size(1 << 20)
        .with_zone_capacity(capacity);
    let device = memory(&options, Fault::None);
    let report = run_on(&device, mode, &format!("--zonemode=zbd --zonesize=1M {arguments}"));
    (0..report.modes[0].jobs.len())
        .map(|n| job(&report, n))
        .map(|job| (job.dir(Dir::Read).ios, job.dir(Dir::Write).ios, job.resets))
        .collect()
}

fn agree(capacity: u64, arguments: &str) {
    let Some(theirs) = by_fio(capacity, arguments) else { return };
    assert!(theirs.iter().any(|counts| counts.0 + counts.1 > 0), "fio did nothing: {arguments}");
    for mode in [WriteMode::Direct, WriteMode::PerZone, WriteMode::Append] {
        assert_eq!(by_us(capacity, arguments, mode), theirs, "{mode}: {arguments}");
    }
}

const WHOLE: u64 = 1 << 20;

#[test]
fn sequential_writes_fill_reset_and_fill_again() {
    for capacity in [WHOLE, 768 << 10] {
        agree(capacity, "--name=a --rw=write --bs=64k --size=8z");
        agree(capacity, "--name=a --rw=write --bs=64k --size=8z --loops=3");
        agree(
            capacity,
            "--name=a --rw=write --bs=64k --size=8z --name=b --stonewall --rw=write --bs=32k --size=12z",
        );
        agree(capacity, "--name=a --rw=write --bs=64k --size=4z --io_size=2z");
        agree(capacity, "--name=a --rw=write --bs=64k --offset=3z --size=4z --max_open_zones=1");
    }
}

#[test]
fn amounts_beyond_the_range_go_round() {
    agree(WHOLE, "--name=a --rw=write --bs=64k --size=4z --io_size=10z");
    agree(
        WHOLE,
        "--name=w --rw=write --bs=64k --size=4z --name=a --stonewall --rw=read --bs=64k --size=4z --io_size=6z",
    );
}

#[test]
fn random_writes_with_a_map_hit_as_many_blocks() {
    agree(WHOLE, "--name=a --rw=randwrite --bs=64k --size=8z");
    agree(WHOLE, "--name=a --rw=randwrite --bs=64k --size=8z --max_open_zones=3");
    agree(WHOLE, "--name=a --rw=randwrite --bs=128k --size=8z --numjobs=1 --loops=2");
}

#[test]
fn limits_of_open_zones_hold_per_job_too() {
    agree(
        WHOLE,
        "--name=a --rw=write --bs=64k --size=8z --loops=2 --max_open_zones=4 --job_max_open_zones=1",
    );
    let limits = "--max_open_zones=4 --job_max_open_zones=2";
    for arguments in [
        format!("--name=a --rw=randwrite --bs=64k --size=8z {limits}"),
        format!(
            "--name=a --rw=randwrite --bs=64k --size=8z {limits} --name=b --rw=write --bs=64k --offset=8z --size=4z"
        ),
        "--name=a --rw=randwrite --bs=64k --size=8z --max_open_zones=3 --ignore_zone_limits=1".to_owned(),
    ] {
        // The choice of zones after they are full depends on the random number generator.
        let without_resets = |counts: Counts| counts.into_iter().map(|(r, w, _)| (r, w)).collect::<Vec<_>>();
        let Some(theirs) = by_fio(WHOLE, &arguments) else { return };
        let ours = by_us(WHOLE, &arguments, WriteMode::PerZone);
        assert_eq!(without_resets(ours), without_resets(theirs), "{arguments}");
    }
}

/// In fio, too, this limit requires an overall limit, which its message says.
#[test]
fn limit_of_a_job_alone_is_refused_by_both() {
    let arguments = "--name=a --rw=write --bs=64k --size=8z --job_max_open_zones=2";
    let directory = tempfile::tempdir().unwrap();
    let drive = directory.path().join("drive");
    std::fs::File::create(&drive).unwrap().set_len(ZONES << 20).unwrap();
    let output = output_of(
        Command::new("fio")
            .args(["--filename=drive", "--ioengine=posixaio", "--thread", "--zonemode=zbd", "--zonesize=1M"])
            .args(arguments.split_whitespace())
            .current_dir(directory.path()),
    );
    let Some(output) = output else { return };
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot be used without a global open zones limit"), "{said}");
    let options = EmulatedOptions::default().with_size(ZONES << 20).with_zone_size(1 << 20);
    let device = memory(&options, Fault::None);
    let ours = try_run(&device, &[WriteMode::PerZone], &format!("--zonemode=zbd {arguments}")).unwrap_err();
    assert!(ours.to_string().contains("job_max_open_zones needs an overall limit"), "{ours}");
}

#[test]
fn reads_cover_exactly_the_written_data() {
    for capacity in [WHOLE, 512 << 10] {
        let fill = "--name=w --rw=write --bs=64k --offset=2z --size=3z --io_size=1600k";
        agree(capacity, &format!("{fill} --name=r --stonewall --rw=read --bs=64k --size=10z"));
        agree(capacity, &format!("{fill} --name=r --stonewall --rw=randread --bs=64k --offset=0 --size=10z"));
    }
}

#[test]
fn reads_beyond_the_pointer_cover_the_range() {
    agree(
        WHOLE,
        "--name=w --rw=write --bs=64k --size=1z --name=r --stonewall --rw=read --bs=64k --size=4z --read_beyond_wp=1",
    );
}

#[test]
fn resets_by_frequency_are_as_many() {
    agree(
        WHOLE,
        "--name=a --rw=write --bs=64k --size=8z --io_size=16z --zone_reset_threshold=.25 --zone_reset_frequency=.1",
    );
}

#[test]
fn verified_writes_are_read_back_as_often() {
    agree(WHOLE, "--name=a --rw=write --bs=64k --size=4z --verify=crc32c");
    agree(WHOLE, "--name=a --rw=write --bs=64k --size=4z --verify=crc32c --loops=2");
    agree(WHOLE, "--name=a --rw=write --bs=64k --size=4z --verify=crc32c --do_verify=0");
}

#[test]
fn flushes_are_issued_between_writes() {
    agree(WHOLE, "--name=a --rw=write --bs=64k --size=2z --fsync=4");
}

/// Parses a size in bytes as printed by fio in the line of a job.
fn bytes(text: &str) -> u32 {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap());
    let unit = match unit {
        "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1048576.0,
        unit => panic!("{unit}"),
    };
    (number.parse::<f64>().unwrap() * unit).round() as u32
}

#[test]
fn bounds_of_block_sizes_are_read_alike() {
    for arguments in [
        "--bs=8k",
        "--bs=8k,16k",
        "--bs=,16k",
        "--bsrange=4k-64k",
        "--bsrange=64k:4k,8k-32k",
        "--bs=16k --bsrange=,4k-8k",
        "--bs=16k --bsrange=4k-8k,",
        "--bssplit=4k/10:64k/50:32k/40",
        "--bssplit=2k/50:4k/50,4k/90:8k/10",
        "--bssplit=2k/50:4k/50,4k/90:8k/10,1k",
        "--bs=16k --bssplit=,4k/90:8k",
        "--bsrange=1k-2k --bssplit=4k/90:8k,",
        "--bssplit=4k:64k/100",
    ] {
        let Some(text) = by_fio_alone(&format!("--size=1m {arguments}")) else { return };
        let line = text.split_once("bs=(R) ").unwrap().1;
        let read = line.split(',').next().unwrap();
        let write = line.split_once("(W) ").unwrap().1.split(',').next().unwrap();
        let pair = |text: &str| text.split_once('-').map(|(min, max)| (bytes(min), bytes(max))).unwrap();
        let ours = jobs(&format!("--name=j {arguments}"));
        let spec = &ours.jobs()[0].spec;
        let (min, max) = (spec.block_min(), spec.block_max());
        assert_eq!((min.read, max.read), pair(read), "{arguments}");
        assert_eq!((min.write, max.write), pair(write), "{arguments}");
    }
}

/// Sizes are drawn by different generators. The numbers of requests agree by the law of large
/// numbers.
#[test]
fn drawn_sizes_have_the_same_mean() {
    let size = "--rw=randrw --norandommap --size=2g";
    for mix in [
        "--bsrange=4k-16k",
        "--bsrange=4k-10k",
        "--bsrange=4k-8k,16k-64k",
        "--bssplit=4k/10:64k/50:32k/40",
        "--bssplit=4k/20:8k/30",
        "--bssplit=6k/50:18k/50",
        "--bssplit=4k/50:1k/:32k/",
        "--bssplit=2k/50:4k/50,4k/90:8k/10",
        "--bssplit=4k/98:8k:16k:32k",
        "--rwmixread=70 --bs=4k,8k",
        "--rwmixwrite=70 --bs=4k,8k",
    ] {
        let Some(text) = by_fio_alone(&format!("{size} {mix}")) else { return };
        let ours = by_us_alone(&format!("{size} {mix}"));
        for (dir, theirs) in [Dir::Read, Dir::Write].into_iter().zip(issued(&text)) {
            assert_near(&format!("{dir:?} {mix}"), ours.dir(dir).ios as f64, theirs as f64, 2.0);
        }
    }
}

/// The bytes per zone do not depend on the sizes of the requests.
#[test]
fn drawn_sizes_fill_and_reset_as_many_zones() {
    for arguments in [
        "--name=a --rw=write --bssplit=16k/20:64k/40:128k/40 --size=4z --io_size=12z",
        "--name=a --rw=write --bsrange=64k-256k --size=8z --loops=3",
    ] {
        let Some(theirs) = by_fio(WHOLE, arguments) else { return };
        let ours = by_us(WHOLE, arguments, WriteMode::PerZone);
        assert_eq!(ours[0].2, theirs[0].2, "resets: {arguments}");
        assert_near(arguments, ours[0].1 as f64, theirs[0].1 as f64, 15.0);
    }
}

/// Runtime of a job in seconds, according to fio.
fn seconds(text: &str) -> f64 {
    let (before, _) = text.split_once("msec)").expect("a job ran");
    let (_, milliseconds) = before.rsplit_once('/').unwrap();
    milliseconds.parse::<f64>().unwrap() / 1000.0
}

/// Asserts that requests and seconds of a job agree with fio's. Compares medians of alternating
/// rounds, since a busy machine may delay one of them.
#[track_caller]
fn agree_in_time(arguments: &str) {
    const ROUNDS: usize = 3;
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let Some(text) = by_fio_alone(arguments) else { return };
        theirs.push([issued(&text).iter().sum::<u64>() as f64, seconds(&text)]);
        let report = by_us_alone(arguments);
        let ios = report.dir(Dir::Read).ios + report.dir(Dir::Write).ios;
        ours.push([ios as f64, report.elapsed.as_secs_f64()]);
    }
    let median = |rounds: &[[f64; 2]], of: usize| {
        let mut rounds: Vec<f64> = rounds.iter().map(|round| round[of]).collect();
        rounds.sort_by(f64::total_cmp);
        rounds[ROUNDS / 2]
    };
    for of in 0..2 {
        let (ours_median, theirs_median) = (median(&ours, of), median(&theirs, of));
        assert!(
            (ours_median - theirs_median).abs() <= 0.08 * theirs_median,
            "{arguments}: [requests, seconds] here {ours:?} and by fio {theirs:?}"
        );
    }
}

// Without thinktime_spin: fio 3.33 sleeps forever if it spins for longer than the whole pause.
#[test]
fn rates_and_pauses_take_the_same_time() {
    for arguments in [
        "--rw=write --size=512k --rate=1m",
        "--rw=read --size=512k --rate_iops=200",
        "--rw=read --size=1m --rate_iops=100 --bssplit=8k:32k/100",
        "--rw=write --size=512k --rate=100m,1m",
        "--rw=write --size=200k --thinktime=10000",
        "--rw=write --size=400k --thinktime=10ms --thinktime_blocks=4",
        "--rw=write --size=200k --thinktime=10ms --rate_iops=100",
        "--rw=write --size=400k --thinktime=100ms --thinktime_blocks=50 --rate_iops=200",
        "--rw=read --time_based --runtime=1 --size=1m --thinktime=10ms --thinktime_iotime=300ms --rate_iops=500",
    ] {
        agree_in_time(arguments);
    }
}

#[test]
fn rates_of_a_mixed_job_give_the_same_shares() {
    for arguments in [
        "--rw=rw --size=2m --rate=1m,2m",
        "--rw=rw --size=1m --rate_iops=300,100",
        "--rw=randrw --norandommap --size=1m --rate_iops=,100 --rwmixread=70",
    ] {
        let Some(text) = by_fio_alone(arguments) else { return };
        let ours = by_us_alone(arguments);
        let [read, write] = issued(&text);
        assert_near(&format!("reads of {arguments}"), ours.dir(Dir::Read).ios as f64, read as f64, 6.0);
        assert_near(&format!("writes of {arguments}"), ours.dir(Dir::Write).ios as f64, write as f64, 6.0);
    }
}

#[test]
fn rate_below_its_bound_fails_after_as_many_requests() {
    let arguments = "--rw=write --size=8m --thinktime=10ms --rate_iops_min=200";
    let output = output_of(
        Command::new("fio")
            .args(["--name=j", "--ioengine=null", "--output-format=normal"])
            .args(arguments.split_whitespace()),
    );
    let Some(output) = output else { return };
    assert!(!output.status.success(), "fio is content");
    let theirs = issued(&String::from_utf8_lossy(&output.stdout))[1] as f64;
    let device = null(&EmulatedOptions::default().with_size(8 << 30).with_zone_nr_conv(16));
    let report = run_on(&device, WriteMode::PerZone, &format!("--name=j {arguments}"));
    let ours = &report.modes[0].jobs[0];
    assert!(matches!(ours.failure, Some(zonal_bench::Failure::TooSlow(_))), "{:?}", ours.failure);
    assert_near("requests", ours.dir(Dir::Write).ios as f64, theirs, 25.0);
}

#[test]
fn ramp_takes_as_much_away() {
    for arguments in [
        "--rw=write --size=8m --rate_iops=1000 --ramp_time=1",
        "--rw=write --size=2m --rate_iops=1000 --ramp_time=5",
        "--rw=read --size=8m --rate_iops=1000 --ramp_time=500ms --time_based --runtime=1",
    ] {
        agree_in_time(arguments);
    }
}

/// fio prints the options of a job file as a command line, including those of included files.
#[test]
fn files_are_included_alike() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    std::fs::create_dir_all(directory.path().join("jobs/sub")).unwrap();
    write(
        "jobs/a.fio",
        "[global]\ninclude g.fio\n[x]\nbs=4k\ninclude sub/b.fio\niodepth=2\n[y]\ninclude c.fio\n",
    );
    write("jobs/g.fio", "; defaults\nrw=write\niodepth=8\n# more\nsize=1m\n");
    write("jobs/sub/b.fio", "bs=8k\niodepth=4\ninclude d.fio");
    write("jobs/sub/d.fio", "numjobs=3\n");
    write("c.fio", "loops=2\n");
    write("jobs/c.fio", "loops=3\n");
    let source = directory.path().join("jobs/a.fio");
    let output = output_of(Command::new("fio").arg("--showcmd").arg(&source).current_dir(directory.path()));
    let Some(output) = output else { return };
    let command = String::from_utf8(output.stdout).unwrap();
    let arguments: Vec<&str> = command.split_whitespace().skip(1).collect();
    let mut theirs = JobFile::parse_inline(&arguments).unwrap();
    let text = std::fs::read_to_string(&source).unwrap();
    // The plain name is looked up in the current directory, which this test does not change.
    let text =
        text.replace("include c.fio", &format!("include {}", directory.path().join("c.fio").display()));
    let ours = JobFile::parse(&text, source.to_str().unwrap()).unwrap();
    assert!(theirs.specs().eq(ours.specs()), "{command}\n{}", ours.to_canonical());
    theirs.override_option("loops", "1").unwrap();
    assert!(!theirs.specs().eq(ours.specs()));
}

/// Lines of a log without their times, and without the meaningless addresses of flushes.
fn lines(log: &str) -> Vec<String> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            [_, file, what @ ("sync" | "datasync"), ..] => format!("{file} {what}"),
            [_, rest @ ..] => rest.join(" "),
            [] => String::new(),
        }
    };
    log.lines().map(line).collect()
}

#[test]
fn log_of_a_job_has_the_same_lines() {
    for arguments in [
        "--name=a --rw=write --bs=64k --size=4z",
        "--name=a --rw=write --bs=64k --size=2z --loops=3",
        "--name=a --rw=write --bs=128k --size=2z --fsync=3",
        "--name=a --rw=write --bs=128k --size=2z --fdatasync=5",
        "--name=a --rw=write --bs=256k --size=3z --verify=crc32c",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(directory.path().join("drive")).unwrap();
        file.set_len(ZONES << 20).unwrap();
        let output = output_of(
            Command::new("fio")
                .args(["--filename=drive", "--ioengine=posixaio", "--thread", "--write_iolog=log"])
                .args(["--zonemode=zbd", "--zonesize=1M"])
                .args(arguments.split_whitespace())
                .current_dir(directory.path()),
        );
        let Some(output) = output else { return };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let theirs = std::fs::read_to_string(directory.path().join("log")).unwrap();
        for mode in [WriteMode::PerZone, WriteMode::Append] {
            let log = directory.path().join(format!("log.{mode}"));
            let arguments = format!("--filename=drive --write_iolog={} {arguments}", log.display());
            by_us(WHOLE, &arguments, mode);
            assert_eq!(lines(&std::fs::read_to_string(log).unwrap()), lines(&theirs), "{mode}: {arguments}");
        }
    }
}

#[test]
fn log_is_replayed_by_fio() {
    for arguments in [
        "--name=a --rw=randrw --bs=16k --size=8z --io_size=12z --norandommap --fsync=32 --iodepth=4",
        "--name=a --rw=randwrite --bsrange=4k-64k --size=4z --loops=2 --max_open_zones=2",
        "--name=a --rw=randwrite --bssplit=4k/50:32k --size=4z --rate_iops=2000 --thinktime=1ms --thinktime_blocks=100",
    ] {
        for mode in [WriteMode::Direct, WriteMode::PerZone, WriteMode::Append] {
            let directory = tempfile::tempdir().unwrap();
            let file = std::fs::File::create(directory.path().join("drive")).unwrap();
            file.set_len(ZONES << 20).unwrap();
            let log = directory.path().join("log");
            let ours =
                by_us(WHOLE, &format!("--filename=drive --write_iolog={} {arguments}", log.display()), mode);
            let output = output_of(
                Command::new("fio")
                    .args(["--name=r", "--ioengine=psync", "--read_iolog=log", "--replay_no_stall=1"])
                    .current_dir(directory.path()),
            );
            let Some(output) = output else { return };
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{said}");
            let theirs = issued(&String::from_utf8_lossy(&output.stdout));
            assert_eq!(theirs, [ours[0].0, ours[0].1], "{mode}: {arguments}");
        }
    }
}
