//! Mounted file systems, from `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Mounted file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Number of the file system, as `stat` has it for its files: that of its block device, or one
    /// of its own.
    pub device: u64,
    /// Directory at which it is mounted.
    pub dir: PathBuf,
    /// Type, such as `fuse.zonal`.
    pub kind: Vec<u8>,
    /// Device or other source that was mounted.
    pub source: PathBuf,
}

/// Mounts that this process sees; none if the kernel does not list them.
pub fn mounts() -> Vec<Mount> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(parse).collect()
}

fn parse(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ');
    let (major, minor) = std::str::from_utf8(words.nth(2)?).ok()?.split_once(':')?;
    let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    let dir = path(words.nth(1)?);
    // The number of words before it varies.
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let kind = words.next()?.to_vec();
    Some(Mount { device, dir, kind, source: path(words.next()?) })
}

/// Path in which escapes, three octal digits after a backslash, are replaced by their bytes.
fn path(text: &[u8]) -> PathBuf {
    let (mut plain, mut rest) = (Vec::new(), text);
    while let Some((first, after)) = rest.split_first() {
        let digits = after
            .get(..3)
            .filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..b'8').contains(d)));
        let (byte, after) = match digits {
            Some(digits) => {
                (digits.iter().fold(0u8, |byte, d| byte.wrapping_mul(8) + (d - b'0')), &after[3..])
            }
            None => (*first, after),
        };
        plain.push(byte);
        rest = after;
    }
    OsString::from_vec(plain).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_a_mount_is_read_with_escapes() {
        let line =
            b"36 35 98:7 / /mnt/a\\040b\\134\\012\xff rw,noatime shared:1 master:2 - fuse.zonal image:d rw";
        let Mount { device, dir, kind, .. } = parse(line).unwrap();
        assert_eq!((device, kind.as_slice()), (rustix::fs::makedev(98, 7), &b"fuse.zonal"[..]));
        assert_eq!(dir.into_os_string().into_vec(), b"/mnt/a b\\\n\xff");
        assert!(parse(b"36 35 x / /mnt - a b").is_none() && parse(b"").is_none());
    }

    #[test]
    fn source_of_a_mount_is_read() {
        let line = b"31 22 0:45 / /mnt/with\\040space rw master:2 shared:3 - btrfs /dev/sda rw";
        let Mount { dir, source, .. } = parse(line).unwrap();
        assert_eq!((dir, source), ("/mnt/with space".into(), "/dev/sda".into()));
    }
}
