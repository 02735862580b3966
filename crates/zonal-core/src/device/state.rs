//! State of one zone, and its packed form.

use crate::error::ZoneError;
use crate::geometry::Geometry;
use crate::units::{Sectors, ZoneIndex};
use crate::zone::{ZoneCondition, ZoneDescriptor, ZoneType};

/// Condition and write pointer of one zone.
///
/// Packed into the low [`ZoneState::BITS`] bits of a word: the pointer in bits 0 to 31, the code of
/// the condition in bits 32 to 35. The owner of the word may use the bits above.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ZoneState {
    /// Condition.
    pub condition: ZoneCondition,
    /// Write pointer, in sectors from the zone's start. For a finished or read-only zone, the end
    /// of its data. Always 0 for empty, offline and conventional zones.
    pub written: u32,
}

/// Invalid packed zone state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateBitsError {
    /// Bits above the state are set.
    #[error("reserved bits are set in zone state {0:#x}")]
    Reserved(u64),
    /// The code of the condition is reserved.
    #[error("{0:#x} is not the number of a zone condition")]
    Condition(u8),
    /// The pointer is invalid for the condition or the capacity.
    #[error(
        "a zone in condition {condition} of capacity {capacity} cannot have its pointer at {written} (sectors)"
    )]
    Pointer {
        /// Condition found.
        condition: ZoneCondition,
        /// Pointer found, in sectors.
        written: u32,
        /// Capacity of the zone, in sectors.
        capacity: u32,
    },
}

impl ZoneState {
    /// Number of bits in the packed form.
    pub const BITS: u32 = 36;

    /// An empty zone.
    pub const EMPTY: ZoneState = ZoneState { condition: ZoneCondition::Empty, written: 0 };

    /// The only state of a conventional zone.
    pub const CONVENTIONAL: ZoneState = ZoneState { condition: ZoneCondition::NotWp, written: 0 };

    /// A zone written up to `capacity`.
    pub const fn full(capacity: u32) -> ZoneState {
        ZoneState { condition: ZoneCondition::Full, written: capacity }
    }

    /// Packs the state. Bits from [`ZoneState::BITS`] up are zero.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.written as u64 | (self.condition as u64) << 32
    }

    /// Unpacks the state from the low bits of a word made by [`ZoneState::to_bits`]. Bits above are
    /// ignored.
    ///
    /// # Panics
    /// If the code of the condition is reserved: the word was never a packed state.
    #[inline]
    pub const fn from_word(word: u64) -> ZoneState {
        match ZoneCondition::from_code((word >> 32) as u8 & 0xF) {
            Some(condition) => ZoneState { condition, written: word as u32 },
            None => panic!("not a packed zone state"),
        }
    }

    /// Unpacks and validates a state from an untrusted source, for a zone of `capacity` sectors.
    ///
    /// # Errors
    /// [`StateBitsError`] with the invalid value.
    ///
    /// ```
    /// use zonal_core::device::ZoneState;
    /// let full = ZoneState::full(64);
    /// assert_eq!(ZoneState::from_bits(full.to_bits(), 64), Ok(full));
    /// assert!(ZoneState::from_bits(full.to_bits(), 63).is_err());
    /// ```
    pub const fn from_bits(bits: u64, capacity: u32) -> Result<ZoneState, StateBitsError> {
        if bits >> ZoneState::BITS != 0 {
            return Err(StateBitsError::Reserved(bits));
        }
        let code = (bits >> 32) as u8;
        let Some(condition) = ZoneCondition::from_code(code) else {
            return Err(StateBitsError::Condition(code));
        };
        let state = ZoneState { condition, written: bits as u32 };
        if state.is_consistent(capacity) {
            Ok(state)
        } else {
            Err(StateBitsError::Pointer { condition, written: state.written, capacity })
        }
    }

    /// True if the pointer is valid for the condition and the capacity, with no write in flight.
    pub const fn is_consistent(self, capacity: u32) -> bool {
        match self.condition {
            ZoneCondition::NotWp | ZoneCondition::Empty | ZoneCondition::Offline => self.written == 0,
            ZoneCondition::ImpOpen | ZoneCondition::ExpOpen | ZoneCondition::Closed => {
                self.written < capacity
            }
            ZoneCondition::Full | ZoneCondition::ReadOnly => self.written <= capacity,
        }
    }

    /// Number of sectors with data among `sectors` from `offset` (in sectors from the zone's
    /// start). The rest reads as zeroes.
    ///
    /// # Errors
    /// [`ZoneError::Offline`].
    #[inline]
    pub const fn readable(self, offset: u32, sectors: u32) -> Result<u32, ZoneError> {
        match self.condition {
            ZoneCondition::Offline => Err(ZoneError::Offline),
            ZoneCondition::NotWp => Ok(sectors),
            _ => {
                let data = self.written.saturating_sub(offset);
                Ok(if data < sectors { data } else { sectors })
            }
        }
    }

    /// Descriptor of `zone` in this state.
    pub fn describe(self, geometry: &Geometry, zone: ZoneIndex) -> ZoneDescriptor {
        let start = geometry.start_of(zone);
        let pointer = Sectors(u64::from(self.written));
        let zone_type = match self.condition {
            ZoneCondition::NotWp => ZoneType::Conventional,
            _ => ZoneType::SequentialWriteRequired,
        };
        let has_pointer = self.condition.is_active() || self.condition == ZoneCondition::Empty;
        ZoneDescriptor {
            zone,
            start,
            size: Sectors(u64::from(geometry.size_of(zone))),
            capacity: Sectors(u64::from(geometry.capacity_of(zone))),
            zone_type,
            condition: self.condition,
            write_pointer: has_pointer.then_some(start + pointer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn from_bits_reserved_bits_are_refused() {
        let bits = ZoneState::EMPTY.to_bits() | 1 << 36;
        assert_eq!(ZoneState::from_bits(bits, 64), Err(StateBitsError::Reserved(bits)));
    }

    #[test]
    fn from_bits_reserved_condition_is_refused() {
        for code in 5..=0xC {
            assert_eq!(ZoneState::from_bits(code << 32, 64), Err(StateBitsError::Condition(code as u8)));
        }
    }

    #[test]
    fn from_bits_pointer_that_does_not_fit_is_refused() {
        for (condition, written) in [
            (ZoneCondition::NotWp, 1),
            (ZoneCondition::Empty, 1),
            (ZoneCondition::ImpOpen, 64),
            (ZoneCondition::ExpOpen, 64),
            (ZoneCondition::Closed, 64),
            (ZoneCondition::ReadOnly, 65),
            (ZoneCondition::Full, 65),
            (ZoneCondition::Offline, 1),
        ] {
            let bits = ZoneState { condition, written }.to_bits();
            let wrong = StateBitsError::Pointer { condition, written, capacity: 64 };
            assert_eq!(ZoneState::from_bits(bits, 64), Err(wrong));
        }
    }

    #[test]
    fn readable_ends_at_the_pointer() {
        let closed = ZoneState { condition: ZoneCondition::Closed, written: 24 };
        assert_eq!(closed.readable(0, 8), Ok(8));
        assert_eq!(closed.readable(20, 8), Ok(4));
        assert_eq!(closed.readable(24, 8), Ok(0));
        assert_eq!(closed.readable(u32::MAX, 8), Ok(0));
        assert_eq!(ZoneState::CONVENTIONAL.readable(40, 8), Ok(8));
        let offline = ZoneState { condition: ZoneCondition::Offline, written: 0 };
        assert_eq!(offline.readable(0, 8), Err(ZoneError::Offline));
    }

    #[test]
    fn describe_pointer_is_shown_only_where_it_is_valid() {
        let geometry = Geometry::new(Sectors(1024), Sectors(128), Sectors(96), 1).unwrap();
        let pointer = |condition, written| {
            ZoneState { condition, written }.describe(&geometry, ZoneIndex(2)).write_pointer.map(|s| s.0)
        };
        assert_eq!(pointer(ZoneCondition::Empty, 0), Some(256));
        assert_eq!(pointer(ZoneCondition::Closed, 8), Some(264));
        assert_eq!(pointer(ZoneCondition::Full, 8), None);
        assert_eq!(pointer(ZoneCondition::ReadOnly, 8), None);
        assert_eq!(pointer(ZoneCondition::Offline, 0), None);
        let conventional = ZoneState::CONVENTIONAL.describe(&geometry, ZoneIndex(0));
        assert_eq!((conventional.write_pointer, conventional.capacity.0), (None, 128));
    }

    proptest! {
        #[test]
        fn from_bits_accepts_exactly_what_to_bits_made(bits: u64, capacity in 1u32..=1 << 31) {
            for bits in [bits, bits & ((1 << 36) - 1), bits & 0xF_0000_00FF] {
                if let Ok(state) = ZoneState::from_bits(bits, capacity) {
                    prop_assert_eq!(state.to_bits(), bits);
                    prop_assert!(state.is_consistent(capacity));
                    prop_assert_eq!(ZoneState::from_word(bits | 7 << 40), state);
                }
            }
        }
    }
}
