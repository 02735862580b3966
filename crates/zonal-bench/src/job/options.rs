//! Supported options: name, form, and functions to parse each into a [`JobSpec`] and to print it.

mod blocks;
mod pace;

use std::time::Duration;

use super::draft::{Draft, Mix};
use super::error::ValueError;
use super::limits::{
    FILE_BYTES_MAX, IODEPTH_MAX, LOOPS_MAX, NAME_BYTES_MAX, NRFILES_MAX, NUMJOBS_MAX, OPEN_ZONES_MAX,
    PERCENTILES_MAX,
};
use super::spec::{Direction, JobSpec, Pattern, Verify, ZoneMode};
use super::value::{
    parse_amount, parse_bool, parse_extent, parse_float, parse_floats, parse_int, parse_int_in, parse_length,
    parse_micros, parse_u32_in, parse_word, show_extent, show_floats, show_int, show_time,
};

/// Form of an option's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// No value, `=1` or `=0`.
    Flag,
    /// A required value.
    Value,
}

/// A supported option.
pub struct Supported {
    /// Name in fio.
    pub name: &'static str,
    /// Aliases in fio.
    pub aliases: &'static [&'static str],
    /// Form of its value.
    pub form: Form,
    /// True if fio misreads the value after a blank: `bs= 8k` is 8 bytes in fio.
    pub(super) numeric: bool,
    pub(super) apply: fn(&mut Draft, &str) -> Result<(), ValueError>,
    /// Prints the value that [`Supported::apply`] parses back to the same state. `None` if it is
    /// the default.
    pub(super) show: fn(&JobSpec) -> Option<String>,
}

/// Returns the supported options, in the order in which they are printed.
pub fn supported() -> &'static [Supported] {
    SUPPORTED
}

macro_rules! number {
    ($name:literal $(| $alias:literal)*, $apply:expr, $show:expr) => {
        Supported {
            name: $name,
            aliases: &[$($alias),*],
            form: Form::Value,
            numeric: true,
            apply: $apply,
            show: $show,
        }
    };
}

macro_rules! text {
    ($name:literal $(| $alias:literal)*, $apply:expr, $show:expr) => {
        Supported { numeric: false, ..number!($name $(| $alias)*, $apply, $show) }
    };
}

/// A boolean field: `switch!` takes `name=1`, `flag!` takes `name` or `name=1`.
macro_rules! switch {
    ($name:literal, $field:ident, default $default:literal) => {
        text!(
            $name,
            |draft, text| {
                draft.spec.$field = parse_bool(text)?;
                Ok(())
            },
            |spec| (spec.$field != $default).then(|| u8::from(spec.$field).to_string())
        )
    };
}

macro_rules! flag {
    ($name:literal $(| $alias:literal)*, $field:ident) => {
        Supported {
            aliases: &[$($alias),*],
            form: Form::Flag,
            ..switch!($name, $field, default false)
        }
    };
}

/// A 32-bit count with its default and range.
macro_rules! count {
    ($name:literal, $field:ident, default $default:literal, $min:expr, $max:expr) => {
        number!(
            $name,
            |draft, text| {
                draft.spec.$field = parse_u32_in(text, $min, $max)?;
                Ok(())
            },
            |spec| (spec.$field != $default).then(|| spec.$field.to_string())
        )
    };
}

/// A value that is absent by default. Zero also means absent.
macro_rules! optional {
    ($name:literal, $field:ident, $parse:expr, $show:expr) => {
        number!(
            $name,
            |draft, text| {
                draft.spec.$field = Some($parse(text)?).filter(is_given);
                Ok(())
            },
            |spec| spec.$field.map($show)
        )
    };
}

const SUPPORTED: &[Supported] = &[
    // The name is printed as the section header.
    text!("name", |draft, text| set_text(&mut draft.spec.name, text), |_| None),
    text!(
        "description",
        |draft, text| set_text(draft.spec.description.insert(String::new()), text),
        |spec| spec.description.clone()
    ),
    text!("filename", set_filename, |spec| spec.filename.as_deref().map(show_filename)),
    text!("rw" | "readwrite", set_rw, |spec| match show_rw(spec.pattern) {
        "read" => None,
        word => Some(word.to_owned()),
    }),
    number!("rwmixread", |draft, text| draft.set_mix(parse_percent(text)?), |spec| match spec
        .pattern
        .direction
    {
        Direction::Mixed { read_percent } if read_percent != Mix::default().read_percent => {
            Some(read_percent.to_string())
        }
        _ => None,
    }),
    // fio keeps the two complementary, so the later one wins.
    number!("rwmixwrite", |draft, text| draft.set_mix(100 - parse_percent(text)?), |_| None),
    number!("bs" | "blocksize", blocks::set_size, blocks::show_size),
    number!("bsrange" | "blocksize_range", blocks::set_range, blocks::show_range),
    number!("bssplit", blocks::set_split, blocks::show_split),
    number!(
        "size",
        |draft, text| {
            draft.spec.size = parse_length(text)?;
            Ok(())
        },
        |spec| (spec.size != JobSpec::default().size).then(|| show_extent(spec.size))
    ),
    number!(
        "io_size" | "io_limit",
        |draft, text| {
            draft.spec.io_size = parse_amount(text)?;
            Ok(())
        },
        |spec| (spec.io_size != JobSpec::default().io_size).then(|| show_extent(spec.io_size))
    ),
    number!(
        "offset" | "fileoffset",
        |draft, text| {
            draft.spec.offset = parse_extent(text)?;
            Ok(())
        },
        |spec| (spec.offset != JobSpec::default().offset).then(|| show_extent(spec.offset))
    ),
    number!(
        "offset_increment",
        |draft, text| {
            draft.spec.offset_increment = parse_extent(text)?;
            Ok(())
        },
        |spec| (spec.offset_increment != JobSpec::default().offset_increment)
            .then(|| show_extent(spec.offset_increment))
    ),
    count!("nrfiles", nrfiles, default 1, 1, NRFILES_MAX).with_alias(&["nr_files"]),
    number!(
        "filesize",
        |draft, text| {
            draft.spec.filesize = Some(parse_sizes(text)?);
            Ok(())
        },
        |spec| spec.filesize.map(|(min, max)| match min == max {
            true => show_int(min),
            false => format!("{}-{}", show_int(min), show_int(max)),
        })
    ),
    switch!("overwrite", overwrite, default false),
    count!("iodepth", iodepth, default 1, 1, IODEPTH_MAX),
    count!("numjobs", numjobs, default 1, 1, NUMJOBS_MAX),
    count!("loops", loops, default 1, 1, LOOPS_MAX),
    optional!("runtime", runtime, |text| parse_micros(text).map(Duration::from_micros), show_time)
        .with_alias(&["timeout"]),
    flag!("time_based", time_based),
    number!("ramp_time", pace::RAMP_TIME.0, pace::RAMP_TIME.1),
    number!("rate", pace::RATE.0, pace::RATE.1),
    number!("rate_min" | "ratemin", pace::RATE_MIN.0, pace::RATE_MIN.1),
    number!("rate_iops", pace::RATE_IOPS.0, pace::RATE_IOPS.1),
    number!("rate_iops_min", pace::RATE_IOPS_MIN.0, pace::RATE_IOPS_MIN.1),
    text!("rate_process", pace::RATE_PROCESS.0, pace::RATE_PROCESS.1),
    number!("rate_cycle" | "ratecycle", pace::RATE_CYCLE_MS.0, pace::RATE_CYCLE_MS.1),
    number!("thinktime", pace::THINKTIME.0, pace::THINKTIME.1),
    number!("thinktime_spin", pace::THINKTIME_SPIN.0, pace::THINKTIME_SPIN.1),
    number!("thinktime_blocks", pace::THINKTIME_BLOCKS.0, pace::THINKTIME_BLOCKS.1),
    text!("thinktime_blocks_type", pace::THINKTIME_BLOCKS_TYPE.0, pace::THINKTIME_BLOCKS_TYPE.1),
    number!("thinktime_iotime", pace::THINKTIME_IOTIME.0, pace::THINKTIME_IOTIME.1),
    text!("verify", set_verify, |spec| (spec.verify == Verify::Crc32c).then(|| "crc32c".to_owned())),
    switch!("do_verify", do_verify, default true),
    switch!("verify_fatal", verify_fatal, default false),
    number!(
        "randseed",
        |draft, text| {
            // Zero is a valid seed, so this is not `optional!`.
            draft.spec.randseed = Some(parse_int(text)?);
            Ok(())
        },
        |spec| spec.randseed.map(|seed| seed.to_string())
    ),
    switch!("randrepeat", randrepeat, default true),
    switch!("allrandrepeat", allrandrepeat, default false),
    flag!("norandommap", norandommap),
    text!(
        "random_distribution",
        |_, text| match text {
            "random" => Ok(()),
            _ => Err(ValueError::Refused { why: "random offsets are uniform; only `random` is supported" }),
        },
        |_| None
    ),
    text!("zonemode", set_zone_mode, |spec| (spec.zonemode == ZoneMode::Zbd).then(|| "zbd".to_owned())),
    optional!("zonesize", zonesize, parse_int, show_int),
    optional!("zonecapacity", zonecapacity, parse_int, show_int),
    optional!("max_open_zones", max_open_zones, |text| parse_u32_in(text, 0, OPEN_ZONES_MAX), |zones| zones
        .to_string()),
    optional!(
        "job_max_open_zones",
        job_max_open_zones,
        |text| parse_u32_in(text, 0, OPEN_ZONES_MAX),
        |zones| zones.to_string()
    ),
    switch!("ignore_zone_limits", ignore_zone_limits, default false),
    optional!("zone_reset_threshold", zone_reset_threshold, |text| parse_float(text, 0.0, 1.0), |share| {
        share.to_string()
    }),
    optional!("zone_reset_frequency", zone_reset_frequency, |text| parse_float(text, 0.0, 1.0), |share| {
        share.to_string()
    }),
    switch!("read_beyond_wp", read_beyond_wp, default false),
    count!("fsync", fsync, default 0, 0, u32::MAX.into()),
    count!("fdatasync", fdatasync, default 0, 0, u32::MAX.into()),
    switch!("end_fsync", end_fsync, default false),
    flag!("stonewall" | "wait_for_previous", stonewall),
    text!(
        "write_iolog",
        |draft, text| set_text(draft.spec.write_iolog.insert(String::new()), text),
        |spec| spec.write_iolog.clone()
    ),
    flag!("group_reporting", group_reporting),
    flag!("new_group", new_group),
    flag!("exitall_on_error", exitall_on_error),
    switch!("disable_lat", disable_lat, default false),
    switch!("disable_clat", disable_clat, default false),
    switch!("disable_slat", disable_slat, default false),
    switch!("gtod_reduce", gtod_reduce, default false),
    switch!("clat_percentiles", clat_percentiles, default true),
    switch!("lat_percentiles", lat_percentiles, default false),
    switch!("slat_percentiles", slat_percentiles, default false),
    text!(
        "percentile_list",
        |draft, text| {
            let mut list = parse_floats(text, 0.0, 100.0, PERCENTILES_MAX)?;
            list.sort_by(f64::total_cmp);
            draft.spec.percentile_list = list;
            Ok(())
        },
        |spec| {
            (spec.percentile_list != JobSpec::default().percentile_list)
                .then(|| show_floats(&spec.percentile_list))
        }
    ),
];

impl Supported {
    const fn with_alias(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }
}

/// True if a value differs from the default, which stands for none.
fn is_given<T: Default + PartialEq>(value: &T) -> bool {
    *value != T::default()
}

/// Parses one size, or a minimum and a maximum.
fn parse_sizes(text: &str) -> Result<(u64, u64), ValueError> {
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    let (min, max) =
        (parse_int_in(min.trim(), 1, FILE_BYTES_MAX)?, parse_int_in(max.trim(), 1, FILE_BYTES_MAX)?);
    match min <= max {
        true => Ok((min, max)),
        false => Err(ValueError::Malformed { expected: "a size, or a range such as 2m-8m" }),
    }
}

fn parse_percent(text: &str) -> Result<u8, ValueError> {
    parse_int_in(text, 0, 100).and_then(|percent| u8::try_from(percent).map_err(|_| ValueError::Overflow))
}

fn set_text(field: &mut String, text: &str) -> Result<(), ValueError> {
    check_length(text)?;
    text.clone_into(field);
    Ok(())
}

fn check_length(text: &str) -> Result<(), ValueError> {
    if text.len() > NAME_BYTES_MAX {
        return Err(ValueError::TooLong { max: NAME_BYTES_MAX });
    }
    Ok(())
}

/// True if `text` is a device name such as `null:size=1T`. fio separates files with colons, so a
/// prefix that looks like a kind of device decides. A path with a colon has to be written as
/// `./a:b` or `a\:b`.
fn is_device_name(text: &str) -> bool {
    let Some((kind, _)) = text.split_once(':') else { return false };
    kind.starts_with(|c: char| c.is_ascii_lowercase())
        && kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn set_filename(draft: &mut Draft, text: &str) -> Result<(), ValueError> {
    check_length(text)?;
    let plain = text.replace("\\:", "");
    if plain.contains(':') && !is_device_name(text) {
        return Err(ValueError::Refused { why: "a job has one device; write `\\:` for a colon in a path" });
    }
    draft.spec.filename = Some(text.replace("\\:", ":"));
    Ok(())
}

fn show_filename(name: &str) -> String {
    if is_device_name(name) && !name.contains('\\') { name.to_owned() } else { name.replace(':', "\\:") }
}

const RW_WORDS: &str = "read, write, randread, randwrite, rw, readwrite, randrw";

fn set_rw(draft: &mut Draft, text: &str) -> Result<(), ValueError> {
    let (word, modifier) = match text.split_once(':') {
        Some((word, modifier)) => (word, Some(modifier)),
        None => (text, None),
    };
    if matches!(word, "trim" | "randtrim" | "trimwrite" | "randtrimwrite") {
        return Err(ValueError::Refused { why: "there is no trim; zones are reset instead" });
    }
    let mixed = Direction::Mixed { read_percent: draft.mix.read_percent };
    let choices = [
        ("read", (Direction::Read, false)),
        ("write", (Direction::Write, false)),
        ("randread", (Direction::Read, true)),
        ("randwrite", (Direction::Write, true)),
        ("rw", (mixed, false)),
        ("readwrite", (mixed, false)),
        ("randrw", (mixed, true)),
    ];
    let (direction, random) = parse_word(word, RW_WORDS, &choices)?;
    if modifier.is_some() {
        return Err(ValueError::Refused { why: "`:N` after rw skips or repeats offsets" });
    }
    draft.spec.pattern = Pattern { direction, random };
    Ok(())
}

fn show_rw(pattern: Pattern) -> &'static str {
    match (pattern.direction, pattern.random) {
        (Direction::Read, false) => "read",
        (Direction::Read, true) => "randread",
        (Direction::Write, false) => "write",
        (Direction::Write, true) => "randwrite",
        (Direction::Mixed { .. }, false) => "rw",
        (Direction::Mixed { .. }, true) => "randrw",
    }
}

const FIO_VERIFY_METHODS: &[&str] = &[
    "md5", "crc64", "crc32", "crc16", "crc7", "sha1", "sha256", "sha512", "sha3-224", "sha3-256", "sha3-384",
    "sha3-512", "xxhash", "meta", "pattern", "null",
];

fn set_verify(draft: &mut Draft, text: &str) -> Result<(), ValueError> {
    if FIO_VERIFY_METHODS.contains(&text) {
        return Err(ValueError::Refused { why: "blocks are verified with crc32c only" });
    }
    // `crc32c-intel` is the same checksum, computed with a processor instruction.
    let choices = [
        ("0", Verify::None),
        ("none", Verify::None),
        ("crc32c", Verify::Crc32c),
        ("crc32c-intel", Verify::Crc32c),
    ];
    draft.spec.verify = parse_word(text, "0, none, crc32c", &choices)?;
    Ok(())
}

fn set_zone_mode(draft: &mut Draft, text: &str) -> Result<(), ValueError> {
    if text == "strided" {
        return Err(ValueError::Refused { why: "zones are those of the device, not strides of a range" });
    }
    draft.spec.zonemode = parse_word(text, "none, zbd", &[("none", ZoneMode::None), ("zbd", ZoneMode::Zbd)])?;
    Ok(())
}

#[cfg(test)]
mod tests;
