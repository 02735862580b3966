//! Files on a drive from the command line: stored, read back, replaced, removed, and refused.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, UNIX_EPOCH};
use tempfile::TempDir;
use zonal_check::program::{self, ThreadLimit};

fn zonal(dir: &Path, line: &str) -> Vec<u8> {
    program::run(dir, line).done()
}

fn refused(dir: &Path, line: &str, exit: i32) -> String {
    program::run(dir, line).refused(exit)
}

/// Runs a check that must report a clean file system in one line.
fn is_clean(dir: &Path, line: &str) {
    let said = String::from_utf8(zonal(dir, line)).unwrap();
    assert!(said.starts_with("d: clean; ") && said.lines().count() == 1, "{line}: {said}");
}

/// A directory with a drive `d` of `zones` zones of 16 MiB, `conventional` of them conventional.
fn drive(zones: u32, conventional: u32) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let size = zones * 16;
    zonal(dir.path(), &format!("create d --size {size}M --zone-size 16M --zone-nr-conv {conventional}"));
    dir
}

/// Stores a file with precious contents on `d`.
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

/// A limit of one thread leaves only that of the process itself.
#[test]
fn file_is_put_and_got_back_without_a_thread_to_read_ahead() {
    let dir = drive(24, 0);
    zonal(dir.path(), "mkfs d");
    let data = bytes(10_000_123);
    fs::write(dir.path().join("in"), &data).unwrap();
    let user = 60_000 + std::process::id() % 5_000;
    let limited = |line, threads| program::run_limited(dir.path(), line, ThreadLimit { user, threads });
    limited("put image:d,threads=0 in f", 1).done();
    assert!(limited("get image:d,threads=0 f -", 1).done() == data);
    // Here the device takes the second thread, and none is left for read-ahead.
    assert!(limited("get image:d,threads=1 f -", 2).done() == data);
    let without = limited("get image:d,threads=1 f -", 1);
    let is_clear = without.err.contains("cannot start a thread: ") && without.err.contains("`ulimit -u`");
    assert!(is_clear && without.code != Some(101), "{without:?}");
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
fn full_drive_keeps_its_files_and_accepts_more_after_deletions() {
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
    assert!(files >= 4 && error == format!("zonal: f{files}: no space left"), "{files} files: {error}");
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
fn fsck_locates_damaged_data_and_is_silent_on_a_sound_file_system() {
    let dir = drive(24, 3);
    zonal(dir.path(), "mkfs d");
    let data = bytes(5_000_000);
    fs::write(dir.path().join("in"), &data).unwrap();
    zonal(dir.path(), "put d in f");
    is_clean(dir.path(), "fsck d --data");
    // Flips a bit in the middle of the file's data in the image.
    let mut image = fs::read(dir.path().join("d")).unwrap();
    let place = image.windows(64).position(|window| window == &data[3_000_000..3_000_064]).unwrap();
    image[place] ^= 1;
    fs::write(dir.path().join("d"), image).unwrap();
    is_clean(dir.path(), "fsck d");
    let said = program::run(dir.path(), "fsck d --data");
    let out = String::from_utf8(said.out).unwrap();
    assert!(out.lines().count() == 1 && out.starts_with("lost  file 2, block 732: "), "{out}");
    let error = "zonal: d: unrepaired: 1 lost, 0 minor\n";
    assert_eq!((said.code, said.err.as_str()), (Some(1), error));
    assert!(refused(dir.path(), "get d f out", 3).contains("does not match its checksum"));
    assert!(!dir.path().join("out").exists());
    let said = program::run(dir.path(), "get d f out --salvage");
    let (told, end) = said.err.split_once('\n').unwrap();
    assert!(told.starts_with("zonal: f: file 2, block 732: "), "{told}");
    assert_eq!(
        (said.code, end),
        (Some(3), "zonal: f: 1 blocks of 4 KiB are lost; the copy has zeroes instead\n")
    );
    let mut expected = data.clone();
    expected[732 * 4096..733 * 4096].fill(0);
    assert!(fs::read(dir.path().join("out")).unwrap() == expected);
}

#[test]
fn another_key_of_an_encrypted_drive_is_suggested_before_a_new_file_system() {
    let dir = drive(16, 0);
    let dir = dir.path();
    for (name, first) in [("a", 1), ("b", 2)] {
        std::fs::write(dir.join(name), (first..first + 64).collect::<Vec<u8>>()).unwrap();
    }
    zonal(dir, "mkfs crypt:key=a+d");
    zonal(dir, "ls crypt:key=a+d");
    let error = refused(dir, "ls crypt:key=b+d", 4);
    assert!(
        error.contains("no file system of Zonal on the drive, or it was made with another key"),
        "{error}"
    );
}

#[test]
fn impossible_file_commands_are_refused_in_one_line() {
    let dir = drive(16, 0);
    let error = refused(dir.path(), "ls d", 4);
    assert_eq!(
        error,
        "zonal: d: no file system of Zonal on the drive; `zonal mkfs d` makes one, `zonal fsck d --rebuild` restores a lost one"
    );
    assert!(refused(dir.path(), "mkfs d --unit 5M", 2).contains("the drive takes 2 to"));
    zonal(dir.path(), "mkfs d --label mine");
    assert!(refused(dir.path(), "mkfs d", 4).contains("the file system `mine`"));
    zonal(dir.path(), "mkfs d --force");
    assert!(refused(dir.path(), "get d nothing -", 1).contains("nothing: no such file"));
    assert!(refused(dir.path(), "rm d /", 2).contains("the root"));
    assert!(refused(dir.path(), "put d in ../x", 2).contains("cannot contain `..`"));
    assert!(refused(dir.path(), "put d missing x", 1).contains("missing: No such file"));
    fs::write(dir.path().join("in"), b"x").unwrap();
    zonal(dir.path(), "put d in a/x");
    assert!(refused(dir.path(), "rm d a", 1).contains("not empty"));
    assert!(refused(dir.path(), "put d in a", 1).contains("is a directory"));
    zonal(dir.path(), "put d in a/.zonal-put.0");
    zonal(dir.path(), "put d in a/x");
    assert_eq!(
        zonal(dir.path(), "get d a/.zonal-put.0 -"),
        b"x",
        "another's file by that name is left alone"
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
            (0, "") => zonal(dir.path(), "reset d --offset 16M --count 3 --yes"),
            (0, _) => fs::remove_file(dir.path().join("m")).map(|()| Vec::new()).unwrap(),
            _ => {
                let job = "bench --device d --name=wipe --rw=write --bs=16k --offset=16k --size=15M --zonemode=none --yes";
                zonal(dir.path(), job)
            }
        };
        let error = refused(dir.path(), &format!("fsck d {metadata}"), 4);
        assert!(
            !metadata.is_empty()
                || error.ends_with("; use --rebuild to make the metadata again from the zones"),
            "{error}"
        );
        let said =
            String::from_utf8(zonal(dir.path(), &format!("fsck d --rebuild --data {metadata}"))).unwrap();
        assert!(said.starts_with("3 files of ") && said.contains(" 1 of them in lost+found\n"), "{said}");
        assert!(said.contains("Not recorded in the zones") && said.contains("symbolic links"), "{said}");
        is_clean(dir.path(), &format!("fsck d --data {metadata}"));
        assert!(zonal(dir.path(), &format!("get d a/b/film - {metadata}")) == data);
        assert_eq!(zonal(dir.path(), &format!("get d note - {metadata}")), b"hello\n");
        // The contents of the replaced file are restored, too.
        assert_eq!(zonal(dir.path(), &format!("get d lost+found/2 - {metadata}")), b"hello\n");
        zonal(dir.path(), &format!("put d in more {metadata}"));
        is_clean(dir.path(), &format!("fsck d {metadata}"));
        let forced = zonal(dir.path(), &format!("fsck d --rebuild --force --json {metadata}"));
        let forced: serde_json::Value = serde_json::from_slice(&forced).unwrap();
        assert_eq!((&forced["rebuilt"]["files"], &forced["rebuilt"]["torn"]), (&4.into(), &0.into()));
    }
    let dir = drive(16, 0);
    assert!(refused(dir.path(), "fsck d --rebuild", 4).contains("there is no superblock"));
    assert!(program::run(dir.path(), "fsck d --force").code == Some(2));
}

/// Slow: it starts the program 100 times, then several times for each damaged page.
#[test]
fn repair_of_metadata_with_lost_pages_keeps_all_others() {
    const FILES: u32 = 100;
    let dir = tempfile::tempdir().unwrap();
    zonal(dir.path(), "create d --size 24M --zone-size 1M");
    zonal(dir.path(), "mkfs d --metadata m");
    for file in 0..FILES {
        let path = dir.path().join("in");
        fs::write(&path, format!("content of {file}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400 + file % 64)).unwrap();
        zonal(
            dir.path(),
            &format!("put d in {file}/a-name-that-is-quite-long-so-that-pages-are-many --metadata m"),
        );
        fs::remove_file(path).unwrap();
    }
    let lines = || -> Vec<String> {
        let list = String::from_utf8(zonal(dir.path(), "ls d -R --metadata m")).unwrap();
        list.lines().map(str::to_owned).collect()
    };
    let before = lines();
    let sound = fs::read(dir.path().join("m")).unwrap();
    let image = fs::read(dir.path().join("d")).unwrap();
    let (mut mended, mut changed) = (0, 0);
    for (page, bytes) in sound.chunks(4096).enumerate() {
        if bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        let mut damaged = sound.clone();
        damaged[page * 4096 + 1000] ^= 1;
        fs::write(dir.path().join("m"), damaged).unwrap();
        fs::write(dir.path().join("d"), &image).unwrap();
        let said = program::run(dir.path(), "fsck d --metadata m");
        if !said.err.contains("--repair keeps all readable metadata") {
            continue;
        }
        assert_eq!(said.code, Some(4), "page {page}");
        let repair = program::run(dir.path(), "fsck d --metadata m --repair --data");
        assert!(matches!(repair.code, Some(0 | 1)), "page {page}: {}", repair.err);
        let told = String::from_utf8(repair.out).unwrap();
        let after = lines();
        let is_whole = before.iter().all(|line| after.contains(line));
        assert!(told.contains("everything not listed here was read or restored"), "page {page}: {told}");
        let names_a_loss = told.lines().any(|line| line.starts_with("lost "));
        assert!(is_whole || names_a_loss, "page {page}: {after:?}: {told}");
        changed += u32::from(!is_whole);
        for (file, line) in before.iter().filter(|line| line.contains("a-name")).enumerate().step_by(29) {
            let path = line.split_whitespace().last().unwrap();
            let number = path.split('/').next().unwrap();
            let content = program::run(dir.path(), &format!("get d {path} - --metadata m"));
            let is_right =
                content.code == Some(0) && content.out == format!("content of {number}").as_bytes();
            // A file with an unchanged listing has its data, unless its loss is reported.
            let is_told = content.code != Some(0) && names_a_loss;
            assert!(is_right || is_told, "page {page}, file {file}: {told}");
        }
        fs::write(dir.path().join("new"), "new").unwrap();
        zonal(dir.path(), "put d new new --metadata m");
        zonal(dir.path(), "rm d new --metadata m");
        mended += 1;
    }
    assert!(
        mended >= 5 && changed > 0 && changed < mended,
        "{mended} mended, in {changed} something changed"
    );
}

#[test]
fn rebuild_replaces_no_file_but_its_own_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("in"), bytes(100_000)).unwrap();
    for (drive, beside) in [("a", ""), ("b", " --metadata b.m"), ("c", " --metadata c.m")] {
        zonal(dir.path(), &format!("create {drive} --size 64M --zone-size 2M"));
        zonal(dir.path(), &format!("mkfs {drive}{beside}"));
        zonal(dir.path(), &format!("put {drive} in f{beside}"));
    }
    fs::write(path("note"), "precious").unwrap();
    fs::create_dir(path("directory")).unwrap();
    let is_kept = |others: &[&str], line: &str| {
        let before: Vec<Vec<u8>> = others.iter().map(|name| fs::read(path(name)).unwrap()).collect();
        let error = refused(dir.path(), line, 4);
        let after: Vec<Vec<u8>> = others.iter().map(|name| fs::read(path(name)).unwrap()).collect();
        assert!(before == after, "{line}: {error}");
        error
    };
    for other in ["a", "note", "c.m", "/dev/null", "directory"] {
        for force in ["", " --force"] {
            let others = ["a", "b", "c", "b.m", "c.m", "note"];
            is_kept(&others, &format!("fsck b --rebuild{force} --metadata {other}"));
        }
    }
    // A file at the path where the new metadata is assembled.
    fs::write(path("b.m.rebuild"), "precious").unwrap();
    let error = is_kept(&["b.m", "b.m.rebuild"], "fsck b --rebuild --force --metadata b.m");
    assert!(error.contains("b.m.rebuild: "), "{error}");
    fs::copy(path("b.m"), path("b.m.rebuild")).unwrap();
    zonal(dir.path(), "fsck b --rebuild --force --metadata b.m");
    assert!(!path("b.m.rebuild").exists());
    // Its own metadata is replaced even if damaged, unless a process has it open.
    let mut damaged = fs::read(path("b.m")).unwrap();
    damaged[..4096].fill(0);
    fs::write(path("b.m"), damaged).unwrap();
    fs::copy(path("b"), path("copy")).unwrap();
    zonal(dir.path(), "fsck b --rebuild --metadata b.m");
    assert!(zonal(dir.path(), "get b f - --metadata b.m") == bytes(100_000));
    let mut put =
        program::command(dir.path(), "put b - g --metadata b.m").stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = put.stdin.take().unwrap();
    // Enough data to be sure that the drive has been opened.
    pipe.write_all(&bytes(20 << 20)).unwrap();
    let error = refused(dir.path(), "fsck copy --rebuild --force --metadata b.m", 4);
    assert!(error.contains(&put.id().to_string()), "{error}");
    drop(pipe);
    assert!(put.wait().unwrap().success());
}

/// Slow: it starts the program 170 times.
#[test]
fn error_that_passes_is_no_reason_to_put_metadata_together_anew() {
    for conventional in [0, 3] {
        let dir = drive(16, conventional);
        zonal(dir.path(), "mkfs d");
        fs::write(dir.path().join("in"), bytes(9000)).unwrap();
        for file in 0..20 {
            zonal(dir.path(), &format!("put d in {file}/f"));
        }
        let list = || zonal(dir.path(), "ls d -R");
        let before = list();
        let mut failed = 0;
        for (skip, error) in (0..40)
            .step_by(2)
            .zip(["busy", "unit-attention", "timed-out", "aborted", "medium"].iter().cycle())
        {
            let plan = format!(
                "[[rule]]\non = \"read\"\nskip = {skip}\ncount = 11\nfault = \"refuse\"\nerror = \"{error}\"\n"
            );
            fs::write(dir.path().join("plan"), plan).unwrap();
            let said = program::run(dir.path(), "fsck fault:plan=plan+d --rebuild");
            failed += u32::from(!said.err.contains("the metadata open and nothing is lost"));
            // If the error hits every copy of the superblock, it is rewritten from the metadata,
            // which stays unchanged.
            let is_written_again =
                String::from_utf8_lossy(&said.out).contains("restored from the metadata, which is sound");
            assert!(said.code == Some(4) || is_written_again, "read {skip}, {error}: {}", said.err);
            assert_eq!(list(), before, "read {skip}, {error}: {}", said.err);
            let said = program::run(dir.path(), "fsck fault:plan=plan+d");
            let is_safe = !said.err.contains("--rebuild")
                || said.err.contains("if this persists, use --rebuild --force");
            assert!(is_safe, "read {skip}, {error}: {}", said.err);
        }
        assert!(failed > 4, "{failed} failed");
    }
}

/// Bytes of the image `d`, and the offsets of the superblock's copies.
fn copies(dir: &TempDir) -> (Vec<u8>, Vec<usize>) {
    let image = fs::read(dir.path().join("d")).unwrap();
    let starts = (0..image.len()).step_by(4096);
    let places = starts.filter(|&at| image[at..].starts_with(b"ZNLsuper")).collect();
    (image, places)
}

/// Slow: it writes the whole image again for each copy.
#[test]
fn damaged_copy_of_the_superblock_is_found_and_written_again() {
    for conventional in [3, 0] {
        let dir = drive(24, conventional);
        zonal(dir.path(), "mkfs d");
        put_note(&dir, "note");
        let (sound, places) = copies(&dir);
        // Two copies per update: one update by mkfs, and one for each time the file system is
        // closed.
        assert!(places.len() >= 4, "{}", places.len());
        let copy = |at: &usize| u64::from_le_bytes(sound[at + 512..at + 520].try_into().unwrap());
        // In home zones only the newest update counts.
        let newest = places.iter().map(copy).max().unwrap();
        let needed = places.iter().filter(|at| conventional > 0 || copy(at) == newest);
        for &at in needed.clone() {
            let mut image = sound.clone();
            image[at + 600] ^= 1;
            fs::write(dir.path().join("d"), image).unwrap();
            let said = program::run(dir.path(), "fsck d");
            let line = String::from_utf8(said.out).unwrap();
            let block = (at - places[0]) / 4096;
            let begin = format!("minor zone 0, block {block}: a copy of the superblock is damaged: ");
            assert!(line.starts_with(&begin) && line.lines().count() == 1, "{line}");
            assert_eq!(said.code, Some(1));
            zonal(dir.path(), "fsck d --repair");
            is_clean(dir.path(), "fsck d --data");
            assert_eq!(zonal(dir.path(), "get d note -"), b"precious");
        }
        // Without any copy, the message suggests a command, and the command works.
        let mut image = sound.clone();
        places.iter().for_each(|at| image[*at..at + 4096].fill(0));
        fs::write(dir.path().join("d"), image).unwrap();
        let error = refused(dir.path(), "fsck d", 4);
        assert!(error.contains("if there was one, use --rebuild to make it again from the zones"), "{error}");
        zonal(dir.path(), "fsck d --rebuild");
        zonal(dir.path(), "fsck d --rebuild --force");
        is_clean(dir.path(), "fsck d --data");
        assert_eq!(zonal(dir.path(), "get d note -"), b"precious");
    }
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
    is_clean(dir.path(), "fsck d --metadata m");
}

/// Parses lines of JSON.
fn objects(dir: &Path, line: &str) -> Vec<serde_json::Value> {
    let said = zonal(dir, line);
    said.split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect()
}

#[test]
fn dump_shows_all_structures_and_changes_nothing() {
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
            said.starts_with("superblock at zone 0 block ")
                && said.contains("\"films\": 384 MiB in zones of 16 MiB"),
            "{said}"
        );
        assert!(said.contains("\nmetadata: ") && said.contains("\nnumbers: files 3, "), "{said}");
        assert!(said.contains(", ino 5, sequence "), "{said}");
        assert!(said.contains("\nrows: file 3, name 2, position 2, extent 1, run "), "{said}");
        let all = objects(dir.path(), &format!("dump d --json {metadata}"));
        assert_eq!(
            (&all[1]["superblock"]["label"], &all[1]["superblock"]["block"]),
            (&"films".into(), &1.into())
        );
        assert_eq!(all.last().unwrap()["rows"]["file"], 3);
        let files = objects(dir.path(), &format!("dump d --rows file --inode 2 --json {metadata}"));
        assert_eq!(
            (files.len(), &files[0]["blocks"], &files[0]["bytes"]),
            (1, &733.into(), &3_000_000.into())
        );
        let extents = objects(dir.path(), &format!("dump d --rows extent --json {metadata}"));
        let zone = &extents[0]["zone"];
        assert_eq!((extents.len(), &extents[0]["file"], &extents[0]["blocks"]), (1, &2.into(), &733.into()));
        let rows = String::from_utf8(zonal(dir.path(), &format!("dump d --rows {metadata}"))).unwrap();
        assert!(rows.contains("name      \"film\" in 3, position 3: file 2\n"), "{rows}");
        let units = objects(dir.path(), &format!("dump d --zone {zone} --data --json {metadata}"));
        let live = |unit: &serde_json::Value| unit["records"][0]["live_blocks"].as_u64();
        assert_eq!((&units[0]["data"], &units[1]["state"]), (&true.into(), &"whole".into()));
        let of = |file: u64| units.iter().filter(move |unit| unit["records"][0]["file"] == file);
        assert_eq!(of(2).filter_map(live).sum::<u64>(), 733);
        assert_eq!((of(4).count() > 0, of(4).filter_map(live).sum::<u64>()), (true, 0));
        assert_eq!(units[1]["records"][0]["path"], "a/film");
        let text = String::from_utf8(zonal(dir.path(), &format!("dump d --zone {zone} {metadata}"))).unwrap();
        assert!(
            text.contains("\n  file 2 of opening ") && text.contains(" live; 3000000 bytes at \"a/film\"\n"),
            "{text}"
        );
        assert!(fs::read(dir.path().join("d")).unwrap() == before, "not a byte has changed");
    }
}

#[test]
fn dump_marks_damaged_structures() {
    let dir = drive(24, 3);
    zonal(dir.path(), "mkfs d");
    fs::write(dir.path().join("in"), bytes(3_000_000)).unwrap();
    zonal(dir.path(), "put d in f");
    let wipe = |offset: &str, size: &str| {
        let load = format!("--name=wipe --rw=write --bs=4k --offset={offset} --size={size} --zonemode=none");
        zonal(dir.path(), &format!("bench --device d {load} --yes"));
    };
    wipe("0", "4k");
    let said = String::from_utf8(zonal(dir.path(), "dump d")).unwrap();
    assert!(
        said.starts_with(
            "superblock at zone 0 block 0: damaged: no file system of Zonal on the drive\nsuperblock at zone 0 block 1: copy "
        ),
        "{said}"
    );
    wipe("8k", "64k");
    let said = program::run(dir.path(), "dump d");
    let out = String::from_utf8(said.out).unwrap();
    assert!(
        out.contains(
            "  piece 0 of the conventional zones: damaged: it does not begin with the magic number\n"
        ),
        "{out}"
    );
    assert_eq!((said.code, said.err.lines().count()), (Some(4), 1), "{}", said.err);
    let units = objects(dir.path(), "dump d --zone 3 --json");
    assert!(
        units.len() > 2 && units[1]["records"][0]["live_blocks"].is_null(),
        "without the metadata it is not known what is live"
    );
    wipe("4k", "4k");
    let said = program::run(dir.path(), "dump d");
    assert_eq!((said.code, said.out.iter().filter(|b| **b == b'\n').count()), (Some(4), 4));
    assert!(refused(dir.path(), "dump d --zone 3", 4).contains("no file system"));
    zonal(dir.path(), "fsck d --rebuild");
    assert!(zonal(dir.path(), "get d f -") == bytes(3_000_000));
    assert!(refused(dir.path(), "dump d --zone 99", 2).contains("there is no zone 99"));
}

#[test]
fn mkfs_with_an_unusable_metadata_file_keeps_the_old_file_system() {
    let dir = drive(16, 3);
    zonal(dir.path(), "mkfs d");
    put_note(&dir, "note");
    fs::write(dir.path().join("m"), "another's").unwrap();
    for (metadata, why) in [("m", "there is a file of this name"), ("none/m", "No such file")] {
        let refused = program::run(dir.path(), &format!("mkfs d --force --metadata {metadata}")).refused(1);
        assert!(refused.contains(why), "{refused}");
    }
    assert_eq!(zonal(dir.path(), "get d note -"), b"precious");
    assert_eq!(fs::read(dir.path().join("m")).unwrap(), b"another's");
}

#[test]
fn benchmark_of_files_loses_a_file_system_only_if_that_is_asked_for() {
    let job = "--target=fs --name=w --rw=write --bs=64k --filesize=1M";
    for conventional in [0, 3] {
        let dir = drive(24, conventional);
        zonal(dir.path(), "mkfs d --label films");
        put_note(&dir, "note");
        let refused = program::run(dir.path(), &format!("bench --device d {job}")).refused(4);
        assert!(refused.contains("`films`") && refused.contains("--yes"), "{refused}");
        assert_eq!(zonal(dir.path(), "get d note -"), b"precious");
        zonal(dir.path(), &format!("bench --device d {job} --fs-overwrite"));
        let gone = program::run(dir.path(), "ls d").refused(4);
        assert!(gone.contains("no file system"), "{gone}");
    }
}

#[test]
fn mkfs_refuses_devices_that_keep_no_data() {
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
fn killed_put_leaves_no_data_and_keeps_the_previous_file() {
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
        // More than the buffers in circulation hold, so that some of it is on the drive.
        pipe.write_all(&bytes(40 << 20)).unwrap();
        put.kill().unwrap();
        put.wait().unwrap();
    }
    let list = String::from_utf8(zonal(dir.path(), "ls d -R")).unwrap();
    assert!(list.lines().count() == 1 && list.ends_with(" note\n"), "{list}");
    assert_eq!(zonal(dir.path(), "get d note -"), b"precious");
    is_clean(dir.path(), "fsck d --data");
    assert_eq!(used(), before);
}

#[test]
fn file_keeps_its_mode_and_times_in_and_out() {
    let dir = drive(24, 3);
    zonal(dir.path(), "mkfs d");
    let path = dir.path().join("in");
    fs::write(&path, bytes(300_000)).unwrap();
    let at = |nanos| UNIX_EPOCH + Duration::from_nanos(nanos);
    let before_1970 = UNIX_EPOCH - Duration::from_millis(1500);
    for (atime, mtime) in [(at(1_700_000_000_123_456_789), at(5)), (at(0), before_1970)] {
        let file = fs::File::options().write(true).open(&path).unwrap();
        // Writing the copy would clear set-id bits.
        file.set_permissions(fs::Permissions::from_mode(0o4755)).unwrap();
        file.set_times(fs::FileTimes::new().set_accessed(atime).set_modified(mtime)).unwrap();
        zonal(dir.path(), "put d in f");
        zonal(dir.path(), "get d f out");
        let out = dir.path().join("out").metadata().unwrap();
        assert_eq!((out.accessed().unwrap(), out.modified().unwrap()), (atime, mtime));
        assert_eq!(out.permissions().mode() & 0o7777, 0o4755);
    }
    program::run_with(dir.path(), "put d - g", "in").done();
    zonal(dir.path(), "get d g out");
    let out = dir.path().join("out").metadata().unwrap();
    assert_eq!(out.permissions().mode() & 0o7777, 0o644);
    assert!(out.modified().unwrap() > at(1_700_000_000_000_000_000));
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
    assert!(lost.contains("data is lost"), "{lost}");
    assert_eq!(fs::read(&out).unwrap(), b"old");
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
}

/// Resets the first zone with data, on a drive with three conventional zones, and lets a repair
/// find the loss.
fn lose_first_zone(dir: &TempDir) {
    zonal(dir.path(), "reset d --offset 48M --yes");
    program::run(dir.path(), "fsck d --repair");
}

#[test]
fn fsck_reports_lost_data_by_path_until_it_is_rewritten() {
    let dir = drive(24, 3);
    zonal(dir.path(), "mkfs d");
    put_note(&dir, "a/note");
    zonal(dir.path(), "reset d --offset 48M --yes");
    let said = program::run(dir.path(), "fsck d --repair");
    let out = String::from_utf8(said.out).unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert!(lines[0].starts_with("lost  file 2, block 0: ") && lines[0].ends_with(" (a/note)"), "{out}");
    assert_eq!(lines[1..], ["left after the repair:", "lost  file 2, block 0: 1 blocks are lost (a/note)"]);
    assert_eq!(said.code, Some(1));
    let again = program::run(dir.path(), "fsck d --json");
    let again: serde_json::Value = serde_json::from_slice(&again.out).unwrap();
    assert_eq!((&again["path"], &again["severity"]), (&"a/note".into(), &"lost".into()));
    zonal(dir.path(), "put d in a/note");
    is_clean(dir.path(), "fsck d --data");
    assert_eq!(zonal(dir.path(), "get d a/note -"), b"precious");
}

/// Runs the words of `line` followed by `words`, which may be arbitrary bytes.
fn with_words(dir: &Path, line: &str, words: &[&[u8]]) -> Output {
    let words = words.iter().map(|word| OsStr::from_bytes(word));
    program::command(dir, line).args(words).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn get_replaces_no_image_no_block_device_and_no_metadata() {
    let dir = drive(24, 0);
    let path = |name: &str| dir.path().join(name);
    zonal(dir.path(), "mkfs d --metadata m");
    fs::write(path("in"), "precious").unwrap();
    zonal(dir.path(), "put d in f --metadata m");
    zonal(dir.path(), "create other --size 384M --zone-size 16M");
    zonal(dir.path(), "mkfs other --metadata n");
    fs::hard_link(path("d"), path("d2")).unwrap();
    fs::hard_link(path("m"), path("m2")).unwrap();
    std::os::unix::fs::symlink("other", path("link")).unwrap();
    fs::create_dir(path("directory")).unwrap();
    let files = ["d", "m", "other", "n"];
    let before = files.map(|file| fs::read(path(file)).unwrap());
    for (target, why) in [
        ("d", "an image"),
        ("d2", "an image"),
        ("other", "an image"),
        ("link", "an image"),
        ("m", "the metadata of the file system"),
        ("m2", "the metadata of the file system"),
        ("n", "metadata of a file system"),
        ("directory", "is a directory"),
    ] {
        let said = refused(dir.path(), &format!("get d f {target} --metadata m"), 2);
        assert!(said.starts_with(&format!("zonal: {target}: {why}")), "{said}");
    }
    assert!(files.map(|file| fs::read(path(file)).unwrap()) == before);
    // No driver has this number, so nothing can be lost.
    let made = Command::new("mknod").arg(path("block")).args(["b", "240", "77"]).status();
    if made.is_ok_and(|status| status.success()) {
        let said = refused(dir.path(), "get d f block --metadata m", 2);
        assert!(said.starts_with("zonal: block: a block device"), "{said}");
    } else {
        program::skip("no node of a block device can be made here");
    }
    // Targets that store no bytes accept the data in order.
    assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
    let pipe = path("pipe");
    let reader = std::thread::spawn(move || fs::read(pipe).unwrap());
    zonal(dir.path(), "get d f pipe --metadata m");
    assert_eq!(reader.join().unwrap(), b"precious");
    zonal(dir.path(), "get d f /dev/null --metadata m");
}

/// Names in a directory, without `zonal`, which holds the control sockets.
fn files_in(dir: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.retain(|name| name != "zonal");
    names.sort();
    names
}

/// Waits until a process has a file in `dir` open for writing, either unnamed or under a temporary
/// name.
fn wait_for_copy(process: &Child, dir: &Path) {
    let begin = Instant::now();
    let is_it = |target: PathBuf| {
        let target = target.to_string_lossy().into_owned();
        target.starts_with(dir.to_str().unwrap())
            && (target.ends_with("(deleted)") || target.contains("/.zonal."))
    };
    loop {
        let files = fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap();
        if files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(is_it)) {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "the copy does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn get_ended_by_a_signal_changes_no_files() {
    let dir = drive(24, 3);
    zonal(dir.path(), "mkfs d");
    fs::write(dir.path().join("in"), bytes(30 << 20)).unwrap();
    zonal(dir.path(), "put d in f");
    fs::write(dir.path().join("old"), "precious").unwrap();
    let plan = "[[rule]]\non = \"read\"\nzones = \"3-\"\nfault = \"delay\"\ntime = \"400ms\"\n";
    fs::write(dir.path().join("slow.toml"), plan).unwrap();
    let before = files_in(dir.path());
    for (signal, code) in [("INT", Some(130)), ("TERM", Some(143)), ("KILL", None)] {
        for target in ["old", "new"] {
            let mut get = program::command(dir.path(), &format!("get fault:plan=slow.toml+d f {target}"));
            let get = get.stderr(Stdio::piped()).spawn().unwrap();
            wait_for_copy(&get, &fs::canonicalize(dir.path()).unwrap());
            let pid = get.id().to_string();
            assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
            let said = get.wait_with_output().unwrap();
            let error = String::from_utf8(said.stderr).unwrap();
            assert_eq!(said.status.code(), code, "{signal}: {error}");
            if code.is_some() {
                assert_eq!(error, format!("zonal: interrupted; {target} is unchanged\n"));
            }
            assert_eq!(files_in(dir.path()), before, "{signal}, {target}");
            assert_eq!(fs::read(dir.path().join("old")).unwrap(), b"precious");
        }
    }
}

#[test]
fn put_that_a_signal_ends_leaves_no_name_behind() {
    let dir = drive(24, 3);
    zonal(dir.path(), "mkfs d");
    put_note(&dir, "note");
    for signal in ["INT", "TERM"] {
        for name in ["note", "a/b/new"] {
            // Background jobs of a shell, and their children, ignore some signals.
            let plain = program::command(dir.path(), &format!("put d - {name}"));
            let mut put = Command::new("env");
            put.arg("--default-signal=INT,TERM").arg(plain.get_program()).args(plain.get_args());
            put.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
            put.current_dir(dir.path()).stdin(Stdio::piped()).stderr(Stdio::null());
            let mut put = put.spawn().unwrap();
            // More than the buffers in circulation hold, so that some of it is on the drive.
            put.stdin.as_mut().unwrap().write_all(&bytes(40 << 20)).unwrap();
            let pid = put.id().to_string();
            assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
            assert!(!put.wait().unwrap().success());
        }
    }
    let list = String::from_utf8(zonal(dir.path(), "ls d -R")).unwrap();
    assert!(list.lines().count() == 1 && list.ends_with(" note\n"), "{list}");
    assert_eq!(zonal(dir.path(), "get d note -"), b"precious");
    is_clean(dir.path(), "fsck d --data");
}

#[test]
fn put_that_fails_at_its_source_makes_no_directories() {
    let dir = drive(24, 3);
    zonal(dir.path(), "mkfs d");
    fs::create_dir(dir.path().join("directory")).unwrap();
    assert!(refused(dir.path(), "put d directory a/b/c", 1).contains("directory: Is a directory"));
    assert_eq!(zonal(dir.path(), "ls d -R"), b"");
}

/// A name with a line break, an escape sequence that clears the screen, and a byte that is not
/// UTF-8.
const STEERING: &[u8] = b"a\nb\x1b[2J\\\xff";

/// That name as printed for people.
const SHOWN: &str = r"a\nb\u{1b}[2J\\\xff";

#[test]
fn name_of_any_bytes_is_taken_and_steers_no_terminal() {
    let dir = drive(24, 3);
    zonal(dir.path(), "mkfs d");
    fs::write(dir.path().join(OsStr::from_bytes(STEERING)), "precious").unwrap();
    let inside = [b"sub/", STEERING].concat();
    let done = |line: &str, words: &[&[u8]]| {
        let said = with_words(dir.path(), line, words);
        assert_eq!((said.status.code(), &said.stderr[..]), (Some(0), &b""[..]), "{line}");
        said.stdout
    };
    done("put d", &[STEERING, STEERING]);
    done("put d", &[STEERING, &inside]);
    assert_eq!(done("get d", &[STEERING, b"-"]), b"precious");
    done("get d", &[&inside, b"out\x07\xfe"]);
    assert_eq!(fs::read(dir.path().join(OsStr::from_bytes(b"out\x07\xfe"))).unwrap(), b"precious");
    let list = String::from_utf8(done("ls d -R", &[])).unwrap();
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 3, "{list}");
    assert!(
        lines[0].ends_with(&format!(" {SHOWN}")) && lines[2].ends_with(&format!(" sub/{SHOWN}")),
        "{list}"
    );
    assert!(String::from_utf8(done("ls d", &[STEERING])).unwrap().ends_with(&format!(" {SHOWN}\n")));
    let object: serde_json::Value = serde_json::from_slice(&done("ls d --json", &[STEERING])).unwrap();
    assert_eq!(object["name"], "a\nb\u{1b}[2J\\\u{fffd}");
    let is_harmless = |text: &[u8]| text.iter().all(|byte| !byte.is_ascii_control() || *byte == b'\n');
    assert!(is_harmless(&done("dump d --rows", &[])) && is_harmless(&done("dump d --zone 3", &[])));
    // Errors about files on the host and on the drive.
    for (line, words) in [
        ("get d", [&b"no\x1b[2J"[..], b"-"]),
        ("get d", [STEERING, b"no\x1b[2J/x"]),
        ("put d", [b"no\x1b[2J", b"x"]),
        ("ls", [b"no\x1b[2J", b"x"]),
        ("rm d", [b"no\x1b[2J", b"-r"]),
    ] {
        let said = with_words(dir.path(), line, &words);
        let error = String::from_utf8(said.stderr).unwrap();
        assert!(!said.status.success() && error.lines().count() == 1, "{error}");
        assert!(error.contains(r"no\u{1b}[2J") && is_harmless(error.as_bytes()), "{error:?}");
    }
    done("rm d -r", &[b"sub"]);
    done("rm d", &[STEERING]);
    assert_eq!(zonal(dir.path(), "ls d -R"), b"");
    // Lost files are reported by path.
    done("put d", &[STEERING, STEERING]);
    zonal(dir.path(), "reset d --offset 48M --yes");
    let said = program::run(dir.path(), "fsck d");
    let found = String::from_utf8(said.out).unwrap();
    assert!(found.lines().count() == 1 && found.ends_with(&format!(" ({SHOWN})\n")), "{found:?}");
    assert!(is_harmless(found.as_bytes()), "{found:?}");
}
