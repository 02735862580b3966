//! Options specific to one fio engine.
//!
//! fio accepts them only with that engine. Here the write path is the only engine, so options that
//! tune engine internals are ignored. Options that change what reaches the device, or that name
//! another kind of target, are refused.

use super::ignored::{Ignored, flag, value};
use super::refused::Refused;

const TUNES: &str = "it tunes a fio engine; here the write path is the engine";

pub(super) const IGNORED: &[Ignored] = &[
    value("cmd_type", TUNES),
    flag("fixedbufs", TUNES),
    flag("hipri", TUNES),
    value("hipri_percentage", TUNES),
    value("nonvectored", TUNES),
    flag("registerfiles", TUNES),
    flag("sqthread_poll", TUNES),
    value("sqthread_poll_cpu", TUNES),
    value("thp", TUNES),
    value("uncached", "there is no page cache on the path"),
    flag("userspace_reap", TUNES),
];

const PRIORITY: &str = "commands have no priority";
const TARGET: &str = "it names a target of its own engine; use filename";

const fn refuse(name: &'static str, why: &'static str) -> Refused {
    Refused { name, aliases: &[], why, neutral: &[] }
}

const fn refuse_unless(name: &'static str, neutral: &'static [&'static str], why: &'static str) -> Refused {
    Refused { name, aliases: &[], why, neutral }
}

pub(super) const REFUSED: &[Refused] = &[
    refuse("arguments", "no programs are run"),
    refuse("bindname", TARGET),
    refuse("brick", TARGET),
    refuse("busy_poll", TARGET),
    refuse("clientname", TARGET),
    refuse("clustername", TARGET),
    refuse("cmdprio", PRIORITY),
    refuse("cmdprio_bssplit", PRIORITY),
    refuse_unless("cmdprio_class", &["0"], PRIORITY),
    refuse_unless("cmdprio_percentage", &["0"], PRIORITY),
    refuse("conf", TARGET),
    refuse("cpuchunks", "jobs that load the processor are not supported"),
    refuse("cpuload", "jobs that load the processor are not supported"),
    refuse("cpumode", "jobs that load the processor are not supported"),
    refuse("donorname", TARGET),
    refuse("exit_on_io_done", "jobs that load the processor are not supported"),
    refuse_unless("force_async", &["0"], "commands are not offloaded to kernel workers"),
    refuse("grace_time", "no programs are run"),
    refuse("hostname", TARGET),
    refuse("inplace", TARGET),
    refuse("interface", TARGET),
    refuse("listen", TARGET),
    refuse("mss", TARGET),
    refuse("nodelay", TARGET),
    refuse_unless("nowait", &["0"], "commands wait for their zone"),
    refuse("pingpong", TARGET),
    refuse("pool", TARGET),
    refuse("port", TARGET),
    refuse("program", "no programs are run"),
    Refused { aliases: &["proto"], ..refuse("protocol", TARGET) },
    refuse("rbdname", TARGET),
    refuse_unless("readfua", &["0"], "reads are sent without FUA"),
    refuse_unless("sg_write_mode", &["write"], "a write is a plain write"),
    refuse("single-instance", TARGET),
    refuse("skip_bad", TARGET),
    refuse("stat_type", TARGET),
    refuse("std_redirect", "no programs are run"),
    refuse_unless("stream_id", &["0"], "writes carry no stream"),
    refuse("touch_objects", TARGET),
    refuse("ttl", TARGET),
    refuse("uri", TARGET),
    Refused { aliases: &["proto"], ..refuse("verb", TARGET) },
    refuse("volume", TARGET),
    refuse("window_size", TARGET),
    refuse_unless("writefua", &["0"], "writes are sent without FUA; use fsync"),
];
