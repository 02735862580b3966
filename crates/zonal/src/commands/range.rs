//! Zones that a command selects by address or by number.

use crate::value::{self, Address, ZonedSize};
use clap::Args;
use std::ops::{Range, RangeInclusive};

/// Range of zones, with the options of util-linux's `blkzone`.
#[derive(Args, Debug)]
pub(crate) struct ZoneRange {
    /// Start at this address; see `zonal help sizes`
    #[arg(long, short, value_name = "ADDRESS", value_parser = value::address)]
    offset: Option<Address>,
    /// Number of zones
    #[arg(long, short, value_name = "ZONES")]
    count: Option<u32>,
    /// Length of the range, in 512-byte sectors or with a unit
    #[arg(long, short, value_name = "LENGTH", value_parser = value::address, conflicts_with = "count")]
    length: Option<Address>,
    /// Zones by number, from 0: one, or the first and the last
    #[arg(long, value_name = "ZONE[-ZONE]", value_parser = value::zones, conflicts_with_all = ["offset", "count", "length"])]
    zone: Option<RangeInclusive<u32>>,
}

/// Interpretation of a range by a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All zones that overlap the range, which extends to the end of the device by default.
    Touched,
    /// Whole zones only; one zone by default.
    Exact,
}

impl ZoneRange {
    /// Indices of the zones.
    ///
    /// # Errors
    /// One line, if the range exceeds the device or, with [`Extent::Exact`], does not consist of whole
    /// zones.
    pub(crate) fn of(&self, size: ZonedSize, extent: Extent) -> Result<Range<u32>, String> {
        let ZonedSize { sectors, zone_sectors } = size;
        let zones = size.zones();
        if let Some(range) = &self.zone {
            let (first, last) = (*range.start(), *range.end());
            return match last < zones {
                true => Ok(first..last + 1),
                false => Err(format!("no zone {last}; the last one is {}", zones - 1)),
            };
        }
        let offset = self.offset.map_or(0, |offset| offset.sector(&size));
        if offset >= sectors {
            return Err(format!("sector {offset} is beyond its end, sector {sectors}"));
        }
        let (first, within) = ((offset / zone_sectors) as u32, offset % zone_sectors);
        let is_exact = extent == Extent::Exact;
        if is_exact && within != 0 {
            let start = offset - within;
            return Err(format!("sector {offset} is not the start of a zone; its zone starts at {start}"));
        }
        let left = u64::from(zones - first);
        let count = match (self.count, self.length.map(|length| length.sector(&size))) {
            (Some(count), _) => u64::from(count),
            (None, Some(length)) => {
                let end = offset.saturating_add(length);
                if is_exact && !end.is_multiple_of(zone_sectors) && end != sectors {
                    return Err(format!(
                        "{length} sectors is not a whole number of zones of {zone_sectors} sectors"
                    ));
                }
                match length {
                    0 => 0,
                    length => length.saturating_add(within).div_ceil(zone_sectors),
                }
            }
            (None, None) => {
                if is_exact {
                    1
                } else {
                    left
                }
            }
        };
        match is_exact {
            true if count == 0 => Err("the range has no zones".to_owned()),
            true if count > left => {
                Err(format!("only {left} zones from zone {first} to the end, fewer than {count}"))
            }
            _ => Ok(first..first + count.min(left) as u32),
        }
    }
}
