//! Registration of `nvme-tcp://ADDRESS:PORT/NQN` as a device kind.

use super::attach::AttachOptions;
use super::device::RemoteDevice;
use super::queue::HostOptions;
use crate::wire::NQN_MAX;
use std::net::SocketAddr;
use std::sync::Arc;
use zonal_io::registry::{NameError, Options, Part, Registry};

/// Default number of I/O queues.
pub const QUEUES_DEFAULT: u16 = 1;

/// Default queue depth.
pub const DEPTH_DEFAULT: u16 = 128;

/// Maximum I/O queues, as granted by a target of this crate.
const QUEUES_MAX: u64 = 128;

/// Maximum queue depth.
const DEPTH_MAX: u64 = 1024;

/// Registers the device kind for remote drives in `registry`.
///
/// ```
/// use zonal_io::registry::Registry;
/// let mut registry = Registry::default();
/// zonal_nvme::host::register(&mut registry);
/// assert!(registry.parse("nvme-tcp://127.0.0.1:4420/nqn.2020-01.org.example:disk,nsid=2").is_ok());
/// let error = registry.parse("nvme-tcp://127.0.0.1/nqn.2020-01.org.example:disk").unwrap_err();
/// assert!(error.to_string().contains("ADDRESS:PORT"));
/// ```
pub fn register(registry: &mut Registry) {
    registry.add_kind("nvme-tcp", |part| {
        let options = options(part)?;
        let name = part.name_from_here().to_owned();
        Ok(Box::new(move |mode| Ok(Arc::new(RemoteDevice::attach(&name, &options, mode)?))))
    });
}

/// Parses `//ADDRESS:PORT/NQN,key=value,...`.
fn options(part: &Part<'_>) -> Result<AttachOptions, NameError> {
    let (place, mut options) = part.path_and_options()?;
    let (address, nqn) = place
        .strip_prefix("//")
        .and_then(|place| place.split_once('/'))
        .ok_or_else(|| part.refused("a remote drive is named nvme-tcp://ADDRESS:PORT/NQN"))?;
    let address: SocketAddr = address
        .parse()
        .map_err(|_| part.refused(format!("{address:?} is not ADDRESS:PORT, such as 127.0.0.1:4420")))?;
    if nqn.is_empty() || nqn.len() > NQN_MAX {
        return Err(part.refused(format!("an NQN has 1 to {NQN_MAX} bytes")));
    }
    let attach = attach_options(&mut options, address, nqn)?;
    options.finish()?;
    Ok(attach)
}

fn attach_options(
    options: &mut Options<'_>,
    address: SocketAddr,
    nqn: &str,
) -> Result<AttachOptions, NameError> {
    let nsid = options.positive("nsid", u32::MAX.into())?.map(|nsid| nsid as u32);
    let queues = options.positive("submit_queues", QUEUES_MAX)?.map_or(QUEUES_DEFAULT, |n| n as u16);
    let depth = options.positive("hw_queue_depth", DEPTH_MAX)?.map_or(DEPTH_DEFAULT, |n| n as u16);
    let mut host = HostOptions::default();
    options.flag("header_digest", &mut host.header_digest)?;
    options.flag("data_digest", &mut host.data_digest)?;
    let mut keeps_order = false;
    options.flag("preserves_write_order", &mut keeps_order)?;
    Ok(AttachOptions { address, nqn: nqn.to_owned(), nsid, queues, depth, host, keeps_order })
}
