//! Rules of the source tree: dependencies between crates, access to time and randomness, length of
//! files, and commands in the documentation that must work.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use zonal_check::program::{NO_CONFIG, repository, zonal};

/// Workspace crates that each crate may depend on, for building and for its tests. The arrows point
/// down.
const ARROWS: [(&str, &[&str]); 14] = [
    ("zonal-core", &[]),
    ("zonal-io", &["zonal-core"]),
    ("zonal-sim", &["zonal-core", "zonal-io"]),
    ("zonal-fs", &["zonal-core", "zonal-io"]),
    ("zonal-bench", &["zonal-core", "zonal-io", "zonal-sim", "zonal-fs"]),
    ("zonal-fio", &["zonal-core", "zonal-io", "zonal-nvme"]),
    ("zonal-nvme", &["zonal-core", "zonal-io"]),
    ("zonal-ublk", &["zonal-core", "zonal-io"]),
    ("zonal-linux", &["zonal-core", "zonal-io"]),
    ("zonal-scsi", &["zonal-core", "zonal-io"]),
    ("zonal-vhost", &["zonal-core", "zonal-io", "zonal-scsi"]),
    ("zonal-fuse", &["zonal-core", "zonal-io", "zonal-fs"]),
    (
        "zonal",
        &[
            "zonal-core",
            "zonal-io",
            "zonal-sim",
            "zonal-fs",
            "zonal-bench",
            "zonal-linux",
            "zonal-nvme",
            "zonal-scsi",
            "zonal-ublk",
            "zonal-vhost",
            "zonal-fuse",
        ],
    ),
    (
        "zonal-check",
        &[
            "zonal-core",
            "zonal-io",
            "zonal-sim",
            "zonal-fs",
            "zonal-bench",
            "zonal-linux",
            "zonal-nvme",
            "zonal-scsi",
            "zonal-ublk",
            "zonal-vhost",
            "zonal-fuse",
            "zonal",
        ],
    ),
];

/// Crates that have no reason for unsafe code.
const SAFE: [&str; 8] =
    ["zonal-core", "zonal-sim", "zonal-fs", "zonal-bench", "zonal-nvme", "zonal-scsi", "zonal-fuse", "zonal"];

/// Longest source file.
const LINES_MAX: usize = 1000;

/// Every file of the tree, by path from the root.
fn files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(repository(), &mut found);
    assert!(found.len() > 50, "the walk lost its way");
    found.into_iter().map(|p| p.strip_prefix(repository()).unwrap().to_owned()).collect()
}

fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !["target", "out", ".git", "mutants.out"].contains(&name) {
            walk(&path, found);
        } else if path.is_file() && name != ".git" {
            found.push(path);
        }
    }
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "rs")
}

fn text(path: &Path) -> Option<String> {
    String::from_utf8(fs::read(repository().join(path)).unwrap()).ok()
}

/// The text without comments, which may mention names that code must not use.
fn code(path: &Path) -> String {
    let text = text(path).unwrap();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).fold(
        String::new(),
        |mut all, line| {
            all += line;
            all.push('\n');
            all
        },
    )
}

fn refuse(broken: &[String], rule: &str) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

#[test]
fn dependencies_point_down() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let arrows: BTreeMap<_, _> = ARROWS.into_iter().collect();
    let mut broken = Vec::new();
    let mut packages = 0;
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        // Fuzz targets are above all crates.
        if name == "zonal-fuzz" {
            continue;
        }
        packages += 1;
        let Some(allowed) = arrows.get(name) else {
            broken.push(format!("{name} is not in the table of this test"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().unwrap();
        for dependency in dependencies.iter().filter(|d| d["path"].is_string()) {
            let on = dependency["name"].as_str().unwrap();
            // A crate's own tests may enable a feature of it.
            let is_own = on == name && dependency["kind"] == "dev";
            if !is_own && !allowed.contains(&on) {
                broken.push(format!("{name} -> {on}"));
            }
        }
    }
    refuse(&broken, "a crate depends on what lies above it");
    assert_eq!(packages, ARROWS.len(), "a crate of the table is gone");
}

#[test]
fn time_is_passed_in() {
    // Exceptions: the file system's waiter provides the time of day, the server has a clock, a host
    // waits for its controller, and a server for a device that another one has left.
    let drivers = [
        "crates/zonal-fs/src/waiter.rs",
        "crates/zonal-nvme/src/server.rs",
        "crates/zonal-nvme/src/host/attach.rs",
        "crates/zonal-nvme/src/host/link.rs",
        "crates/zonal-nvme/src/host/watch.rs",
        "crates/zonal-ublk/src/server/takeover.rs",
    ]
    .map(Path::new);
    let timeless = [
        "crates/zonal-core/src",
        "crates/zonal-io/src/volume",
        "crates/zonal-io/src/emulated",
        "crates/zonal-io/src/fault",
        "crates/zonal-io/src/linear",
        "crates/zonal-io/src/wrap",
        "crates/zonal-sim/src",
        "crates/zonal-fs/src",
        "crates/zonal-nvme/src",
        "crates/zonal-scsi/src",
        "crates/zonal-ublk/src",
        "crates/zonal-vhost/src",
    ];
    let mut broken = Vec::new();
    for path in files().into_iter().filter(|p| is_rust(p) && !drivers.contains(&p.as_path())) {
        let is_test = path.components().any(|c| c.as_os_str() == "tests");
        if !timeless.iter().any(|t| path.starts_with(t)) || is_test {
            continue;
        }
        let code = code(&path);
        for clock in ["Instant", "SystemTime", "quanta", "UNIX_EPOCH"] {
            if code.contains(clock) {
                broken.push(format!("{}: {clock}", path.display()));
            }
        }
    }
    refuse(&broken, "a clock where time is to be passed in");
}

#[test]
fn core_has_no_io_threads_or_atomics() {
    let mut broken = Vec::new();
    for path in files().into_iter().filter(|p| is_rust(p) && p.starts_with("crates/zonal-core/src")) {
        let code = code(&path);
        for module in ["fs", "io", "net", "thread", "sync", "time", "process", "env"] {
            if code.contains(&format!("std::{module}")) {
                broken.push(format!("{}: std::{module}", path.display()));
            }
        }
    }
    // It formats an error number with the operating system's message.
    broken.retain(|b| b != "crates/zonal-core/src/error.rs: std::io");
    refuse(&broken, "the pure model reaches outside");
}

#[test]
fn crates_without_need_forbid_unsafe_code() {
    let broken: Vec<String> = SAFE
        .iter()
        .filter(|name| {
            let root = PathBuf::from(format!("crates/{name}/src/lib.rs"));
            !code(&root).contains("#![forbid(unsafe_code)]")
        })
        .map(|name| (*name).to_owned())
        .collect();
    refuse(&broken, "a crate does not forbid unsafe code");
}

#[test]
fn crates_use_the_workspaces_lints() {
    for (name, _) in ARROWS {
        let manifest = text(&PathBuf::from(format!("crates/{name}/Cargo.toml"))).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name}");
    }
}

#[test]
fn files_are_short() {
    let lines = |p: &PathBuf| text(p).unwrap().lines().count();
    let broken: Vec<String> = files()
        .into_iter()
        .filter(|p| is_rust(p))
        .map(|p| (lines(&p), p))
        .filter(|(n, _)| *n > LINES_MAX)
        .map(|(n, p)| format!("{}: {n} lines", p.display()))
        .collect();
    refuse(&broken, "past a thousand lines a file holds a second idea");
}

#[test]
fn tree_names_no_machine_and_no_mirror() {
    // Split, so that this file does not match.
    let needles = [
        ["/wo", "rk/"],
        ["/ro", "ot/"],
        ["/ho", "me/"],
        ["/Us", "ers/"],
        ["index.crates", ".io"],
        ["static.crates", ".io"],
        ["pypi", ".org"],
        ["registry.npm", "js.org"],
        ["proxy.gol", "ang.org"],
        ["deb.deb", "ian.org"],
    ]
    .map(|pieces| pieces.concat());
    let mut broken = Vec::new();
    for path in files() {
        let Some(text) = text(&path) else { continue };
        for needle in needles.iter().filter(|n| text.contains(n.as_str())) {
            broken.push(format!("{}: {needle}", path.display()));
        }
    }
    refuse(&broken, "a path or host of one machine");
    assert!(!repository().join(".cargo/config.toml").exists(), "settings of one machine");
    let lock = text(Path::new("Cargo.lock")).unwrap();
    let canonical = concat!("source = \"registry+https://github.com/rust-lang/crates.io-", "index\"");
    let sources = lock.lines().filter(|line| line.starts_with("source = "));
    assert!(sources.clone().count() > 20);
    for source in sources {
        assert_eq!(source, canonical, "Cargo.lock");
    }
}

/// A block of commands in a document.
struct Block {
    document: PathBuf,
    line: usize,
    /// True for a block marked `console`: commands after `$ `, each followed by its output. All
    /// lines of other blocks are commands.
    has_output: bool,
    lines: Vec<String>,
}

/// A command of a document, and its output if the document shows it.
struct Shown {
    command: String,
    output: Option<Vec<String>>,
}

/// The blocks marked `sh` or `console` in the user documentation.
fn blocks() -> Vec<Block> {
    let documents = files().into_iter().filter(|p| {
        p.extension().is_some_and(|e| e == "md") && (p.starts_with("docs") || p.components().count() == 1)
    });
    let mut blocks = Vec::new();
    for document in documents {
        let mut open: Option<Block> = None;
        for (number, line) in text(&document).unwrap().lines().enumerate() {
            match &mut open {
                None if line == "```sh" || line == "```console" => {
                    let (document, has_output) = (document.clone(), line == "```console");
                    open = Some(Block { document, line: number + 1, has_output, lines: Vec::new() });
                }
                None => {}
                Some(_) if line == "```" => blocks.extend(open.take()),
                Some(block) => block.lines.push(line.to_owned()),
            }
        }
        assert!(open.is_none(), "{}: a block is not closed", document.display());
    }
    blocks
}

impl Block {
    fn commands(&self) -> Vec<Shown> {
        if !self.has_output {
            return vec![Shown { command: self.lines.join("\n"), output: None }];
        }
        let mut commands: Vec<Shown> = Vec::new();
        for line in &self.lines {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => {
                    commands.push(Shown { command: command.to_owned(), output: Some(Vec::new()) });
                }
                (None, Some(Shown { command, output: Some(output) })) => match command.ends_with('\\') {
                    true => *command = format!("{command}\n{line}"),
                    false => output.push(line.clone()),
                },
                (None, _) => panic!("{}:{}: output without a command", self.document.display(), self.line),
            }
        }
        commands
    }
}

/// True if the lines are equal except for words with digits. A shown line `...` matches any number
/// of lines.
fn has_shape(shown: &[String], printed: &[String]) -> bool {
    let shape = |line: &str| -> Vec<String> {
        let words = line.split_whitespace();
        words
            .map(|word| if word.contains(|c: char| c.is_ascii_digit()) { "#" } else { word }.to_owned())
            .collect()
    };
    match (shown.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((dots, rest)), _) if dots == "..." => {
            (0..=printed.len()).any(|skipped| has_shape(rest, &printed[skipped..]))
        }
        (Some((line, shown)), Some((other, printed))) => {
            shape(line) == shape(other) && has_shape(shown, printed)
        }
        _ => false,
    }
}

/// Runs the commands of all `sh` and `console` blocks in an empty directory, with the program on
/// the path. Commands that build are skipped: `make` has to name a target. The blocks of a document
/// share a directory. Output shown in a `console` block has the shape of the actual output; a
/// command may fail if an error of the program is shown.
/// Slow: it runs all commands of all documents.
#[test]
fn documented_commands_run() {
    let blocks = blocks();
    assert!(!blocks.is_empty(), "no document has a block of commands");
    let mut directories: BTreeMap<PathBuf, tempfile::TempDir> = BTreeMap::new();
    for block in blocks {
        let place = format!("{}:{}", block.document.display(), block.line);
        let commands = block.commands();
        let directory = directories.entry(block.document).or_insert_with(|| tempfile::tempdir().unwrap());
        for Shown { command, output: shown } in commands {
            let Some(script) = without_builds(&command, &place) else { continue };
            let path = std::env::join_paths(
                std::iter::once(zonal().parent().unwrap().to_owned())
                    .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
            );
            let output = Command::new("sh")
                .args(["-eu", "-c", &format!("exec 2>&1\n{script}")])
                .current_dir(directory.path())
                .env("PATH", path.unwrap())
                .env(NO_CONFIG.0, NO_CONFIG.1)
                .output()
                .unwrap();
            let printed = String::from_utf8_lossy(&output.stdout);
            let may_fail = shown.as_ref().is_some_and(|lines| lines.iter().any(|l| l.starts_with("zonal: ")));
            assert!(output.status.success() || may_fail, "{place}: {}\n{script}\n{printed}", output.status);
            if let Some(shown) = shown {
                let lines: Vec<String> = printed.lines().map(str::to_owned).collect();
                assert!(has_shape(&shown, &lines), "{place}: {script}\nprinted:\n{printed}");
            }
        }
    }
}

/// Script without lines that build; `None` if no line is left.
fn without_builds(script: &str, place: &str) -> Option<String> {
    let makefile = text(Path::new("Makefile")).unwrap();
    let is_run = |line: &&str| {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("make") => {
                let target = words.find(|w| !w.contains('=')).unwrap_or("help");
                let rule = format!("{target}:");
                assert!(makefile.lines().any(|l| l.starts_with(&rule)), "{place}: no target {target}");
                false
            }
            Some("cargo" | "git" | "cd") | None => false,
            Some(_) => true,
        }
    };
    let lines: Vec<&str> = script.lines().filter(is_run).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// A test that starts the program in another way would read the developer's saved device options.
#[test]
fn program_is_started_without_kept_options() {
    let starts = "Command::new(";
    let program = "zonal()";
    let mut broken = Vec::new();
    let of_check = |path: &PathBuf| is_rust(path) && path.starts_with("crates/zonal-check");
    for path in files().into_iter().filter(of_check).filter(|path| !path.ends_with("src/program.rs")) {
        for (n, line) in code(&path).lines().enumerate() {
            if line.contains(starts) && line.contains(program) {
                broken.push(format!("{}:{}", path.display(), n + 1));
            }
        }
    }
    refuse(&broken, "the program is started by program::plain or program::command");
}

#[test]
fn make_help_lists_every_target() {
    let output = Command::new("make").arg("--no-print-directory").current_dir(repository()).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let makefile = text(Path::new("Makefile")).unwrap();
    let phony = makefile.lines().find_map(|l| l.strip_prefix(".PHONY: ")).unwrap();
    for target in phony.split_whitespace() {
        assert!(help.contains(&format!("make {target} ")), "{target} is not in\n{help}");
    }
}

/// Parts of the full lane that `make check-for` runs after a change of this file.
fn parts_due_of(file: &str) -> Vec<String> {
    let output = Command::new("scripts/check.sh").args(["--due-of", file]).current_dir(repository()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn change_makes_the_parts_due_that_concern_it() {
    let word = parts_due_of("crates/zonal-core/src/plug/word.rs");
    assert!(
        ["loom", "instructions", "mutants"].iter().all(|part| word.iter().any(|due| due == part)),
        "{word:?}"
    );
    assert!(!word.iter().any(|due| due.starts_with("guest")), "{word:?}");
    assert!(parts_due_of("crates/zonal-ublk/src/queue.rs").contains(&"guest-ublk".to_owned()));
    assert_eq!(parts_due_of("docs/MOUNT.md"), [""; 0]);
    let unknown = parts_due_of("a/file/of/no/row");
    assert!(unknown.len() > word.len() && word.iter().all(|due| unknown.contains(due)), "{unknown:?}");
}

/// A program that cargo does not test by default would never run if no part included it.
#[test]
fn programs_of_the_full_lane_are_in_a_part() {
    let page = text(Path::new("docs/HACKING.md")).unwrap();
    let mut programs = 0;
    for (package, _) in ARROWS {
        let manifest = text(&PathBuf::from(format!("crates/{package}/Cargo.toml"))).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        for target in manifest.get("test").and_then(|tests| tests.as_array()).into_iter().flatten() {
            if target.get("test").and_then(toml::Value::as_bool) == Some(false) {
                let name = target["name"].as_str().unwrap();
                let is_selected = |word: &str| word == format!("{package}/{name}");
                assert!(page.split(['`', ' ']).any(is_selected), "no part runs {package}/{name}");
                programs += 1;
            }
        }
    }
    assert!(programs > 0);
}
