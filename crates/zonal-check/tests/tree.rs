//! The tree's own rules: which crate knows which, where time and chance may be read, how long files get, and that what
//! the documentation tells people to type works.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use zonal_check::house::mutation::{Mutation, Sources};
use zonal_check::house::words::{names_in, phrases_in, prose};
use zonal_check::program::{NO_CONFIG, repository, zonal};

/// Which crates of the workspace each crate may depend on, for building and for its tests. The arrows point down.
const ARROWS: [(&str, &[&str]); 13] = [
    ("zonal-core", &[]),
    ("zonal-io", &["zonal-core"]),
    ("zonal-sim", &["zonal-core", "zonal-io"]),
    ("zonal-fs", &["zonal-core", "zonal-io"]),
    ("zonal-bench", &["zonal-core", "zonal-io", "zonal-sim", "zonal-fs"]),
    ("zonal-fio", &["zonal-core", "zonal-io", "zonal-nvme"]),
    ("zonal-nvme", &["zonal-core", "zonal-io"]),
    ("zonal-ublk", &["zonal-core", "zonal-io"]),
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

/// Every file that is part of the tree, with its path from the root.
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

/// The text without comments, so that they may speak of what code may not use.
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
        packages += 1;
        let Some(allowed) = arrows.get(name) else {
            broken.push(format!("{name} is not in the table of this test"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().unwrap();
        for dependency in dependencies.iter().filter(|d| d["path"].is_string()) {
            let on = dependency["name"].as_str().unwrap();
            // A crate's own tests may ask for a feature of it.
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
    // The file system's waiter tells the time of day, the server has a clock, a host waits for its controller,
    // and a server for the device that another has left.
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
    // An error number is told in the operating system's words.
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
    // In pieces, so that this file does not find itself.
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

/// A block of shell commands in a document.
struct Block {
    document: PathBuf,
    line: usize,
    commands: String,
}

/// The blocks marked `sh` in the documents that tell people what to type.
fn blocks() -> Vec<Block> {
    let documents = files().into_iter().filter(|p| {
        p.extension().is_some_and(|e| e == "md") && (p.starts_with("docs") || p.components().count() == 1)
    });
    let mut blocks = Vec::new();
    for document in documents {
        let mut open: Option<Block> = None;
        for (number, line) in text(&document).unwrap().lines().enumerate() {
            match &mut open {
                None if line == "```sh" => {
                    open =
                        Some(Block { document: document.clone(), line: number + 1, commands: String::new() });
                }
                None => {}
                Some(_) if line == "```" => blocks.extend(open.take()),
                Some(block) => {
                    block.commands += line;
                    block.commands.push('\n');
                }
            }
        }
        assert!(open.is_none(), "{}: a block is not closed", document.display());
    }
    blocks
}

/// Every ```` ```sh ```` block of a document runs in an empty directory with the program on its path. What builds or
/// takes long is not run: a line that begins with `make` has to name a target, one with `cargo` an installed command.
/// Blocks one document holds share a directory, in order, so that a walk through can be told in pieces.
#[test]
fn documented_commands_run() {
    let blocks = blocks();
    assert!(!blocks.is_empty(), "no document has a block marked `sh`");
    let makefile = text(Path::new("Makefile")).unwrap();
    let mut directories: BTreeMap<PathBuf, tempfile::TempDir> = BTreeMap::new();
    for Block { document, line, commands } in blocks {
        let place = format!("{}:{line}", document.display());
        let directory = directories.entry(document).or_insert_with(|| tempfile::tempdir().unwrap());
        let mut script = String::new();
        for command in commands.lines() {
            let mut words = command.split_whitespace();
            match words.next() {
                Some("make") => {
                    let target = words.find(|w| !w.contains('=')).unwrap_or("help");
                    let rule = format!("{target}:");
                    assert!(makefile.lines().any(|l| l.starts_with(&rule)), "{place}: no target {target}");
                }
                Some("cargo" | "git" | "cd") => {}
                _ => {
                    script += command;
                    script.push('\n');
                }
            }
        }
        let path = std::env::join_paths(
            std::iter::once(zonal().parent().unwrap().to_owned())
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
        );
        let output = Command::new("sh")
            .args(["-eu", "-c", &script])
            .current_dir(directory.path())
            .env("PATH", path.unwrap())
            .env(NO_CONFIG.0, NO_CONFIG.1)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{place}: {}\n{script}\n{said}", output.status);
    }
}

/// A test that starts the program by another way would read what the developer keeps for devices.
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

/// Where the mutations are that `scripts/mutations.sh` makes. Each takes one rule away.
const MUTATIONS: &str = "crates/zonal-check/mutations";

/// The words after `name: ` in the lines before a mutation's changes.
fn header<'a>(mutation: &'a str, name: &str) -> Vec<&'a str> {
    let lines = mutation.lines().take_while(|line| !line.starts_with("at: "));
    let said = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    said.flat_map(str::split_whitespace).collect()
}

/// The code of the tests that a mutation names, or what is wrong with the place that it says.
fn code_of_place(mutation: &str, files: &[PathBuf]) -> Result<String, String> {
    let words = match header(mutation, "in") {
        words if words.is_empty() => vec!["--package", "zonal-check", "--test", "hazards"],
        words => words,
    };
    let after = |option| words.iter().skip_while(|word| **word != option).nth(1);
    let package = after("--package").ok_or("no package")?;
    let module = words.last().and_then(|word| word.strip_suffix("::"));
    let (of, target) = match after("--test") {
        Some(program) => {
            let name = module.map_or((*program).to_owned(), |module| format!("{program}/{module}"));
            (PathBuf::from(format!("crates/{package}/tests")), Some(name))
        }
        None => (PathBuf::from(format!("crates/{package}/src")), None),
    };
    let is_of_place = |path: &PathBuf| match (path.strip_prefix(&of), &target) {
        (Ok(rest), Some(name)) => rest.starts_with(name) || rest == Path::new(&format!("{name}.rs")),
        (rest, None) => rest.is_ok(),
        (Err(_), _) => false,
    };
    let code: String = files.iter().filter(|p| is_rust(p) && is_of_place(p)).map(|p| code(p)).collect();
    if code.is_empty() { Err(format!("no such place: {}", words.join(" "))) } else { Ok(code) }
}

/// What is wrong with a mutation.
fn faults_of_mutation(mutation: &str, sources: &mut Sources, files: &[PathBuf]) -> Vec<String> {
    let made = Mutation::parse(mutation).and_then(|mutation| mutation.made(sources));
    let mut faults: Vec<String> = made.err().iter().map(ToString::to_string).collect();
    let tests = header(mutation, "test");
    if header(mutation, "why").is_empty() || tests.is_empty() {
        faults.push("it does not say why, or names no test".to_owned());
    }
    match code_of_place(mutation, files) {
        Ok(code) => {
            let is_missing = |test: &&&str| !code.contains(&format!("fn {test}("));
            faults.extend(tests.iter().filter(is_missing).map(|test| format!("there is no test {test}")));
        }
        Err(why) => faults.push(why),
    }
    faults
}

#[test]
fn mutations_can_be_made_and_name_tests_that_exist() {
    let entries = fs::read_dir(repository().join(MUTATIONS)).unwrap();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(paths.len() > 100, "the mutations are elsewhere");
    let (mut sources, files) = (Sources::of(repository()), files());
    let mut broken = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap().to_str().unwrap();
        let faults = faults_of_mutation(&fs::read_to_string(&path).unwrap(), &mut sources, &files);
        broken.extend(faults.into_iter().map(|fault| format!("{name}: {fault}")));
    }
    refuse(&broken, "a mutation says nothing of the code as it is");
}

#[test]
fn stale_mutation_that_is_planted_is_found() {
    let (mut sources, files) = (Sources::of(repository()), files());
    let mut faults = |place: &str, test: &str, line: &str| {
        let mutation = format!("why: planted\nin: {place}\ntest: {test}\nat: LICENSE-MIT\n-{line}\n+Else\n");
        faults_of_mutation(&mutation, &mut sources, &files).len()
    };
    let first = text(Path::new("LICENSE-MIT")).unwrap().lines().next().unwrap().to_owned();
    let (place, test) = ("--package zonal-check --test tree", "files_are_short");
    assert_eq!(faults(place, test, &first), 0);
    assert_eq!(faults(place, test, "Nothing like it"), 1);
    assert_eq!(faults(place, "files_are_shorter", &first), 1);
    assert_eq!(faults("--package zonal-check --test all trees::", test, &first), 1);
}

/// The module whose tests plant names and phrases that the house has plainer words for.
const PLANTED: &str = "crates/zonal-check/src/house/words.rs";

/// Every module, document and reason of a mutation names its actors and is plain, and no module defines a name that the house has
/// another word for. Names of tests are free, and so are those of [`PLANTED`].
#[test]
fn tree_speaks_plainly() {
    let mut broken = Vec::new();
    let ends = |path: &Path, with: &str| path.extension().is_some_and(|end| end == with);
    for path in files().iter().filter(|path| is_rust(path) || ends(path, "md") || ends(path, "mutation")) {
        let mut text = text(path).unwrap();
        if ends(path, "mutation") {
            text.truncate(text.find('\n').unwrap());
        }
        for (line, phrase) in phrases_in(&prose(&text, is_rust(path))) {
            broken.push(format!("{}:{line}: \"{phrase}\"", path.display()));
        }
        if is_rust(path) && path != Path::new(PLANTED) {
            let names = names_in(&text).into_iter();
            broken.extend(names.map(|(line, name)| format!("{}:{line}: the name {name}", path.display())));
        }
    }
    refuse(&broken, "a word that the house has a plainer one for");
}

#[test]
fn states_are_drawn_as_the_golden_graphs_have_them() {
    let page = text(Path::new("docs/STATES.md")).unwrap();
    for name in ["device-zone-zns", "device-zone-zbc", "plug", "plug-window"] {
        let graph =
            text(&Path::new("crates/zonal-core/tests/data").join(name).with_extension("dot")).unwrap();
        let arrows =
            graph.lines().filter_map(|line| line.trim().strip_suffix("\"]")?.split_once(" [label=\""));
        let arrows: String =
            arrows.map(|(arrow, label)| format!("  {}: {label}\n", arrow.replace("->", "-->"))).collect();
        assert!(arrows.lines().count() > 20, "{name}");
        let drawn = format!("```mermaid\nstateDiagram-v2\n{arrows}```\n");
        assert!(page.contains(&drawn), "docs/STATES.md has to have for {name}.dot:\n{drawn}");
    }
}
