//! Fuzzing without a fuzzer: runs the cases of `fuzz/` with bytes from seeds, some with each `cargo
//! test`.
//!
//! `ZONAL_SEED` replays one, `ZONAL_CASES` sets the number of cases of each kind. A failing case
//! prints how to replay it.

mod cases;

use cases::peer::{Lie, Tally};
use cases::session;

/// Default number of cases of each kind.
const CASES: u64 = 3_000;

/// Bytes of a seed, from SplitMix64 as published by Steele, Lea and Flood.
fn bytes(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    };
    let words = 8 + next() % 120;
    (0..words).flat_map(|_| next().to_le_bytes()).collect()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}")))
}

fn play(test: &str, run: impl Fn(&[u8]) -> Result<Tally, String>) -> Tally {
    let (first, cases) = match (number("ZONAL_SEED"), number("ZONAL_CASES")) {
        (Some(seed), cases) => (seed, cases.unwrap_or(1)),
        (None, cases) => (0, cases.unwrap_or(CASES)),
    };
    let mut all = Tally::default();
    for seed in first..first + cases {
        let replay =
            || format!("to see it again: ZONAL_SEED={seed} cargo test -p zonal-nvme --test all fuzz::{test}");
        let case = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&bytes(seed))));
        match case {
            Ok(Ok(one)) => all += one,
            Ok(Err(what)) => panic!("seed {seed}: {what}\n{}", replay()),
            Err(_) => panic!("seed {seed} panics\n{}", replay()),
        }
    }
    println!("{test}: {cases} cases from {first} on: {all:?}");
    all
}

#[test]
fn sessions_keep_the_guarantees() {
    let all = play("sessions", |bytes| session::run(bytes, None));
    // The cases are useful only if most of their commands are executed.
    let cases = number("ZONAL_CASES").unwrap_or(CASES);
    assert!(number("ZONAL_SEED").is_some() || all.succeeded > cases * 4, "{all:?}");
}

#[test]
fn commands_keep_the_guarantees() {
    let all = play("commands", session::run_commands);
    let cases = number("ZONAL_CASES").unwrap_or(CASES);
    assert!(number("ZONAL_SEED").is_some() || all.succeeded > cases * 4, "{all:?}");
}

#[test]
fn units_keep_the_guarantees() {
    play("units", session::run_units);
}

/// Completions of a faulty controller, which the cases have to detect.
#[test]
fn controller_that_errs_is_found_out() {
    for lie in [Lie::Twice, Lie::Never, Lie::OtherCommand] {
        let found = (0..40).filter(|seed| session::run(&bytes(*seed), Some(lie)).is_err()).count();
        // It errs once per connection, and some connections end before that.
        assert!(found >= 15, "{lie:?} was found in {found} of 40 cases");
    }
}
