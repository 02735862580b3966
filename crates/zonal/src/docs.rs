//! The reference of the command line as a document, from the definitions.

use crate::cli;
use crate::topics::TOPICS;
use std::fmt::Write;

/// The text of docs/CLI.md.
pub fn reference() -> String {
    let mut definition = cli::command();
    definition.build();
    let mut text = "\
# The command line

This page is what `zonal --help`, `zonal COMMAND --help` and `zonal help TOPIC` print. A test keeps the two equal;
`ZONAL_BLESS=1 cargo test -p zonal-check --test cli` writes it anew.
"
    .to_owned();
    let main = definition.render_long_help().to_string();
    section(&mut text, "zonal", &main);
    for command in definition.get_subcommands_mut() {
        let help = command.render_long_help().to_string();
        section(&mut text, &format!("zonal {}", command.get_name()), &help);
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
