//! Verification detects the errors of a device, and reports none on a correct one.

use crate::support;
use crate::support::{Fault, ZONE, job, jobs, memory, null, options, polled, run_as, run_on, try_run};
use std::sync::Arc;
use zonal_bench::verify::{Found, Mismatch, VerifyReport};
use zonal_bench::workload::Dir;
use zonal_bench::{BenchError, BenchOptions, Failure, HostRules, Reopen, Report, run};
use zonal_core::{Op, Sector, ZoneIndex};
use zonal_io::device::Device;
use zonal_io::emulated::{Emulated, Ram};
use zonal_io::fault::{Plan, PlanMismatch};
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};
use zonal_io::volume::WriteMode;

const MODES: [WriteMode; 3] = [WriteMode::Direct, WriteMode::PerZone, WriteMode::Append];
const ZONE_SECTORS: u64 = ZONE / 512;

fn verified(report: &Report) -> &VerifyReport {
    report.modes[0].verify.as_ref().expect("the jobs are verified")
}

#[test]
fn good_device_verifies_with_many_jobs_at_depth_32_in_every_mode() {
    for mode in MODES {
        let device = memory(&polled(), Fault::None);
        // The random jobs can open at most 10 zones, so that the limit leaves two for the others.
        // As in fio, a job also ends if every zone of the limit is held by jobs that have ended.
        let arguments = "--verify=crc32c --zonemode=zbd --iodepth=32 --group_reporting --offset=4z \
                         --max_open_zones=12 --name=seq --rw=write --bs=16k --size=8z --numjobs=2 --offset_increment=8z \
                         --name=rand --rw=randwrite --bs=4k --offset=24z --size=10z --numjobs=3 --io_size=3M \
                         --norandommap";
        let report = run_on(&device, mode, arguments);
        let done = job(&report, 0);
        let written = done.dir(Dir::Write);
        let read = done.dir(Dir::Read);
        assert_eq!(
            (written.ios, read.ios),
            (2 * 8 * 64 + 3 * 768, written.ios),
            "{mode}: each block is read back"
        );
        let verify = verified(&report);
        assert_eq!((verify.blocks, verify.gone, verify.mismatches), (written.ios, 0, 0), "{mode}");
        assert_eq!(verify.bytes, written.bytes, "{mode}");
    }
}

#[test]
fn good_device_verifies_where_all_jobs_append_to_the_same_zones() {
    // All jobs write concurrently, and the write path has to keep the order.
    for mode in [WriteMode::PerZone, WriteMode::Append] {
        let device = memory(&polled(), Fault::None);
        let arguments = "--name=same --verify=crc32c --zonemode=zbd --rw=write --bs=4k --offset=4z --size=4z \
                         --io_size=512k --numjobs=8 --iodepth=32 --group_reporting";
        let report = run_as(&device, mode, HostRules::Zonal, arguments);
        assert_eq!(job(&report, 0).dir(Dir::Write).ios, 8 * 128);
        assert_eq!((verified(&report).blocks, verified(&report).mismatches), (8 * 128, 0));
    }
}

#[test]
fn repeated_passes_verify_each_and_the_last_stays() {
    let device = memory(&polled(), Fault::None);
    let arguments = "--name=v --verify=crc32c --zonemode=zbd --rw=write --bs=64k --offset=4z --size=2z --loops=3 --iodepth=4";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    let job = job(&report, 0);
    assert_eq!((job.dir(Dir::Write).ios, job.dir(Dir::Read).ios, job.resets), (96, 96, 4));
    assert_eq!((verified(&report).blocks, verified(&report).gone), (32, 64));
}

#[test]
fn overwritten_conventional_zones_verify() {
    let device = memory(&polled(), Fault::None);
    let arguments = "--name=c --verify=crc32c --rw=randwrite --bs=4k --size=512k --norandommap --io_size=4M --numjobs=3 \
                     --iodepth=16 --group_reporting";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    assert_eq!(job(&report, 0).dir(Dir::Write).ios, 3 * 1024);
    let verify = verified(&report);
    assert_eq!((verify.blocks, verify.mismatches), (128, 0), "each place once");
}

#[test]
fn reads_of_a_later_job_are_checked_too() {
    let device = memory(&options(), Fault::None);
    let arguments = "--verify=crc32c --zonemode=zbd --bs=64k --offset=4z --size=2z --name=w --rw=write --do_verify=0 \
                     --name=r --stonewall --rw=read";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    assert_eq!(job(&report, 1).dir(Dir::Read).ios, 32);
    assert!(report.modes[0].verify.is_none(), "do_verify=0 leaves no record");
    let flipped = memory(&options(), Fault::Flip { zone: 4, offset: 256, byte: 300 });
    let report = run_on(&flipped, WriteMode::PerZone, arguments);
    assert_eq!(report.modes[0].jobs[0].failure, None);
    assert_eq!(report.modes[0].jobs[1].errors, 1);
    assert!(matches!(report.modes[0].jobs[1].failure, Some(Failure::Verify { .. })));
}

/// Mismatches found by the final check on a device with `fault`, without read-back by the job
/// itself.
fn final_check(fault: Fault, mode: WriteMode, arguments: &str) -> Vec<Mismatch> {
    let device = memory(&polled(), fault);
    let report = run_on(&device, mode, &format!("--name=j --verify=crc32c --zonemode=zbd {arguments}"));
    assert!(report.is_failed(), "{fault:?} {mode}");
    let text = report.to_text();
    let verify = verified(&report);
    assert!(verify.mismatches >= verify.first.len() as u64);
    for mismatch in &verify.first {
        assert_eq!(mismatch.job, "j");
        assert!(text.contains(&format!("sector {} ", mismatch.sector)), "{text}");
    }
    verify.first.clone()
}

const FILL: &str = "--rw=write --bs=16k --offset=4z --size=4z --iodepth=16";

fn sector(zone: u64, offset: u64) -> Sector {
    Sector(zone * ZONE_SECTORS + offset)
}

#[test]
fn flipped_byte_is_found() {
    for mode in MODES {
        for byte in [0, 20, 60, 511] {
            let found = final_check(Fault::Flip { zone: 5, offset: 64, byte }, mode, FILL);
            assert_eq!(found.len(), 1, "{mode} {byte}: {found:?}");
            assert_eq!((found[0].sector, found[0].zone), (sector(5, 64), ZoneIndex(5)));
        }
    }
}

#[test]
fn flipped_payload_byte_is_detected_by_the_checksum() {
    let found = final_check(Fault::Flip { zone: 5, offset: 65, byte: 7 }, WriteMode::PerZone, FILL);
    let Found::Block { stated, computed: Some(computed), sector, .. } = found[0].found else {
        panic!("{found:?}")
    };
    assert!(stated != computed && sector == Some(found[0].sector));
}

#[test]
fn dropped_write_is_found() {
    for mode in MODES {
        // Alone in flight, so that it is not merged with others.
        let arguments = "--rw=write --bs=16k --offset=4z --size=4z";
        let found = final_check(Fault::Drop { zone: 6, offset: 96 }, mode, arguments);
        assert_eq!(found.len(), 1, "{mode}: {found:?}");
        assert_eq!(found[0].sector, sector(6, 96));
        assert_eq!(found[0].found, Found::NoBlock { start: 0 });
    }
}

#[test]
fn swapped_blocks_are_found() {
    for mode in MODES {
        let arguments = "--rw=write --bs=16k --offset=4z --size=4z";
        let found = final_check(Fault::Swap { zone: 7, offsets: [32, 128] }, mode, arguments);
        let mut places: Vec<_> = found.iter().map(|mismatch| mismatch.sector).collect();
        places.sort();
        assert_eq!(places, [sector(7, 32), sector(7, 128)], "{mode}");
        assert!(found.iter().all(|mismatch| matches!(mismatch.found, Found::Block { .. })));
    }
}

#[test]
fn stale_data_after_a_reset_is_found() {
    for mode in MODES {
        let arguments = "--rw=write --bs=16k --offset=4z --size=4z --loops=2";
        let found = final_check(Fault::Stale { zone: 5 }, mode, arguments);
        assert_eq!(found.len(), 1, "{mode}: {found:?}");
        let Found::Block { generation, .. } = found[0].found else { panic!("{found:?}") };
        assert_eq!((found[0].expected.generation, generation), (Some(1), 0), "{mode}");
    }
}

#[test]
fn job_reads_its_own_blocks_back_and_stops_at_the_first_if_asked() {
    let fault = Fault::Flip { zone: 4, offset: 0, byte: 100 };
    let arguments = "--name=j --verify=crc32c --zonemode=zbd --rw=write --bs=16k --offset=4z --size=2z";
    let device = memory(&options(), fault);
    let report = run_on(&device, WriteMode::PerZone, arguments);
    assert_eq!(report.modes[0].jobs[0].dir(Dir::Read).ios, 128, "all blocks are read");
    let device = memory(&options(), fault);
    let report = run_on(&device, WriteMode::PerZone, &format!("{arguments} --verify_fatal=1"));
    assert!(report.modes[0].jobs[0].dir(Dir::Read).ios < 128);
    assert_eq!(report.modes[0].jobs[0].failure.as_ref().map(Failure::errno), Some(84));
}

#[test]
fn device_that_keeps_no_data_is_refused() {
    let arguments = "--name=v --verify=crc32c --zonemode=zbd --rw=write --bs=16k --offset=4z --size=2z";
    match try_run(&null(&options()), &[], arguments) {
        Err(BenchError::NothingToVerify { job, device }) => {
            assert_eq!((job.as_str(), device.as_str()), ("v", "null"))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn block_that_does_not_tile_the_zone_is_refused() {
    let arguments = "--name=v --verify=crc32c --zonemode=zbd --rw=write --bs=12k --offset=4z --size=2z";
    let error = try_run(&memory(&options(), Fault::None), &[], arguments).unwrap_err();
    assert!(error.to_string().contains("divides the zone size"), "{error}");
}

#[test]
fn failed_write_costs_its_block_and_the_rest_verifies() {
    let device = memory(&polled(), Fault::Fail { zone: 5, offset: 64 });
    let arguments =
        "--name=j --verify=crc32c --zonemode=zbd --rw=write --bs=16k --offset=4z --size=4z --iodepth=8";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    assert!(matches!(report.modes[0].jobs[0].failure, Some(Failure::Request { .. })));
    let verify = verified(&report);
    assert_eq!(verify.mismatches, 0, "{:?}", verify.first);
    assert!(verify.blocks >= 64);
}

#[test]
fn capacity_below_the_zone_size_verifies() {
    let options = polled().with_zone_capacity(768 << 10);
    for mode in MODES {
        let device = memory(&options, Fault::None);
        let arguments = "--name=j --verify=crc32c --zonemode=zbd --rw=randwrite --bs=16k --offset=4z --size=4z --iodepth=8 \
                         --max_open_zones=2";
        let report = run_on(&device, mode, arguments);
        // The map covers the whole zone size in blocks, of which only the capacity can be written.
        assert_eq!(job(&report, 0).dir(Dir::Write).ios, 4 * 48, "{mode}");
        assert_eq!((verified(&report).blocks, verified(&report).mismatches), (4 * 48, 0), "{mode}");
    }
}

#[test]
fn image_is_closed_and_opened_again_to_be_verified() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive.zonal");
    let drive = ImageOptions::default().with_size(64 * ZONE).with_zone_size(ZONE).with_zone_nr_conv(4);
    drive.create(&path).unwrap();
    let open = || {
        let device = ImageDevice::open(&path, &OpenOptions::default())?;
        Ok(Arc::new(device) as Arc<dyn Device>)
    };
    let arguments = "--name=j --verify=crc32c --zonemode=zbd --rw=randwrite --bs=16k --offset=4z --size=8z --iodepth=8 \
                     --end_fsync=1 --numjobs=2 --offset_increment=8z";
    let mut options = BenchOptions::new(support::jobs(arguments));
    assert_eq!(options.reopen, Reopen::Again, "the default is the independent way");
    options.modes = MODES.to_vec();
    let report = run(&open, &options).unwrap();
    assert!(!report.is_failed(), "{}", report.to_text());
    for mode in &report.modes {
        assert_eq!(mode.verify.as_ref().unwrap().blocks, 2 * 8 * 64);
    }
}

/// The reset of the second pass fails and leaves the zone's state unknown, so the write path
/// queries the device. The job ends before the answer arrives.
#[test]
fn u43_device_with_an_answer_for_a_write_path_that_is_gone_is_verified() {
    for hw_queue_depth in [64, 1] {
        let device =
            memory(&polled().with_hw_queue_depth(hw_queue_depth).with_completion_nsec(200_000), Fault::None);
        let mut bench = BenchOptions::new(jobs(
            "--name=v --verify=crc32c --zonemode=zbd --rw=write --bs=64k --offset=4z --size=2z --loops=2",
        ));
        bench.modes = vec![WriteMode::PerZone];
        bench.reopen = Reopen::Same;
        let plan = "[[rule]]\non = \"reset\"\nfault = \"fail\"\nerror = \"aborted\"\n";
        bench.fault = Some(Plan::parse(plan).unwrap());
        let report = run(&|| Ok(device.clone()), &bench).unwrap();
        assert!(matches!(report.modes[0].jobs[0].failure, Some(Failure::Request { op: Op::ZoneReset, .. })));
        let verify = verified(&report);
        assert_eq!((verify.blocks, verify.gone, verify.mismatches), (16, 16, 0), "{hw_queue_depth}");
    }
}

/// The second pass starts with a torn write. The place then holds the end of one block and the
/// beginning of another, and neither was acknowledged to the job.
#[test]
fn u46_block_that_a_failed_write_has_overwritten_in_part_is_no_mismatch() {
    let device = memory(&options(), Fault::None);
    let mut bench =
        BenchOptions::new(jobs("--name=c --verify=crc32c --rw=write --bs=16k --size=64k --loops=2"));
    bench.reopen = Reopen::Same;
    let plan = "[[rule]]\non = \"write\"\nnth = 5\nfault = \"torn\"\nblocks = 9\nerror = \"medium\"\n";
    bench.fault = Some(Plan::parse(plan).unwrap());
    let report = run(&|| Ok(device.clone()), &bench).unwrap();
    assert!(matches!(report.modes[0].jobs[0].failure, Some(Failure::Request { op: Op::Write, .. })));
    let verify = verified(&report);
    assert_eq!((verify.blocks, verify.gone, verify.mismatches), (3, 1, 0));
}

#[test]
fn lost_and_misdirected_writes_are_found() {
    for mode in MODES {
        for fault in ["lost", "misdirected"] {
            let options = options();
            let ram = Ram::new(&options.geometry().unwrap());
            let device: Arc<dyn Device> = Arc::new(Emulated::new("ram", &options, ram).unwrap());
            let mut bench =
                BenchOptions::new(jobs(&format!("--name=m --verify=crc32c --zonemode=zbd {FILL}")));
            bench.modes = vec![mode];
            bench.reopen = Reopen::Same;
            let plan = format!("[[rule]]\non = \"writes\"\nnth = 9\nfault = \"{fault}\"\n");
            bench.fault = Some(Plan::parse(&plan).unwrap());
            let report = run(&|| Ok(device.clone()), &bench).unwrap();
            let ran = &report.modes[0];
            assert!(matches!(ran.jobs[0].failure, Some(Failure::Verify { .. })), "{mode}, {fault}");
            assert!(verified(&report).mismatches > 0, "{mode}, {fault}");
            assert!(ran.notes.contains(&"faults, by rule of the plan: 1".to_owned()), "{:?}", ran.notes);
        }
    }
}

#[test]
fn plan_that_the_device_cannot_follow_is_refused() {
    let mut bench = BenchOptions::new(jobs("--name=m --zonemode=zbd --rw=write --bs=4k --size=1z"));
    bench.fault = Some(Plan::parse("[[rule]]\nfault = \"busy\"\n[rates]\nlost = 0.1").unwrap());
    let error = run(&|| Ok(null(&options())), &bench).unwrap_err();
    assert!(matches!(error, BenchError::Faults(PlanMismatch { rule: 2, fault: "lost", .. })), "{error}");
}
