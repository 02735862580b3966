//! Who holds what a zone lacks, small enough to travel in an error.

use super::options::Refusal;
use crate::units::ZoneIndex;
use std::fmt;

/// Zones named in [`Holders`].
const NAMED_MAX: usize = 3;

/// In a list of names: the end.
const NO_ZONE: ZoneIndex = ZoneIndex(u32::MAX);

/// Zones that hold the slots: the first few by index, and how many there are. The error that carries them travels with
/// every completion, so it has to stay small; the whole list is in the volume's listing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Holders {
    named: [ZoneIndex; NAMED_MAX],
    count: u32,
}

impl Holders {
    /// How many zones hold slots.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The first of them, at most three.
    pub fn named(&self) -> &[ZoneIndex] {
        let names = self.named.iter().take_while(|zone| **zone != NO_ZONE).count();
        &self.named[..names]
    }

    /// The same for a reader who calls zones by other indices: `rename` gives the new one, or `None` for a zone that this
    /// reader cannot name.
    pub fn renamed(self, rename: impl Fn(ZoneIndex) -> Option<ZoneIndex>) -> Holders {
        Holders::naming(self.named().iter().filter_map(|zone| rename(*zone)), self.count)
    }

    fn naming(zones: impl Iterator<Item = ZoneIndex>, count: u32) -> Holders {
        let mut named = [NO_ZONE; NAMED_MAX];
        for (name, zone) in named.iter_mut().zip(zones) {
            *name = zone;
        }
        Holders { named, count }
    }
}

impl From<&Refusal> for Holders {
    fn from(refusal: &Refusal) -> Holders {
        Holders::naming(refusal.holders.iter().copied(), refusal.holders.len() as u32)
    }
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.named();
        let Some((last, first)) = named.split_last() else {
            return match self.count {
                0 => f.write_str("no zone"),
                1 => f.write_str("a zone elsewhere"),
                count => write!(f, "{count} zones elsewhere"),
            };
        };
        let more = self.count as usize - named.len();
        let last = if more > 0 { format!("{last} and {more} more") } else { last.to_string() };
        f.write_str(if self.count == 1 { "zone " } else { "zones " })?;
        for (n, zone) in first.iter().enumerate() {
            let end_of_list = n + 1 == first.len() && more == 0;
            write!(f, "{zone}{}", if end_of_list { " and " } else { ", " })?;
        }
        f.write_str(&last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_name_the_first_and_count_the_rest() {
        let show = |zones: &[u32]| {
            let holders = zones.iter().map(|&z| ZoneIndex(z)).collect();
            Holders::from(&Refusal { zone: ZoneIndex(99), holders }).to_string()
        };
        assert_eq!(show(&[]), "no zone");
        assert_eq!(show(&[7]), "zone 7");
        assert_eq!(show(&[1, 2]), "zones 1 and 2");
        assert_eq!(show(&[1, 2, 5]), "zones 1, 2 and 5");
        assert_eq!(show(&[1, 2, 5, 8, 9]), "zones 1, 2, 5 and 2 more");
    }
}
