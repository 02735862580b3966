use super::*;
use crate::image::backing::CacheId;
use proptest::prelude::*;
use zonal_core::device::ZoneState;
use zonal_core::{ZoneCondition, ZoneIndex};

fn header() -> Header {
    Header {
        creation: std::array::from_fn(|i| i as u8),
        geometry: Geometry::new(Sectors(1200 * 64), Sectors(64), Sectors(48), 3).unwrap(),
        open_max: 6,
        active_max: 8,
        block_sectors: 8,
        append_sectors_max: 256,
        personality: Personality::Zbc,
        rotational: true,
        profile: "zns-1t".into(),
        identity: Identity::from_bytes(*b"golden-identity!"),
        zones_per_file: 0,
        version: VERSION,
    }
}

fn page(index: u32, sequence: u64, word: u64) -> Page {
    Page { index, sequence, words: [word; ZONES_PER_PAGE], tails: Vec::new() }
}

const CREATION: [u8; 16] = [3; 16];

fn slots(a: &[u8], b: &[u8]) -> Result<Slots, PageError> {
    Slots::parse(&[a, b].concat(), 1, &CREATION)
}

#[test]
fn header_emit_then_parse_is_the_same() {
    assert_eq!(Header::parse(&header().emit()), Ok(header()));
}

#[test]
fn header_any_byte_flipped_is_refused_or_means_the_same() {
    let (bytes, whole) = (header().emit(), header());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            // The other copy is sound and is used instead.
            assert_eq!(fuzz_header(&flipped).as_ref(), Ok(&whole), "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn header_same_byte_flipped_in_both_copies_is_refused() {
    let bytes = header().emit();
    for at in 0..HEADER_COPY_OFFSET as usize {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        flipped[at + HEADER_COPY_OFFSET as usize] ^= 0x10;
        match fuzz_header(&flipped) {
            Err(HeaderError::Foreign) => assert!(at < 8),
            Err(HeaderError::Newer(_) | HeaderError::VersionZero) => assert!((8..12).contains(&at)),
            Err(HeaderError::Checksum { .. }) => assert!((12..512).contains(&at), "byte {at}"),
            Ok(parsed) => assert!(parsed == header() && at >= 512, "byte {at}"),
            Err(e) => panic!("byte {at}: {e}"),
        }
    }
}

#[test]
fn header_copies_that_differ_are_refused() {
    let mut bytes = header().emit();
    let other = Header { open_max: 5, ..header() }.emit();
    bytes[HEADER_COPY_OFFSET as usize..].copy_from_slice(&other[HEADER_COPY_OFFSET as usize..]);
    assert_eq!(Header::parse(&bytes), Err(HeaderError::CopiesDiffer));
}

/// Bytes of a header after `change`, with correct checksums, in both copies.
fn changed(change: impl FnOnce(&mut RawHeader)) -> Vec<u8> {
    let mut bytes = header().emit();
    let (raw, _) = RawHeader::mut_from_prefix(&mut bytes).unwrap();
    change(raw);
    raw.crc = raw.checksum().into();
    let (first, second) = bytes.split_at_mut(HEADER_COPY_OFFSET as usize);
    second.copy_from_slice(first);
    bytes
}

#[test]
fn header_newer_version_is_named_whatever_its_checksum() {
    let mut bytes = changed(|h| h.version = 5.into());
    let newer = HeaderError::Newer(5);
    assert_eq!(Header::parse(&bytes), Err(newer.clone()));
    bytes[12] ^= 1;
    assert_eq!(Header::parse(&bytes), Err(newer.clone()));
    assert!(newer.to_string().contains("format version 5; this program reads versions 1 and 4"));
}

#[test]
fn header_unreleased_version_is_refused_with_the_way_out() {
    for version in [2, 3] {
        let error = Header::parse(&changed(|h| h.version = version.into())).unwrap_err();
        assert_eq!(error, HeaderError::Unreleased(version));
        let message = format!(
            "format version {version}, which was never released; read it with the program that wrote it"
        );
        assert!(error.to_string().contains(&message), "{error}");
    }
}

#[test]
fn header_of_version_1_has_no_identity_whatever_is_in_its_place() {
    let none = Header { identity: None, ..header() };
    let first = Header { version: 1, ..none.clone() };
    assert_eq!(Header::parse(&changed(|h| h.version = 1.into())), Ok(first.clone()));
    assert_eq!(Header::parse(&first.emit()), Ok(first));
    assert_eq!(Header::parse(&none.emit()), Ok(none.clone()), "nil is none");
    assert_eq!(Header::parse(&changed(|h| h.identity = [0; 16])), Ok(none));
}

#[test]
fn header_unknown_features_are_refused_only_if_incompatible() {
    let bytes = changed(|h| h.incompat = 5.into());
    assert_eq!(Header::parse(&bytes), Err(HeaderError::UnknownFeatures(4)));
    assert_eq!(Header::parse(&changed(|h| h.compat = 5.into())), Ok(header()));
    assert_eq!(Header::parse(&changed(|h| h.rest[100] = 5)), Ok(header()));
}

#[test]
fn header_of_several_files_is_for_those_who_know_the_feature() {
    let split = Header { zones_per_file: 500, ..header() };
    let emitted = split.emit();
    assert_eq!(emitted[16..20], 1u32.to_le_bytes(), "an older reader refuses it");
    assert_eq!(Header::parse(&emitted), Ok(split.clone()));
    assert_eq!(split.split().map(|split| split.files()), Some(3));
    // Without the feature the field is ignored.
    assert_eq!(Header::parse(&changed(|h| h.zones_per_file = 500.into())), Ok(header()));
    assert_eq!(header().emit()[16..20], [0; 4]);
    let first = changed(|h| {
        h.version = 1.into();
        h.incompat = 1.into();
    });
    assert_eq!(Header::parse(&first), Err(HeaderError::UnknownFeatures(1)));
    // All zones in one file, none in any, too many files.
    for zones in [1200, 0, 4, u32::MAX] {
        let bytes = Header { zones_per_file: zones, ..header() }.emit();
        let bytes = if zones == 0 { changed(|h| h.incompat = 1.into()) } else { bytes };
        let refused = Header::parse(&bytes).unwrap_err().to_string();
        assert!(refused.contains("the number of zones in a file"), "{zones}: {refused}");
    }
}

#[test]
fn header_impossible_fields_are_refused() {
    let refused = |change: fn(&mut RawHeader)| Header::parse(&changed(change)).unwrap_err().to_string();
    for (change, message) in [
        ((|h| h.zone_size = 65.into()) as fn(&mut RawHeader), "zone size of 33280 bytes"),
        (|h| h.zone_size = u64::MAX.into(), "zone size"),
        (|h| h.sectors = 0.into(), "a device of 0 bytes"),
        (|h| h.sectors = u64::MAX.into(), "cannot be divided"),
        (|h| h.zone_capacity = 65.into(), "zone capacity of 33280 bytes"),
        (|h| h.conventional = 1200.into(), "1200 of 1200 zones are conventional"),
        (|h| h.open_max = 9.into(), "max open 9 is above max active 8"),
        (|h| h.block_sectors = 3.into(), "the logical block, in sectors, is 3"),
        (|h| h.block_sectors = 0.into(), "the logical block, in sectors, is 0"),
        (|h| h.personality = 2, "the personality is 2"),
        (|h| h.rotational = 2, "the rotational flag is 2"),
        (|h| h.ledger_offset = 0.into(), "the ledger's offset is 0"),
        (|h| h.data_offset = 4096.into(), "the data's offset is 4096"),
        (|h| h.profile = [0xFF; 32], "profile name"),
        (
            |h| {
                h.zone_size = 8.into();
                h.zone_capacity = 8.into();
                h.sectors = (8 * (u64::from(ZONES_MAX) + 1)).into();
            },
            "the number of zones is 16777217",
        ),
    ] {
        let found = refused(change);
        assert!(found.contains(message), "{found:?} does not say {message:?}");
    }
}

#[test]
fn header_too_short_or_foreign_is_refused() {
    assert_eq!(Header::parse(&[]), Err(HeaderError::Short(0)));
    assert_eq!(Header::parse(&[0; 8192]), Err(HeaderError::Foreign));
    let cut = &header().emit()[..511];
    assert_eq!(Header::parse(cut), Err(HeaderError::Short(511)));
}

#[test]
fn layout_of_a_large_drive() {
    let zones = 112_000;
    let geometry = Geometry::new(Sectors(zones << 18), Sectors(1 << 18), Sectors(0), 0).unwrap();
    let layout = Layout::of(&geometry, 4);
    assert_eq!(layout.zone_pages, 221);
    assert_eq!(layout.slot(1, Side::B), 8192 + 3 * 8192);
    assert_eq!(
        (layout.current_offset, layout.current_words().end),
        (3_645_440, 3_645_440 + 4096 + 8 * zones)
    );
    assert_eq!(layout.data_offset, 5 << 20);
    let layout = Layout::of(&geometry, 1);
    assert_eq!(layout.slot(1, Side::B), 8192 + 3 * 4096);
    assert_eq!(layout.data_offset, 2 << 20);
    assert_eq!(layout.file_len(), Some((2 << 20) + (zones << 27)));
}

#[test]
fn slots_larger_sequence_counts() {
    let (old, new) = (page(1, 6, 1).emit(&CREATION), page(1, 7, 2).emit(&CREATION));
    for (a, b, side) in [(&old, &new, Side::B), (&new, &old, Side::A)] {
        let (found, live) = slots(a, b).unwrap().live.unwrap();
        assert_eq!((found, live.sequence, live.words[3]), (side, 7, 2));
    }
    assert_eq!(slots(&old, &old).unwrap_err(), PageError::SameSequence(6));
}

#[test]
fn slots_never_written_have_no_page() {
    let zero = [0; PAGE_BYTES];
    let found = slots(&zero, &zero).unwrap();
    assert!(found.live.is_none() && found.damaged.is_none());
}

#[test]
fn slots_torn_commit_leaves_the_other() {
    let (old, new) = (page(1, 6, 1).emit(&CREATION), page(1, 7, 2).emit(&CREATION));
    for torn_at in (512..PAGE_BYTES).step_by(512) {
        let torn = [&new[..torn_at], &page(1, 5, 0).emit(&CREATION)[torn_at..]].concat();
        let found = slots(&torn, &old).unwrap();
        assert_eq!(found.damaged, Some(Side::A));
        assert_eq!(found.live.unwrap().1.sequence, 6);
        // The very first commit: the rest is zero.
        let torn = [&new[..torn_at], &[0; PAGE_BYTES][torn_at..]].concat();
        let found = slots(&torn, &[0; PAGE_BYTES]).unwrap();
        assert!(found.live.is_none() && found.damaged == Some(Side::A));
    }
}

#[test]
fn slots_both_damaged_or_from_elsewhere_are_refused() {
    let good = page(1, 6, 1).emit(&CREATION);
    let mut bad = good.clone();
    bad[4000] ^= 1;
    assert_eq!(slots(&bad, &bad).unwrap_err(), PageError::BothDamaged);
    assert_eq!(slots(&[0; PAGE_BYTES], &bad).unwrap_err(), PageError::BothDamaged);
    let elsewhere = page(2, 9, 1).emit(&CREATION);
    assert!(matches!(
        slots(&good, &elsewhere).unwrap_err(),
        PageError::Misplaced { side: Side::B, found: 2, .. }
    ));
    let other_image = page(1, 9, 1).emit(&[4; 16]);
    assert!(matches!(slots(&other_image, &good).unwrap_err(), PageError::Misplaced { side: Side::A, .. }));
}

#[test]
fn page_any_bit_flipped_is_damaged() {
    let bytes = page(1, 6, 1).emit(&CREATION);
    for at in 0..PAGE_BYTES {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert_eq!(slots(&flipped, &[0; PAGE_BYTES]).unwrap().damaged, Some(Side::A), "byte {at}");
    }
}

/// Page with tails.
fn with_tails(sequence: u64, tails: usize) -> Page {
    let tail = |n: u32| Tail { zone: ZoneIndex(n), from: n * 3, sum: u64::from(n) << 40 | 7 };
    Page { tails: (0..tails as u32).map(tail).collect(), ..page(1, sequence, 2) }
}

#[test]
fn page_with_tails_emit_then_parse_is_the_same() {
    for count in [0, 1, 2, TAILS_MAX] {
        let page = with_tails(6, count);
        let mut bytes = page.emit(&CREATION);
        assert_eq!(bytes.len(), if count == 0 { PAGE_BYTES } else { 2 * PAGE_BYTES });
        // Leftovers of an earlier commit beside a page without tails are ignored.
        bytes.resize(2 * PAGE_BYTES, 7);
        let found = slots(&bytes, &[0; 2 * PAGE_BYTES]).unwrap();
        assert_eq!(found.live, Some((Side::A, Box::new(page))));
        assert_eq!(found.damaged, None);
    }
}

#[test]
fn page_with_other_tails_beside_it_is_damaged() {
    let (old, new) = (with_tails(6, 3).emit(&CREATION), with_tails(7, 3));
    let bytes = new.emit(&CREATION);
    let tails = |tails: &[u8]| {
        let found = slots(&old, &[&bytes[..PAGE_BYTES], tails].concat()).unwrap();
        (found.live.unwrap().1.sequence, found.damaged)
    };
    assert_eq!(tails(&bytes[PAGE_BYTES..]), (7, None));
    let torn = (6, Some(Side::B));
    for at in PAGE_BYTES..2 * PAGE_BYTES {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert_eq!(tails(&flipped[PAGE_BYTES..]), torn, "byte {at}");
    }
    assert_eq!(tails(&[0; PAGE_BYTES]), torn, "they have not arrived");
    let other = Page { tails: with_tails(7, 2).tails, ..new }.emit(&CREATION);
    assert_eq!(tails(&other[PAGE_BYTES..]), torn, "of a commit with the same number that a cut undid");
}

#[test]
fn page_with_an_impossible_number_of_tails_is_damaged() {
    for count in [0, TAILS_MAX as u32 + 1, u32::MAX] {
        let mut bytes = with_tails(7, 3).emit(&CREATION);
        let (page, tails) = bytes.split_at_mut(PAGE_BYTES);
        tails[..4].copy_from_slice(&count.to_le_bytes());
        // Both checksums are correct.
        page[12..16].copy_from_slice(&crc(tails).to_le_bytes());
        page[4..8].fill(0);
        let sum = crc(page);
        page[4..8].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(slots(&bytes, &[0; 2 * PAGE_BYTES]).unwrap().damaged, Some(Side::A), "{count} tails");
    }
}

#[test]
fn tails_written_before_their_page_count_as_no_page() {
    let mut bytes = with_tails(6, 3).emit(&CREATION);
    bytes[..PAGE_BYTES].fill(0);
    let found = slots(&bytes, &[0; 2 * PAGE_BYTES]).unwrap();
    assert_eq!((found.live, found.damaged), (None, None));
}

#[test]
fn state_words_no_commit_writes_are_refused() {
    let geometry = header().geometry;
    let state = |condition, written| ZoneState { condition, written }.to_bits();
    let parse = |zone, word| state_from_word(&geometry, ZoneIndex(zone), word);
    for (zone, word) in [
        (0, ZoneState::CONVENTIONAL.to_bits()),
        (9, ZoneState::EMPTY.to_bits()),
        (9, state(ZoneCondition::Closed, 47)),
        (9, state(ZoneCondition::Full, 0)),
        (9, ZoneState::full(48).to_bits()),
        (9, state(ZoneCondition::ReadOnly, 5)),
        (9, state(ZoneCondition::Offline, 0)),
    ] {
        assert_eq!(parse(zone, word).map(ZoneState::to_bits), Ok(word));
    }
    for (zone, word) in [
        (9, 0),
        (0, ZoneState::EMPTY.to_bits()),
        (9, state(ZoneCondition::ImpOpen, 5)),
        (9, state(ZoneCondition::ExpOpen, 0)),
        (9, state(ZoneCondition::Closed, 0)),
        (9, state(ZoneCondition::Closed, 48)),
        (9, ZoneState::full(49).to_bits()),
        (9, ZoneState::EMPTY.to_bits() | 1 << 40),
    ] {
        assert_eq!(parse(zone, word), Err(PageError::Zone { zone: ZoneIndex(zone), word }));
    }
}

proptest! {
    #[test]
    fn fuzz_header_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..9000), magic: bool) {
        if magic && bytes.len() >= 16 {
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
        }
        let _ = fuzz_header(&bytes);
    }

    #[test]
    fn header_with_any_fields_and_a_right_checksum_never_panics(
        sectors: u64, shift in 0u32..64, capacity: u64, counts: [u32; 5], block_shift in 0u32..10,
    ) {
        let _ = fuzz_header(&changed(|h| {
            h.sectors = sectors.into();
            h.zone_size = (1u64 << shift).into();
            h.zone_capacity = capacity.into();
            h.conventional = counts[0].into();
            h.open_max = counts[1].into();
            h.active_max = counts[2].into();
            h.block_sectors = (1u32 << block_shift).into();
            h.append_sectors_max = counts[4].into();
        }));
    }

    #[test]
    fn slots_of_any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..9000)) {
        let _ = Slots::parse(&bytes, 1, &CREATION);
    }
}

#[test]
fn stamp_emit_then_parse_is_the_same() {
    for state in [StampState::Counts, StampState::InSync] {
        let stamp = Stamp { state, cache: CacheId([1, 2, 3, 4, 5]), creation: CREATION };
        assert_eq!(Stamp::parse(&Stamp::emit(Some(&stamp))), Ok(Some(stamp)));
    }
    assert_eq!(Stamp::parse(&Stamp::emit(None)), Ok(None));
    assert_eq!(Stamp::parse(&[3; STAMP_BYTES]), Err(0x0303_0303_0303_0303));
}

#[test]
fn current_word_with_any_bit_flipped_is_no_state() {
    let geometry = header().geometry;
    let state = ZoneState { condition: ZoneCondition::Closed, written: 12 };
    let word = current_word(&CREATION, ZoneIndex(7), state);
    let read = |creation, zone, word| current_state(&geometry, &creation, ZoneIndex(zone), word);
    assert_eq!(read(CREATION, 7, word), Some(state));
    assert_eq!((read(CREATION, 8, word), read([4; 16], 7, word), read(CREATION, 7, 0)), (None, None, None));
    (0..64).for_each(|bit| assert_eq!(read(CREATION, 7, word ^ 1 << bit), None, "bit {bit}"));
}
