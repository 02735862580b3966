//! Scrubs of a mount: while programs work, with damaged data, and interrupted.

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zonal_check::program;
use zonal_check::program::mounted::{MountPlace, bytes, open};

const MIB: u64 = 1 << 20;

/// Writes four files of 10 MiB, one after the other on the drive.
fn fill(place: &MountPlace) {
    for n in 0..4 {
        fs::write(place.dir().join(n.to_string()), bytes(n, 10 << 20)).unwrap();
        place.zonal("sync m");
    }
}

fn told(place: &MountPlace) -> serde_json::Value {
    let told: serde_json::Value = serde_json::from_str(&place.zonal("stat m --json")).unwrap();
    told["files"]["scrub"].clone()
}

/// Changes a byte in the image at block `block` of `data`.
fn damage(place: &MountPlace, data: &[u8], block: usize) {
    let path = place.home().join("d.img");
    let image = fs::read(&path).unwrap();
    let wanted = &data[block * 4096..][..4096];
    let at = image.chunks_exact(4096).position(|there| there == wanted).expect("it is on the drive");
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[!wanted[100]], at as u64 * 4096 + 100).unwrap();
}

#[test]
fn everything_is_verified_while_programs_write() {
    let place = MountPlace::new("256M");
    let mounted = place.mount("");
    fill(&place);
    let is_over = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let file = open(&mounted.at("new"), OFlags::RDWR | OFlags::CREATE);
            for round in (0..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                file.write_all_at(&bytes(round, 3 << 20), 0).unwrap();
                file.sync_all().unwrap();
            }
        });
        let said = (0..5).map(|_| program::run(place.home(), "scrub m --share 100")).collect::<Vec<_>>();
        is_over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        said
    });
    for said in said {
        let out = String::from_utf8(said.out).unwrap();
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{out}");
        assert!(out.starts_with("m: ") && out.ends_with(" verified; nothing is damaged\n"), "{out}");
    }
    let scrub = told(&place);
    assert!(scrub["bytes"].as_u64() > Some(40 * MIB) && scrub["ended"].is_i64(), "{scrub}");
    mounted.end();
}

#[test]
fn scrub_names_exactly_the_damaged_blocks() {
    let place = MountPlace::new("128M");
    let mut mounted = place.mount("");
    fill(&place);
    damage(&place, &bytes(1, 10 << 20), 700);
    damage(&place, &bytes(2, 10 << 20), 2000);
    let said = program::run(place.home(), "scrub m --share 100");
    let out = String::from_utf8(said.out).unwrap();
    assert_eq!(said.code, Some(3), "{out}");
    let lines: Vec<&str> = out.lines().collect();
    let [first, second] = lines[..] else { panic!("{out}") };
    assert!(first.starts_with("/1 (file ") && first.contains(", block 700: "), "{first}");
    assert!(second.starts_with("/2 (file ") && second.contains(", block 2000: "), "{second}");
    assert!(said.err.contains("damaged pieces: 2"), "{}", said.err);
    // Damage to the data of a removed file does not count.
    fs::remove_file(mounted.at("1")).unwrap();
    let said = program::run(place.home(), "scrub m --share 100");
    assert_eq!(String::from_utf8(said.out).unwrap().lines().collect::<Vec<_>>(), [second]);
    place.zonal("unmount m");
    assert!(mounted.wait().success());
    let log = mounted.log();
    assert_eq!(log.lines().filter(|line| line.contains("scrub: /")).count(), 3, "{log}");
}

/// Scrubs read pages of the metadata, too.
#[test]
fn damaged_metadata_is_found() {
    let place = MountPlace::new("128M");
    let mut mounted = place.mount("");
    for n in 0..3000 {
        fs::write(mounted.at(&format!("a name with some letters {n}")), b"").unwrap();
    }
    place.zonal("sync m");
    let path = place.home().join("d.img");
    let image = fs::read(&path).unwrap();
    // A page with names: earlier copies may belong to an older commit, and the last one is in use.
    let name = b"a name with some letters 15";
    let at = image.chunks_exact(4096).rposition(|page| page.windows(name.len()).any(|bytes| bytes == name));
    let at = at.expect("it is on the drive") as u64 * 4096;
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[!image[at as usize + 2000]], at + 2000).unwrap();
    let said = program::run(place.home(), "scrub m --share 100");
    let out = String::from_utf8(said.out).unwrap();
    assert_eq!(said.code, Some(3), "{out}{}", said.err);
    assert!(out.lines().count() == 1 && out.starts_with("metadata: "), "{out}");
    mounted.kill();
}

#[test]
fn scrub_that_is_stopped_continues_after_the_next_mount() {
    let place = MountPlace::new("128M");
    // On a drive with slow reads.
    let plan = "[[rule]]\non = \"read\"\nzones = \"3-\"\nfault = \"delay\"\ntime = \"30ms\"\n";
    fs::write(place.home().join("plan"), plan).unwrap();
    let mut mounted = place.mount_device("fault:plan=plan+image:d.img", "");
    fill(&place);
    damage(&place, &bytes(0, 10 << 20), 100);
    let mut command = program::command(place.home(), "scrub m --share 4");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Enough time to find the first file's damage, but not to read everything.
    std::thread::sleep(Duration::from_secs(2));
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(130), "{out}{err}");
    assert!(err.contains("the next scrub continues there"), "{err}");
    assert!(out.starts_with("/0 (file "), "{out}");
    let stopped = told(&place);
    let bytes = stopped["bytes"].as_u64().unwrap();
    assert!(bytes < 40 * MIB && stopped["ended"].is_null() && stopped["damaged"] == 1, "{stopped}");
    place.zonal("unmount m");
    assert!(mounted.wait().success());
    let mut mounted = place.mount("");
    let said = program::run(place.home(), "scrub m --share 100");
    // Damage found before is counted, but not read again.
    assert_eq!((said.code, String::from_utf8_lossy(&said.out).as_ref()), (Some(3), ""), "{}", said.err);
    let ended = told(&place);
    assert!(ended["ended"].is_i64() && ended["damaged"] == 1, "{ended}");
    assert!((40 * MIB..44 * MIB).contains(&ended["bytes"].as_u64().unwrap()), "{ended}");
    // A scrub from the beginning finds it again.
    let said = program::run(place.home(), "scrub m --share 100");
    assert!(said.code == Some(3) && said.out.starts_with(b"/0 (file "), "{}", said.err);
    place.zonal("unmount m");
    assert!(mounted.wait().success());
}

#[test]
fn scrub_needs_a_mount() {
    let place = MountPlace::new("128M");
    let said = program::run(place.home(), "scrub m").refused(1);
    assert!(said.ends_with("m: not mounted by `zonal mount`"), "{said}");
    // A read-only mount can be scrubbed, too, but its result is not recorded.
    let mounted = place.mount("ro");
    assert!(place.zonal("scrub m --share 100").contains("nothing is damaged"));
    assert!(told(&place).is_null());
    mounted.end();
}
