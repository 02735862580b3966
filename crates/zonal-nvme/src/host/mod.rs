//! Host side: namespaces of NVMe/TCP controllers as devices.
//!
//! [`HostQueue`] is one queue without a socket, driven by tests, simulations and the device.
//! [`RemoteDevice`] puts the queues of a controller on sockets and implements a device.
//! [`register`] registers it under the name `nvme-tcp://ADDRESS:PORT/NQN`.

mod attach;
mod commands;
mod device;
mod errors;
mod identify;
mod link;
mod queue;
mod registry;
mod watch;

pub use attach::AttachOptions;
pub use device::RemoteDevice;
pub use errors::{AttachError, device_error};
pub use queue::{Ended, HostData, HostOptions, HostQueue, OUTPUT_MAX, QueueError};
pub use registry::{DEPTH_DEFAULT, QUEUES_DEFAULT, register};
