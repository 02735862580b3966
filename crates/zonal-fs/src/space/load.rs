//! Loading the book at mount: the device's zone report is compared with the metadata.
//!
//! Data written after the last commit lies below the write pointer, but no file refers to it. It is
//! garbage: written, but not used. Nothing is replayed.

use super::error::{Fault, Finding};
use super::zone::{Zone, ZoneState};
use super::zones::ZoneBook;
use zonal_core::{ZoneCondition, ZoneIndex};

/// State of a zone at mount. All counts are blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneAtMount {
    /// Superblock, metadata, or not part of the file system.
    Reserved,
    /// A zone for data.
    Data {
        /// Capacity.
        capacity: u32,
        /// Blocks below the write pointer, rounded up. Ignored for zones that are empty, full,
        /// read-only or offline.
        pointer: u32,
        /// Condition.
        condition: ZoneCondition,
        /// Live data blocks according to the metadata.
        used: u32,
    },
}

impl ZoneBook {
    /// Loads the book of a drive from the state of its zones, starting with zone 0.
    ///
    /// `unit_blocks` is the length of a unit, header included, with maximally scattered data, when
    /// the records that fit the header are the limit and not the unit's length. It determines how
    /// much data is promised to files: less than fits if they are in order, but never more than the
    /// collector can keep.
    ///
    /// # Errors
    /// All contradictions, in order of zones.
    ///
    /// # Panics
    /// If a unit has no room for data, or there are more zones than indexes.
    pub fn load(
        unit_blocks: u32,
        found: impl IntoIterator<Item = ZoneAtMount>,
    ) -> Result<ZoneBook, Vec<Finding>> {
        let (book, findings) = load(unit_blocks, found);
        if findings.is_empty() { Ok(book) } else { Err(findings) }
    }

    /// Like [`ZoneBook::load`], for read-only use: a zone that contradicts its account is treated
    /// as read-only and full.
    ///
    /// # Panics
    /// As for [`ZoneBook::load`].
    pub fn load_to_look(unit_blocks: u32, found: impl IntoIterator<Item = ZoneAtMount>) -> ZoneBook {
        load(unit_blocks, found).0
    }
}

fn load(unit_blocks: u32, found: impl IntoIterator<Item = ZoneAtMount>) -> (ZoneBook, Vec<Finding>) {
    let mut book = ZoneBook::empty(unit_blocks);
    let mut findings = Vec::new();
    for (index, found) in found.into_iter().enumerate() {
        let zone = ZoneIndex(u32::try_from(index).expect("a zone has an index of 32 bits"));
        book.push(account(found).unwrap_or_else(|fault| {
            findings.push(Finding { zone, fault });
            fallback_account(found)
        }));
    }
    (book, findings)
}

/// Account of a contradictory zone, which may still contain readable data.
fn fallback_account(found: ZoneAtMount) -> Zone {
    let ZoneAtMount::Data { capacity, used, .. } = found else { return Zone::new(0, ZoneState::Reserved) };
    let used = used.min(capacity);
    Zone { allocated: capacity, written: capacity, used, ..Zone::new(capacity, ZoneState::ReadOnly) }
}

fn account(found: ZoneAtMount) -> Result<Zone, Fault> {
    let ZoneAtMount::Data { capacity, pointer, condition, used } = found else {
        return Ok(Zone::new(0, ZoneState::Reserved));
    };
    let pointer = match condition {
        ZoneCondition::NotWp => return Err(Fault::Conventional),
        ZoneCondition::Empty => 0,
        ZoneCondition::ImpOpen | ZoneCondition::ExpOpen | ZoneCondition::Closed => pointer,
        ZoneCondition::Full | ZoneCondition::ReadOnly | ZoneCondition::Offline => capacity,
    };
    verify(capacity, pointer, used)?;
    let state = match condition {
        ZoneCondition::ReadOnly => ZoneState::ReadOnly,
        ZoneCondition::Offline => ZoneState::Offline,
        _ if pointer == 0 => ZoneState::Free,
        _ => ZoneState::Open,
    };
    let mut zone = Zone { allocated: pointer, written: pointer, used, ..Zone::new(capacity, state) };
    zone.settle();
    Ok(zone)
}

fn verify(capacity: u32, pointer: u32, used: u32) -> Result<(), Fault> {
    if pointer > capacity {
        return Err(Fault::PointerBeyondCapacity { pointer, capacity });
    }
    if used > capacity {
        return Err(Fault::UsedBeyondCapacity { used, capacity });
    }
    if pointer == 0 && used != 0 {
        return Err(Fault::UsedInEmpty { used });
    }
    if used > pointer {
        return Err(Fault::UsedBeyondPointer { used, pointer });
    }
    Ok(())
}
