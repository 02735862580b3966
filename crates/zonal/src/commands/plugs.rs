//! `zonal plugs`: active write plugs of a running process.

use super::mount::place::elsewhere;
use crate::exit::{Exit, Failure};
use crate::text::shown_word;
use anyhow::anyhow;
use clap::Args;
use rustix::io::Errno;
use std::fs;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zonal_io::control::{self, ControlError, Endpoint};
use zonal_io::volume::PlugStatus;

/// Show the active write plugs of a running process
///
/// The format is that of the kernel's `zone_wplugs`. A plug is active while its zone is partly
/// written, or has writes in flight or waiting. Offsets are 512-byte sectors from the start of the
/// zone.
#[derive(Args, Debug)]
pub(crate) struct Plugs {
    #[command(flatten)]
    target: Target,
    /// Repeat every SECONDS, until the process ends
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = seconds)]
    watch: Option<Duration>,
    /// Print one JSON array
    #[arg(long, conflicts_with = "watch")]
    json: bool,
}

/// Process that has a device open.
#[derive(Args, Debug)]
pub(crate) struct Target {
    /// Device name as the process opened it, or directory of a `zonal mount`; optional for reading
    /// if only one device is open
    #[arg(conflicts_with = "socket")]
    device: Option<String>,
    /// Control socket of the process
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    // A shorter interval would be a busy loop.
    if seconds < 0.01 {
        return Err("the minimum is 0.01 seconds".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())
}

impl Target {
    /// Target for the process that has this device open.
    pub(crate) fn of_device(name: &str) -> Target {
        Target { device: Some(name.to_owned()), socket: None }
    }

    /// Returns the device, if it was named.
    pub(crate) fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Refuses a missing target: `command` would change whichever process is the only one.
    pub(crate) fn check_named(&self, command: &str) -> Result<(), Failure> {
        if self.device.is_some() || self.socket.is_some() {
            return Ok(());
        }
        let open: Vec<String> = living()?.map(|(_, name)| name).collect();
        let open = match open.is_empty() {
            true => "no running process has one open; start one with `zonal bench`, `zonal mount` or `zonal serve`".to_owned(),
            false => format!("open: {}", names(open.into_iter())),
        };
        Err(Failure::usage(format!("{command} needs a device; {open}")))
    }

    /// Returns the socket of the only process that matches.
    pub(crate) fn find(&self) -> Result<PathBuf, Failure> {
        if let Some(path) = &self.socket {
            return Ok(path.clone());
        }
        if let Some(path) = self.device.as_deref().and_then(mounted_at) {
            return Ok(path);
        }
        let is_meant = |(endpoint, name): &(Endpoint, String)| {
            self.device.as_ref().is_none_or(|device| is_device(device, name, endpoint.pid))
        };
        let (mut found, others): (Vec<_>, Vec<_>) = living()?.partition(is_meant);
        match (found.len(), &self.device) {
            (1, _) => Ok(found.remove(0).0.path),
            (0, None) => Err(anyhow!("no running process has a device open; open one with `zonal bench`, `zonal mount` or `zonal serve`").into()),
            (0, Some(device)) if others.is_empty() => {
                Err(anyhow!("{device}: no running process has it open; open it with `zonal bench`, `zonal mount` or `zonal serve`").into())
            }
            (0, Some(device)) => {
                let names = names(others.iter().map(|(_, name)| name.clone()));
                Err(anyhow!("{device}: no running process has it open by this name; open: {names}").into())
            }
            _ => {
                let names = names(found.iter().map(|(endpoint, name)| {
                    match mounted_device(endpoint).and_then(elsewhere) {
                        Some(dir) => {
                            format!("{name} at {} ({})", shown_word(dir.as_os_str()), endpoint.path.display())
                        }
                        None => format!("{name} ({})", endpoint.path.display()),
                    }
                }));
                let error =
                    anyhow!("several processes match; name the device, the directory or the --socket of one: {names}");
                Err(Failure { exit: Exit::Usage, error })
            }
        }
    }
}

/// Processes that have a device open, with the names by which they opened it.
fn living() -> Result<impl Iterator<Item = (Endpoint, String)>, Failure> {
    // A process that ends or stalls between the two queries does not count.
    Ok(control::list()?.into_iter().filter_map(|endpoint| {
        let facts = control::info(&endpoint.path).ok()?;
        Some((endpoint, facts.device.name))
    }))
}

/// True if `asked` is the device that process `pid` has opened as `opened`. Images are compared as
/// files, because both names may be relative to different directories.
fn is_device(asked: &str, opened: &str, pid: u32) -> bool {
    let Some(file) = opened.strip_prefix("image:") else {
        // The names of wrapped images are paths as well.
        return asked == opened && (!opened.contains("image:") || is_own_directory(pid));
    };
    let path = |name: &str| {
        let name = name.strip_prefix("image:").unwrap_or(name);
        PathBuf::from(name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name))
    };
    let there = PathBuf::from(format!("/proc/{pid}/cwd")).join(path(file));
    match (fs::metadata(path(asked)), fs::metadata(there)) {
        (Ok(asked), Ok(opened)) => (asked.dev(), asked.ino()) == (opened.dev(), opened.ino()),
        // A removed image has no file to compare.
        (Err(_), Err(_)) => path(asked) == path(file) && is_own_directory(pid),
        _ => false,
    }
}

/// True if process `pid` runs in the directory of this one, where relative names mean the same.
fn is_own_directory(pid: u32) -> bool {
    let there = fs::canonicalize(format!("/proc/{pid}/cwd"));
    matches!((fs::canonicalize("."), there), (Ok(own), Ok(there)) if own == there)
}

/// Finds the mount that `name` refers to by its directory, a directory in it, or its device.
/// Returns the directory and the process.
pub(crate) fn mount_of(name: &Path) -> Result<(PathBuf, Endpoint), Failure> {
    let shown = || shown_word(name.as_os_str());
    if let Some(dir) = fs::canonicalize(name).ok().filter(|dir| dir.is_dir()) {
        let endpoint = endpoint_of(&dir).ok_or_else(|| no_mount(&dir, &shown()))?;
        return Ok((dir, endpoint));
    }
    let mut of_device = living()?
        .filter(|(endpoint, opened)| name.to_str().is_some_and(|name| is_device(name, opened, endpoint.pid)));
    let mounted =
        of_device.find_map(|(endpoint, _)| Some((mounted_device(&endpoint).and_then(elsewhere)?, endpoint)));
    mounted.ok_or_else(|| no_mount(name, &shown()).into())
}

/// Explains why `name` is not a running `zonal mount`.
fn no_mount(name: &Path, shown: &str) -> anyhow::Error {
    match rustix::fs::statfs(name) {
        Err(Errno::NOTCONN) => anyhow!(
            "{shown}: the process of the mount was killed; clear the mount away with `umount {shown}`, or with another `zonal mount` there"
        ),
        Err(Errno::NOENT) => {
            anyhow!("{shown}: no such directory, and no `zonal mount` of a device with this name")
        }
        _ => anyhow!("{shown}: not mounted by `zonal mount`"),
    }
}

/// Key of the number of the mounted file system, which the serving process reports while it is
/// mounted.
pub(crate) const MOUNTED: &str = "mounted_device";

/// Key of a bool: true if the mount was opened for reading.
pub(crate) const READ_ONLY: &str = "mounted_read_only";

/// Returns the control socket of the process that serves a mounted directory.
pub(crate) fn endpoint_of(dir: &Path) -> Option<Endpoint> {
    // The number stays the same if the mount is moved, and is that of the topmost mount.
    let device = fs::metadata(dir).ok()?.dev();
    let mut endpoints = control::list().unwrap_or_default().into_iter();
    endpoints.find(|endpoint| mounted_device(endpoint) == Some(device))
}

/// Returns the number of the file system that a process has mounted, if any. While the process
/// reports it, no other file system has the number.
pub(crate) fn mounted_device(endpoint: &Endpoint) -> Option<u64> {
    control::files(&endpoint.path).ok()??.get(MOUNTED)?.as_u64()
}

/// Returns the control socket for a mounted directory `name`.
fn mounted_at(name: &str) -> Option<PathBuf> {
    let dir = fs::canonicalize(name).ok().filter(|dir| dir.is_dir())?;
    endpoint_of(&dir).map(|endpoint| endpoint.path)
}

/// Maximum number of devices named in an error.
const NAMED_MAX: usize = 8;

fn names(of: impl ExactSizeIterator<Item = String>) -> String {
    let more = of.len().saturating_sub(NAMED_MAX);
    let mut names: Vec<String> = of.take(NAMED_MAX).collect();
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}

pub(crate) fn run(arguments: &Plugs, out: &mut dyn Write) -> Result<(), Failure> {
    let path = arguments.target.find()?;
    if arguments.json {
        let plugs = control::plugs(&path)?;
        return Ok(writeln!(out, "{}", serde_json::to_string(&plugs)?)?);
    }
    print(&control::plugs(&path)?, out)?;
    let Some(pause) = arguments.watch else { return Ok(()) };
    let clear = if std::io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "\n" };
    loop {
        out.flush()?;
        std::thread::sleep(pause);
        let plugs = match control::plugs(&path) {
            // No answer: the process has ended, and so does the watch.
            Err(ControlError::Io { .. }) => return Ok(()),
            plugs => plugs?,
        };
        write!(out, "{clear}")?;
        print(&plugs, out)?;
    }
}

fn print(plugs: &[PlugStatus], out: &mut dyn Write) -> Result<(), Failure> {
    for plug in plugs {
        writeln!(out, "{plug}")?;
    }
    Ok(())
}
