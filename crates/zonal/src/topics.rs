//! Help on what is not a command: `zonal help TOPIC`.

use crate::exit::{CLOSED_PIPE, Exit, INTERRUPTED, TERMINATED};
use std::fmt::Write;
use zonal_io::device::OpenMode;
use zonal_io::emulated::EmulatedOptions;
use zonal_io::image::OpenOptions;
use zonal_io::volume::size_text;
use zonal_nvme::host::{DEPTH_DEFAULT, HostOptions, QUEUES_DEFAULT};

/// A help text that belongs to no single command.
pub(crate) struct Topic {
    pub name: &'static str,
    pub about: &'static str,
    pub text: fn() -> String,
}

/// Every topic.
pub(crate) const TOPICS: [Topic; 6] = [
    Topic { name: "devices", about: "How devices are named", text: devices },
    Topic { name: "modes", about: "How writes get to a device", text: modes },
    Topic { name: "overwriting", about: "Overwriting a drive", text: overwriting },
    Topic { name: "job-options", about: "Options of the job language", text: job_options },
    Topic { name: "sizes", about: "How sizes and addresses are written", text: sizes },
    Topic { name: "exit-codes", about: "What the program exits with", text: exit_codes },
];

fn devices() -> String {
    "\
A device is named by its kind and, after a colon, its options, separated by commas.

  null:size=1T,zone_size=256M   keeps no data; for measuring what is above it
  ram:size=8G                   keeps data in memory until the program ends, and up to 1G that resets have freed, for reuse
  image:PATH, or just PATH      a drive in a file, made by `zonal create`; after a comma its options, as in
                                image:PATH,threads=4. A path with a comma stands in brackets: image:[PATH],threads=4.
                                A name that is just a path is a path to its end and has no options
  concat:[NAME][NAME]           the zones of several devices, one device after the other
  sim:PROFILE                   a simulated drive in virtual time; values of its profile can be given: sim:PROFILE,KEY=VALUE
                                also checked=many, =zone or =drive: break off a run in which the drive or the
                                write path does what none can; the word says how many writes it may have at once;
                                keep=data: keep data in memory, as ram does
  nvme-tcp://ADDR:PORT/NQN      a namespace of an NVMe/TCP controller, such as `zonal serve`: the first zoned one, or the first.
                                After a comma its options: nsid=2 takes another namespace

A wrapper and a plus sign go before the name of the device they wrap.

  trace:file=F+null:size=1G     writes every submission and completion to the file F; with overwrite=1 over an old one
  linear:zone=4,zones=8+NAME    eight zones of a device, from the fifth on
  fault:plan=F,seed=7+NAME      misbehaves as the plan F says, see docs/FAULT.md
  fault:seed=7,medium=1/1000+NAME
                                misbehaves by chance; each of these kinds at its rate, 0 to 1 or a fraction:
KINDS
  timing:PROFILE+NAME           answers in the time of that drive; values as for sim

PROFILES
Options of null and ram, with what holds if they are not given:

"
    .replace("KINDS", &fault_kinds())
    .replace("PROFILES", &profiles())
        + &option_lines(&emulated_options())
        + "\nOptions of image:\n\n"
        + &option_lines(&image_options())
        + "\nOptions of nvme-tcp:\n\n"
        + &option_lines(&remote_options())
}

/// An option of a device: name, default, meaning.
type OptionRow = (&'static str, String, String);

fn row(name: &'static str, default: impl ToString, about: &str) -> OptionRow {
    (name, default.to_string(), about.to_owned())
}

fn option_lines(rows: &[OptionRow]) -> String {
    rows.iter().map(|(name, default, about)| format!("  {name:<26} {default:<7} {about}\n")).collect()
}

/// A choice as names of devices have it.
fn word(choice: impl std::fmt::Debug) -> String {
    format!("{choice:?}").to_lowercase()
}

fn image_options() -> [OptionRow; 6] {
    let o = OpenOptions::default();
    [
        row(
            "threads",
            o.threads,
            "helper threads for file I/O, at most 256; 0: it is done at submission, which then blocks",
        ),
        row(
            "readonly",
            u8::from(o.mode == OpenMode::Reading),
            "1: opened for reading, beside other readers; commands that would change it fail",
        ),
        row("submit_queues", o.submit_queues, "number of queues"),
        row("hw_queue_depth", o.hw_queue_depth, "commands on a queue beyond which it is busy"),
        row("max_sectors", o.max_sectors, "largest read or write"),
        row("preserves_write_order", u8::from(o.preserves_write_order), "whether each queue keeps its order"),
    ]
}

fn remote_options() -> [OptionRow; 6] {
    let o = HostOptions::default();
    [
        row("nsid", "", "number of the namespace"),
        row(
            "submit_queues",
            QUEUES_DEFAULT,
            "number of I/O queues, each with a connection; the controller may grant fewer",
        ),
        row(
            "hw_queue_depth",
            DEPTH_DEFAULT,
            "commands on a queue beyond which it is busy; the controller may take fewer",
        ),
        row("header_digest", u8::from(o.header_digest), "1: digests of headers, if the controller has them"),
        row("data_digest", u8::from(o.data_digest), "1: digests of data, if the controller has them"),
        row(
            "preserves_write_order",
            "0",
            "1: the controller is known to keep the order of each queue, as `zonal serve` does",
        ),
    ]
}

/// The profiles that come with the program, a line each.
fn profiles() -> String {
    let known = zonal_sim::Profile::names().filter_map(|name| zonal_sim::Profile::open(name, &[]).ok());
    let lines: String = known.map(|p| format!("  {:<29} {}\n", p.name, p.title)).collect();
    format!("Profiles of drives; PROFILE may also be the path of such a file:\n\n{lines}")
}

/// The kinds of faults that have a rate, four a line.
fn fault_kinds() -> String {
    let kinds: Vec<&str> = zonal_io::fault::rate_kinds().collect();
    kinds.chunks(4).map(|line| format!("{:32}{}\n", "", line.join(", "))).collect()
}

fn emulated_options() -> [OptionRow; 20] {
    let o = EmulatedOptions::default();
    let in_memory = size_text(EmulatedOptions::in_memory().size);
    [
        row("size", size_text(o.size), &format!("size of the drive; {in_memory} for ram")),
        row("zone_size", size_text(o.zone_size), "size of a zone, a power of two"),
        row("zone_capacity", o.zone_capacity, "writable part of a sequential zone; 0 is all of it"),
        row("zone_nr_conv", o.zone_nr_conv, "number of conventional zones, which come first"),
        row("zone_max_open", o.zone_max_open, "largest number of open zones; 0 is no limit"),
        row("zone_max_active", o.zone_max_active, "largest number of active zones; 0 is no limit"),
        row("zone_append_max_sectors", "", "largest native zone append; 0 is none; no limit if not given"),
        row("zone_full", u8::from(o.zone_full), "1: sequential zones start full"),
        row("blocksize", o.blocksize, "logical block in bytes, up to 4096"),
        row("max_sectors", o.max_sectors, "largest read or write"),
        row("write_zeroes_max_sectors", "", "largest write-zeroes command; 0 is none; no limit if not given"),
        row("complete", word(o.complete), "inline: answer at once; poll: when polled"),
        row("completion_nsec", o.completion_nsec, "shortest time to an answer; implies complete=poll"),
        row("hw_queue_depth", o.hw_queue_depth, "commands on a queue beyond which it is busy"),
        row("submit_queues", o.submit_queues, "number of queues"),
        row("fua", u8::from(o.fua), "whether single writes can be made durable"),
        row("rotational", u8::from(o.rotational), "whether to pass for a medium that turns"),
        row("preserves_write_order", u8::from(o.preserves_write_order), "whether each queue keeps its order"),
        row("personality", word(o.personality), "zns or zbc: whose rules to follow where they differ"),
        row("lock", word(o.lock), "device: one command at a time, as a baseline"),
    ]
}

fn modes() -> String {
    "\
A write mode says how writes to sequential zones get to the device. Without one, the device's properties choose: qd1 if
it is rotational, append if it has native zone append, per-zone otherwise; `zonal info` says which and why.

  direct     as they come, for a caller who keeps the order; for comparison
  zone-lock  after a deadline scheduler that locks the zone of each write, as before there were plugs; for comparison
  per-zone   one write a zone at a time; contiguous ones that wait share a command
  qd1        one write of all sequential zones of a disk at a time, a zone's waiting ones before those of the next; a
             concatenation has one for each of its devices
  pipelined  a window of writes a zone at a time, all through one queue of the device, which has to keep their order;
             what it reorders is sent again. Other devices are refused without --force-mode
  append     native zone appends, several at a time; writes that name their place go one by one

In zone-lock, per-zone, qd1 and pipelined a zone append becomes a write at the zone's pointer. `zonal bench --write-mode`
sets the mode of a run, `zonal mode DEVICE --set` that of a running process; direct and zone-lock are chosen when the device is
opened, and stay. With `--keep` it is kept for the device, and later commands write to that in this mode unless they say
otherwise.
"
    .to_owned()
}

fn overwriting() -> String {
    "\
Commands that write to a drive, reset its zones or take them offline check first for a file system (Zonal, XFS, btrfs,
F2FS, zonefs, ext2 to ext4) and for a partition table (GPT, MBR). If there is one, they print its type, change nothing,
and exit with 4. --yes overwrites it.

  bench      unless its jobs only read; --readonly refuses jobs that write
  replay, calibrate, reset, finish
  zone       --set offline, if no process has the drive open
  mkfs       also over zones with other data
  fio        the engine; the job option is yes=1

calibrate also requires --yes if the zones that it uses contain data. The other commands ignore data of unknown origin.
Devices in memory (null, ram, sim) start empty and are not checked. Only the beginning of a device is checked: of the range
with linear, of the first device with concat. A drive that is mounted or open in another process is always refused.
"
    .to_owned()
}

/// Columns of a topic.
const COLUMNS: usize = 110;

fn job_options() -> String {
    let mut text = "\
These options of fio's job language have an effect, other names after a stroke. They mean what fio's manual says of
them; docs/BENCH.md says where they differ. `zonal bench --list-ignored` lists those that are accepted without
effect, each with the reason; every other option of fio is refused.

"
    .to_owned();
    let mut line = String::new();
    for option in zonal_bench::job::supported() {
        let name = std::iter::once(&option.name).chain(option.aliases).copied().collect::<Vec<_>>().join("|");
        if line.len() + 2 + name.len() > COLUMNS {
            let _ = writeln!(text, "{line}");
            line.clear();
        }
        line += &format!("  {name}");
    }
    let _ = writeln!(text, "{line}");
    text
}

fn sizes() -> String {
    "\
A size is a number of bytes, or a number followed by k, m, g, t or p in either case, for powers of 1024.

An address on the command line, as in `--offset`, is a number of 512-byte sectors, decimal or hexadecimal after 0x,
as listings print it. Followed by a letter it is a size: 256M, 0x80000 and 524288 are one place.
"
    .to_owned()
}

/// The table of exit codes.
pub(crate) fn exit_codes() -> String {
    let mut text = String::new();
    for exit in Exit::ALL {
        let _ = writeln!(text, "{:>5}  {}", exit as u8, exit.meaning());
    }
    let _ = writeln!(text, "{INTERRUPTED:>5}  {}", Exit::INTERRUPTED_MEANING);
    let _ = writeln!(text, "{CLOSED_PIPE:>5}  {}", Exit::CLOSED_PIPE_MEANING);
    let _ = writeln!(text, "{TERMINATED:>5}  {}", Exit::TERMINATED_MEANING);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_io::registry::{NameProblem, Registry};
    use zonal_io::volume::WriteMode;

    #[test]
    fn options_that_are_listed_exist_and_take_the_default_that_is_told() {
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
        let listed: Vec<&str> =
            text.lines().filter(|line| line.starts_with("  ")).flat_map(str::split_whitespace).collect();
        for option in zonal_bench::job::supported() {
            let names: Vec<&str> =
                std::iter::once(option.name).chain(option.aliases.iter().copied()).collect();
            assert!(listed.contains(&names.join("|").as_str()), "{names:?} is not in\n{text}");
        }
        assert_eq!(listed.len(), zonal_bench::job::supported().len());
        assert!(text.lines().all(|line| line.len() <= COLUMNS + 6), "{text}");
    }

    #[test]
    fn every_write_mode_is_told_where_one_is_asked_for() {
        let helps = ["bench", "mode"].map(|command| crate::cli::help(Some(command), None).unwrap());
        for mode in WriteMode::ALL {
            assert!(modes().contains(&format!("\n  {:<10} ", mode.name())), "{mode} is not in the topic");
            let asked_for = if mode.is_switchable() { &helps[..] } else { &helps[..1] };
            for help in asked_for {
                assert!(help.contains(mode.name()), "{mode} is not in\n{help}");
            }
        }
    }
}
