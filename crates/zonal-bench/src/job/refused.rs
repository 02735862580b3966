//! fio options that are errors here, each with the reason.
//!
//! An entry may have neutral values, such as `flow=0`, which ask for the default behaviour. They
//! are accepted.

/// A fio option that is refused.
#[derive(Debug, Clone, Copy)]
pub struct Refused {
    /// Name in fio.
    pub name: &'static str,
    /// Aliases in fio.
    pub aliases: &'static [&'static str],
    /// Reason why it is not supported.
    pub why: &'static str,
    /// Values that ask for the default behaviour and are accepted.
    pub neutral: &'static [&'static str],
}

const fn never(name: &'static str, why: &'static str) -> Refused {
    unless(name, &[], why)
}

const fn unless(name: &'static str, neutral: &'static [&'static str], why: &'static str) -> Refused {
    Refused { name, aliases: &[], why, neutral }
}

const OFF: &[&str] = &["0"];
const ONE: &[&str] = &["1"];

const BLOCKS: &str = "blocks are multiples of the smallest, and each direction has its own sizes";
const CONTENT: &str = "the content of blocks cannot be chosen";
const DEPTH: &str = "commands are submitted one by one as the queue has room";
const END: &str = "a job ends by amount, loops or runtime";
const ERRORS: &str = "a job stops at its first error";
const LATENCY: &str = "the queue depth is fixed and latency has no bound";
const ONE_DEVICE: &str = "a job has one device, named by filename";
const PLACEMENT: &str = "threads are not bound to processors or memory nodes";
const FLOW: &str = "jobs do not balance their rates";
const REPLAY: &str = "traces are replayed by their own command";
const SHELL: &str = "no programs are run and no processes are set up";
const STATES: &str = "no verification state is stored";
const TRIM: &str = "there is no trim; zones are reset instead";
const VERIFY: &str = "a block is verified as a whole, after the write phase, by its job";

pub(super) const REFUSED: &[Refused] = &[
    unless("atomic", OFF, "no device here has atomic writes"),
    Refused { aliases: &["blockalign"], ..never("ba", "random offsets are multiples of the block size") },
    unless("bs_is_seq_rand", OFF, BLOCKS),
    Refused { aliases: &["blocksize_unaligned"], ..unless("bs_unaligned", OFF, BLOCKS) },
    never("buffer_compress_chunk", CONTENT),
    unless("buffer_compress_percentage", OFF, CONTENT),
    never("buffer_pattern", CONTENT),
    never("cgroup", SHELL),
    unless("cgroup_nodelete", OFF, SHELL),
    never("cgroup_weight", SHELL),
    unless("continue_on_error", &["none", "0"], ERRORS),
    never("cpumask", PLACEMENT),
    never("cpus_allowed", PLACEMENT),
    never("cpus_allowed_policy", PLACEMENT),
    unless("create_only", OFF, "no files are laid out, so the job would do nothing"),
    unless("dedupe_global", OFF, CONTENT),
    never("dedupe_mode", CONTENT),
    unless("dedupe_percentage", OFF, CONTENT),
    never("dedupe_working_set_percentage", CONTENT),
    never("directory", ONE_DEVICE),
    never("exec_postrun", SHELL),
    never("exec_prerun", SHELL),
    never("exit_what", "a job does not end when another does"),
    unless("exitall", OFF, "a job does not end when another does"),
    unless("experimental_verify", OFF, VERIFY),
    unless("file_append", OFF, "a job starts at its offset"),
    never("filename_format", ONE_DEVICE),
    Refused { aliases: &["fill_fs"], ..unless("fill_device", OFF, END) },
    unless("flow", OFF, FLOW),
    never("flow_id", FLOW),
    unless("flow_sleep", OFF, FLOW),
    unless("fsync_on_close", OFF, "use end_fsync"),
    never("gid", SHELL),
    never("ignore_error", ERRORS),
    unless("io_submit_mode", &["inline"], DEPTH),
    Refused { aliases: &["iodepth_batch_submit"], ..unless("iodepth_batch", ONE, DEPTH) },
    never("iodepth_batch_complete_max", DEPTH),
    Refused { aliases: &["iodepth_batch_complete"], ..unless("iodepth_batch_complete_min", ONE, DEPTH) },
    never("iodepth_low", DEPTH),
    never("ioscheduler", "use --scheduler of `zonal bench`"),
    unless("kb_base", &["1024"], "suffixes have one meaning"),
    never("latency_percentile", LATENCY),
    unless("latency_run", OFF, LATENCY),
    unless("latency_target", OFF, LATENCY),
    unless("latency_window", OFF, LATENCY),
    unless("lockfile", &["none"], "jobs on one device run side by side"),
    unless("max_latency", OFF, LATENCY),
    never("merge_blktrace_file", REPLAY),
    never("merge_blktrace_iters", REPLAY),
    never("merge_blktrace_scalars", REPLAY),
    unless("nice", OFF, PLACEMENT),
    never("numa_cpu_nodes", PLACEMENT),
    never("numa_mem_policy", PLACEMENT),
    unless("number_ios", OFF, END),
    unless("offset_align", OFF, "a percentage is aligned to the block size"),
    never("opendir", ONE_DEVICE),
    unless("percentage_random", &["100"], "a job is random or sequential throughout"),
    unless("pre_read", OFF, "nothing is read before the job"),
    never("prio", "commands have no priority"),
    never("prioclass", "commands have no priority"),
    never("profile", "there are no built-in workloads"),
    never("random_generator", "there is a single generator, and it is none of fio's"),
    unless("rate_ignore_thinktime", OFF, "a job catches up with its rate after a pause"),
    never("read_iolog", REPLAY),
    never("read_iolog_chunked", REPLAY),
    never("replay_align", REPLAY),
    never("replay_no_stall", REPLAY),
    never("replay_redirect", REPLAY),
    never("replay_scale", REPLAY),
    never("replay_skip", REPLAY),
    never("replay_time_scale", REPLAY),
    unless("rw_sequencer", &["sequential"], "sequential offsets neither skip nor repeat"),
    unless("serialize_overlap", OFF, "overlapping commands are not serialised"),
    unless("softrandommap", OFF, "the map is always allocated, or the job fails"),
    unless("startdelay", OFF, "jobs start at once or after a stonewall"),
    unless("stats", ONE, "every job is reported"),
    Refused { aliases: &["ss"], ..never("steadystate", END) },
    Refused { aliases: &["ss_dur"], ..unless("steadystate_duration", OFF, END) },
    Refused { aliases: &["ss_ramp"], ..unless("steadystate_ramp_time", OFF, END) },
    unless("sync", &["none", "0"], "writes are acknowledged by the device; use fsync"),
    never("sync_file_range", "there is no page cache on the path"),
    unless("trim_backlog", OFF, TRIM),
    unless("trim_backlog_batch", OFF, TRIM),
    unless("trim_percentage", OFF, TRIM),
    unless("trim_verify_zero", OFF, TRIM),
    never("uid", SHELL),
    unless("unified_rw_reporting", &["none", "0"], "reads and writes are reported separately"),
    unless("unlink", OFF, "a device is not removed"),
    unless("unlink_each_loop", OFF, "a device is not removed"),
    unless("verify_async", OFF, VERIFY),
    never("verify_async_cpus", VERIFY),
    unless("verify_backlog", OFF, VERIFY),
    unless("verify_backlog_batch", OFF, VERIFY),
    unless("verify_dump", OFF, "a bad block is described in the report, not dumped"),
    unless("verify_interval", OFF, VERIFY),
    unless("verify_offset", OFF, VERIFY),
    unless("verify_only", OFF, "there is no record of what an earlier run wrote"),
    never("verify_pattern", VERIFY),
    unless("verify_state_load", OFF, STATES),
    unless("verify_state_save", OFF, STATES),
    never("wait_for", "jobs wait for all earlier ones, see stonewall, or for none"),
    unless("write_barrier", OFF, "there are no barriers; use fsync"),
    unless("zero_buffers", OFF, CONTENT),
    unless("zoneskip", OFF, "zones are visited in turn"),
];
