//! SELinux labels, which `ls -l` and other programs ask for without SELinux, too.
//!
//! The kernel caches neither labels nor their absence. But `ls` stops asking if the file system does
//! not support labels. So reading a label returns `EOPNOTSUPP` as long as no file has one, except on
//! a kernel with SELinux, which would take that for a property of the mount. Setting a label always
//! works, and ends this.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use zonal_fs::FileSystem;

/// Label of a file.
pub(super) const LABEL: &[u8] = b"security.selinux";

/// Control files of SELinux, if the kernel has enabled it.
const SELINUX: &str = "/sys/fs/selinux/enforce";

/// Maximum number of attributes searched for labels: some pages of metadata.
const ROWS_MAX: usize = 1000;

/// Use of labels in a file system.
#[derive(Default)]
pub(super) struct Labels(OnceLock<AtomicBool>);

impl Labels {
    /// True if a file may have a label. The first call reads attributes of the file system.
    pub(super) fn may_exist(&self, fs: &FileSystem) -> bool {
        let look = || {
            let is_used = Path::new(SELINUX).exists();
            AtomicBool::new(is_used || fs.may_have_xattr(LABEL, ROWS_MAX).unwrap_or(true))
        };
        self.0.get_or_init(look).load(Ordering::Acquire)
    }

    /// Records that a file is about to get a label.
    pub(super) fn note(&self) {
        self.0.get_or_init(|| AtomicBool::new(true)).store(true, Ordering::Release);
    }
}
