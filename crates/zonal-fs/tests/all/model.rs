//! Compares the file system with a naive one in memory: any sequence of calls results in the same
//! files.

use crate::common::steps::step_of_ranges;
use crate::common::{Model, apply, check_ranges, contents, device, make, settle, volume};
use proptest::prelude::*;
use zonal_fs::{MountOptions, space::ZoneOrder};

/// Devices with small zones, which a few files fill many times over.
fn name() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("ram:size=4M,zone_size=512K,blocksize=4096"),
        Just("ram:size=2560K,zone_size=512K,blocksize=512"),
        Just("ram:size=4M,zone_size=512K,zone_capacity=384K,blocksize=4096,zone_append_max_sectors=0"),
        Just("ram:size=6M,zone_size=512K,zone_max_open=2,zone_max_active=3,complete=poll"),
        Just("ram:size=8M,zone_size=1M,max_sectors=64,complete=poll"),
        Just("ram:size=2560K,zone_size=512K,blocksize=4096,zone_max_open=2,zone_max_active=2,complete=poll"),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn files_are_what_a_naive_file_system_has(
        name in name(),
        unit_blocks in 2..9u32,
        is_in_turn in any::<bool>(),
        steps in prop::collection::vec(step_of_ranges(), 1..120),
    ) {
        let zone_order = if is_in_turn { ZoneOrder::RoundRobin } else { ZoneOrder::LowestIndex };
        let options = MountOptions::default().with_zone_order(zone_order).with_dirty_bytes(100_000);
        let fs = make(volume(device(name)), unit_blocks, options);
        let mut model = Model::default();
        for (i, step) in steps.iter().enumerate() {
            apply(&fs, &mut model, step, i as u64).unwrap();
            check_ranges(&fs, &model);
            if i % 7 == 0 {
                settle(&fs);
                fs.check();
                prop_assert_eq!(&contents(&fs).unwrap(), &model.contents());
            }
        }
        settle(&fs);
        fs.check();
        prop_assert_eq!(contents(&fs).unwrap(), model.contents());
    }
}
