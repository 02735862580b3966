//! NVMe over TCP with the Zoned Namespace command set.
//!
//! [`wire`] defines the formats and [`status`] the mapping from errors to statuses. [`subsystem`]
//! holds the exported volume and the controllers of its hosts. [`connection`] implements one queue
//! as bytes in and bytes out, without a socket or a clock. [`server`] is the thin driver that owns
//! sockets and threads. [`host`] is the initiator side: drives of other targets as devices.
//!
//! Citations: `Base` is the NVM Express Base Specification 2.1, `TCP` the NVMe/TCP Transport
//! Specification 1.1, `NVM` the NVM Command Set Specification 1.1 and `ZNS` the Zoned Namespace
//! Command Set Specification 1.2. `exceptions.txt` lists the clauses that are not implemented or
//! not followed, with the reasons.

#![forbid(unsafe_code)]

pub mod connection;
pub mod host;
pub mod server;
pub mod status;
pub mod subsystem;
pub mod wire;
