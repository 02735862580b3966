//! The reference of the command line as a document, from the definitions.

use crate::cli;
use crate::topics::TOPICS;
use std::fmt::Write;

/// Columns of the document; what clap takes where there is no terminal.
const COLUMNS: usize = 100;

/// The text of docs/CLI.md.
pub fn reference() -> String {
    let mut text = "\
# The command line

This page is what `zonal --help`, `zonal COMMAND --help` and `zonal help TOPIC` print. A test keeps the two equal;
`ZONAL_BLESS=1 cargo test -p zonal-check --test all cli::` writes it again.
"
    .to_owned();
    section(&mut text, "zonal", &cli::help(None, Some(COLUMNS)).unwrap_or_default());
    for command in cli::command().get_subcommands() {
        let name = command.get_name();
        section(
            &mut text,
            &format!("zonal {name}"),
            &cli::help(Some(name), Some(COLUMNS)).unwrap_or_default(),
        );
    }
    for topic in &TOPICS {
        section(&mut text, topic.about, &(topic.text)());
    }
    text
}

fn section(text: &mut String, title: &str, body: &str) {
    let _ = write!(text, "\n## {title}\n\n```text\n");
    for line in body.trim_end().lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let _ = writeln!(text, "```");
}
