//! Block size options: `bs`, and `bsrange` and `bssplit` for random sizes.
//!
//! # Combinations in fio
//! A direction with `bsrange` or `bssplit` ignores `bs` in either order, and keeps drawing from a
//! `bssplit` when a `bsrange` follows. A job that gives both hardly means that, so the later option
//! is refused in these cases. In all other cases the later option replaces the earlier one. fio
//! rounds each size of a `bssplit` down to a multiple of the smallest. Here a size that would
//! change is an error.

use crate::job::blocks::{BlockMix, BlockShare, PerDirection};
use crate::job::draft::Draft;
use crate::job::error::ValueError;
use crate::job::limits::{BLOCK_BYTES_MAX, BLOCK_SHARES_MAX};
use crate::job::spec::{BlockSize, JobSpec};
use crate::job::value::{parse_u32_in, show_int};

/// Splits a value into parts for reads, writes and trims. A part missing at the end equals its left
/// neighbour; an empty part is `None`.
pub(super) fn parse_directions<T: Clone>(
    text: &str,
    expected: &'static str,
    parse: impl Fn(&str) -> Result<T, ValueError>,
) -> Result<PerDirection<Option<T>>, ValueError> {
    const DIRECTIONS: usize = 3;
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > DIRECTIONS {
        return Err(ValueError::TooMany { max: DIRECTIONS });
    }
    let mut values = Vec::new();
    for part in parts {
        values.push(if part.is_empty() { None } else { Some(parse(part)?) });
    }
    if values.iter().all(Option::is_none) {
        return Err(ValueError::Malformed { expected });
    }
    let write = values.get(1).unwrap_or(&values[0]).clone();
    Ok(PerDirection { read: values.swap_remove(0), write })
}

/// Joins the parts of reads and writes; equal parts are printed once.
pub(super) fn show_directions(read: String, write: String) -> String {
    if read == write { read } else { format!("{read},{write}") }
}

fn parse_bytes(text: &str) -> Result<u32, ValueError> {
    parse_u32_in(text, 1, BLOCK_BYTES_MAX)
}

/// `bs`.
pub(super) fn set_size(draft: &mut Draft, text: &str) -> Result<(), ValueError> {
    if text.contains(['-', ':']) {
        return Err(ValueError::Refused { why: "a range of block sizes is bsrange" });
    }
    let PerDirection { read, write } = parse_directions(text, "a block size", parse_bytes)?;
    let mix = &draft.spec.block_mix;
    if read.is_some() && mix.read.is_some() || write.is_some() && mix.write.is_some() {
        return Err(ValueError::Ambiguous {
            fio: "nothing, because of the bsrange or bssplit before it".to_owned(),
            instead: "a bsrange".to_owned(),
        });
    }
    let size = &mut draft.spec.block_size;
    size.read = read.unwrap_or(size.read);
    size.write = write.unwrap_or(size.write);
    Ok(())
}

pub(super) fn show_size(spec: &JobSpec) -> Option<String> {
    let BlockSize { read, write } = spec.block_size;
    let is_default = spec.block_size == JobSpec::default().block_size;
    (!is_default).then(|| show_directions(show_int(read.into()), show_int(write.into())))
}

/// `bsrange`.
pub(super) fn set_range(draft: &mut Draft, text: &str) -> Result<(), ValueError> {
    let found = parse_directions(text, RANGE, parse_range)?;
    let mix = &mut draft.spec.block_mix;
    for (given, mix) in [(found.read, &mut mix.read), (found.write, &mut mix.write)] {
        let Some(range) = given else { continue };
        if let Some(BlockMix::Split(_)) = mix {
            return Err(ValueError::Ambiguous {
                fio: "bounds to the bssplit before it".to_owned(),
                instead: "one of the two".to_owned(),
            });
        }
        *mix = Some(range);
    }
    Ok(())
}

const RANGE: &str = "a range of block sizes such as 4k-64k";

fn parse_range(text: &str) -> Result<BlockMix, ValueError> {
    let (a, b) = text
        .split_once('-')
        .or_else(|| text.split_once(':'))
        .ok_or(ValueError::Malformed { expected: RANGE })?;
    let (a, b) = (parse_bytes(a)?, parse_bytes(b)?);
    Ok(BlockMix::Range { min: a.min(b), max: a.max(b) })
}

pub(super) fn show_range(spec: &JobSpec) -> Option<String> {
    show_mix(spec, |mix| match mix {
        BlockMix::Range { min, max } => {
            Some(format!("{}-{}", show_int((*min).into()), show_int((*max).into())))
        }
        BlockMix::Split(_) => None,
    })
}

/// `bssplit`.
pub(super) fn set_split(draft: &mut Draft, text: &str) -> Result<(), ValueError> {
    let found = parse_directions(text, SPLIT, parse_split)?;
    let mix = &mut draft.spec.block_mix;
    mix.read = found.read.or(mix.read.take());
    mix.write = found.write.or(mix.write.take());
    Ok(())
}

const SPLIT: &str = "block sizes and their percentages, such as 4k/60:64k/40";

/// Parses sizes with their shares. Sizes without a share divide the rest evenly, without fractions.
fn parse_split(text: &str) -> Result<BlockMix, ValueError> {
    if text.split(':').nth(BLOCK_SHARES_MAX).is_some() {
        return Err(ValueError::TooMany { max: BLOCK_SHARES_MAX });
    }
    let shares = text.split(':').map(parse_share).collect::<Result<Vec<_>, _>>()?;
    let sum: u32 = shares.iter().filter_map(|(_, percent)| percent.map(u32::from)).sum();
    let left = 100u32.checked_sub(sum).ok_or(ValueError::SharesAboveAll { sum })?;
    let unnamed = shares.iter().filter(|(_, percent)| percent.is_none()).count().max(1);
    let rest = (left as usize / unnamed) as u8;
    let share = |(bytes, percent): (u32, Option<u8>)| BlockShare { bytes, percent: percent.unwrap_or(rest) };
    let mut shares: Vec<_> = shares.into_iter().map(share).collect();
    let smallest = shares.iter().map(|share| share.bytes).min().unwrap_or(1);
    if let Some(BlockShare { bytes, .. }) = shares.iter().find(|share| share.bytes % smallest != 0) {
        let show = |bytes: u32| show_int(bytes.into());
        return Err(ValueError::Ambiguous {
            fio: format!("{} instead of {}", show(bytes / smallest * smallest), show(*bytes)),
            instead: format!("multiples of its smallest size, {}", show(smallest)),
        });
    }
    shares.sort_by_key(|share| share.percent);
    Ok(BlockMix::Split(shares))
}

/// Parses a size and its share. As in fio, a share of 0 counts as not given.
fn parse_share(text: &str) -> Result<(u32, Option<u8>), ValueError> {
    let malformed = ValueError::Malformed { expected: SPLIT };
    let (size, percent) = match text.split_once('/') {
        None => (text, ""),
        Some((size, percent)) => (size, percent),
    };
    if size.is_empty() || !percent.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed);
    }
    let percent = match percent.trim_start_matches('0') {
        "" => None,
        digits => match digits.parse() {
            Ok(percent @ 1..=100) => Some(percent),
            _ => return Err(ValueError::OutOfRange { min: 0, max: 100 }),
        },
    };
    Ok((parse_bytes(size)?, percent))
}

pub(super) fn show_split(spec: &JobSpec) -> Option<String> {
    show_mix(spec, |mix| match mix {
        BlockMix::Range { .. } => None,
        BlockMix::Split(shares) => {
            let share = |share: &BlockShare| format!("{}/{}", show_int(share.bytes.into()), share.percent);
            Some(shares.iter().map(share).collect::<Vec<_>>().join(":"))
        }
    })
}

/// Joins the parts of both directions that `show` prints. A direction it does not print stays
/// empty.
fn show_mix(spec: &JobSpec, show: impl Fn(&BlockMix) -> Option<String>) -> Option<String> {
    let part = |mix: &Option<BlockMix>| mix.as_ref().and_then(&show);
    let (read, write) = (part(&spec.block_mix.read), part(&spec.block_mix.write));
    (read.is_some() || write.is_some())
        .then(|| show_directions(read.unwrap_or_default(), write.unwrap_or_default()))
}

#[cfg(test)]
mod tests;
