//! Lines of the kernel log that report trouble of a drive.

use std::fmt;
use std::path::Path;

/// Text of lines that report a time-out, a reset or a medium error. Other errors are not among them:
/// the drive refuses misplaced writes, such as those that correct stale pointers.
const TROUBLE: [&str; 9] = [
    "timeout",
    "timed out",
    "timing out",
    "resetting link",
    "rejecting I/O",
    "critical medium error",
    "device offlined",
    "controller is down",
    "limiting SATA link speed",
];

/// Text of lines that contain a word of [`TROUBLE`] and report none: a setting, printed at boot.
const HARMLESS: [&str; 2] = ["timeout set to", "timeouts set to"];

/// Text of lines about data that a buffered writer lost.
const LOST: [&str; 3] = ["lost async page write", "lost sync page write", "lost page write"];

/// Line of the kernel log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLine {
    /// Time since boot in microseconds.
    pub us: u64,
    /// Text.
    pub text: String,
}

impl LogLine {
    /// Parses a record of `/dev/kmsg`: `PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT`, and lines with
    /// properties, which are left out.
    pub fn parse(record: &[u8]) -> Option<LogLine> {
        let record = String::from_utf8_lossy(record);
        let (head, text) = record.split_once(';')?;
        let us = head.split(',').nth(2)?.parse().ok()?;
        Some(LogLine { us, text: text.lines().next()?.trim_end().to_owned() })
    }

    /// True if the line reports data that a buffered writer lost.
    pub(super) fn is_loss(&self) -> bool {
        LOST.iter().any(|lost| self.text.contains(lost))
    }

    /// True if the line reports a time-out, a reset or a medium error.
    pub(super) fn is_trouble(&self) -> bool {
        let has = |texts: &[&str]| texts.iter().any(|text| self.text.contains(text));
        has(&TROUBLE) && !has(&HARMLESS)
    }
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}.{:06}] {}", self.us / 1_000_000, self.us % 1_000_000, self.text)
    }
}

/// Kernel log, as far as it is about a drive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Log {
    /// Lines in order.
    Lines(Vec<LogLine>),
    /// The log cannot be read, with the error.
    Unreadable(String),
}

/// Names by which the kernel log refers to a drive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Names(Vec<String>);

impl Names {
    /// Names of the block device `name` in `directory` of `sysfs`: its own, the SCSI address, the
    /// ATA port and the NVMe controller.
    pub fn of(name: &str, directory: &Path) -> Names {
        let mut names = vec![name.to_owned()];
        let parts = directory.components().filter_map(|part| part.as_os_str().to_str());
        names.extend(parts.filter(|part| is_address(part)).map(str::to_owned));
        names.dedup();
        Names(names)
    }

    /// True if the line is about this drive.
    pub fn are_in(&self, line: &LogLine) -> bool {
        self.0.iter().any(|name| has_word(&line.text, name))
    }
}

/// True for `2:0:0:0`, `ata3` and `nvme0`.
fn is_address(part: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let numbered = |prefix: &str| part.strip_prefix(prefix).is_some_and(is_number);
    let is_scsi = part.split(':').count() == 4 && part.split(':').all(is_number);
    is_scsi || numbered("ata") || numbered("nvme")
}

/// True if `word` is in `text` without a letter or digit next to it. A colon before it is part of a
/// longer SCSI address.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == ':')
            && !after.is_some_and(|c| c.is_ascii_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> LogLine {
        LogLine { us: 0, text: text.to_owned() }
    }

    #[test]
    fn record_is_parsed_without_its_properties() {
        let record =
            b"3,912,77150342,-;sd 2:0:0:0: [sdb] tag#7 timing out command, waited 180s\n SUBSYSTEM=scsi\n";
        let parsed = LogLine::parse(record).unwrap();
        assert_eq!(parsed.to_string(), "[77.150342] sd 2:0:0:0: [sdb] tag#7 timing out command, waited 180s");
        assert_eq!(LogLine::parse(b"no record"), None);
    }

    #[test]
    fn lines_of_a_disk_name_it_its_address_or_its_port() {
        let directory =
            Path::new("/sys/devices/pci0000:00/0000:00:1f.2/ata3/host2/target2:0:0/2:0:0:0/block/sdb");
        let names = Names::of("sdb", directory);
        for own in [
            "sd 2:0:0:0: rejecting I/O to offline device",
            "ata3: hard resetting link",
            "ata3.00: limiting SATA link speed to 3.0 Gbps",
            "critical medium error, dev sdb, sector 4096 op 0x0:(READ)",
            "sd 2:0:0:0: [sdb] tag#7 timing out command, waited 180s",
        ] {
            assert!(names.are_in(&line(own)) && line(own).is_trouble(), "{own}");
        }
        assert!(!line("I/O error, dev sdb, sector 4096 op 0x1:(WRITE)").is_trouble(), "a misplaced write");
        for other in
            ["ata31: hard resetting link", "sd 12:0:0:0: rejecting I/O", "critical medium error, dev sdbc"]
        {
            assert!(!names.are_in(&line(other)), "{other}");
        }
    }

    #[test]
    fn lines_of_a_namespace_name_its_controller() {
        let directory = Path::new("/sys/devices/pci0000:00/0000:00:04.0/nvme/nvme1/nvme1n2");
        let names = Names::of("nvme1n2", directory);
        let timeout = line("nvme nvme1: I/O tag 3 (0003) QID 1 timeout, aborting");
        assert!(names.are_in(&timeout) && timeout.is_trouble());
        assert!(!names.are_in(&line("nvme nvme11: controller is down")));
        assert!(!line("nvme nvme1: Shutdown timeout set to 10 seconds").is_trouble());
    }

    #[test]
    fn lost_page_is_a_loss() {
        assert!(line("Buffer I/O error on dev sdb, logical block 1, lost async page write").is_loss());
        assert!(!line("I/O error, dev sdb, sector 8 op 0x1:(WRITE)").is_loss());
    }
}
