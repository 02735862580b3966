//! `zonal help`: help on commands and on topics.

use crate::cli;
use crate::exit::Failure;
use crate::topics::TOPICS;
use clap::Args;
use std::io::Write;

/// Print help on a command or a topic
#[derive(Args, Debug)]
pub(crate) struct Help {
    /// Command or topic; all of them in short if not given
    topic: Option<String>,
}

pub(crate) fn run(arguments: &Help, out: &mut dyn Write) -> Result<(), Failure> {
    let mut definition = cli::command();
    definition.build();
    let Some(name) = &arguments.topic else {
        return Ok(write!(out, "{}", definition.render_help())?);
    };
    if let Some(topic) = TOPICS.iter().find(|t| t.name == name) {
        return Ok(out.write_all((topic.text)().as_bytes())?);
    }
    match definition.find_subcommand_mut(name) {
        Some(command) => Ok(write!(out, "{}", command.render_long_help())?),
        None => Err(Failure::usage(format!("{name}: no command or topic of this name; see `zonal help`"))),
    }
}
