//! Processor time of the calling thread as accounted by the kernel.

use std::time::Duration;

/// Times and context switches since the thread started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    pub(crate) switches: u64,
}

/// Clock ticks per second in `/proc`, fixed by the kernel's interface on every architecture in use.
const TICKS_PER_SECOND: u64 = 100;

impl Usage {
    /// Usage of the calling thread so far; zero if not available.
    pub(crate) fn now() -> Usage {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let (user, system) = times(&stat).unwrap_or_default();
        Usage { user, system, switches: switches(&status) }
    }

    pub(crate) fn since(self, before: Usage) -> Usage {
        Usage {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            switches: self.switches.saturating_sub(before.switches),
        }
    }
}

fn times(stat: &str) -> Option<(Duration, Duration)> {
    // The second field is a name in brackets that may contain blanks.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let time = |field: &str| {
        let ticks: u64 = field.parse().ok()?;
        Some(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
    };
    let user = time(fields.nth(11)?)?;
    Some((user, time(fields.next()?)?))
}

fn switches(status: &str) -> u64 {
    let counts = status.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.ends_with("ctxt_switches").then(|| value.trim().parse::<u64>().ok())?
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_with_blanks_in_the_name_is_read() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 10 0 0 0 250 30 0 0 20 0 1 0";
        assert_eq!(times(stat), Some((Duration::from_millis(2500), Duration::from_millis(300))));
        assert_eq!(times("nothing"), None);
    }

    #[test]
    fn both_kinds_of_switches_count() {
        assert_eq!(switches("Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n"), 7);
    }
}
