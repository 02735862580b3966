//! Memory of plugs.

use super::Effort;
use super::path::null;
use super::report::{Bound, Report};
use zonal_io::emulated::EmulatedOptions;
use zonal_io::volume::{Volume, VolumeOptions, WriteMode};

/// Bytes that a volume of idle zones allocates for each zone.
pub(super) fn plugs(effort: Effort, allocated: Option<fn() -> usize>, report: &mut Report) {
    for zones in [112_000, 1_000_000].map(|n: u32| n.min(effort.zones_max)) {
        let zone_size = 128 << 20;
        let options =
            EmulatedOptions::default().with_size(zone_size * u64::from(zones)).with_zone_size(zone_size);
        let device = null(options);
        let before = allocated.map(|f| f());
        let mode = Some(WriteMode::PerZone);
        let volume = Volume::open(device, VolumeOptions::default().with_mode(mode).with_merge(true))
            .expect("an emulated device opens");
        let (bytes, how) = match (before, allocated) {
            (Some(before), Some(f)) => (f() - before, "allocated by opening"),
            _ => (volume.plug_bytes(), "size of the tables"),
        };
        let value = bytes as f64 / f64::from(zones);
        report.add_one(&format!("plug of one of {zones} zones"), how, value, "bytes", Bound::AtMost(16.0));
    }
}
