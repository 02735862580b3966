//! Runs the conformance kit of devices on a device by its name: `conformance DEVICE [any] [STEPS]`.
//!
//! With `any`, a refused command may fail with any error, and the device may count its resources
//! otherwise than the standard. The device is erased. Exits with 1 if it violates the contract.

use std::process::ExitCode;
use zonal_io::device::conformance::{Errors, Options, check};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(name) = arguments.next() else {
        eprintln!("usage: conformance DEVICE [any] [STEPS]");
        return ExitCode::from(2);
    };
    let mut options = Options::default();
    for argument in arguments {
        match (argument.as_str(), argument.parse()) {
            ("any", _) => {
                (options.errors, options.allows_more, options.refuses_more) = (Errors::Any, true, true);
            }
            (_, Ok(steps)) => options.steps = steps,
            _ => {
                eprintln!("conformance: {argument}: neither `any` nor a number of steps");
                return ExitCode::from(2);
            }
        }
    }
    let device = match zonal::open(&name) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("conformance: {error}");
            return ExitCode::from(2);
        }
    };
    let report = check(&*device, &options);
    println!("{report}");
    ExitCode::from(u8::from(!report.is_conformant()))
}
