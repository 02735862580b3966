//! Random jobs on small devices: no request may fail, no block may be lost, nothing may hang.

use crate::support::{Fault, ZONE, memory, options, run_on};
use proptest::prelude::*;
use zonal_bench::Report;
use zonal_core::ZoneCondition;
use zonal_io::emulated::{CompleteMode, EmulatedOptions};
use zonal_io::volume::{WriteMode, report};

#[derive(Debug, Clone)]
struct Drive {
    capacity_blocks: u64,
    conventional: u32,
    open: u32,
    poll: bool,
    queues: u32,
    delay: u64,
}

impl Drive {
    fn options(&self) -> EmulatedOptions {
        options()
            .with_size(16 * ZONE / 4)
            .with_zone_size(ZONE / 4)
            .with_zone_capacity(self.capacity_blocks * 4096)
            .with_zone_nr_conv(self.conventional)
            .with_zone_max_open(self.open)
            .with_zone_max_active(self.open)
            .with_complete(if self.poll { CompleteMode::Poll } else { CompleteMode::Inline })
            .with_submit_queues(self.queues)
            .with_completion_nsec(self.delay)
    }
}

fn drives() -> impl Strategy<Value = Drive> {
    let capacity = prop_oneof![Just(64), Just(48), 17..64u64];
    let delay = prop_oneof![4 => Just(0), 1 => Just(20_000u64)];
    (capacity, 0..3u32, prop_oneof![Just(0), 2..8u32], any::<bool>(), 1..4u32, delay).prop_map(
        |(capacity_blocks, conventional, open, poll, queues, delay)| Drive {
            capacity_blocks,
            conventional,
            open,
            poll,
            queues,
            delay,
        },
    )
}

/// Options of one section.
fn jobs(verify: bool) -> impl Strategy<Value = String> {
    let rw = prop_oneof![
        Just("write"),
        Just("randwrite"),
        Just("rw"),
        Just("randrw"),
        Just("read"),
        Just("randread")
    ];
    let bs = prop_oneof![Just(4), Just(8), Just(16), Just(32)];
    let mixes = prop_oneof![
        3 => Just(""),
        1 => Just(" --bsrange=4k-32k"),
        1 => Just(" --bsrange=8k-20k,4k-60k"),
        1 => Just(" --bssplit=4k/20:12k/30:64k"),
    ];

    let amount = (1..40u32, 1..3u32);
    let resets = prop_oneof![Just(""), Just(" --zone_reset_frequency=0.3 --zone_reset_threshold=0.1")];
    // Jobs that overwrite each other's blocks cannot verify them. In sequential zones no job
    // overwrites.
    let first = if verify { 3 } else { 0 };
    let range = (first..12u32, 1..5u32, 0..2u32);
    ((rw, bs, mixes), 1..5u32, 1..20u32, amount, range, resets, any::<[bool; 3]>()).prop_map(
        move |((rw, bs, mix), numjobs, depth, (blocks, loops), (offset, size, increment), resets, flags)| {
            let mix = if verify { "" } else { mix };
            let [stonewall, norandommap, sync] = flags;
            let resets = if verify { "" } else { resets };
            let flag = |on: bool, text: &'static str| if on { text } else { "" };
            format!(
                " --name=j --rw={rw} --bs={bs}k{mix} --numjobs={numjobs} --iodepth={depth} --io_size={}k --loops={loops} \
                 --offset={offset}z --size={size}z --offset_increment={increment}z --group_reporting{resets}{}{}{}{}",
                blocks * bs,
                flag(stonewall, " --stonewall"),
                flag(norandommap, " --norandommap"),
                flag(sync, " --fsync=7 --end_fsync=1"),
                // A job that only reads would check blocks while others write them.
                flag(verify && !rw.ends_with("read"), " --verify=crc32c"),
            )
        },
    )
}

fn modes() -> impl Strategy<Value = WriteMode> {
    prop_oneof![Just(WriteMode::Direct), Just(WriteMode::PerZone), Just(WriteMode::Append)]
}

fn check(report: &Report) -> Result<(), TestCaseError> {
    prop_assert!(!report.is_failed(), "{}", report.to_text());
    if let Some(verify) = &report.modes[0].verify {
        prop_assert_eq!(verify.mismatches, 0);
    }
    Ok(())
}

/// Number of open zones of the device afterwards. It cannot exceed the limit, because a write would
/// have failed.
fn open_zones(device: &dyn zonal_io::device::Device) -> usize {
    let zones = report(device, zonal_core::Sector(0), 1000).unwrap();
    zones.iter().filter(|zone| zone.condition == ZoneCondition::ImpOpen).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_request_fails_whatever_the_jobs(
        drive in drives(),
        mode in modes(),
        sections in prop::collection::vec(jobs(false), 1..4),
    ) {
        let device = memory(&drive.options(), Fault::None);
        let arguments = format!("--zonemode=zbd{}", sections.concat());
        let report = run_on(&device, mode, &arguments);
        check(&report)?;
        prop_assert!(drive.open == 0 || open_zones(&*device) <= drive.open as usize);
    }

    #[test]
    fn no_acknowledged_block_is_lost_whatever_the_jobs(
        drive in drives(),
        mode in modes(),
        sections in prop::collection::vec(jobs(true), 1..4),
    ) {
        let device = memory(&drive.options(), Fault::None);
        let arguments = format!("--zonemode=zbd{}", sections.concat());
        check(&run_on(&device, mode, &arguments))?;
    }
}
