//! Options of the scheduler, named as under `/sys/block/*/queue`.

use crate::units::{Nanos, Sectors, ZoneIndex};

const NANOS_PER_MS: u64 = 1_000_000;

/// The options of Linux under `queue/iosched`, with the same defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Time after which a waiting read takes precedence over address order. Set in milliseconds.
    pub read_expire: Nanos,
    /// Time after which a waiting write takes precedence over address order. Set in milliseconds.
    pub write_expire: Nanos,
    /// Maximum number of requests in a batch. With 0 or 1, every request is a batch.
    pub fifo_batch: u32,
    /// Number of times that reads may be preferred to issuable writes. 0: writes are always
    /// preferred.
    pub writes_starved: u32,
    /// True if a request may also be merged with the one behind it, not only with the one before
    /// it.
    pub front_merges: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            read_expire: Nanos(500 * NANOS_PER_MS),
            write_expire: Nanos(5000 * NANOS_PER_MS),
            fifo_batch: 16,
            writes_starved: 2,
            front_merges: true,
        }
    }
}

/// Invalid option or value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// There is no such option.
    #[error("no option {name}; there are {}", Options::NAMES.join(", "))]
    Unknown {
        /// Requested name.
        name: String,
    },
    /// The value is too large.
    #[error("{name}: {value} is more than {max}")]
    TooLarge {
        /// The option.
        name: &'static str,
        /// Requested value.
        value: u64,
        /// Maximum value.
        max: u64,
    },
}

impl Options {
    /// Names of all options.
    pub const NAMES: [&'static str; 5] =
        ["read_expire", "write_expire", "fifo_batch", "writes_starved", "front_merges"];

    /// Returns the value of option `name`, in its unit under `/sys`: milliseconds for times, 0 or 1
    /// for switches.
    pub fn get(&self, name: &str) -> Option<u64> {
        Some(match name {
            "read_expire" => self.read_expire.0 / NANOS_PER_MS,
            "write_expire" => self.write_expire.0 / NANOS_PER_MS,
            "fifo_batch" => self.fifo_batch.into(),
            "writes_starved" => self.writes_starved.into(),
            "front_merges" => self.front_merges.into(),
            _ => return None,
        })
    }

    /// Sets option `name`, in its unit under `/sys`.
    ///
    /// # Errors
    /// There is no such option, or the value is above 2^31-1 (1 for a switch), which Linux would
    /// truncate.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), OptionError> {
        let Some(name) = Options::NAMES.into_iter().find(|n| *n == name) else {
            return Err(OptionError::Unknown { name: name.to_owned() });
        };
        let max = if name == "front_merges" { 1 } else { i32::MAX as u64 };
        if value > max {
            return Err(OptionError::TooLarge { name, value, max });
        }
        match name {
            "read_expire" => self.read_expire = Nanos(value * NANOS_PER_MS),
            "write_expire" => self.write_expire = Nanos(value * NANOS_PER_MS),
            "fifo_batch" => self.fifo_batch = value as u32,
            "writes_starved" => self.writes_starved = value as u32,
            _ => self.front_merges = value == 1,
        }
        Ok(())
    }
}

/// Properties of the device that matter to the scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Distance between the starts of adjacent zones. Not 0.
    pub zone_size: Sectors,
    /// Length of the largest command (`max_sectors_kb` under `/sys`). A longer request is never
    /// merged.
    pub sectors_max: Sectors,
    /// True if an interrupted run of writes costs the device a rotation (`rotational`).
    pub rotational: bool,
}

impl Limits {
    pub(super) fn zone_start(&self, zone: ZoneIndex) -> u64 {
        u64::from(zone.0) * self.zone_size.0
    }

    pub(super) fn zone_end(&self, zone: ZoneIndex) -> u64 {
        self.zone_start(zone) + self.zone_size.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_linux() {
        let options = Options::default();
        let values = Options::NAMES.map(|name| options.get(name).unwrap());
        assert_eq!(values, [500, 5000, 16, 2, 1]);
    }

    #[test]
    fn every_option_set_is_the_one_that_is_got() {
        for name in Options::NAMES {
            let (mut options, defaults) = (Options::default(), Options::default());
            let value = u64::from(name != "front_merges") * 7;
            options.set(name, value).unwrap();
            for other in Options::NAMES {
                let expected = if other == name { Some(value) } else { defaults.get(other) };
                assert_eq!(options.get(other), expected, "{other} after {name}");
            }
        }
    }

    #[test]
    fn option_that_is_unknown_or_too_large_is_refused_with_its_name() {
        let mut options = Options::default();
        let unknown = options.set("async_depth", 1).unwrap_err();
        assert!(unknown.to_string().starts_with("no option async_depth; there are read_expire, "));
        let large = options.set("front_merges", 2).unwrap_err();
        assert_eq!(large.to_string(), "front_merges: 2 is more than 1");
        let large = options.set("fifo_batch", 1 << 31).unwrap_err();
        assert_eq!(large.to_string(), "fifo_batch: 2147483648 is more than 2147483647");
        assert_eq!(options, Options::default());
        assert_eq!(options.get("async_depth"), None);
    }
}
