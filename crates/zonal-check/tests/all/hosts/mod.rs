//! Hosts of one served drive, on one thread and in a time that is set: connections without sockets, a target, a volume, and below it
//! a watched drive that misbehaves.
//!
//! A seed says everything: the drive, its faults, the hosts, what they send, when which bytes arrive, which connections are lost, and
//! which controllers are reset. So the same seed gives the same run to the last completion, and the first ones are run twice to see
//! that. `ZONAL_SEED` replays one, `ZONAL_SEEDS` sets how many from there on, `ZONAL_OPS` the length of each; `ZONAL_TRACE` shows
//! the commands at the drive. A run that fails says how to run it again.
//!
//! - [`setup`]: what a seed stands for.
//! - [`world`]: what happens next.
//! - [`cases`]: a host's side of a connection, which checks each unit, and that commands end once.
//! - `tap`, `truth` of [`random`](crate::random): what the drive did, seen from just above it.
//! - [`book`]: what hosts asked for, and what they were told.
//! - [`check`]: the promises, which are about the last two.
//! - `canary` of the same: a drive that lies, to see that the checks find it.

mod book;
#[path = "../../../../zonal-nvme/tests/all/fuzz/cases/mod.rs"]
#[allow(dead_code, reason = "the cases are those of another test")]
mod cases;
mod check;
mod setup;
mod world;

use crate::random::canary::Lie;
use check::Counts;
use rand::random;
use world::HostsRun;

/// Seeds of `cargo test`.
const SEEDS: u64 = 1_000;

/// Of these the first ones are run twice.
const TWICE: u64 = 50;

/// Things that happen in a run.
const OPERATIONS: usize = 1500;

fn run(seed: u64, operations: usize, lie: Option<Lie>) -> Result<(u64, Counts), String> {
    let mut world = HostsRun::new(seed, lie);
    let with = |what| {
        format!("seed {seed} of {operations} operations: {what}\n{:?}", HostsRun::new(seed, None).setup)
    };
    world.play(operations).map_err(with)?;
    let counts = check::check(&mut world).map_err(with)?;
    Ok((world.digest(), counts))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap_or_else(|_| panic!("{name}={v}")))
}

/// Runs a seed, and says how to run it again if a promise is broken, or a second run is not the same.
fn passes(seed: u64, operations: usize, is_twice: bool) -> Counts {
    let again = || {
        let first = run(seed, operations, None)?;
        match is_twice && run(seed, operations, None)? != first {
            true => Err("it gives another run the second time".to_owned()),
            false => Ok(first.1),
        }
    };
    let command =
        format!("ZONAL_SEED={seed} ZONAL_OPS={operations} cargo test -p zonal-check --test all hosts::");
    match std::panic::catch_unwind(again) {
        Ok(Ok(counts)) => counts,
        Ok(Err(what)) => panic!("{what}\nto see it again: {command}"),
        Err(_) => panic!("seed {seed} panics\nto see it again: {command}"),
    }
}

/// Slow: it runs several hosts with random faults.
#[test]
fn hosts_of_one_drive_are_told_the_truth() {
    let operations = number("ZONAL_OPS").unwrap_or(OPERATIONS as u64) as usize;
    let (first, seeds) = match number("ZONAL_SEED") {
        Some(seed) => (seed, number("ZONAL_SEEDS").unwrap_or(1)),
        None => (0, number("ZONAL_SEEDS").unwrap_or(SEEDS)),
    };
    let mut all = Counts::default();
    for seed in first..first + seeds {
        all += passes(seed, operations, seed - first < TWICE);
    }
    println!("{seeds} seeds from {first} on: {all:?}");
    assert!(seeds < SEEDS || all.writes_succeeded > all.writes / 4, "{all:?}: most of them fail");
    assert!(seeds < SEEDS || all.lost > 10 * seeds as usize, "{all:?}: no connection is lost");
}

#[test]
fn hosts_of_a_new_seed_are_told_the_truth() {
    let seed = random();
    println!("seed {seed}");
    passes(seed, OPERATIONS, true);
}

#[test]
fn drive_that_loses_or_swaps_data_is_found_out() {
    for lie in [Lie::Drop, Lie::Swap] {
        let found = (0..24).filter(|&seed| run(seed, OPERATIONS, Some(lie)).is_err()).count();
        // A lie about what is reset before a host reads it is no lie.
        assert!(found >= 14, "{lie:?} was found in {found} of 24 runs");
    }
}
