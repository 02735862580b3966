//! Runs a job file on an emulated null device and prints the report: a quick look, not the command line.
//!
//! `run_job FILE|--OPTION... [mode=MODE[,MODE]...] [json|json+]`

use std::sync::Arc;
use zonal_bench::job::{Environment, JobParser};
use zonal_bench::{BenchOptions, Detail, run};
use zonal_io::device::Device;
use zonal_io::emulated::{Emulated, EmulatedOptions, Null};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let format = arguments.pop_if(|last| last.starts_with("json"));
    let modes = arguments.pop_if(|last| last.starts_with("mode="));
    let mut parser = JobParser::new(Environment::of_process());
    for path in parser.command_line(&arguments)? {
        parser.file(&std::fs::read_to_string(&path)?, &path)?;
    }
    let open = || {
        let options = EmulatedOptions { size: 1 << 40, ..Default::default() };
        Ok(Arc::new(Emulated::new("null:size=1T", &options, Null)?) as Arc<dyn Device>)
    };
    let mut options = BenchOptions::new(parser.finish()?);
    options.progress = true;
    if let Some(modes) = modes {
        options.modes = modes["mode=".len()..].split(',').map(str::parse).collect::<Result<_, _>>()?;
    }
    let report = run(&open, &options)?;
    match format.as_deref() {
        Some("json+") => println!("{}", report.to_json(Detail::Bins)),
        Some(_) => println!("{}", report.to_json(Detail::Plain)),
        None => print!("{}", report.to_text()),
    }
    Ok(())
}
