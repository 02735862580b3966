//! Limits of the job language. Each is far above any sane job and bounds what hostile input can cost.

/// Longest line of a job file in bytes, fio's own limit.
pub const LINE_BYTES_MAX: usize = 8192;
/// Longest name, description and device name in bytes. Printed with every colon escaped it still fits a line.
pub const NAME_BYTES_MAX: usize = 4000;
/// Largest job file in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Most sections in all job files and the command line together.
pub const SECTIONS_MAX: usize = 1024;
/// Most options in all sections together.
pub const SETTINGS_MAX: usize = 16 * 1024;
/// Most files that include each other, the job file among them.
pub const INCLUDE_DEPTH_MAX: usize = 16;
/// Most included files, counting one each time.
pub const INCLUDES_MAX: usize = 256;
/// Most clones of one job, `numjobs`.
pub const NUMJOBS_MAX: u64 = 1024;
/// Most files of one clone, `nrfiles`.
pub const NRFILES_MAX: u64 = 100_000_000;
/// Most bytes of one file, `filesize`: what no drive has.
pub const FILE_BYTES_MAX: u64 = 1 << 50;
/// Most clones of all jobs together.
pub const WORKERS_MAX: u64 = 4096;
/// Deepest queue of one worker, `iodepth`.
pub const IODEPTH_MAX: u64 = 65_536;
/// Most rounds of one job, `loops`.
pub const LOOPS_MAX: u64 = u32::MAX as u64;
/// Largest block in bytes, `bs`: above every command a device accepts, small enough that a queue of them is countable.
pub const BLOCK_BYTES_MAX: u64 = 1 << 30;
/// Most sizes of a `bssplit`, fio's own limit.
pub const BLOCK_SHARES_MAX: usize = 64;
/// Most open zones of a job, fio's own limit on `max_open_zones`.
pub const OPEN_ZONES_MAX: u64 = 4096;
/// Longest `percentile_list`, fio's own limit.
pub const PERCENTILES_MAX: usize = 20;
/// Longest `runtime` in microseconds: a hundred years, so that sums of times cannot overflow.
pub const RUNTIME_MICROS_MAX: u64 = 100 * 366 * 86_400 * 1_000_000;

const _: () = assert!(2 * NAME_BYTES_MAX + "description=".len() < LINE_BYTES_MAX);
