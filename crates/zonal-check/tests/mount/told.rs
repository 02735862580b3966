//! Options of a mount, and the names by which commands find it.

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::fs;
use zonal_check::program;
use zonal_check::program::mounted::{MountPlace, bytes};

#[test]
fn mount_is_found_by_its_device_and_by_directories_in_it() {
    let place = MountPlace::new("128M");
    let mut mounted = place.mount("");
    fs::create_dir(mounted.at("sub")).unwrap();
    fs::write(mounted.at("sub/f"), bytes(1, 1 << 20)).unwrap();
    place.zonal("sync image:d.img");
    place.zonal("sync m/sub");
    assert_eq!(place.zonal("df d.img --json"), place.zonal("df m --json"));
    let root = place.dir().display().to_string();
    for (name, root) in [("m", "m"), ("m/sub", &root), ("d.img", &root), ("image:d.img", &root)] {
        let said = place.zonal(&format!("scrub {name} --restart"));
        assert!(
            said.starts_with(&format!("{root}: ")) && said.contains("nothing is damaged"),
            "{name}: {said}"
        );
    }
    let said = program::run(place.home(), "sync nowhere").refused(1);
    assert!(said.contains("nowhere: no such directory"), "{said}");
    place.zonal("unmount d.img");
    // A log is appended to, which would break an image.
    let said = program::run(place.home(), "mount d.img m --daemon --log d.img").refused(2);
    assert!(said.contains("an image; name another file"), "{said}");
    assert_eq!(mounted.wait().code(), Some(0));
    place.check();
}

#[test]
fn two_mounts_of_a_device_are_distinguished_by_their_directories() {
    let place = MountPlace::new("128M");
    fs::create_dir(place.home().join("n")).unwrap();
    for dir in ["m", "n"] {
        place.zonal(&format!("mount image:d.img {dir} --daemon -o ro"));
    }
    let said = program::run(place.home(), "stat image:d.img").refused(2);
    assert!(said.contains("/m (") && said.contains("/n ("), "{said}");
    for dir in ["m", "n"] {
        assert!(place.zonal(&format!("stat {dir}")).contains("image:d.img"));
        place.zonal(&format!("unmount {dir}"));
    }
}

#[test]
fn remount_warns_about_options_it_does_not_change() {
    if !rustix::process::geteuid().is_root() {
        return program::skip("only root mounts by mount(8)");
    }
    let place = MountPlace::new("128M");
    place.zonal("mount image:d.img m --daemon -o threads=3,allow_other");
    let remount = |options: &str| {
        let said = program::run(place.home(), &format!("mount image:d.img m -o remount,{options}"));
        (said.code, said.err)
    };
    assert_eq!(remount("ro,threads=3,allow_other"), (Some(0), String::new()));
    let expected =
        "zonal: m: -o threads=9: not changed by a remount\nzonal: m: -o uid=7: not changed by a remount\n";
    assert_eq!(remount("rw,threads=9,uid=7"), (Some(0), expected.to_owned()));
    let file = fs::File::create(place.dir().join("f")).unwrap();
    let (code, said) = remount("ro");
    assert!(code == Some(1) && said.contains("m: in use: files are open for writing"), "{said}");
    drop(file);
    place.zonal("unmount m");
    place.check();
}

/// As written in /etc/fstab.
#[test]
fn log_and_metadata_are_options_too() {
    let place = MountPlace::new("128M");
    let home = place.home();
    for line in ["create e.img --size 128M --zone-size 4M", "mkfs image:e.img --metadata e.meta"] {
        program::run(home, line).done();
    }
    let said = program::run(home, "mount image:e.img m --daemon").refused(4);
    assert!(said.contains("metadata"), "{said}");
    program::run(home, "mount image:e.img m --daemon -o metadata=e.meta,log=log.txt").done();
    fs::write(place.dir().join("f"), b"f").unwrap();
    program::run(home, "unmount m").done();
    let log = fs::read_to_string(home.join("log.txt")).unwrap();
    let line = log.lines().find(|line| line.contains("dirty pages")).unwrap();
    // 2026-01-31T23:59:59Z
    let (time, rest) = line.split_at(21);
    assert!(time.starts_with("20") && time.ends_with("Z ") && rest.starts_with("dirty pages"), "{line}");
}

/// As written in /etc/fstab for a drive that may be missing.
#[test]
fn missing_device_is_no_error_with_nofail() {
    let place = MountPlace::new("128M");
    for device in ["missing.img", "image:missing.img,threads=1", "blk:[/dev/missing],queues=2"] {
        let output =
            program::command(place.home(), &format!("mount {device} m -o rw,nofail")).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{device}: {said}");
        assert!(said.contains("no such device; nothing is mounted at "), "{said}");
    }
    program::run(place.home(), "mount missing.img m").refused(4);
}

#[test]
fn attributes_that_would_mean_nothing_are_refused() {
    let place = MountPlace::new("128M");
    let mounted = place.mount("");
    fs::write(mounted.at("f"), b"f").unwrap();
    let set = |name: &str| rustix::fs::setxattr(mounted.at("f"), name, b"long", XattrFlags::empty());
    assert_eq!(set("user.zonal.lifetime"), Ok(()));
    assert_eq!(set("user.zonal.lifetimes"), Err(Errno::OPNOTSUPP));
    assert_eq!(set("user.zonalother"), Ok(()));
    mounted.end();
    place.check();
}
