//! Several hosts of one served drive, on a single thread with a simulated clock: connections
//! without sockets, a target, a volume, and below it an observed drive that misbehaves.
//!
//! A seed determines everything: the drive, its faults, the hosts, their commands, the arrival of
//! bytes, lost connections and controller resets. A seed therefore repeats its run to the last
//! completion, and the first seeds are run twice to verify that. `ZONAL_SEED` replays one,
//! `ZONAL_SEEDS` sets the number of seeds from there on, `ZONAL_OPS` the length of each run;
//! `ZONAL_TRACE` prints the commands at the drive. A failing run prints how to repeat it.
//!
//! - [`setup`]: choices made by a seed.
//! - [`world`]: generator of the next event.
//! - [`cases`]: the host's side of a connection, which checks each unit, and that commands end
//!   once.
//! - `tap`, `truth` of [`random`](crate::random): actions of the drive, observed just above it.
//! - [`book`]: requests of the hosts, and the answers that they received.
//! - [`check`]: the guarantees, which compare the last two.
//! - `canary` of [`random`](crate::random): a drive that lies, to verify that the checks notice.

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

/// Number of seeds, from the first, that are run twice.
const TWICE: u64 = 50;

/// Events of a run.
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

/// Runs a seed. Prints how to repeat it if a guarantee is violated, or if a second run differs.
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
fn hosts_of_one_drive_see_correct_results() {
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
fn hosts_with_a_random_seed_see_correct_results() {
    let seed = random();
    println!("seed {seed}");
    passes(seed, OPERATIONS, true);
}

#[test]
fn drive_that_loses_or_swaps_data_is_found_out() {
    for lie in [Lie::Drop, Lie::Swap] {
        let found = (0..24).filter(|&seed| run(seed, OPERATIONS, Some(lie)).is_err()).count();
        // Some lies concern data that is reset before any host reads it, and cannot be found.
        assert!(found >= 14, "{lie:?} was found in {found} of 24 runs");
    }
}
