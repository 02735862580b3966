//! A host: namespaces of NVMe/TCP controllers as devices.
//!
//! [`HostQueue`] is one queue without a socket: tests, simulations and the device drive it. [`RemoteDevice`] puts the queues of a
//! controller on sockets, and is a device as any other. [`register`] gives it the name
//! `nvme-tcp://ADDRESS:PORT/NQN`.

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
