//! Tails: data that becomes durable with the same sync as the page that promises it.
//!
//! A commit reads back the data it adds to each zone, and stores checksums of it beside the page.
//! So a single sync is sufficient: after a power cut, the opener can tell whether the data arrived
//! with the page. If it is missing, the zone ends where it did before that commit. The flush had
//! not been acknowledged.
//!
//! A tail is valid while its page is active. Its bytes are below the zone's bound: a writer
//! overwrites them only after a later page has recorded the zone's reset.

use super::{Committer, Edit, Ledger, bytes_of, page_of, zones_of};
use crate::image::backing::Backing;
use crate::image::format::{Layout, Page, PageError, TAILS_MAX, Tail};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use zonal_core::device::ZoneState;
use zonal_core::{Geometry, ZoneCondition};

/// Total data of all zones above which a separate sync is used, because reading it back would take
/// longer than a second sync.
const BYTES_MAX: u64 = 1 << 20;

/// Unit of reading in bytes: fits the processor's cache.
const PIECE_BYTES: usize = 64 << 10;

/// Tails of each page of a commit that has any.
pub(super) type Tails = BTreeMap<u32, Vec<Tail>>;

impl Ledger {
    /// Tails for the data that `edits` add to zones; `None` if their data needs a separate sync.
    /// All of it is in the file and does not change: `edits` were sampled, and the committer is
    /// locked.
    pub(super) fn tails(&self, c: &Committer, edits: &[Edit]) -> Option<Tails> {
        let mut tails = Tails::new();
        let mut left = BYTES_MAX;
        for edit in edits {
            let from = ZoneState::from_word(c.words[edit.zone.0 as usize]).written;
            if edit.state.written <= from {
                continue;
            }
            let range = self.bytes_of(edit.zone, from..edit.state.written);
            left = left.checked_sub(range.end - range.start)?;
            let tails = tails.entry(page_of(edit.zone) as u32).or_default();
            if tails.len() == TAILS_MAX {
                return None;
            }
            // Data that cannot be read back is synced separately.
            tails.push(Tail { zone: edit.zone, from, sum: sum(&*self.backing, range).ok()? });
        }
        Some(tails)
    }
}

/// Checks that the tails of `page` belong to its zones, at most one per zone in ascending order,
/// and describe data that these have in `states`.
pub(super) fn check(geometry: &Geometry, page: &Page, states: &[ZoneState]) -> Result<(), PageError> {
    let mut zones = zones_of(geometry, page.index);
    for &Tail { zone, from, .. } in &page.tails {
        let is_ours = zones.contains(&zone.0) && !geometry.is_conventional(zone);
        zones.start = zone.0.saturating_add(1);
        if !is_ours || from >= states[zone.0 as usize].written {
            return Err(PageError::Tail { zone, from });
        }
    }
    Ok(())
}

/// Compares the checked `tails` with the data in the file. Zones with missing data return to their
/// state before it.
pub(super) fn judge(
    backing: &dyn Backing,
    geometry: &Geometry,
    layout: &Layout,
    tails: &[Tail],
    states: &mut [ZoneState],
) {
    for &Tail { zone, from, sum: expected } in tails {
        let state = &mut states[zone.0 as usize];
        // A sector that a power cut made unreadable counts as missing.
        if sum(backing, bytes_of(geometry, layout, zone, from..state.written)).ok() != Some(expected) {
            *state = match from {
                0 => ZoneState::EMPTY,
                written => ZoneState { condition: ZoneCondition::Closed, written },
            };
        }
    }
}

/// CRC-64 (NVMe) of the file's bytes in `range`.
fn sum(backing: &dyn Backing, range: Range<u64>) -> io::Result<u64> {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    let mut piece = vec![0; PIECE_BYTES.min((range.end - range.start) as usize)];
    for at in range.clone().step_by(PIECE_BYTES) {
        let piece = &mut piece[..(range.end - at).min(PIECE_BYTES as u64) as usize];
        backing.read_at(piece, at)?;
        digest.update(piece);
    }
    Ok(digest.finalize())
}
