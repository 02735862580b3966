//! The program as `mount.zonal`, which mount(8) runs for `mount -t zonal` and for lines of
//! /etc/fstab.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Names under which the program is a helper of mount(8): for the type in /etc/fstab, and for the
/// type that the kernel reports.
const NAMES: [&str; 2] = ["mount.zonal", "mount.fuse.zonal"];

/// Translates the command line of the helper to that of `zonal mount`:
/// `mount.zonal DEVICE DIR [-sfnv] [-N NAMESPACE] [-t TYPE] [-o OPTIONS]`. Returns `None` if the
/// program was called by another name.
pub(crate) fn translate(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let name = arguments.first().and_then(|name| Path::new(name).file_name());
    if !NAMES.iter().any(|helper| name == Some(OsStr::new(helper))) {
        return None;
    }
    let mut translated: Vec<OsString> = ["zonal", "mount", "--daemon"].map(OsString::from).to_vec();
    let mut left = arguments[1..].iter();
    while let Some(argument) = left.next() {
        match argument.to_str() {
            Some("-o") => translated.extend([Some(argument), left.next()].into_iter().flatten().cloned()),
            // Types and namespaces are ignored.
            Some("-t" | "-N") => drop(left.next()),
            // Flags that mount(8) passes to every helper: sloppy, verbose, no entry in mtab. A fake
            // mount does nothing.
            Some(flags) if is_flags(flags) && flags.contains('f') => return Some(Vec::new()),
            Some(flags) if is_flags(flags) => {}
            _ => translated.push(argument.clone()),
        }
    }
    Some(translated)
}

fn is_flags(text: &str) -> bool {
    text.strip_prefix('-')
        .is_some_and(|flags| !flags.is_empty() && flags.chars().all(|flag| "sfnv".contains(flag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> Option<String> {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let translated = translate(&arguments)?;
        Some(translated.iter().map(|a| a.to_str().unwrap()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn lines_of_mount_become_those_of_the_program() {
        let of = |line| translated(line).unwrap();
        assert_eq!(
            of("/sbin/mount.zonal image:d.img /mnt -sn -o rw,nosuid"),
            "zonal mount --daemon image:d.img /mnt -o rw,nosuid"
        );
        assert_eq!(of("mount.zonal d /mnt -v -t zonal -N 4"), "zonal mount --daemon d /mnt");
        assert_eq!(of("/sbin/mount.fuse.zonal d /mnt -o rw"), "zonal mount --daemon d /mnt -o rw");
        assert_eq!(of("mount.zonal d /mnt -f"), "");
        assert_eq!(translated("/usr/bin/zonal mount d /mnt"), None);
    }
}
