//! Zoned drives as block devices of this machine's Linux: `/dev/ublkbN`, over the kernel's ublk driver.
//!
//! The kernel hands a server each request of its block device, and takes the result back. [`wire`] has the structures and
//! numbers of that interface, [`parameters`] what a drive is to the kernel, [`queue`] the requests of one hardware queue: they
//! become requests of a volume, and its answers become results. None of these makes a system call. [`control`] makes, starts,
//! recovers and removes devices, and [`server`] is the thin driver with a thread and a ring for each queue.
//!
//! # Why the data are copied
//! The driver can lend a request's pages to the server's ring, which a server passes on to a file. Here it copies them instead
//! (`UBLK_F_USER_COPY`). A volume has to look at payload: recovery reads back what a failed write may have left, and compares.
//! And a drive may be memory, a wrapper or a remote one, which no ring reads pages for.
//!
//! # What a killed server leaves
//! With an identity, a drive outlives its server (`UBLK_F_USER_RECOVERY`): the kernel holds requests back until another server
//! of the same drive takes the device over, and then submits again those that had no answer. A write among them may have been
//! carried out. [`queue`] compares it with what the drive has, so that no program sees an error of a write that is there.

pub mod control;
pub mod parameters;
pub mod queue;
pub mod server;
pub mod wire;
