//! Definitions of the command line.

use crate::commands::files::{df, dump, fsck, get, ls, mkdir, mkfs, put, rm, tar};
use crate::commands::{
    bench, calibrate, compare, completions, create, doctor, help, info, list, man, manage, mode, mount,
    plugs, replay, report, scrub, serve, stat, unmount, why, zone,
};
use crate::defaults::fill_help;
use crate::topics::TOPICS;
use crate::value::suggestion;
use crate::{examples, wrap, write_path};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::fmt::Write;

/// Zoned storage in user space: emulated and simulated drives, benchmarks, files, a mount, and servers
#[derive(Parser, Debug)]
#[command(name = "zonal", version, disable_help_subcommand = true, subcommand_required = true)]
pub struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Headings of `zonal --help`, and the commands below each.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Drives", &["list", "doctor", "create", "info", "report", "reset", "open", "close", "finish", "zone"]),
    (
        "Benchmarks and simulation",
        &["bench", "compare", "replay", "calibrate", "mode", "plugs", "stat", "why"],
    ),
    ("Files", &["mkfs", "put", "get", "cat", "ls", "mkdir", "mv", "rm", "tar", "df", "fsck", "dump"]),
    ("Mount", &["mount", "unmount", "sync", "scrub"]),
    ("Servers", &["serve"]),
    ("Help", &["help", "man", "completions"]),
];

/// Columns of the names in `zonal --help`.
const NAME_COLUMNS: usize = 13;

/// Commands in their groups, and the topics.
fn overview(command: &clap::Command) -> String {
    let mut text = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(text, "{heading}:");
        for name in names {
            let command = command.find_subcommand(name).expect("groups have commands only");
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name:<NAME_COLUMNS$}{about}");
        }
        text.push('\n');
    }
    text += "Topics, for `zonal help TOPIC`:\n";
    for topic in &TOPICS {
        let _ = writeln!(text, "  {:<NAME_COLUMNS$}{}", topic.name, topic.about);
    }
    text
}

/// Commands of the program.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Create(create::Create),
    Info(info::Info),
    List(list::List),
    Doctor(doctor::Doctor),
    Report(report::Report),
    /// Reset zones: their data is lost, and their write pointers return to the start
    #[command(mut_arg("all", |all| all.help("All zones that are open, closed or full")))]
    Reset(manage::Overwritten),
    /// Open zones explicitly
    ///
    /// Zones of an image stay open only while the image is open: when this command ends they are closed, or empty again if nothing
    /// was written to them. The command shows whether the drive has room for them.
    #[command(mut_arg("all", |all| all.help("All zones that are closed")))]
    Open(manage::Zones),
    /// Close open zones
    ///
    /// Zones of an image are closed when the process that has it open ends, so there is nothing to close afterwards.
    #[command(mut_arg("all", |all| all.help("All zones that are open")))]
    Close(manage::Zones),
    /// Finish zones: make them full
    #[command(mut_arg("all", |all| all.help("All zones that are open or closed")))]
    Finish(manage::Overwritten),
    #[command(mut_arg("force_mode", |force| force.visible_alias("force")))]
    Bench(bench::Bench),
    Compare(compare::Compare),
    Calibrate(calibrate::Calibrate),
    #[command(mut_arg("force_mode", |force| force.visible_alias("force")))]
    Replay(replay::Replay),
    Mkfs(mkfs::Mkfs),
    Put(put::Put),
    Get(get::Get),
    Cat(get::Cat),
    Ls(ls::Ls),
    Mkdir(mkdir::Mkdir),
    Mv(mkdir::Mv),
    Tar(tar::Tar),
    Rm(rm::Rm),
    Df(df::Df),
    Fsck(fsck::Fsck),
    Dump(dump::Dump),
    Mount(mount::Mount),
    #[command(visible_alias = "umount")]
    Unmount(unmount::Unmount),
    Sync(unmount::Sync),
    Scrub(scrub::Scrub),
    Serve(serve::Serve),
    Mode(mode::Mode),
    Zone(zone::Zone),
    Plugs(plugs::Plugs),
    Stat(stat::Stat),
    Why(why::Why),
    Completions(completions::Completions),
    Man(man::Man),
    Help(help::Help),
}

/// Definition with every option, for completions.
pub(crate) fn complete() -> clap::Command {
    Cli::command().mut_subcommands(|command| command.mut_args(fill_help))
}

/// Definition for parsing, manual pages and documentation. Options that have a topic of their own are hidden in it.
pub fn command() -> clap::Command {
    complete().mut_subcommands(|command| {
        let has_topic = |a: &clap::Arg| a.get_help_heading() == Some(write_path::HEADING);
        if !command.get_arguments().any(has_topic) {
            return command;
        }
        let mut note = "The options of the write path are in `zonal help write-path`.".to_owned();
        if let Some(more) = command.get_after_long_help().or(command.get_after_help()) {
            note += &format!("\n\n{more}");
        }
        command.mut_args(|a| if has_topic(&a) { a.hide(true) } else { a }).after_long_help(note)
    })
}

/// Adds the layout of `--help`: examples first, and commands in groups.
fn with_layout(command: clap::Command, columns: usize) -> clap::Command {
    let overview = wrap::hanging(&overview(&command), columns);
    let command =
        command.help_template("{about}\n\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}");
    command.after_help(overview).mut_subcommands(|command| {
        let examples = format!("Examples:\n  {}", examples::of(command.get_name()).join("\n  "));
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let long = command.get_long_about().map(ToString::to_string).unwrap_or_default();
        let long = long.strip_prefix(&about).unwrap_or(&long).trim().to_owned();
        let more = if long.is_empty() { examples.clone() } else { format!("{examples}\n\n{long}") };
        let about = textwrap::fill(&about, columns).replace('\n', "{n}");
        command
            .about(about.clone())
            .long_about(about)
            .before_help(examples)
            .before_long_help(more)
            .help_template("{about}\n\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}")
    })
}

/// Reads a command line.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    let columns = wrap::columns();
    let definition = with_layout(command(), columns).term_width(columns);
    Cli::from_arg_matches(&definition.try_get_matches_from(arguments)?)
}

/// Output of `zonal [COMMAND] --help`, or `None` if there is no such command.
pub(crate) fn help(name: Option<&str>, columns: usize) -> Option<String> {
    let definition = with_layout(command(), columns).term_width(columns);
    if let Some(name) = name {
        definition.find_subcommand(name)?;
    }
    let arguments = ["zonal"].into_iter().chain(name).chain(["--help"]);
    Some(definition.try_get_matches_from(arguments).err()?.render().to_string())
}

/// Puts the arguments of `bench` that are not its own after a `--`, in order: they belong to the job language, which
/// has hundreds of options and takes them with one dash or two. Everything else stays as it is.
pub(crate) fn separate_job_options(arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_none_or(|a| a != "bench") {
        return arguments;
    }
    let mut definition = command();
    definition.build();
    let bench = definition.find_subcommand("bench").expect("it is defined above");
    let mut arguments = arguments.into_iter();
    let mut own: Vec<OsString> = arguments.by_ref().take(2).collect();
    let mut job = Vec::new();
    while let Some(argument) = arguments.next() {
        match own_option(bench, &argument) {
            _ if argument == "--" => {
                job.push(argument);
                job.extend(arguments.by_ref());
            }
            None => job.push(argument),
            Some(takes_next) => {
                own.push(argument);
                own.extend(takes_next.then(|| arguments.next()).flatten());
            }
        }
    }
    own.push("--".into());
    own.extend(job);
    own
}

/// `Some` if `argument` is an option of `command`: true if the next argument is its value.
fn own_option(command: &clap::Command, argument: &OsString) -> Option<bool> {
    let text = argument.to_str()?;
    if text == "-h" {
        return Some(false);
    }
    let (name, has_value) = match text.strip_prefix("--")?.split_once('=') {
        Some((name, _)) => (name, true),
        None => (text.strip_prefix("--")?, false),
    };
    let is_called = |a: &clap::Arg| {
        a.get_long() == Some(name) || a.get_all_aliases().is_some_and(|all| all.contains(&name))
    };
    let option = command.get_arguments().find(|a| is_called(a))?;
    // The value of an option that may stand alone follows its `=` or is missing.
    Some(option.get_action().takes_values() && !option.is_require_equals_set() && !has_value)
}

/// Commands of other programs, and the command of this one that does the same.
const INSTEAD: [(&[&str], &str); 8] = [
    (&["cp", "copy", "scp", "rsync"], "`zonal put` copies files in, and `zonal get` copies them out"),
    (&["format", "mkfs.zonal"], "`zonal mkfs` makes a file system, and `zonal reset --all` empties a drive"),
    (&["rmdir", "del", "delete", "unlink"], "`zonal rm` removes files, and `zonal rm -r` directories"),
    (&["zones", "blkzone", "report-zones"], "`zonal report` lists zones, and `zonal ls` files"),
    (&["new", "mkdrive", "truncate"], "`zonal create` creates a drive"),
    (&["run", "fio"], "`zonal bench` runs jobs of fio's language"),
    (
        &["check", "repair", "verify"],
        "`zonal fsck` checks a file system, and `zonal fsck --repair` repairs it",
    ),
    (
        &["ln", "chmod", "chown", "touch", "find", "du", "edit", "write", "read"],
        "mount the file system with `zonal mount DEVICE DIR`, and use the programs of the system there",
    ),
];

/// Error of a command line that begins with `command`, in one line: fact, cause and remedy.
pub(crate) fn explained(error: &clap::Error, command: &str) -> String {
    let unknown = match (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(name))) => name,
        (ErrorKind::MissingRequiredArgument | ErrorKind::UnknownArgument | ErrorKind::TooManyValues, _) => {
            let help = match complete().find_subcommand(command) {
                Some(_) => format!("zonal {command} --help"),
                None => "zonal help".to_owned(),
            };
            return format!("{}; see `{help}`", one_line(error));
        }
        _ => return one_line(error),
    };
    match INSTEAD.iter().find(|(names, _)| names.contains(&unknown.as_str())) {
        Some((_, instead)) => format!("{unknown}: no such command; {instead}"),
        None => {
            let definition = complete();
            let hint = suggestion(unknown, definition.get_subcommands().map(clap::Command::get_name));
            format!("{unknown}: no such command; {hint}")
        }
    }
}

/// One-line form of clap's message about a command line.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let said = text.split("\n\nUsage:").next().unwrap_or(text);
    let said = said.split("\n\nFor more information").next().unwrap_or(said);
    let mut line = String::new();
    for piece in said.lines().map(str::trim).filter(|piece| !piece.is_empty()) {
        if !line.is_empty() {
            line += if line.ends_with(':') { " " } else { "; " };
        }
        line += piece;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn separated(line: &str) -> String {
        let arguments = line.split(' ').map(OsString::from).collect();
        let separated = separate_job_options(arguments);
        separated.iter().map(|a| a.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn definition_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn job_options_go_behind_the_programs_own() {
        assert_eq!(
            separated("zonal bench --name=a -rw write --device null: x.fio --output-format=json --bs 4k"),
            "zonal bench --device null: --output-format=json -- --name=a -rw write x.fio --bs 4k"
        );
        assert_eq!(separated("zonal bench --name=a -- --device"), "zonal bench -- --name=a -- --device");
        assert_eq!(separated("zonal bench -h"), "zonal bench -h --");
        assert_eq!(
            separated("zonal bench --park x.fio --park=1M,1s y.fio"),
            "zonal bench --park --park=1M,1s -- x.fio y.fio"
        );
        assert_eq!(separated("zonal report --bs 4k"), "zonal report --bs 4k");
    }
}
