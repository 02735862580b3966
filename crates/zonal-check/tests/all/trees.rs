//! Directory trees from the command line: copied in and out with all attributes, merged,
//! interrupted by bad files, and moved.

use rustix::fs::{Timespec, Timestamps, XattrFlags};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;
use zonal_check::program;

fn zonal(dir: &Path, line: &str) -> String {
    String::from_utf8(program::run(dir, line).done()).unwrap()
}

fn refused(dir: &Path, line: &str, exit: i32) -> String {
    program::run(dir, line).refused(exit)
}

/// A directory with a drive `d` that has a file system.
fn drive() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    zonal(dir.path(), "create d --size 1G --zone-size 16M");
    zonal(dir.path(), "mkfs d");
    dir
}

/// Writes a fault plan that delays commands of this kind by this many milliseconds.
fn late(dir: &Path, kind: &str, milliseconds: u32) {
    let plan = format!(
        "[[rule]]\non = \"{kind}\"\nzones = \"3-\"\nfault = \"delay\"\ntime = \"{milliseconds}ms\"\n"
    );
    fs::write(dir.join("plan"), plan).unwrap();
}

/// Changes a byte in the image where it contains `data`.
fn damage(dir: &Path, data: &[u8]) {
    let path = dir.join("d");
    let image = fs::read(&path).unwrap();
    let at = image.chunks_exact(4096).position(|there| there == data).expect("it is on the drive") as u64;
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[!data[100]], at * 4096 + 100).unwrap();
}

/// All properties of a file that a copy preserves.
#[derive(PartialEq, Eq, Debug)]
struct Kept {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    /// First path of the file, which identifies hard links.
    first: PathBuf,
    /// Length and hash of the contents.
    data: Option<(usize, u64)>,
    target: Option<PathBuf>,
    xattrs: [Option<Vec<u8>>; 2],
}

/// Everything below `root`, by path relative to it; `.` is the directory itself.
fn tree(root: &Path) -> BTreeMap<PathBuf, Kept> {
    let (mut found, mut todo, mut first) = (BTreeMap::new(), vec![PathBuf::from(".")], BTreeMap::new());
    while let Some(path) = todo.pop() {
        let at = root.join(&path);
        let meta = fs::symlink_metadata(&at).unwrap();
        if meta.is_dir() {
            let mut names: Vec<_> =
                fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            todo.extend(names.into_iter().rev().map(|name| path.join(name)));
        }
        let xattrs = ["user.key", "user.a=b%3D%"].map(|name| {
            let mut value = [0; 100];
            let length = rustix::fs::lgetxattr(&at, name, &mut value[..]);
            length.ok().map(|length| value[..length].to_vec())
        });
        let kept = Kept {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            first: first.entry(meta.ino()).or_insert_with(|| path.clone()).clone(),
            data: meta.is_file().then(|| digest(&fs::read(&at).unwrap())),
            target: meta.is_symlink().then(|| fs::read_link(&at).unwrap()),
            xattrs,
        };
        found.insert(path, kept);
    }
    found
}

fn digest(data: &[u8]) -> (usize, u64) {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    (data.len(), hasher.finish())
}

/// Asserts that two trees are equal, or reports the first difference.
fn same(found: &BTreeMap<PathBuf, Kept>, expected: &BTreeMap<PathBuf, Kept>, what: &str) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{what}");
    for (path, kept) in found {
        assert_eq!(kept, &expected[path], "{what}: {}", path.display());
    }
}

fn set_time(path: &Path, seconds: i64, nanos: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos as _ };
    let times = Timestamps { last_access: time, last_modification: time };
    let at = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, at).unwrap();
}

/// Creates a tree with a file of each kind.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("a/small"), "small").unwrap();
    fs::write(root.join("a/nothing"), "").unwrap();
    let big: Vec<u8> = (0..9_000_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    fs::write(root.join("big"), &big).unwrap();
    let sparse = File::create(root.join("a/b/sparse")).unwrap();
    sparse.set_len(50 << 20).unwrap();
    sparse.write_all_at(b"in the midst", 20 << 20).unwrap();
    for n in [1, 2] {
        // Paths too long for the header of an archive, twice.
        fs::create_dir_all(root.join(format!("s/{n}"))).unwrap();
        let sparse = File::create(root.join(format!("s/{n}/\u{e9}"))).unwrap();
        sparse.set_len(1 << 20).unwrap();
        sparse.write_all_at(&[n; 8192], 4096).unwrap();
    }
    fs::hard_link(root.join("a/small"), root.join("a/b/hard")).unwrap();
    fs::hard_link(root.join("a/small"), root.join("z")).unwrap();
    symlink("../a/small", root.join("a/link")).unwrap();
    fs::hard_link(root.join("a/link"), root.join("s/link")).unwrap();
    symlink("/nowhere/at all", root.join("dangling")).unwrap();
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"no\xfftext\n")), "x").unwrap();
    fs::set_permissions(root.join("a/small"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(root.join("a/b"), fs::Permissions::from_mode(0o2750)).unwrap();
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o1777)).unwrap();
    std::os::unix::fs::chown(root.join("big"), Some(1234), Some(4321)).unwrap();
    std::os::unix::fs::lchown(root.join("dangling"), Some(7), Some(8)).unwrap();
    for path in ["a/small", "a/b", "big"] {
        let set = rustix::fs::setxattr(root.join(path), "user.key", path.as_bytes(), XattrFlags::empty());
        set.expect("the disk of this machine has extended attributes");
        rustix::fs::setxattr(root.join(path), "user.a=b%3D%", b"=", XattrFlags::empty()).unwrap();
    }
    for (n, path) in ["a/small", "dangling", "big", "a/b", "a", "empty", "."].into_iter().enumerate() {
        set_time(&root.join(path), 1_000_000_000 + n as i64, 123_456_789 - n as i64);
    }
}

#[test]
fn tree_round_trips_through_put_and_get() {
    let dir = drive();
    make_tree(&dir.path().join("in"));
    assert_eq!(zonal(dir.path(), "put -r d in kept/tree"), "");
    assert_eq!(zonal(dir.path(), "get -r d kept/tree out"), "");
    same(&tree(&dir.path().join("out")), &tree(&dir.path().join("in")), "out");
    let blocks = |path: &str| fs::metadata(dir.path().join(path)).unwrap().blocks();
    assert!(blocks("in/a/b/sparse") < 100 && blocks("out/a/b/sparse") < 100);
    let df: serde_json::Value = serde_json::from_str(&zonal(dir.path(), "df d --json")).unwrap();
    assert!(df["used"].as_u64().unwrap() < 10 << 20, "holes take space: {df}");
    // Copying again over the result duplicates nothing and loses nothing.
    let before = zonal(dir.path(), "ls -R d");
    zonal(dir.path(), "put -r d in kept/tree");
    zonal(dir.path(), "get -r d kept/tree out");
    assert_eq!(zonal(dir.path(), "ls -R d"), before);
    same(&tree(&dir.path().join("out")), &tree(&dir.path().join("in")), "out");
    assert!(zonal(dir.path(), "fsck --data d").starts_with("d: clean"));
}

#[test]
fn long_list_has_owners_dates_and_targets() {
    let dir = drive();
    make_tree(&dir.path().join("in"));
    zonal(dir.path(), "put -r d in t");
    let list = zonal(dir.path(), "ls -l d t");
    let line = |name: &str| list.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert_eq!(line(" big"), "-rw-r--r--   1  1234  4321         9000000 2001-09-09 01:46 big");
    assert_eq!(
        line(" dangling"),
        "lrwxrwxrwx   1     7     8              15 2001-09-09 01:46 dangling -> /nowhere/at all"
    );
    assert!(line(" empty").starts_with("drwxrwxrwt   2 "), "{list}");
    let json = zonal(dir.path(), "ls --json d t/dangling");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["target"], &json["uid"]), (&"/nowhere/at all".into(), &7.into()));
}

#[test]
fn path_that_ends_with_a_slash_is_a_directory() {
    let dir = drive();
    fs::write(dir.path().join("f"), "one").unwrap();
    fs::create_dir(dir.path().join("tree")).unwrap();
    fs::write(dir.path().join("tree/g"), "two").unwrap();
    zonal(dir.path(), "put d f new/");
    zonal(dir.path(), "put d f /");
    zonal(dir.path(), "put -r d tree new/");
    zonal(dir.path(), "put -r d tree/. /");
    assert_eq!(names(&zonal(dir.path(), "ls -R d")), ["f", "g", "new", "new/f", "new/tree", "new/tree/g"]);
    zonal(dir.path(), "get d new/f out/");
    zonal(dir.path(), "get -r d new out/");
    zonal(dir.path(), "get -r d / all/");
    for (path, data) in [("out/f", "one"), ("out/new/tree/g", "two"), ("all/new/f", "one")] {
        assert_eq!(fs::read_to_string(dir.path().join(path)).unwrap(), data, "{path}");
    }
    assert!(refused(dir.path(), "put d - new/", 2).contains("no file name"));
    assert!(refused(dir.path(), "put d tree t", 1).contains("Is a directory; use -r "));
    assert!(refused(dir.path(), "get d new x", 1).contains("is a directory; use `zonal get -r` "));
    assert!(refused(dir.path(), "get -r d new -", 2).contains("standard output"));
}

fn names(list: &str) -> Vec<&str> {
    list.lines().map(|line| line.split_whitespace().last().unwrap()).collect()
}

#[test]
fn special_files_are_skipped_with_a_message_and_never_block() {
    let dir = drive();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), "x").unwrap();
    assert!(Command::new("mkfifo").arg(tree.join("pipe")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap();
    assert!(Command::new("mknod").arg(tree.join("null")).args(["c", "1", "3"]).status().unwrap().success());
    let begin = Instant::now();
    let said = program::run(dir.path(), "put -r d tree t");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let lines: Vec<&str> = said.err.lines().collect();
    assert_eq!(
        lines,
        [
            "zonal: tree/null: a device, skipped",
            "zonal: tree/pipe: a pipe, skipped",
            "zonal: tree/socket: a socket, skipped"
        ]
    );
    assert!(begin.elapsed().as_secs() < 10);
    assert_eq!(names(&zonal(dir.path(), "ls -R d t")), ["f"]);
}

#[test]
fn file_that_cannot_be_copied_costs_itself_alone() {
    let dir = drive();
    make_tree(&dir.path().join("in"));
    zonal(dir.path(), "put -r d in t");
    // A directory is in the way of a file, and a file in the way of a directory.
    zonal(dir.path(), "rm d t/big");
    zonal(dir.path(), "mkdir d t/big");
    zonal(dir.path(), "rm d t/empty");
    fs::write(dir.path().join("f"), "x").unwrap();
    zonal(dir.path(), "put d f t/empty");
    fs::write(dir.path().join("in/a/small"), "changed").unwrap();
    let said = program::run(dir.path(), "put -r d in t");
    assert_eq!(said.code, Some(1), "{}", said.err);
    let mut lines: Vec<&str> = said.err.lines().collect();
    // The order of the first two messages varies: a file is reported only when it is linked.
    lines[..2].sort_unstable();
    assert_eq!(
        lines,
        [
            "zonal: in/big: is a directory",
            "zonal: in/empty: not a directory",
            "zonal: not copied: 2; the rest is complete"
        ]
    );
    assert_eq!(zonal(dir.path(), "cat d t/a/small t/empty"), "changedx");
    // On the way out, too.
    fs::create_dir_all(dir.path().join("out/z")).unwrap();
    let said = program::run(dir.path(), "get -r d t out");
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.starts_with("zonal: t/z: the destination is a directory\n"), "{}", said.err);
    assert_eq!(fs::read_to_string(dir.path().join("out/a/small")).unwrap(), "changed");
}

/// `length` bytes in which all blocks are different.
fn blocks(seed: u64, length: usize) -> Vec<u8> {
    let word = |n: u64| (seed << 40 | n).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    (0..length.div_ceil(8) as u64).flat_map(word).take(length).collect()
}

#[test]
fn damaged_file_is_reported_and_the_others_are_copied() {
    let dir = drive();
    let tree = dir.path().join("in");
    fs::create_dir(&tree).unwrap();
    for n in 0..3 {
        fs::write(tree.join(n.to_string()), blocks(n, 9 << 20)).unwrap();
    }
    zonal(dir.path(), "put -r d in t");
    damage(dir.path(), &blocks(1, 9 << 20)[..4096]);
    let said = program::run(dir.path(), "get -r d t out");
    assert_eq!(said.code, Some(3), "{}", said.err);
    assert!(said.err.starts_with("zonal: t/1: ") && said.err.lines().count() == 2, "{}", said.err);
    let names = |path: &str| {
        let names = fs::read_dir(dir.path().join(path)).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    assert_eq!(names("out"), ["0", "2"]);
    assert!(fs::read(dir.path().join("out/2")).unwrap() == blocks(2, 9 << 20));
    // With --salvage, the readable part is restored, and the rest is zeroes.
    let said = program::run(dir.path(), "get -r d t out --salvage");
    assert_eq!((said.code, said.err.lines().count()), (Some(3), 3), "{}", said.err);
    let told: Vec<_> = said.err.lines().collect();
    assert!(told[0].starts_with("zonal: t/1: file "), "{}", said.err);
    assert_eq!(told[1], "zonal: t/1: 1 blocks of 4 KiB are lost; the copy has zeroes instead");
    assert_eq!(told[2], "zonal: copied with zeroes for lost data: 1; the rest is complete");
    let mut expected = blocks(1, 9 << 20);
    expected[..4096].fill(0);
    assert!(fs::read(dir.path().join("out/1")).unwrap() == expected);
    fs::remove_file(dir.path().join("out/1")).unwrap();
    // Damage at the beginning of a file costs an archive only that file.
    let said = program::run(dir.path(), "tar -c d t");
    assert_eq!(said.code, Some(3), "{}", said.err);
    fs::write(dir.path().join("a.tar"), &said.out).unwrap();
    fs::create_dir(dir.path().join("out2")).unwrap();
    gnu_tar(dir.path(), "-C out2 -xf a.tar");
    assert_eq!(names("out2"), ["0", "2"]);
    // Damage further inside ends the archive, with a message.
    damage(dir.path(), &blocks(2, 9 << 20)[8 << 20..][..4096]);
    let said = program::run(dir.path(), "tar -c d t");
    assert_eq!(said.code, Some(3), "{}", said.err);
    assert!(said.err.lines().last().unwrap().starts_with("zonal: ./2: file "), "{}", said.err);
}

/// Interrupting the copy of a single file leaves the previous file of that name.
#[test]
fn interrupted_put_keeps_the_old_file() {
    let dir = drive();
    fs::write(dir.path().join("old"), "old").unwrap();
    zonal(dir.path(), "put d old f");
    fs::write(dir.path().join("big"), vec![1; 200 << 20]).unwrap();
    let child = begin_slow_put(dir.path());
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), said.as_str()),
        (Some(130), "zonal: interrupted; an existing file is unchanged\n")
    );
    assert_eq!(zonal(dir.path(), "cat d f"), "old");
    assert!(zonal(dir.path(), "fsck --data d").starts_with("d: clean"));
}

/// Starts to copy the file `big` to `f`, on a drive with slow writes, and waits until it handles
/// signals.
fn begin_slow_put(dir: &Path) -> Child {
    late(dir, "writes", 700);
    let mut command = program::command(dir, "put fault:plan=plan+image:d big f");
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let listens = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap().to_owned();
        u64::from_str_radix(&mask, 16).unwrap() & 2 != 0
    };
    while !listens() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child
}

/// A source that is truncated while it is read is not stored as if it had been complete.
#[test]
fn file_that_becomes_shorter_is_not_copied() {
    let dir = drive();
    fs::write(dir.path().join("big"), vec![1; 200 << 20]).unwrap();
    let child = begin_slow_put(dir.path());
    // Waits until it reads the file, after having read its size.
    let has_read = || {
        let counts = fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap();
        let bytes = counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
        bytes.parse::<u64>().unwrap() > 8 << 20
    };
    while !has_read() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    File::options().write(true).open(dir.path().join("big")).unwrap().set_len(1 << 20).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), said.as_str()),
        (Some(1), "zonal: big: the file shrank while it was read\n")
    );
    refused(dir.path(), "cat d f", 1);
}

/// Files of procfs have size 0 whatever they contain.
#[test]
fn put_reads_files_to_eof_regardless_of_their_size() {
    let dir = drive();
    // The environment of a process is a file with known contents, longer than one read returns.
    let mut sleep = Command::new("sleep");
    sleep.arg("600").env_clear();
    let environment: String = ('a'..='e')
        .map(|name| {
            let value = name.to_string().repeat(100_000);
            sleep.env(name.to_string(), &value);
            format!("{name}={value}\0")
        })
        .collect();
    let mut child = sleep.spawn().unwrap();
    let path = format!("/proc/{}/environ", child.id());
    // Until exec, the file is that of this process.
    while fs::read(&path).unwrap() != environment.as_bytes() {
        std::thread::yield_now();
    }
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    zonal(dir.path(), &format!("put d {path} f"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(zonal(dir.path(), "cat d f") == environment, "the copy differs");
    let random = "/proc/sys/kernel/random";
    zonal(dir.path(), &format!("put -r d {random} r"));
    let poolsize = fs::read_to_string(format!("{random}/poolsize")).unwrap();
    assert_eq!(zonal(dir.path(), "cat d r/poolsize"), poolsize);
    // A hole at the end is preserved.
    File::create(dir.path().join("sparse")).unwrap().set_len(50 << 20).unwrap();
    zonal(dir.path(), "put d sparse s");
    let attributes = zonal(dir.path(), "ls -l d s");
    assert!(attributes.contains(&(50 << 20).to_string()), "{attributes}");
}

/// A closed stream is not an empty file, and accepts no data.
#[test]
fn closed_standard_streams_are_reported() {
    let dir = drive();
    fs::write(dir.path().join("old"), "old").unwrap();
    zonal(dir.path(), "put d old f");
    for (line, stream) in [
        ("put d - f <&-", "input"),
        ("tar -x d t <&-", "input"),
        ("tar -c d >&-", "output"),
        ("cat d f >&-", "output"),
        ("get d f - >&-", "output"),
    ] {
        let mut shell = Command::new("sh");
        let script = format!("exec '{}' {line}", program::zonal().display());
        shell.args(["-c", &script]).current_dir(dir.path()).env("ZONAL_RUNTIME_DIR", dir.path());
        let output = shell.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let expected = format!("zonal: standard {stream} is closed\n");
        assert_eq!((output.status.code(), said), (Some(1), expected), "{line}");
    }
    assert_eq!(zonal(dir.path(), "cat d f"), "old");
    // An empty input is valid.
    assert_eq!(program::run(dir.path(), "put d - f").code, Some(0));
    assert_eq!(zonal(dir.path(), "cat d f"), "");
}

/// Symbolic links in the destination are not followed.
#[test]
fn no_link_on_the_way_out_is_followed() {
    let dir = drive();
    fs::create_dir_all(dir.path().join("in/a")).unwrap();
    fs::write(dir.path().join("in/a/f"), "new").unwrap();
    fs::write(dir.path().join("in/g"), "new").unwrap();
    zonal(dir.path(), "put -r d in t");
    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("g"), "old").unwrap();
    fs::create_dir(dir.path().join("out")).unwrap();
    symlink(&elsewhere, dir.path().join("out/a")).unwrap();
    symlink(elsewhere.join("g"), dir.path().join("out/g")).unwrap();
    let said = program::run(dir.path(), "get -r d t out");
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.starts_with("zonal: t/a: "), "{}", said.err);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(elsewhere.join("g")).unwrap(), "old");
    assert!(fs::symlink_metadata(dir.path().join("out/g")).unwrap().is_file());
    // An image is not replaced.
    fs::copy(dir.path().join("d"), dir.path().join("in/a/image")).unwrap();
    fs::remove_file(dir.path().join("out/a")).unwrap();
    fs::create_dir(dir.path().join("out/a")).unwrap();
    zonal(dir.path(), "create out/a/f --size 64M --zone-size 4M");
    let said = program::run(dir.path(), "get -r d t out");
    assert!(
        said.err.starts_with("zonal: t/a/f: the destination is an image, which is never replaced\n"),
        "{}",
        said.err
    );
}

#[test]
fn directories_are_made_and_files_are_moved() {
    let dir = drive();
    for (name, text) in [("f", "one"), ("g", "two")] {
        fs::write(dir.path().join(name), text).unwrap();
        zonal(dir.path(), &format!("put d {name} {name}"));
    }
    zonal(dir.path(), "mkdir d a");
    assert!(refused(dir.path(), "mkdir d a", 1).contains("exists"));
    assert!(refused(dir.path(), "mkdir d x/y", 1).contains("no such file"));
    zonal(dir.path(), "mkdir -p d a/b/c");
    zonal(dir.path(), "mkdir -p d a/b/c");
    assert!(refused(dir.path(), "mkdir -p d f/x", 1).contains("not a directory"));
    zonal(dir.path(), "mv d f a/b");
    zonal(dir.path(), "mv d a/b/f a/b/h");
    zonal(dir.path(), "mv d g a/b/h");
    assert_eq!(zonal(dir.path(), "cat d a/b/h"), "two");
    zonal(dir.path(), "mv d a/b z");
    assert_eq!(names(&zonal(dir.path(), "ls -R d")), ["a", "z", "z/c", "z/h"]);
    assert!(refused(dir.path(), "mv d z z/c", 1).contains("z/c: "));
    assert!(refused(dir.path(), "mv d z/h new/", 1).contains("no such directory"));
    assert!(refused(dir.path(), "mv d nothing a", 1).contains("nothing: no such file"));
    assert!(refused(dir.path(), "mv d / a", 2).contains("root"));
    assert!(zonal(dir.path(), "fsck d").starts_with("d: clean"));
}

/// Ctrl-C in the middle of a tree: files copied so far are complete, and there is nothing else.
#[test]
fn interrupted_copy_leaves_whole_files() {
    let dir = drive();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("a")).unwrap();
    assert!(Command::new("mkfifo").arg(tree.join("a/!pipe")).status().unwrap().success());
    for n in 0..2000 {
        fs::write(tree.join(format!("a/{n:04}")), vec![n as u8; 50_000]).unwrap();
    }
    fs::set_permissions(tree.join("a"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o770)).unwrap();
    late(dir.path(), "writes", 500);
    let mut command = program::command(dir.path(), "put -r fault:plan=plan+image:d tree t");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // The message about the pipe, which comes first, shows that the copy has started.
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    let [_, last] = lines[..] else { panic!("{said}") };
    assert_eq!(last, "zonal: interrupted; files copied until then are complete");
    zonal(dir.path(), "get -r d t out");
    let there = fs::read_dir(dir.path().join("out/a")).unwrap().count();
    assert!(there < 2000, "it was over");
    for n in 0..there {
        assert_eq!(fs::read(dir.path().join(format!("out/a/{n:04}"))).unwrap(), vec![n as u8; 50_000], "{n}");
    }
    // Unfinished directories have the modes of their sources, like finished ones.
    for (path, mode) in [("out", 0o770), ("out/a", 0o751)] {
        let found = fs::metadata(dir.path().join(path)).unwrap().mode();
        assert_eq!(found & 0o7777, mode, "{path}: {found:o}");
    }
    assert!(zonal(dir.path(), "fsck --data d").starts_with("d: clean"));
}

/// A long copy shows its progress on a terminal, and nothing elsewhere.
/// Slow: progress is shown only after seconds.
#[test]
fn progress_is_for_terminals() {
    let dir = drive();
    let feed = |line: &str| {
        let mut command = Command::new("script");
        let program = format!("{} {line}", program::zonal().display());
        command.args(["-q", "-e", "-c", &program, "/dev/null"]).current_dir(dir.path());
        command.env("ZONAL_RUNTIME_DIR", dir.path()).env("TERM", "xterm");
        let output = command.stdin(Stdio::null()).output().expect("util-linux is there");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // A pipe with a slow reader.
    fs::create_dir(dir.path().join("tree")).unwrap();
    let big = File::create(dir.path().join("tree/f")).unwrap();
    (&big).write_all(&vec![1; 200 << 20]).unwrap();
    late(dir.path(), "writes", 700);
    let shown = feed("put -r fault:plan=plan+image:d tree t");
    assert!(shown.contains("put: ") && shown.contains(" MiB"), "{shown:?}");
    assert!(shown.ends_with("\r\u{1b}[K"), "the line stays: {shown:?}");
    late(dir.path(), "read", 20);
    let shown = feed("fsck --data fault:plan=plan+image:d");
    assert!(
        shown.contains("fsck: ") && shown.contains("%, ") && shown.contains(" s left\r\u{1b}[K"),
        "{shown:?}"
    );
    assert!(shown.contains(": clean; "), "{shown:?}");
    let said = program::run(dir.path(), "put -r fault:plan=plan+image:d tree u");
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
}

/// Runs GNU tar in `dir`.
fn gnu_tar(dir: &Path, line: &str) {
    let output = Command::new("tar").args(line.split_whitespace()).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "tar {line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Output of `zonal tar -c`.
fn archive(dir: &Path, path: &str) -> Vec<u8> {
    let said = program::run(dir, &format!("tar -c d {path}"));
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    said.out
}

/// Extracts an archive.
fn extract(dir: &Path, archive: &[u8], path: &str) -> program::Said {
    fs::write(dir.join("archive"), archive).unwrap();
    program::run_with(dir, &format!("tar -x d {path}"), "archive")
}

#[test]
fn archive_is_read_by_gnu_tar_and_by_this() {
    let dir = drive();
    make_tree(&dir.path().join("in"));
    let long = "a-name-of-fifty-letters-which-is-half-of-a-field-x/".repeat(4);
    fs::create_dir_all(dir.path().join("in").join(&long)).unwrap();
    symlink(&long, dir.path().join("in").join(&long).join("link")).unwrap();
    set_time(&dir.path().join("in"), -5, 1);
    zonal(dir.path(), "put -r d in t");
    let written = archive(dir.path(), "t");
    assert!(written.len() < 12 << 20, "holes are in it: {}", written.len());
    fs::write(dir.path().join("a.tar"), &written).unwrap();
    fs::create_dir(dir.path().join("out")).unwrap();
    gnu_tar(dir.path(), "--xattrs --xattrs-include=* -p --same-owner -C out -xf a.tar");
    same(&tree(&dir.path().join("out")), &tree(&dir.path().join("in")), "out");
    assert!(fs::metadata(dir.path().join("out/a/b/sparse")).unwrap().blocks() < 100);
    let said = extract(dir.path(), &written, "again/and");
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    zonal(dir.path(), "get -r d again/and out2");
    same(&tree(&dir.path().join("out2")), &tree(&dir.path().join("in")), "out2");
    assert!(archive(dir.path(), "again/and") == written, "the same tree is another archive");
    assert!(zonal(dir.path(), "fsck --data d").starts_with("d: clean"));
}

#[test]
fn archives_of_gnu_tar_go_in() {
    let dir = drive();
    make_tree(&dir.path().join("in"));
    let long = "a-name-of-fifty-letters-which-is-half-of-a-field-x/".repeat(4);
    fs::create_dir_all(dir.path().join("in").join(&long)).unwrap();
    fs::write(dir.path().join("in").join(&long).join("f"), "deep").unwrap();
    let expected = tree(&dir.path().join("in"));
    for (n, options) in [
        "--format=pax --sparse --xattrs --xattrs-include=*",
        "--format=pax --sparse --sparse-version=0.1 --xattrs --xattrs-include=*",
        "--format=pax --sparse --sparse-version=0.0 --xattrs --xattrs-include=*",
        "--format=gnu --sparse",
        "--format=gnu",
    ]
    .into_iter()
    .enumerate()
    {
        gnu_tar(dir.path(), &format!("{options} -C in -cf a.tar ."));
        let said = extract(dir.path(), &fs::read(dir.path().join("a.tar")).unwrap(), &format!("t{n}"));
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{options}");
        zonal(dir.path(), &format!("get -r d t{n} out{n}"));
        let mut found = tree(&dir.path().join(format!("out{n}")));
        for (path, kept) in &mut found {
            // This format has whole seconds, and no attributes.
            if options.contains("=gnu") {
                kept.mtime.1 = expected[path].mtime.1;
                kept.xattrs.clone_from(&expected[path].xattrs);
            }
        }
        same(&found, &expected, options);
        let blocks = fs::metadata(dir.path().join(format!("out{n}/a/b/sparse"))).unwrap().blocks();
        assert_eq!(options.contains("--sparse"), blocks < 100, "{options}: {blocks}");
    }
    assert!(zonal(dir.path(), "fsck --data d").starts_with("d: clean"));
}

/// Makes an archive by hand, from each entry's name, type, link and data.
fn by_hand(entries: &[(&str, u8, &str, &[u8])]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, kind, link, data) in entries {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(tar::EntryType::new(*kind));
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.set_cksum();
        archive.extend_from_slice(header.as_bytes());
        archive.extend_from_slice(data);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

#[test]
fn archive_leads_nowhere_but_into_its_directory() {
    let dir = drive();
    fs::write(dir.path().join("f"), "precious").unwrap();
    zonal(dir.path(), "put d f outside/f");
    let said = extract(
        dir.path(),
        &by_hand(&[
            ("../outside/f", b'0', "", b"bad"),
            ("a/../../outside/f", b'0', "", b"bad"),
            ("/absolute", b'0', "", b"good"),
            ("link", b'2', "../outside", b""),
            ("link/f", b'0', "", b"bad"),
            ("hard", b'1', "../outside/f", b""),
            ("pipe", b'6', "", b""),
            ("odd", b'Z', "", b"data of what is not known"),
            ("../odd", b'Z', "", b"bad"),
            ("rest", b'M', "", b"the end of a long file"),
            ("records", b'x', "", b"10 uid=-2\n"),
            ("nonsense", b'0', "", b"bad"),
            ("incremental/", b'D', "", b"Yf\0Dg\0\0"),
            ("good", b'0', "", b"good"),
        ]),
        "t",
    );
    assert_eq!(said.code, Some(1), "{}", said.err);
    let lines: Vec<&str> = said.err.lines().collect();
    assert_eq!(
        lines,
        [
            "zonal: ../outside/f: a path with .. leads out of the directory",
            "zonal: a/../../outside/f: a path with .. leads out of the directory",
            "zonal: link/f: not a directory",
            "zonal: hard: a path with .. leads out of the directory",
            "zonal: pipe: a pipe, skipped",
            "zonal: odd: unknown type 'Z', extracted as a regular file",
            "zonal: ../odd: a path with .. leads out of the directory",
            "zonal: rest: the rest of a file that begins in another volume",
            "zonal: nonsense: invalid record uid",
            "zonal: not copied: 7; the rest is complete"
        ]
    );
    assert_eq!(zonal(dir.path(), "cat d outside/f"), "precious");
    assert_eq!(names(&zonal(dir.path(), "ls d t")), ["absolute", "good", "incremental", "link", "odd"]);
    assert_eq!(zonal(dir.path(), "cat d t/odd"), "data of what is not known");
}

/// The label of an archive is not a file, and is not taken for a file name.
#[test]
fn label_of_an_archive_is_passed_over() {
    let dir = drive();
    fs::create_dir(dir.path().join("in")).unwrap();
    fs::write(dir.path().join("in/f"), "data").unwrap();
    for format in ["gnu", "oldgnu", "pax"] {
        gnu_tar(dir.path(), &format!("--format={format} -V ../other/label -C in -cf a.tar f"));
        let said = extract(dir.path(), &fs::read(dir.path().join("a.tar")).unwrap(), format);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{format}");
        assert_eq!(zonal(dir.path(), &format!("cat d {format}/f")), "data");
        assert_eq!(names(&zonal(dir.path(), &format!("ls -R d {format}"))), ["f"]);
    }
}

/// Blank fields mean 0, and checksums may be of signed bytes: other programs read both, and old
/// ones wrote them.
#[test]
fn headers_of_old_programs_are_read() {
    let dir = drive();
    let plain = by_hand(&[("caf\u{e9}", b'0', "", b"")]);
    for (n, field) in [108..116, 116..124, 124..136, 136..148].into_iter().enumerate() {
        for blank in [0, b' '] {
            let mut archive = plain.clone();
            archive[field.clone()].fill(blank);
            sum(&mut archive[..512]);
            let said = extract(dir.path(), &archive, &format!("t{n}"));
            assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{field:?} of {blank}");
            assert!(zonal(dir.path(), &format!("ls -l d t{n}")).contains("   0     0 "), "{field:?}");
        }
    }
    let mut signed = plain;
    signed[148..156].fill(b' ');
    let of_signed: i32 = signed[..512].iter().map(|byte| i32::from(*byte as i8)).sum();
    signed[148..156].copy_from_slice(format!("{of_signed:06o}\0 ").as_bytes());
    let said = extract(dir.path(), &signed, "signed");
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert_eq!(names(&zonal(dir.path(), "ls d signed")), ["caf\u{e9}"]);
    let solaris = by_hand(&[("records", b'X', "", b"12 path=sun\n"), ("short", b'0', "", b"")]);
    let said = extract(dir.path(), &solaris, "solaris");
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert_eq!(names(&zonal(dir.path(), "ls d solaris")), ["sun"]);
    // Neither checksum matches.
    signed[0] ^= 1;
    assert!(extract(dir.path(), &signed, "wrong").err.contains("not a tar header"));
}

/// An oversized attribute is dropped alone: the file, the directory and the other attributes are
/// kept.
#[test]
fn attribute_that_is_too_large_costs_no_file() {
    let dir = drive();
    fs::create_dir_all(dir.path().join("in/d")).unwrap();
    fs::write(dir.path().join("in/d/f"), "data").unwrap();
    for path in ["in/d/f", "in/d"] {
        let path = dir.path().join(path);
        rustix::fs::setxattr(&path, "user.big", &[7; 3900], XattrFlags::empty()).unwrap();
        rustix::fs::setxattr(&path, "user.key", b"small", XattrFlags::empty()).unwrap();
        std::os::unix::fs::chown(&path, Some(55), Some(66)).unwrap();
        set_time(&path, 1_000_000_000, 5);
    }
    gnu_tar(dir.path(), "--format=pax --xattrs --xattrs-include=* -C in -cf a.tar .");
    let archive = fs::read(dir.path().join("a.tar")).unwrap();
    for (n, said) in [program::run(dir.path(), "put -r d in t0"), extract(dir.path(), &archive, "t1")]
        .into_iter()
        .enumerate()
    {
        assert_eq!((said.code, said.err.lines().count()), (Some(1), 3), "{}", said.err);
        assert!(said.err.contains("d/f: attribute user.big: "), "{}", said.err);
        zonal(dir.path(), &format!("get -r d t{n} out{n}"));
        let found = tree(&dir.path().join(format!("out{n}")));
        let mut expected = tree(&dir.path().join("in"));
        expected.remove(Path::new("."));
        for (path, kept) in expected {
            assert_eq!(found[&path], kept, "{n}: {}", path.display());
        }
    }
}

/// Times before 1970 and owner ids beyond those of Linux, in the format of GNU tar.
#[test]
fn numbers_of_archives_that_are_not_octal() {
    let dir = drive();
    fs::create_dir(dir.path().join("in")).unwrap();
    fs::write(dir.path().join("in/old"), "old").unwrap();
    set_time(&dir.path().join("in/old"), -1_000_000_000, 0);
    gnu_tar(dir.path(), "--format=gnu -C in -cf a.tar old");
    let mut archive = fs::read(dir.path().join("a.tar")).unwrap();
    let said = extract(dir.path(), &archive, "t");
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    zonal(dir.path(), "get -r d t out");
    assert_eq!(fs::metadata(dir.path().join("out/old")).unwrap().mtime(), -1_000_000_000);
    archive[108..116].copy_from_slice(&[0x80, 0, 0, 1, 0, 0, 0, 0]);
    archive[148..156].fill(b' ');
    let sum: u32 = archive[..512].iter().map(|byte| u32::from(*byte)).sum();
    archive[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let said = extract(dir.path(), &archive, "t");
    assert_eq!((said.code, said.err.lines().next()), (Some(1), Some("zonal: old: invalid uid")));
}

/// A caller who cannot change owners does not give others his own rights.
#[test]
fn set_id_bits_of_other_owners_do_not_become_those_of_the_caller() {
    let dir = drive();
    fs::create_dir(dir.path().join("in")).unwrap();
    let program = dir.path().join("in/program");
    fs::write(&program, "x").unwrap();
    std::os::unix::fs::chown(&program, Some(1234), Some(4321)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).unwrap();
    zonal(dir.path(), "put -r d in t");
    for path in ["d", "."] {
        fs::set_permissions(dir.path().join(path), fs::Permissions::from_mode(0o777)).unwrap();
    }
    for (uid, gid, mode) in [(65534, 65534, 0o755), (1234, 4321, 0o6755)] {
        let mut command = program::command(dir.path(), &format!("get -r d t out{uid}"));
        let output = command.uid(uid).gid(gid).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found = fs::metadata(dir.path().join(format!("out{uid}/program"))).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o7777), (uid, mode));
    }
}

/// Sets the checksum of a header.
fn sum(header: &mut [u8]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// Truncated and modified archives: one clear error, no panic, and a sound file system.
#[test]
fn archive_is_made_of_a_directory_alone() {
    let dir = drive();
    fs::write(dir.path().join("in"), b"data").unwrap();
    zonal(dir.path(), "put d in file");
    let said = program::run(dir.path(), "tar -c d file");
    assert!(said.out.is_empty(), "an archive of one file has no name for it");
    assert!(said.refused(1).contains("file: not a directory"));
}

#[test]
fn damaged_archives_are_refused_and_do_no_harm() {
    let dir = drive();
    let tree = dir.path().join("in");
    fs::create_dir_all(tree.join("a")).unwrap();
    fs::write(tree.join("a/f"), vec![7; 3000]).unwrap();
    let sparse = File::create(tree.join("sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    sparse.write_all_at(b"x", 600_000).unwrap();
    rustix::fs::setxattr(tree.join("a/f"), "user.key", b"v", XattrFlags::empty()).unwrap();
    let mut archives = Vec::new();
    for format in ["pax", "gnu"] {
        gnu_tar(dir.path(), &format!("--format={format} --sparse --xattrs -C in -cf a.tar ."));
        archives.push(fs::read(dir.path().join("a.tar")).unwrap());
    }
    let mut wrong = archives[0].clone();
    wrong[100] ^= 1;
    let said = extract(dir.path(), &wrong, "t");
    assert_eq!((said.code, said.err.as_str()), (Some(1), "zonal: byte 0 of the archive: not a tar header\n"));
    // A damaged header costs its file, and nothing else.
    let entries: [(&str, u8, &str, &[u8]); 5] = [
        ("before", b'0', "", b"before"),
        ("lost", b'0', "", &[7; 3000]),
        ("hard", b'1', "before", b"data of a link"),
        ("negative", b'0', "", b""),
        ("after", b'0', "", b"after"),
    ];
    let mut archive = by_hand(&entries);
    archive[1024 + 3] ^= 1;
    let negative = 1024 + 512 + 3072 + 1024;
    archive[negative + 124..negative + 136].fill(0xff);
    sum(&mut archive[negative..negative + 512]);
    let said = extract(dir.path(), &archive, "parts");
    let passed = "skipping to the next header";
    let expected = format!(
        "zonal: byte 1024 of the archive: not a tar header; {passed}\n\
         zonal: byte 5120 of the archive: not a tar header; {passed}\n\
         zonal: byte {negative} of the archive: file too large; {passed}\n\
         zonal: not copied: 3; the rest is complete\n"
    );
    assert_eq!((said.code, said.err), (Some(1), expected));
    assert_eq!(names(&zonal(dir.path(), "ls d parts")), ["after", "before", "hard"]);
    assert_eq!(zonal(dir.path(), "cat d parts/after parts/hard"), "afterbefore");
    // The first file's own header, after the one with its records.
    let mut wrong = archives[0].clone();
    wrong[1024 + 3] ^= 1;
    let said = extract(dir.path(), &wrong, "rest");
    let lines: Vec<&str> = said.err.lines().collect();
    let expected = format!("zonal: byte 1024 of the archive: not a tar header; {passed}");
    assert_eq!((said.code, lines[0], lines.len()), (Some(1), expected.as_str(), 2));
    assert_eq!(names(&zonal(dir.path(), "ls d rest")), ["a", "sparse"]);
    // Data behind the end of an archive is not read forever, and attributes are limited to those
    // that a file can have.
    let mut command = program::command(dir.path(), "tar -x d t");
    assert!(command.stdin(File::open("/dev/zero").unwrap()).status().unwrap().success());
    let mut many = Vec::new();
    (0..2000)
        .for_each(|n| many.extend(format!("27 SCHILY.xattr.user.{n:04}\n").replace("\n", "=\n").bytes()));
    let said = extract(dir.path(), &by_hand(&[("x", b'x', "", &many), ("f", b'0', "", b"")]), "t");
    assert!(said.code == Some(1) && said.err.contains("too many"), "{:?} {}", said.code, said.err);
    let mut state = 7u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut refused = 0;
    for round in 0..120 {
        let mut archive = archives[round % 2].clone();
        let used = archive.iter().rposition(|byte| *byte != 0).unwrap();
        if round % 4 < 2 {
            archive.truncate(random(used));
        } else {
            for _ in 0..=random(3) {
                let at = random(used);
                archive[at] = random(256) as u8;
                // Most headers keep a valid checksum, so that their fields are parsed.
                let header = at / 512 * 512;
                if random(3) > 0 && archive.len() >= header + 512 {
                    sum(&mut archive[header..header + 512]);
                }
            }
        }
        let said = extract(dir.path(), &archive, &format!("t{}", round % 5));
        assert!([Some(0), Some(1)].contains(&said.code), "round {round}: {:?} {}", said.code, said.err);
        assert!(said.err.lines().all(|line| line.starts_with("zonal: ")), "round {round}: {}", said.err);
        refused += u32::from(said.code == Some(1));
    }
    assert!(refused > 30, "{refused}");
    assert!(zonal(dir.path(), "fsck --data d").starts_with("d: clean"));
}
