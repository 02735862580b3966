//! Ends of mounts and refused mounts, and the state afterwards.

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use zonal_check::program::mounted::{MountPlace, bytes, open};
use zonal_check::program::{self, ThreadLimit};
use zonal_io::buffer::IoBuf;

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

#[test]
fn written_data_survives_every_kind_of_unmount() {
    for end in ["unmount", "umount", "SIGTERM", "SIGINT"] {
        let place = MountPlace::new("128M");
        let mut mounted = place.mount("");
        let data = bytes(2, 5 << 20);
        fs::write(mounted.at("f"), &data).unwrap();
        match end {
            "unmount" => drop(place.zonal("unmount m")),
            "umount" => assert!(Command::new("umount").arg(place.dir()).status().unwrap().success()),
            "SIGTERM" => signal(mounted.pid(), Signal::TERM),
            _ => signal(mounted.pid(), Signal::INT),
        }
        assert_eq!(mounted.wait().code(), Some(0), "{end}");
        place.check();
        place.zonal("get image:d.img f copy");
        assert!(fs::read(place.home().join("copy")).unwrap() == data, "{end}");
    }
}

#[test]
fn signal_ends_a_mount_that_is_in_use_and_loses_nothing() {
    let place = MountPlace::new("128M");
    let mut mounted = place.mount("");
    let file = open(&mounted.at("f"), OFlags::RDWR | OFlags::CREATE);
    let data = bytes(2, 3 << 20);
    file.write_all_at(&data, 0).unwrap();
    let busy = program::run(place.home(), "unmount m").refused(1);
    assert!(busy.ends_with("m: in use; close its open files and directories, and try again"), "{busy}");
    signal(mounted.pid(), Signal::TERM);
    assert_eq!(mounted.wait().code(), Some(0));
    assert!(mounted.log().contains("in use, unmounted anyway"));
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(Errno::NOTCONN.raw_os_error()));
    drop(file);
    place.check();
    place.zonal("get image:d.img f copy");
    assert_eq!(fs::read(place.home().join("copy")).unwrap(), data);
}

#[test]
fn killed_mount_is_cleared_by_the_next_and_keeps_synced_data() {
    let place = MountPlace::new("128M");
    let mut mounted = place.mount("");
    let file = open(&mounted.at("f"), OFlags::RDWR | OFlags::CREATE);
    let data = bytes(9, 1 << 20);
    file.write_all_at(&data, 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    mounted.kill();
    let begin = Instant::now();
    let gone = fs::read(mounted.at("f")).unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(Errno::NOTCONN.raw_os_error()));
    assert!(begin.elapsed() < Duration::from_secs(1));
    for command in ["sync m", "unmount m"] {
        let said = program::run(place.home(), command).refused(1);
        assert!(said.contains("m: the process of the mount was killed"), "{said}");
    }
    let mounted = place.mount("");
    assert_eq!(fs::read(mounted.at("f")).unwrap(), data);
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let at = format!(" {} ", place.dir().display());
    assert_eq!(mounts.lines().filter(|line| line.contains(&at)).count(), 1, "the dead mount is still there");
    mounted.end();
}

#[test]
fn killed_mount_with_an_open_file_is_replaced_with_a_notice() {
    let place = MountPlace::new("64M");
    let mut mounted = place.mount("");
    fs::write(mounted.at("f"), b"before").unwrap();
    let file = open(&mounted.at("f"), OFlags::RDONLY);
    file.sync_all().unwrap();
    mounted.kill();
    let said = program::run(place.home(), "mount image:d.img m --daemon");
    assert_eq!((said.code, said.err.lines().count()), (Some(0), 1), "{said:?}");
    assert!(
        said.err.contains("m: cleared away a killed mount") && said.err.contains("open them again"),
        "{said:?}"
    );
    assert_eq!(fs::read(mounted.at("f")).unwrap(), b"before");
    let gone = file.sync_all().unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(Errno::NOTCONN.raw_os_error()));
    place.zonal("unmount m");
    place.check();
}

#[test]
fn killed_mount_with_another_file_system_in_it_is_left_to_the_user() {
    let place = MountPlace::new("64M");
    let mut mounted = place.mount("");
    let inner = mounted.at("inner");
    fs::create_dir(&inner).unwrap();
    let tmpfs = Command::new("mount").args(["-t", "tmpfs", "other"]).arg(&inner).status().unwrap();
    assert!(tmpfs.success());
    mounted.kill();
    let said = program::run(place.home(), "mount image:d.img m --daemon").refused(1);
    assert!(said.contains("/m/inner is mounted in it; `umount -l "), "{said}");
    let at = format!(" {} ", inner.display());
    assert!(fs::read_to_string("/proc/mounts").unwrap().contains(&at), "it was taken along");
    assert!(Command::new("umount").arg("-l").arg(place.dir()).status().unwrap().success());
    place.mount("").end();
}

#[test]
fn unsynced_data_is_on_the_drive_after_the_commit_interval() {
    let place = MountPlace::new("128M");
    let mut mounted = place.mount("commit=1,writethrough");
    fs::write(mounted.at("f"), b"without a sync").unwrap();
    std::thread::sleep(Duration::from_secs(3));
    mounted.kill();
    let mounted = place.mount("");
    assert_eq!(fs::read(mounted.at("f")).unwrap(), b"without a sync");
    mounted.end();
}

#[test]
fn sync_makes_everything_durable_at_once() {
    let place = MountPlace::new("128M");
    let mut mounted = place.mount("commit=3600");
    fs::create_dir(mounted.at("d")).unwrap();
    fs::write(mounted.at("d/f"), bytes(4, 70_000)).unwrap();
    place.zonal("sync m");
    mounted.kill();
    let mounted = place.mount("");
    assert_eq!(fs::read(mounted.at("d/f")).unwrap(), bytes(4, 70_000));
    mounted.end();
    let said = program::run(place.home(), "sync m").refused(1);
    assert!(said.contains("not mounted by `zonal mount`"), "{said}");
}

#[test]
fn second_process_is_refused_unless_both_only_read() {
    let place = MountPlace::new("128M");
    let mounted = place.mount("");
    fs::write(mounted.at("f"), b"f").unwrap();
    fs::create_dir(place.home().join("n")).unwrap();
    let said = program::run(place.home(), "mount image:d.img n").refused(4);
    assert!(said.contains(&format!("process {}", mounted.pid())), "{said}");
    mounted.end();
    let mounted = place.mount("ro");
    assert_eq!(place.zonal("ls image:d.img").lines().count(), 1);
    let refused = fs::write(mounted.at("g"), b"").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    assert_eq!(fs::read(mounted.at("f")).unwrap(), b"f");
    mounted.end();
}

#[test]
fn impossible_mounts_are_refused_in_one_line() {
    let place = MountPlace::new("128M");
    fs::write(place.home().join("file"), b"").unwrap();
    for (line, code, said) in [
        ("mount image:d.img m -o writebak", 2, "writebak: no such option; did you mean writeback?"),
        ("mount image:d.img m -o dirty=0", 2, "dirty=0: expected 1 MiB to 64 GiB"),
        ("mount image:d.img m -o max_open_zones=0", 2, "max_open_zones=0: at least one zone is needed"),
        ("mount ./m m", 4, "is a directory, not a device"),
        ("mount image:d.img nowhere", 1, "nowhere: No such file"),
        ("mount image:d.img file", 1, "file: not a directory"),
        ("mount image:none.img m", 4, "none.img"),
        ("mount image:d.img m -o scratch", 4, "the device contains data"),
        ("mount null:size=1G,zone_size=4M m", 4, "the device keeps no data"),
        ("mount sim:smr-hdd-30t m", 4, "virtual time"),
        ("unmount m", 1, "not mounted by `zonal mount`"),
    ] {
        let refused = program::run(place.home(), line).refused(code);
        assert!(refused.contains(said), "{line}: {refused}");
    }
    place.check();
}

#[test]
fn daemon_is_ready_when_the_command_ends_and_its_log_is_a_file() {
    let place = MountPlace::new("128M");
    let ready = place.zonal("mount image:d.img m --daemon --log log.txt");
    assert_eq!(ready, format!("ready {}\n", place.dir().display()));
    fs::write(place.dir().join("f"), b"f").unwrap();
    let told: serde_json::Value = serde_json::from_str(&place.zonal("stat m --json")).unwrap();
    assert!(told["files"]["used"].is_u64() && told["counters"]["requests"].is_u64(), "{told}");
    place.zonal("unmount m");
    place.check();
    assert!(fs::read_to_string(place.home().join("log.txt")).unwrap().contains("dirty pages"));
    let said = program::run(place.home(), "mount image:none.img m --daemon").refused(4);
    assert!(said.contains("none.img"), "{said}");
}

#[test]
fn program_is_a_helper_of_mount() {
    let place = MountPlace::new("128M");
    let helper = place.home().join("mount.zonal");
    std::os::unix::fs::symlink(program::zonal(), &helper).unwrap();
    let mut command = Command::new(&helper);
    command.args(["image:d.img", "m", "-n", "-o", "rw,noauto,nosuid"]).current_dir(place.home());
    let output = command.env("ZONAL_RUNTIME_DIR", place.home()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(place.dir().to_str().unwrap())).unwrap();
    assert!(line.starts_with("image:d.img ") && line.contains(" fuse.zonal rw,nosuid"), "{line}");
    place.zonal("unmount m");
    place.check();
}

/// As requested by mount(8): with the options that the kernel reports for the mount, and the new
/// one.
#[test]
fn mounted_directory_is_made_read_only_and_back() {
    if !rustix::process::geteuid().is_root() {
        return program::skip("only root mounts by mount(8)");
    }
    let place = MountPlace::new("128M");
    let helper = place.home().join("mount.fuse.zonal");
    std::os::unix::fs::symlink(program::zonal(), &helper).unwrap();
    let remount = |dir: &str, options: &str| {
        let mut command = Command::new(&helper);
        command.args(["image:d.img", dir, "-o", options]).current_dir(place.home());
        command.env("ZONAL_RUNTIME_DIR", place.home()).output().unwrap()
    };
    let flags = || {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let line =
            mounts.lines().find(|line| line.contains(place.dir().to_str().unwrap())).unwrap().to_owned();
        line.split(' ').nth(3).unwrap().to_owned()
    };
    place.zonal("mount image:d.img m --daemon -o nosuid");
    fs::write(place.dir().join("a"), b"there").unwrap();
    let known = "rw,nosuid,relatime,user_id=0,group_id=0,default_permissions,remount";
    let output = remount("m", &format!("{known},ro"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(flags().starts_with("ro,nosuid"), "{}", flags());
    let refused = fs::write(place.dir().join("b"), b"").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::read(place.dir().join("a")).unwrap(), b"there");
    assert!(remount("m", &format!("{known},rw")).status.success());
    fs::write(place.dir().join("b"), b"").unwrap();
    fs::create_dir(place.home().join("other")).unwrap();
    let said = remount("other", "remount,ro");
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&said.stderr).contains("other: not mounted by `zonal mount`"));
    let of_another = |command: &[&str]| {
        let status = Command::new(command[0]).args(&command[1..]).arg(place.dir()).status();
        assert!(status.unwrap().success(), "{command:?}");
    };
    of_another(&["mount", "-t", "tmpfs", "cover"]);
    assert_eq!(remount("m", "remount,ro").status.code(), Some(1), "what covers it is no business of ours");
    fs::write(place.dir().join("c"), b"").unwrap();
    of_another(&["umount"]);
    place.zonal("unmount m");
    place.check();
    // A device opened read-only cannot be changed, whatever the flags are.
    place.zonal("mount image:d.img m --daemon -o ro");
    let said = remount("m", "remount,rw");
    assert_eq!(said.status.code(), Some(1));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("m: opened for reading only"), "{said}");
    place.zonal("unmount m");
}

#[test]
fn directory_that_is_bound_to_another_is_unmounted_alone() {
    if !rustix::process::geteuid().is_root() {
        return program::skip("only root mounts by mount(8)");
    }
    let place = MountPlace::new("128M");
    place.zonal("mount image:d.img m --daemon");
    fs::create_dir(place.home().join("other")).unwrap();
    let bound = Command::new("mount").arg("--bind").arg(place.dir()).arg(place.home().join("other")).status();
    assert!(bound.unwrap().success());
    fs::write(place.dir().join("a"), b"there").unwrap();
    // An unmount that waited for the process would hang, because the process does not exit.
    let unmount = |dir: &str| {
        let mut command = Command::new("timeout");
        command.arg("20").arg(program::zonal()).args(["unmount", dir]).current_dir(place.home());
        let (key, value) = program::NO_CONFIG;
        command.env(key, value).env("ZONAL_RUNTIME_DIR", place.home()).output().unwrap()
    };
    let said = unmount("other");
    assert!(said.status.success(), "{said:?}");
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("other: unmounted; still mounted at ") && said.contains("/m"), "{said}");
    assert_eq!(fs::read(place.dir().join("a")).unwrap(), b"there");
    assert!(unmount("m").status.success());
    place.check();
}

#[test]
fn background_mount_reports_warnings_before_ready() {
    if !rustix::process::geteuid().is_root() {
        return program::skip("only root mounts by mount(8)");
    }
    let place = MountPlace::new("128M");
    let run = |line: &str, directory: &str| {
        let mut command = program::command(place.home(), line);
        let output = command.env("ZONAL_RUNTIME_DIR", directory).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (out, err) = run("mount image:d.img m --daemon", "/nonexistent/run");
    assert!(out.starts_with("ready "), "{out}");
    assert!(err.starts_with("zonal: no control socket: "), "{err}");
    let ended = Command::new("umount").arg(place.dir()).status();
    assert!(ended.unwrap().success());
    // umount does not wait for the process to exit. The next mount does.
    place.zonal("mount image:d.img m --daemon");
    place.zonal("unmount m");
    place.check();
}

#[test]
fn space_and_files_are_the_same_with_a_mount_and_without() {
    let place = MountPlace::new("128M");
    let mounted = place.mount("");
    for n in 0..5 {
        fs::write(mounted.at(&n.to_string()), bytes(n, 1 << 20)).unwrap();
    }
    place.zonal("sync m");
    let with = place.zonal("df m --json");
    mounted.end();
    let without = place.zonal("df image:d.img --json");
    assert_eq!(with, without);
    let told: serde_json::Value = serde_json::from_str(&without).unwrap();
    assert_eq!((told["used"].as_u64(), told["files"].as_u64()), (Some(5 << 20), Some(6)), "{told}");
    let line = place.zonal("df image:d.img");
    assert!(line.starts_with("image:d.img: 5 MiB used (") && line.ends_with("; 6 files\n"), "{line}");
    assert!(program::run(place.home(), "df m").refused(1).contains("not mounted by `zonal mount`"));
}

#[test]
#[ignore = "it measures an idle mount over seconds"]
fn idle_mount_takes_no_processor_time() {
    let place = MountPlace::new("128M");
    let mounted = place.mount("commit=1");
    fs::write(mounted.at("f"), bytes(1, 1 << 20)).unwrap();
    place.zonal("sync m");
    std::thread::sleep(Duration::from_secs(3));
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", mounted.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let before = ticks();
    std::thread::sleep(Duration::from_secs(4));
    assert!(ticks() - before <= 1, "hundredths of a second: {}", ticks() - before);
    mounted.end();
}

#[test]
fn scratch_is_a_file_system_for_the_time_of_the_mount() {
    let place = MountPlace::new("128M");
    let mut mounted = place.mount_device("ram:size=256M,zone_size=4M", "scratch");
    let data = bytes(1, 10 << 20);
    fs::write(mounted.at("f"), &data).unwrap();
    assert!(fs::read(mounted.at("f")).unwrap() == data);
    place.zonal("unmount m");
    assert!(mounted.wait().success());
    let mut mounted = place.mount_device("null:size=256M,zone_size=4M", "scratch");
    fs::write(mounted.at("f"), &data).unwrap();
    assert_eq!(fs::metadata(mounted.at("f")).unwrap().len(), 10 << 20);
    place.zonal("unmount m");
    assert!(mounted.wait().success());
}

#[test]
fn full_drive_fails_the_write_or_the_sync() {
    for options in ["writethrough", "writeback"] {
        let place = MountPlace::new("64M");
        let mut mounted = place.mount(&format!("dirty=1M,{options}"));
        let file = open(&mounted.at("f"), OFlags::RDWR | OFlags::CREATE);
        let block = bytes(1, 1 << 20);
        let written = (0..128).take_while(|n| file.write_all_at(&block, n << 20).is_ok()).count();
        let no_space = Some(Errno::NOSPC.raw_os_error());
        if options == "writethrough" {
            assert!((10..64).contains(&written), "{written} MiB");
            assert_eq!(file.write_all_at(&block, 60 << 20).unwrap_err().raw_os_error(), no_space);
        } else {
            assert_eq!(file.sync_all().unwrap_err().raw_os_error(), no_space);
        }
        drop(file);
        fs::remove_file(mounted.at("f")).unwrap();
        // The loss is also reported once to a caller who syncs everything.
        let _ = program::run(place.home(), "sync m");
        // Freed space is writable again.
        fs::write(mounted.at("g"), &block).unwrap();
        assert!(fs::read(mounted.at("g")).unwrap() == block, "{options}");
        place.zonal("unmount m");
        assert!(mounted.wait().success());
        place.check();
        let told = mounted.log();
        assert_eq!(told.contains("/f (file 2): bytes "), options == "writeback", "{told}");
    }
}

/// A program that writes without ever syncing is notified once its data is lost.
#[test]
fn writer_on_a_full_drive_sees_enospc_without_calling_sync() {
    let place = MountPlace::new("64M");
    let mut mounted = place.mount("dirty=1M");
    let file = open(&mounted.at("f"), OFlags::RDWR | OFlags::CREATE);
    let block = bytes(1, 1 << 20);
    let no_space = Some(Errno::NOSPC.raw_os_error());
    for round in 0..2 {
        let told = (0..80).find_map(|n| file.write_all_at(&block, n << 20).err()).unwrap_or_else(|| {
            // The sync of another program; the kernel's own would follow after some seconds.
            assert_ne!(program::run(place.home(), "sync m").code, Some(0));
            assert!(file.metadata().is_ok());
            file.write_all_at(&block, 80 << 20).unwrap_err()
        });
        // A kernel short of clean pages has written some before, and then an earlier write fails.
        assert_eq!(told.raw_os_error(), no_space, "{round}");
    }
    rustix::fs::ftruncate(&file, 0).unwrap();
    place.zonal("sync m");
    file.write_all_at(&block, 0).unwrap();
    place.zonal("sync m");
    drop(file);
    assert!(fs::read(mounted.at("f")).unwrap() == block);
    place.zonal("unmount m");
    assert!(mounted.wait().success());
    place.check();
}

/// The kernel turns a short reply to a direct write into EIO, so the last one must be refused as a
/// whole.
#[test]
fn direct_writes_of_every_size_fail_with_enospc_on_a_full_drive() {
    let place = MountPlace::new("64M");
    let mut mounted = place.mount_device("ram:size=256M,zone_size=16M,max_sectors=2056", "scratch");
    for blocks in [1, 7, 64, 250, 256] {
        let file = open(&mounted.at("f"), OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT);
        let block = IoBuf::zeroed(blocks * 4096);
        let full = (0..).find_map(|n| file.write_all_at(&block, n * block.len() as u64).err()).unwrap();
        assert_eq!(full.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{blocks} blocks: {full}");
        drop(file);
        fs::remove_file(mounted.at("f")).unwrap();
        place.zonal("sync m");
    }
    place.zonal("unmount m");
    assert!(mounted.wait().success());
}

/// The file is opened when there is less space than the kernel may have promised to others, so its
/// data bypasses the page cache.
#[test]
fn file_opened_on_a_nearly_full_drive_hears_of_it_from_the_write() {
    let place = MountPlace::new("64M");
    let mounted = place.mount("dirty=1M");
    let filler = open(&mounted.at("filler"), OFlags::RDWR | OFlags::CREATE);
    let block = bytes(1, 256 << 10);
    // Less than `dirty` plus a zone of 4 MiB.
    let has_space = || rustix::fs::statvfs(place.dir()).unwrap().f_bavail >= (5 << 20) / 4096;
    for n in (0..).take_while(|_| has_space()) {
        filler.write_all_at(&block, n * block.len() as u64).unwrap();
        filler.sync_all().unwrap();
    }
    let file = open(&mounted.at("f"), OFlags::RDWR | OFlags::CREATE);
    let before = open(&mounted.at("f"), OFlags::RDONLY);
    file.write_all_at(&bytes(2, 100_000), 0).unwrap();
    let mut read = vec![0; 100_000];
    before.read_exact_at(&mut read, 0).unwrap();
    assert!(read == bytes(2, 100_000));
    // The page cache of another handle shows the last write.
    file.write_all_at(&bytes(3, 50_000), 123).unwrap();
    before.read_exact_at(&mut read, 0).unwrap();
    assert!(read[123..50_123] == bytes(3, 50_000) && read[50_123..] == bytes(2, 100_000)[50_123..]);
    let written = (1..64).take_while(|n| file.write_all_at(&block, n * block.len() as u64).is_ok()).count();
    assert!(written < 24, "{written}");
    let refused = file.write_all_at(&block, 63 * block.len() as u64).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    file.sync_all().unwrap();
    let mut read = vec![0; block.len()];
    for n in 1..=written as u64 {
        file.read_exact_at(&mut read, n * block.len() as u64).unwrap();
        assert!(read == block, "piece {n} of {written}");
    }
    drop((file, before, filler));
    mounted.end();
}

#[test]
fn user_without_rights_mounts_by_the_helper() {
    let place = MountPlace::new("128M");
    let home = place.home();
    fs::create_dir(home.join("run")).unwrap();
    for path in [home.to_path_buf(), home.join("d.img"), home.join("run"), place.dir()] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    // The build directory may be accessible to root only.
    let copy = home.join("zonal");
    fs::copy(program::zonal(), &copy).unwrap();
    let as_nobody = |line: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy);
        command.args(line.split_whitespace()).current_dir(home).env("ZONAL_RUNTIME_DIR", home.join("run"));
        command.env("XDG_CONFIG_HOME", home.join("config"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    };
    as_nobody("mkfs --force image:d.img");
    as_nobody("mount image:d.img m --daemon --log log.txt");
    let script = "echo mine > m/f && cat m/f";
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script];
    let output = Command::new("setpriv").args(nobody).current_dir(home).output().unwrap();
    assert_eq!(output.stdout, b"mine\n", "{}", String::from_utf8_lossy(&output.stderr));
    as_nobody("unmount m");
    place.check();
}

/// A mount starts all of its threads before it is ready. If one cannot be started, the mount is
/// refused instead of failing later.
#[test]
fn mount_without_a_thread_that_it_needs_is_refused() {
    let place = MountPlace::new("64M");
    // The mount helper requires a user with a name.
    const BIN: u32 = 2;
    let line = "mount image:d.img,threads=0 m --daemon -o threads=1";
    let mut refused = 0;
    // The command, its background process and the mount helper are the first of them.
    for threads in 3..16 {
        let said = program::run_limited(place.home(), line, ThreadLimit { user: BIN, threads });
        if said.code == Some(0) {
            assert!(said.out.starts_with(b"ready "), "{said:?}");
            program::run_limited(place.home(), "unmount m", ThreadLimit { user: BIN, threads: 100 }).done();
            break;
        }
        refused += 1;
        assert_eq!((said.code, said.out.as_slice()), (Some(1), &b""[..]), "{said:?}");
        let is_clear = said.err.contains("cannot start a thread: ") && said.err.contains("`ulimit -u`");
        assert!(is_clear && !said.err.contains("panicked"), "{said:?}");
    }
    assert!((1..13).contains(&refused), "{refused}");
    place.check();
}

/// A mount from fstab or systemd has no session; a user who logs in later does.
#[test]
fn mount_of_another_session_is_found() {
    let place = MountPlace::new("64M");
    let session = place.home().join("session");
    fs::create_dir(&session).unwrap();
    let run = |line: &str, session: Option<&Path>| {
        let mut command = program::command(place.home(), line);
        command.env_remove("ZONAL_RUNTIME_DIR").env_remove("XDG_RUNTIME_DIR");
        let output = command.envs(session.map(|dir| ("XDG_RUNTIME_DIR", dir))).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    for (mounting, asking) in [(None, Some(session.as_path())), (Some(session.as_path()), None)] {
        // Sessions of users other than root have directories that others cannot find.
        if mounting.is_some() && !rustix::process::geteuid().is_root() {
            continue;
        }
        run("mount image:d.img m --daemon", mounting);
        assert!(run("stat m", asking).contains("used"));
        run("sync m", asking);
        run("unmount m", asking);
    }
    place.check();
}

/// `umount` does not wait for the process; the next mount does, and still refuses a drive in use.
#[test]
fn mount_waits_for_the_process_of_the_one_before() {
    let place = MountPlace::new("128M");
    fs::create_dir(place.home().join("other")).unwrap();
    for n in 0..8 {
        place.zonal("mount image:d.img m --daemon");
        fs::write(place.dir().join("f"), bytes(n, 5 << 20)).unwrap();
        if n == 0 {
            let said = program::run(place.home(), "mount image:d.img other --daemon");
            assert!(said.code != Some(0) && said.err.contains("(mounted at "), "{said:?}");
        }
        assert!(Command::new("umount").arg(place.dir()).status().unwrap().success());
    }
    place.zonal("mount image:d.img m --daemon");
    assert!(fs::read(place.dir().join("f")).unwrap() == bytes(7, 5 << 20));
    place.zonal("unmount m");
    place.check();
}

/// The kernel reuses the number of a file system immediately, while the process of the first one
/// lives on for a while: here it is in the middle of a sync, on a drive with slow flushes.
/// Slow: it waits for the timed commits of several mounts on a slow drive.
#[test]
fn number_that_another_file_system_has_now_is_not_taken_for_the_one_before() {
    let place = MountPlace::new("128M");
    let plan = "[[rule]]\non = 'flush'\nfault = 'delay'\ntime = '300ms'\n";
    fs::write(place.home().join("slow.toml"), plan).unwrap();
    place.zonal("create --size 128M --zone-size 4M e.img");
    place.zonal("mkfs image:e.img");
    fs::create_dir(place.home().join("other")).unwrap();
    let number = |dir: &str| fs::metadata(place.home().join(dir)).unwrap().dev();
    let mount_and_write = |text: &str| {
        place.zonal("mount fault:plan=slow.toml+image:d.img m --daemon -o commit=1");
        fs::write(place.dir().join("f"), text).unwrap();
        std::thread::sleep(Duration::from_millis(1200));
    };

    // A mount that is ending is not reported as mounted elsewhere.
    mount_and_write("first");
    let mounted = number("m");
    std::thread::scope(|scope| {
        let unmount = scope.spawn(|| place.zonal("unmount m"));
        while number("m") == mounted {
            std::thread::sleep(Duration::from_millis(1));
        }
        place.zonal("mount image:e.img other --daemon");
        assert_eq!(unmount.join().unwrap(), "");
    });
    place.zonal("unmount other");

    // A mount waits for the previous one to end.
    mount_and_write("second");
    assert!(Command::new("umount").arg(place.dir()).status().unwrap().success());
    place.zonal("mount image:e.img other --daemon");
    place.zonal("mount image:d.img m --daemon");
    assert_eq!(fs::read(place.dir().join("f")).unwrap(), b"second");
    place.zonal("unmount other");
    place.zonal("unmount m");
    place.check();
}

/// If another file system is at the path of a mount when its process is terminated, that one stays,
/// and the mount is removed wherever it is.
#[test]
fn signal_unmounts_its_own_file_system_and_no_other() {
    let place = MountPlace::new("64M");
    fs::create_dir_all(place.home().join("p/m")).unwrap();
    let mut mounted = place.mount_at("image:d.img", "p/m", "");
    fs::write(place.home().join("p/m/f"), b"mine").unwrap();
    fs::rename(place.home().join("p"), place.home().join("q")).unwrap();
    // Commands find it at its new path.
    place.zonal("sync q/m");
    fs::create_dir_all(place.home().join("p/m")).unwrap();
    let other = place.home().join("p/m");
    let tmpfs = |line: &[&str]| {
        assert!(Command::new(line[0]).args(&line[1..]).arg(&other).status().unwrap().success())
    };
    tmpfs(&["mount", "-t", "tmpfs", "other"]);
    fs::write(other.join("keep"), b"precious").unwrap();
    signal(mounted.pid(), Signal::TERM);
    let code = mounted.wait().code();
    let kept = fs::read(other.join("keep"));
    tmpfs(&["umount"]);
    assert_eq!((code, kept.unwrap().as_slice()), (Some(0), &b"precious"[..]));
    assert_eq!(fs::read_dir(place.home().join("q/m")).unwrap().count(), 0, "it is mounted still");
    // A name that is not UTF-8 works like any other.
    let name = std::ffi::OsStr::from_bytes(b"odd\xff");
    fs::create_dir(place.home().join(name)).unwrap();
    let mut line = program::command(place.home(), "mount image:d.img --daemon");
    assert!(line.arg(name).output().unwrap().status.success());
    for what in ["sync", "df", "unmount"] {
        let output = program::command(place.home(), what).arg(name).output().unwrap();
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // If it is covered by another mount, the process ends without unmounting.
    let mut covered = place.mount("");
    let cover = |line: &[&str]| {
        assert!(Command::new(line[0]).args(&line[1..]).arg(place.dir()).status().unwrap().success())
    };
    fs::write(covered.at("synced"), b"mine").unwrap();
    place.zonal("sync m");
    cover(&["mount", "-t", "tmpfs", "other"]);
    fs::write(covered.at("keep"), b"precious").unwrap();
    signal(covered.pid(), Signal::TERM);
    let code = covered.wait().code();
    let kept = fs::read(covered.at("keep"));
    cover(&["umount"]);
    assert_eq!((code, kept.unwrap().as_slice()), (Some(0), &b"precious"[..]));
    // Two mounts at one place cannot be distinguished by path.
    let mounted = place.mount("");
    assert_eq!(fs::read(mounted.at("synced")).unwrap(), b"mine");
    let error = program::run(place.home(), "mount null: m -o scratch").refused(1);
    assert!(error.ends_with("m: already mounted by `zonal mount`"), "{error}");
    mounted.end();
}
