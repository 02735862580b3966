//! What a command costs on an image, beside the bare file calls: one thread, page cache, a temporary directory or the one
//! given.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use zonal_core::{Nanos, Op, Sector};
use zonal_io::buffer::IoBuf;
use zonal_io::data::{Data, Segment};
use zonal_io::device::{Command, Context, Device, Submitted};
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};

const ZONE_SECTORS: u64 = (256 << 20) / 512;

fn run(device: &ImageDevice, op: Op, sector: u64, buffer: &mut IoBuf) {
    let sectors = (buffer.len() / 512) as u32;
    // SAFETY: the buffer outlives the command, which completes before this returns.
    let data = unsafe { Data::one(Segment::new(buffer.as_ptr(), buffer.len())) };
    let command = Command { op, fua: false, sectors, sector: Sector(sector), data };
    match device.submit(Nanos(0), 0, &command, &mut Some(Context::token(0))) {
        Submitted::Done(result) => drop(result.unwrap()),
        Submitted::Busy => panic!("busy"),
        Submitted::Pending => {
            let mut is_done = false;
            while !is_done {
                device.wait(Duration::from_secs(1));
                device.poll(Nanos(0), 0, 1, &mut |c| is_done = c.result.is_ok());
            }
        }
    }
}

fn microseconds(times: u64, work: impl FnMut(u64)) -> f64 {
    let started = Instant::now();
    (0..times).for_each(work);
    started.elapsed().as_secs_f64() * 1e6 / times as f64
}

fn main() {
    let given = std::env::args_os().nth(1).map(PathBuf::from);
    let directory =
        given.unwrap_or_else(std::env::temp_dir).join(format!("image-cost-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let path = directory.join("drive.img");
    ImageOptions { size: Some(16 << 30), ..Default::default() }.create(&path).unwrap();
    let file = File::options().write(true).read(true).create_new(true).open(directory.join("bare")).unwrap();
    let open = |threads| ImageDevice::open(&path, &OpenOptions { threads, ..Default::default() }).unwrap();

    println!("{:24} {:>9} {:>9} {:>9}   microseconds each", "", "bare file", "in line", "1 thread");
    for (kib, times) in [(4, 4000), (128, 1000)] {
        let mut buffer = IoBuf::zeroed(kib << 10);
        buffer.fill(7);
        let (bytes, sectors) = (u64::from(kib) << 10, u64::from(kib) * 2);
        let zone = u64::from(kib) * ZONE_SECTORS / 4;
        let bare = microseconds(times, |n| file.write_all_at(&buffer, n * bytes).unwrap());
        let mut costs = [0.0; 2];
        for (threads, cost) in costs.iter_mut().enumerate() {
            let (device, start) = (open(threads), zone + threads as u64 * ZONE_SECTORS);
            *cost = microseconds(times, |n| run(&device, Op::Write, start + n * sectors, &mut buffer));
            device.close().unwrap();
        }
        println!("{:24} {bare:9.1} {:9.1} {:9.1}", format!("write of {kib} KiB"), costs[0], costs[1]);
        let bare = microseconds(times, |n| file.read_exact_at(&mut buffer, n * bytes).unwrap());
        for (threads, cost) in costs.iter_mut().enumerate() {
            let (device, start) = (open(threads), zone + threads as u64 * ZONE_SECTORS);
            *cost = microseconds(times, |n| run(&device, Op::Read, start + n * sectors, &mut buffer));
        }
        println!("{:24} {bare:9.1} {:9.1} {:9.1}", format!("read of {kib} KiB"), costs[0], costs[1]);
    }
    let mut buffer = IoBuf::zeroed(4096);
    let bare = microseconds(100, |n| {
        file.write_all_at(&buffer, n * 4096).unwrap();
        file.sync_data().unwrap();
    });
    let device = open(0);
    let flushed = microseconds(100, |n| {
        run(&device, Op::Write, n * 8, &mut buffer);
        run(&device, Op::Flush, 0, &mut IoBuf::empty());
    });
    println!("{:24} {bare:9.1} {flushed:9.1}", "write of 4 KiB and flush");
    drop(device);
    std::fs::remove_dir_all(&directory).unwrap();
}
