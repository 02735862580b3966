//! Log pages: the list of supported pages, and informational exceptions, which never occur.

use super::identify::own;
use super::{Disk, Invocation, Started};
use crate::sense::CheckCondition;
use crate::status::Failure;
use crate::wire::{LogHeader, LogSense, flag};
use zerocopy::IntoBytes;

const SUPPORTED_PAGES: u8 = 0x00;
const INFORMATIONAL_EXCEPTIONS: u8 = 0x2F;
const HAS_SUBPAGE: u8 = 0x40;
const ALL_SUBPAGES: u8 = 0xFF;
const PAGES: [u8; 2] = [SUPPORTED_PAGES, INFORMATIONAL_EXCEPTIONS];

/// Informational exceptions parameter (SPC 7.3.8): no exception, temperature unknown.
const NO_EXCEPTION: [u8; 8] = [0, 0, 0x03, 4, 0, 0, 0xFF, 0];

impl Disk {
    pub(super) fn log_sense(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        let LogSense { page, subpage, first, len, .. } = own(invocation)?;
        // The upper bits select a kind of values; all kinds are equal.
        let page = page & 0x3F;
        let (body, last) = match (page, subpage) {
            (SUPPORTED_PAGES, 0) => (PAGES.to_vec(), 0),
            (SUPPORTED_PAGES, ALL_SUBPAGES) => (pages_and_subpages(), 0),
            (INFORMATIONAL_EXCEPTIONS, 0) => (NO_EXCEPTION.to_vec(), 0),
            (SUPPORTED_PAGES | INFORMATIONAL_EXCEPTIONS, _) => return Err(CheckCondition::in_cdb(3).into()),
            _ => return Err(CheckCondition::in_cdb_bit(2, 5).into()),
        };
        // A parameter pointer beyond the last parameter is an error (SPC 6.8).
        if first.get() > last {
            return Err(CheckCondition::in_cdb(5).into());
        }
        let page = page | flag(HAS_SUBPAGE, subpage != 0);
        let header = LogHeader { page, subpage, len: (body.len() as u16).into() };
        Ok(Started::Data([header.as_bytes(), &body].concat(), len.into()))
    }
}

/// The list of pages and subpages includes its own subpage (SPC 7.3.16).
fn pages_and_subpages() -> Vec<u8> {
    let all = [(SUPPORTED_PAGES, 0), (SUPPORTED_PAGES, ALL_SUBPAGES), (INFORMATIONAL_EXCEPTIONS, 0)];
    all.into_iter().flat_map(|(page, subpage)| [page, subpage]).collect()
}
