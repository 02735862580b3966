//! Zoned drives as Linux block devices on this machine: `/dev/ublkbN`, through the kernel's ublk
//! driver.
//!
//! The kernel passes each request of the block device to a server, which returns the result.
//! [`wire`] defines the structures and numbers of that interface and [`parameters`] the description
//! of a drive. [`queue`] translates the requests of one hardware queue into requests of a volume,
//! and their completions into results. None of these makes system calls. [`control`] creates,
//! starts, recovers and deletes devices, and [`server`] is the thin driver with a thread and a ring
//! per queue.
//!
//! # Why data is copied
//! The driver could lend a request's pages to the server's ring, for servers that pass them on to a
//! file. Here the server copies them instead (`UBLK_F_USER_COPY`), because a volume has to examine
//! payload: recovery rereads and compares the possible remains of a failed write. Besides, the
//! drive may be memory, a wrapper or a remote drive, which a ring cannot transfer pages for.
//!
//! # Killed servers
//! With an identity, a block device outlives its server (`UBLK_F_USER_RECOVERY`): the kernel holds
//! requests back until another server of the same drive takes over the device, and then resubmits
//! the unanswered ones. A write among them may have been executed. [`queue`] compares it with the
//! contents of the drive, so that no program gets an error for a write that succeeded.

pub mod control;
pub mod parameters;
pub mod queue;
pub mod server;
pub mod wire;
