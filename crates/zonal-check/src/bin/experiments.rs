//! `experiments [--tiny] [--rounds N] ZONAL OUT [NAME...]`: runs the experiments of `experiments/`,
//! either all but the long ones or the named ones, with the program ZONAL. Prints a table of each
//! and writes it to the directory OUT, as text and as JSON.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use zonal_check::experiment::simulated::summary;
use zonal_check::experiment::{Experiment, Scale, linux, run};
use zonal_check::program::repository;

const USAGE: &str = "usage: experiments [--tiny] [--rounds N] ZONAL OUT [NAME...]";

struct Wanted {
    scale: Scale,
    zonal: PathBuf,
    out: PathBuf,
    names: Vec<String>,
}

fn wanted(arguments: impl Iterator<Item = String>) -> Option<Wanted> {
    let (mut scale, mut rest) = (Scale::Full { rounds: 3 }, Vec::new());
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--tiny" => scale = Scale::Tiny,
            "--rounds" => scale = Scale::Full { rounds: arguments.next()?.parse().ok().filter(|&n| n > 0)? },
            _ => rest.push(argument),
        }
    }
    let names = rest.split_off(rest.len().min(2));
    let [zonal, out] = rest.try_into().ok()?;
    // The program runs in the experiment's directory.
    Some(Wanted { scale, zonal: Path::new(&zonal).canonicalize().ok()?, out: out.into(), names })
}

fn main() -> ExitCode {
    let Some(wanted) = wanted(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match make(&wanted) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("experiments: {error}");
            ExitCode::FAILURE
        }
    }
}

fn make(wanted: &Wanted) -> Result<(), String> {
    let all = Experiment::all(&repository().join("experiments")).map_err(|e| e.to_string())?;
    if let Some(name) = wanted.names.iter().find(|name| all.iter().all(|e| e.name != **name)) {
        let known: Vec<&str> = all.iter().map(|e| e.name.as_str()).collect();
        return Err(format!("unknown experiment {name}; known: {}", known.join(", ")));
    }
    let is_wanted = |e: &Experiment| match wanted.names.as_slice() {
        [] => !e.is_long,
        names => names.contains(&e.name),
    };
    let mut made = Vec::new();
    for experiment in all.iter().filter(|e| is_wanted(e)) {
        let name = &experiment.name;
        eprintln!("{name}: {}", experiment.title);
        let (text, json) = match &experiment.linux {
            Some(how) => {
                let measured = linux::run(experiment, how, &all, &wanted.zonal, wanted.scale)?;
                (measured.to_text(), measured.to_json())
            }
            None => {
                let measured = run(experiment.clone(), &wanted.zonal, wanted.scale)?;
                let said = (measured.to_text(), measured.to_json());
                made.push(measured);
                said
            }
        };
        println!("{text}");
        let write = |extension: &str, text: String| {
            let path = wanted.out.join(format!("experiment-{name}.{extension}"));
            std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
        };
        write("txt", text)?;
        write("json", format!("{json:#}\n"))?;
    }
    if made.iter().filter(|measured| measured.experiment.is_simulated()).count() > 1 {
        println!("all experiments on simulated drives: {}", summary(made.iter()));
    }
    Ok(())
}
