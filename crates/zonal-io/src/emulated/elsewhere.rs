//! Choice of the blocks that a misdirected write overwrites.

use super::storage::Extent;
use crate::device::DeviceInfo;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::ops::Range;
use zonal_core::{Sectors, ZoneIndex};

/// Zone and offset of written blocks, as many as `own` has and not overlapping it. Chosen uniformly
/// among all such places of the device, depending only on `draw` and the location of `own`.
/// `written` returns the end of a zone's data.
pub(crate) fn elsewhere(
    info: &DeviceInfo,
    own: Extent,
    draw: u8,
    written: impl Fn(ZoneIndex) -> u32,
) -> Option<(ZoneIndex, u32)> {
    let ranges = || {
        (0..info.geometry.zones()).map(ZoneIndex).flat_map(|zone| {
            let end = written(zone);
            let (before, after) = match zone == own.zone {
                true => (0..own.offset.min(end), own.offset + own.sectors..end),
                false => (0..end, end..end),
            };
            [(zone, before), (zone, after)]
        })
    };
    let places = |range: &Range<u32>| {
        let room = range.end.saturating_sub(range.start);
        room.checked_sub(own.sectors).map_or(0, |spare| u64::from(spare / info.block_sectors) + 1)
    };
    let sector = info.geometry.start_of(own.zone) + Sectors(own.offset.into());
    // Sector numbers need far fewer than 56 bits.
    let mut random = Pcg64Mcg::seed_from_u64(u64::from(draw) << 56 ^ sector.0);
    let all: u64 = ranges().map(|(_, range)| places(&range)).sum();
    let mut chosen = ((u128::from(random.next_u64()) * u128::from(all)) >> 64) as u64;
    for (zone, range) in ranges() {
        match places(&range) {
            passed if passed <= chosen => chosen -= passed,
            _ => return Some((zone, range.start + chosen as u32 * info.block_sectors)),
        }
    }
    // There is no such place, or a zone was reset concurrently.
    None
}
