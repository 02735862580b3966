//! A file that appears under its name when it is whole, and not before: whoever is interrupted leaves the one that was there.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A file that is being written, beside its place and under a name of this process. It goes if it is dropped.
pub(crate) struct Whole {
    file: File,
    beside: PathBuf,
    output: PathBuf,
}

/// Where a file of this name lies.
pub(crate) fn directory(output: &Path) -> &Path {
    output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Whole {
    /// Begins a file that will be `output`, or what that is a link to.
    pub(crate) fn create(output: &Path) -> io::Result<Whole> {
        let output = fs::canonicalize(output).unwrap_or_else(|_| output.to_owned());
        let name = output.file_name().unwrap_or_default().to_string_lossy();
        let beside = directory(&output).join(format!(".{name}.{}", std::process::id()));
        Ok(Whole { file: File::create_new(&beside)?, beside, output })
    }

    /// To write to.
    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// It is whole: makes it durable, and gives it its name.
    pub(crate) fn commit(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.beside, &self.output)
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        // Once it has its name it is not there any more.
        let _ = fs::remove_file(&self.beside);
    }
}
