//! Registration of `blk:PATH` as a device kind, and of bare paths of block devices.

use crate::device::BlockDevice;
use crate::open::{BlkOptions, is_block_device};
use std::path::PathBuf;
use std::sync::Arc;
use zonal_io::device::OpenMode;
use zonal_io::registry::{NameError, Open, Options, Registry};

/// Largest number of queues.
const QUEUES_MAX: u64 = 128;

/// Largest number of commands in flight on a queue.
const DEPTH_MAX: u64 = 1024;

/// Registers the device kind for the block devices of this machine in `registry`. A bare path is an
/// image or a block device, whichever is there when it is opened.
///
/// ```
/// use zonal_io::registry::Registry;
/// let mut registry = Registry::default();
/// zonal_linux::register(&mut registry);
/// assert!(registry.parse("blk:/dev/sdz,queues=2,depth=64,readonly").is_ok());
/// let error = registry.open("blk:/dev/null").err().unwrap();
/// assert!(error.to_string().contains("is not a block device"));
/// ```
pub fn register(registry: &mut Registry) {
    registry.add_kind("blk", |part| {
        let (path, mut options) = part.path_and_options()?;
        if path.is_empty() {
            return Err(part.refused("blk needs the path of a block device: `blk:/dev/sdX`"));
        }
        let parsed = blk_options(&mut options)?;
        options
            .finish()
            .map_err(|error| error.hinting("a path with a comma needs brackets: `blk:[PATH]`"))?;
        Ok(open(PathBuf::from(path), part.name_from_here().to_owned(), parsed))
    });
    registry.add_path_opener(|path| {
        is_block_device(path)
            .then(|| open(path.to_owned(), format!("blk:{}", path.display()), BlkOptions::default()))
    });
}

fn blk_options(options: &mut Options<'_>) -> Result<BlkOptions, NameError> {
    let mut parsed = BlkOptions::default();
    let mut is_read_only = false;
    options.flag("readonly", &mut is_read_only)?;
    if is_read_only {
        parsed.mode = OpenMode::Reading;
    }
    options.flag("force", &mut parsed.force)?;
    parsed.queues = options.positive("queues", QUEUES_MAX)?.map_or(parsed.queues, |n| n as u32);
    parsed.depth = options.positive("depth", DEPTH_MAX)?.map(|n| n as u32);
    Ok(parsed)
}

/// Opens the block device in `mode`, or for reading if its options ask for that.
fn open(path: PathBuf, name: String, options: BlkOptions) -> Open {
    Box::new(move |mode| {
        let mode = if options.mode == OpenMode::Reading { OpenMode::Reading } else { mode };
        Ok(Arc::new(BlockDevice::open(&path, &name, &BlkOptions { mode, ..options })?))
    })
}
