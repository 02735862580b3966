//! Any steps.

use super::Step;
use proptest::prelude::*;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// A step with six files of some hundred kilobytes.
pub fn step() -> impl Strategy<Value = Step> {
    let file = 0..6u8;
    let place = prop_oneof![0..300_000u32, (0..70u32).prop_map(|b| b * 4096)];
    // In order for the most part, so that there is something to gather.
    let place = prop_oneof![1 => place, 2 => (0..60u32).prop_map(|n| n * 700)];
    let length = prop_oneof![3 => Just(700u32), 3 => 1..50_000u32, 1 => 50_000..400_000u32, 2 => (1..20u32).prop_map(|b| b * 4096)];
    prop_oneof![
        4 => file.clone().prop_map(Step::Create),
        16 => (file.clone(), place.clone(), length.clone()).prop_map(|(n, o, l)| Step::Write(n, o, l)),
        2 => (file.clone(), place.clone()).prop_map(|(n, s)| Step::Truncate(n, s)),
        2 => (file.clone(), place, length).prop_map(|(n, o, l)| Step::Punch(n, o, l)),
        2 => file.clone().prop_map(Step::Unlink),
        1 => (file.clone(), file.clone()).prop_map(|(a, b)| Step::Rename(a, b)),
        1 => (file.clone(), file.clone()).prop_map(|(a, b)| Step::Link(a, b)),
        4 => file.clone().prop_map(Step::Open),
        2 => file.clone().prop_map(Step::Close),
        2 => file.prop_map(Step::Fsync),
        1 => Just(Step::Sync),
        1 => Just(Step::Tend),
        1 => Just(Step::Collect),
    ]
}

/// The same, and ranges of zeroes and copies.
pub fn step_of_ranges() -> impl Strategy<Value = Step> {
    let place = || prop_oneof![0..200_000u32, (0..50u32).prop_map(|b| b * 4096)];
    let length = || prop_oneof![1..30_000u32, (1..40u32).prop_map(|b| b * 4096)];
    prop_oneof![
        12 => step(),
        1 => (0..6u8, place(), length()).prop_map(|(n, o, l)| Step::Zero(n, o, l)),
        2 => (0..6u8, place(), 0..6u8, place(), length()).prop_map(|(f, o, t, p, l)| Step::Copy(f, o, t, p, l)),
    ]
}

/// A step with six files, from a random number generator of the caller's.
pub fn any_step(random: &mut Pcg64Mcg) -> Step {
    let file = random.random_range(0..6u8);
    let other = random.random_range(0..6u8);
    let place = match random.random_bool(0.5) {
        true => random.random_range(0..200_000),
        false => random.random_range(0..50) * 4096,
    };
    let length = match random.random_range(0..4) {
        0 => random.random_range(1..30) * 4096,
        1 => random.random_range(1..300_000),
        _ => random.random_range(1..20_000),
    };
    match random.random_range(0..100) {
        0..12 => Step::Create(file),
        12..60 => Step::Write(file, place, length),
        60..65 => Step::Truncate(file, place),
        65..70 => Step::Punch(file, place, length),
        70..75 => Step::Unlink(file),
        75..78 => Step::Rename(file, other),
        78..81 => Step::Link(file, other),
        81..85 => Step::Open(file),
        85..87 => Step::Close(file),
        87..91 => Step::Fsync(file),
        91..94 => Step::Sync,
        94..97 => Step::Tend,
        _ => Step::Collect,
    }
}
