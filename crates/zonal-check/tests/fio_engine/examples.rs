//! fio's own zoned examples.

use crate::support::{engine, fio, with_image};
use std::path::{Path, PathBuf};
use zonal_check::program::repository;

/// The examples with `zonemode=zbd`.
fn examples() -> Vec<PathBuf> {
    let installed = Path::new("/usr/share/doc/fio/examples").to_owned();
    // Where a system leaves documentation out, setup unpacks them here.
    let unpacked = repository().join("out/fio-examples/usr/share/doc/fio/examples");
    let folder = [installed, unpacked].into_iter().find(|f| f.join("zbd-seq-read.fio").exists());
    let folder = folder.expect("fio's examples; scripts/setup.sh installs them");
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "fio"))
        .filter(|p| std::fs::read_to_string(p).unwrap().contains("zonemode=zbd"))
        .collect();
    found.sort();
    found
}

/// Options of other engines, and what makes a job long.
const LEFT_OUT: [&str; 10] = [
    "filename",
    "ioengine",
    "cmd_type",
    "sqthread_poll",
    "sqthread_poll_cpu",
    "registerfiles",
    "nonvectored",
    "ramp_time",
    "time_based",
    "runtime",
];

/// The job file for `device`: on this engine, shorter, and with something to be read where it reads.
fn adapted(text: &str, engine: &Path, device: &str, has_data: bool) -> String {
    let mut all = format!("[global]\nioengine=external:{}\ndevice={device}\nthread\n", engine.display());
    let reads = text.contains("rw=read");
    if reads {
        all += "[fill]\nrw=write\nbs=1M\nzonemode=zbd\noffset=140660178944\nsize=10G\nio_size=24M\n";
        all += "[global]\nstonewall\n";
    }
    for line in text.lines() {
        let key = line.split('=').next().unwrap();
        match (key, line) {
            (key, _) if LEFT_OUT.contains(&key) => {}
            ("verify", _) if !has_data => {}
            (_, "size=1G") => all += "size=16M\n",
            // What it takes from variables of the environment.
            (_, "[override]") => break,
            _ => {
                all += line;
                all.push('\n');
            }
        }
    }
    // As many blocks a job as keep a drive in memory small.
    let amount = if text.contains("bs=512K") { "io_size=4M\n" } else { "" };
    all.replace("[dev1]\n", &format!("[dev1]\n{amount}"))
}

/// Slow: it runs all zoned examples of fio on every device.
#[test]
fn every_zoned_example_ends_without_errors_on_every_device() {
    let Some(engine) = engine() else { return };
    let examples = examples();
    assert!(examples.len() >= 6, "{examples:?}");
    for example in &examples {
        let text = std::fs::read_to_string(example).unwrap();
        let (size, zone) = if text.contains("zonesize=256M") { ("144G", "256M") } else { ("1G", "4M") };
        for kind in ["null", "ram", "image"] {
            let directory = with_image();
            let geometry = format!("size={size},zone_size={zone},zone_nr_conv=1,zone_max_open=128");
            let device = match kind {
                "image" => {
                    let options = [
                        "create",
                        "big.zonal",
                        "--size",
                        size,
                        "--zone-size",
                        zone,
                        "--zone-max-open",
                        "128",
                    ];
                    crate::support::run_zonal(directory.path(), &options).unwrap();
                    "big.zonal".to_owned()
                }
                // Its first jobs would be in the conventional zone, where their size is no whole number of zones.
                kind => format!("{kind}:{}", geometry.replace(",zone_nr_conv=1", "")),
            };
            std::fs::write(directory.path().join("job.fio"), adapted(&text, engine, &device, kind != "null"))
                .unwrap();
            let counts = fio(directory.path(), &["job.fio"], |_| {}).succeeded().counts();
            let wanted = if text.contains("rw=read") { counts.reads } else { counts.writes };
            assert!(wanted > 0, "{} on {kind}: {counts:?}", example.display());
            if text.contains("verify=") && kind != "null" {
                assert!(counts.reads > 0, "{} on {kind}: nothing was verified", example.display());
            }
        }
    }
}
