//! `zonal create`: a drive in a file.

use crate::exit::{Exit, Failure, OrExit};
use crate::value::{self, human};
use clap::{Args, ValueEnum};
use std::io::Write;
use std::path::PathBuf;
use zonal_core::Personality;
use zonal_io::image::{ImageOptions, PROFILES};

/// Create a drive in a file
///
/// The file is sparse: it takes room as zones are written. What is not given comes from the profile, and without one
/// from the defaults named here. A limit of 0 is none.
#[derive(Args, Debug)]
#[command(after_long_help = profiles())]
pub(crate) struct Create {
    /// File to make; an existing one is never replaced
    path: PathBuf,
    /// Start from the geometry of a kind of drive
    #[arg(long, value_name = "NAME", value_parser = profile)]
    profile: Option<String>,
    /// Size of the drive
    #[arg(long, value_parser = value::size, required_unless_present = "profile")]
    size: Option<u64>,
    /// Size of a zone, a power of two [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    zone_size: Option<u64>,
    /// Writable part of a sequential zone [default: all of it]
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    zone_capacity: Option<u64>,
    /// Number of conventional zones, which come first [default: 0]
    #[arg(long, value_name = "N")]
    zone_nr_conv: Option<u32>,
    /// Largest number of open zones [default: 0]
    #[arg(long, value_name = "N")]
    zone_max_open: Option<u32>,
    /// Largest number of active zones [default: 0]
    #[arg(long, value_name = "N")]
    zone_max_active: Option<u32>,
    /// Logical block [default: 4K]
    #[arg(long, value_name = "SIZE", value_parser = block)]
    blocksize: Option<u32>,
    /// Largest native zone append in 512-byte sectors, 0 for a drive without [default: no limit with zns, 0 with zbc]
    #[arg(long, value_name = "SECTORS")]
    zone_append_max_sectors: Option<u32>,
    /// Standard to follow where they differ [default: zns]
    #[arg(long, value_enum)]
    personality: Option<Standard>,
    /// Pass for a medium that turns [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    rotational: Option<bool>,
}

/// The standards.
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
    let known: Vec<&str> = PROFILES.iter().map(|p| p.name).collect();
    match known.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("there are {}", known.join(", "))),
    }
}

fn profiles() -> String {
    let width = PROFILES.iter().map(|p| p.name.len()).max().unwrap_or(0);
    let lines = PROFILES.iter().map(|p| format!("  {:<width$}  {}\n", p.name, p.about));
    format!(
        "Profiles, which are zones and limits only; the simulated drives of the same names (sim:NAME) are divided otherwise, \
         see docs/IMAGE.md:\n{}",
        lines.collect::<String>()
    )
}

pub(crate) fn run(arguments: &Create, out: &mut dyn Write) -> Result<(), Failure> {
    let options = ImageOptions {
        profile: arguments.profile.clone(),
        size: arguments.size,
        zone_size: arguments.zone_size,
        zone_capacity: arguments.zone_capacity,
        zone_nr_conv: arguments.zone_nr_conv,
        zone_max_open: arguments.zone_max_open,
        zone_max_active: arguments.zone_max_active,
        blocksize: arguments.blocksize,
        zone_append_max_sectors: arguments.zone_append_max_sectors,
        rotational: arguments.rotational,
        personality: arguments.personality.map(|p| match p {
            Standard::Zns => Personality::Zns,
            Standard::Zbc => Personality::Zbc,
        }),
        creation: None,
    };
    let header = options.create(&arguments.path).or_exit(Exit::Device)?;
    let geometry = &header.geometry;
    Ok(writeln!(
        out,
        "{}: {}, {} zones of {}, {} conventional",
        arguments.path.display(),
        human(geometry.sectors().bytes()),
        geometry.zones(),
        human(geometry.zone_size().bytes()),
        geometry.conventional_zones(),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_core::{Geometry, SECTOR_BYTES};

    /// A drive as the table of the documentation has it.
    fn in_words(geometry: &Geometry, open: u32, active: u32) -> String {
        let mib = |sectors: u64| (sectors * SECTOR_BYTES) >> 20;
        let capacity = match geometry.zone_capacity() == geometry.zone_size() {
            true => String::new(),
            false => format!(", of which {} can be written", mib(geometry.zone_capacity().0)),
        };
        let (zones, size, conventional) =
            (geometry.zones(), mib(geometry.zone_size().0), geometry.conventional_zones());
        format!(
            "{zones} zones of {size} MiB{capacity}, {conventional} conventional, {open} open, {active} active"
        )
    }

    #[test]
    fn drives_that_are_created_and_simulated_under_one_name_are_compared_in_the_documentation() {
        let text = include_str!("../../../../docs/IMAGE.md");
        for preset in PROFILES {
            let header =
                ImageOptions { profile: Some(preset.name.into()), ..Default::default() }.header().unwrap();
            let created = in_words(&header.geometry, header.open_max, header.active_max);
            let profile = zonal_sim::Profile::open(preset.name, &[]).expect("there is one of each name");
            let device = profile.simulated("sim:").unwrap();
            let info = device.info();
            let simulated = in_words(&info.geometry, info.open_max, info.active_max);
            let row = format!("| `{}` | {created} | {simulated} |", preset.name);
            assert!(text.contains(&row), "docs/IMAGE.md has no row {row}");
        }
    }
}
