//! Definitions of the command line.

use crate::commands::files::{df, dump, fsck, get, ls, mkdir, mkfs, put, rm, tar};
use crate::commands::{
    bench, calibrate, completions, create, help, info, man, manage, mode, mount, plugs, replay, report,
    scrub, serve, stat, unmount, why, zone,
};
use crate::defaults::fill_help;
use crate::topics::TOPICS;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;

/// Zoned storage in user space: emulated drives, ordered writes at any depth, zone listings and benchmarks
#[derive(Parser, Debug)]
#[command(
    name = "zonal",
    version,
    disable_help_subcommand = true,
    subcommand_required = true,
    after_help = after_help()
)]
pub struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

fn after_help() -> String {
    let mut text = "Topics, for `zonal help TOPIC`:\n".to_owned();
    for topic in TOPICS {
        text += &format!("  {:<12} {}\n", topic.name, topic.about);
    }
    text
}

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Create(create::Create),
    Info(info::Info),
    Report(report::Report),
    /// Reset zones: empty them and put their write pointers back to their starts
    #[command(mut_arg("all", |all| all.help("All zones that are open, closed or full")))]
    Reset(manage::Overwritten),
    /// Open zones explicitly
    ///
    /// A drive keeps zones open while it is in use: when this command ends, those of an image are closed, or empty if
    /// nothing was written to them. So it shows whether a drive has room for them.
    #[command(mut_arg("all", |all| all.help("All zones that are closed")))]
    Open(manage::Zones),
    /// Close open zones
    ///
    /// In an image zones are closed when the process that has it open ends; there is nothing to close then.
    #[command(mut_arg("all", |all| all.help("All zones that are open")))]
    Close(manage::Zones),
    /// Finish zones: make them full
    #[command(mut_arg("all", |all| all.help("All zones that are open or closed")))]
    Finish(manage::Overwritten),
    #[command(mut_arg("force_mode", |force| force.visible_alias("force")))]
    Bench(bench::Bench),
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

/// The whole definition, for parsing, completions, manual pages and documentation.
pub fn command() -> clap::Command {
    Cli::command().mut_subcommands(|command| command.mut_args(fill_help))
}

/// Reads a command line.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command().try_get_matches_from(arguments)?)
}

/// What `zonal [COMMAND] --help` prints, or `None` if there is no such command. `columns` stands for the terminal's.
pub(crate) fn help(name: Option<&str>, columns: Option<usize>) -> Option<String> {
    let mut definition = command();
    if let Some(columns) = columns {
        definition = definition.term_width(columns);
    }
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

/// Whether `argument` is an option of `command`; if so, whether the next argument is its value.
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

/// What is wrong with a command line, in one line: clap's words without their layout.
pub(crate) fn one_line(error: &clap::Error) -> String {
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
