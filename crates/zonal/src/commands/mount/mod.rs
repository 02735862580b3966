//! `zonal mount`: mounts a file system at a directory.

pub(crate) mod helper;
mod log;
mod options;
pub(crate) mod place;

use crate::commands::files::hinted;
use crate::commands::plugs::{MOUNTED, READ_ONLY, endpoint_of};
use crate::commands::unmount::sync_dir;
use crate::defaults::fill;
use crate::devices::{self, InUse};
use crate::exit::{Exit, Failure, OrExit};
use crate::text::shown_word;
use crate::write_path::{Record, WritePathAndMode};
use anyhow::{Context, anyhow};
use clap::Args;
pub(crate) use options::SYNC_EVERY;
use options::{OPTIONS, Options};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zonal_core::{Sector, ZoneCondition, ZoneType};
use zonal_fs::drive::Drive;
use zonal_fs::format::{Metadata, Superblock};
use zonal_fs::make::{self, MakeError, unit_blocks_max};
use zonal_fs::store::Rows;
use zonal_fs::store::backend::Memory;
use zonal_fs::waiter::{Polling, Wait, polling};
use zonal_fs::{FileSystem, FsError};
use zonal_fuse::front::{self, Log};
use zonal_fuse::mount::{self, IfBusy};
use zonal_fuse::probe;
use zonal_fuse::scrub::Scrubber;
use zonal_fuse::session::{Session, SessionOptions};
use zonal_io::clock::Clock;
use zonal_io::control::{self, ControlError, ControlServer, ScrubOrder, ScrubQuery};
use zonal_io::device::Device;
use zonal_io::image::ImageError;
use zonal_io::lock::Held;
use zonal_io::registry::{NameError, NameProblem};
use zonal_io::threads;
use zonal_io::volume::{Volume, VolumeOptions, keeps_data};

/// Mount a file system at a directory
///
/// Users other than root need `fusermount3`. Once the directory is usable, the command prints
/// `ready DIR` on standard output. It ends when the directory is unmounted by `zonal unmount`,
/// `umount`, Ctrl-C or SIGTERM; everything written is on the device then. A second process with the
/// same device is refused, unless both only read.
///
/// The directory of a killed mount answers "Transport endpoint is not connected"; the next mount
/// there clears it away.
#[derive(Args, Debug)]
#[command(after_help = options_help())]
pub(crate) struct Mount {
    /// Device with the file system; see `zonal help devices`
    device: String,
    /// Directory to mount it at
    dir: PathBuf,
    /// Options, separated by commas; listed below
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Run in the background; the command ends once the directory is usable
    #[arg(long)]
    daemon: bool,
    /// Append errors to FILE, one per line [default: standard error; with --daemon, none once the
    /// directory is usable]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Metadata file, if the metadata is kept beside the device
    #[arg(long, value_name = "FILE")]
    metadata: Option<PathBuf>,
    #[command(flatten)]
    write_path: WritePathAndMode,
    #[command(flatten)]
    record: Record,
}

fn options_help() -> String {
    /// Width of a line, as in the rest of the help.
    const WIDTH: usize = 100;
    let mut text = "Options of -o:\n".to_owned();
    for (option, about) in OPTIONS {
        let name = format!("  {option:<19} ");
        let indent = " ".repeat(name.len());
        let lines = textwrap::Options::new(WIDTH).word_splitter(textwrap::WordSplitter::NoHyphenation);
        let lines = lines.initial_indent(&name).subsequent_indent(&indent);
        text += &(textwrap::fill(&fill(about), lines) + "\n");
    }
    text
}

pub(crate) fn run(arguments: &Mount, out: &mut dyn Write) -> Result<(), Failure> {
    let options =
        Options::parse(&arguments.options).map_err(|error| Failure::usage(format!("-o {error}")))?;
    if options.remount {
        return remount(&arguments.dir, &options.mount, &arguments.options);
    }
    let dir = place::prepare(&arguments.dir)?;
    if options.no_fail && is_missing(&arguments.device) {
        let (device, dir) = (shown_word(arguments.device.as_ref()), shown_word(dir.as_os_str()));
        let _ = writeln!(
            std::io::stderr(),
            "zonal: {device}: no such device; nothing is mounted at {dir} (nofail)"
        );
        return Ok(());
    }
    let log_file = arguments.log.as_deref().or(options.log.as_deref());
    if arguments.daemon {
        return in_background(log_file, out);
    }
    let log = log::open(log_file)?;
    let record = arguments.record.prepare_outside(&dir)?;
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot handle signals")?;
    let clock = Clock::start();
    // Warnings go to the log, and also to standard error if the log is a file: with --daemon, the
    // waiting command reads that.
    let early = |line: &str| {
        log(line);
        if log_file.is_some() {
            let _ = writeln!(std::io::stderr(), "zonal: {line}");
        }
    };
    let (fs, is_read_only) = open(arguments, &dir, &record, &options, clock, &early)?;
    let _note = FlightNote { fs: &fs, log: &log, device: &arguments.device };
    let mut how = options.mount.clone();
    how.source.clone_from(&arguments.device);
    how.read_only |= is_read_only;
    let name = || shown_word(dir.as_os_str());
    let (writeback, said) = writeback(&options, how.read_only, probe::syncs_single_writes);
    if let Some(said) = said {
        log(&said);
    }
    let device = mount::mount(&dir, &how).with_context(name)?;
    let unready = Unready(&dir);
    let session = SessionOptions {
        front: front::Options {
            writeback,
            read_only: how.read_only,
            write_through_below: options.fs.dirty_bytes + fs.superblock().capacity_sectors * 512,
            ..options.front
        },
        threads: options.threads,
        sync_every: options.sync_every,
        log: log.clone(),
    };
    let session = Arc::new(Session::start(device, fs.clone(), clock, session).with_context(name)?);
    let scrubber = Scrubber::new(fs.clone(), clock, log.clone());
    // Number of the mounted file system. Another one may be at its path later.
    let own = std::fs::metadata(&dir).with_context(name)?.dev();
    let control = serve_questions(&session, &fs, own, how.read_only, &scrubber);
    let control = match control {
        Err(error @ ControlError::Thread { .. }) => return Err(anyhow!(error).into()),
        control => control.inspect_err(|error| early(&format!("no control socket: {error}"))),
    };
    for said in [place::allow_dirty_pages(&dir, writeback), place::raise_read_ahead(&dir)].iter().flatten() {
        log(said);
    }
    let handle = signals.handle();
    let ended_by_signal = {
        let (dir, session, log) = (dir.clone(), session.clone(), log.clone());
        let work = move || {
            for _ in signals.forever() {
                // An unmounted session is about to end, and its number may be that of another file
                // system.
                if !session.is_mounted() {
                    continue;
                }
                match place::now(own, &dir) {
                    Some(dir) => leave(&dir, &session, &log),
                    None => {
                        log("another file system covers the mount: data cached by the kernel is not written");
                        session.give_up();
                    }
                }
            }
        };
        threads::spawn("zonal-signals", work).with_context(name)?
    };
    // All threads are running.
    writeln!(out, "ready {}", dir.display())?;
    out.flush()?;
    std::mem::forget(unready);
    session.join();
    handle.close();
    let _ = ended_by_signal.join();
    drop(control);
    scrubber.end();
    if session.has_panicked() {
        return Err(anyhow!("{}: a thread of the mount has failed, which is a bug", arguments.device).into());
    }
    if how.read_only {
        return Ok(());
    }
    // A thread of the control socket may hold a clone until the process ends.
    let synced = fs.finish(&Polling::new(clock));
    synced.map_err(|error| anyhow!("{}: not everything written is durable: {error}", arguments.device).into())
}

/// Returns true if writes may complete in the kernel's page cache, and a line for the log if the
/// kernel breaks its promises then.
fn writeback(
    options: &Options,
    is_read_only: bool,
    syncs_single_writes: impl FnOnce() -> std::io::Result<bool>,
) -> (bool, Option<String>) {
    if options.front.sync || options.writeback == Some(false) {
        return (false, None);
    }
    if is_read_only {
        return (true, None);
    }
    let why = match syncs_single_writes() {
        Ok(true) => return (true, None),
        Ok(false) => {
            "on a write-back mount this kernel leaves a write with RWF_DSYNC in its page cache".to_owned()
        }
        Err(error) => format!("cannot test whether RWF_DSYNC works on a write-back mount: {error}"),
    };
    match options.writeback {
        Some(_) => (true, Some(format!("{why}; such a write needs an fsync"))),
        None => (false, Some(format!("{why}; mounted with writethrough; -o writeback overrides this"))),
    }
}

/// Mounted directory that is not ready. Dropping it unmounts the directory, which would be dead
/// without this process.
struct Unready<'a>(&'a Path);

impl Drop for Unready<'_> {
    fn drop(&mut self) {
        if let Err(error) = mount::unmount(self.0, IfBusy::Detach) {
            let dir = shown_word(self.0.as_os_str());
            let _ = writeln!(
                std::io::stderr(),
                "zonal: {dir}: left mounted: {error}; the next mount there clears it away"
            );
        }
    }
}

/// Logs the note about flight records when dropped: after the last write, and however the mount ends.
struct FlightNote<'a> {
    fs: &'a FileSystem,
    log: &'a Log,
    device: &'a str,
}

impl Drop for FlightNote<'_> {
    fn drop(&mut self) {
        if let Some(note) = self.fs.volume().flight_note() {
            (self.log)(&format!("{}: {note}", self.device));
        }
    }
}

/// Changes the flags of a mounted directory.
fn remount(dir: &Path, options: &mount::MountOptions, texts: &[String]) -> Result<(), Failure> {
    let name = || shown_word(dir.as_os_str());
    if !place::is_on_top(&std::fs::canonicalize(dir).with_context(name)?) {
        return Err(anyhow!("{}: not mounted by `zonal mount`", name()).into());
    }
    let process = endpoint_of(dir);
    let told = process.as_ref().and_then(|endpoint| control::files(&endpoint.path).ok());
    if !options.read_only && told.flatten().is_some_and(|told| told[READ_ONLY] == true) {
        return Err(
            anyhow!("{}: opened for reading only; unmount it, and mount it without ro", name()).into()
        );
    }
    if options.read_only {
        // Data in the caches of the kernel is not durable, and later no program can sync it.
        sync_dir(dir).with_context(name)?;
    }
    mount::remount(dir, options).map_err(|error| match error.is_busy() {
        true => anyhow!("{}: in use: files are open for writing; close them, and try again", name()),
        false => anyhow::Error::new(error).context(name()),
    })?;
    let made = process.map_or(Vec::new(), |process| place::options_of(process.pid));
    for option in Options::kept_by_remount(&made, texts) {
        let _ = writeln!(std::io::stderr(), "zonal: {}: -o {option}: not changed by a remount", name());
    }
    Ok(())
}

/// Unmounts the directory after a signal. Programs that use it lose it, once everything is written.
fn leave(dir: &Path, session: &Session, log: &Log) {
    const PATIENCE: Duration = Duration::from_secs(1);
    place::write_cached(dir);
    match mount::unmount(dir, IfBusy::Refuse) {
        Ok(()) => return,
        Err(error) if error.is_busy() => log(&format!("{}: in use, unmounted anyway", dir.display())),
        Err(error) => log(&format!("{}: {error}", dir.display())),
    }
    if let Err(error) = mount::unmount(dir, IfBusy::Detach) {
        log(&format!("{}: {error}", dir.display()));
    }
    if !session.join_for(PATIENCE) {
        session.give_up();
    }
}

/// True if `device` is the name of a file that does not exist.
fn is_missing(device: &str) -> bool {
    let path = match device.split_once(':') {
        Some(("blk" | "image", rest)) => match rest.strip_prefix('[') {
            Some(path) => path.split(']').next().unwrap_or(path),
            None => rest.split(',').next().unwrap_or(rest),
        },
        Some((scheme, _)) if !scheme.contains('/') => return false,
        _ => device,
    };
    matches!(Path::new(path).try_exists(), Ok(false))
}

/// Opens a device. `umount` does not wait for the process that it ends, so the next mount has to.
fn open_device(name: &str, read_only: bool) -> Result<Arc<dyn Device>, Failure> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let begin = Instant::now();
    loop {
        let opened = devices::open_in_real_time(name, read_only);
        let Some(held) = opened.as_ref().err().and_then(held) else { return opened };
        let holders = held.holders();
        let is_free_soon = !holders.is_empty() && holders.iter().all(|holder| place::is_ending(holder.pid));
        if !is_free_soon || begin.elapsed() > PATIENCE {
            return opened;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Processes that prevent an image from being opened.
fn held(failure: &Failure) -> Option<&Held> {
    if let Some(InUse { held, .. }) = failure.error.downcast_ref() {
        return Some(held);
    }
    let NameProblem::Refused(error) = failure.error.downcast_ref::<NameError>()?.problem() else {
        return None;
    };
    match error.downcast_ref()? {
        ImageError::Locked { held, .. } => Some(held),
        _ => None,
    }
}

/// Opens the file system for a mount at `dir`, or makes one in memory. Also returns true if it is
/// read-only.
fn open(
    arguments: &Mount,
    dir: &Path,
    record: &Record,
    options: &Options,
    clock: Clock,
    say: &dyn Fn(&str),
) -> Result<(FileSystem, bool), Failure> {
    let name = &arguments.device;
    let device = open_device(name, options.mount.read_only)?;
    let metadata = arguments.metadata.as_ref().or(options.metadata.as_ref());
    // The files of the open device are known now, and nothing has been written yet.
    place::check_outside(dir, metadata.map(PathBuf::as_path))?;
    let has_data = keeps_data(&*device);
    if !has_data && !options.scratch {
        let error = anyhow!(
            "{name}: the device keeps no data; use -o scratch for a file system that lasts as long as the mount"
        );
        return Err(Failure { exit: Exit::Device, error });
    }
    let base = VolumeOptions::default().without_budget();
    let volume = arguments.write_path.options(base, name)?;
    let volume = Volume::open(device, volume).or_exit(Exit::Device)?;
    let volume = Arc::new(record.of(volume));
    let waiters = polling(clock);
    if options.scratch {
        check_empty(&**volume.device(), name)?;
        let fs = scratch(volume, options, has_data, &*waiters()).map_err(|e| e.context(name.clone()))?;
        return Ok((fs, false));
    }
    let is_read_only = options.mount.read_only || volume.info().read_only;
    let drive = Arc::new(Drive::new(volume));
    let open = if options.mount.read_only { make::look } else { make::open };
    let error = match open(&drive, &waiters, metadata.cloned(), options.fs) {
        Ok(fs) => {
            if is_read_only && !options.mount.read_only {
                say(&format!("{name}: mounted ro: the device may only be read"));
            }
            return Ok((fs, is_read_only));
        }
        Err(error) => error,
    };
    let failed = |error: MakeError| hinted(name, error);
    if is_read_only || !error.needs_repair() {
        return Err(failed(error)).or_exit(Exit::Device);
    }
    let why = format!("it needs a repair, see `zonal fsck`: {error}");
    match make::look_with_reason(&why, &drive, &waiters, metadata.cloned(), options.fs) {
        Ok(fs) => {
            say(&format!("{name}: mounted ro: {why}"));
            Ok((fs, true))
        }
        // The first error is more specific.
        Err(_) => Err(failed(error)).or_exit(Exit::Device),
    }
}

/// Fails if anything was written to the device.
fn check_empty(device: &dyn Device, name: &str) -> Result<(), Failure> {
    let zones = device.info().geometry.zones();
    devices::for_each_zone(device, Sector(0), zones, |zone| {
        if zone.zone_type == ZoneType::Conventional || zone.condition == ZoneCondition::Empty {
            return Ok(());
        }
        let error = anyhow!("{name}: the device contains data; -o scratch needs an empty one");
        Err(Failure { exit: Exit::Device, error })
    })
}

/// Makes a file system with its metadata in memory.
fn scratch(
    volume: Arc<Volume>,
    options: &Options,
    has_data: bool,
    waiter: &dyn Wait,
) -> anyhow::Result<FileSystem> {
    const NAME: &[u8; 16] = b"zonal-scratch-fs";
    let geometry = &volume.info().geometry;
    let superblock = Superblock::new(*NAME, geometry, unit_blocks_max(&volume), Metadata::Beside, 0);
    let mut rows = Rows::open(Memory::new(), options.fs.cache_bytes).map_err(FsError::from)?;
    FileSystem::make(&mut rows, &superblock, waiter)?;
    Ok(FileSystem::open(volume, rows, superblock, options.fs, has_data, waiter)?)
}

/// Starts the control socket, which answers `zonal stat` and others.
fn serve_questions(
    session: &Arc<Session>,
    fs: &FileSystem,
    own: u64,
    is_read_only: bool,
    scrubber: &Scrubber,
) -> Result<ControlServer, ControlError> {
    let (session, fs) = (session.clone(), fs.clone());
    let volume = fs.volume().clone();
    let teller = move || {
        let mut told = serde_json::to_value(fs.status()).unwrap_or_default();
        // The kernel reuses the number once this file system is mounted nowhere.
        if session.is_mounted() {
            told[MOUNTED] = own.into();
        }
        told[READ_ONLY] = is_read_only.into();
        told
    };
    let scrubber = scrubber.clone();
    let scrub = move |query: ScrubQuery| {
        let done = match query.order {
            ScrubOrder::Start => scrubber.start(query.share),
            ScrubOrder::Restart => scrubber.restart(query.share),
            ScrubOrder::Stop => {
                scrubber.stop();
                Ok(())
            }
            ScrubOrder::Look => Ok(()),
        };
        let mut status = scrubber.status(query.from);
        status.error = done.err().map(|error| error.to_string()).or(status.error);
        serde_json::to_value(status).unwrap_or_default()
    };
    ControlServer::start_for_mount(volume, Arc::new(teller), Arc::new(scrub))
}

/// Starts the same command in a process of its own, and waits until its directory is usable.
fn in_background(log: Option<&Path>, out: &mut dyn Write) -> Result<(), Failure> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let same = std::env::args_os().collect::<Vec<_>>();
    let translated = helper::translate(&same);
    let is_helper = translated.is_some();
    let same = translated.unwrap_or(same).into_iter().skip(1).filter(|argument| argument != "--daemon");
    let mut command = Command::new(program);
    // Its messages are for the caller until it is ready, and then for the log.
    command.args(same).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if log.is_none() {
        command.args(["--log", "/dev/null"]);
    }
    // Ctrl-C in the terminal must not end it.
    command.process_group(0);
    let mut child = command.spawn().context("cannot start the mount in the background")?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line)?;
    let mut stderr = child.stderr.take().expect("it is piped");
    if line.is_empty() {
        let mut said = Vec::new();
        stderr.read_to_end(&mut said)?;
        let status = child.wait()?;
        let said = String::from_utf8_lossy(&said);
        let said = said.trim().trim_start_matches("zonal: ").to_owned();
        let exit = Exit::ALL.into_iter().find(|exit| status.code() == Some(*exit as i32));
        let said = if said.is_empty() { "the mount ended before it was ready".to_owned() } else { said };
        return Err(Failure { exit: exit.unwrap_or(Exit::Failed), error: anyhow!(said) });
    }
    // Its messages so far are in the pipe by now. Later ones go to the log.
    rustix::io::ioctl_fionbio(&stderr, true).context("standard error of the mount")?;
    let mut said = Vec::new();
    let _ = stderr.read_to_end(&mut said);
    let _ = std::io::stderr().write_all(&said);
    // mount(8) prints nothing on success.
    if !is_helper {
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not every kernel fails the probe, so the test provides its results.
    #[test]
    fn writeback_is_used_if_the_kernel_probe_passes_or_the_user_forces_it() {
        let decided = |text: &str, is_read_only, answer: fn() -> std::io::Result<bool>| {
            let (writeback, said) =
                writeback(&Options::parse(&[text.to_owned()]).unwrap(), is_read_only, answer);
            (writeback, said.unwrap_or_default())
        };
        let keeps = || Ok(true);
        let loses = || Ok(false);
        let fails = || Err(std::io::ErrorKind::TimedOut.into());
        let none = String::new();
        assert_eq!(decided("", false, keeps), (true, none.clone()));
        for answer in [loses, fails] {
            let (is_default, said) = decided("", false, answer);
            assert!(!is_default && said.contains("mounted with writethrough"), "{said}");
            let (is_asked_for, said) = decided("writeback", false, answer);
            assert!(is_asked_for && said.contains("needs an fsync"), "{said}");
        }
        let unasked = || panic!("there is nothing to find out");
        assert_eq!(decided("", true, unasked), (true, none.clone()));
        assert_eq!(decided("writethrough", false, unasked), (false, none.clone()));
        assert_eq!(decided("sync", false, unasked), (false, none));
    }
}
