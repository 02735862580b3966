//! `instructions PATH COUNT`: runs COUNT requests along a path, to be used under an instruction
//! counter. Without arguments it lists the paths.

use std::process::ExitCode;
use zonal_check::bench::instructions::{PATHS, Path};
use zonal_check::bench::{SERVED_PATHS, SHOWN_PATHS};

fn paths() -> impl Iterator<Item = &'static Path> {
    PATHS.iter().chain(&SERVED_PATHS).chain(&SHOWN_PATHS)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, count] = &args[..] else {
        paths().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    let go = paths().find(|(name, _)| name == path);
    match (go, count.parse()) {
        (Some((_, go)), Ok(count)) => go(count),
        _ => {
            eprintln!("usage: instructions PATH COUNT");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
