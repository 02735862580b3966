//! Users of a block device: mounts, swap space, and processes of Zonal.

use crate::mounts::{Mount, mounts};
use crate::sysfs::Facts;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use zonal_io::control;
use zonal_io::text::shown_word;

/// Users of a block device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Uses {
    /// Directories at which it is mounted.
    pub mounts: Vec<PathBuf>,
    /// True if it is used as swap space.
    pub swap: bool,
    /// Kernel names of devices that are stacked on it.
    pub holders: Vec<String>,
    /// Processes of Zonal that have it open, as far as their control sockets are accessible.
    pub processes: Vec<u32>,
}

impl Uses {
    /// Users of a device.
    pub fn of(facts: &Facts) -> Uses {
        let is_it = |path: &Path| number_of(path) == Some(facts.number);
        let number = rustix::fs::makedev(facts.number.0, facts.number.1);
        // File systems that span several devices have a number of their own, and a device as source.
        let has_it =
            |mount: &Mount| mount.device == number || mount.source.is_absolute() && is_it(&mount.source);
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        Uses {
            mounts: mounts().into_iter().filter(has_it).map(|mount| mount.dir).collect(),
            swap: swaps
                .lines()
                .filter_map(|line| line.split_whitespace().next())
                .any(|path| is_it(Path::new(path))),
            holders: facts.holders.clone(),
            processes: processes_of(is_it),
        }
    }

    /// True if there are no users.
    pub fn is_empty(&self) -> bool {
        *self == Uses::default()
    }
}

impl std::fmt::Display for Uses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mounts = self.mounts.iter().map(|at| format!("mounted at {}", shown_word(at.as_os_str())));
        let swap = self.swap.then(|| "swap space".to_owned());
        let holders = self.holders.iter().map(|holder| format!("held by {holder}"));
        let processes = self.processes.iter().map(|pid| format!("process {pid} of Zonal"));
        let all: Vec<String> = mounts.chain(swap).chain(holders).chain(processes).collect();
        f.write_str(&all.join(", "))
    }
}

/// Number of the device file `path`.
fn number_of(path: &Path) -> Option<(u32, u32)> {
    let rdev = fs::metadata(path).ok()?.rdev();
    (rdev != 0).then(|| (rustix::fs::major(rdev), rustix::fs::minor(rdev)))
}

/// Processes of Zonal with a device that is, or contains, a device file for which `is_it` holds.
fn processes_of(is_it: impl Fn(&Path) -> bool) -> Vec<u32> {
    let endpoints = control::list().unwrap_or_default().into_iter();
    let has_it = |endpoint: &control::Endpoint| {
        control::info(&endpoint.path).is_ok_and(|facts| paths_in(&facts.device.name).any(&is_it))
    };
    endpoints.filter(has_it).map(|endpoint| endpoint.pid).collect()
}

/// Absolute paths in the name of a device, such as `linear:zone=4+/dev/sda`.
fn paths_in(name: &str) -> impl Iterator<Item = &Path> {
    name.split(['[', ']', '+', ',', '=']).filter_map(|part| {
        let at = part.find('/')?;
        // The kind of the device is before the path.
        part[..at].chars().all(|c| c.is_ascii_alphanumeric() || c == ':').then(|| Path::new(&part[at..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_device_name_are_found_within_wrappers() {
        let paths = |name| paths_in(name).map(|path| path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(paths("/dev/sda"), ["/dev/sda"]);
        assert_eq!(paths("linear:zone=4,zones=8+/dev/sda"), ["/dev/sda"]);
        assert_eq!(paths("concat:[/dev/sda][image:/srv/b.zonal]"), ["/dev/sda", "/srv/b.zonal"]);
        assert_eq!(paths("ram:size=1G"), Vec::<String>::new());
    }
}
