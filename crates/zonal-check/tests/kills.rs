//! Commands that change a file system are killed at random moments, repeatedly on one image.
//!
//! After each kill the file system has every file of a completed `put` and none of a completed
//! `rm`, with the right contents. A killed command took effect completely or not at all (per file,
//! for commands with several files), and leaves nothing unfinished. A killed `mkfs` leaves the old
//! file system, the new one, or none; a killed rebuild can be repeated.
//!
//! `ZONAL_KILLS` sets the total number of kills on three drives, `ZONAL_KILL_SEED` the seed. A seed
//! determines the files and the moments of kills, but not when the kernel executes a kill, so runs
//! are not exactly repeatable.

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use zonal_check::program::{self, Said};

/// Maximum number of files in a file system: further ones are added after others were removed.
const FILES_MAX: usize = 8;

/// Files of a directory or an archive that replaces those of the previous one.
const TREE_FILES: usize = 4;

/// Bytes of the largest file.
const BYTES_MAX: usize = 3 << 20;

/// Drives by location of the metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Drive {
    Zones,
    Conventional,
    FileBeside,
}

/// Commands that are killed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum KilledCommand {
    Put,
    /// `put` of an empty file: only measured.
    PutEmpty,
    PutTree,
    Untar,
    Rm,
    Get,
    Mkfs,
    Rebuild,
}

/// Output of a check of a sound file system.
const CLEAN: &[u8] = b"d: clean; all data was read\n";

/// End of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Done,
    Killed,
}

/// Expected contents of a file system.
#[derive(Clone, PartialEq, Eq, Default)]
struct Model {
    files: BTreeMap<String, Vec<u8>>,
    directories: BTreeSet<String>,
}

impl Model {
    fn put(&mut self, path: &str, data: Vec<u8>) {
        let ends = path.match_indices('/').map(|(end, _)| path[..end].to_owned());
        self.directories.extend(ends);
        self.files.insert(path.to_owned(), data);
    }
}

/// State left by a killed command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Left {
    /// State before the command.
    Before,
    /// State after the completed command.
    After,
    /// Only for a command with several files: some of them, each completely.
    Between,
    /// Only for a command that is then repeated: does not open.
    Unfinished,
}

struct Campaign {
    drive: Drive,
    dir: TempDir,
    random: Pcg64Mcg,
    model: Model,
    /// Time of each command if it is not killed.
    takes: BTreeMap<KilledCommand, Duration>,
    /// Number of the file system: its label, and part of the name of its metadata file.
    number: u32,
    done: BTreeMap<KilledCommand, u32>,
    left: BTreeMap<(KilledCommand, Left), u32>,
    kills: u32,
    log: Vec<String>,
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |number| number.parse().unwrap())
}

/// Bytes that do not repeat.
fn bytes(random: &mut impl Rng, most: usize) -> Vec<u8> {
    // Many are short, so that most of the work is on metadata.
    let most = if random.random_bool(0.4) { 20_000 } else { most };
    let mut bytes = vec![0; random.random_range(0..most)];
    random.fill_bytes(&mut bytes);
    bytes
}

impl Campaign {
    fn new(drive: Drive, seed: u64) -> Campaign {
        let dir = tempfile::tempdir().unwrap();
        let conventional = if drive == Drive::Conventional { 3 } else { 0 };
        // Small enough to need garbage collection.
        let line = format!("create d --size 96M --zone-size 4M --zone-nr-conv {conventional}");
        program::run(dir.path(), &line).done();
        let mut campaign = Campaign {
            drive,
            dir,
            random: Pcg64Mcg::seed_from_u64(seed << 8 | drive as u64),
            model: Model::default(),
            takes: BTreeMap::new(),
            number: 0,
            done: BTreeMap::new(),
            left: BTreeMap::new(),
            kills: 0,
            log: Vec::new(),
        };
        campaign.measure();
        campaign
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Appends the option that names the metadata of file system `number`.
    fn of(&self, number: u32, line: &str) -> String {
        match self.drive {
            Drive::FileBeside => format!("{line} --metadata m{number}"),
            _ => line.to_owned(),
        }
    }

    fn run(&self, line: &str) -> Said {
        program::run(self.dir.path(), &self.of(self.number, line))
    }

    fn done(&self, line: &str) -> Vec<u8> {
        let said = self.run(line);
        assert!(said.code == Some(0) && said.err.is_empty(), "zonal {line}: {said:?}\n{}", self.history());
        said.out
    }

    fn history(&self) -> String {
        self.log[self.log.len().saturating_sub(20)..].join("\n")
    }

    /// Measures each command once, uninterrupted.
    fn measure(&mut self) {
        let mut data = vec![0; BYTES_MAX];
        self.random.fill_bytes(&mut data);
        fs::write(self.path("in"), &data).unwrap();
        fs::write(self.path("empty"), "").unwrap();
        let lines = [
            (KilledCommand::Mkfs, "mkfs d --label 0"),
            (KilledCommand::PutEmpty, "put d empty a/b"),
            (KilledCommand::Put, "put d in a/b"),
            (KilledCommand::Get, "get d a/b out"),
            (KilledCommand::Rebuild, "fsck d --rebuild --force"),
            (KilledCommand::Rm, "rm d a/b"),
            (KilledCommand::PutTree, "put -r d tree t"),
        ];
        self.write_tree();
        for (kind, line) in lines {
            let begin = Instant::now();
            self.done(line);
            self.takes.insert(kind, begin.elapsed());
        }
        self.takes.insert(KilledCommand::Untar, self.takes[&KilledCommand::PutTree]);
        self.done("rm -r d t");
        fs::remove_file(self.path("empty")).unwrap();
        self.model.directories.insert("a".to_owned());
    }

    /// Starts a command that handles `bytes` bytes, and kills it if it runs long enough.
    fn killed(&mut self, kind: KilledCommand, line: &str, bytes: usize) -> End {
        let takes = match kind {
            KilledCommand::Put | KilledCommand::PutEmpty => {
                let grows =
                    self.takes[&KilledCommand::Put].saturating_sub(self.takes[&KilledCommand::PutEmpty]);
                self.takes[&KilledCommand::PutEmpty] + grows.mul_f64(bytes as f64 / BYTES_MAX as f64)
            }
            _ => self.takes[&kind],
        };
        // Up to longer than it takes alone, because some of the commands must complete.
        let after = takes.mul_f64(self.random.random_range(0.0..1.6));
        let mut command = program::command(self.dir.path(), line);
        let stdin = match kind {
            KilledCommand::Untar => Stdio::from(fs::File::open(self.path("in")).unwrap()),
            _ => Stdio::null(),
        };
        let mut child = command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(after);
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        let end = match output.status.code() {
            Some(0) => End::Done,
            None => End::Killed,
            code => {
                let error = String::from_utf8_lossy(&output.stderr);
                panic!("zonal {line}: exit {code:?}: {error}\n{}", self.history());
            }
        };
        self.log.push(format!("{:?}: zonal {line}: {end:?} after {after:?}", self.drive));
        match end {
            End::Done => *self.done.entry(kind).or_default() += 1,
            End::Killed => self.kills += 1,
        }
        end
    }

    fn note(&mut self, kind: KilledCommand, left: Left) {
        *self.left.entry((kind, left)).or_default() += 1;
    }

    /// Runs commands until `kills` of them were killed.
    fn kill(&mut self, kills: u32) {
        while self.kills < kills {
            match self.random.random_range(0..26) {
                20..23 => self.replace_tree(KilledCommand::PutTree),
                23..26 => self.replace_tree(KilledCommand::Untar),
                0..11 => self.put(),
                11..14 => self.rm(),
                14..16 => self.get(),
                16..18 => self.mkfs(),
                _ => self.rebuild(),
            }
            self.check_directory();
        }
    }

    fn some_file(&mut self) -> Option<String> {
        let at = self.random.random_range(0..self.model.files.len().max(1));
        self.model.files.keys().nth(at).cloned()
    }

    fn put(&mut self) {
        if self.model.files.len() >= FILES_MAX {
            return self.rm();
        }
        let there = self.some_file().filter(|_| self.random.random_bool(0.4));
        let new =
            || format!("{}{}", ["", "a/", "b/c/", "d/e/f/"][self.random.random_range(0..4)], self.log.len());
        let path = there.unwrap_or_else(new);
        let data = bytes(&mut self.random, BYTES_MAX);
        fs::write(self.path("in"), &data).unwrap();
        let line = self.of(self.number, &format!("put d in {path}"));
        let (mut after, length) = (self.model.clone(), data.len());
        after.put(&path, data);
        match self.killed(KilledCommand::Put, &line, length) {
            End::Done => self.model = after,
            End::Killed => self.either(KilledCommand::Put, after),
        }
        self.check();
    }

    /// Makes the files of a directory, and an archive of them.
    fn write_tree(&mut self) -> Vec<Vec<u8>> {
        fs::create_dir_all(self.path("tree")).unwrap();
        let data: Vec<_> = (0..TREE_FILES).map(|_| bytes(&mut self.random, BYTES_MAX / TREE_FILES)).collect();
        for (n, data) in data.iter().enumerate() {
            fs::write(self.path(&format!("tree/{n}")), data).unwrap();
        }
        data
    }

    /// Replaces several files with one command. After a kill each of them is either the old one or
    /// the new one.
    fn replace_tree(&mut self, kind: KilledCommand) {
        let data = self.write_tree();
        let length = data.iter().map(Vec::len).sum();
        let mut after = self.model.clone();
        for (n, data) in data.into_iter().enumerate() {
            after.put(&format!("t/{n}"), data);
        }
        let line = match kind {
            KilledCommand::PutTree => "put -r d tree t",
            _ => {
                let mut tar = Command::new("tar");
                tar.args(["-cf", "in", "-C", "tree", "."]).current_dir(self.dir.path());
                assert!(tar.status().unwrap().success());
                "tar -x d t"
            }
        };
        let line = self.of(self.number, line);
        match self.killed(kind, &line, length) {
            End::Done => self.model = after,
            End::Killed => {
                let there = self.contents();
                let is_old_or_new = |path: &String| {
                    [&self.model, &after].iter().any(|model| model.files.get(path) == there.files.get(path))
                };
                let wrong: Vec<_> = after.files.keys().filter(|path| !is_old_or_new(path)).collect();
                assert!(wrong.is_empty(), "{wrong:?} are neither\n{}", self.history());
                let left = match there {
                    _ if there == self.model => Left::Before,
                    _ if there == after => Left::After,
                    _ => Left::Between,
                };
                self.note(kind, left);
                if there.directories.contains("t") {
                    self.model.directories.insert("t".to_owned());
                }
                let replaced = there.files.into_iter().filter(|(path, _)| path.starts_with("t/"));
                self.model.files.extend(replaced);
            }
        }
        self.check();
    }

    fn rm(&mut self) {
        let Some(path) = self.some_file() else { return };
        let line = self.of(self.number, &format!("rm d {path}"));
        let mut after = self.model.clone();
        after.files.remove(&path);
        match self.killed(KilledCommand::Rm, &line, 0) {
            End::Done => self.model = after,
            End::Killed => self.either(KilledCommand::Rm, after),
        }
        self.check();
    }

    /// Copies to an existing file.
    fn get(&mut self) {
        let Some(path) = self.some_file() else { return };
        fs::write(self.path("out"), "old").unwrap();
        let line = self.of(self.number, &format!("get d {path} out"));
        let end = self.killed(KilledCommand::Get, &line, 0);
        let out = fs::read(self.path("out")).unwrap();
        let is_old = out == b"old" && end == End::Killed;
        assert!(is_old || out == self.model.files[&path], "out is neither\n{}", self.history());
        if end == End::Killed {
            self.note(KilledCommand::Get, if is_old { Left::Before } else { Left::After });
        }
        // A kill just before the replacement leaves the new file under its temporary name.
        for entry in fs::read_dir(self.dir.path()).unwrap() {
            let entry = entry.unwrap();
            if end == End::Killed && entry.file_name().to_string_lossy().starts_with(".zonal.") {
                assert!(is_old && fs::read(entry.path()).unwrap() == self.model.files[&path]);
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }

    fn mkfs(&mut self) {
        let next = self.number + 1;
        let line = self.of(next, &format!("mkfs d --force --label {next}"));
        let end = self.killed(KilledCommand::Mkfs, &line, 0);
        let label = self.label();
        match label {
            Some(label) if label == next => {
                if end == End::Killed {
                    self.note(KilledCommand::Mkfs, Left::After);
                }
            }
            Some(label) => {
                self.note(KilledCommand::Mkfs, Left::Before);
                assert!(label == self.number && end == End::Killed, "label {label}\n{}", self.history());
                // The old file system is intact. The new one's metadata file is orphaned.
                let _ = fs::remove_file(self.path(&format!("m{next}")));
                return self.check();
            }
            None => {
                assert_eq!(end, End::Killed);
                self.note(KilledCommand::Mkfs, Left::Unfinished);
                let said = self.run("ls d").refused(4);
                let is_known = ["no file system", "superblock"].iter().any(|why| said.contains(why));
                assert!(is_known, "{said}\n{}", self.history());
                if self.path(&format!("m{next}")).exists() && self.drive == Drive::FileBeside {
                    let said = program::run(self.dir.path(), &line).refused(1);
                    assert!(said.contains("there is a file of this name"), "{said}");
                    fs::remove_file(self.path(&format!("m{next}"))).unwrap();
                }
                program::run(self.dir.path(), &line).done();
            }
        }
        let _ = fs::remove_file(self.path(&format!("m{}", self.number)));
        self.number = next;
        self.model = Model::default();
        assert_eq!(self.label(), Some(next));
        self.check();
    }

    /// Number of the file system on the drive, independent of its metadata.
    fn label(&self) -> Option<u32> {
        let said = program::run(self.dir.path(), "dump d --json");
        let lines = String::from_utf8(said.out).unwrap();
        let superblocks = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let labels = superblocks.filter_map(|object| object["superblock"]["label"].as_str()?.parse().ok());
        let labels: BTreeSet<u32> = labels.collect();
        assert!(labels.len() < 2, "{labels:?}\n{}", self.history());
        labels.first().copied()
    }

    fn rebuild(&mut self) {
        let data = if self.random.random_bool(0.3) { " --data" } else { "" };
        if self.model.files.values().all(Vec::is_empty) {
            return;
        }
        let is_lost = self.drive == Drive::FileBeside && self.random.random_bool(0.5);
        if is_lost {
            fs::remove_file(self.path(&format!("m{}", self.number))).unwrap();
        }
        let line = self.of(self.number, &format!("fsck d --rebuild --force{data}"));
        let mut end = self.killed(KilledCommand::Rebuild, &line, 0);
        // An interrupted rebuild can be repeated, and interrupted again.
        while end == End::Killed {
            if self.run("fsck d --data").code == Some(0) {
                self.note(KilledCommand::Rebuild, Left::After);
                break;
            }
            self.note(KilledCommand::Rebuild, Left::Unfinished);
            end = match self.random.random_bool(0.5) {
                true => self.killed(KilledCommand::Rebuild, &line, 0),
                false => {
                    self.done("fsck d --rebuild");
                    End::Done
                }
            };
        }
        let unfinished = self.path(&format!("m{}.rebuild", self.number));
        assert!(end == End::Killed || !unfinished.exists(), "{}", self.history());
        let _ = fs::remove_file(unfinished);
        self.check_rebuilt();
    }

    /// Each file is there, perhaps without its name. Removed files that reappeared are removed
    /// again, and the rest cannot be known from the zones: a file not completed by any command may
    /// have holes.
    fn check_rebuilt(&mut self) {
        assert_eq!(self.done("fsck d --data"), CLEAN);
        let there = self.contents();
        for (path, data) in self.model.files.iter().filter(|(_, data)| !data.is_empty()) {
            let is_there = |(at, found): (&String, &Vec<u8>)| {
                found == data && (at == path || at.starts_with("lost+found/"))
            };
            assert!(there.files.iter().any(is_there), "{path} is gone\n{}", self.history());
        }
        let before = std::mem::replace(&mut self.model, there);
        if self.model.directories.remove("lost+found") {
            self.done("rm d -r lost+found");
            self.model.files.retain(|path, _| !path.starts_with("lost+found/"));
        }
        let came_back = self.model.files.extract_if(.., |path, data| before.files.get(path) != Some(data));
        for (path, _) in came_back.collect::<Vec<_>>() {
            self.done(&format!("rm d {path}"));
        }
        let directories = &self.model.directories;
        let has_strange = directories.iter().any(|path| path.starts_with("lost+found"));
        assert!(!has_strange, "{directories:?}");
        self.check();
    }

    /// Actual contents: listed paths, and data read from files.
    fn contents(&self) -> Model {
        let mut model = Model::default();
        let list = String::from_utf8(self.done("ls d -R --json")).unwrap();
        for line in list.lines() {
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            let path = object["name"].as_str().unwrap().to_owned();
            if object["kind"] == "directory" {
                model.directories.insert(path);
            } else {
                let data = self.done(&format!("get d {path} -"));
                model.files.insert(path, data);
            }
        }
        model
    }

    /// After a kill, adopts the result of the command if it took effect.
    fn either(&mut self, kind: KilledCommand, after: Model) {
        let is_after = self.contents() == after;
        self.note(kind, if is_after { Left::After } else { Left::Before });
        if is_after {
            self.model = after;
        }
    }

    /// Asserts that the file system is sound and has exactly the expected contents.
    fn check(&self) {
        // A command killed during an update leaves invalid copies of the superblock; a repair or
        // the next update rewrites them.
        let said = String::from_utf8(self.run("fsck d").out).unwrap();
        if !said.starts_with("d: clean; ")
            && said.lines().all(|line| line.contains(": a copy of the superblock is damaged: "))
        {
            self.done("fsck d --repair");
        }
        assert_eq!(self.done("fsck d --data"), CLEAN, "{}", self.history());
        let there = self.contents();
        assert_eq!(there.directories, self.model.directories, "{}", self.history());
        let names = |model: &Model| model.files.keys().cloned().collect::<Vec<String>>();
        assert_eq!(names(&there), names(&self.model), "{}", self.history());
        for (path, data) in &self.model.files {
            assert!(there.files[path] == *data, "{path} has other bytes\n{}", self.history());
        }
        let status: serde_json::Value = serde_json::from_slice(&self.done("stat d --json")).unwrap();
        let blocks: usize = self.model.files.values().map(|data| data.len().div_ceil(4096)).sum();
        assert_eq!(status["files"]["used"], blocks * 4096, "{}", self.history());
    }

    /// Asserts that there are no unexpected files next to the image.
    fn check_directory(&self) {
        let names = fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let metadata = format!("m{}", self.number);
        let known = ["d", "in", "out", "tree", "zonal", &metadata];
        let strange: Vec<_> = names.filter(|name| !known.iter().any(|known| name == known)).collect();
        assert!(strange.is_empty(), "{strange:?}\n{}", self.history());
    }
}

fn campaign(drive: Drive) {
    let kills = number("ZONAL_KILLS", 60).div_ceil(3) as u32;
    let mut campaign = Campaign::new(drive, number("ZONAL_KILL_SEED", 0));
    campaign.kill(kills);
    let Campaign { done, left, .. } = &campaign;
    println!("kills: {drive:?}: {kills} killed: {left:?}; done: {done:?}");
    // Kills happen in all phases.
    let is_left = |kind, as_what| left.contains_key(&(kind, as_what));
    let phases = [
        (KilledCommand::Put, Left::Before),
        (KilledCommand::Put, Left::After),
        (KilledCommand::PutTree, Left::Before),
        (KilledCommand::PutTree, Left::After),
        (KilledCommand::Untar, Left::Before),
        (KilledCommand::Rm, Left::Before),
        (KilledCommand::Get, Left::Before),
        (KilledCommand::Mkfs, Left::Before),
        (KilledCommand::Mkfs, Left::Unfinished),
        (KilledCommand::Rebuild, Left::Unfinished),
    ];
    assert!(kills < 200 || phases.iter().all(|(kind, as_what)| is_left(*kind, *as_what)), "{left:?}");
}

/// Slow: it starts the program for every step.
#[test]
fn zones_keep_completed_changes_when_commands_are_killed() {
    campaign(Drive::Zones);
}

/// Slow: it starts the program for every step.
#[test]
fn conventional_zones_keep_completed_changes_when_commands_are_killed() {
    campaign(Drive::Conventional);
}

/// Slow: it starts the program for every step.
#[test]
fn file_beside_keeps_completed_changes_when_commands_are_killed() {
    campaign(Drive::FileBeside);
}

/// True if `campaign` reports a problem after `change`, but not before.
fn is_caught(campaign: &mut Campaign, change: impl FnOnce(&mut Campaign)) -> bool {
    campaign.check();
    campaign.check_directory();
    change(campaign);
    let check = || {
        campaign.check();
        campaign.check_directory();
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_err()
}

/// Slow: it starts the program for every step.
#[test]
fn canary_check_catches_missing_changed_and_extra_files() {
    let begun = || {
        let mut campaign = Campaign::new(Drive::Conventional, 0);
        campaign.done("put d in a/f");
        let data = fs::read(campaign.path("in")).unwrap();
        campaign.model.put("a/f", data);
        campaign
    };
    assert!(is_caught(&mut begun(), |campaign| drop(campaign.done("rm d a/f"))));
    assert!(is_caught(&mut begun(), |campaign| drop(campaign.done("put d in a/g"))));
    assert!(is_caught(&mut begun(), |campaign| {
        fs::write(campaign.path("in"), vec![7; BYTES_MAX]).unwrap();
        campaign.done("put d in a/f");
    }));
    assert!(is_caught(&mut begun(), |campaign| {
        campaign.done("put d in b/f");
        campaign.done("rm d b/f");
    }));
    assert!(is_caught(&mut begun(), |campaign| fs::write(campaign.path(".zonal.1.0"), "").unwrap()));
    assert!(is_caught(&mut begun(), |campaign| drop(campaign.done("reset d --offset 12M --yes"))));
}
