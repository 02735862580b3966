//! Power cuts before metadata were lost, and during a rebuild.

use crate::common::{bytes, waiter};
use crate::rebuild::rig::{BLOCK, Rig, Where, waiters};
use crate::rebuild::{file, has_all, lose_and_rebuild, write};
use zonal_fs::make::{MakeOptions, make};
use zonal_fs::rebuild::{RebuildOptions, rebuild};
use zonal_io::image::backing::Backing;

#[test]
fn rebuild_that_a_cut_ends_can_be_done_again() {
    for place in [Where::Conventional, Where::Logged] {
        let mut rig = Rig::new(place, 40);
        let fs = rig.open();
        for n in 0..20 {
            file(&fs, &format!("d/{n}"), &bytes(n, 10_000 + 999 * n as usize));
        }
        fs.sync(&waiter()).unwrap();
        drop(fs);
        let expected = rig.contents();
        rig.lose_metadata();
        rig.backing.sync().unwrap();
        let (mut cuts, mut after) = (0, 1);
        // Up to the first rebuild that completes.
        loop {
            rig.backing.cut_at(rig.backing.calls() + after);
            let ended = rig.reach().map_err(|e| e.to_string()).and_then(|drive| {
                let options = RebuildOptions::default().with_beside(rig.beside());
                rebuild(&drive, &waiters(), &options).map_err(|e| e.to_string())
            });
            let was_cut = !rig.backing.is_on();
            rig.cut(41 + after);
            match ended {
                Ok(_) => break,
                // The cut was after everything relevant.
                Err(error) if error.contains("nothing is lost") && after > 1 => break,
                Err(error) => assert!(was_cut, "{place:?}, {after} calls: {error}"),
            }
            (cuts, after) = (cuts + 1, after + 1 + after / 6);
        }
        assert!(cuts > 8, "{place:?}: {cuts}");
        has_all(&rig.contents(), &expected);
        assert_eq!(rig.findings(), [], "{place:?}");
    }
}

#[test]
fn file_beside_that_was_not_finished_is_made_anew() {
    let rig = Rig::new(Where::Beside, 45);
    let fs = rig.open();
    file(&fs, "f", &bytes(1, 10 * BLOCK));
    fs.sync(&waiter()).unwrap();
    drop(fs);
    let path = rig.beside().unwrap();
    let unfinished = path.with_file_name("rows.rebuild");
    let whole = std::fs::read(&path).unwrap();
    // Left by a rebuild that was killed at the very beginning, or later.
    for half in [&b""[..], &whole[..whole.len() / 2]] {
        std::fs::write(&unfinished, half).unwrap();
        lose_and_rebuild(&rig);
        assert!(!unfinished.exists() && rig.contents().contains_key("/f"));
    }
}

#[test]
fn rebuild_ignores_uncommitted_data_of_an_earlier_session() {
    let mut rig = Rig::new(Where::Logged, 50);
    let fs = rig.open();
    let kept = file(&fs, "kept", &bytes(1, 10 * BLOCK));
    fs.sync(&waiter()).unwrap();
    // Neither is ever synced, and the number of the second file is reused.
    write(&fs, kept, 2 * BLOCK, &bytes(2, 3 * BLOCK));
    let lost = file(&fs, "lost", &bytes(3, 12 * BLOCK));
    crate::common::settle(&fs);
    rig.drive_flush(&fs);
    drop(fs);
    rig.cut(51);
    assert_eq!(rig.findings(), [], "what only landed is no finding");
    let fs = rig.open();
    assert!(fs.resolve(b"lost").is_err());
    let again = fs.create(
        &waiter(),
        zonal_fs::ROOT,
        b"again",
        &zonal_fs::NewFile::new(zonal_fs::format::FileKind::File, 0o644),
    );
    assert_eq!(again.unwrap(), lost);
    // With a hole where the other file had data.
    write(&fs, lost, 8 * BLOCK, &bytes(4, BLOCK));
    fs.sync(&waiter()).unwrap();
    drop(fs);
    let expected = rig.contents();
    assert!(expected["/kept"].as_ref() == Some(&bytes(1, 10 * BLOCK)));
    let rebuilt = lose_and_rebuild(&rig);
    assert!(rebuilt.uncommitted > 2, "{rebuilt:?}");
    assert_eq!(rig.contents(), expected);
}

#[test]
fn number_of_a_file_that_was_given_again_shows_nothing_of_its_first_owner() {
    let mut rig = Rig::new(Where::Logged, 60);
    let fs = rig.open();
    file(&fs, "first", &bytes(1, 4 * BLOCK));
    fs.sync(&waiter()).unwrap();
    let lost = file(&fs, "lost", &bytes(3, 12 * BLOCK));
    crate::common::settle(&fs);
    rig.drive_flush(&fs);
    drop(fs);
    rig.cut(61);
    // The opening that would show that the first owner was in no commit has left no units.
    let fs = rig.open();
    file(&fs, "between", &[]);
    fs.sync(&waiter()).unwrap();
    drop(fs);
    let fs = rig.open();
    let again = fs.resolve(b"between").unwrap();
    assert_eq!(again, lost);
    write(&fs, again, 8 * BLOCK, &bytes(4, BLOCK));
    fs.sync(&waiter()).unwrap();
    drop(fs);
    let expected = rig.contents();
    let rebuilt = lose_and_rebuild(&rig);
    assert!(rebuilt.replaced + rebuilt.uncommitted >= 2, "{rebuilt:?}");
    let found = rig.contents();
    assert!(found["/between"] == expected["/between"]);
}

/// Openings without a commit in between do not reuse numbers.
#[test]
fn numbers_of_an_opening_that_committed_nothing_are_not_given_again() {
    let mut rig = Rig::new(Where::Conventional, 70);
    for round in 0..3u64 {
        let fs = rig.open();
        file(&fs, &format!("f{round}"), &bytes(round, 5 * BLOCK));
        crate::common::settle(&fs);
        rig.drive_flush(&fs);
        drop(fs);
        rig.cut(71 + round);
    }
    let fs = rig.open();
    file(&fs, "f", &bytes(9, 3 * BLOCK));
    fs.sync(&waiter()).unwrap();
    drop(fs);
    let rebuilt = lose_and_rebuild(&rig);
    // The openings committed nothing, and the zone was rewritten after them.
    assert_eq!((rebuilt.files, rebuilt.uncommitted + rebuilt.earlier), (1, 3));
    assert_eq!(rig.contents()["/f"].as_ref(), Some(&bytes(9, 3 * BLOCK)));
}

#[test]
fn drive_that_was_made_anew_has_nothing_of_before() {
    let rig = Rig::new(Where::Conventional, 80);
    let fs = rig.open();
    file(&fs, "f", &bytes(1, 5 * BLOCK));
    fs.sync(&waiter()).unwrap();
    drop(fs);
    let options = MakeOptions::default().with_force(true);
    make(&rig.drive(), &waiters(), [4; 16], &options).unwrap();
    let fs = rig.open();
    file(&fs, "g", &bytes(2, 5 * BLOCK));
    fs.sync(&waiter()).unwrap();
    drop(fs);
    lose_and_rebuild(&rig);
    assert_eq!(rig.contents().keys().collect::<Vec<_>>(), ["/g"]);
}
