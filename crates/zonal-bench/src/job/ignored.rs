//! Options that are accepted without effect, each with the reason.
//!
//! # Criterion
//! An option belongs here only if it alters neither offsets, sizes, order, timing nor verification
//! of a job. All other unsupported options are refused, so a job file is never run as something
//! else than it says.

use super::options::Form;

/// An option that is accepted without effect.
#[derive(Debug, Clone, Copy)]
pub struct Ignored {
    /// Name in fio.
    pub name: &'static str,
    /// Aliases in fio.
    pub aliases: &'static [&'static str],
    /// Form of its value.
    pub form: Form,
    /// Reason why it has no effect.
    pub reason: &'static str,
    /// Values that are refused nevertheless.
    pub except: Option<Except>,
    /// Condition for a warning.
    pub warn: Warn,
}

/// Condition for a warning about an ignored option: it asks for output that will be missing, or for
/// another way to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warn {
    /// No warning is needed.
    Never,
    /// For every value.
    Always,
    /// For this value only.
    With(&'static str),
}

impl Warn {
    /// True if this value deserves a warning.
    pub(super) fn is_with(self, given: &str) -> bool {
        match self {
            Warn::Never => false,
            Warn::Always => true,
            Warn::With(value) => given == value,
        }
    }
}

/// Values of an ignored option that would alter the job.
#[derive(Debug, Clone, Copy)]
pub struct Except {
    /// The values.
    pub values: &'static [&'static str],
    /// Reason why they cannot be ignored.
    pub why: &'static str,
}

pub(super) const fn value(name: &'static str, reason: &'static str) -> Ignored {
    Ignored { name, aliases: &[], form: Form::Value, reason, except: None, warn: Warn::Never }
}

/// An option that names an output file which is not written.
const fn output(name: &'static str) -> Ignored {
    Ignored { warn: Warn::Always, ..value(name, NO_LOGS) }
}

pub(super) const fn flag(name: &'static str, reason: &'static str) -> Ignored {
    Ignored { form: Form::Flag, ..value(name, reason) }
}

const NO_LOGS: &str = "no log files are written";
const NO_LAYOUT: &str = "no files are laid out; the device is opened as it is";
const OWN_BUFFERS: &str = "buffers come from an aligned pool";
const OWN_PAYLOAD: &str = "every block has fresh content anyway";
const OWN_PATH: &str = "the device decides how it is opened";
const OWN_CLOCK: &str = "there is one monotonic clock";
const OWN_REPORT: &str = "reports have their own layout";
const ONE_FILE: &str = "a job has one device, so there is nothing to choose";

pub(super) const IGNORED: &[Ignored] = &[
    value("allow_file_create", NO_LAYOUT),
    value("allow_mounted_write", "a device in use is always refused"),
    value("block_error_percentiles", "it counts trims, which are refused"),
    Ignored { warn: Warn::With("1"), ..value("buffered", OWN_PATH) },
    value("bwavgtime", NO_LOGS),
    value("clocksource", OWN_CLOCK),
    value("create_fsync", NO_LAYOUT),
    value("create_on_open", NO_LAYOUT),
    value("create_serialize", NO_LAYOUT),
    Ignored { warn: Warn::With("0"), ..value("direct", OWN_PATH) },
    Ignored {
        aliases: &["disable_bw"],
        ..value("disable_bw_measurement", "bandwidth is computed from the totals, at no cost")
    },
    value("disk_util", "the kernel's statistics are not collected"),
    value("error_dump", "every error is reported with its location anyway"),
    value("fadvise_hint", NO_LAYOUT),
    value("fallocate", NO_LAYOUT),
    value("file_service_type", ONE_FILE),
    value("gtod_cpu", OWN_CLOCK),
    value("hugepage-size", OWN_BUFFERS),
    value("invalidate", "there is no page cache on the path"),
    Ignored {
        except: Some(Except {
            values: &[
                "cpuio",
                "e4defrag",
                "exec",
                "falloc",
                "filecreate",
                "filedelete",
                "filestat",
                "ftruncate",
                "net",
                "netsplice",
                "rdma",
            ],
            why: "this engine does not read or write a device",
        }),
        ..value("ioengine", "the write path is the engine")
    },
    Ignored { aliases: &["mem_align"], ..value("iomem_align", OWN_BUFFERS) },
    value("iopsavgtime", NO_LOGS),
    value("lockmem", "no memory is locked"),
    value("log_alternate_epoch", NO_LOGS),
    value("log_alternate_epoch_clock_id", NO_LOGS),
    value("log_avg_msec", NO_LOGS),
    value("log_compression", NO_LOGS),
    value("log_compression_cpus", NO_LOGS),
    value("log_entries", NO_LOGS),
    value("log_hist_coarseness", NO_LOGS),
    value("log_hist_msec", NO_LOGS),
    value("log_max_value", NO_LOGS),
    value("log_offset", NO_LOGS),
    value("log_prio", NO_LOGS),
    value("log_store_compressed", NO_LOGS),
    value("log_unix_epoch", NO_LOGS),
    Ignored { aliases: &["iomem"], ..value("mem", OWN_BUFFERS) },
    value("openfiles", ONE_FILE),
    value("per_job_logs", NO_LOGS),
    flag("refill_buffers", OWN_PAYLOAD),
    value("scramble_buffers", OWN_PAYLOAD),
    value("significant_figures", OWN_REPORT),
    flag("thread", "jobs are always threads"),
    value("unique_filename", "there are no network clients"),
    value("unit_base", OWN_REPORT),
    output("write_bw_log"),
    value("write_hint", "no device supports lifetime hints"),
    output("write_hist_log"),
    output("write_iops_log"),
    output("write_lat_log"),
    value("zonerange", "only zonemode=strided uses it, which is refused"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::ignored;

    /// Options that change a job's behaviour. None of them may be ignored, whatever the reason.
    #[test]
    fn options_that_alter_a_job_are_never_ignored() {
        let altering = "rw rw_sequencer bs blocksize bsrange bssplit bs_unaligned bs_is_seq_rand ba blockalign size io_size \
            filesize fill_device file_append offset offset_increment offset_align number_ios nrfiles filename \
            directory opendir random_generator random_distribution percentage_random softrandommap norandommap \
            randseed randrepeat allrandrepeat iodepth iodepth_batch iodepth_batch_complete_min \
            iodepth_batch_complete_max iodepth_low io_submit_mode serialize_overlap numjobs loops runtime timeout \
            time_based startdelay ramp_time rate rate_min rate_iops rate_iops_min rate_process rate_cycle \
            rate_ignore_thinktime thinktime thinktime_spin thinktime_blocks thinktime_iotime flow flow_sleep \
            latency_target latency_window latency_percentile latency_run max_latency steadystate \
            steadystate_duration steadystate_ramp_time stonewall wait_for exitall exit_what sync fsync fdatasync \
            sync_file_range write_barrier atomic end_fsync fsync_on_close overwrite pre_read zonemode zonesize \
            zonecapacity zoneskip max_open_zones job_max_open_zones ignore_zone_limits zone_reset_threshold \
            zone_reset_frequency read_beyond_wp verify do_verify verify_only verify_interval verify_offset \
            verify_pattern verify_fatal verify_dump verify_async verify_async_cpus verify_backlog \
            verify_backlog_batch verify_state_load verify_state_save experimental_verify trim_percentage \
            trim_verify_zero trim_backlog trim_backlog_batch zero_buffers buffer_pattern \
            buffer_compress_percentage buffer_compress_chunk dedupe_percentage dedupe_mode read_iolog write_iolog \
            replay_scale replay_align prio prioclass nice cpus_allowed numa_mem_policy ioscheduler kb_base \
            rwmixread rwmixwrite continue_on_error ignore_error nowait force_async cmdprio_percentage \
            sg_write_mode writefua readfua";
        for name in altering.split_whitespace() {
            let found = ignored().find(|option| option.name == name || option.aliases.contains(&name));
            assert!(found.is_none(), "{name} alters a job and is ignored: {found:?}");
            assert!(crate::job::table_of(name).is_some(), "{name} is not an option");
        }
    }

    #[test]
    fn ignored_options_for_log_files_always_warn() {
        let asks = |option: &&Ignored| option.name.starts_with("write_") && option.name.ends_with("_log");
        let asking: Vec<&Ignored> = ignored().filter(asks).collect();
        assert_eq!(asking.len(), 4);
        assert!(asking.iter().all(|option| option.warn == Warn::Always), "{asking:?}");
    }

    #[test]
    fn every_ignored_option_has_a_reason() {
        for option in ignored() {
            assert!(option.reason.len() > 10, "{}", option.name);
        }
    }
}
