//! Cost of one command on the emulated devices, in nanoseconds, one thread.

use std::hint::black_box;
use std::time::Instant;
use zonal_core::{Nanos, Op, Sector};
use zonal_io::data::Data;
use zonal_io::device::{Command, Context, Device, Output, Submitted};
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Null};

const COUNT: u64 = 20_000_000;

fn command(op: Op, sector: u64) -> Command {
    Command { op, fua: false, sectors: 8, sector: Sector(sector), data: Data::NONE }
}

fn writes(device: &dyn Device) -> f64 {
    let sectors = device.info().geometry.sectors().0;
    let started = Instant::now();
    let mut sector = 0;
    for i in 0..COUNT {
        sector = if sector + 8 >= sectors { 0 } else { sector };
        let mut context = Some(Context::token(i));
        match device.submit(Nanos(0), 0, &command(Op::Write, sector), &mut context) {
            Submitted::Done(Ok(Output::Done)) => {}
            Submitted::Done(other) => panic!("{other:?}"),
            Submitted::Pending => drop(device.poll(Nanos(0), 0, 64, &mut |c| assert!(c.result.is_ok()))),
            Submitted::Busy => panic!("busy"),
        }
        sector += 8;
    }
    started.elapsed().as_secs_f64() * 1e9 / COUNT as f64
}

fn main() {
    let options = EmulatedOptions { size: 1 << 40, ..Default::default() };
    let poll = EmulatedOptions { complete: CompleteMode::Poll, ..options.clone() };
    let limited = EmulatedOptions { zone_max_open: 16, ..options.clone() };
    let only = std::env::args().nth(1);
    for (name, options) in [("inline", &options), ("limited", &limited), ("poll", &poll)] {
        if only.as_ref().is_some_and(|o| o != name) {
            continue;
        }
        let device: Box<dyn Device> = Box::new(Emulated::new(name, options, Null).unwrap());
        println!("{name} {:.1} ns a write", writes(black_box(&*device)));
    }
}
