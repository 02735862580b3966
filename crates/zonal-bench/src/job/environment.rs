//! What a job file may ask of its surroundings: `${VARIABLE}` and the keywords `$pagesize`, `$mb_memory`, `$ncpus`.

use std::collections::BTreeMap;

/// Values for the substitutions in a job file.
///
/// A value of its own, so that a test or a replay does not depend on the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// Environment variables. Those that are not UTF-8 are left out.
    pub variables: BTreeMap<String, String>,
    /// `$pagesize` in bytes.
    pub page_bytes: u64,
    /// `$mb_memory`, memory of the machine in MiB.
    pub memory_mib: u64,
    /// `$ncpus`, processors available.
    pub cpus: u64,
}

impl Environment {
    /// No variables, 4096-byte pages, 1024 MiB, one processor.
    pub fn fixed() -> Self {
        Self { variables: BTreeMap::new(), page_bytes: 4096, memory_mib: 1024, cpus: 1 }
    }

    /// The surroundings of this process. What cannot be found out is as in [`Environment::fixed`].
    pub fn of_process() -> Self {
        let fixed = Self::fixed();
        Self {
            variables: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            page_bytes: page_bytes().unwrap_or(fixed.page_bytes),
            memory_mib: memory_mib().unwrap_or(fixed.memory_mib),
            cpus: std::thread::available_parallelism().map_or(fixed.cpus, |cpus| cpus.get() as u64),
        }
    }

    /// The keywords of a job file and their values.
    pub(super) fn keywords(&self) -> [(&'static str, u64); 3] {
        [("$pagesize", self.page_bytes), ("$mb_memory", self.memory_mib), ("$ncpus", self.cpus)]
    }
}

/// Page size from the auxiliary vector, which needs neither `unsafe` nor a library.
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
