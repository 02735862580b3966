//! Options kept for a device from one run to the next.
//!
//! They are stored in `zonal/devices.toml` in the user's configuration directory,
//! `$XDG_CONFIG_HOME` or else `~/.config`, with a table of options for each device.
//!
//! ```toml
//! ["image:/srv/drive.zonal"]
//! mode = "qd1"
//! qd1_quantum = "64M,100ms"
//! ```
//!
//! The key is the device's name in the registry. Paths of images are made absolute, because a
//! relative path names another file in another directory.
//!
//! The file is replaced atomically, and commands that change it take turns. A malformed file is an
//! error with a line number: ignoring it would open devices with other options than those that the
//! user kept.

use crate::atomic_file::AtomicFile;
use crate::exit::Failure;
use anyhow::{Context, anyhow};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};
use zonal_io::volume::OptionChanges;

/// First line of the file.
const HEAD: &str = "# Options of the write path that `zonal mode --keep` keeps for devices.\n";

/// Maximum length of the file: some thousand devices. Zonal writes no longer ones.
const BYTES_MAX: u64 = 1 << 20;

/// Kept options of all devices.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Kept {
    devices: BTreeMap<String, OptionChanges>,
}

/// Key of a device's options. `name` is its name in the registry, or on the command line of a
/// process with the working directory `base`.
pub(crate) fn key_of(name: &str, base: &Path) -> String {
    let path = match name.strip_prefix("image:") {
        Some(path) => path,
        // A path by the rules of the registry: it begins like one, or has neither a kind nor
        // options.
        None if name.starts_with(['/', '.']) || !name.contains([':', '+']) && base.join(name).is_file() => {
            name
        }
        None => return name.to_owned(),
    };
    // Options of the opening are not part of the drive.
    let (bare, _) = path.split_once(',').unwrap_or((path, ""));
    let path = base.join(if base.join(path).exists() { path } else { bare });
    let path = fs::canonicalize(&path).or_else(|_| std::path::absolute(&path)).unwrap_or(path);
    format!("image:{}", path.display())
}

/// Key of a device named on this command line.
pub(crate) fn key_here(name: &str) -> String {
    key_of(name, &std::env::current_dir().unwrap_or_default())
}

/// Path of the file, if a configuration directory is known.
fn file() -> Option<PathBuf> {
    let absolute = |path: PathBuf| Some(path).filter(|path| path.is_absolute());
    let config = std::env::var_os("XDG_CONFIG_HOME").and_then(|path| absolute(path.into()));
    let home = || Some(absolute(std::env::var_os("HOME")?.into())?.join(".config"));
    Some(config.or_else(home)?.join("zonal/devices.toml"))
}

impl Kept {
    /// Returns the options kept for the device `name` of the command line.
    pub(crate) fn of(name: &str) -> Result<OptionChanges, Failure> {
        let Some(file) = file() else { return Ok(OptionChanges::default()) };
        Ok(Kept::read(&file)?.devices.get(&key_here(name)).copied().unwrap_or_default())
    }

    /// Keeps `changes` for the device, in addition to its other kept options. Returns all of them.
    pub(crate) fn keep(key: &str, changes: OptionChanges) -> Result<OptionChanges, Failure> {
        Kept::update(|kept| {
            let of_device = kept.devices.entry(key.to_owned()).or_default();
            *of_device = changes.over(*of_device);
            (*of_device, true)
        })
    }

    /// Removes the kept options of the device, and returns them.
    pub(crate) fn forget(key: &str) -> Result<Option<OptionChanges>, Failure> {
        if file().is_none_or(|file| !file.exists()) {
            return Ok(None);
        }
        Kept::update(|kept| {
            let removed = kept.devices.remove(key);
            (removed, removed.is_some())
        })
    }

    /// Reads the file, applies `change`, and replaces the file if that returned true.
    fn update<T>(change: impl FnOnce(&mut Kept) -> (T, bool)) -> Result<T, Failure> {
        let file = file().context("cannot keep options: neither HOME nor XDG_CONFIG_HOME is set")?;
        let directory = file.parent().expect("it lies in a directory");
        let failed = || format!("{}: cannot keep options", file.display());
        DirBuilder::new().recursive(true).mode(0o700).create(directory).with_context(failed)?;
        // Locked until it is closed; other commands that change the file wait.
        let lock = File::open(directory).with_context(failed)?;
        lock.lock().with_context(failed)?;
        let mut kept = Kept::read(&file)?;
        let (result, is_changed) = change(&mut kept);
        if is_changed {
            let mut whole = AtomicFile::create(&file, 0o600).with_context(failed)?;
            whole.file().write_all(kept.to_text().as_bytes()).with_context(failed)?;
            whole.commit().with_context(failed)?;
        }
        Ok(result)
    }

    fn read(file: &Path) -> Result<Kept, Failure> {
        let failed = || format!("{}: cannot read the kept options", file.display());
        match fs::metadata(file) {
            // After `su`, the directory may belong to another user and be inaccessible.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied
                ) =>
            {
                return Ok(Kept::default());
            }
            Ok(metadata) if !metadata.is_file() || metadata.len() > BYTES_MAX => {
                return Err(anyhow!("not a file written by `zonal mode --keep`").context(failed()).into());
            }
            _ => {}
        }
        let bytes = fs::read(file).with_context(failed)?;
        let wrong = |line: usize, what: String| anyhow!("{}:{line}: {what}", file.display()).into();
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let before = &bytes[..error.valid_up_to()];
            wrong(1 + before.iter().filter(|&&byte| byte == b'\n').count(), "not UTF-8".to_owned())
        })?;
        Kept::parse(text).map_err(|(line, what)| wrong(line, what))
    }

    /// Parses the text of a file. An error has the line number and a description.
    fn parse(text: &str) -> Result<Kept, (usize, String)> {
        let line_of = |at: Range<usize>| 1 + text[..at.start.min(text.len())].matches('\n').count();
        let table = DeTable::parse(text).map_err(|error| {
            (line_of(error.span().unwrap_or_default()), error.message().replace('\n', "; "))
        })?;
        let mut kept = Kept::default();
        for (device, options) in table.into_inner() {
            let at = line_of(device.span());
            let DeValue::Table(options) = options.into_inner() else {
                return Err((at, format!("{:?} is not a device with a table of options", device.get_ref())));
            };
            let of_device = kept.devices.entry(device.into_inner().into_owned()).or_default();
            for (name, value) in options {
                let at = line_of(name.span());
                let text = match value.get_ref() {
                    DeValue::String(text) => text.to_string(),
                    DeValue::Integer(number) => number.as_str().to_owned(),
                    DeValue::Boolean(is) => if *is { "yes" } else { "no" }.to_owned(),
                    other => {
                        return Err((
                            at,
                            format!("option {} must be a string, not {}", name.get_ref(), other.type_str()),
                        ));
                    }
                };
                of_device.set(name.get_ref(), &text).map_err(|error| (at, error.to_string()))?;
            }
        }
        Ok(kept)
    }

    fn to_text(&self) -> String {
        let mut text = HEAD.to_owned();
        for (device, changes) in &self.devices {
            text += &format!("\n[{}]\n", quoted(device));
            for (key, value) in changes.pairs() {
                text += &format!("{key} = {}\n", quoted(&value));
            }
        }
        text
    }
}

/// Formats a TOML string: escaped as in JSON, and the delete character, too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_written_for_any_name_read_back() {
        let mut kept = Kept::default();
        for name in ["image:/a b/\"c\"", "null:size=1G,zone_size=16M", "odd\n\t\u{7f}\u{1}\\name]", ""] {
            let changes = "mode=qd1 merge=no qd1_quantum=1M,2ms budget=none park=512,1us".parse().unwrap();
            kept.devices.insert(name.to_owned(), changes);
        }
        kept.devices.insert("none".to_owned(), OptionChanges::default());
        assert_eq!(Kept::parse(&kept.to_text()), Ok(kept));
        let by_hand = "[x]\nwindow = 16\nmerge = false\n";
        assert_eq!(Kept::parse(by_hand).unwrap().devices["x"].to_string(), "merge=no window=16");
    }

    #[test]
    fn settings_errors_are_reported_with_their_line() {
        for (text, line, said) in [
            ("[x]\nwindow = 16\n[x]\n", 3, "duplicate key"),
            ("[x\n", 1, ""),
            ("[x]\nwindo = \"16\"\n", 2, "did you mean window?"),
            ("\n[x]\nwindow = 999\n", 3, "from 1 to 255"),
            ("[x]\nwindow = [1]\n", 2, "must be a string"),
            ("x = 3\n", 1, "not a device"),
            ("[x]\nmode = \"qd1\"\nmode = \"qd1\"\n", 3, "duplicate key"),
        ] {
            let (at, what) = Kept::parse(text).unwrap_err();
            assert_eq!(at, line, "{text:?}: {what}");
            assert!(what.contains(said) && !what.contains('\n'), "{text:?}: {what}");
        }
    }

    #[test]
    fn key_of_an_image_is_its_whole_path_and_of_others_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let here = fs::canonicalize(dir.path()).unwrap();
        fs::write(here.join("d"), "").unwrap();
        let expected = format!("image:{}/d", here.display());
        for name in [
            "d",
            "./d",
            "image:d",
            "image:./d",
            "image:d,threads=2",
            &expected,
            expected.strip_prefix("image:").unwrap(),
        ] {
            assert_eq!(key_of(name, &here), expected, "{name}");
        }
        for name in ["null:size=1G", "fault:seed=1+image:d", "sim:zns-1t"] {
            assert_eq!(key_of(name, &here), name);
        }
    }
}
