//! Damaged metadata: bits, blocks and segments that the store did not write, and stores that were
//! restored to an earlier state.
//!
//! After each damage, the file system is opened read-only, checked, used, used by a later command,
//! opened read-only again, and repaired. All its answers have to come from one synced state: the
//! last one, or, if only the last batches of the newest segment are lost, the one before. If there
//! is no answer, the result is an error.

mod answers;
mod fixture;

use crate::common::{bytes, cases_of, impatient, number, read_all, waiter};
use answers::{Fault, Judge, LATER, LostOf, answers, errors, salvage_difference};
use fixture::{Damage, Disk, End, Fixture, Shape};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, Once};
use std::thread::ThreadId;
use std::time::{Duration, Instant};
use zonal_fs::format::FileKind;
use zonal_fs::fsck::{Finding, Loss, Options, check, repair};
use zonal_fs::make::{Access, MakeError, superblock};
use zonal_fs::{Changes, FileSystem, FsError, MountOptions, NewFile, Payload, ROOT};

/// Time limit for a case. A case that exceeds it hangs, and ends the test.
const CASE_MAX: Duration = Duration::from_secs(60);

/// Rounds of a repair, as in the command.
const ROUNDS_MAX: u32 = 4;

/// Cases per drive: with `ZONAL_WHOLE`, and in the ordinary test.
const USUAL: (u64, u64) = (500, 100);

/// Cases for the smallest drives.
const USUAL_FEW: (u64, u64) = (40, 10);

/// Result of a case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    Sound,
    Refused,
    Told,
    /// Pages were lost, and a repair kept the others.
    Mended,
    LastBatchesLost,
}

/// Running cases, with their start times.
static RUNNING: LazyLock<Mutex<HashMap<ThreadId, (Instant, String)>>> = LazyLock::new(Mutex::default);

/// Ends the process if a case hangs, because nothing can catch that.
fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        drop(std::thread::spawn(|| {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                for (begin, what) in RUNNING.lock().values() {
                    if begin.elapsed() > CASE_MAX {
                        eprintln!("it hangs: {what}");
                        std::process::abort();
                    }
                }
            }
        }));
    });
}

fn guarded<R>(what: String, case: impl FnOnce() -> Result<R, String>) -> Result<R, String> {
    watch();
    let thread = std::thread::current().id();
    RUNNING.lock().insert(thread, (Instant::now(), what.clone()));
    let result = catch_unwind(AssertUnwindSafe(case));
    RUNNING.lock().remove(&thread);
    let panicked = |_| Err("panic".to_owned());
    result.unwrap_or_else(panicked).map_err(|why| format!("{what}: {why}"))
}

/// Findings of fsck, or its error.
fn findings(disk: &Disk) -> Result<Vec<Finding>, MakeError> {
    let drive = disk.drive();
    let rows = disk.rows(&drive, Access::Verify)?;
    Ok(check(&rows, &superblock(&drive, &waiter())?, &drive, &waiter(), Options::default().with_data(true))?)
}

/// Repairs in the same way as the command. Returns the findings that are left.
fn mended(disk: &Disk, mut found: Vec<Finding>) -> Result<Vec<Finding>, MakeError> {
    let drive = disk.drive();
    let superblock = superblock(&drive, &waiter())?;
    let options = MountOptions::default();
    let mut rows = disk.rows(&drive, Access::Use(&options))?;
    for _ in 0..ROUNDS_MAX {
        repair(&mut rows, &found)?;
        found = check(&rows, &superblock, &drive, &waiter(), Options::default().with_data(true))?;
        if !found.iter().any(Finding::is_repairable) {
            break;
        }
    }
    Ok(found)
}

/// Writes a separate file.
fn later(fs: &FileSystem, data: &[u8]) -> Result<(), FsError> {
    let ino = fs.create(&impatient(), ROOT, LATER, &NewFile::new(FileKind::File, 0o600))?;
    fs.write(&impatient(), ino, 0, Payload::Bytes(data))?;
    fs.sync(&impatient())
}

/// Checks that the later file exists if its command succeeded, and that its contents are right.
fn check_later(fs: &FileSystem, is_synced: bool, data: &[u8]) -> Result<(), String> {
    match fs.resolve(LATER) {
        Err(FsError::NotFound) if is_synced => Err("permanent: the later file is gone".to_owned()),
        Err(_) => Ok(()),
        Ok(ino) => match read_all(fs, ino) {
            Ok(read) if is_synced && read != data => Err("silent: the later file is another one".to_owned()),
            _ => Ok(()),
        },
    }
}

/// Checks that a refusal names a place, unless all copies of the superblock are lost.
fn check_refusal(error: &str, has_copy: bool) -> Result<(), String> {
    let places = ["zone ", "piece ", "block ", "superblock", "beside the drive"];
    match !has_copy || places.iter().any(|place| error.contains(place)) {
        true => Ok(()),
        false => Err(format!("a refusal without a place: {error}")),
    }
}

/// After a repair of lost pages, the file system opens and accepts files, fsck finds no more than
/// was reported, and each answer is right, reported as lost, or an error.
fn check_salvage(
    fixture: &Fixture,
    disk: &Disk,
    judge: &Judge<'_>,
    losses: &[Loss],
    left: &[Finding],
) -> Result<(), String> {
    let fs = disk.open(true).map_err(|error| format!("permanent: refused after a repair: {error}"))?;
    let is_new = fs.resolve(LATER).is_err();
    let made = if is_new { later(&fs, &bytes(99, 9000)) } else { Ok(()) };
    made.map_err(|error| format!("permanent: no file after a repair: {error}"))?;
    drop(fs);
    let fs = disk.open(false).map_err(|error| format!("permanent: refused after a repair: {error}"))?;
    check_later(&fs, is_new, &bytes(99, 9000))?;
    let seen = answers(&fs, &fixture.paths);
    let lost_of = |path: &str| {
        let Ok(ino) = fs.resolve(path.as_bytes()) else { return LostOf::default() };
        let has = |is: &dyn Fn(&Loss) -> bool| losses.iter().any(is);
        let own = |loss: &Loss| loss.file() == Some(ino);
        let is_gone = left.iter().any(|finding| finding.file() == Some(ino));
        LostOf {
            attributes: has(&|loss| own(loss) && matches!(loss, Loss::Attributes { .. })),
            extents: is_gone || has(&|loss| own(loss) && matches!(loss, Loss::Extents { .. })),
            xattrs: has(&|loss| match loss {
                Loss::Rows { what: "extended attributes of files", first, last } => {
                    (*first..=*last).contains(&ino)
                }
                _ => false,
            }),
        }
    };
    let are_names_lost =
        losses.iter().any(|loss| matches!(loss, Loss::Rows { what: "names in directories", .. }));
    let wrong = |synced| salvage_difference(&seen, synced, are_names_lost, lost_of);
    let differences: Vec<String> = judge.left().map_while(wrong).collect();
    match differences.len() < judge.left().count() {
        true => Ok(()),
        false => {
            Err(format!("silent: after a salvage: {}; {losses:?}, {left:?}", differences.last().unwrap()))
        }
    }?;
    drop(fs);
    match findings(disk) {
        Ok(found) if !found.iter().any(Finding::is_repairable) => Ok(()),
        Ok(found) => Err(format!("permanent: after a salvage fsck finds {found:?}")),
        Err(error) => Err(format!("permanent: after a salvage fsck says {error}")),
    }
}

/// Plays a case on a damaged copy.
fn play(fixture: &Fixture, disk: &Disk) -> Result<Outcome, String> {
    let mut judge = Judge::new(&fixture.states, fixture.first);
    let mut observe = |fs: &FileSystem, when: &str| {
        let seen = answers(fs, &fixture.paths);
        let told = errors(&seen).map(|(question, error)| format!("{question}: {error}")).next();
        judge.observe(&seen, when).map(|()| told).map_err(|fault| match fault {
            Fault::Silent(why) => format!("silent: {why}"),
            Fault::Permanent(why) => format!("permanent: {why}"),
        })
    };
    let looked = match disk.open(false) {
        Ok(fs) => observe(&fs, "looked at").map(Ok)?,
        Err(error) => Err(error.to_string()),
    };
    let checked = findings(disk);
    if let (Ok(Some(told)) | Err(told), Ok([])) = (&looked, checked.as_deref()) {
        return Err(format!("permanent: fsck is clean, and a reader is told {told}"));
    }
    let (data, mut is_synced) = (bytes(99, 9000), false);
    let mut outcome = match (&looked, disk.open(true)) {
        (_, Ok(fs)) => {
            let told = observe(&fs, "opened")?;
            is_synced = later(&fs, &data).is_ok();
            if told.is_some() { Outcome::Told } else { Outcome::Sound }
        }
        (Err(refusal), Err(_)) => {
            check_refusal(refusal, fixture.has_copy(disk))?;
            Outcome::Refused
        }
        (Ok(_), Err(refusal)) => {
            check_refusal(&refusal.to_string(), fixture.has_copy(disk))?;
            Outcome::Told
        }
    };
    if let Ok(Some(_)) = looked {
        outcome = Outcome::Told;
    }
    if let Ok(fs) = disk.open(false) {
        observe(&fs, "after a later command")?;
        check_later(&fs, is_synced, &data)?;
    } else if outcome == Outcome::Sound {
        return Err("permanent: a later command made it refused".to_owned());
    }
    if let Ok(found) = findings(disk)
        && found.iter().any(Finding::is_repairable)
    {
        let left = mended(disk, found);
        if let Ok(fs) = disk.open(false) {
            let told = observe(&fs, "after a repair")?;
            check_later(&fs, is_synced, &data)?;
            if let (Some(told), Ok([])) = (told, left.as_deref()) {
                return Err(format!("permanent: the repair is clean, and a reader is told {told}"));
            }
        }
    }
    if let Err(MakeError::Fs(_)) = findings(disk)
        && let Ok((losses, left)) = disk.salvage(ROUNDS_MAX)
    {
        check_salvage(fixture, disk, &judge, &losses, &left)?;
        outcome = Outcome::Mended;
    }
    if outcome == Outcome::Sound && !judge.is_newest() {
        outcome = Outcome::LastBatchesLost;
    }
    Ok(outcome)
}

/// Plays the cases of the drive `name`: a number of them depending on the mode, unless another is
/// requested.
fn campaign(name: &str, shape: Shape, (whole, sample): (u64, u64)) {
    let (first, cases) = (number("ZONAL_SEED", 0), number("ZONAL_CASES", cases_of(whole, sample)));
    let fixtures = [End::Closed, End::Cut].map(|end| (end, Fixture::of(shape, end)));
    let (mut outcomes, mut defects) = (BTreeMap::<Outcome, u64>::new(), Vec::new());
    for seed in first..first + cases {
        let (end, fixture) = &fixtures[(seed % 2) as usize];
        let damage = fixture.draw(seed);
        let case = || play(fixture, &fixture.damaged(&damage));
        match guarded(format!("{name}, {end:?}, ZONAL_SEED={seed}, {damage:?}"), case) {
            Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
            Err(defect) => defects.push(defect),
        }
    }
    println!("damage: {name} {cases} cases, {outcomes:?}, {} defects", defects.len());
    let shown: Vec<&String> = defects.iter().take(10).collect();
    assert!(defects.is_empty(), "{} defects, {shown:#?}", defects.len());
    // The campaign covers its purpose.
    let outcomes_needed = [Outcome::Sound, Outcome::Refused, Outcome::Mended];
    let is_varied = outcomes_needed.iter().all(|outcome| outcomes.contains_key(outcome));
    assert!(cases < USUAL.1 || is_varied, "{outcomes:?}");
}

#[test]
fn damage_in_zones_causes_no_silent_corruption() {
    campaign("zones", Shape::LOGGED, USUAL);
}

#[test]
fn damage_in_conventional_zones_causes_no_silent_corruption() {
    campaign("conventional zones", Shape::CONVENTIONAL, USUAL);
}

#[test]
fn damage_in_the_file_beside_causes_no_silent_corruption() {
    campaign("file beside", Shape::BESIDE, USUAL);
}

#[test]
fn damage_on_minimal_drives_causes_no_silent_corruption() {
    campaign("fewest active zones", Shape::FEWEST_ACTIVE, USUAL_FEW);
    campaign("smallest drive, file beside", Shape::SMALLEST, USUAL_FEW);
}

#[test]
fn place_put_back_to_before_the_superblocks_number_is_refused() {
    let shapes = [Shape::LOGGED, Shape::CONVENTIONAL, Shape::BESIDE, Shape::FEWEST_ACTIVE];
    for (shape, end) in shapes.into_iter().flat_map(|shape| [(shape, End::Closed), (shape, End::Cut)]) {
        let fixture = Fixture::of(shape, end);
        let mut refused = 0;
        for moment in 0..fixture.moments() {
            let (state, damage) = fixture.put_back_to(moment);
            let opened = fixture.damaged(&damage).open(true).map(drop);
            if state < fixture.first {
                let error = opened.unwrap_err().to_string();
                assert!(error.contains("metadata: "), "{shape:?}, {end:?}, state {state}: {error}");
                refused += 1;
            }
        }
        assert!(refused > 10, "{shape:?}, {end:?}: {refused}");
    }
}

#[test]
fn lost_copies_of_the_superblock_leave_the_others() {
    for shape in [Shape::CONVENTIONAL, Shape::LOGGED] {
        let fixture = Fixture::of(shape, End::Closed);
        for damage in fixture.lost_copies() {
            let what = format!("{shape:?} {damage:?}");
            let disk = fixture.damaged(&damage);
            assert!(fixture.has_copy(&disk));
            assert_eq!(guarded(what.clone(), || play(fixture, &disk)), Ok(Outcome::Sound), "{what}");
        }
    }
}

/// Verdict on a change that was made outside of the history, with correct checksums.
fn planted(fixture: &Fixture, change: impl FnOnce(&FileSystem)) -> Result<Outcome, String> {
    let disk = fixture.damaged(&Damage::Bits(Vec::new()));
    let fs = disk.open(true).unwrap();
    change(&fs);
    fs.sync(&waiter()).unwrap();
    drop(fs);
    play(fixture, &disk)
}

#[test]
fn canary_judge_catches_a_changed_byte_and_a_changed_owner() {
    let fixture = Fixture::of(Shape::LOGGED, End::Closed);
    let sound = guarded("no change".to_owned(), || planted(fixture, |_| {}));
    assert_eq!(sound, Ok(Outcome::Sound));
    let silent = |change: &dyn Fn(&FileSystem)| {
        let error = guarded("a change".to_owned(), || planted(fixture, change)).unwrap_err();
        assert!(error.starts_with("a change: silent: "), "{error}");
    };
    silent(&|fs| {
        let ino = file(fs);
        fs.write(&waiter(), ino, 0, Payload::Bytes(b"X")).unwrap();
    });
    silent(&|fs| {
        let changes = Changes { uid: Some(4711), ..Changes::default() };
        fs.set_attributes(&waiter(), file(fs), &changes).unwrap();
    });
    silent(&|fs| {
        let parent = fs.resolve(b"d0").unwrap();
        let mut first = None;
        fs.list(parent, None, |name, _| {
            first.get_or_insert(name.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
        fs.unlink(&waiter(), parent, &first.unwrap()).unwrap();
    });
}

#[test]
fn canary_judge_catches_an_observation_that_differs_from_the_one_before() {
    let fixture = Fixture::of(Shape::LOGGED, End::Closed);
    let last = fixture.states.len() - 1;
    let mut judge = Judge::new(&fixture.states, 0);
    assert_eq!(judge.observe(&fixture.states[last], "looked at"), Ok(()));
    assert!(judge.is_newest());
    let fault = judge.observe(&fixture.states[last - 1], "after a later command");
    assert!(matches!(fault, Err(Fault::Permanent(_))), "{fault:?}");
    // An old value among new ones.
    let mut mixed = fixture.states[last].clone();
    let is_changed = |question: &&String| {
        question.starts_with("data:") && fixture.states[last / 2].get(*question) != mixed.get(*question)
    };
    let question = fixture.states[last / 2].keys().find(is_changed).unwrap().clone();
    mixed.insert(question.clone(), fixture.states[last / 2][&question].clone());
    let fault = Judge::new(&fixture.states, 0).observe(&mixed, "looked at");
    assert!(matches!(fault, Err(Fault::Silent(_))), "{fault:?}");
}

/// A file with data.
fn file(fs: &FileSystem) -> u64 {
    let mut files = Vec::new();
    fs.list(fs.resolve(b"d1").unwrap(), None, |_, entry| {
        files.extend((entry.kind == FileKind::File).then_some(entry.ino));
        ControlFlow::Continue(())
    })
    .unwrap();
    files.into_iter().find(|ino| fs.attributes(*ino).unwrap().size > 1).unwrap()
}
