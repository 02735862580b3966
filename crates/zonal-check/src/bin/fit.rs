//! `fit ZONAL PROFILE [KEY=VALUE...]`: fits a profile that comes with the program to the figures of `experiments/` that are
//! called calibrated, beginning with its own values or the given ones, and prints what each value does.

use std::path::Path;
use std::process::ExitCode;
use zonal_check::experiment::Experiment;
use zonal_check::experiment::simulated::fit;
use zonal_check::program::repository;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [zonal, profile, given @ ..] = arguments.as_slice() else {
        eprintln!("usage: fit ZONAL PROFILE [KEY=VALUE...]");
        return ExitCode::from(2);
    };
    let given: Option<Vec<(String, String)>> =
        given.iter().map(|word| word.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()))).collect();
    let Some(given) = given else {
        eprintln!("fit: values are given as KEY=VALUE");
        return ExitCode::from(2);
    };
    match make(zonal, profile, &given) {
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

fn make(zonal: &str, profile: &str, given: &[(String, String)]) -> Result<String, String> {
    let all = Experiment::all(&repository().join("experiments")).map_err(|e| e.to_string())?;
    // The program runs in the experiment's folder.
    let zonal = Path::new(zonal).canonicalize().map_err(|e| format!("{zonal}: {e}"))?;
    fit(&all, profile, given, &zonal, &mut |line| eprintln!("{line}"))
}
