//! Options of `zonal mount -o`.

use crate::value::{self, human, nearest};
use std::path::PathBuf;
use std::time::Duration;
use zonal_fs::MountOptions as FsOptions;
use zonal_fuse::front;
use zonal_fuse::mount;

/// Values of the options.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Options {
    /// Options of the file system.
    pub(crate) fs: FsOptions,
    /// Options of the view that the kernel gets.
    pub(crate) front: front::Options,
    /// Options of the mounted directory; the source is set later.
    pub(crate) mount: mount::MountOptions,
    pub(crate) threads: usize,
    pub(crate) sync_every: Duration,
    pub(crate) scratch: bool,
    /// True if a write completes in the kernel's page cache; `None` lets the abilities of the
    /// kernel decide. Determines `front.writeback`.
    pub(crate) writeback: Option<bool>,
    /// True to change the flags of a mounted directory.
    pub(crate) remount: bool,
    /// True if a missing device is no error.
    pub(crate) no_fail: bool,
    /// Values of `--log` and `--metadata`, for lines of /etc/fstab.
    pub(crate) log: Option<PathBuf>,
    pub(crate) metadata: Option<PathBuf>,
}

/// Maximum time until a change is synced, without `commit=`.
pub(crate) const SYNC_EVERY: Duration = Duration::from_secs(5);

/// Words that `mount` and `/etc/fstab` use for other programs.
const NOT_OURS: &[&str] = &[
    "defaults",
    "rw",
    "suid",
    "dev",
    "exec",
    "auto",
    "noauto",
    "user",
    "users",
    "nouser",
    "owner",
    "group",
    "_netdev",
    "nodiratime",
    "silent",
    "loud",
];

/// Options that the kernel reports for a mount, and that mount(8) repeats in a remount.
const OF_THE_KERNEL: &[&str] = &["user_id", "group_id", "max_read", "blksize"];

/// Options with their arguments, descriptions and defaults.
pub(crate) const OPTIONS: &[(&str, &str)] = &[
    ("ro", "Mount read-only"),
    ("noatime", "Do not update access times (the default)"),
    (
        "relatime",
        "Update the access time with the first read after a change, or after a day, if the read reaches the file system",
    ),
    ("nosuid", "Ignore set-id bits and file capabilities"),
    ("nodev", "Do not interpret device files"),
    ("noexec", "Do not run programs from it"),
    ("default_permissions", "Permissions are checked by the kernel; always in force"),
    ("allow_other", "Allow users other than the mounting one, as far as permissions permit"),
    ("uid=N", "Owner shown for all files [default: their own]"),
    ("gid=N", "Group shown for all files [default: their own]"),
    ("umask=OCTAL", "Permission bits hidden for all files [default: 0]"),
    (
        "writeback",
        "Complete a write when its data is in the kernel's page cache (the default, if the kernel makes a single write durable on request)",
    ),
    ("writethrough", "Complete a write when the file system has its data (the default otherwise)"),
    (
        "sync",
        "Make each write, and each change of a name or an attribute, durable before its call returns; implies writethrough",
    ),
    ("async", "Make changes durable at once only on a sync (the default)"),
    (
        "dirty=SIZE",
        "Bytes in the file system's buffers and in flight before writers wait, 1M to 64G [default: {dirty}]",
    ),
    ("threads=N", "Number of threads, up to 256 [default: number of processors, at least 2]"),
    (
        "commit=TIME",
        "Maximum time until changes are on the drive without a sync, 1s to 3600s [default: {commit}]",
    ),
    ("max_open_zones=N", "Maximum number of open zones [default: the drive's limit, at most {open-zones}]"),
    ("lifetimes", "Group data by the expected lifetimes of files (the default)"),
    ("nolifetimes", "Do not group data by lifetimes"),
    ("log=FILE", "Same as --log, for /etc/fstab"),
    ("metadata=FILE", "Same as --metadata, for /etc/fstab"),
    ("nofail", "Succeed without a mount if the device does not exist, for /etc/fstab"),
    (
        "remount",
        "Change ro, rw, suid, dev and exec of a mounted directory; rw only if it was mounted rw; other options stay as they are",
    ),
    (
        "scratch",
        "Make a file system on an empty device, with its metadata in memory; nothing survives the mount",
    ),
];

impl Default for Options {
    fn default() -> Options {
        let threads = std::thread::available_parallelism().map_or(2, |n| n.get());
        Options {
            fs: FsOptions::default(),
            front: front::Options::default(),
            mount: mount::MountOptions {
                source: String::new(),
                read_only: false,
                no_suid: false,
                no_dev: false,
                no_exec: false,
                allow_other: false,
            },
            threads: threads.max(2),
            sync_every: SYNC_EVERY,
            scratch: false,
            writeback: None,
            remount: false,
            no_fail: false,
            log: None,
            metadata: None,
        }
    }
}

/// Range of `dirty=`: less cannot hold a unit of every drive, and more is a waste of memory.
const DIRTY: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 30;

impl Options {
    /// Parses options separated by commas. The last of several wins.
    ///
    /// # Errors
    /// A message about an unknown option or an invalid value.
    pub(crate) fn parse(texts: &[String]) -> Result<Options, String> {
        let mut options = Options::default();
        let all = || texts.iter().flat_map(|text| text.split(',')).filter(|option| !option.is_empty());
        options.remount = all().any(|option| option == "remount");
        all().try_for_each(|option| options.set(option))?;
        if options.front.sync && options.writeback == Some(true) {
            return Err("sync: cannot be combined with writeback".to_owned());
        }
        Ok(options)
    }

    /// Options in `texts` that a remount does not change, because a mount keeps them until it ends.
    /// The mount was made with `made`.
    pub(crate) fn kept_by_remount(made: &[String], texts: &[String]) -> Vec<String> {
        let Ok(mut made) = Options::parse(made) else { return Vec::new() };
        // Accept the options that the kernel reports, too.
        made.remount = true;
        let does_nothing = |option: &&str| {
            let mut new = made.clone();
            if new.set(option).is_err() {
                return false;
            }
            // A remount does change the kernel's flags.
            let mount::MountOptions { read_only, no_suid, no_dev, no_exec, .. } = made.mount;
            new.mount = mount::MountOptions { read_only, no_suid, no_dev, no_exec, ..new.mount };
            new != made
        };
        let all = texts.iter().flat_map(|text| text.split(',')).filter(|option| !option.is_empty());
        // The kernel reports `relatime` for every FUSE mount, and mount(8) repeats it.
        all.filter(|option| *option != "relatime").filter(does_nothing).map(str::to_owned).collect()
    }

    fn set(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let number = |most: u64| -> Result<u64, String> {
            let given = value.and_then(|value| value.parse::<u64>().ok()).filter(|n| *n <= most);
            given.ok_or_else(|| format!("{option}: expected a number, at most {most}"))
        };
        match (name, value) {
            ("ro", None) => self.mount.read_only = true,
            ("rw", None) => self.mount.read_only = false,
            ("noatime", None) => self.front.relatime = false,
            ("relatime", None) => self.front.relatime = true,
            ("nosuid", None) => self.mount.no_suid = true,
            ("suid", None) => self.mount.no_suid = false,
            ("nodev", None) => self.mount.no_dev = true,
            ("dev", None) => self.mount.no_dev = false,
            ("noexec", None) => self.mount.no_exec = true,
            ("exec", None) => self.mount.no_exec = false,
            ("default_permissions", None) => {}
            ("allow_other", None) => self.mount.allow_other = true,
            ("uid", _) => self.front.uid = Some(number(u32::MAX.into())? as u32),
            ("gid", _) => self.front.gid = Some(number(u32::MAX.into())? as u32),
            ("umask", _) => {
                let bits = value.and_then(|value| u16::from_str_radix(value, 8).ok());
                let bits = bits.filter(|bits| *bits <= 0o777);
                let error = || format!("{option}: expected permission bits in octal digits, at most 777");
                self.front.umask = Some(bits.ok_or_else(error)?);
            }
            ("writeback", None) => self.writeback = Some(true),
            ("writethrough", None) => self.writeback = Some(false),
            ("sync", None) => self.front.sync = true,
            ("async", None) => self.front.sync = false,
            ("dirty", Some(size)) => {
                let bytes = value::size(size).map_err(|error| format!("{option}: {error}"))?;
                if !DIRTY.contains(&bytes) {
                    let (least, most) = (human(*DIRTY.start()), human(*DIRTY.end()));
                    return Err(format!("{option}: expected {least} to {most}"));
                }
                self.fs.dirty_bytes = bytes;
            }
            ("threads", _) => {
                self.threads = number(256)? as usize;
                if self.threads == 0 {
                    return Err(format!("{option}: at least one thread is needed"));
                }
            }
            ("commit", Some(time)) => self.sync_every = seconds(option, time)?,
            ("max_open_zones", _) => match number(u32::MAX.into())? {
                0 => return Err(format!("{option}: at least one zone is needed")),
                zones => self.fs.max_open_zones = Some(zones as u32),
            },
            ("log", Some(file)) if !file.is_empty() => self.log = Some(file.into()),
            ("metadata", Some(file)) if !file.is_empty() => self.metadata = Some(file.into()),
            ("lifetimes", None) => self.fs.lifetimes = true,
            ("nolifetimes", None) => self.fs.lifetimes = false,
            ("scratch", None) => self.scratch = true,
            ("nofail", None) => self.no_fail = true,
            ("remount", None) => {}
            (_, Some(_)) if self.remount && OF_THE_KERNEL.contains(&name) => {}
            _ if NOT_OURS.contains(&option) || option.starts_with("x-") => {}
            _ => return Err(unknown(name, value)),
        }
        Ok(())
    }
}

/// Parses a number of seconds, with or without the unit.
fn seconds(option: &str, text: &str) -> Result<Duration, String> {
    let number: Option<u64> = text.strip_suffix('s').unwrap_or(text).parse().ok();
    match number {
        Some(seconds @ 1..=3600) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("{option}: expected seconds, 1 to 3600")),
    }
}

fn unknown(name: &str, value: Option<&str>) -> String {
    let names = || OPTIONS.iter().map(|(option, _)| option.split('=').next().unwrap_or(option));
    if names().any(|known| known == name) {
        let why = if value.is_some_and(|value| !value.is_empty()) {
            "it takes no value"
        } else {
            "it takes a value"
        };
        return format!("{name}: {why}");
    }
    match nearest(name, names()) {
        Some(known) => format!("{name}: no such option; did you mean {known}?"),
        None => format!("{name}: no such option; `zonal mount --help` lists them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Options, String> {
        Options::parse(&[text.to_owned()])
    }

    #[test]
    fn each_option_that_is_listed_is_taken() {
        for (option, _) in OPTIONS {
            let sample = option
                .replace("OCTAL", "022")
                .replace("SIZE", "16M")
                .replace("TIME", "2s")
                .replace("=N", "=3");
            parsed(&sample).unwrap();
        }
    }

    #[test]
    fn last_of_several_counts() {
        let options =
            parsed("writeback,nosuid,defaults,writethrough,suid,x-systemd.automount,uid=7").unwrap();
        assert!(options.writeback == Some(false) && !options.mount.no_suid);
        assert_eq!(options.front.uid, Some(7));
    }

    #[test]
    fn mount_options_reported_by_the_kernel_are_accepted_for_a_remount() {
        let options =
            parsed("rw,nosuid,relatime,user_id=0,group_id=0,default_permissions,remount,ro").unwrap();
        assert!(options.remount && options.mount.read_only && options.mount.no_suid);
    }

    #[test]
    fn remount_lists_options_it_does_not_change() {
        let kept =
            |made: &str, texts: &str| Options::kept_by_remount(&[made.to_owned()], &[texts.to_owned()]);
        let of_kernel =
            "remount,ro,nosuid,nodev,relatime,user_id=0,group_id=0,default_permissions,allow_other";
        assert_eq!(kept("allow_other", of_kernel), [""; 0]);
        assert_eq!(
            kept("threads=4,dirty=16M", "remount,ro,threads=4,dirty=16M,noauto,x-systemd.automount"),
            [""; 0]
        );
        assert_eq!(
            kept("threads=4", "remount,rw,threads=8,dirty=16M,uid=7"),
            ["threads=8", "dirty=16M", "uid=7"]
        );
        assert_eq!(kept("", "remount,scratch,writethrough,log=f"), ["scratch", "writethrough", "log=f"]);
    }

    #[test]
    fn wrong_options_are_named() {
        for (text, said) in [
            ("writebak", "writebak: no such option; did you mean writeback?"),
            ("discard", "discard: no such option"),
            ("uid=x", "uid=x: expected a number"),
            ("uid", "uid: expected a number"),
            ("umask=999", "umask=999: expected permission bits"),
            ("threads=0", "threads=0: at least one thread"),
            ("dirty=1z", "dirty=1z: "),
            ("dirty=0", "dirty=0: expected 1 MiB to 64 GiB"),
            ("dirty=1P", "dirty=1P: expected 1 MiB to 64 GiB"),
            ("max_open_zones=0", "max_open_zones=0: at least one zone"),
            ("log=", "log: it takes a value"),
            ("dirty", "dirty: it takes a value"),
            ("ro=1", "ro: it takes no value"),
            ("user_id=0", "user_id: no such option"),
            ("commit=0", "commit=0: expected seconds"),
            ("writeback,sync", "sync: cannot be combined with writeback"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.starts_with(said), "{text}: {error}");
        }
    }
}
