//! The FUSE protocol without I/O: parses the kernel's requests and encodes replies.
//!
//! The kernel passes one request for each read of its device, and accepts one reply for each write.
//! A request is an [`InHeader`](layout::InHeader) and a body, which depends on the operation; a
//! reply is an [`OutHeader`](layout::OutHeader) and a body. Integers are in native byte order,
//! since both ends are on the same machine. Structures and constants are those of Linux's
//! `include/uapi/linux/fuse.h`, version 7.45; the oldest supported version is
//! [`MINOR_MIN`](init::MINOR_MIN).
//!
//! [`request`] accepts arbitrary bytes without panicking. References in a request, such as files
//! and handles, are checked by the front.

pub mod dirent;
pub mod init;
pub mod layout;
pub mod numbers;
pub mod reply;
pub mod request;
