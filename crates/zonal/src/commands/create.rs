//! `zonal create`: a drive in a file.

mod like;

use crate::exit::{Exit, Failure, OrExit};
use crate::value::{self, human};
use clap::{Args, ValueEnum};
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use zonal_core::{Personality, SECTOR_BYTES};
use zonal_io::badblocks::BadBlocks;
use zonal_io::identity::Identity;
use zonal_io::image::{ImageOptions, Profile};

/// Create a drive in a file
///
/// The file is sparse: space is allocated as zones are written. Omitted options are taken from the
/// profile, or without one from the defaults below. 0 means no limit.
///
/// If the file system does not support a file of this length (ext4: 16 TiB), the data is split into
/// several files: PATH, PATH.part1 and so on. Move, copy and remove them together.
///
/// With --like the drive has the zones of a report, with their types, conditions and write
/// pointers after a power cycle: open zones are closed, or empty if they have no data. Data below
/// the write pointers is not copied and reads as zeroes. The report has to cover the whole drive.
/// It is the output of `blkzone report`, `nvme zns report-zones` (also with -v or -o json),
/// `sg_rep_zones` (also with --json) or `zbd report` (also with -i or -csv).
///
/// A report with zones that an image does not support is refused, with the line of the first: a
/// conventional zone behind a sequential one, a gap, or a different capacity.
#[derive(Args, Debug)]
#[command(after_long_help = profiles())]
pub(crate) struct Create {
    /// File to create; an existing one is never replaced
    path: PathBuf,
    /// Use the geometry of this kind of drive
    #[arg(long, value_name = "NAME", value_parser = profile)]
    profile: Option<String>,
    /// Copy the zones of a real drive from a zone report, `-` for standard input
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["profile", "size", "zone_size", "zone_capacity", "zone_nr_conv"]
    )]
    like: Option<PathBuf>,
    /// Size of the drive
    #[arg(long, value_parser = value::size, required_unless_present_any = ["profile", "like"])]
    size: Option<u64>,
    /// Size of a zone, a power of two [default: {zone-size}]
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    zone_size: Option<u64>,
    /// Writable part of a sequential zone [default: all of it]
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    zone_capacity: Option<u64>,
    /// Number of conventional zones, at the start of the drive [default: 0]
    #[arg(long, value_name = "N")]
    zone_nr_conv: Option<u32>,
    /// Maximum number of open zones [default: 0]
    #[arg(long, value_name = "N")]
    zone_max_open: Option<u32>,
    /// Maximum number of active zones [default: 0]
    #[arg(long, value_name = "N")]
    zone_max_active: Option<u32>,
    /// Make a sequential zone, or each of a range, read-only
    #[arg(long, value_name = "ZONE[-ZONE]", value_parser = value::zones)]
    zone_readonly: Vec<RangeInclusive<u32>>,
    /// Make a sequential zone, or each of a range, offline
    #[arg(long, value_name = "ZONE[-ZONE]", value_parser = value::zones)]
    zone_offline: Vec<RangeInclusive<u32>>,
    /// Make a range of 512-byte sectors bad: reads and writes of them fail with a medium error
    #[arg(long, value_name = "FIRST-LAST", value_parser = value::sectors)]
    badblocks: Vec<RangeInclusive<u64>>,
    /// Make a bad range good once a command has hit it
    #[arg(long)]
    badblocks_once: bool,
    /// Transfer the blocks of a command before the first bad one
    #[arg(long)]
    badblocks_partial_io: bool,
    /// Logical block size [default: {block}; required with --like, unless the report has it]
    #[arg(long, value_name = "SIZE", value_parser = block)]
    blocksize: Option<u32>,
    /// Largest native zone append in 512-byte sectors, 0 for a drive without [default: no limit with zns, 0 with zbc]
    #[arg(long, value_name = "SECTORS")]
    zone_append_max_sectors: Option<u32>,
    /// Standard to follow where ZNS and ZBC differ [default: zns; with --like zbc for drives with
    /// conventional zones and for sg_rep_zones]
    #[arg(long, value_enum)]
    personality: Option<Standard>,
    /// Report a rotational medium [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    rotational: Option<bool>,
    /// Identity of the drive, which `zonal info` shows [default: a random one]
    #[arg(long)]
    uuid: Option<Identity>,
}

/// Standard of the zone commands.
#[derive(Clone, Copy, ValueEnum, Debug)]
enum Standard {
    /// NVMe Zoned Namespaces
    Zns,
    /// Zoned block commands of SCSI and ATA
    Zbc,
}

fn block(text: &str) -> Result<u32, String> {
    u32::try_from(value::size(text)?).map_err(|_| "beyond 4 GiB".to_owned())
}

fn profile(text: &str) -> Result<String, String> {
    let known: Vec<&str> = Profile::all().iter().map(|p| p.name).collect();
    match known.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("known profiles: {}", known.join(", "))),
    }
}

fn profiles() -> String {
    let lines =
        Profile::all().iter().map(|p| format!("  {:<12} {}\n{:15}{}\n", p.name, p.title, "", in_words(p)));
    format!(
        "Profiles of the drives simulated by sim:NAME; docs/IMAGE.md lists the differences of an image:\n{}",
        lines.collect::<String>()
    )
}

/// Describes the geometry and limits of a profile's drive.
fn in_words(profile: &Profile) -> String {
    let limit =
        |n: u32, what| if n == 0 { format!("no limit of {what} zones") } else { format!("{n} {what}") };
    let append = match u64::from(profile.zone_append_max_sectors) * SECTOR_BYTES {
        0 => "no zone append".to_owned(),
        bytes => format!("appends of {} at most", human(bytes)),
    };
    let capacity = match profile.zone_capacity {
        all if all == profile.zone_size => String::new(),
        part => format!(" with a capacity of {}", human(part)),
    };
    format!(
        "{} zones of {}{capacity}, {} conventional, {}, {}, {append}",
        profile.size / profile.zone_size,
        human(profile.zone_size),
        profile.zone_nr_conv,
        limit(profile.zone_max_open, "open"),
        limit(profile.zone_max_active, "active"),
    )
}

pub(crate) fn run(arguments: &Create, out: &mut dyn Write) -> Result<(), Failure> {
    let mut options = ImageOptions::default()
        .with_profile(arguments.profile.clone())
        .with_size(arguments.size)
        .with_zone_size(arguments.zone_size)
        .with_zone_capacity(arguments.zone_capacity)
        .with_zone_nr_conv(arguments.zone_nr_conv)
        .with_zone_max_open(arguments.zone_max_open)
        .with_zone_max_active(arguments.zone_max_active)
        .with_blocksize(arguments.blocksize)
        .with_zone_append_max_sectors(arguments.zone_append_max_sectors)
        .with_rotational(arguments.rotational)
        .with_personality(arguments.personality.map(|p| match p {
            Standard::Zns => Personality::Zns,
            Standard::Zbc => Personality::Zbc,
        }))
        .with_identity(arguments.uuid)
        .with_zone_readonly(arguments.zone_readonly.clone())
        .with_zone_offline(arguments.zone_offline.clone())
        .with_badblocks(badblocks(arguments));
    if let Some(file) = &arguments.like {
        options = copy_of(like::read(file, arguments.blocksize).or_exit(Exit::Usage)?, options);
    }
    let header = options.create(&arguments.path).or_exit(Exit::Device)?;
    let assumed = arguments.like.as_ref().map(|_| assumed(&options));
    let geometry = &header.geometry;
    let files = match header.split() {
        None => String::new(),
        Some(split) => format!(", in {} files", split.files()),
    };
    writeln!(
        out,
        "{}: {}, {} zones of {}, {} conventional{files}",
        arguments.path.display(),
        human(geometry.sectors().bytes()),
        geometry.zones(),
        human(geometry.zone_size().bytes()),
        geometry.conventional_zones(),
    )?;
    if let Some(assumed) = assumed.flatten() {
        writeln!(out, "not in the report, so assumed: {assumed}")?;
    }
    Ok(())
}

/// Properties that neither the report nor an option sets, and their options.
fn assumed(options: &ImageOptions) -> Option<String> {
    // A limit of active zones limits open ones as well.
    let is_unlimited = |open: Option<u32>| open.is_none() && options.zone_max_active.unwrap_or(0) == 0;
    let unset = [
        (is_unlimited(options.zone_max_open), "no limit of open zones (--zone-max-open)"),
        (options.zone_max_active.is_none(), "no limit of active zones (--zone-max-active)"),
        (options.rotational.is_none(), "not rotational (--rotational)"),
    ];
    let unset: Vec<&str> =
        unset.into_iter().filter(|(is_unset, _)| *is_unset).map(|(_, text)| text).collect();
    (!unset.is_empty()).then(|| unset.join(", "))
}

fn badblocks(arguments: &Create) -> BadBlocks {
    let mut bad = BadBlocks::new(arguments.badblocks.iter().cloned());
    (bad.once, bad.partial_io) = (arguments.badblocks_once, arguments.badblocks_partial_io);
    bad
}

/// Adds the zones of `drive` to `options`, which take precedence over the report.
fn copy_of(drive: like::Drive, options: ImageOptions) -> ImageOptions {
    let (open_max, active_max) = (options.zone_max_open, options.zone_max_active);
    let personality = options.personality.unwrap_or(drive.personality);
    options
        .with_size(drive.size)
        .with_zone_size(drive.zone_size)
        .with_zone_capacity(drive.zone_capacity)
        .with_zone_nr_conv(drive.conventional)
        .with_zone_max_open(open_max.or(drive.open_max))
        .with_zone_max_active(active_max.or(drive.active_max))
        .with_blocksize(drive.block)
        .with_personality(personality)
        .with_states(drive.states)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_lists_the_geometry_of_every_profile() {
        let text = include_str!("../../../../docs/IMAGE.md");
        for profile in Profile::all() {
            let row = format!("| `{}` | {} |", profile.name, in_words(profile));
            assert!(text.contains(&row), "docs/IMAGE.md has no row {row}");
        }
    }
}
