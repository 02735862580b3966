//! The bytes of the ledger: pages in their slots, the words of zones, and the tails of a commit.

use super::{PAGE_BYTES, Side, ZONES_PER_PAGE, crc};
use std::fmt;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonal_core::device::ZoneState;
use zonal_core::{Geometry, ZoneCondition, ZoneIndex};

/// Most tails of one slot.
pub const TAILS_MAX: usize = 255;

const PAGE_MAGIC: u32 = u32::from_le_bytes(*b"ZLPG");

/// Ledger page as it lies on disk.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct RawPage {
    magic: U32,
    crc: U32,
    index: U32,
    /// Of the tails beside it; 0 if it has none.
    tails: U32,
    sequence: U64,
    creation: [u8; 8],
    words: [U64; ZONES_PER_PAGE],
}

/// The tails beside a ledger page, as they lie on disk.
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

/// Why a ledger page is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// Neither slot is sound.
    #[error("both slots are damaged")]
    BothDamaged,
    /// A slot is damaged although the image was closed in order, so that no power cut can have torn it.
    #[error("slot {side:?} is damaged although the image was closed in order")]
    DamagedAtRest {
        /// The slot.
        side: Side,
    },
    /// A sound page of another place or another image.
    #[error("slot {side:?} holds page {found} of image {creation:02x?}: copied from elsewhere")]
    Misplaced {
        /// The slot.
        side: Side,
        /// Index stored.
        found: u32,
        /// First bytes of the creation number stored.
        creation: [u8; 8],
    },
    /// Both slots claim to be the same commit.
    #[error("both slots carry sequence number {0}")]
    SameSequence(u64),
    /// A sound page with a zone state that no version writes.
    #[error("zone {zone} has the impossible state {word:#018x}")]
    Zone {
        /// The zone.
        zone: ZoneIndex,
        /// Its word.
        word: u64,
    },
    /// A sound page with a tail that no version writes.
    #[error("a tail of zone {zone} from sector {from} on, which the page cannot have")]
    Tail {
        /// The zone.
        zone: ZoneIndex,
        /// Where it begins, in sectors from the zone's start.
        from: u32,
    },
    /// A session page with a state that no version writes.
    #[error("impossible session state {0:#x}")]
    Session(u64),
}

/// Data that became durable with the page that promises it, and not before: what lies between `from` and the zone's pointer.
/// After a power cut the page counts for the zone only if the data is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail {
    /// The zone, one of the page's.
    pub zone: ZoneIndex,
    /// Where the tail begins, in sectors from the zone's start: below it, data was durable already.
    pub from: u32,
    /// CRC-64 (NVMe) of its bytes.
    pub sum: u64,
}

/// A sound ledger page.
#[derive(Clone, PartialEq, Eq)]
pub struct Page {
    /// Place in the ledger: 0 is the session page.
    pub index: u32,
    /// Number of the commit; of two sound slots the one with the larger number counts.
    pub sequence: u64,
    /// One word a zone, or in word 0 the session state.
    pub words: [u64; ZONES_PER_PAGE],
    /// What it promises that was not durable before it, at most [`TAILS_MAX`].
    pub tails: Vec<Tail>,
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({}, sequence {})", self.index, self.sequence)
    }
}

impl Page {
    /// The bytes of its slot: the page, followed by its tails, if it has any.
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

    /// What a commit of any version can have written.
    fn is_possible(&self) -> bool {
        (1..=TAILS_MAX).contains(&(self.count.get() as usize))
    }

    /// What the page has of them. Never 0, which stands for none.
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

/// What one slot of a ledger page holds.
#[derive(Debug)]
enum PageSlot {
    Zero,
    Damaged,
    Sound(Box<Page>),
}

fn parse_slot(bytes: &[u8], index: u32, side: Side, creation: &[u8; 16]) -> Result<PageSlot, PageError> {
    let Ok((raw, rest)) = RawPage::read_from_prefix(bytes) else { return Ok(PageSlot::Damaged) };
    // Tails may have come before their page.
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
    // A slot without room for tails has none, whatever its page says.
    let tails = match (copy.tails.get(), RawTails::ref_from_bytes(rest)) {
        (0, _) | (_, Err(_)) => Vec::new(),
        (sum, Ok(tails)) if tails.sum() == sum && tails.is_possible() => tails.list(),
        _ => return Ok(PageSlot::Damaged),
    };
    let words = copy.words.map(U64::get);
    Ok(PageSlot::Sound(Box::new(Page { index, sequence: copy.sequence.get(), words, tails })))
}

/// What the two slots of a ledger page say together.
#[derive(Debug)]
pub struct Slots {
    /// The page that counts and where it lies; `None`: never written, all zones are empty.
    pub live: Option<(Side, Box<Page>)>,
    /// A slot that is neither sound nor zero: what a power cut leaves of a commit under way.
    pub damaged: Option<Side>,
}

impl Slots {
    /// Reads page `index` from `bytes`, its two slots of the same length.
    ///
    /// # Errors
    /// [`PageError`], if what they hold cannot come from a commit under way.
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
            // The first commit of a page goes to slot A, so that only A can be torn while B is zero.
            (PageSlot::Damaged, PageSlot::Zero) => Slots { live: None, damaged: Some(Side::A) },
            (PageSlot::Zero | PageSlot::Damaged, PageSlot::Damaged) => return Err(PageError::BothDamaged),
        })
    }

    const fn sound(side: Side, page: Box<Page>) -> Slots {
        Slots { live: Some((side, page)), damaged: None }
    }
}

/// Whether the image was closed in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Session {
    /// Closed in order, or never changed: a damaged slot is damage.
    Closed = 0,
    /// Changed since it was opened: one slot a page may be torn.
    Open = 1,
}

impl Session {
    /// The state in the words of a session page.
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

/// The part of the creation number that every page repeats.
fn short(creation: &[u8; 16]) -> [u8; 8] {
    std::array::from_fn(|i| creation[i])
}

/// State of `zone` before anything was written to it.
pub const fn initial_state(geometry: &Geometry, zone: ZoneIndex) -> ZoneState {
    if geometry.is_conventional(zone) { ZoneState::CONVENTIONAL } else { ZoneState::EMPTY }
}

/// The state of `zone` in a ledger word.
///
/// Open states do not survive a reopen, so the ledger has none: a zone is empty, closed, full, read-only, offline or
/// conventional.
///
/// # Errors
/// [`PageError::Zone`], if no zone of this geometry can be so.
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
