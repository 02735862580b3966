//! Byte format of the ledger: pages in slots, the words of zones, and the tails of a commit.

use super::{PAGE_BYTES, Side, ZONES_PER_PAGE, crc};
use crate::badblocks::{BadBlocks, BadRange, RANGES_MAX};
use std::fmt;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonal_core::device::ZoneState;
use zonal_core::{Geometry, ZoneCondition, ZoneIndex};

/// Maximum number of tails per slot.
pub const TAILS_MAX: usize = 255;

const PAGE_MAGIC: u32 = u32::from_le_bytes(*b"ZLPG");

/// Ledger page in its format on disk.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct RawPage {
    magic: U32,
    crc: U32,
    index: U32,
    /// Checksum of the tails beside it; 0 if it has none.
    tails: U32,
    sequence: U64,
    creation: [u8; 8],
    words: [U64; ZONES_PER_PAGE],
}

/// Tails beside a ledger page in their format on disk.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct RawTails {
    count: U32,
    reserved: [u8; 12],
    tails: [RawTail; TAILS_MAX],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawTail {
    zone: U32,
    from: U32,
    sum: U64,
}

const _: () = assert!(size_of::<RawPage>() == PAGE_BYTES);
const _: () = assert!(std::mem::offset_of!(RawPage, words) == 32);
const _: () = assert!(size_of::<RawTails>() == PAGE_BYTES);

/// Error of parsing a ledger page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// Neither slot is sound.
    #[error("both slots are damaged")]
    BothDamaged,
    /// A slot is damaged although the image was cleanly closed, so this is not a torn write.
    #[error("slot {side:?} is damaged although the image was cleanly closed")]
    DamagedAtRest {
        /// Damaged slot.
        side: Side,
    },
    /// A sound page from another location or another image.
    #[error("slot {side:?} holds page {found} of image {creation:02x?}: copied from elsewhere")]
    Misplaced {
        /// Slot.
        side: Side,
        /// Stored index.
        found: u32,
        /// First bytes of the stored creation number.
        creation: [u8; 8],
    },
    /// Both slots have the same sequence number.
    #[error("both slots carry sequence number {0}")]
    SameSequence(u64),
    /// A sound page with an impossible zone state.
    #[error("zone {zone} has the impossible state {word:#018x}")]
    Zone {
        /// Zone.
        zone: ZoneIndex,
        /// Word of the zone.
        word: u64,
    },
    /// A sound page with an impossible tail.
    #[error("impossible tail of zone {zone} from sector {from} on")]
    Tail {
        /// Zone.
        zone: ZoneIndex,
        /// Start of the tail in sectors from the zone's start.
        from: u32,
    },
    /// A session page with an unknown state.
    #[error("impossible session state {0:#x}")]
    Session(u64),
    /// A session page with impossible bad blocks.
    #[error("impossible bad blocks: {0:#x}")]
    BadBlocks(u64),
}

/// Data that becomes durable together with the page that promises it: from `from` to the zone's
/// write pointer. After a power cut the page is valid for the zone only if the data is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail {
    /// Zone, one of the page's.
    pub zone: ZoneIndex,
    /// Start of the tail in sectors from the zone's start; the data below it was durable before.
    pub from: u32,
    /// CRC-64 (NVMe) of the data.
    pub sum: u64,
}

/// A sound ledger page.
#[derive(Clone, PartialEq, Eq)]
pub struct Page {
    /// Index in the ledger: 0 is the session page.
    pub index: u32,
    /// Number of the commit; of two sound slots the one with the larger number is active.
    pub sequence: u64,
    /// One word per zone; on the session page those of [`session_words`].
    pub words: [u64; ZONES_PER_PAGE],
    /// Promised data that was not durable before, at most [`TAILS_MAX`] tails.
    pub tails: Vec<Tail>,
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({}, sequence {})", self.index, self.sequence)
    }
}

impl Page {
    /// Bytes of its slot: the page, followed by its tails if any.
    pub fn emit(&self, creation: &[u8; 16]) -> Vec<u8> {
        let tails = (!self.tails.is_empty()).then(|| RawTails::of(&self.tails));
        let mut raw = RawPage {
            magic: PAGE_MAGIC.into(),
            crc: 0.into(),
            index: self.index.into(),
            tails: tails.as_ref().map_or(0, RawTails::sum).into(),
            sequence: self.sequence.into(),
            creation: short(creation),
            words: self.words.map(U64::new),
        };
        raw.crc = crc(raw.as_bytes()).into();
        [raw.as_bytes(), tails.as_ref().map_or(&[], RawTails::as_bytes)].concat()
    }
}

impl RawTails {
    fn of(tails: &[Tail]) -> RawTails {
        let mut raw = RawTails::new_zeroed();
        raw.count = (tails.len() as u32).into();
        for (to, tail) in raw.tails.iter_mut().zip(tails) {
            *to = RawTail { zone: tail.zone.0.into(), from: tail.from.into(), sum: tail.sum.into() };
        }
        raw
    }

    /// True if a commit of any version can have written this.
    fn is_possible(&self) -> bool {
        (1..=TAILS_MAX).contains(&(self.count.get() as usize))
    }

    /// Checksum stored in the page. Never 0, which means no tails.
    fn sum(&self) -> u32 {
        crc(self.as_bytes()).max(1)
    }

    fn list(&self) -> Vec<Tail> {
        let tail = |raw: &RawTail| Tail {
            zone: ZoneIndex(raw.zone.get()),
            from: raw.from.get(),
            sum: raw.sum.get(),
        };
        self.tails.iter().take(self.count.get() as usize).map(tail).collect()
    }
}

/// Contents of one slot of a ledger page.
#[derive(Debug)]
enum PageSlot {
    Zero,
    Damaged,
    Sound(Box<Page>),
}

fn parse_slot(bytes: &[u8], index: u32, side: Side, creation: &[u8; 16]) -> Result<PageSlot, PageError> {
    let Ok((raw, rest)) = RawPage::read_from_prefix(bytes) else { return Ok(PageSlot::Damaged) };
    // Tails may have been written before their page.
    if raw.magic.get() == 0 && raw.as_bytes().iter().all(|&b| b == 0) {
        return Ok(PageSlot::Zero);
    }
    let found = raw.crc.get();
    let mut copy = raw;
    copy.crc = 0.into();
    if copy.magic.get() != PAGE_MAGIC || crc(copy.as_bytes()) != found {
        return Ok(PageSlot::Damaged);
    }
    if copy.index.get() != index || copy.creation != short(creation) {
        return Err(PageError::Misplaced { side, found: copy.index.get(), creation: copy.creation });
    }
    // A slot without space for tails has none, whatever its page says.
    let tails = match (copy.tails.get(), RawTails::ref_from_bytes(rest)) {
        (0, _) | (_, Err(_)) => Vec::new(),
        (sum, Ok(tails)) if tails.sum() == sum && tails.is_possible() => tails.list(),
        _ => return Ok(PageSlot::Damaged),
    };
    let words = copy.words.map(U64::get);
    Ok(PageSlot::Sound(Box::new(Page { index, sequence: copy.sequence.get(), words, tails })))
}

/// Combined contents of the two slots of a ledger page.
#[derive(Debug)]
pub struct Slots {
    /// Active page and its slot; `None` if never written, so all zones are empty.
    pub live: Option<(Side, Box<Page>)>,
    /// Slot that is neither sound nor zero: torn by a power cut during a commit.
    pub damaged: Option<Side>,
}

impl Slots {
    /// Parses page `index` from `bytes`, which are its two slots, of equal length.
    ///
    /// # Errors
    /// [`PageError`] if the contents cannot result from an interrupted commit.
    pub fn parse(bytes: &[u8], index: u32, creation: &[u8; 16]) -> Result<Slots, PageError> {
        let (a, b) = bytes.split_at(bytes.len() / 2);
        let a = parse_slot(a, index, Side::A, creation)?;
        let b = parse_slot(b, index, Side::B, creation)?;
        Ok(match (a, b) {
            (PageSlot::Zero, PageSlot::Zero) => Slots { live: None, damaged: None },
            (PageSlot::Sound(a), PageSlot::Sound(b)) if a.sequence == b.sequence => {
                return Err(PageError::SameSequence(a.sequence));
            }
            (PageSlot::Sound(a), PageSlot::Sound(b)) if a.sequence < b.sequence => Slots::sound(Side::B, b),
            (PageSlot::Sound(a), PageSlot::Sound(_) | PageSlot::Zero) => Slots::sound(Side::A, a),
            (PageSlot::Zero, PageSlot::Sound(b)) => Slots::sound(Side::B, b),
            (PageSlot::Sound(a), PageSlot::Damaged) => {
                Slots { live: Some((Side::A, a)), damaged: Some(Side::B) }
            }
            (PageSlot::Damaged, PageSlot::Sound(b)) => {
                Slots { live: Some((Side::B, b)), damaged: Some(Side::A) }
            }
            // The first commit of a page writes slot A, so only A can be torn while B is zero.
            (PageSlot::Damaged, PageSlot::Zero) => Slots { live: None, damaged: Some(Side::A) },
            (PageSlot::Zero | PageSlot::Damaged, PageSlot::Damaged) => return Err(PageError::BothDamaged),
        })
    }

    const fn sound(side: Side, page: Box<Page>) -> Slots {
        Slots { live: Some((side, page)), damaged: None }
    }
}

/// Session state: whether the image was cleanly closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Session {
    /// Cleanly closed or never changed: a damaged slot is an error.
    Closed = 0,
    /// Changed since it was opened: one slot per page may be torn.
    Open = 1,
}

impl Session {
    /// Session state in the first word of a session page.
    ///
    /// # Errors
    /// [`PageError::Session`].
    pub const fn from_word(word: u64) -> Result<Session, PageError> {
        match word {
            0 => Ok(Session::Closed),
            1 => Ok(Session::Open),
            n => Err(PageError::Session(n)),
        }
    }
}

/// Bit of word 1 of a session page: a bad range becomes good once a command has hit it.
const BAD_ONCE: u64 = 1 << 32;

/// Bit of word 1 of a session page: the blocks before the first bad one are transferred.
const BAD_PARTIAL: u64 = 1 << 33;

const _: () = assert!(2 + 2 * RANGES_MAX <= ZONES_PER_PAGE);

/// Words of a session page: the session state, then the bad blocks, as their number with two bits,
/// and the first and last sector of each range.
pub fn session_words(session: Session, bad: &BadBlocks) -> [u64; ZONES_PER_PAGE] {
    let mut words = [0; ZONES_PER_PAGE];
    words[0] = session as u64;
    let flag = |is_set, bit| if is_set { bit } else { 0 };
    words[1] = bad.ranges().len() as u64 | flag(bad.once, BAD_ONCE) | flag(bad.partial_io, BAD_PARTIAL);
    for (to, (first, last)) in words[2..].chunks_exact_mut(2).zip(bad.ranges()) {
        to.copy_from_slice(&[*first, *last]);
    }
    words
}

/// Bad blocks in the words of a session page.
///
/// # Errors
/// [`PageError::BadBlocks`] if the drive cannot have them.
pub fn bad_blocks(geometry: &Geometry, words: &[u64; ZONES_PER_PAGE]) -> Result<BadBlocks, PageError> {
    let head = words[1];
    let count = (head & !(BAD_ONCE | BAD_PARTIAL)) as usize;
    if count > RANGES_MAX {
        return Err(PageError::BadBlocks(head));
    }
    let (once, partial_io) = (head & BAD_ONCE != 0, head & BAD_PARTIAL != 0);
    let mut bad = BadBlocks { once, partial_io, ..BadBlocks::default() };
    for range in words[2..].chunks_exact(2).take(count) {
        let (first, last) = (range[0], range[1]);
        if first > last || last >= geometry.sectors().0 {
            return Err(PageError::BadBlocks(first));
        }
        bad.change(BadRange { is_bad: true, first, last });
    }
    Ok(bad)
}

/// Part of the creation number that is stored in every page.
fn short(creation: &[u8; 16]) -> [u8; 8] {
    std::array::from_fn(|i| creation[i])
}

/// State of `zone` before anything is written to it.
pub const fn initial_state(geometry: &Geometry, zone: ZoneIndex) -> ZoneState {
    if geometry.is_conventional(zone) { ZoneState::CONVENTIONAL } else { ZoneState::EMPTY }
}

/// State of `zone` in a ledger word.
///
/// Open states do not survive a reopen, so the ledger has none: a zone is empty, closed, full,
/// read-only, offline or conventional.
///
/// # Errors
/// [`PageError::Zone`] if the state is impossible for this geometry.
pub fn state_from_word(geometry: &Geometry, zone: ZoneIndex, word: u64) -> Result<ZoneState, PageError> {
    let wrong = PageError::Zone { zone, word };
    let state = ZoneState::from_bits(word, geometry.capacity_of(zone)).map_err(|_| wrong)?;
    let is_conventional = state.condition == ZoneCondition::NotWp;
    let is_closed_empty = state.condition == ZoneCondition::Closed && state.written == 0;
    if state.condition.is_open() || is_closed_empty || is_conventional != geometry.is_conventional(zone) {
        return Err(wrong);
    }
    Ok(state)
}
