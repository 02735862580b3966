//! Findings about this machine.

use super::{Finding, KERNEL_MIN, KernelVersion};

/// Requests of asynchronous I/O that should be left: those of a few drives.
const AIO_LEFT_MIN: u64 = 4096;

/// Host-managed disk without a block device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SgOnly {
    /// Path of its passthrough device, such as `/dev/sg1`.
    pub sg: String,
    /// Model, as stated by the drive; empty if it states none.
    pub model: String,
    /// True if the kernel was built with zones; `None` if unknown.
    pub zones_built: Option<bool>,
}

impl SgOnly {
    /// Model for messages.
    pub(super) fn label(&self) -> &str {
        if self.model.is_empty() { "a disk without a model name" } else { &self.model }
    }

    /// Command that gives it a block device.
    pub(super) fn command(&self) -> String {
        match self.zones_built {
            Some(false) => "boot a kernel with CONFIG_BLK_DEV_ZONED=y".to_owned(),
            _ => "sudo modprobe sd_mod; sudo dmesg | grep -i zone".to_owned(),
        }
    }
}

/// Kernel module of an optional feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Module {
    /// Its name.
    pub name: &'static str,
    /// Feature that needs it.
    pub feature: &'static str,
    /// True if it is built in, loaded or installed; `None` if unknown.
    pub available: Option<bool>,
}

/// Everything known about this machine.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Machine {
    /// Release of the kernel, as `uname -r` prints it.
    pub release: String,
    /// True if the kernel was built with zones; `None` if unknown.
    pub zones_built: Option<bool>,
    /// Number of zoned block devices.
    pub zoned: usize,
    /// Host-managed disks without a block device.
    pub sg_only: Vec<SgOnly>,
    /// Error of setting up an `io_uring`, if it is not allowed.
    pub uring_error: Option<String>,
    /// Value of `kernel.io_uring_disabled`.
    pub uring_setting: Option<u32>,
    /// Values of `fs.aio-nr` and `fs.aio-max-nr`.
    pub aio: Option<(u64, u64)>,
    /// Modules.
    pub modules: Vec<Module>,
}

/// Findings about a machine, the most severe first.
pub fn examine_machine(machine: &Machine) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(version) = KernelVersion::parse(&machine.release).filter(|version| *version < KERNEL_MIN) {
        found.push(Finding::KernelTooOld { version });
    }
    if machine.zones_built == Some(false) {
        found.push(Finding::KernelWithoutZones);
    }
    found.extend(machine.sg_only.iter().cloned().map(Finding::SgOnly));
    if let Some(error) = &machine.uring_error {
        found.push(Finding::UringRefused { error: error.clone(), setting: machine.uring_setting });
    }
    if let Some((used, max)) = machine.aio.filter(|(used, max)| used + AIO_LEFT_MIN > *max) {
        found.push(Finding::AioUsedUp { used, max });
    }
    let missing = machine.modules.iter().filter(|module| module.available == Some(false));
    found.extend(
        missing.map(|module| Finding::ModuleMissing { module: module.name, feature: module.feature }),
    );
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity()));
    found
}
