//! Messages of vhost-user (QEMU's vhost-user specification, Message specification): little-endian,
//! as both sides run on one machine.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Header of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// Message type, see [`request`].
    pub request: U32,
    /// [`VERSION`], [`REPLY`] and [`NEED_REPLY`].
    pub flags: U32,
    /// Payload length in bytes.
    pub len: U32,
}

/// Length of a [`Header`] in bytes.
pub const HEADER_LEN: usize = size_of::<Header>();

/// Protocol version in flag bits 1:0.
pub const VERSION: u32 = 1;
/// Mask of the version.
pub const VERSION_BITS: u32 = 3;
/// Flag: reply.
pub const REPLY: u32 = 1 << 2;
/// Flag: the front end expects a reply.
pub const NEED_REPLY: u32 = 1 << 3;

/// Flag in the payload of messages with an optional descriptor: none is attached.
pub const NO_DESCRIPTOR: u64 = 1 << 8;

/// Longest payload accepted. The longest valid one has 8 regions: 264 bytes.
pub const PAYLOAD_MAX: usize = 4096;

/// Maximum descriptors of a message: one per region of a memory table.
pub const DESCRIPTORS_MAX: usize = 8;

/// Feature: protocol features are supported.
pub const PROTOCOL_FEATURES: u64 = 1 << 30;

/// Protocol feature: multiple queues, and the message to query their number.
pub const MULTIPLE_QUEUES: u64 = 1 << 0;
/// Protocol feature: acknowledgements.
pub const REPLY_ACK: u64 = 1 << 3;
/// Protocol feature: inflight I/O tracking, in a file that outlives the back end.
pub const INFLIGHT_FILE: u64 = 1 << 12;
/// Protocol feature: memory regions are added and removed individually.
pub const MEMORY_SLOTS: u64 = 1 << 15;

/// Message types of a front end.
pub mod request {
    /// Query the device features.
    pub const GET_FEATURES: u32 = 1;
    /// Set the features used by guest and front end.
    pub const SET_FEATURES: u32 = 2;
    /// Claim the session for the sender.
    pub const SET_OWNER: u32 = 3;
    /// Release the session.
    pub const RESET_OWNER: u32 = 4;
    /// Set all memory regions.
    pub const SET_MEMORY: u32 = 5;
    /// Set the number of descriptors of a ring.
    pub const SET_NUMBER: u32 = 8;
    /// Set the addresses of a ring.
    pub const SET_ADDRESSES: u32 = 9;
    /// Set the starting index of a ring.
    pub const SET_BASE: u32 = 10;
    /// Stop a ring and return its index.
    pub const GET_BASE: u32 = 11;
    /// Set the descriptor signalled by the guest, which starts the ring.
    pub const SET_KICK: u32 = 12;
    /// Set the descriptor to signal to the guest.
    pub const SET_CALL: u32 = 13;
    /// Set the descriptor for errors.
    pub const SET_ERROR: u32 = 14;
    /// Query the protocol features.
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    /// Set the protocol features used by the front end.
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    /// Query the maximum number of queues.
    pub const GET_QUEUES: u32 = 17;
    /// Enable or disable a ring.
    pub const SET_ENABLED: u32 = 18;
    /// Create a file for inflight I/O tracking.
    pub const GET_INFLIGHT: u32 = 31;
    /// Set the file for inflight I/O tracking.
    pub const SET_INFLIGHT: u32 = 32;
    /// Query the maximum number of memory regions.
    pub const GET_SLOTS: u32 = 36;
    /// Add a memory region.
    pub const ADD_REGION: u32 = 37;
    /// Remove a memory region.
    pub const REMOVE_REGION: u32 = 38;
}

/// Payload of a queue number and a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct QueueNumber {
    /// Queue.
    pub queue: U32,
    /// Value.
    pub number: U32,
}

/// Addresses of a ring, in the front end's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct QueueAddresses {
    /// Queue.
    pub queue: U32,
    /// Flags for dirty page logging, which is not supported.
    pub flags: U32,
    /// Descriptor table.
    pub descriptors: U64,
    /// Used ring.
    pub used: U64,
    /// Available ring.
    pub available: U64,
    /// Address for dirty page logging.
    pub log: U64,
}

/// Region of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct MemoryRegion {
    /// Guest-physical address.
    pub guest: U64,
    /// Length in bytes.
    pub len: U64,
    /// Address in the front end.
    pub user: U64,
    /// Offset in the file.
    pub offset: U64,
}

/// Header of a memory table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct MemoryTable {
    /// Number of regions.
    pub regions: U32,
    /// Padding.
    pub padding: U32,
}

/// Single region to add or remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SingleRegion {
    /// Padding.
    pub padding: U64,
    /// Region.
    pub region: MemoryRegion,
}

/// File for inflight I/O tracking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct InflightFile {
    /// Length in bytes.
    pub len: U64,
    /// Offset in the file.
    pub offset: U64,
    /// Number of queues.
    pub queues: U16,
    /// Descriptors per queue.
    pub num: U16,
}
