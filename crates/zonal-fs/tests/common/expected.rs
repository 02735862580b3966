//! States that a file system may have after a failure: the names of some moment since the last
//! sync, and in each file, block by block, the contents of some moment since the file was last
//! synced.

use super::{FsStep, Model, bytes, read_all};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use zonal_fs::{FileSystem, ROOT};

const BLOCK: usize = 4096;

/// Permissible states of the file system after a power cut.
pub struct Expected {
    /// State after each step, starting with the last one that made the names durable.
    pub moments: Vec<Model>,
    /// For each file, the earliest moment that may be found.
    pub durable: BTreeMap<u64, usize>,
}

impl Expected {
    pub fn new(model: Model) -> Expected {
        let durable = model.files.keys().map(|file| (*file, 0)).collect();
        Expected { moments: vec![model], durable }
    }

    pub fn now(&self) -> &Model {
        self.moments.last().expect("there is one")
    }

    /// Closes all open files when the file system goes away. Their handles would keep it alive.
    pub fn close_all(&self) {
        self.now().open.borrow_mut().clear();
    }

    /// Records a successful `step` and the resulting state.
    pub fn done(&mut self, step: &FsStep, model: Model) {
        self.moments.push(model);
        let last = self.moments.len() - 1;
        match step {
            FsStep::Sync => *self = Expected::new(self.now().clone()),
            FsStep::Fsync(name) => {
                if let Some(file) = self.now().names.get(name) {
                    self.durable.insert(*file, last);
                }
            }
            _ => {}
        }
    }

    /// Checks whether the contents of a file can be explained by its recorded versions.
    pub fn explains(&self, file: u64, found: &[u8]) -> Result<(), String> {
        let first = self.durable.get(&file).copied().unwrap_or(0);
        let versions: Vec<&Vec<u8>> =
            self.moments[first..].iter().filter_map(|moment| moment.files.get(&file)).collect();
        let largest = versions.iter().map(|version| version.len()).max().unwrap_or(0);
        let smallest = versions.iter().map(|version| version.len()).min().unwrap_or(0);
        if !(smallest..=largest).contains(&found.len()) {
            return Err(format!("{} bytes, not {smallest} to {largest}", found.len()));
        }
        for (i, block) in found.chunks(BLOCK).enumerate() {
            let is = |version: &&&Vec<u8>| {
                let start = (i * BLOCK).min(version.len());
                let had = &version[start..(start + block.len()).min(version.len())];
                block.starts_with(had) && block[had.len()..].iter().all(|b| *b == 0)
            };
            if !versions.iter().any(|version| is(&version)) && block.iter().any(|b| *b != 0) {
                return Err(format!("block {i} is none that the file ever had"));
            }
            // A hole: from a write beyond the end that did not reach the drive, or from a punch.
            let may_be_hole =
                || versions.iter().any(|v| v.len() <= i * BLOCK) || versions.iter().any(|v| is(&v));
            if block.iter().all(|b| *b == 0) && !may_be_hole() {
                return Err(format!("block {i} is lost"));
            }
        }
        Ok(())
    }

    /// Checks the file system, and returns the state to continue with.
    pub fn check(&self, fs: &FileSystem) -> Result<Model, String> {
        self.check_in(fs, ROOT)
    }

    /// Like `check`, for another directory.
    pub fn check_in(&self, fs: &FileSystem, directory: u64) -> Result<Model, String> {
        let mut names = BTreeMap::new();
        fs.list(directory, None, |name, entry| {
            let number: u8 = std::str::from_utf8(&name[1..]).unwrap().parse().unwrap();
            names.insert(number, entry.ino);
            std::ops::ControlFlow::Continue(())
        })
        .map_err(|e| e.to_string())?;
        let first = self.durable.values().copied().max().unwrap_or(0);
        let mut why = format!("the names {:?} were never these", names.keys());
        for moment in &self.moments[first..] {
            if !moment.names.keys().eq(names.keys()) {
                continue;
            }
            match self.matches(fs, moment, &names) {
                Ok(model) => return Ok(model),
                Err(other) => why = other,
            }
        }
        Err(why)
    }

    fn matches(&self, fs: &FileSystem, moment: &Model, names: &BTreeMap<u8, u64>) -> Result<Model, String> {
        let mut model = Model { files: BTreeMap::new(), open: Rc::default(), ..moment.clone() };
        let mut inos = BTreeMap::new();
        for (name, ino) in names {
            let file = moment.names[name];
            // Hard links must be preserved exactly.
            if *inos.entry(file).or_insert(*ino) != *ino {
                return Err(format!("f{name} is another file than what it was linked to"));
            }
            let found = read_all(fs, *ino).map_err(|e| format!("f{name}: {e}"))?;
            self.explains(file, &found).map_err(|e| format!("f{name}: {e}"))?;
            model.files.insert(file, found);
        }
        match inos.values().collect::<BTreeSet<_>>().len() == inos.len() {
            true => Ok(model),
            false => Err("names of different files are one file's".to_owned()),
        }
    }

    /// Records an interrupted step, which may have been executed in whole or in part.
    pub fn interrupted(&mut self, step: &FsStep, seed: u64) {
        let mut model = self.now().clone();
        let Some(file) = (match step {
            FsStep::Write(n, ..) | FsStep::Truncate(n, _) | FsStep::Punch(n, ..) => {
                model.names.get(n).copied()
            }
            _ => None,
        }) else {
            return;
        };
        let old = model.files[&file].clone();
        let new = model.files.get_mut(&file).expect("it has a name");
        match *step {
            FsStep::Write(_, offset, length) => {
                let end = (offset + length) as usize;
                new.resize(new.len().max(end), 0);
                new[offset as usize..end].copy_from_slice(&bytes(seed, length as usize));
            }
            FsStep::Truncate(_, size) => {
                // The last block is zeroed before the size changes.
                let mut zeroed = old.clone();
                if (size as usize) < zeroed.len() {
                    zeroed[size as usize..].fill(0);
                    let mut between = self.now().clone();
                    between.files.insert(file, zeroed);
                    self.moments.push(between);
                }
                new.resize(size as usize, 0);
            }
            FsStep::Punch(_, offset, length) => {
                let end = ((offset + length) as usize).min(new.len());
                if (offset as usize) < end {
                    new[offset as usize..end].fill(0);
                }
            }
            _ => unreachable!("these are all"),
        }
        self.moments.push(model);
    }
}
