//! Files on a drive from the command line: in and out, replaced, removed, and what is refused.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use tempfile::TempDir;
use zonal_check::program;

fn zonal(dir: &Path, line: &str) -> Vec<u8> {
    program::run(dir, line).done()
}

fn refused(dir: &Path, line: &str, exit: i32) -> String {
    program::run(dir, line).refused(exit)
}

/// A directory with a drive `d` of `zones` zones of 16 MiB, so many of them conventional.
fn drive(zones: u32, conventional: u32) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let size = zones * 16;
    zonal(dir.path(), &format!("create d --size {size}M --zone-size 16M --zone-nr-conv {conventional}"));
    dir
}

/// Puts a file with something precious into the file system on `d`.
fn put_note(dir: &TempDir, name: &str) {
    fs::write(dir.path().join("in"), "precious").unwrap();
    zonal(dir.path(), &format!("put d in {name}"));
}

/// `length` bytes that do not repeat.
fn bytes(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn file_that_was_put_is_got_back_byte_for_byte() {
    let beside = "--metadata m";
    for (conventional, metadata) in [(0, ""), (3, ""), (0, beside), (3, beside)] {
        let dir = drive(24, conventional);
        zonal(dir.path(), &format!("mkfs d {metadata} --label films"));
        let data = bytes(20_000_123);
        fs::write(dir.path().join("in"), &data).unwrap();
        zonal(dir.path(), &format!("put d in a/b/film {metadata}"));
        zonal(dir.path(), &format!("get d /a/b/film out {metadata}"));
        assert!(fs::read(dir.path().join("out")).unwrap() == data);
        fs::write(dir.path().join("hello"), "hello\n").unwrap();
        program::run_with(dir.path(), &format!("put d - note {metadata}"), "hello").done();
        assert_eq!(zonal(dir.path(), &format!("get d note - {metadata}")), b"hello\n");
        let list = String::from_utf8(zonal(dir.path(), &format!("ls d -R {metadata}"))).unwrap();
        let names: Vec<&str> = list.lines().map(|line| line.split_whitespace().last().unwrap()).collect();
        assert_eq!(names, ["a", "note", "a/b", "a/b/film"], "{list}");
        assert!(list.contains("20000123 a/b/film"), "{list}");
    }
}

#[test]
fn full_drive_keeps_what_it_has_and_takes_more_once_there_is_room() {
    let dir = drive(16, 3);
    zonal(dir.path(), "mkfs d");
    let data = bytes(30 << 20);
    fs::write(dir.path().join("in"), &data).unwrap();
    let mut files = 0;
    let error = loop {
        let said = program::run(dir.path(), &format!("put d in f{files}"));
        if said.code != Some(0) {
            break said.refused(1);
        }
        files += 1;
    };
    assert!(files >= 4 && error == format!("zonal: f{files}: no space is left"), "{files} files: {error}");
    let list = String::from_utf8(zonal(dir.path(), "ls d")).unwrap();
    assert_eq!(list.lines().count(), files, "of what failed nothing is left: {list}");
    for round in 0..3 {
        zonal(dir.path(), &format!("rm d f{round}"));
        zonal(dir.path(), &format!("put d in f{round}"));
    }
    for file in 0..files {
        assert!(zonal(dir.path(), &format!("get d f{file} -")) == data, "f{file}");
    }
}

#[test]
fn fsck_tells_where_data_was_damaged_and_nothing_of_a_sound_file_system() {
    let dir = drive(24, 3);
    zonal(dir.path(), "mkfs d");
    let data = bytes(5_000_000);
    fs::write(dir.path().join("in"), &data).unwrap();
    zonal(dir.path(), "put d in f");
    assert_eq!(zonal(dir.path(), "fsck d --data"), b"");
    // One byte in the middle of the file, in the image itself.
    let mut image = fs::read(dir.path().join("d")).unwrap();
    let place = image.windows(64).position(|window| window == &data[3_000_000..3_000_064]).unwrap();
    image[place] ^= 1;
    fs::write(dir.path().join("d"), image).unwrap();
    assert_eq!(zonal(dir.path(), "fsck d"), b"", "metadata are sound");
    let said = program::run(dir.path(), "fsck d --data");
    let out = String::from_utf8(said.out).unwrap();
    assert!(out.lines().count() == 1 && out.starts_with("lost  file 2, block 732: "), "{out}");
    let error = "zonal: d: 1 findings of something lost and 0 minor ones are left\n";
    assert_eq!((said.code, said.err.as_str()), (Some(1), error));
    assert!(refused(dir.path(), "get d f out", 3).contains("does not hold what was written"));
    assert!(!dir.path().join("out").exists());
    let said = program::run(dir.path(), "get d f out --salvage");
    let (told, end) = said.err.split_once('\n').unwrap();
    assert!(told.starts_with("f: file 2, block 732: "), "{told}");
    assert_eq!((said.code, end), (Some(3), "zonal: f: 1 blocks of 4 KiB are lost, and zeroes in the copy\n"));
    let mut expected = data.clone();
    expected[732 * 4096..733 * 4096].fill(0);
    assert!(fs::read(dir.path().join("out")).unwrap() == expected);
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let dir = drive(16, 0);
    let error = refused(dir.path(), "ls d", 4);
    assert_eq!(error, "zonal: d: there is no file system of Zonal here");
    assert!(refused(dir.path(), "mkfs d --unit 5M", 2).contains("the drive takes 2 to"));
    zonal(dir.path(), "mkfs d --label mine");
    assert!(refused(dir.path(), "mkfs d", 4).contains("the file system `mine`"));
    zonal(dir.path(), "mkfs d --force");
    assert!(refused(dir.path(), "get d nothing -", 1).contains("nothing: no such file"));
    assert!(refused(dir.path(), "rm d /", 2).contains("the root"));
    assert!(refused(dir.path(), "put d in ../x", 2).contains("without .."));
    assert!(refused(dir.path(), "put d missing x", 1).contains("missing: No such file"));
    fs::write(dir.path().join("in"), b"x").unwrap();
    zonal(dir.path(), "put d in a/x");
    assert!(refused(dir.path(), "rm d a", 1).contains("not empty"));
    assert!(refused(dir.path(), "put d in a", 1).contains("it is a directory"));
    zonal(dir.path(), "put d in a/.zonal-put.0");
    zonal(dir.path(), "put d in a/x");
    assert_eq!(
        zonal(dir.path(), "get d a/.zonal-put.0 -"),
        b"x",
        "somebody's file by that name is left alone"
    );
    assert!(refused(dir.path(), "put d in a/x/y", 1).contains("not a directory"));
    zonal(dir.path(), "rm d a -r");
    assert_eq!(zonal(dir.path(), "ls d"), b"");
    let small = drive(8, 0);
    assert!(refused(small.path(), "mkfs d", 2).contains("zones are left for data"));
}

#[test]
fn metadata_that_are_lost_are_put_together_from_the_zones() {
    for (conventional, metadata) in [(0, ""), (3, ""), (0, "--metadata m")] {
        let dir = drive(24, conventional);
        zonal(dir.path(), &format!("mkfs d {metadata} --label films"));
        let data = bytes(9_000_123);
        fs::write(dir.path().join("in"), &data).unwrap();
        fs::write(dir.path().join("hello"), "hello\n").unwrap();
        zonal(dir.path(), &format!("put d hello a/b/film {metadata}"));
        zonal(dir.path(), &format!("put d in a/b/film {metadata}"));
        zonal(dir.path(), &format!("put d hello note {metadata}"));
        let error = refused(dir.path(), &format!("fsck d --rebuild {metadata}"), 4);
        assert!(error.contains("the metadata open and nothing is lost"), "{error}");
        match (conventional, metadata) {
            (0, "") => zonal(dir.path(), "reset d --offset 16M --count 3"),
            (0, _) => fs::remove_file(dir.path().join("m")).map(|()| Vec::new()).unwrap(),
            _ => {
                let job = "bench --device d --name=wipe --rw=write --bs=64k --offset=64k --size=15M --zonemode=none";
                zonal(dir.path(), job)
            }
        };
        let error = refused(dir.path(), &format!("fsck d {metadata}"), 4);
        assert!(
            !metadata.is_empty() || error.ends_with("; --rebuild puts them together from the zones"),
            "{error}"
        );
        let said =
            String::from_utf8(zonal(dir.path(), &format!("fsck d --rebuild --data {metadata}"))).unwrap();
        assert!(said.starts_with("3 files of ") && said.contains(" 1 of them in lost+found\n"), "{said}");
        assert!(said.contains("Not known from the zones") && said.contains("symbolic links"), "{said}");
        assert_eq!(zonal(dir.path(), &format!("fsck d --data {metadata}")), b"");
        assert!(zonal(dir.path(), &format!("get d a/b/film - {metadata}")) == data);
        assert_eq!(zonal(dir.path(), &format!("get d note - {metadata}")), b"hello\n");
        // What was replaced is back, too.
        assert_eq!(zonal(dir.path(), &format!("get d lost+found/4 - {metadata}")), b"hello\n");
        zonal(dir.path(), &format!("put d in more {metadata}"));
        assert_eq!(zonal(dir.path(), &format!("fsck d {metadata}")), b"");
        let forced = zonal(dir.path(), &format!("fsck d --rebuild --force --json {metadata}"));
        let forced: serde_json::Value = serde_json::from_slice(&forced).unwrap();
        assert_eq!((&forced["rebuilt"]["files"], &forced["rebuilt"]["torn"]), (&4.into(), &0.into()));
    }
    let dir = drive(16, 0);
    assert!(refused(dir.path(), "fsck d --rebuild", 4).contains("there is no superblock"));
    assert!(program::run(dir.path(), "fsck d --force").code == Some(2));
}

#[test]
fn directory_is_removed_with_all_that_is_in_it_however_deep() {
    let dir = drive(24, 0);
    zonal(dir.path(), "mkfs d --metadata m");
    fs::write(dir.path().join("in"), b"x").unwrap();
    let path = "a/".repeat(40_000);
    zonal(dir.path(), &format!("put d in {path}x --metadata m"));
    zonal(dir.path(), "put d in a/y --metadata m");
    assert!(refused(dir.path(), "rm d a --metadata m", 1).contains("not empty"));
    zonal(dir.path(), "rm d a -r --metadata m");
    assert_eq!(zonal(dir.path(), "ls d --metadata m"), b"");
    assert_eq!(zonal(dir.path(), "fsck d --metadata m"), b"");
}

/// Lines of JSON.
fn objects(dir: &Path, line: &str) -> Vec<serde_json::Value> {
    let said = zonal(dir, line);
    said.split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect()
}

#[test]
fn dump_shows_what_lies_there_and_changes_nothing() {
    for (conventional, metadata) in [(0, ""), (3, ""), (0, "--metadata m")] {
        let dir = drive(24, conventional);
        zonal(dir.path(), &format!("mkfs d {metadata} --label films"));
        fs::write(dir.path().join("in"), bytes(3_000_000)).unwrap();
        zonal(dir.path(), &format!("put d in a/film {metadata}"));
        zonal(dir.path(), &format!("put d in gone {metadata}"));
        zonal(dir.path(), &format!("rm d gone {metadata}"));
        let before = fs::read(dir.path().join("d")).unwrap();
        let said = String::from_utf8(zonal(dir.path(), &format!("dump d {metadata}"))).unwrap();
        assert!(
            said.starts_with("superblock 0: ") && said.contains("\"films\": 384 MiB in zones of 16 MiB"),
            "{said}"
        );
        assert!(said.contains("\nmetadata: ") && said.contains("next numbers: ino 5, sequence "), "{said}");
        assert!(said.contains("\nrows: file 3, name 2, position 2, extent 1, run "), "{said}");
        let all = objects(dir.path(), &format!("dump d --json {metadata}"));
        assert_eq!(
            (&all[1]["superblock"]["label"], &all[1]["superblock"]["copy"]),
            (&"films".into(), &1.into())
        );
        assert_eq!(all.last().unwrap()["rows"]["file"], 3);
        let files = objects(dir.path(), &format!("dump d --rows file --inode 3 --json {metadata}"));
        assert_eq!(
            (files.len(), &files[0]["blocks"], &files[0]["bytes"]),
            (1, &733.into(), &3_000_000.into())
        );
        let extents = objects(dir.path(), &format!("dump d --rows extent --json {metadata}"));
        let zone = &extents[0]["zone"];
        assert_eq!((extents.len(), &extents[0]["file"], &extents[0]["blocks"]), (1, &3.into(), &733.into()));
        let rows = String::from_utf8(zonal(dir.path(), &format!("dump d --rows {metadata}"))).unwrap();
        assert!(rows.contains("name      \"film\" in 2, position 3: file 3\n"), "{rows}");
        let units = objects(dir.path(), &format!("dump d --zone {zone} --data --json {metadata}"));
        let live = |unit: &serde_json::Value| unit["records"][0]["live_blocks"].as_u64();
        assert_eq!((&units[0]["data"], &units[1]["state"]), (&true.into(), &"whole".into()));
        let of = |file: u64| units.iter().filter(move |unit| unit["records"][0]["file"] == file);
        assert_eq!(of(3).filter_map(live).sum::<u64>(), 733);
        assert_eq!((of(4).count() > 0, of(4).filter_map(live).sum::<u64>()), (true, 0));
        assert_eq!(units[1]["records"][0]["path"], "a/film");
        let text = String::from_utf8(zonal(dir.path(), &format!("dump d --zone {zone} {metadata}"))).unwrap();
        assert!(
            text.contains("\n  file 3 of opening ") && text.contains(" live; 3000000 bytes at \"a/film\"\n"),
            "{text}"
        );
        assert!(fs::read(dir.path().join("d")).unwrap() == before, "not a byte has changed");
    }
}

#[test]
fn dump_shows_what_is_damaged_as_that() {
    let dir = drive(24, 3);
    zonal(dir.path(), "mkfs d");
    fs::write(dir.path().join("in"), bytes(3_000_000)).unwrap();
    zonal(dir.path(), "put d in f");
    let wipe = |offset: &str, size: &str| {
        let load = format!("--name=wipe --rw=write --bs=4k --offset={offset} --size={size} --zonemode=none");
        zonal(dir.path(), &format!("bench --device d {load}"));
    };
    wipe("0", "4k");
    let said = String::from_utf8(zonal(dir.path(), "dump d")).unwrap();
    assert!(
        said.starts_with("superblock 0: damaged: there is no file system of Zonal here\nsuperblock 1: "),
        "{said}"
    );
    wipe("8k", "64k");
    let said = program::run(dir.path(), "dump d");
    let out = String::from_utf8(said.out).unwrap();
    assert!(out.contains("  header 0: damaged: it does not begin with the magic number\n"), "{out}");
    assert_eq!((said.code, said.err.lines().count()), (Some(4), 1), "{}", said.err);
    let units = objects(dir.path(), "dump d --zone 3 --json");
    assert!(units.len() > 2 && units[1]["records"][0]["live_blocks"].is_null(), "nobody knows what is live");
    wipe("4k", "4k");
    let said = program::run(dir.path(), "dump d");
    assert_eq!((said.code, said.out.iter().filter(|b| **b == b'\n').count()), (Some(4), 2));
    assert!(refused(dir.path(), "dump d --zone 3", 4).contains("no file system"));
    zonal(dir.path(), "fsck d --rebuild");
    assert!(zonal(dir.path(), "get d f -") == bytes(3_000_000));
    assert!(refused(dir.path(), "dump d --zone 99", 2).contains("there is no zone 99"));
}

#[test]
fn new_file_system_whose_metadata_have_no_place_leaves_the_old_one_as_it_was() {
    let dir = drive(16, 3);
    zonal(dir.path(), "mkfs d");
    put_note(&dir, "note");
    fs::write(dir.path().join("m"), "somebody's").unwrap();
    for (metadata, why) in [("m", "there is a file of this name"), ("none/m", "No such file")] {
        let refused = program::run(dir.path(), &format!("mkfs d --force --metadata {metadata}")).refused(1);
        assert!(refused.contains(why), "{refused}");
    }
    assert_eq!(zonal(dir.path(), "get d note -"), b"precious");
    assert_eq!(fs::read(dir.path().join("m")).unwrap(), b"somebody's");
}

#[test]
fn benchmark_of_files_loses_a_file_system_only_if_that_is_asked_for() {
    let job = "--target=fs --name=w --rw=write --bs=64k --filesize=1M";
    for conventional in [0, 3] {
        let dir = drive(24, conventional);
        zonal(dir.path(), "mkfs d --label films");
        put_note(&dir, "note");
        let refused = program::run(dir.path(), &format!("bench --device d {job}")).refused(4);
        assert!(refused.contains("`films`") && refused.contains("--fs-overwrite"), "{refused}");
        assert_eq!(zonal(dir.path(), "get d note -"), b"precious");
        zonal(dir.path(), &format!("bench --device d {job} --fs-overwrite"));
        let gone = program::run(dir.path(), "ls d").refused(4);
        assert!(gone.contains("no file system"), "{gone}");
    }
}

#[test]
fn device_that_keeps_no_data_is_told_from_one_that_does() {
    let dir = tempfile::tempdir().unwrap();
    for device in ["null:size=1G,zone_size=16M", "sim:smr-hdd-30t,size=8G"] {
        for metadata in ["", "--metadata m"] {
            let refused = program::run(dir.path(), &format!("mkfs {device} {metadata}")).refused(2);
            assert!(refused.contains("keeps no data") && refused.contains("--target=fs"), "{refused}");
            assert!(!dir.path().join("m").exists());
        }
    }
    zonal(dir.path(), "mkfs ram:size=1G,zone_size=16M");
}

#[test]
fn put_that_is_killed_leaves_nothing_behind_and_what_had_its_name_as_it_was() {
    let dir = drive(24, 3);
    zonal(dir.path(), "mkfs d");
    put_note(&dir, "note");
    let used = || {
        let status: serde_json::Value = serde_json::from_slice(&zonal(dir.path(), "stat d --json")).unwrap();
        status["files"]["used"].as_u64().unwrap_or_else(|| panic!("{status}"))
    };
    let before = used();
    for name in ["note", "new"] {
        let mut put =
            program::command(dir.path(), &format!("put d - {name}")).stdin(Stdio::piped()).spawn().unwrap();
        let mut pipe = put.stdin.take().unwrap();
        // More than the pieces that go round hold, so that some of it is on the drive.
        pipe.write_all(&bytes(40 << 20)).unwrap();
        put.kill().unwrap();
        put.wait().unwrap();
    }
    let list = String::from_utf8(zonal(dir.path(), "ls d -R")).unwrap();
    assert!(list.lines().count() == 1 && list.ends_with(" note\n"), "{list}");
    assert_eq!(zonal(dir.path(), "get d note -"), b"precious");
    assert_eq!(zonal(dir.path(), "fsck d --data"), b"");
    assert_eq!(used(), before);
}

#[test]
fn get_that_fails_leaves_the_file_as_it_was_and_one_that_does_not_gives_it_its_permissions() {
    let dir = drive(24, 3);
    zonal(dir.path(), "mkfs d");
    fs::write(dir.path().join("in"), bytes(5 << 20)).unwrap();
    fs::set_permissions(dir.path().join("in"), fs::Permissions::from_mode(0o750)).unwrap();
    zonal(dir.path(), "put d in f");
    fs::write(dir.path().join("out"), "old").unwrap();
    std::os::unix::fs::symlink("out", dir.path().join("link")).unwrap();
    zonal(dir.path(), "get d f link");
    let out = dir.path().join("out");
    assert!(fs::read(&out).unwrap() == bytes(5 << 20));
    assert_eq!(out.metadata().unwrap().permissions().mode() & 0o7777, 0o750);
    zonal(dir.path(), "get d f /dev/null");
    fs::write(&out, "old").unwrap();
    lose_first_zone(&dir);
    let lost = refused(dir.path(), "get d f out", 3);
    assert!(lost.contains("what was there is lost"), "{lost}");
    assert_eq!(fs::read(&out).unwrap(), b"old");
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
}

/// Somebody resets the first zone with data of a drive with three conventional zones, and a repair finds it out.
fn lose_first_zone(dir: &TempDir) {
    zonal(dir.path(), "reset d --offset 48M");
    program::run(dir.path(), "fsck d --repair");
}

#[test]
fn data_that_a_repair_cannot_bring_back_is_told_by_path_until_it_is_written_anew() {
    let dir = drive(24, 3);
    zonal(dir.path(), "mkfs d");
    put_note(&dir, "a/note");
    zonal(dir.path(), "reset d --offset 48M");
    let said = program::run(dir.path(), "fsck d --repair");
    let out = String::from_utf8(said.out).unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert!(lines[0].starts_with("lost  file 3, block 0: ") && lines[0].ends_with(" (a/note)"), "{out}");
    assert_eq!(lines[1..], ["left after the repair:", "lost  file 3, block 0: 1 blocks are lost (a/note)"]);
    assert_eq!(said.code, Some(1));
    let again = program::run(dir.path(), "fsck d --json");
    let again: serde_json::Value = serde_json::from_slice(&again.out).unwrap();
    assert_eq!((&again["path"], &again["severity"]), (&"a/note".into(), &"lost".into()));
    zonal(dir.path(), "put d in a/note");
    assert_eq!(zonal(dir.path(), "fsck d --data"), b"");
    assert_eq!(zonal(dir.path(), "get d a/note -"), b"precious");
}
