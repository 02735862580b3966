//! The commands, one per module: its arguments, and `run`, which executes it.

pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod create;
pub(crate) mod doctor;
pub(crate) mod files;
pub(crate) mod help;
pub(crate) mod info;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod manage;
pub(crate) mod mode;
pub(crate) mod mount;
pub(crate) mod plugs;
mod range;
pub(crate) mod replay;
pub(crate) mod report;
mod results;
pub(crate) mod scrub;
pub(crate) mod serve;
pub(crate) mod stat;
pub(crate) mod unmount;
pub(crate) mod why;
pub(crate) mod zone;

use crate::cli::Command;
use crate::exit::Failure;
use std::io::Write;
use zonal_core::device::ZoneAction;

pub(crate) fn run(command: Command, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        Command::Create(arguments) => create::run(&arguments, out),
        Command::Info(arguments) => info::run(&arguments, out),
        Command::List(arguments) => list::run(&arguments, out),
        Command::Doctor(arguments) => doctor::run(&arguments, out),
        Command::Report(arguments) => report::run(&arguments, out),
        Command::Reset(arguments) => manage::run_overwriting(&arguments, ZoneAction::Reset, out),
        Command::Open(zones) => manage::run(&zones, ZoneAction::Open, out),
        Command::Close(zones) => manage::run(&zones, ZoneAction::Close, out),
        Command::Finish(arguments) => manage::run_overwriting(&arguments, ZoneAction::Finish, out),
        Command::Bench(arguments) => bench::run(&arguments, out),
        Command::Compare(arguments) => compare::run(&arguments, out),
        Command::Calibrate(arguments) => calibrate::run(&arguments, out),
        Command::Replay(arguments) => replay::run(&arguments, out),
        Command::Mkfs(arguments) => files::mkfs::run(&arguments, out),
        Command::Put(arguments) => files::put::run(&arguments),
        Command::Get(arguments) => files::get::run(&arguments, out),
        Command::Cat(arguments) => files::get::run_cat(&arguments, out),
        Command::Tar(arguments) => files::tar::run(&arguments, out),
        Command::Mkdir(arguments) => files::mkdir::run(&arguments),
        Command::Mv(arguments) => files::mkdir::run_mv(&arguments),
        Command::Ls(arguments) => files::ls::run(&arguments, out),
        Command::Rm(arguments) => files::rm::run(&arguments),
        Command::Df(arguments) => files::df::run(&arguments, out),
        Command::Fsck(arguments) => files::fsck::run(&arguments, out),
        Command::Dump(arguments) => files::dump::run(&arguments, out),
        Command::Mount(arguments) => mount::run(&arguments, out),
        Command::Unmount(arguments) => unmount::run(&arguments),
        Command::Sync(arguments) => unmount::run_sync(&arguments),
        Command::Scrub(arguments) => scrub::run(&arguments, out),
        Command::Serve(arguments) => serve::run(&arguments, out),
        Command::Mode(arguments) => mode::run(&arguments, out),
        Command::Zone(arguments) => zone::run(&arguments, out),
        Command::Plugs(arguments) => plugs::run(&arguments, out),
        Command::Stat(arguments) => stat::run(&arguments, out),
        Command::Why(arguments) => why::run(&arguments, out),
        Command::Completions(arguments) => completions::run(&arguments, out),
        Command::Man(arguments) => man::run(&arguments, out),
        Command::Help(arguments) => help::run(&arguments, out),
    }
}
