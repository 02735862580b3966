//! `zonal scrub`: verifies the data of a mount.

use super::mount::place::elsewhere;
use super::plugs::mount_of;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::progress::{Progress, amount};
use crate::text::shown_word;
use crate::value::human;
use anyhow::{Context, anyhow};
use clap::Args;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;
use zonal_fuse::scrub::ScrubStatus;
use zonal_io::control::{self, ScrubOrder, ScrubQuery};

/// Interval of progress queries.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Read and verify all data of a mount, while it is in use
///
/// Metadata is verified first, then data in the order of the drive. Each damaged piece is printed
/// on a line with the path of its file, and the exit code is 3.
///
/// Ctrl-C stops the scrub; the next one continues there, even after a remount. If the command is
/// killed, the scrub goes on, and the next command shows it.
#[derive(Args, Debug)]
pub(crate) struct Scrub {
    /// Mounted directory, or its device
    dir: PathBuf,
    /// Maximum percentage of the drive's time that it takes
    #[arg(long, value_name = "PERCENT", default_value_t = 25, value_parser = clap::value_parser!(u8).range(1..=100))]
    share: u8,
    /// Start from the beginning, wherever the last scrub stopped
    #[arg(long)]
    restart: bool,
}

pub(crate) fn run(arguments: &Scrub, out: &mut dyn Write) -> Result<(), Failure> {
    let Scrub { dir, share, restart } = arguments;
    let (found, endpoint) = mount_of(dir)?;
    // Everything is verified even if a directory below the root was named, so the messages name the
    // root of the mount.
    let root = std::fs::metadata(&found).ok().and_then(|found| elsewhere(found.dev())).unwrap_or(found);
    let is_root = std::fs::canonicalize(dir).is_ok_and(|dir| dir == root);
    let name = shown_word(if is_root { dir } else { &root }.as_os_str());
    let interrupt = Interrupt::listen().context("cannot handle signals")?;
    let flag = interrupt.flag();
    let mut progress = Progress::new("scrub");
    let mut order = if *restart { ScrubOrder::Restart } else { ScrubOrder::Start };
    // Skip the findings that earlier commands have printed.
    let mut from =
        ask(&endpoint.path, ScrubQuery { order: ScrubOrder::Look, share: *share, from: u64::MAX })?.next;
    loop {
        let status = ask(&endpoint.path, ScrubQuery { order, share: *share, from })?;
        if !status.found.is_empty() {
            progress.clear();
        }
        for line in &status.found {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        from = status.next;
        if !status.runs && status.found.is_empty() {
            progress.clear();
            return ended(&name, &status, &interrupt, out);
        }
        show(&mut progress, &status);
        order = if flag.load(Ordering::Acquire) { ScrubOrder::Stop } else { ScrubOrder::Look };
        std::thread::sleep(LOOK_EVERY);
    }
}

fn ask(socket: &Path, query: ScrubQuery) -> Result<ScrubStatus, Failure> {
    let told = control::scrub(socket, query)?.ok_or_else(|| anyhow!("the process has nothing to scrub"))?;
    Ok(serde_json::from_value(told).context("invalid answer from the process")?)
}

/// Reports a scrub that is no longer running.
fn ended(
    name: &str,
    status: &ScrubStatus,
    interrupt: &Interrupt,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let ScrubStatus { bytes, total_bytes, damaged, ended, error, .. } = status;
    if let Some(error) = error {
        return Err(anyhow!("{name}: the scrub cannot continue: {error}").into());
    }
    let seen = human(*bytes);
    if ended.is_none() {
        let left = format!("{seen} of {} verified; the next scrub continues there", human(*total_bytes));
        interrupt.check(|| left.clone())?;
        return Err(anyhow!("{name}: stopped by another command; {left}").into());
    }
    match damaged {
        0 => Ok(writeln!(out, "{name}: {seen} verified; nothing is damaged")?),
        damaged => {
            let error = anyhow!("{name}: {seen} read; damaged pieces: {damaged}");
            Err(Failure { exit: Exit::Verify, error })
        }
    }
}

fn show(progress: &mut Progress, status: &ScrubStatus) {
    let ScrubStatus { bytes, total_bytes, damaged, .. } = status;
    // A continued scrub also counts the bytes of earlier commands, but `elapsed` is of this
    // command.
    progress.show(|elapsed| format!("{}, {damaged} damaged", amount(*bytes, *total_bytes, elapsed)));
}
