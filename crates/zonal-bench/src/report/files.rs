//! File system statistics of a run.

use zonal_fs::{BLOCK_BYTES, FileSystem, Statistics, Usage};

/// The file system's part of a report.
#[derive(Clone, Copy, Default, Debug)]
pub struct FilesReport {
    /// Files created during the measurement.
    pub files: u64,
    /// Live blocks at the start of the first jobs.
    pub used: u64,
    /// Size of the metadata database at the end, in bytes.
    pub metadata_bytes: u64,
    /// Counters of the measurement.
    pub statistics: Statistics,
    /// Space usage at the end.
    pub usage: Option<Usage>,
}

/// Serialized form of a [`FilesReport`]. Fields also printed by `zonal stat` have its names.
#[derive(serde::Serialize, Debug)]
pub(crate) struct FilesPart {
    files: u64,
    used_percent: f64,
    written_bytes: u64,
    write_amplification: f64,
    victims: u64,
    victims_bytes: u64,
    moved_bytes: u64,
    moved_late_bytes: u64,
    resets: u64,
    commits: u64,
    stalls: u64,
    stalled_ns: u64,
    stall_max_ns: u64,
    failed_units: u64,
    damaged_blocks: u64,
    metadata_bytes: u64,
    free_zones: u32,
    open_zones: u32,
    zones: u32,
}

impl FilesReport {
    pub(crate) fn of(fs: &FileSystem) -> FilesReport {
        let (statistics, usage) = (fs.take_statistics(), Some(fs.usage()));
        FilesReport { statistics, usage, ..FilesReport::default() }
    }

    /// Adds the statistics of a later round.
    pub(crate) fn add(&mut self, later: &FilesReport) {
        if self.usage.is_none() {
            self.used = later.used;
        }
        self.usage = later.usage;
        self.metadata_bytes = later.metadata_bytes;
        self.statistics.add(&later.statistics);
    }

    pub(crate) fn part(&self) -> FilesPart {
        let statistics = &self.statistics;
        let bytes = |blocks: u64| blocks * u64::from(BLOCK_BYTES);
        let zones = |of: fn(&Usage) -> u32| self.usage.as_ref().map_or(0, of);
        let blocks = self.usage.map_or(0, |usage| usage.blocks);
        FilesPart {
            files: self.files,
            used_percent: if blocks == 0 { 0.0 } else { self.used as f64 * 100.0 / blocks as f64 },
            written_bytes: bytes(statistics.written_blocks),
            write_amplification: statistics.write_amplification(),
            victims: statistics.gc_victims,
            victims_bytes: bytes(statistics.gc_victims_blocks),
            moved_bytes: bytes(statistics.gc_blocks),
            moved_late_bytes: bytes(statistics.gc_skipped_blocks),
            resets: statistics.resets,
            commits: statistics.commits,
            stalls: statistics.stalls,
            stalled_ns: statistics.stalled_nanos,
            stall_max_ns: statistics.stall_nanos_max,
            failed_units: statistics.failed_units,
            damaged_blocks: statistics.damaged_blocks,
            metadata_bytes: self.metadata_bytes,
            free_zones: zones(|usage| usage.free_zones),
            open_zones: zones(|usage| usage.open_zones),
            zones: zones(|usage| usage.zones),
        }
    }

    /// Formats the statistics as lines of text.
    pub(crate) fn lines(&self) -> Vec<String> {
        let part = self.part();
        vec![
            format!(
                "  files created={}, used at start={:.1}%, write amplification={:.3}",
                part.files, part.used_percent, part.write_amplification
            ),
            format!(
                "  victims={}, moved={} KiB, resets={}, commits={}, zones: {} of {} free, {} open",
                part.victims,
                part.moved_bytes >> 10,
                part.resets,
                part.commits,
                part.free_zones,
                part.zones,
                part.open_zones
            ),
            format!(
                "  waits for space={}, longest={:.3} ms, total={:.3} ms",
                part.stalls,
                part.stall_max_ns as f64 / 1e6,
                part.stalled_ns as f64 / 1e6
            ),
        ]
    }
}
