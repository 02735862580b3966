//! Everything a job file can read from its environment: `${VARIABLE}`, the keywords `$pagesize`,
//! `$mb_memory` and `$ncpus`, and included files.

use super::limits::TEXT_BYTES_MAX;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// Values for the substitutions in a job file.
///
/// Passed explicitly, so that tests and replays do not depend on the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// Environment variables, except those that are not valid UTF-8.
    pub variables: BTreeMap<String, String>,
    /// `$pagesize`, in bytes.
    pub page_bytes: u64,
    /// `$mb_memory`: memory of the machine in MiB.
    pub memory_mib: u64,
    /// `$ncpus`: number of available processors.
    pub cpus: u64,
    /// Files available to `include`.
    pub files: Files,
}

/// Source of the files that a job file can include.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Files {
    /// No files.
    None,
    /// File contents by name.
    Given(BTreeMap<String, String>),
    /// The file system of this machine.
    Disk,
}

impl Files {
    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Self::None => false,
            Self::Given(files) => files.contains_key(name),
            Self::Disk => Path::new(name).exists(),
        }
    }

    /// Returns an identity shared by all names of a file.
    pub(super) fn identity(&self, name: &str) -> String {
        match self {
            Self::None | Self::Given(_) => name.to_owned(),
            Self::Disk => std::fs::canonicalize(name)
                .map_or_else(|_| name.to_owned(), |path| path.to_string_lossy().into_owned()),
        }
    }

    /// Reads a file, or returns the reason why it cannot be read. A text above the limit is
    /// truncated just past it.
    pub(super) fn read(&self, name: &str) -> Result<String, String> {
        match self {
            Self::None => Err("includes are not available here".to_owned()),
            Self::Given(files) => files.get(name).cloned().ok_or_else(|| "no such file".to_owned()),
            Self::Disk => {
                let mut text = String::new();
                let file = std::fs::File::open(name).map_err(|error| error.to_string())?;
                let mut bytes = file.take(TEXT_BYTES_MAX as u64 + 1);
                bytes.read_to_string(&mut text).map_err(|error| error.to_string())?;
                Ok(text)
            }
        }
    }
}

impl Environment {
    /// No variables, 4096-byte pages, 1024 MiB, one processor, no files.
    pub fn fixed() -> Self {
        Self { variables: BTreeMap::new(), page_bytes: 4096, memory_mib: 1024, cpus: 1, files: Files::None }
    }

    /// Environment of this process. Values that cannot be determined are those of
    /// [`Environment::fixed`].
    pub fn of_process() -> Self {
        let fixed = Self::fixed();
        Self {
            variables: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            page_bytes: page_bytes().unwrap_or(fixed.page_bytes),
            memory_mib: memory_mib().unwrap_or(fixed.memory_mib),
            cpus: std::thread::available_parallelism().map_or(fixed.cpus, |cpus| cpus.get() as u64),
            files: Files::Disk,
        }
    }

    /// Keywords of the job language with their values.
    pub(super) fn keywords(&self) -> [(&'static str, u64); 3] {
        [("$pagesize", self.page_bytes), ("$mb_memory", self.memory_mib), ("$ncpus", self.cpus)]
    }
}

/// Reads the page size from the auxiliary vector, which needs neither `unsafe` nor a library.
fn page_bytes() -> Option<u64> {
    const AT_PAGESZ: usize = 6;
    const WORD: usize = size_of::<usize>();
    let vector = std::fs::read("/proc/self/auxv").ok()?;
    let word = |bytes: &[u8]| Some(usize::from_ne_bytes(bytes.try_into().ok()?));
    vector.chunks_exact(2 * WORD).find_map(|pair| {
        let (kind, value) = pair.split_at(WORD);
        (word(kind)? == AT_PAGESZ).then(|| word(value))?.map(|bytes| bytes as u64)
    })
}

fn memory_mib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_of_process_finds_the_machine() {
        let found = Environment::of_process();
        assert!(found.page_bytes.is_power_of_two() && found.page_bytes >= 4096);
        assert!(found.cpus >= 1 && found.memory_mib >= 1);
        assert!(found.variables.contains_key("PATH"));
    }
}
