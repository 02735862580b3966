//! NVMe over TCP with the Zoned Namespace command set.
//!
//! [`wire`] has the formats, [`status`] the one table from errors to statuses, [`subsystem`] what is exported and the
//! controllers of its hosts. [`connection`] is one queue: bytes in, bytes out, without a socket or a clock of its own.
//! [`server`] is the thin driver that owns sockets and threads. [`host`] is the other side: drives of other targets as devices.
//!
//! Clauses are cited as `Base` (NVM Express Base Specification 2.1) and `TCP` (NVMe/TCP Transport Specification 1.1); those of
//! commands as `NVM` (NVM Command Set Specification 1.1) and `ZNS` (Zoned Namespace Command Set Specification 1.2). What is left
//! out or not obeyed stands in `exceptions.txt`, with the reason.

#![forbid(unsafe_code)]

pub mod connection;
pub mod host;
pub mod server;
pub mod status;
pub mod subsystem;
pub mod wire;
