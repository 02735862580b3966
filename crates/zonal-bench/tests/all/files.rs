//! Jobs on files: the file system in real and in virtual time.

use std::sync::Arc;
use std::time::{Duration, Instant};
use zonal_bench::job::JobFile;
use zonal_bench::workload::Dir;
use zonal_bench::{BenchError, BenchOptions, Detail, FilesOptions, MetadataPlace, PlanError, Report, run};
use zonal_fs::format::{FileKind, Metadata, Superblock};
use zonal_fs::store::Rows;
use zonal_fs::store::backend::Memory;
use zonal_fs::waiter::Wait;
use zonal_fs::{FileSystem, MountOptions, NewFile, Payload, ROOT};
use zonal_io::device::Device;
use zonal_io::registry::Registry;
use zonal_io::volume::{Volume, VolumeOptions, WriteMode};
use zonal_sim::Timeline;

/// A small rotational disk: 64 zones of 16 MiB.
const DISK: &str = "sim:smr-hdd-30t,size=1G,zone_size=16M";

fn open(name: &str) -> Arc<dyn Device> {
    let mut registry = Registry::default();
    zonal_sim::register(&mut registry);
    registry.open(name).unwrap_or_else(|e| panic!("{e}"))
}

fn try_run(device: &str, files: FilesOptions, job: &str) -> Result<Report, BenchError> {
    try_run_in(WriteMode::Qd1, device, files, job)
}

fn try_run_in(mode: WriteMode, device: &str, files: FilesOptions, job: &str) -> Result<Report, BenchError> {
    let jobs = JobFile::parse_inline(job.split_whitespace()).unwrap_or_else(|e| panic!("{e}"));
    let mut options = BenchOptions::new(jobs);
    options.modes = vec![mode];
    options.files = Some(files);
    run(&|| Ok(open(device)), &options)
}

fn on(device: &str, files: FilesOptions, job: &str) -> Report {
    let report = try_run(device, files, job).unwrap_or_else(|e| panic!("{e}"));
    assert!(!report.is_failed(), "{}", report.to_text());
    report
}

fn small() -> FilesOptions {
    FilesOptions { unit_bytes: Some(256 << 10), dirty_bytes: 8 << 20, ..FilesOptions::default() }
}

#[test]
fn files_written_in_either_time_are_as_many_and_as_long_as_asked_for() {
    let job = "--name=w --rw=write --bs=64k --numjobs=2 --nrfiles=5 --filesize=100k-300k --end_fsync=1";
    let devices = [DISK, "ram:size=64M,zone_size=1M", "null:size=64M,zone_size=1M,complete=poll"];
    let written = devices.map(|device| {
        let report = on(device, small(), job);
        let files = report.modes[0].files.expect("they are files");
        assert_eq!((files.files, report.modes[0].jobs.len()), (10, 2), "{device}");
        assert_eq!(files.statistics.gc_victims, 0);
        report.modes[0].jobs.iter().map(|job| job.dir(Dir::Write).bytes).collect::<Vec<_>>()
    });
    assert!(written[0].iter().all(|bytes| (500 << 10..1500 << 10).contains(bytes)), "{written:?}");
    assert_eq!(written[0], written[1], "sizes are drawn from the seed");
    assert_eq!(written[1], written[2]);
}

#[test]
fn repeated_virtual_time_run_gives_identical_json() {
    let job = "--name=w --rw=randwrite --bs=1M --numjobs=3 --filesize=1M-4M --end_fsync=1 --fsync=7";
    let files = FilesOptions { fill_percent: Some(60), ..small() };
    let say = || {
        let json = on(DISK, files, job).to_json(Detail::Bins);
        json.lines().filter(|line| !line.contains("\"time")).collect::<Vec<_>>().join("\n")
    };
    let first = say();
    assert!(first.contains("write_amplification"), "{first}");
    assert_eq!(first, say());
}

#[test]
fn random_jobs_transfer_every_block_of_every_file_once_before_any_repeats() {
    let created = |more: &str| {
        let job = format!("--name=w --rw=randwrite --bs=1M --filesize=1M --nrfiles=20 {more}");
        let report = on("null:size=256M,zone_size=4M,complete=poll", small(), &job);
        (report.modes[0].files.unwrap().files, report.modes[0].jobs[0].dir(Dir::Write).bytes >> 20)
    };
    assert_eq!(created("--io_size=50%"), (10, 10));
    assert_eq!(created("--io_size=100%"), (20, 20));
    assert_eq!(created("--io_size=250%"), (20, 50));
    // The blocks of the larger size are cut short where they would run into others.
    let mixed = "--name=m --rw=randrw --rwmixread=0 --bs=4k,16k --filesize=20k --nrfiles=3";
    let report = on("null:size=256M,zone_size=4M,complete=poll", small(), mixed);
    assert_eq!(report.modes[0].jobs[0].dir(Dir::Write).bytes, 60 << 10);
    let (files, written) = created("--norandommap");
    assert!(files < 20 && written == 20, "{files} files by {written} draws with replacement");
}

/// Runs jobs on files with series, in two modes.
fn recorded(files: FilesOptions, job: &str) -> Report {
    let jobs = JobFile::parse_inline(job.split_whitespace()).unwrap();
    let mut options = BenchOptions::new(jobs);
    (options.modes, options.files, options.series) =
        (vec![WriteMode::PerZone, WriteMode::Qd1], Some(files), true);
    run(&|| Ok(open(DISK)), &options).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn write_path_statistics_exclude_the_layout() {
    // Half of the disk is laid out, and 8 MiB of it are overwritten, in units of 256 KiB with one
    // header block each.
    let job = "--name=w --rw=randwrite --bs=1M --filesize=1M --size=8M --end_fsync=1";
    let report = on(DISK, FilesOptions { fill_percent: Some(50), ..small() }, job);
    let mode = &report.modes[0];
    let sectors = mode.statistics.sectors;
    assert!((8 << 11..12 << 11).contains(&sectors), "{sectors} sectors of 8 MiB written");
    let commands = mode.commands_per_write().unwrap();
    assert!((4.0..8.0).contains(&commands), "{commands} commands a write of four units and some");
    let two = "--name=a --rw=randwrite --bs=1M --filesize=1M --size=8M --end_fsync=1 --name=b --stonewall --rw=randwrite \
               --bs=1M --filesize=1M --size=8M --end_fsync=1";
    let both = on(DISK, FilesOptions { fill_percent: Some(20), ..small() }, two).modes[0].statistics.sectors;
    assert!((16 << 11..24 << 11).contains(&both), "{both} sectors of two rounds");
}

#[test]
fn page_of_files_has_charts_over_time_and_the_file_systems_figures() {
    let job = "--name=a --rw=randwrite --bs=1M --numjobs=2 --filesize=1000001 --size=24M --name=b --stonewall --rw=randread --bs=1M \
               --filesize=1M --nrfiles=4 --size=8M";
    let report = recorded(FilesOptions { fill_percent: Some(30), ..small() }, job);
    let page = report.to_html(&zonal_bench::About::default());
    assert!(!page.contains("recorded no series"));
    let piece = |id: &str| -> serde_json::Value {
        let (_, rest) = page.split_once(&format!("<script type=\"application/json\" id=\"{id}\">")).unwrap();
        serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
    };
    let (charts, results) = (piece("series"), piece("results"));
    for (n, mode) in report.modes.iter().enumerate() {
        let of_all = charts["modes"][n]["entries"][0]["dirs"].as_array().unwrap();
        for dir in of_all {
            let kind = if dir["dir"] == "read" { Dir::Read } else { Dir::Write };
            let sum = |of: fn(&zonal_bench::DirReport) -> u64| -> u64 {
                mode.jobs.iter().map(|job| of(job.dir(kind))).sum()
            };
            let points =
                |name: &str| dir["flow"][name].as_array().unwrap().iter().map(|n| n.as_u64().unwrap());
            assert_eq!(points("ios").sum::<u64>(), sum(|dir| dir.ios));
            assert_eq!(points("bytes").sum::<u64>(), sum(|dir| dir.bytes));
            assert!(dir["flow"]["p99"].as_array().unwrap().iter().any(serde_json::Value::is_u64));
        }
        assert_eq!(of_all.len(), 2);
        let last =
            of_all.iter().flat_map(|dir| dir["flow"]["t"].as_array().unwrap()).map(|t| t.as_f64().unwrap());
        // The second job starts when both clones of the first one have ended.
        let elapsed = |job: usize| mode.jobs[job].elapsed.as_secs_f64();
        let measured = elapsed(0).max(elapsed(1)) + elapsed(2);
        assert!(
            last.fold(0.0, f64::max) <= measured * 1.01,
            "time in which files are laid out is not on the axis"
        );
        assert!(!charts["modes"][n]["zones"].as_array().unwrap().is_empty());
        let files = results["zonal"]["modes"][n]["files"].as_object().unwrap();
        for name in ["write_amplification", "victims", "stalls", "stall_max_ns"] {
            let value = format!("<data value=\"{}\">", files[name]);
            let (_, part) = page.split_once("<section id=\"files\">").unwrap();
            assert!(part.split_once("</section>").unwrap().0.contains(&value), "{name}: {value}");
        }
    }
}

#[test]
fn files_are_read_back_where_they_were_laid_out() {
    let job = "--name=r --rw=randrw --bs=64k --numjobs=2 --nrfiles=4 --filesize=512k --size=4M";
    for device in [DISK, "ram:size=64M,zone_size=1M"] {
        let report = on(device, small(), job);
        let job = &report.modes[0].jobs[0];
        assert_eq!(job.dir(Dir::Read).bytes + job.dir(Dir::Write).bytes, 4 << 20, "{device}");
        assert!(job.dir(Dir::Read).bytes > 1 << 20 && job.dir(Dir::Write).bytes > 1 << 20, "{device}");
        assert_eq!(report.modes[0].files.unwrap().files, 0, "they were there");
    }
}

#[test]
fn freed_space_is_shared_fairly_among_writers() {
    let job = "--name=w --rw=write --bs=1M --numjobs=4 --filesize=40M --nrfiles=4 --time_based --runtime=2s";
    let report = on(DISK, FilesOptions { dirty_bytes: 2 << 20, ..small() }, job);
    let bytes = report.modes[0].jobs.iter().map(|job| job.dir(Dir::Write).bytes);
    let (least, most) = (bytes.clone().min().unwrap(), bytes.max().unwrap());
    assert!(least * 10 > most * 7 && least > 16 << 20, "{least} and {most} bytes");
}

#[test]
fn options_of_the_other_target_are_refused() {
    let of_zones = try_run(DISK, small(), "--name=w --rw=write --zonemode=zbd --filesize=1M").unwrap_err();
    assert!(
        matches!(of_zones, BenchError::Plan { error: PlanError::NotOfFiles { option: "zonemode" }, .. }),
        "{of_zones}"
    );
    let sizeless = try_run(DISK, small(), "--name=w --rw=write").unwrap_err();
    assert!(matches!(sizeless, BenchError::Plan { error: PlanError::NoFileSize, .. }), "{sizeless}");
    let large = try_run(DISK, small(), "--name=w --rw=write --filesize=1G --nrfiles=3").unwrap_err();
    assert!(matches!(large, BenchError::Plan { error: PlanError::FilesAboveRoom { .. }, .. }), "{large}");
    for option in ["--nrfiles=2", "--filesize=1M-2M", "--overwrite=1"] {
        let jobs = JobFile::parse_inline(["--name=w", "--rw=write", "--zonemode=zbd", option]).unwrap();
        let error = run(&|| Ok(open(DISK)), &BenchOptions::new(jobs)).unwrap_err();
        assert!(
            matches!(error, BenchError::Plan { error: PlanError::OfFiles { .. }, .. }),
            "{option}: {error}"
        );
    }
}

/// Write amplification of greedy garbage collection under uniform random overwrites of small
/// pieces, with a live share of `alpha`: Desnoyers, "Analytic modeling of SSD write performance"
/// (SYSTOR 2012). For zones of many pieces it is 1 / (1 - x), where x is the live share of a victim
/// and solves x = exp(-(1 - x) / alpha).
fn greedy(alpha: f64) -> f64 {
    let mut live = alpha;
    for _ in 0..200 {
        live = f64::exp(-(1.0 - live) / alpha);
    }
    1.0 / (1.0 - live)
}

#[test]
fn closed_form_of_greedy_collecting_is_the_published_one() {
    assert!((greedy(0.8) - 2.69).abs() < 0.05, "{}", greedy(0.8));
    assert!((greedy(0.5) - 1.26).abs() < 0.03, "{}", greedy(0.5));
}

#[test]
fn streaming_writes_reach_the_rate_of_the_medium() {
    let job = "--name=w --rw=write --bs=1M --filesize=1G --nrfiles=4 --end_fsync=1";
    let report = on("sim:smr-hdd-30t", FilesOptions::default(), job);
    // Outer rate of the profile.
    let media = 246e6;
    let rate = report.modes[0].jobs[0].dir(Dir::Write).bandwidth_bytes();
    assert!(rate >= 0.97 * media, "{:.1} of {:.1} MB/s", rate / 1e6, media / 1e6);
}

#[test]
fn writers_of_large_files_at_the_same_time_lose_little_to_moves_of_the_head() {
    let job = "--name=w --rw=write --bs=1M --numjobs=8 --filesize=256M --end_fsync=1 --group_reporting";
    let report = on("sim:smr-hdd-30t", FilesOptions::default(), job);
    let rate = report.modes[0].jobs[0].dir(Dir::Write).bandwidth_bytes();
    assert!(rate >= 0.96 * 246e6, "{:.1} MB/s", rate / 1e6);
}

/// Live share of the zones that are not kept free.
fn live_share(report: &Report, data_of_zone: f64) -> f64 {
    let files = report.modes[0].files.unwrap();
    let usage = files.usage.unwrap();
    usage.used as f64 / (f64::from(usage.zones - usage.free_zones) * data_of_zone)
}

#[test]
fn random_overwriting_at_80_percent_copies_as_little_as_greedy_collecting_must() {
    let files = FilesOptions { fill_percent: Some(80), max_open_zones: Some(6), ..small() };
    let job = "--name=o --rw=randwrite --bs=1M --numjobs=4 --filesize=1M --norandommap --end_fsync=1";
    let report = on("sim:smr-hdd-30t,size=8G,zone_size=64M", files, job);
    let part = report.modes[0].files.unwrap();
    assert!(part.statistics.gc_victims > 10, "{}", report.to_text());
    let share = live_share(&report, f64::from(64 << 8) * 63.0 / 64.0);
    let (found, bound) = (part.statistics.write_amplification(), greedy(share));
    assert!(found < 1.3 * bound, "{found:.3}, {bound:.3} at {share:.3}: {}", report.to_text());
}

/// Slow: simulates a full disk of 30 TB.
#[test]
fn no_call_takes_a_second_while_a_full_disk_is_overwritten_at_random() {
    let runs = [
        (WriteMode::Qd1, 4, "1M", "1M"),
        (WriteMode::Qd1, 8, "1M", "1M"),
        (WriteMode::Qd1, 8, "64k", "64M"),
        (WriteMode::Qd1, 16, "1M", "1M"),
        (WriteMode::Qd1, 16, "1M", "64M"),
        (WriteMode::PerZone, 4, "1M", "1M"),
        (WriteMode::PerZone, 8, "1M", "1M"),
    ];
    for (mode, jobs, block, file) in runs {
        let files = FilesOptions { fill_percent: Some(80), ..FilesOptions::default() };
        let job = format!(
            "--name=o --rw=randwrite --bs={block} --numjobs={jobs} --filesize={file} --io_size=60% --end_fsync=1",
        );
        let report = try_run_in(mode, "sim:smr-hdd-30t,size=12G", files, &job).unwrap();
        assert!(!report.is_failed(), "{}", report.to_text());
        let counted = report.modes[0].files.unwrap().statistics;
        assert!(counted.gc_victims > 5 && counted.stalls > 0, "{}", report.to_text());
        let longest = report.modes[0]
            .jobs
            .iter()
            .map(|job| job.dir(Dir::Write).clat.as_ref().unwrap().max())
            .max()
            .unwrap();
        assert!(counted.stall_nanos_max < 1_000_000_000 && longest < 1_000_000_000, "{}", report.to_text());
    }
}

/// Four jobs that sync, and the collector. Each may enter the database while another one waits
/// inside.
#[test]
fn metadata_on_a_simulated_drive_take_its_time_and_say_the_same_each_time() {
    let jobs =
        "--name=s --rw=randwrite --bs=16k --filesize=8M --nrfiles=4 --numjobs=4 --io_size=4M --fsync=4";
    for device in ["sim:smr-hdd-30t,size=32G,keep=data", "sim:zns-1t,size=32G,keep=data"] {
        let run_with = |metadata| {
            let files = FilesOptions { metadata, ..FilesOptions::default() };
            let mut options = BenchOptions::new(JobFile::parse_inline(jobs.split(' ')).unwrap());
            options.files = Some(files);
            let report = run(&|| Ok(open(device)), &options).unwrap();
            assert!(!report.is_failed(), "{}", report.to_text());
            report
        };
        let took = |report: &Report| report.modes[0].jobs[0].elapsed;
        let [memory, drive] = [MetadataPlace::Memory, MetadataPlace::Drive].map(run_with);
        assert!(took(&drive) > took(&memory), "{device}: {:?}, {:?}", took(&drive), took(&memory));
        let commands = |report: &Report| report.modes[0].statistics.commands;
        // Jobs that sync at the same time share a commit.
        let (drive_commands, memory_commands) = (commands(&drive), commands(&memory));
        let syncs = 4 * (4 << 20) / (16 << 10) / 4;
        assert!(
            drive_commands > memory_commands + syncs / 4,
            "{device}: a commit writes: {drive_commands}, {memory_commands}"
        );
        let again = run_with(MetadataPlace::Drive);
        assert_eq!((took(&again), commands(&again)), (took(&drive), commands(&drive)), "{device}");
    }
}

#[test]
fn metadata_on_a_drive_that_keeps_no_data_are_refused() {
    let mut options = BenchOptions::new(
        JobFile::parse_inline(["--name=s", "--rw=write", "--bs=16k", "--filesize=1M", "--nrfiles=1"])
            .unwrap(),
    );
    options.files = Some(FilesOptions { metadata: MetadataPlace::Drive, ..FilesOptions::default() });
    let error = run(&|| Ok(open("sim:zns-1t,size=32G")), &options).unwrap_err();
    assert!(error.to_string().contains("keep=data"), "{error}");
}

/// Waiter of the only thread on a drive in virtual time. It jumps to the next event of the drive.
struct Jumping(Timeline);

impl Wait for Jumping {
    fn now(&self) -> zonal_core::Nanos {
        self.0.now()
    }

    fn wall(&self) -> i64 {
        self.now().0 as i64
    }

    fn wait(&self, _: &Volume) {
        let due = self.0.poll();
        self.0.advance(due, None, zonal_core::Nanos(u64::MAX)).unwrap();
    }

    fn done(&self) {
        self.0.has_news();
    }
}

fn million(volume: &Arc<Volume>, rows: Rows, waiter: &Jumping) -> FileSystem {
    let superblock = superblock_of(volume);
    FileSystem::open(volume.clone(), rows, superblock, MountOptions::default(), false, waiter).unwrap()
}

fn superblock_of(volume: &Volume) -> Superblock {
    let geometry = &volume.info().geometry;
    Superblock {
        uuid: [7; 16],
        sectors: geometry.sectors().0,
        zone_sectors: geometry.zone_size().0,
        capacity_sectors: geometry.zone_capacity().0,
        unit_blocks: 256,
        first_zone: 0,
        metadata: Metadata::Beside,
        is_summed: true,
        reserved_blocks: 0,
        label: String::new(),
    }
}

/// Cache of the database for its rows.
const CACHE: usize = 64 << 20;

/// Number of files for the figures below: `ZONAL_FILES`, or fewer than a million in a debug build,
/// as the bounds are per file.
fn files() -> u64 {
    let wanted = std::env::var("ZONAL_FILES").map(|files| files.parse().expect("ZONAL_FILES is a number"));
    wanted.unwrap_or(if cfg!(debug_assertions) { 100_000 } else { 1_000_000 })
}

/// Slow: creates a million files.
#[test]
fn million_files_take_less_than_400_mib_and_a_30_tb_drive_with_them_opens_in_two_seconds() {
    let files = files();
    let options = VolumeOptions::default().without_budget();
    let volume = Arc::new(Volume::open(open("sim:smr-hdd-30t"), options).unwrap());
    let (waiter, memory) = (Jumping(Timeline::new(volume.clone())), Memory::new());
    let mut rows = Rows::open(memory.clone(), CACHE).unwrap();
    FileSystem::make(&mut rows, &superblock_of(&volume), &waiter).unwrap();
    let fs = million(&volume, rows, &waiter);
    for n in 0..files {
        let name = format!("file number {n}");
        let ino = fs.create(&waiter, ROOT, name.as_bytes(), &NewFile::new(FileKind::File, 0o644)).unwrap();
        fs.write(&waiter, ino, 0, Payload::Length(16 << 10)).unwrap();
        if n % 10_000 == 9_999 {
            fs.sync(&waiter).unwrap();
        }
    }
    fs.sync(&waiter).unwrap();
    drop(fs);
    // Total memory: the rows, which are in memory here, and the cache of the database.
    let bytes = memory.footprint() * 1_000_000 / files + CACHE as u64;
    assert!(bytes < 400 << 20, "{} MiB a million files", bytes >> 20);
    let begin = Instant::now();
    let fs = million(&volume, Rows::open(memory.clone(), CACHE).unwrap(), &waiter);
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(
        fs.resolve(b"file number 77").ok().map(|ino| fs.attributes(ino).unwrap().size),
        Some(16 << 10)
    );
    println!("{} MiB a million files, opened in {took:?}", bytes >> 20);
}
