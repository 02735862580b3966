//! `zonal man`: manual pages, generated from the definitions.

use crate::exit::{self, Failure};
use crate::topics::TOPICS;
use crate::wrap::hanging;
use crate::{cli, examples};
use anyhow::Context;
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;

/// Print manual pages, or write them to a directory
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// Command whose page to print, instead of the main page
    #[arg(conflicts_with = "dir")]
    command: Option<String>,
    /// Write all pages to this directory, which is created if missing
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Width of the topics in the main page, which man indents.
const COLUMNS: usize = 72;

pub(crate) fn run(arguments: &Man, out: &mut dyn Write) -> Result<(), Failure> {
    let pages = pages()?;
    if let Some(dir) = &arguments.dir {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("{}: cannot create the directory", dir.display()))?;
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
        None => Err(Failure::usage(format!("{name}: no such page; `zonal help` lists the commands"))),
    }
}

/// All pages with their names, the main one first.
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
    if !is_main {
        section(&mut text, "EXAMPLES", &examples::of(command.get_name()).join("\n"))?;
    }
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if is_main {
        page.render_subcommands_section(&mut text)?;
        for topic in TOPICS.iter().filter(|t| t.name != "exit-codes") {
            section(&mut text, &topic.name.to_uppercase(), &hanging(&(topic.text)(), COLUMNS))?;
        }
    } else if command.get_after_long_help().or(command.get_after_help()).is_some() {
        page.render_extra_section(&mut text)?;
    }
    exit_status(&mut text)?;
    Ok(text)
}

/// Writes a section of preformatted text.
fn section(text: &mut Vec<u8>, title: &str, body: &str) -> io::Result<()> {
    writeln!(text, ".SH {title}\n.nf")?;
    for line in body.lines() {
        writeln!(text, "{}", escape(line))?;
    }
    writeln!(text, ".fi")
}

fn exit_status(text: &mut Vec<u8>) -> io::Result<()> {
    writeln!(text, ".SH \"EXIT STATUS\"")?;
    for (code, meaning) in exit::codes() {
        writeln!(text, ".TP\n{code}\n{}", escape(meaning))?;
    }
    Ok(())
}

/// Escapes a line for roff.
fn escape(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}
