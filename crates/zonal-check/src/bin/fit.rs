//! `fit ZONAL PROFILE [KEY=VALUE...] [hold=KEY...]`: fits a built-in profile to those figures of
//! `experiments/` that have the status calibrated, starting from its own values or the given ones,
//! and prints the effect of each value. Held values are left unchanged by the search.

use std::path::Path;
use std::process::ExitCode;
use zonal_check::experiment::Experiment;
use zonal_check::experiment::simulated::{Begin, fit};
use zonal_check::program::repository;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [zonal, profile, given @ ..] = arguments.as_slice() else {
        eprintln!("usage: fit ZONAL PROFILE [KEY=VALUE...] [hold=KEY...]");
        return ExitCode::from(2);
    };
    let mut begin = Begin::default();
    for word in given {
        match word.split_once('=') {
            Some(("hold", key)) => begin.held.push(key.to_owned()),
            Some((key, value)) => begin.given.push((key.to_owned(), value.to_owned())),
            None => {
                eprintln!("fit: a value must have the form KEY=VALUE");
                return ExitCode::from(2);
            }
        }
    }
    match make(zonal, profile, &begin) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("fit: {error}");
            ExitCode::FAILURE
        }
    }
}

fn make(zonal: &str, profile: &str, begin: &Begin) -> Result<String, String> {
    let all = Experiment::all(&repository().join("experiments")).map_err(|e| e.to_string())?;
    // The program runs in the experiment's directory.
    let zonal = Path::new(zonal).canonicalize().map_err(|e| format!("{zonal}: {e}"))?;
    fit(&all, profile, begin, &zonal, &mut |line| eprintln!("{line}"))
}
