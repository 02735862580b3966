//! Reference of the command line, generated from its definitions.

use crate::cli;
use crate::topics::TOPICS;
use crate::wrap::{COLUMNS, hanging};
use std::fmt::Write;

/// Text of docs/CLI.md: every topic of `zonal help`.
pub fn topics() -> String {
    let mut text = "\
# The command line

`zonal help` lists the commands, and `zonal COMMAND --help` and the manual page `zonal-COMMAND(1)` explain one. `zonal help --all` prints
the help of every command and every topic; `make docs` writes it and the manual pages to out/docs. This page has the topics of
`zonal help TOPIC`. It is generated from `crates/zonal/src/topics.rs`: edit that file, then run
`ZONAL_BLESS=1 cargo test -p zonal-check --test all cli::`.
"
    .to_owned();
    for topic in &TOPICS {
        section(&mut text, topic.about, &hanging(&(topic.text)(), COLUMNS));
    }
    text
}

/// Help of every command and every topic, for `zonal help --all`.
pub fn reference() -> String {
    let mut text = format!("# Reference of zonal {}\n", env!("CARGO_PKG_VERSION"));
    section(&mut text, "zonal", &cli::help(None, COLUMNS).unwrap_or_default());
    for command in cli::command().get_subcommands() {
        let name = command.get_name();
        section(&mut text, &format!("zonal {name}"), &cli::help(Some(name), COLUMNS).unwrap_or_default());
    }
    for topic in &TOPICS {
        section(&mut text, topic.about, &hanging(&(topic.text)(), COLUMNS));
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
