//! The page that `--report` asks for: where it may go, and what it says of its origin.

use anyhow::{Context, anyhow};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use zonal_bench::About;

/// Whether a page may be written to `path`: nothing is there, or a regular file that is no image. Asked before the run, so
/// that none is in vain.
pub(super) fn check(path: &Path) -> anyhow::Result<()> {
    let place = || format!("{}: cannot write the report", path.display());
    match path.metadata() {
        Ok(found) if !found.is_file() => Err(anyhow!("not a regular file").context(place())),
        Ok(_) if is_image(path) => Err(anyhow!("an image").context(place())),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
            let found = directory.unwrap_or(Path::new(".")).metadata().with_context(place)?;
            if found.is_dir() { Ok(()) } else { Err(anyhow!("not in a directory").context(place())) }
        }
        Err(error) => Err(error).with_context(place),
    }
}

fn is_image(path: &Path) -> bool {
    let mut begin = [0; zonal_io::image::format::MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok()
        && begin == zonal_io::image::format::MAGIC
}

/// The command line of this process.
pub(super) fn about() -> About {
    let words = std::env::args_os().map(|word| quoted(&word.to_string_lossy()));
    About { command: words.collect::<Vec<_>>().join(" "), profile: None }
}

/// A word as a shell takes it for one.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=/.,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn quoted_words_come_back_from_a_shell() {
        let words =
            ["plain", "--name=a b", "", "it's", "</script>", "a\nb", "$HOME `x` \\ \"", "*", "ä", "~"];
        for word in words {
            let output =
                Command::new("sh").args(["-c", &format!("printf %s {}", quoted(word))]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
        assert_eq!(quoted("--device=null:size=64G"), "--device=null:size=64G");
    }
}
