//! Limits of the job language. All are far above any sensible job and bound the cost of hostile
//! input.

/// Maximum length of a line in a job file in bytes, as in fio.
pub const LINE_BYTES_MAX: usize = 8192;
/// Maximum length of a name, description or device name in bytes. Even with every colon escaped it
/// fits into a line.
pub const NAME_BYTES_MAX: usize = 4000;
/// Maximum size of a job file in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Maximum number of sections in all job files and on the command line together.
pub const SECTIONS_MAX: usize = 1024;
/// Maximum number of options in all sections together.
pub const SETTINGS_MAX: usize = 16 * 1024;
/// Maximum depth of nested includes, counting the job file.
pub const INCLUDE_DEPTH_MAX: usize = 16;
/// Maximum number of included files. A file counts each time it is included.
pub const INCLUDES_MAX: usize = 256;
/// Maximum number of clones of a job, `numjobs`.
pub const NUMJOBS_MAX: u64 = 1024;
/// Maximum number of files of a clone, `nrfiles`.
pub const NRFILES_MAX: u64 = 100_000_000;
/// Maximum size of a file in bytes, `filesize`: more than any drive holds.
pub const FILE_BYTES_MAX: u64 = 1 << 50;
/// Maximum number of clones of all jobs together.
pub const WORKERS_MAX: u64 = 4096;
/// Maximum queue depth of a worker, `iodepth`.
pub const IODEPTH_MAX: u64 = 65_536;
/// Maximum number of rounds of a job, `loops`.
pub const LOOPS_MAX: u64 = u32::MAX as u64;
/// Maximum block size in bytes, `bs`: above any device's command limit, and small enough that the
/// buffers of a queue can be summed.
pub const BLOCK_BYTES_MAX: u64 = 1 << 30;
/// Maximum number of sizes in a `bssplit`, as in fio.
pub const BLOCK_SHARES_MAX: usize = 64;
/// Maximum number of open zones of a job, as for fio's `max_open_zones`.
pub const OPEN_ZONES_MAX: u64 = 4096;
/// Maximum length of `percentile_list`, as in fio.
pub const PERCENTILES_MAX: usize = 20;
/// Maximum `runtime` in microseconds: a hundred years, so sums of times cannot overflow.
pub const RUNTIME_MICROS_MAX: u64 = 100 * 366 * 86_400 * 1_000_000;

const _: () = assert!(2 * NAME_BYTES_MAX + "description=".len() < LINE_BYTES_MAX);
