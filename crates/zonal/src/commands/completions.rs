//! `zonal completions`: completion scripts, generated from the definitions.

use super::report::STATES;
use crate::cli;
use crate::exit::Failure;
use crate::topics::TOPICS;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap_complete::Shell;
use std::io::Write;
use zonal_io::changes::ZoneSetting;
use zonal_io::image::Profile;
use zonal_io::volume::WriteMode;

/// Print a completion script for a shell
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// Shell that the script is for
    shell: Shell,
}

/// Definition with the values to complete: devices, write modes, profiles, states.
fn offering() -> clap::Command {
    cli::complete().mut_subcommands(|command| command.mut_args(offer))
}

/// Adds the values of an argument that also accepts others, or parses its own.
fn offer(argument: clap::Arg) -> clap::Arg {
    let modes = || WriteMode::ALL.iter().map(|mode| mode.name().to_owned()).collect();
    let values: Vec<String> = match argument.get_id().as_str() {
        // Paths of images are completed as files.
        "device" => devices(),
        "write_mode" => modes(),
        "profile" => Profile::all().iter().map(|profile| profile.name.to_owned()).collect(),
        "base" => zonal_sim::Profile::names().map(str::to_owned).collect(),
        "state" => STATES.map(str::to_owned).to_vec(),
        "set" if argument.get_value_names().is_some_and(|names| names[0] == "CONDITION") => {
            ZoneSetting::ALL.map(|setting| setting.name().to_owned()).to_vec()
        }
        "set" if argument.get_value_names().is_some_and(|names| names[0].starts_with("MODE")) => modes(),
        "topic" => cli::complete()
            .get_subcommands()
            .map(|command| command.get_name().to_owned())
            .chain(TOPICS.iter().map(|topic| topic.name.to_owned()))
            .collect(),
        _ => return argument,
    };
    argument.value_parser(PossibleValuesParser::new(values.into_iter().map(PossibleValue::new)))
}

/// Prefixes of device names, and simulated drives.
fn devices() -> Vec<String> {
    let kinds = [
        "null:",
        "ram:",
        "image:",
        "concat:",
        "nvme-tcp://",
        "linear:",
        "crypt:key=",
        "fault:",
        "timing:",
        "trace:file=",
    ];
    let simulated = zonal_sim::Profile::names().map(|name| format!("sim:{name}"));
    kinds.into_iter().map(str::to_owned).chain(simulated).collect()
}

pub(crate) fn run(arguments: &Completions, out: &mut dyn Write) -> Result<(), Failure> {
    // Not written to `out` directly, because the generator panics if a write fails.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut offering(), "zonal", &mut script);
    if arguments.shell == Shell::Bash {
        // Device names contain colons, at which bash would split the word to complete.
        script.extend_from_slice(b"\nCOMP_WORDBREAKS=${COMP_WORDBREAKS//:}\n");
    }
    Ok(out.write_all(&script)?)
}
