//! A process that is killed while writing, and its image.

use crate::image::drive;
use crate::image::model::{Loss, Model};
use crate::image::opening::{STARTING, open, small};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::{Read, Write};
use std::process::{Command as Process, Stdio};
use std::time::Duration;
use zonal_core::{Op, ZoneIndex};
use zonal_io::device::Device;
use zonal_io::image::ImageOptions;

/// Environment variable with the path of the child's image.
const IMAGE: &str = "ZONAL_KILL_IMAGE";
const ZONES: std::ops::Range<u32> = 1..5;

/// Child process: writes until it is killed, and prints each command before it is submitted and
/// after it was acknowledged. Not a test on its own.
#[test]
fn child_writes_until_killed() {
    let Some(path) = std::env::var_os(IMAGE) else { return };
    let device = open(path.as_ref()).unwrap();
    let mut random = Pcg64Mcg::seed_from_u64(u64::from(std::process::id()));
    let mut stamp = u64::from(std::process::id()) << 32;
    // Whole lines in one call each, so that a kill tears none.
    let say = |line: String| std::io::stderr().write_all(line.as_bytes()).unwrap();
    loop {
        let zone = random.random_range(ZONES);
        let start = device.info().geometry.start_of(ZoneIndex(zone)).0;
        match random.random_range(0..20) {
            0 => {
                drive::plain(&device, Op::Flush, 0, 0).unwrap();
                say("flushed\n".into());
            }
            1 => {
                say(format!("reset {zone}\n"));
                drive::plain(&device, Op::ZoneReset, start, 0).unwrap();
                say(format!("acked {zone}\n"));
            }
            2 => {
                say(format!("finish {zone}\n"));
                if drive::plain(&device, Op::ZoneFinish, start, 0).is_ok() {
                    say(format!("acked {zone}\n"));
                }
            }
            _ => {
                let n = random.random_range(1..64);
                let left = drive::describe(&device, zone);
                let Some(pointer) = left.write_pointer else { continue };
                let n = n.min(start + left.capacity.0 - pointer.0);
                let stamps: Vec<u64> = (stamp..stamp + n).collect();
                say(format!("write {zone} {} {stamp} {n}\n", pointer.0 - start));
                drive::write(&device, drive::command(Op::Append, start, n as u32), &stamps).unwrap();
                say(format!("acked {zone}\n"));
                stamp += n;
            }
        }
    }
}

#[test]
fn killed_writer_leaves_all_that_was_acknowledged() {
    killed_writers(&small(), 6);
}

#[test]
fn killed_writer_leaves_all_files_as_it_had_them() {
    // Two zones in each of eight files.
    killed_writers(&small().with_file_max(3 << 20), 3);
}

fn killed_writers(options: &ImageOptions, rounds: u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.img");
    options.create(&path).unwrap();
    let mut model = Model::new(&open(&path).unwrap());
    for round in 0..rounds {
        let starting = STARTING.write();
        let mut child = Process::new(std::env::current_exe().unwrap())
            .args(["image::kill::child_writes_until_killed", "--exact", "--nocapture"])
            .env(IMAGE, &path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(starting);
        let mut output = child.stderr.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            output.read_to_string(&mut text).map(|_| text)
        });
        std::thread::sleep(Duration::from_millis(30 + 40 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let said = reader.join().unwrap().unwrap();
        said.lines().for_each(|line| replay(&mut model, line));
        let device = open(&path).unwrap();
        model
            .check(&device, Loss::Process { keeps_acked: true, is_doubtful: false })
            .unwrap_or_else(|e| panic!("{round}: {e}"));
        device.zones().check().unwrap();
    }
}

fn replay(model: &mut Model, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |i: usize| words[i].parse::<u64>().unwrap();
    match words[0] {
        "flushed" => model.flushed(),
        "reset" => model.reset(number(1) as u32),
        "finish" => model.finished(number(1) as u32),
        "acked" => model.acked(number(1) as u32),
        "write" => {
            let stamps: Vec<u64> = (number(3)..number(3) + number(4)).collect();
            model.wrote(number(1) as u32, number(2) as u32, &stamps);
        }
        // Lines of the test runner.
        _ => {}
    }
}
