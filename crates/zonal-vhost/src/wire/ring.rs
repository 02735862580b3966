//! Layout of split virtqueues (VIRTIO 2.7).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Entry of a descriptor table (VIRTIO 2.7.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Descriptor {
    /// Guest-physical address.
    pub address: U64,
    /// Length in bytes.
    pub len: U32,
    /// [`NEXT`], [`WRITE`] and [`INDIRECT`].
    pub flags: U16,
    /// Next descriptor of the chain, with [`NEXT`].
    pub next: U16,
}

/// Length of a [`Descriptor`] in bytes.
pub const DESCRIPTOR_LEN: usize = size_of::<Descriptor>();

/// Descriptor flag: the chain continues.
pub const NEXT: u16 = 1;
/// Descriptor flag: device-writable.
pub const WRITE: u16 = 2;
/// Descriptor flag: refers to an indirect table (VIRTIO 2.7.5.3).
pub const INDIRECT: u16 = 4;

/// Available ring flag: the driver wants no interrupts (VIRTIO 2.7.7).
pub const NO_INTERRUPT: u16 = 1;

/// Offset of the flags in either ring.
pub const FLAGS: usize = 0;
/// Offset of the index in either ring.
pub const INDEX: usize = 2;
/// Offset of the entries in either ring.
pub const ENTRIES: usize = 4;
/// Length of an available ring entry in bytes.
pub const AVAILABLE_ENTRY: usize = 2;
/// Length of a used ring entry in bytes: head of the chain, and number of bytes written.
pub const USED_ENTRY: usize = 8;

/// Length of a descriptor table in bytes.
pub const fn descriptors_len(num: u16) -> usize {
    DESCRIPTOR_LEN * num as usize
}

/// Offset of `used_event` in the available ring: the entry for which the driver wants an interrupt
/// (VIRTIO 2.7.7).
pub const fn used_event_at(num: u16) -> usize {
    ENTRIES + AVAILABLE_ENTRY * num as usize
}

/// Offset of `avail_event` in the used ring: the entry for which the device wants a notification
/// (VIRTIO 2.7.10).
pub const fn available_event_at(num: u16) -> usize {
    ENTRIES + USED_ENTRY * num as usize
}

/// Length of an available ring in bytes.
pub const fn available_len(num: u16) -> usize {
    used_event_at(num) + 2
}

/// Length of a used ring in bytes.
pub const fn used_len(num: u16) -> usize {
    available_event_at(num) + 2
}
