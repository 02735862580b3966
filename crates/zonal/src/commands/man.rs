//! `zonal man`: manual pages, from the definitions.

use crate::cli;
use crate::exit::{CLOSED_PIPE, Exit, Failure};
use crate::topics::TOPICS;
use anyhow::Context;
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;

/// Print or write the manual pages
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// Print the page of this command, not the main one
    #[arg(conflicts_with = "dir")]
    command: Option<String>,
    /// Write every page into this directory, which is made if need be
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Man, out: &mut dyn Write) -> Result<(), Failure> {
    let pages = pages()?;
    if let Some(dir) = &arguments.dir {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("{}: cannot make the directory", dir.display()))?;
        for (name, text) in &pages {
            let path = dir.join(format!("{name}.1"));
            std::fs::write(&path, text)
                .with_context(|| format!("{}: cannot write the page", path.display()))?;
        }
        return Ok(());
    }
    let name = match &arguments.command {
        Some(command) => format!("zonal-{command}"),
        None => "zonal".to_owned(),
    };
    match pages.iter().find(|(page, _)| *page == name) {
        Some((_, text)) => Ok(out.write_all(text)?),
        None => Err(Failure::usage(format!("{name}: there is no such page"))),
    }
}

/// Every page with its name, the main one first.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut definition = cli::command();
    definition.build();
    let mut pages = vec![("zonal".to_owned(), page(&definition, true)?)];
    for command in definition.get_subcommands() {
        pages.push((format!("zonal-{}", command.get_name()), page(command, false)?));
    }
    Ok(pages)
}

fn page(command: &clap::Command, is_main: bool) -> io::Result<Vec<u8>> {
    let source = format!("zonal {}", env!("CARGO_PKG_VERSION"));
    let page = clap_mangen::Man::new(command.clone()).source(source).manual("Zonal");
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if is_main {
        page.render_subcommands_section(&mut text)?;
        for topic in TOPICS.iter().filter(|t| t.name != "exit-codes") {
            section(&mut text, &topic.name.to_uppercase(), &(topic.text)())?;
        }
    } else if command.get_after_long_help().or(command.get_after_help()).is_some() {
        page.render_extra_section(&mut text)?;
    }
    exit_status(&mut text)?;
    Ok(text)
}

/// A section of preformatted text.
fn section(text: &mut Vec<u8>, title: &str, body: &str) -> io::Result<()> {
    writeln!(text, ".SH {title}\n.nf")?;
    for line in body.lines() {
        writeln!(text, "{}", escape(line))?;
    }
    writeln!(text, ".fi")
}

fn exit_status(text: &mut Vec<u8>) -> io::Result<()> {
    writeln!(text, ".SH \"EXIT STATUS\"")?;
    for exit in Exit::ALL {
        writeln!(text, ".TP\n{}\n{}", exit as u8, escape(exit.meaning()))?;
    }
    writeln!(text, ".TP\n{CLOSED_PIPE}\n{}", escape(Exit::CLOSED_PIPE_MEANING))
}

/// A line that roff prints as it is.
fn escape(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}
