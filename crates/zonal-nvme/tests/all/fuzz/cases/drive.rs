//! Drives of cases: small, so that zones fill up and limits are reached.

use super::choices::Choices;
use std::sync::Arc;
use zonal_core::{DeviceError, Nanos};
use zonal_io::device::Device;
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Ram};
use zonal_io::fault::{Carried, Effect, Fault, Ops, Plan, Rule};
use zonal_io::volume::{Volume, VolumeOptions, WriteMode};
use zonal_nvme::subsystem::{Target, TargetOptions};

pub const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8";
const UUID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

/// Properties of a drive that its hosts need.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub block: u32,
    /// Blocks per zone.
    pub zone: u32,
    /// Zones of namespaces 1 and 2.
    pub zones: [u32; 2],
}

fn options(choices: &mut Choices<'_>) -> EmulatedOptions {
    let block = choices.one_of(&[4096, 512]);
    let zone_size = u64::from(choices.one_of(&[32 * block, 256 * block]));
    let conventional = choices.one_of(&[0, 2]);
    let open = choices.one_of(&[0, 2, 3]);
    EmulatedOptions::default()
        .with_size(8 * zone_size)
        .with_zone_size(zone_size)
        .with_zone_capacity(choices.one_of(&[0, zone_size - 4 * u64::from(block)]))
        .with_zone_nr_conv(conventional)
        .with_zone_max_open(open)
        .with_zone_max_active(if open == 0 { 0 } else { open + 1 })
        .with_zone_append_max_sectors(choices.one_of(&[u32::MAX, 16 * block / 512, 0]))
        .with_blocksize(block)
        .with_max_sectors(choices.one_of(&[2048, 64]))
        .with_completion_nsec(choices.one_of(&[0, 50_000]))
        .with_complete(choices.one_of(&[CompleteMode::Poll, CompleteMode::Inline]))
        .with_hw_queue_depth(choices.one_of(&[64, 2]))
        .with_fua(choices.one_of(&[true, false]))
        .with_preserves_write_order(choices.one_of(&[false, true]))
}

fn faults(choices: &mut Choices<'_>) -> Plan {
    let refuse = |error| Rule::new(Effect::Refuse(error));
    let rules = vec![
        refuse(DeviceError::Busy).on(Ops::WRITES).rate(0.05),
        refuse(DeviceError::Medium).on(Ops::DATA).rate(0.05),
        refuse(DeviceError::UnitAttention).rate(0.02),
        Rule::new(Effect::Busy).rate(0.1),
        Rule::new(Effect::Delay(Nanos(200_000))).rate(0.2),
        Rule::new(Effect::TimeOut { after: Nanos(300_000), carried: Carried::Before }).rate(0.01),
    ];
    Plan::of(choices.number().into(), rules)
}

/// Creates a target on a new drive.
pub fn target(choices: &mut Choices<'_>) -> (Arc<Target>, Shape) {
    let options = options(choices);
    let geometry = options.geometry().expect("the options fit");
    let ram = Ram::new(&geometry);
    let mut device: Arc<dyn Device> =
        Arc::new(Emulated::new("fuzz", &options, ram).expect("the options fit"));
    let is_faulty = choices.is(64);
    let mode = choices.one_of(&[None, Some(WriteMode::PerZone)]);
    let volume = VolumeOptions::default().without_park().without_budget().with_mode(mode);
    if is_faulty {
        device = Arc::new(Fault::new(device, faults(choices)));
    }
    // A report may fail by the fault plan, so opening is retried.
    let volume = (0..100).find_map(|_| Volume::open(device.clone(), volume).ok());
    let volume = Arc::new(volume.expect("the device describes its zones"));
    let identity = UUID.parse().expect("an identity");
    let target = TargetOptions::new(identity).with_read_only(choices.is(8));
    let target = Arc::new(Target::new(volume, target).expect("zones that hosts take"));
    let conventional = geometry.conventional_zones();
    let shape = Shape {
        block: options.blocksize,
        zone: (options.zone_size / u64::from(options.blocksize)) as u32,
        zones: [geometry.zones() - conventional, conventional],
    };
    (target, shape)
}
