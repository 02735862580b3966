//! Errors as seen by fio and its user.

use crate::support::{SMALL, engine, fio, run_on};

/// Runs a sequential write on a failing device, and checks error number and message.
fn fails(device: &str, job: &str, number: u64, text: &str) {
    let Some(engine) = engine() else { return };
    let run = run_on(engine, device, &format!("--name=f {job}"));
    assert_eq!(run.numbers(), [number], "{}", run.errors());
    let said = run.errors();
    let ours: Vec<&str> = said.lines().filter(|l| l.starts_with("zonal: ")).collect();
    assert!(ours.len() == 1 && ours[0].contains(text), "{said}");
}

const WRITE: &str = "--rw=write --zonemode=zbd --bs=64k --iodepth=8 --offset=4z --size=4z";

#[test]
fn failed_write_has_the_kernels_number_and_the_devices_text() {
    for (rate, number, text) in [("medium=1/4", 61, "medium error"), ("torn=1/4", 61, "medium error")] {
        for how in ["", ",complete=poll"] {
            fails(&format!("fault:seed=3,{rate}+ram:{SMALL}{how}"), WRITE, number, text);
        }
    }
}

#[test]
fn write_beside_the_pointer_is_an_io_error() {
    let job = "--rw=randwrite --bs=4k --iodepth=4 --offset=5M --size=512k";
    fails(&format!("ram:{SMALL}"), job, 5, "but the write pointer is at 0");
}

#[test]
fn zones_beyond_the_open_limit_have_the_block_layers_number() {
    // fio would respect the limit.
    let job =
        "--rw=write --zonemode=zbd --bs=64k --size=40z --io_size=40M --offset=4z --ignore_zone_limits=1";
    let Some(engine) = engine() else { return };
    // Explicitly open zones are not closed for others, and no job closes zones that fio left open;
    // so write one block to each zone.
    let device = "ram:size=64M,zone_size=1M,zone_max_open=2,zone_max_active=2";
    let jobs: String = (0..4)
        .map(|n| {
            format!(
                " --name=j{n} --stonewall {} --io_size=64k",
                job.replace("4z", &format!("{}z", 4 + n)).replace("40z", "1z")
            )
        })
        .collect();
    let run = run_on(engine, device, &jobs);
    assert_eq!(run.numbers(), [0, 0, 75, 75], "{}", run.errors());
}

#[test]
fn error_in_a_device_name_is_reported_with_its_position() {
    let Some(engine) = engine() else { return };
    let run = run_on(engine, "null:sise=1T", "--name=n --rw=read --size=1M");
    assert!(!run.output.status.success());
    assert!(run.errors().contains(r#"at "sise": no such option; did you mean "size"?"#), "{}", run.errors());
}

#[test]
fn options_that_need_threads_are_refused_without_them() {
    let Some(engine) = engine() else { return };
    let job = "--name=n --rw=read --size=1M --offset=0 --create_serialize=0";
    let run = run_on(engine, &format!("ram:{SMALL}"), job);
    assert!(run.errors().contains("create_serialize=0 needs thread=1"), "{}", run.errors());
    run_on(engine, &format!("ram:{SMALL}"), &format!("{job} --thread")).succeeded();
    let offload = "--name=n --rw=read --size=1M --io_submit_mode=offload";
    let run = run_on(engine, &format!("ram:{SMALL}"), offload);
    assert!(run.errors().contains("can't be used with offloaded submit"), "{}", run.errors());
}

/// An engine built for an fio version that does not exist, as seen by the installed fio: like an
/// engine of another release.
#[test]
fn fio_of_another_release_is_refused() {
    let Some(engine) = engine() else { return };
    let mut bytes = std::fs::read(engine).unwrap();
    let mut found = 0;
    for at in 0..bytes.len() - 9 {
        if &bytes[at..at + 9] == b"fio-3.33\0" {
            bytes[at + 7] = b'2';
            found += 1;
        }
    }
    assert!(found > 0);
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("other.so");
    std::fs::write(&other, bytes).unwrap();
    let engine = format!("--ioengine=external:{}", other.display());
    let run =
        fio(directory.path(), &["--name=n", &engine, "--device=null:", "--rw=read", "--size=1M"], |_| {});
    assert!(!run.output.status.success());
    let said = run.errors();
    assert!(said.contains("this engine was built for fio-3.32 and cannot run in fio-3.33"), "{said}");
}

#[test]
fn file_system_is_overwritten_only_if_that_is_asked_for() {
    let Some(engine) = engine() else { return };
    let dir = tempfile::tempdir().unwrap();
    zonal_check::program::run(dir.path(), "create d --size 192M --zone-size 8M --zone-nr-conv 2").done();
    zonal_check::program::run(dir.path(), "mkfs d --label films").done();
    let path = dir.path().join("d").into_os_string().into_string().unwrap();
    let image = || std::fs::read(&path).unwrap();
    let before = image();
    let refused = run_on(engine, &path, "--name=w --rw=write --bs=64k --size=128k");
    assert!(!refused.output.status.success());
    let said = refused.errors();
    assert!(said.contains("the file system `films` of Zonal on it; yes=1 overwrites it"), "{said}");
    assert!(image() == before);
    run_on(engine, &path, "--name=r --rw=read --bs=64k --size=128k").succeeded();
    // The second job finds the data of the first.
    run_on(engine, &path, "--name=w --rw=write --bs=64k --size=128k --yes=1 --name=again --stonewall --rw=write --bs=64k --size=128k --yes=1")
        .succeeded();
    assert!(image() != before);
}
