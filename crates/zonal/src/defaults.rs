//! Values in help texts, taken from the constants that the code uses.
//!
//! A help text contains the name of a value in braces, as in `[default: {window}]`.

use crate::commands::{mount, serve};
use zonal_bench::replay::{DEPTH_AT_FULL_SPEED, DEPTH_AT_TIMES, RESERVE_PERCENT};
use zonal_fs::BLOCK_BYTES;
use zonal_fs::format::DATA_BLOCKS_MAX;
use zonal_fs::space::open::OPEN_DEFAULT;
use zonal_io::image::{BLOCK_DEFAULT, ZONE_SIZE_DEFAULT};
use zonal_io::volume::{BudgetOptions, FLIGHT_RECORDS_MAX, OptionKey, VolumeOptions, size_text, time_text};

fn values() -> [(&'static str, String); 17] {
    let volume = VolumeOptions::default();
    // A unit has a header of one block.
    let unit = u64::from(DATA_BLOCKS_MAX + 1) * u64::from(BLOCK_BYTES);
    [
        ("{grace}", time_text(BudgetOptions::default().grace)),
        ("{park}", volume.text(OptionKey::Park)),
        ("{qd1-quantum}", volume.text(OptionKey::Qd1Quantum)),
        ("{window}", volume.text(OptionKey::Window)),
        ("{nr-requests}", volume.text(OptionKey::NrRequests)),
        ("{scheduler}", volume.text(OptionKey::Scheduler)),
        ("{flight-records}", FLIGHT_RECORDS_MAX.to_string()),
        ("{dirty}", size_text(zonal_fs::MountOptions::default().dirty_bytes)),
        ("{unit}", size_text(unit)),
        ("{open-zones}", OPEN_DEFAULT.to_string()),
        ("{commit}", format!("{}s", mount::SYNC_EVERY.as_secs())),
        ("{depth-at-full-speed}", DEPTH_AT_FULL_SPEED.to_string()),
        ("{depth-at-times}", DEPTH_AT_TIMES.to_string()),
        ("{reserve-percent}", RESERVE_PERCENT.to_string()),
        ("{zone-size}", size_text(ZONE_SIZE_DEFAULT)),
        ("{block}", size_text(BLOCK_DEFAULT.into())),
        ("{listen}", serve::LISTEN.to_string()),
    ]
}

/// Replaces the names in a help text by their values.
pub(crate) fn fill(text: &str) -> String {
    values().iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// Fills in the help texts of an argument.
pub(crate) fn fill_help(argument: clap::Arg) -> clap::Arg {
    let filled = |help: Option<&clap::builder::StyledStr>| {
        help.map(ToString::to_string).filter(|text| text.contains('{')).map(|text| fill(&text))
    };
    let (short, long) = (filled(argument.get_help()), filled(argument.get_long_help()));
    let argument = match short {
        Some(text) => argument.help(text),
        None => argument,
    };
    match long {
        Some(text) => argument.long_help(text),
        None => argument,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_values_and_no_placeholders() {
        let text = crate::docs::reference();
        for (name, value) in values() {
            assert!(!text.contains(name) && text.contains(&value), "{name}");
        }
        assert!(!text.contains("[default: {"), "a placeholder without a value");
    }
}
