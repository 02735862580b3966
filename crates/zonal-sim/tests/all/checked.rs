//! Checked drives: exactly the forbidden behaviour of a model or a write path is detected.

use proptest::prelude::*;
use zonal_core::{Geometry, Nanos, Op, Sector, ZoneIndex};
use zonal_sim::{Checked, Concurrency, Job, Model, Profile, Tag, Totals};

const ZONE: u64 = 524_288;

fn geometry() -> Geometry {
    Profile::open("smr-hdd-30t", &[]).unwrap().emulated_options().geometry().unwrap()
}

fn write(sector: u64, sectors: u32) -> Job {
    Job { op: Op::Write, sector: Sector(sector), sectors, fua: false, refused: false }
}

/// A drive that takes 10 ns per command and misbehaves as requested.
#[derive(Default)]
struct Liar {
    lie: Lie,
    now: Nanos,
    commands: Vec<(Tag, Job)>,
    totals: Totals,
    head: Sector,
}

#[derive(Clone, Copy, PartialEq, Default)]
enum Lie {
    #[default]
    None,
    LosesSectors,
    WritesTwice,
    AnswersLastFirst,
    AnswersTwice,
    TwoHeads,
    Leaps,
}

impl Model for Liar {
    fn queue_depth(&self) -> u32 {
        8
    }

    fn submit(&mut self, now: Nanos, tag: Tag, job: &Job) {
        self.now = now;
        self.commands.push((tag, *job));
        let written = if job.op == Op::Write && !job.refused { u64::from(job.sectors) } else { 0 };
        self.totals.submitted += written;
        self.totals.held += written;
    }

    fn run(&mut self, now: Nanos, answered: &mut dyn FnMut(Nanos, Tag)) {
        while self.next().is_some_and(|next| next <= now) {
            self.now.0 += 10;
            let at = if self.lie == Lie::AnswersLastFirst { self.commands.len() - 1 } else { 0 };
            let (tag, job) = self.commands.remove(at);
            let sectors = u64::from(job.sectors);
            self.totals.held -= sectors;
            self.totals.written += match self.lie {
                Lie::LosesSectors => sectors - 1,
                Lie::WritesTwice => 2 * sectors,
                _ => sectors,
            };
            // The check requires a drive with at least one positioning.
            let leaps = self.lie == Lie::Leaps && self.totals.moves.seeks > 0;
            self.totals.moves.seeks += u64::from(!leaps);
            self.totals.moves.positioning_ns += if leaps { 0 } else { 2 };
            self.totals.transferring += if self.lie == Lie::TwoHeads { 18 } else { 8 };
            self.head = if leaps { Sector(0) } else { Sector(job.sector.0 + sectors) };
            answered(self.now, tag);
            if self.lie == Lie::AnswersTwice {
                answered(self.now, tag);
            }
        }
    }

    fn next(&self) -> Option<Nanos> {
        (!self.commands.is_empty()).then_some(Nanos(self.now.0 + 10))
    }

    fn totals(&self) -> Totals {
        self.totals
    }

    fn head(&self) -> Option<Sector> {
        Some(self.head)
    }
}

/// Submits three writes of one zone and one of another to a checked liar, and lets it complete
/// them.
fn lie(lie: Lie, company: Concurrency) {
    let mut drive = Checked::new(Box::new(Liar { lie, ..Liar::default() }), geometry(), company);
    for (tag, job) in [write(0, 8), write(8, 8), write(16, 8), write(ZONE, 8)].iter().enumerate() {
        drive.submit(Nanos(0), tag as Tag, job);
    }
    drive.run(Nanos(100), &mut |_, _| {});
}

/// Message of the violated check, or an empty string.
fn said(then: impl FnOnce() + std::panic::UnwindSafe) -> String {
    match std::panic::catch_unwind(then) {
        Ok(()) => String::new(),
        Err(error) => match error.downcast::<String>() {
            Ok(text) => *text,
            Err(error) => (*error.downcast::<&str>().expect("a panic has a text")).to_owned(),
        },
    }
}

#[test]
fn honest_drive_is_let_pass() {
    assert_eq!(said(|| lie(Lie::None, Concurrency::Many)), "");
}

#[test]
fn impossible_drive_behaviour_is_detected() {
    for (what, expected) in [
        (Lie::LosesSectors, "sectors written and held"),
        (Lie::WritesTwice, "sectors written and held"),
        (Lie::AnswersLastFirst, "a write is answered before one that came earlier"),
        (Lie::AnswersTwice, "which is no command at the drive"),
        (Lie::TwoHeads, "is busy until"),
        (Lie::Leaps, "without moving"),
    ] {
        let said = said(|| lie(what, Concurrency::Many));
        assert!(said.contains(expected), "{said:?} does not say {expected:?}");
    }
}

#[test]
fn write_path_that_breaks_its_promise_is_found() {
    let two = |second: Job, company: Concurrency| {
        said(move || {
            let mut drive = Checked::new(Box::new(Liar::default()), geometry(), company);
            drive.submit(Nanos(0), 0, &write(0, 8));
            drive.submit(Nanos(0), 1, &second);
        })
    };
    let together = "2 writes are at the drive together";
    assert!(two(write(8, 8), Concurrency::Zone).contains(together));
    assert!(two(write(ZONE, 8), Concurrency::Drive).contains(together));
    assert_eq!(two(write(ZONE, 8), Concurrency::Zone), "");
    assert_eq!(two(Job { op: Op::Read, ..write(0, 8) }, Concurrency::Drive), "");
    let place = "a write at Sector(16) where Some(Sector(8)) is next";
    assert!(two(write(16, 8), Concurrency::Many).contains(place));
    assert_eq!(
        two(Job { refused: true, ..write(16, 8) }, Concurrency::Drive),
        "",
        "a refused one moves nothing"
    );
    assert_eq!(two(write(0, 8), Concurrency::Many), "", "a zone that was reset");
}

/// Writes to four zones in order, some of them durable, with reads and flushes in between. The
/// upper half of a sector is the zone's number, the lower half the position in the zone.
fn any_jobs() -> impl Strategy<Value = Vec<Job>> {
    let one = (0u64..4, 1u32..300, 0u32..10, any::<bool>());
    prop::collection::vec(one, 1..150).prop_map(|drawn| {
        let mut next: [u64; 4] = std::array::from_fn(|zone| (zone as u64) << 32);
        drawn
            .into_iter()
            .map(|(zone, blocks, kind, fua)| {
                let at = &mut next[zone as usize];
                let job = Job { fua, ..write(*at, blocks * 8) };
                match kind {
                    0 => return Job { op: Op::Flush, sectors: 0, ..job },
                    1 | 2 => return Job { op: Op::Read, ..job },
                    _ => *at += u64::from(job.sectors),
                }
                job
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn models_stand_the_watch(
        jobs in any_jobs(),
        depth in 1usize..9,
        (name, policy) in prop::sample::select(vec![
            ("smr-hdd-30t", Some("fifo")),
            ("smr-hdd-30t", Some("visit")),
            ("smr-hdd-30t", Some("sptf")),
            ("smr-hdd-26t", Some("asptf")),
            ("zns-1t", None),
        ]),
    ) {
        let policy: Vec<(&str, &str)> = policy.map(|policy| ("policy", policy)).into_iter().collect();
        let profile = Profile::open(name, &policy).unwrap();
        let geometry = profile.emulated_options().geometry().unwrap();
        let place = |sector: Sector| {
            let start = geometry.start_of(ZoneIndex((sector.0 >> 32) as u32 * 100));
            Sector(start.0 + (sector.0 & u64::from(u32::MAX)))
        };
        let jobs: Vec<Job> = jobs.iter().map(|j| Job { sector: place(j.sector), ..*j }).collect();
        let mut drive = Checked::new(profile.model(geometry), geometry, Concurrency::Many);
        let (mut given, mut answered) = (0, 0);
        while answered < jobs.len() {
            let now = drive.next().unwrap_or(Nanos(0));
            drive.run(now, &mut |_, _| answered += 1);
            while given < jobs.len() && given - answered < depth {
                drive.submit(now, given as Tag, &jobs[given]);
                given += 1;
            }
        }
        while let Some(next) = drive.next() {
            drive.run(next, &mut |_, _| {});
        }
        prop_assert_eq!(drive.totals().held, 0);
    }
}
