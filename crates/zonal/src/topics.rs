//! Help on what is not a command: `zonal help TOPIC`.

use crate::exit::{CLOSED_PIPE, Exit};
use std::fmt::Write;

/// A help text that belongs to no single command.
pub(crate) struct Topic {
    pub name: &'static str,
    pub about: &'static str,
    pub text: fn() -> String,
}

/// Every topic.
pub(crate) const TOPICS: [Topic; 3] = [
    Topic { name: "devices", about: "How devices are named", text: devices },
    Topic { name: "sizes", about: "How sizes and addresses are written", text: sizes },
    Topic { name: "exit-codes", about: "What the program exits with", text: exit_codes },
];

fn devices() -> String {
    "\
A device is named by its kind and, behind a colon, its options, separated by commas.

  null:size=1T,zone_size=256M   keeps no data; for measuring what is above it
  ram:size=8G                   keeps data in memory until the program ends
  image:PATH, or just PATH      a drive in a file, made by `zonal create`
"
    .to_owned()
}

fn sizes() -> String {
    "\
A size is a number of bytes, or a number with a suffix: K, M, G, T, P for powers of 1024.

An address on the command line, as in `--offset`, is a number of 512-byte sectors, decimal or hexadecimal behind 0x, as
listings print it. With a suffix it is a size: 256M, 0x80000 and 524288 are one place.
"
    .to_owned()
}

/// The table of exit codes.
pub(crate) fn exit_codes() -> String {
    let mut text = String::new();
    for exit in Exit::ALL {
        let _ = writeln!(text, "{:>5}  {}", exit as u8, exit.meaning());
    }
    let _ = writeln!(text, "{CLOSED_PIPE:>5}  {}", Exit::CLOSED_PIPE_MEANING);
    text
}
