//! Zoned examples that are distributed with fio.

use crate::support::{engine, fio, with_image};
use std::path::{Path, PathBuf};
use zonal_check::program::repository;

/// Examples with `zonemode=zbd`.
fn examples() -> Vec<PathBuf> {
    let installed = Path::new("/usr/share/doc/fio/examples").to_owned();
    // scripts/setup.sh unpacks them here on systems that do not install documentation.
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

/// Options of other engines, and options that make a job long.
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

/// Adapts a job file to `device`: uses this engine, shortens the jobs, and provides data for reads.
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
            // Options that take values from the environment.
            (_, "[override]") => break,
            _ => {
                all += line;
                all.push('\n');
            }
        }
    }
    // Limits the blocks of a job to keep a drive in memory small.
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
                // Its first jobs would start in the conventional zone, where their size is not a
                // multiple of the zone size.
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
