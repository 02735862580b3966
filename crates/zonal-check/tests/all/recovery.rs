//! Random failures in every mode, with an oracle of the device's actions: every result of a write
//! is true.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zonal_check::rig::{Rig, tags};
use zonal_check::script::{Answer, Script, Seen, info};
use zonal_core::plug::Decision;
use zonal_core::plug::flight::{Fate, end_of, replay};
use zonal_core::{DeviceError, Op, RequestError, ZoneCondition, ZoneError};
use zonal_io::device::{DeviceInfo, Output, Settled};
use zonal_io::volume::{Request, VolumeOptions, WriteMode};

const ROUNDS: u64 = 400;
/// Modes with plugs.
const MODES: [WriteMode; 5] =
    [WriteMode::PerZone, WriteMode::Qd1, WriteMode::ZoneLock, WriteMode::Pipelined, WriteMode::Append];
const ZONE: u32 = 1;
/// Flight records that a volume may write.
const RECORDS_MAX: u32 = 4;

/// A submitted write: expected offset if positional, and length.
struct Submitted {
    offset: Option<u32>,
    sectors: u32,
}

struct Storm {
    rig: Rig,
    rng: Pcg64Mcg,
    submitted: BTreeMap<u64, Submitted>,
}

impl Storm {
    fn new(mode: WriteMode, seed: u64, records: Option<&Path>) -> Storm {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let options =
            VolumeOptions::default().with_mode(mode).with_merge(rng.random_ratio(1, 2)).without_park();
        let info = DeviceInfo { keeps_order: mode == WriteMode::Pipelined, ..info() };
        let rig = Rig::with(Arc::new(Script::new(info)), options, |volume| match records {
            Some(directory) => volume.recording(directory.to_owned(), RECORDS_MAX),
            None => volume,
        });
        Storm { rig, rng, submitted: BTreeMap::new() }
    }

    fn submit(&mut self, tail: &mut u32) {
        let sectors = self.rng.random_range(1..=6);
        let (token, offset) = if self.rng.random_ratio(1, 2) {
            (self.rig.append(ZONE, sectors), None)
        } else {
            (self.rig.write(ZONE, *tail, sectors), Some(*tail))
        };
        *tail += sectors;
        self.submitted.insert(token, Submitted { offset, sectors });
    }

    /// Chooses the answer to a command.
    fn answer(&mut self, seen: &Seen) -> Answer {
        if !seen.op.is_write() {
            // Recovery's own commands: reports and read-backs.
            let errors =
                [DeviceError::Busy, DeviceError::UnitAttention, DeviceError::Aborted, DeviceError::TimedOut];
            return match self.rng.random_ratio(1, 4) {
                true => Answer::Refuse(errors[self.rng.random_range(0..errors.len())]),
                false => Answer::Obey,
            };
        }
        if self.rng.random_ratio(2, 3) {
            return Answer::Obey;
        }
        // Misplaced writes and those that do not fit are refused by the rules.
        let (condition, pointer) = self.rig.script.zone(ZONE);
        let room = zonal_check::script::CAPACITY - pointer;
        let is_placed = seen.op == Op::Append || seen.offset == pointer;
        let fits = condition != ZoneCondition::Full && seen.sectors <= room && is_placed;
        let errors = [
            DeviceError::Zone(ZoneError::InvalidWrite),
            DeviceError::Zone(ZoneError::TooManyOpen),
            DeviceError::UnitAttention,
            DeviceError::Medium,
            DeviceError::Aborted,
            DeviceError::Os(5),
        ];
        let error = errors[self.rng.random_range(0..errors.len())];
        match self.rng.random_range(0..4) {
            0 if fits => Answer::Late,
            1 if fits && error.is_uncertain() => Answer::Torn(self.rng.random_range(0..=seen.sectors), error),
            _ => Answer::Refuse(error),
        }
    }

    fn run(&mut self) {
        let mut tail = 0;
        for _ in 0..12 {
            if self.rng.random_ratio(2, 3) {
                self.submit(&mut tail);
            }
            self.step();
            if self.rng.random_ratio(1, 6) {
                // The caller asks for the position at which the zone continues.
                tail = self.rig.pointer(ZONE).unwrap();
            }
        }
        for _ in 0..10_000 {
            self.rig.script.settle_with(Settled::Yes);
            self.rig.rest();
            if self.rig.script.pending().is_empty() {
                return;
            }
            self.step();
        }
        panic!("the device is asked for ever");
    }

    fn step(&mut self) {
        let pending = self.rig.script.pending();
        if pending.is_empty() {
            return self.rig.rest();
        }
        let place = self.rng.random_range(0..pending.len());
        let answer = self.answer(&pending[place]);
        self.rig.script.settle_with(match self.rng.random_ratio(1, 2) {
            true => Settled::Yes,
            false => Settled::NotYet(None),
        });
        match self.rng.random_range(0..6) {
            0 => drop(self.rig.script.execute_late()),
            1 => self.rig.script.forget_late(),
            _ => {}
        }
        self.rig.finish(place, answer);
    }

    /// Every write ended once; data reported as written is there, data reported as not written is
    /// not, and nothing is there twice.
    fn check(&self) {
        let (_, pointer) = self.rig.script.zone(ZONE);
        let there = tags(&self.rig.script.bytes(self.rig.sector(ZONE, 0), pointer));
        let mut claimed = BTreeMap::new();
        for (&token, write) in &self.submitted {
            let end = self.rig.end(token).unwrap_or_else(|| panic!("write {token} has not ended"));
            let begins =
                there.iter().enumerate().filter(|(_, tag)| **tag == (token, 0)).map(|(n, _)| n as u32);
            let whole = begins.filter(|&n| {
                (0..write.sectors).all(|k| there.get((n + k) as usize) == Some(&(token, u64::from(k))))
            });
            let copies: Vec<u32> = whole.collect();
            match end {
                Ok(output) => {
                    let at = match output {
                        Output::Appended(sector) => (sector.0 - self.rig.sector(ZONE, 0).0) as u32,
                        _ => write.offset.unwrap(),
                    };
                    assert_eq!(copies, [at], "write {token} is there once and where it is said to be");
                    (at..at + write.sectors).for_each(|n| {
                        assert_eq!(claimed.insert(n, token), None, "two writes at {n}");
                    });
                }
                Err(RequestError::FateUnknown { .. } | RequestError::TornAppend { .. }) => {}
                Err(RequestError::Device(DeviceError::Medium)) => {}
                Err(e) => assert!(copies.is_empty(), "write {token} failed with {e} but is at {copies:?}"),
            }
        }
        let plug = self.rig.plug(ZONE);
        assert!(plug.is_none_or(|p| p.flags == 0 && p.pending == 0), "{plug:?}");
    }
}

#[test]
fn results_of_writes_are_true_under_random_failures() {
    let mut ends = BTreeMap::new();
    for mode in MODES {
        for seed in 0..ROUNDS {
            let mut storm = Storm::new(mode, seed, None);
            let guard = Seed(mode, seed);
            storm.run();
            storm.check();
            std::mem::forget(guard);
            for &token in storm.submitted.keys() {
                let kind = match storm.rig.end(token).unwrap() {
                    Ok(_) => "ok",
                    Err(RequestError::FateUnknown { .. }) => "unknown",
                    Err(RequestError::GaveUp { .. }) => "given up",
                    Err(RequestError::TornAppend { .. }) => "torn",
                    Err(RequestError::PredecessorLost { .. }) => "lost",
                    Err(RequestError::Device(_)) => "failed",
                    Err(_) => "refused",
                };
                *ends.entry(kind).or_insert(0) += 1;
            }
            let verified = storm.rig.volume.statistics().verified;
            *ends.entry("verified").or_insert(0) += verified;
        }
    }
    // Canary: the random run covers every kind of result.
    for kind in ["ok", "unknown", "torn", "lost", "failed", "verified"] {
        assert!(ends.get(kind).is_some_and(|&n| n > 10), "{kind}: {ends:?}");
    }
    assert!(ends["ok"] > ends["unknown"] * 5, "{ends:?}");
}

/// Prints mode and seed of the run on a panic.
struct Seed(WriteMode, u64);

impl Drop for Seed {
    fn drop(&mut self) {
        eprintln!("mode {}, seed {}", self.0, self.1);
    }
}

#[test]
fn reset_in_the_middle_of_everything_leaves_an_empty_zone() {
    for mode in MODES {
        for seed in 0..ROUNDS {
            let mut storm = Storm::new(mode, seed, None);
            let mut tail = 0;
            for _ in 0..4 {
                storm.submit(&mut tail);
                storm.step();
            }
            let reset = storm.rig.reset(ZONE);
            storm.rig.script.settle_with(Settled::Yes);
            storm.rig.settle();
            assert_eq!(storm.rig.end(reset), Some(Ok(Output::Done)), "{mode} {seed}");
            assert_eq!(storm.rig.script.zone(ZONE), (ZoneCondition::Empty, 0), "{mode} {seed}");
            assert!(storm.rig.plug(ZONE).is_none(), "{mode} {seed}: {:?}", storm.rig.plug(ZONE));
            let write = storm.rig.submit(Request::report(storm.rig.sector(ZONE, 0), 1));
            storm.rig.settle();
            assert!(storm.rig.end(write).is_some_and(|e| e.is_ok()));
            assert!(storm.submitted.keys().all(|&t| storm.rig.end(t).is_some()), "{mode} {seed}");
        }
    }
}

#[test]
fn flight_record_of_every_lost_write_can_be_replayed() {
    let mut replayed = 0;
    for mode in MODES {
        for seed in 0..ROUNDS / 4 {
            let directory = tempfile::tempdir().unwrap();
            let mut storm = Storm::new(mode, seed, Some(directory.path()));
            storm.run();
            storm.rig.rest();
            let files: Vec<_> = directory.path().read_dir().unwrap().map(|f| f.unwrap().path()).collect();
            assert!(files.len() <= RECORDS_MAX as usize);
            assert_eq!(storm.rig.volume.flight_records(), (files.len() as u32, 0));
            let lost = |e| {
                matches!(
                    e,
                    Err(RequestError::FateUnknown { .. }
                        | RequestError::GaveUp { .. }
                        | RequestError::TornAppend { .. })
                )
            };
            let is_lost = storm.submitted.keys().any(|&t| lost(storm.rig.end(t).unwrap()));
            assert!(!is_lost || !files.is_empty(), "{mode} {seed}: a loss without a record");
            for file in files {
                let record = std::fs::read_to_string(&file).unwrap();
                let played = replay(&record).unwrap_or_else(|e| panic!("{mode} {seed}: {e}\n{record}"));
                assert_eq!(played.difference, None, "{mode} {seed}:\n{record}");
                assert!(played.calls.len() >= 2, "{record}");
                let is_told = played.calls.iter().flat_map(|call| &call.fates).any(Fate::is_lost);
                assert!(is_told, "{mode} {seed}: no call of the record loses a write\n{record}");
                replayed += 1;
            }
        }
    }
    assert!(replayed > 100, "{replayed} records");
}

/// Canary: replay detects a plug that differs from the recorded one.
#[test]
fn flight_record_that_was_changed_does_not_replay() {
    let directory = tempfile::tempdir().unwrap();
    let options = VolumeOptions::default().with_mode(WriteMode::PerZone).with_merge(false).without_park();
    let lose = |place: PathBuf| {
        let rig = Rig::with(Arc::new(Script::new(info())), options, |volume| volume.recording(place, 1));
        let lost = rig.write(ZONE, 0, 4);
        rig.step(Answer::Torn(2, DeviceError::Medium));
        rig.settle();
        assert_eq!(rig.end(lost), Some(Err(RequestError::Device(DeviceError::Medium))));
        rig.write(ZONE, 2, 4);
        rig.step(Answer::Refuse(DeviceError::Medium));
        rig.settle();
        (rig.volume.flight_records(), rig.volume.flight_note().unwrap())
    };
    let (records, note) = lose(directory.path().to_owned());
    assert_eq!(records, (1, 0), "no more than were asked for");
    assert!(note.ends_with(", 1 left out beyond the limit of 1"), "{note}");
    let (records, note) = lose(directory.path().join("missing"));
    assert_eq!(records, (0, 1));
    assert!(note.contains("missing, 1 could not be written: No such file or directory"), "{note}");
    let record = std::fs::read_to_string(directory.path().join("0000-zone-1.flight")).unwrap();
    assert!(record.contains("fail positional:0+4 medium 0 = \n"), "{record}");
    assert!(record.contains("resynced Sequential 2 = ") && record.contains("Fail:2"), "{record}");
    let played = replay(&record).unwrap();
    assert_eq!((played.calls.len(), &played.difference), (3, &None), "{record}");
    let [fate] = played.calls[2].fates[..] else { panic!("{played:?}") };
    assert_eq!((fate.at, fate.sectors, fate.covered, fate.decision), (0, 4, 2, Decision::Fail));
    for (from, to) in [("Fail:2", "Redrive:0"), ("Resync", "Nothing"), ("medium 0", "busy 0")] {
        let changed = record.replace(from, to);
        assert_eq!(replay(&changed), Err("damaged record: wrong checksum".to_owned()));
        let body = &changed[..=changed.rfind("\nend ").unwrap()];
        let changed = format!("{body}{}", end_of(body));
        let difference = replay(&changed).unwrap().difference.unwrap();
        assert!(difference.contains("recorded"), "{from}: {difference}");
    }
    assert!(replay("").is_err() && replay(&record.replace("capacity", "room")).is_err());
    for end in 0..record.len() - 1 {
        assert!(replay(&record[..end]).is_err(), "cut at {end}: {record}");
    }
}
