//! `zonal help`: help on commands and on topics.

use crate::exit::Failure;
use crate::topics::TOPICS;
use crate::value::suggestion;
use crate::{cli, docs, wrap};
use clap::Args;
use std::io::Write;

/// Print help on a command or a topic
#[derive(Args, Debug)]
pub(crate) struct Help {
    /// Command or topic [default: list them]
    #[arg(conflicts_with = "all")]
    topic: Option<String>,
    /// Print the help of every command and every topic, as one page of Markdown
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(arguments: &Help, out: &mut dyn Write) -> Result<(), Failure> {
    if arguments.all {
        return Ok(out.write_all(docs::reference().as_bytes())?);
    }
    let name = arguments.topic.as_deref();
    if let Some(topic) = TOPICS.iter().find(|t| Some(t.name) == name) {
        return Ok(out.write_all(wrap::hanging(&(topic.text)(), wrap::columns()).as_bytes())?);
    }
    match cli::help(name, wrap::columns()) {
        Some(text) => Ok(out.write_all(text.as_bytes())?),
        None => {
            let name = name.unwrap_or_default();
            let definition = cli::command();
            let commands = definition.get_subcommands().map(clap::Command::get_name);
            let known = commands.chain(TOPICS.iter().map(|topic| topic.name));
            let hint = suggestion(name, known);
            Err(Failure::usage(format!("{name}: no such command or topic; {hint}")))
        }
    }
}
