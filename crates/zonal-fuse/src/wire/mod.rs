//! The FUSE protocol, without I/O: requests of a kernel are parsed, and answers to them are encoded.
//!
//! A kernel sends one request a read of its device, and takes one answer a write. A request is an [`InHeader`](layout::InHeader) and a
//! body, which depends on the operation; an answer is an [`OutHeader`](layout::OutHeader) and a body. Numbers are those of the
//! machine: both ends are on it. The structures and constants are those of Linux's `include/uapi/linux/fuse.h`, version 7.45; the least
//! that is spoken is [`MINOR_MIN`](init::MINOR_MIN).
//!
//! [`request`] takes any bytes and panics at none. What a request says of other things than itself (files, handles) is for the front to
//! judge.

pub mod dirent;
pub mod init;
pub mod layout;
pub mod numbers;
pub mod reply;
pub mod request;
