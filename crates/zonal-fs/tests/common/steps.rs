//! Random steps.

use super::FsStep;
use proptest::prelude::*;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// A step on one of six files of some hundred kilobytes.
pub fn step() -> impl Strategy<Value = FsStep> {
    let file = 0..6u8;
    let place = prop_oneof![0..300_000u32, (0..70u32).prop_map(|b| b * 4096)];
    // Mostly in order, so that there is something to gather.
    let place = prop_oneof![1 => place, 2 => (0..60u32).prop_map(|n| n * 700)];
    let length = prop_oneof![3 => Just(700u32), 3 => 1..50_000u32, 1 => 50_000..400_000u32, 2 => (1..20u32).prop_map(|b| b * 4096)];
    prop_oneof![
        4 => file.clone().prop_map(FsStep::Create),
        16 => (file.clone(), place.clone(), length.clone()).prop_map(|(n, o, l)| FsStep::Write(n, o, l)),
        2 => (file.clone(), place.clone()).prop_map(|(n, s)| FsStep::Truncate(n, s)),
        2 => (file.clone(), place, length).prop_map(|(n, o, l)| FsStep::Punch(n, o, l)),
        2 => file.clone().prop_map(FsStep::Unlink),
        1 => (file.clone(), file.clone()).prop_map(|(a, b)| FsStep::Rename(a, b)),
        1 => (file.clone(), file.clone()).prop_map(|(a, b)| FsStep::Link(a, b)),
        4 => file.clone().prop_map(FsStep::Open),
        2 => file.clone().prop_map(FsStep::Close),
        2 => file.prop_map(FsStep::Fsync),
        1 => Just(FsStep::Sync),
        1 => Just(FsStep::Maintain),
        1 => Just(FsStep::Collect),
    ]
}

/// Like `step`, with ranges of zeroes and copies.
pub fn step_of_ranges() -> impl Strategy<Value = FsStep> {
    let place = || prop_oneof![0..200_000u32, (0..50u32).prop_map(|b| b * 4096)];
    let length = || prop_oneof![1..30_000u32, (1..40u32).prop_map(|b| b * 4096)];
    prop_oneof![
        12 => step(),
        1 => (0..6u8, place(), length()).prop_map(|(n, o, l)| FsStep::Zero(n, o, l)),
        2 => (0..6u8, place(), 0..6u8, place(), length()).prop_map(|(f, o, t, p, l)| FsStep::Copy(f, o, t, p, l)),
    ]
}

/// A step on one of six files, from the caller's random number generator.
pub fn any_step(random: &mut Pcg64Mcg) -> FsStep {
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
        0..12 => FsStep::Create(file),
        12..60 => FsStep::Write(file, place, length),
        60..65 => FsStep::Truncate(file, place),
        65..70 => FsStep::Punch(file, place, length),
        70..75 => FsStep::Unlink(file),
        75..78 => FsStep::Rename(file, other),
        78..81 => FsStep::Link(file, other),
        81..85 => FsStep::Open(file),
        85..87 => FsStep::Close(file),
        87..91 => FsStep::Fsync(file),
        91..94 => FsStep::Sync,
        94..97 => FsStep::Maintain,
        _ => FsStep::Collect,
    }
}
