//! Topics of `zonal help`: subjects that several commands share.

use crate::defaults::fill_help;
use crate::exit;
use crate::write_path::{HEADING, WritePathAndMode};
use clap::Args;
use std::fmt::Write;
use zonal_io::device::OpenMode;
use zonal_io::emulated::EmulatedOptions;
use zonal_io::image::OpenOptions;
use zonal_io::volume::size_text;
use zonal_linux::BlkOptions;
use zonal_nvme::host::{DEPTH_DEFAULT, HostOptions, QUEUES_DEFAULT};

/// Help text on a subject that several commands share.
pub(crate) struct Topic {
    pub name: &'static str,
    pub about: &'static str,
    /// Text in the form that [`hanging`](crate::wrap::hanging) takes.
    pub text: fn() -> String,
}

/// Every topic.
pub(crate) const TOPICS: [Topic; 7] = [
    Topic { name: "devices", about: "Names of devices, and their options", text: devices },
    Topic { name: "modes", about: "Write modes", text: modes },
    Topic { name: "write-path", about: "Options of the write path", text: write_path },
    Topic { name: "overwriting", about: "Commands that overwrite a drive, and --yes", text: overwriting },
    Topic { name: "job-options", about: "Options of the job language", text: job_options },
    Topic { name: "sizes", about: "Sizes, addresses, and ranges of zones", text: sizes },
    Topic { name: "exit-codes", about: "Exit codes", text: exit_codes },
];

fn devices() -> String {
    "\
The name of a device is its kind, a colon, and its options, separated by commas.

  null:size=1T,zone_size=256M   keeps no data; for measuring the software above it
  ram:size=8G                   keeps data in memory until the program ends. Up to 1G that resets have freed is kept for reuse
  image:PATH, or just PATH      a drive in a file, made by `zonal create`. Options follow a comma, as in
                                image:PATH,threads=4. Put a path that contains a comma in brackets:
                                image:[PATH],threads=4. A bare path is taken whole and has no options
  blk:PATH, or just PATH        a zoned block device of this machine, such as /dev/sda; `zonal list` shows them. Options
                                follow a comma, as in blk:/dev/sda,queues=2; see docs/DRIVES.md
  concat:[NAME][NAME]           the zones of several devices, one device after the other
  sim:PROFILE                   a simulated drive in virtual time. Options override values of the profile:
                                sim:PROFILE,KEY=VALUE. format=512 selects the format with this logical block, if the
                                profile has several. keep=data keeps data in memory, as ram does. checked=RULE ends
                                a run in which the drive or the write path breaks its rules. RULE is the number of
                                writes that may be in flight: many (any number), zone (one per zone) or drive (one).
                                rtt_us=N puts the drive at a distance: half of the round trip of N microseconds delays
                                a command on its way to the drive, and half its answer
  nvme-tcp://ADDR:PORT/NQN      a namespace of an NVMe/TCP controller, such as `zonal serve`: the first zoned one, otherwise
                                the first. Options follow a comma: nsid=2 selects another namespace

A wrapper is put before the name of a device, with a plus sign between them. Wrappers can be nested.

  trace:file=F+NAME             writes every submission and completion to the file F; overwrite=1 replaces an old one
  linear:zone=4,zones=8+NAME    eight zones of a device, starting at zone 4
  crypt:key=F+NAME              encrypts the data with the key in the file F, 64 bytes or 128 hexadecimal digits, in the
                                format of dm-crypt's aes-xts-plain64; without zone append, see docs/EMULATED.md
  fault:plan=F,seed=7+NAME      injects the faults of the plan F, see docs/FAULT.md
  fault:seed=7,medium=1/1000+NAME
                                injects random faults at the given rates, 0 to 1 or a fraction. Kinds: KINDS
  timing:PROFILE+NAME           answers as fast as the drive of that profile; options as for sim

PROFILES
Options of null and ram:

"
    .replace("KINDS", &zonal_io::fault::rate_kinds().collect::<Vec<_>>().join(", "))
    .replace("PROFILES", &profiles())
        + &option_lines(&emulated_options())
        + "\nOptions of image:\n\n"
        + &option_lines(&image_options())
        + "\nOptions of blk:\n\n"
        + &option_lines(&block_device_options())
        + "\nOptions of nvme-tcp:\n\n"
        + &option_lines(&remote_options())
}

/// An option of a device: name, default, meaning.
type OptionRow = (&'static str, String, String);

fn row(name: &'static str, default: impl ToString, about: &str) -> OptionRow {
    (name, default.to_string(), about.to_owned())
}

fn option_lines(rows: &[OptionRow]) -> String {
    let line = |(name, default, about): &OptionRow| match default.is_empty() {
        true => format!("  {name:<26}  {about}\n"),
        false => format!("  {name:<26}  {about} [default: {default}]\n"),
    };
    rows.iter().map(line).collect()
}

/// A choice as names of devices have it.
fn word(choice: impl std::fmt::Debug) -> String {
    format!("{choice:?}").to_lowercase()
}

fn block_device_options() -> [OptionRow; 4] {
    let o = BlkOptions::default();
    [
        row("queues", o.queues, "number of queues"),
        row(
            "depth",
            "the kernel's nr_requests, at most 128",
            "commands in flight on a queue before it is busy",
        ),
        row(
            "readonly",
            u8::from(o.mode == OpenMode::Reading),
            "1: open for reading, as other processes may at the same time",
        ),
        row("force", u8::from(o.force), "1: open for reading although it is mounted or held"),
    ]
}

fn image_options() -> [OptionRow; 7] {
    let o = OpenOptions::default();
    [
        row(
            "threads",
            o.threads,
            "helper threads for file I/O, at most 256; with 0 the submitting thread does it and blocks",
        ),
        row(
            "readonly",
            u8::from(o.mode == OpenMode::Reading),
            "1: open for reading, as other processes may at the same time; commands that would change the drive fail",
        ),
        row("submit_queues", o.submit_queues, "number of queues"),
        row("hw_queue_depth", o.hw_queue_depth, "commands in flight on a queue at most"),
        row("mbps", o.mbps, MBPS),
        row(
            "max_sectors",
            "",
            "largest read or write, in sectors; by default that of the image's profile, or 2048 without one",
        ),
        row(
            "preserves_write_order",
            "",
            "1: each queue completes writes in order; by default as in the image's profile, or 0 without one",
        ),
    ]
}

fn remote_options() -> [OptionRow; 6] {
    let o = HostOptions::default();
    [
        row("nsid", "", "number of the namespace"),
        row(
            "submit_queues",
            QUEUES_DEFAULT,
            "number of I/O queues, one connection each; the controller may grant fewer",
        ),
        row(
            "hw_queue_depth",
            DEPTH_DEFAULT,
            "commands in flight on a queue at most; the controller may allow fewer",
        ),
        row(
            "header_digest",
            u8::from(o.header_digest),
            "1: use header digests, if the controller supports them",
        ),
        row("data_digest", u8::from(o.data_digest), "1: use data digests, if the controller supports them"),
        row(
            "preserves_write_order",
            "0",
            "1: rely on the controller to execute each queue in order, as `zonal serve` does",
        ),
    ]
}

/// Built-in profiles, a line each.
fn profiles() -> String {
    let known = zonal_sim::Profile::names().filter_map(|name| zonal_sim::Profile::open(name, &[]).ok());
    let lines: String = known.map(|p| format!("  {:<29}  {}\n", p.name, p.title)).collect();
    format!("Built-in profiles; PROFILE may also be the path of a profile file:\n\n{lines}")
}

const MBPS: &str = "bandwidth of reads, writes and appends together, in MiB/s; 0: no limit";

fn emulated_options() -> [OptionRow; 26] {
    let o = EmulatedOptions::default();
    let in_memory = size_text(EmulatedOptions::in_memory().size);
    [
        row("size", size_text(o.size), &format!("size of the drive; {in_memory} for ram")),
        row("zone_size", size_text(o.zone_size), "size of a zone, a power of two"),
        row("zone_capacity", o.zone_capacity, "writable part of a sequential zone; 0: all of it"),
        row("zone_nr_conv", o.zone_nr_conv, "number of conventional zones at the start of the drive"),
        row("zone_max_open", o.zone_max_open, "largest number of open zones; 0: no limit"),
        row("zone_max_active", o.zone_max_active, "largest number of active zones; 0: no limit"),
        row(
            "zone_append_max_sectors",
            "",
            "largest native zone append, in sectors; 0: none; by default no limit",
        ),
        row("zone_full", u8::from(o.zone_full), "1: sequential zones start full"),
        row("zone_readonly", "", "sequential zones that are read-only from the start, such as 7 or 7-9:12"),
        row("zone_offline", "", "sequential zones that are offline from the start"),
        row(
            "badblocks",
            "",
            "sectors that cannot be read or written, such as 8-15:64-71; see `zonal zone --badblocks`",
        ),
        row("badblocks_once", u8::from(o.badblocks_once), "1: the first error makes a bad range good"),
        row(
            "badblocks_partial_io",
            u8::from(o.badblocks_partial_io),
            "1: transfer the blocks before the first bad one",
        ),
        row("blocksize", o.blocksize, "logical block in bytes, up to 4096"),
        row("max_sectors", o.max_sectors, "largest read or write, in sectors"),
        row(
            "write_zeroes_max_sectors",
            "",
            "largest write-zeroes command, in sectors; 0: none; by default no limit",
        ),
        row(
            "complete",
            word(o.complete),
            "inline: complete in the submitting call; poll: complete when polled",
        ),
        row(
            "completion_nsec",
            o.completion_nsec,
            "shortest time to a completion, in nanoseconds; implies complete=poll",
        ),
        row("mbps", o.mbps, &format!("{MBPS}; implies complete=poll")),
        row("hw_queue_depth", o.hw_queue_depth, "commands in flight on a queue at most"),
        row("submit_queues", o.submit_queues, "number of queues"),
        row("fua", u8::from(o.fua), "1: writes can be made durable one by one"),
        row("rotational", u8::from(o.rotational), "1: reported as rotational"),
        row(
            "preserves_write_order",
            u8::from(o.preserves_write_order),
            "1: each queue completes writes in order",
        ),
        row("personality", word(o.personality), "zns or zbc: standard to follow where they differ"),
        row("lock", word(o.lock), "device: one command at a time, as a baseline"),
    ]
}

fn modes() -> String {
    "\
The write mode decides how writes to sequential zones are sent to the device. By default it follows from the device: qd1 for a
rotational one, append for one with native zone append, otherwise per-zone. In mode qd1 each write takes at least a round
trip. If the measured one exceeds 5 ms, a rotational drive gets the mode of a drive that is not rotational. `zonal info`
prints the mode and the reason.

  direct     as submitted; the caller keeps the order. For comparison
  zone-lock  through a deadline scheduler that locks the zone of each write, as Linux did before zone write plugging. For
             comparison
  per-zone   one write in flight per zone; contiguous waiting writes are merged into one command
  qd1        one write in flight to the sequential zones of the whole drive; the waiting writes of a zone go before
             those of the next zone. A concatenation has one for each of its devices
  pipelined  several writes in flight per zone, up to --window, all on one queue of the device. The device has to
             guarantee the order of a queue; others are refused without --force-mode. Writes that it reorders
             nevertheless are sent again
  append     several native zone appends in flight; positional writes go one at a time

In zone-lock, per-zone, qd1 and pipelined, a zone append becomes a write at the zone's write pointer.

`zonal bench --write-mode` sets the mode of a run, and `zonal mode DEVICE --set` that of a running process; direct and zone-lock
can only be chosen when the device is opened. With --keep the mode is kept for the device, for every later command.
"
    .to_owned()
}

fn write_path() -> String {
    let mut text = "\
Commands that write to a drive take these options: bench, replay, mount, serve, mkfs, put, mkdir, mv, rm, tar and fsck.

"
    .to_owned();
    let mut definition = WritePathAndMode::augment_args(clap::Command::new("zonal"));
    definition.build();
    let is_own = |a: &&clap::Arg| a.get_help_heading() == Some(HEADING);
    for argument in definition.get_arguments().filter(is_own).cloned().map(fill_help) {
        let long = argument.get_long_help().or(argument.get_help());
        let about = long.map(ToString::to_string).unwrap_or_default();
        // The first paragraph is a phrase without a full stop.
        let about = about.replacen("\n\n", ". ", 1);
        let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(text, "  {argument}\n      {about}");
    }
    text += "
`zonal mode DEVICE --set OPTION=VALUE --keep` keeps a value for a device, and changes it in a running process.
";
    text
}

fn overwriting() -> String {
    "\
Commands that write to a drive, reset its zones or take them offline check first for a file system (Zonal, XFS, btrfs,
F2FS, zonefs, ext2 to ext4) and for a partition table (GPT, MBR). If there is one, or if a written block where it would
be cannot be read, they say so, change nothing, and exit with 4. --yes overwrites it.

  bench      unless its jobs only read; --readonly refuses jobs that write
  replay     always
  calibrate  always; also if a zone that it uses contains data
  reset      always
  finish     always
  zone       --set offline, if no process has the drive open
  mkfs       always; also if a zone contains data
  fio        the engine; the job option is yes=1

On a block device of this machine, all of them also refuse data of unknown origin: a sequential zone that is not empty,
or a conventional one, among the first 16, that does not begin with zeroes.
On other drives only calibrate and mkfs do, for example data of an encrypted drive opened without crypt:; the others
overwrite it. Devices in memory (null, ram, sim) start empty and are not checked. Only the beginning of a
device is checked: of the range with linear, of the first device with concat. A drive that is mounted or open in another
process is always refused, except by `zone --set`: that process makes the
change, without this check.
"
    .to_owned()
}

fn job_options() -> String {
    let mut text = "\
These options of fio's job language have an effect; alternative names are separated by |. fio's manual describes
them, and docs/BENCH.md lists the differences. `zonal bench --list-ignored` lists the options that are accepted without
effect, each with the reason; every other option of fio is refused.

"
    .to_owned();
    for option in zonal_bench::job::supported() {
        let names = std::iter::once(&option.name).chain(option.aliases).copied().collect::<Vec<_>>();
        text += &names.join("|");
        text.push('\n');
    }
    text
}

fn sizes() -> String {
    "\
A size is a number of bytes, or a number with a unit, as GNU programs take it. Case does not matter.

  28T, 28TiB   powers of 1024: K, M, G, T, P, or KiB, MiB, GiB, TiB, PiB
  28TB         powers of 1000: KB, MB, GB, TB, PB

Job files and job options of `zonal bench` follow fio, where 28TB and 28T are both powers of 1024.

An address, as in --offset, is one of these:

  524288, 0x80000  a number of 512-byte sectors, decimal or hexadecimal, as `zonal report` prints it
  256M             a size in bytes
  100z             the start of zone 100
  25%              the start of the zone a quarter of the way through the drive's zones

--zone selects zones by number, counted from 0: --zone 7, or --zone 7-9 for three of them.
"
    .to_owned()
}

/// Table of exit codes.
pub(crate) fn exit_codes() -> String {
    exit::codes().map(|(code, meaning)| format!("  {code:<5}{meaning}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_io::registry::{NameProblem, Registry};
    use zonal_io::volume::WriteMode;

    #[test]
    fn listed_options_exist_and_accept_their_documented_default() {
        for (name, default, _) in emulated_options() {
            let value = if default.is_empty() { "1" } else { &default };
            match Registry::default().parse(&format!("null:{name}={value}")) {
                Ok(_) => {}
                Err(e) => panic!("{name}: {e}"),
            }
        }
        let mut registry = Registry::default();
        zonal_nvme::host::register(&mut registry);
        for (name, default, _) in remote_options() {
            let value = if default.is_empty() { "1" } else { &default };
            let name = format!("nvme-tcp://127.0.0.1:4420/nqn.2020-01.org.example:d,{name}={value}");
            assert!(registry.parse(&name).is_ok(), "{name}");
        }
        let error = Registry::default().parse("null:zone_sise=1").unwrap_err();
        assert!(matches!(error.problem(), NameProblem::UnknownOption { .. }));
    }

    #[test]
    fn every_option_with_an_effect_is_listed_with_its_other_names() {
        let text = job_options();
        let (_, listed) = text.split_once("\n\n").unwrap();
        let listed: Vec<&str> = listed.split_whitespace().collect();
        for option in zonal_bench::job::supported() {
            let names: Vec<&str> =
                std::iter::once(option.name).chain(option.aliases.iter().copied()).collect();
            assert!(listed.contains(&names.join("|").as_str()), "{names:?} is not in\n{text}");
        }
        assert_eq!(listed.len(), zonal_bench::job::supported().len());
    }

    #[test]
    fn help_lists_every_write_mode() {
        let helps =
            ["bench", "mode"].map(|command| crate::cli::help(Some(command), crate::wrap::COLUMNS).unwrap());
        for mode in WriteMode::ALL {
            assert!(modes().contains(&format!("\n  {:<10} ", mode.name())), "{mode} is not in the topic");
            let asked_for = if mode.is_switchable() { &helps[..] } else { &helps[..1] };
            for help in asked_for {
                assert!(help.contains(mode.name()), "{mode} is not in\n{help}");
            }
        }
    }
}
