//! Zones that hold slots, in a form small enough for an error.

use super::options::Refusal;
use crate::units::ZoneIndex;
use std::fmt;

/// Maximum number of zones named in [`Holders`].
const NAMED_MAX: usize = 3;

/// Terminates a list of names that is not full.
const NO_ZONE: ZoneIndex = ZoneIndex(u32::MAX);

/// Zones that hold slots: the indices of the first few, and the total. Kept small because the error
/// with it is part of every completion; the volume's listing has all of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Holders {
    named: [ZoneIndex; NAMED_MAX],
    count: u32,
}

impl Holders {
    /// Number of zones that hold slots.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The first of these zones, at most three.
    pub fn named(&self) -> &[ZoneIndex] {
        let names = self.named.iter().take_while(|zone| **zone != NO_ZONE).count();
        &self.named[..names]
    }

    /// Translates to another numbering of zones. `rename` returns `None` for a zone outside of it.
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
