//! One sync for data and the page that promises it, and the outcomes of a power cut during it.

use super::*;
use crate::image::format::TAILS_MAX;

/// Location of this sector of a zone in the file.
fn at(zone: u32, sector: u32) -> u64 {
    (1 << 20) + u64::from(zone) * 4096 + u64::from(sector) * 512
}

impl Zones {
    /// Fills sectors of `zone` up to `end` with `byte`.
    fn write(&self, zone: u32, end: u32, byte: u8) {
        let from = self.states[zone as usize].lock().written;
        self.before_write(zone, from).unwrap();
        self.backing.write_at(&vec![byte; (end - from) as usize * 512], at(zone, from)).unwrap();
        self.set(zone, Closed, end);
    }

    /// True if the file has the data of `zone` below its write pointer: each sector has the byte in
    /// `expected`.
    fn has(&self, zone: u32, expected: &[u8]) -> bool {
        let written = self.states[zone as usize].lock().written as usize;
        let mut bytes = vec![0; written * 512];
        self.backing.read_at(&mut bytes, at(zone, 0)).unwrap();
        bytes.chunks(512).zip(expected).all(|(sector, byte)| sector.iter().all(|b| b == byte))
    }

    fn written(&self, zone: u32) -> u32 {
        self.states[zone as usize].lock().written
    }
}

/// Zones 3 and 4 with one durable sector each, and with pages written by this opener.
fn begun() -> Zones {
    let z = zones();
    z.write(3, 1, 1);
    z.write(4, 1, 1);
    z.flush().unwrap();
    z
}

/// Outcomes of power cuts during the sync of a flush of two zones, with data and page written.
fn cut_in_the_sync() -> impl Iterator<Item = Zones> {
    let z = begun();
    z.write(3, 3, 2);
    z.write(4, 2, 2);
    z.backing.cut_at(z.backing.calls() + 1);
    z.flush().unwrap_err();
    (0..400).map(move |seed| read(Arc::new(z.backing.restart(seed))))
}

#[test]
fn data_and_states_are_durable_with_one_sync() {
    let z = begun();
    z.write(3, 3, 2);
    z.write(4, 2, 2);
    assert_eq!(z.calls(|| z.flush().unwrap()), 2, "a page and a sync");
    let z = read(Arc::new(z.backing.restart(1)));
    assert!(z.has(3, &[1, 2, 2]) && z.has(4, &[1, 2]));
    assert_eq!([z.written(3), z.written(4)], [3, 2]);
}

#[test]
fn cut_leaves_each_zone_old_or_with_all_its_data() {
    let mut ends = std::collections::BTreeMap::new();
    for z in cut_in_the_sync() {
        assert!(z.has(3, &[1, 2, 2]) && z.has(4, &[1, 2]), "a pointer above data that is missing");
        *ends.entry((z.written(3), z.written(4))).or_insert(0) += 1;
    }
    let seen: Vec<_> = ends.keys().copied().collect();
    assert_eq!(
        seen,
        [(1, 1), (1, 2), (3, 1), (3, 2)],
        "one zone's data may be missing and another's be there"
    );
}

/// Outcome of a power cut that has left the page, but only the data of zone 4.
fn lost() -> Zones {
    cut_in_the_sync().find(|z| (z.written(3), z.written(4)) == (1, 2)).expect("some cut leaves this")
}

#[test]
fn lost_data_of_a_zone_is_recorded_before_new_writes_to_it() {
    let z = lost();
    // Session and its sync, the old page and a sync, the new page and a sync; discards.
    let calls = z.calls(|| z.before_write(3, 1).unwrap());
    assert!((6..=12).contains(&calls), "{calls} calls");
    assert_eq!(z.after_cut([3, 4]), [state(Closed, 1), state(Closed, 2)]);
    // Rewrites the lost bytes unchanged: no page may refer to them any more.
    z.backing.write_at(&[2; 1024], at(3, 1)).unwrap();
    z.backing.sync().unwrap();
    assert_eq!(z.after_cut([3, 4]), [state(Closed, 1), state(Closed, 2)]);
}

#[test]
fn cuts_while_lost_data_is_noted_change_no_zone() {
    for at in 0..12 {
        let z = lost();
        z.backing.cut_at(z.backing.calls() + at);
        let _ = z.before_write(3, 1);
        for seed in 0..30 {
            let z = read(Arc::new(z.backing.restart(seed)));
            assert_eq!([z.written(3), z.written(4)], [1, 2], "cut at call {at}, seed {seed}");
        }
    }
}

#[test]
fn lost_data_stays_lost_after_a_session_that_was_closed_in_order() {
    let z = lost();
    z.ledger.close(&z.sample()).unwrap();
    let z = read(z.backing.clone());
    assert_eq!([z.written(3), z.written(4)], [1, 2]);
    z.write(3, 2, 5);
    z.flush().unwrap();
    assert!(read(Arc::new(z.backing.restart(1))).has(3, &[1, 5]));
}

#[test]
fn tails_of_a_closed_session_survive_cuts_in_the_next_session() {
    let z = begun();
    z.write(3, 3, 2);
    z.flush().unwrap();
    z.ledger.close(&z.sample()).unwrap();
    for at in 0..8 {
        let z = read(Arc::new(z.backing.restart(1)));
        z.write(4, 2, 2);
        z.backing.cut_at(z.backing.calls() + at);
        let _ = z.flush();
        for seed in 0..30 {
            let z = read(Arc::new(z.backing.restart(seed)));
            assert_eq!(z.written(3), 3, "cut at call {at}, seed {seed}");
            assert!(z.has(3, &[1, 2, 2]) && z.has(4, &[1, 2]));
        }
    }
}

#[test]
fn more_than_tails_can_hold_has_a_sync_of_its_own() {
    let z = begun();
    for zone in 0..TAILS_MAX as u32 {
        z.write(zone, 4, 2);
    }
    assert_eq!(z.calls(|| z.flush().unwrap()), 2);
    for zone in 0..=TAILS_MAX as u32 {
        z.write(zone, 5, 3);
    }
    assert_eq!(z.calls(|| z.flush().unwrap()), 3, "sync, page, sync");
    // Full zones of 4 KiB on two pages; the checksums cover at most 256 of them.
    z.write(700, 1, 1);
    z.flush().unwrap();
    let fill = |zones: Range<u32>| zones.for_each(|zone| z.write(zone, 8, 4));
    fill(400..500);
    fill(701..701 + 156);
    assert_eq!(z.calls(|| z.flush().unwrap()), 3, "two pages and a sync");
    fill(300..400);
    fill(860..860 + 156);
    z.write(700, 2, 1);
    assert_eq!(z.calls(|| z.flush().unwrap()), 4, "a sector more, and a sync");
}

/// Result of opening an image with a page that has zone 3 with four sectors and these tails, in an
/// open or closed session.
fn read_with(tails: &[Tail], session: Session) -> Result<Ledger, ReadError> {
    let backing = Arc::new(CutBacking::new(1));
    let options = ImageOptions { zone_nr_conv: Some(1), ..options() };
    let header = options.format(&*backing).unwrap();
    let mut words = [0; ZONES_PER_PAGE];
    words[0] = session as u64;
    let first = Page { index: 0, sequence: 1, words, tails: Vec::new() };
    for (zone, word) in words.iter_mut().enumerate() {
        *word = initial_state(&header.geometry, ZoneIndex(zone as u32)).to_bits();
    }
    words[3] = state(Closed, 4).to_bits();
    let second = Page { index: 1, sequence: 1, words, tails: tails.to_vec() };
    for page in [first, second] {
        backing.write_at(&page.emit(&header.creation), header.layout().slot(page.index, Side::A)).unwrap();
    }
    Ledger::read(backing, &header, 0).map(|(ledger, _)| ledger)
}

#[test]
fn tails_that_a_page_cannot_have_are_refused_whatever_the_session() {
    let tail = |(zone, from)| Tail { zone: ZoneIndex(zone), from, sum: 1 };
    for session in [Session::Open, Session::Closed] {
        let is_refused = |tails: &[(u32, u32)], (zone, from): (u32, u32)| {
            let fault = PageError::Tail { zone: ZoneIndex(zone), from };
            let tails: Vec<Tail> = tails.iter().copied().map(tail).collect();
            let found = read_with(&tails, session);
            matches!(found, Err(ReadError::Page { page: 1, fault: found }) if found == fault)
        };
        for wrong in [(0, 0), (2, 0), (3, 4), (3, u32::MAX), (508, 0), (1199, 0), (1200, 0), (u32::MAX, 0)] {
            assert!(is_refused(&[wrong], wrong), "{wrong:?}, {session:?}");
        }
        assert!(is_refused(&[(3, 1), (3, 3)], (3, 3)), "two of a zone, {session:?}");
        assert!(read_with(&[tail((3, 3))], session).is_ok());
    }
}

#[test]
fn image_without_room_for_tails_has_both_syncs() {
    let backing = Arc::new(CutBacking::new(1));
    let header = Header { version: 1, ..options().header().unwrap() };
    backing.set_len(header.layout().file_len().unwrap()).unwrap();
    let Ok((ledger, states)) = Ledger::read(backing.clone(), &header, 0) else { panic!("a sound ledger") };
    let states = states.into_iter().map(Mutex::new).collect();
    let z = Zones { backing, in_sync: Arc::default(), ledger, states };
    z.write(3, 1, 1);
    z.flush().unwrap();
    z.write(3, 3, 2);
    assert_eq!(z.calls(|| z.flush().unwrap()), 3, "sync, page, sync");
}
