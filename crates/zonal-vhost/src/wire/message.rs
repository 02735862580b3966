//! Messages of vhost-user (QEMU's vhost-user specification, Message specification): little-endian, as both sides run on one machine.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What every message begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// One of [`request`].
    pub request: U32,
    /// [`VERSION`], [`REPLY`] and [`NEED_REPLY`].
    pub flags: U32,
    /// Bytes that follow.
    pub len: U32,
}

/// Bytes of a [`Header`].
pub const HEADER_LEN: usize = size_of::<Header>();

/// Flags 1:0: the version of the protocol.
pub const VERSION: u32 = 1;
/// All bits of the version.
pub const VERSION_BITS: u32 = 3;
/// Flag: an answer.
pub const REPLY: u32 = 1 << 2;
/// Flag: the front end waits for an acknowledgement.
pub const NEED_REPLY: u32 = 1 << 3;

/// In the payload of a message with a descriptor: there is none.
pub const NO_DESCRIPTOR: u64 = 1 << 8;

/// Longest payload that is taken. The longest one with a meaning has 8 regions: 264 bytes.
pub const PAYLOAD_MAX: usize = 4096;

/// Most descriptors in one message: one a region of a memory table.
pub const DESCRIPTORS_MAX: usize = 8;

/// Feature: there are protocol features.
pub const PROTOCOL_FEATURES: u64 = 1 << 30;

/// Protocol feature: several queues, and the message that asks for their number.
pub const MULTIPLE_QUEUES: u64 = 1 << 0;
/// Protocol feature: acknowledgements.
pub const REPLY_ACK: u64 = 1 << 3;
/// Protocol feature: a file that outlives the back end says which requests are in flight.
pub const INFLIGHT_FILE: u64 = 1 << 12;
/// Protocol feature: regions of memory come and leave one by one.
pub const MEMORY_SLOTS: u64 = 1 << 15;

/// Requests of a front end.
pub mod request {
    /// Features of the device.
    pub const GET_FEATURES: u32 = 1;
    /// The features that guest and front end use.
    pub const SET_FEATURES: u32 = 2;
    /// The sender is the front end.
    pub const SET_OWNER: u32 = 3;
    /// The front end leaves.
    pub const RESET_OWNER: u32 = 4;
    /// All regions of memory.
    pub const SET_MEMORY: u32 = 5;
    /// Number of descriptors of a ring.
    pub const SET_NUMBER: u32 = 8;
    /// Addresses of a ring.
    pub const SET_ADDRESSES: u32 = 9;
    /// Where a ring begins.
    pub const SET_BASE: u32 = 10;
    /// Stops a ring.
    pub const GET_BASE: u32 = 11;
    /// By what the guest notifies, which starts the ring.
    pub const SET_KICK: u32 = 12;
    /// By what the guest is notified.
    pub const SET_CALL: u32 = 13;
    /// By what the front end hears of an error.
    pub const SET_ERROR: u32 = 14;
    /// Protocol features.
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    /// The protocol features that the front end uses.
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    /// Most queues.
    pub const GET_QUEUES: u32 = 17;
    /// Whether a ring is served.
    pub const SET_ENABLED: u32 = 18;
    /// A file for requests in flight.
    pub const GET_INFLIGHT: u32 = 31;
    /// The file for requests in flight.
    pub const SET_INFLIGHT: u32 = 32;
    /// Most regions.
    pub const GET_SLOTS: u32 = 36;
    /// One more region.
    pub const ADD_REGION: u32 = 37;
    /// One region less.
    pub const REMOVE_REGION: u32 = 38;
}

/// A queue and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct QueueNumber {
    /// The queue.
    pub queue: U32,
    /// The number.
    pub number: U32,
}

/// Where a ring lies, by addresses of the front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct QueueAddresses {
    /// The queue.
    pub queue: U32,
    /// For a log of pages, which is not offered.
    pub flags: U32,
    /// The descriptor table.
    pub descriptors: U64,
    /// The used ring.
    pub used: U64,
    /// The available ring.
    pub available: U64,
    /// For a log of pages.
    pub log: U64,
}

/// A region of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct MemoryRegion {
    /// Guest-physical address.
    pub guest: U64,
    /// Bytes.
    pub len: U64,
    /// Address in the front end.
    pub user: U64,
    /// Where it begins in its file.
    pub offset: U64,
}

/// What precedes the regions of a memory table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct MemoryTable {
    /// Regions.
    pub regions: U32,
    /// Not used.
    pub padding: U32,
}

/// One region that comes or leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SingleRegion {
    /// Not used.
    pub padding: U64,
    /// The region.
    pub region: MemoryRegion,
}

/// A file for requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct InflightFile {
    /// Bytes.
    pub len: U64,
    /// Where it begins.
    pub offset: U64,
    /// Queues.
    pub queues: U16,
    /// Descriptors of each queue.
    pub num: U16,
}
