//! Scenes written by hand. No tool generates them.

use super::*;
use std::fmt::Write;

const SCENES: &str = include_str!("../../../tests/data/scheduler.txt");

/// Name, options and lines of each scene.
fn scenes() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let mut scenes = Vec::new();
    for line in SCENES.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        if let Some(heading) = line.strip_prefix("== ") {
            let (name, settings) = heading.split_once('|').unwrap_or((heading, ""));
            scenes.push((name.trim(), settings, Vec::new()));
        } else {
            scenes.last_mut().expect("a line belongs to a scene").2.push(line);
        }
    }
    scenes
}

fn rig(settings: &str) -> SchedulerRig<&'static str> {
    let (mut options, mut rotational) = (Options::default(), false);
    for setting in settings.split_whitespace() {
        match setting.split_once('=') {
            Some((name, value)) => options.set(name, value.parse().unwrap()).unwrap(),
            None => {
                assert_eq!(setting, "rotational");
                rotational = true;
            }
        }
    }
    SchedulerRig::new(options, rotational)
}

/// Dispatched requests, as many words as `expected` has.
fn dispatched(rig: &mut SchedulerRig<&'static str>, expected: &str) -> String {
    let mut said = String::new();
    for _ in expected.split_whitespace() {
        let names: Option<Vec<_>> = rig.dispatch().map(|d| d.parts.into_iter().collect());
        write!(said, " {}", names.map_or("-".to_owned(), |n| n.join("+"))).unwrap();
    }
    said
}

/// Plays one line. Returns the actual and the expected result.
fn play(rig: &mut SchedulerRig<&'static str>, line: &'static str) -> Option<(String, String)> {
    let (word, rest) = line.split_once(' ').unwrap();
    let number = || rest.parse().unwrap();
    match word {
        "t" => rig.now = rest.parse().unwrap(),
        "lock" => drop(rig.locked.insert(number())),
        "unlock" => drop(rig.locked.remove(&number())),
        ">" => return Some((dispatched(rig, rest), format!(" {rest}"))),
        "drop" => {
            let (zone, expected) = rest.split_once(" > ").unwrap();
            let taken = rig.scheduler.remove_zone(ZoneIndex(zone.parse().unwrap()));
            return Some((taken.join(" "), expected.to_owned()));
        }
        _ => insert(rig, word, rest),
    }
    None
}

fn insert(rig: &mut SchedulerRig<&'static str>, kind: &str, rest: &'static str) {
    let (place, name) = rest.split_once(' ').unwrap();
    let (sector, sectors) = place.split_once('+').unwrap();
    let kind = match kind {
        "r" => RequestKind::Read,
        "w" => RequestKind::Write,
        "c" => RequestKind::Anywhere,
        "a" => RequestKind::Alone,
        _ => panic!("{kind}"),
    };
    rig.insert(kind, sector.parse().unwrap(), sectors.parse().unwrap(), name);
}

#[test]
fn every_scene_plays_as_written() {
    let scenes = scenes();
    assert!(scenes.len() > 30, "the scenes were not found");
    let mut differences = String::new();
    for (name, settings, lines) in scenes {
        let mut rig = rig(settings);
        for line in lines {
            if let Some((said, expected)) = play(&mut rig, line).filter(|(s, e)| s != e) {
                writeln!(differences, "{name}\n  {line}\n  scene:{expected}\n  code: {said}").unwrap();
            }
            assert_eq!(rig.scheduler.check(), Ok(()), "{name}: {line}");
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
}

#[test]
fn next_deadline_is_that_of_the_oldest_of_both_directions() {
    let mut rig = SchedulerRig::new(Options::default(), false);
    assert_eq!(rig.scheduler.next_deadline(), None);
    rig.insert(RequestKind::Write, 150, 2, "w");
    assert_eq!(rig.scheduler.next_deadline(), Some(Nanos(5000 * MS)));
    rig.now = 100;
    rig.insert(RequestKind::Read, 10, 2, "r");
    rig.insert(RequestKind::Write, 148, 2, "v");
    assert_eq!((rig.scheduler.len(), rig.scheduler.next_deadline()), (2, Some(Nanos(600 * MS))));
    let first = rig.dispatch().unwrap();
    assert_eq!((first.sector, first.sectors, first.zone), (Sector(148), Sectors(4), Some(ZoneIndex(1))));
    assert_eq!((first.direction, first.parts.len(), *first.parts.first()), (Direction::Write, 2, "v"));
    rig.dispatch();
    assert!(rig.scheduler.is_empty() && rig.scheduler.next_deadline().is_none());
}

#[test]
fn options_changed_while_requests_wait_count_from_now_on() {
    let mut rig = SchedulerRig::new(Options::default(), false);
    rig.insert(RequestKind::Read, 10, 2, "a");
    let options = Options { read_expire: Nanos(MS), fifo_batch: 1, ..Options::default() };
    rig.scheduler.set_options(options);
    rig.insert(RequestKind::Read, 20, 2, "b");
    assert_eq!(rig.scheduler.options(), options);
    assert_eq!(rig.scheduler.next_deadline(), Some(Nanos(500 * MS)));
    rig.dispatch();
    assert_eq!(rig.scheduler.next_deadline(), Some(Nanos(MS)));
}

#[test]
#[should_panic(expected = "sectors 98 to 102 are not in zone 0")]
fn request_that_leaves_its_zone_panics() {
    SchedulerRig::new(Options::default(), false).insert(RequestKind::Write, 98, 4, "a");
}

#[test]
#[should_panic(expected = "a request has a length")]
fn empty_request_panics() {
    SchedulerRig::new(Options::default(), false).insert(RequestKind::Read, 98, 0, "a");
}
