//! Users of a block device: mounts, swap space, and processes of Zonal.

use crate::ioctl::{self, Source};
use crate::sysfs::Facts;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use zonal_io::control;
use zonal_io::text::shown_word;

/// Zones of one report.
const REPORTED: usize = 4096;

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
        let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        Uses {
            mounts: mounts_of(&mounts, facts.number, is_it),
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

/// Directories of the mounts of a device in the text of `mountinfo`. The file systems that span
/// several devices have a number of their own, and are found by their source.
fn mounts_of(text: &[u8], number: (u32, u32), is_it: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let number = format!("{}:{}", number.0, number.1);
    let mount = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == b' ');
        let is_number = words.nth(2)? == number.as_bytes();
        let dir = path(words.nth(1)?);
        // The number of words before the hyphen varies; type and source follow it.
        let source = words.skip_while(|word| *word != b"-").nth(2);
        let is_source = || source.is_some_and(|source| source.starts_with(b"/") && is_it(&path(source)));
        (is_number || is_source()).then_some(dir)
    };
    text.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// Path in `mountinfo`, where three octal digits after a backslash stand for a byte.
fn path(word: &[u8]) -> PathBuf {
    let (mut plain, mut rest) = (Vec::new(), word);
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        (rest, _) = match digits {
            Some(digits) if *first == b'\\' => {
                let byte = digits.iter().fold(0u8, |byte, digit| byte.wrapping_mul(8) + (digit - b'0'));
                (&after[3..], plain.push(byte))
            }
            _ => (after, plain.push(*first)),
        };
    }
    PathBuf::from(OsString::from_vec(plain))
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

/// Number of conventional zones at the beginning of a drive.
///
/// # Errors
/// Those of the kernel.
pub fn conventional_zones(file: &File, facts: &Facts) -> io::Result<u32> {
    let (mut count, mut sector) = (0, 0);
    while sector < facts.sectors {
        let zones = ioctl::report(file, sector, REPORTED, Source::Drive)?;
        let conventional = zones.iter().take_while(|zone| zone.kind == 1).count();
        count += conventional as u32;
        match zones.last() {
            Some(last) if conventional == zones.len() => sector = last.start + last.sectors.max(1),
            _ => break,
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number_and_by_source() {
        let text = b"22 1 8:16 / / rw shared:1 - ext4 /dev/root rw\n\
            30 22 8:0 / /mnt/with\\040space rw master:2 shared:3 - xfs /dev/sda rw\n\
            31 22 0:45 / /pool rw - btrfs /dev/sda rw\n\
            32 22 0:46 / /proc rw - proc proc rw\n";
        let found = mounts_of(text, (8, 0), |path| path == Path::new("/dev/sda"));
        assert_eq!(found, [Path::new("/mnt/with space"), Path::new("/pool")]);
    }

    #[test]
    fn paths_of_a_device_name_are_found_within_wrappers() {
        let paths = |name| paths_in(name).map(|path| path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(paths("/dev/sda"), ["/dev/sda"]);
        assert_eq!(paths("linear:zone=4,zones=8+/dev/sda"), ["/dev/sda"]);
        assert_eq!(paths("concat:[/dev/sda][image:/srv/b.zonal]"), ["/dev/sda", "/srv/b.zonal"]);
        assert_eq!(paths("ram:size=1G"), Vec::<String>::new());
    }
}
