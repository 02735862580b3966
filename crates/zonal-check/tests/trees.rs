//! Whole trees of files from the command line: in and out with all that they have, merged, interrupted by bad files, and moved.

use rustix::fs::{Timespec, Timestamps, XattrFlags};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;
use zonal_check::program;

fn zonal(dir: &Path, line: &str) -> String {
    String::from_utf8(program::run(dir, line).done()).unwrap()
}

fn refused(dir: &Path, line: &str, exit: i32) -> String {
    program::run(dir, line).refused(exit)
}

/// A drive `d` with a file system, in a directory.
fn drive() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    zonal(dir.path(), "create d --size 1G --zone-size 16M");
    zonal(dir.path(), "mkfs d");
    dir
}

/// All that a copy keeps of a file.
#[derive(PartialEq, Eq, Debug)]
struct Kept {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    /// The file among those with the same number, by its first path.
    first: PathBuf,
    data: Option<Vec<u8>>,
    target: Option<PathBuf>,
    xattr: Option<Vec<u8>>,
}

/// Everything below `root`, by its path from there; `.` is the directory itself.
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
        let mut value = vec![0; 100];
        let xattr = rustix::fs::lgetxattr(&at, "user.key", &mut value[..]);
        let kept = Kept {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            first: first.entry(meta.ino()).or_insert_with(|| path.clone()).clone(),
            data: meta.is_file().then(|| fs::read(&at).unwrap()),
            target: meta.is_symlink().then(|| fs::read_link(&at).unwrap()),
            xattr: xattr.ok().map(|length| value[..length].to_vec()),
        };
        found.insert(path, kept);
    }
    found
}

fn set_time(path: &Path, seconds: i64, nanos: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos as _ };
    let times = Timestamps { last_access: time, last_modification: time };
    let at = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, at).unwrap();
}

/// A tree with a file of each kind.
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
    fs::hard_link(root.join("a/small"), root.join("a/b/hard")).unwrap();
    fs::hard_link(root.join("a/small"), root.join("z")).unwrap();
    symlink("../a/small", root.join("a/link")).unwrap();
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
    }
    for (n, path) in ["a/small", "dangling", "big", "a/b", "a", "empty", "."].into_iter().enumerate() {
        set_time(&root.join(path), 1_000_000_000 + n as i64, 123_456_789 - n as i64);
    }
}

#[test]
fn tree_comes_back_as_it_was() {
    let dir = drive();
    make_tree(&dir.path().join("in"));
    assert_eq!(zonal(dir.path(), "put -r d in kept/tree"), "");
    assert_eq!(zonal(dir.path(), "get -r d kept/tree out"), "");
    assert_eq!(tree(&dir.path().join("out")), tree(&dir.path().join("in")));
    let blocks = |path: &str| fs::metadata(dir.path().join(path)).unwrap().blocks();
    assert!(blocks("in/a/b/sparse") < 100 && blocks("out/a/b/sparse") < 100);
    let df: serde_json::Value = serde_json::from_str(&zonal(dir.path(), "df d --json")).unwrap();
    assert!(df["used"].as_u64().unwrap() < 10 << 20, "holes take space: {df}");
    // Once more on top of it: nothing is there twice, and nothing is lost.
    let before = zonal(dir.path(), "ls -R d");
    zonal(dir.path(), "put -r d in kept/tree");
    zonal(dir.path(), "get -r d kept/tree out");
    assert_eq!(zonal(dir.path(), "ls -R d"), before);
    assert_eq!(tree(&dir.path().join("out")), tree(&dir.path().join("in")));
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
    assert!(refused(dir.path(), "put d - new/", 2).contains("a file needs a name"));
    assert!(refused(dir.path(), "put d tree t", 1).contains("Is a directory; -r "));
    assert!(refused(dir.path(), "get d new x", 1).contains("it is a directory; get -r "));
    assert!(refused(dir.path(), "get -r d new -", 2).contains("standard output"));
}

fn names(list: &str) -> Vec<&str> {
    list.lines().map(|line| line.split_whitespace().last().unwrap()).collect()
}

#[test]
fn special_files_are_told_and_never_waited_for() {
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
    // A directory is where a file is to go, and a file where a directory is to be.
    zonal(dir.path(), "rm d t/big");
    zonal(dir.path(), "mkdir d t/big");
    zonal(dir.path(), "rm d t/empty");
    fs::write(dir.path().join("f"), "x").unwrap();
    zonal(dir.path(), "put d f t/empty");
    fs::write(dir.path().join("in/a/small"), "changed").unwrap();
    let said = program::run(dir.path(), "put -r d in t");
    assert_eq!(said.code, Some(1), "{}", said.err);
    let lines: Vec<&str> = said.err.lines().collect();
    assert_eq!(
        lines,
        [
            "zonal: in/big: it is a directory",
            "zonal: in/empty: not a directory",
            "zonal: 2 could not be copied; the rest is there"
        ]
    );
    assert_eq!(zonal(dir.path(), "cat d t/a/small t/empty"), "changedx");
    // The same on the way out.
    fs::create_dir_all(dir.path().join("out/z")).unwrap();
    let said = program::run(dir.path(), "get -r d t out");
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.starts_with("zonal: z: a directory is there\n"), "{}", said.err);
    assert_eq!(fs::read_to_string(dir.path().join("out/a/small")).unwrap(), "changed");
}

/// Links that lie where the copy goes lead it nowhere else.
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
    assert!(said.err.starts_with("zonal: a: "), "{}", said.err);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(elsewhere.join("g")).unwrap(), "old");
    assert!(fs::symlink_metadata(dir.path().join("out/g")).unwrap().is_file());
    // An image is not replaced.
    fs::copy(dir.path().join("d"), dir.path().join("in/a/image")).unwrap();
    fs::remove_file(dir.path().join("out/a")).unwrap();
    fs::create_dir(dir.path().join("out/a")).unwrap();
    zonal(dir.path(), "create out/a/f --size 64M --zone-size 4M");
    let said = program::run(dir.path(), "get -r d t out");
    assert!(said.err.starts_with("zonal: a/f: an image is there, which no file replaces\n"), "{}", said.err);
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

/// Ctrl-C in the midst of a tree: what was copied is there, whole, and nothing else.
#[test]
fn interrupted_copy_leaves_whole_files() {
    let dir = drive();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    assert!(Command::new("mkfifo").arg(tree.join("!pipe")).status().unwrap().success());
    for n in 0..2000 {
        fs::write(tree.join(format!("{n:04}")), vec![n as u8; 50_000]).unwrap();
    }
    let mut command = program::command(dir.path(), "put -r d tree t");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // It has begun when it tells of the pipe, which comes first.
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.contains("what was copied until then is there"), "{said}");
    zonal(dir.path(), "get -r d t out");
    let there = fs::read_dir(dir.path().join("out")).unwrap().count();
    assert!(there < 2000, "it was over");
    for n in 0..there {
        assert_eq!(fs::read(dir.path().join(format!("out/{n:04}"))).unwrap(), vec![n as u8; 50_000], "{n}");
    }
    assert!(zonal(dir.path(), "fsck --data d").starts_with("d: clean"));
}

/// On a terminal a copy that takes long says how far it is; elsewhere it says nothing.
#[test]
fn progress_is_for_terminals() {
    let dir = drive();
    let feed = |line: &str| {
        let mut command = Command::new("script");
        let program = format!("{} {line}", program::zonal().display());
        command.args(["-q", "-e", "-c", &program, "/dev/null"]).current_dir(dir.path());
        command.env("XDG_RUNTIME_DIR", dir.path()).env("TERM", "xterm");
        let output = command.stdin(Stdio::null()).output().expect("util-linux is there");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // A pipe whose other end is slow.
    fs::create_dir(dir.path().join("tree")).unwrap();
    let big = File::create(dir.path().join("tree/f")).unwrap();
    (&big).write_all(&vec![1; 200 << 20]).unwrap();
    fs::write(
        dir.path().join("plan"),
        "[[rule]]\non = \"writes\"\nzones = \"3-\"\nfault = \"delay\"\ntime = \"400ms\"\n",
    )
    .unwrap();
    let shown = feed("put -r fault:plan=plan+image:d tree t");
    assert!(shown.contains("put: ") && shown.contains(" MiB"), "{shown:?}");
    assert!(shown.ends_with("\r\u{1b}[K"), "the line stays: {shown:?}");
    let late = "[[rule]]\non = \"read\"\nzones = \"3-\"\nfault = \"delay\"\ntime = \"20ms\"\n";
    fs::write(dir.path().join("plan"), late).unwrap();
    let shown = feed("fsck --data fault:plan=plan+image:d");
    assert!(shown.contains("fsck: ") && shown.contains("MiB/s\r\u{1b}[K"), "{shown:?}");
    assert!(shown.contains(": clean; "), "{shown:?}");
    let said = program::run(dir.path(), "put -r fault:plan=plan+image:d tree u");
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
}
