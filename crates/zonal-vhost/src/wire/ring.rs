//! Split virtqueues (VIRTIO 2.7): where the numbers of a ring lie.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An entry of a descriptor table (VIRTIO 2.7.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Descriptor {
    /// Guest-physical address.
    pub address: U64,
    /// Bytes.
    pub len: U32,
    /// [`NEXT`], [`WRITE`] and [`INDIRECT`].
    pub flags: U16,
    /// The descriptor after this one, with [`NEXT`].
    pub next: U16,
}

/// Bytes of a [`Descriptor`].
pub const DESCRIPTOR_LEN: usize = size_of::<Descriptor>();

/// Flag of a descriptor: another one follows.
pub const NEXT: u16 = 1;
/// Flag of a descriptor: the device writes there.
pub const WRITE: u16 = 2;
/// Flag of a descriptor: there lies a table of descriptors (VIRTIO 2.7.5.3).
pub const INDIRECT: u16 = 4;

/// Flag of the available ring: the driver wants no interrupt (VIRTIO 2.7.7).
pub const NO_INTERRUPT: u16 = 1;

/// Where the flags of either ring are.
pub const FLAGS: usize = 0;
/// Where the index of either ring is.
pub const INDEX: usize = 2;
/// Where the entries of either ring begin.
pub const ENTRIES: usize = 4;
/// Bytes of an entry of the available ring.
pub const AVAILABLE_ENTRY: usize = 2;
/// Bytes of an entry of the used ring: the chain's head, and the number of bytes written.
pub const USED_ENTRY: usize = 8;

/// Bytes of a descriptor table for `num` descriptors.
pub const fn descriptors_len(num: u16) -> usize {
    DESCRIPTOR_LEN * num as usize
}

/// Where the driver says in the available ring after which entry it wants an interrupt (VIRTIO 2.7.7).
pub const fn used_event_at(num: u16) -> usize {
    ENTRIES + AVAILABLE_ENTRY * num as usize
}

/// Where the device says in the used ring after which entry it wants a notification (VIRTIO 2.7.10).
pub const fn available_event_at(num: u16) -> usize {
    ENTRIES + USED_ENTRY * num as usize
}

/// Bytes of an available ring.
pub const fn available_len(num: u16) -> usize {
    used_event_at(num) + 2
}

/// Bytes of a used ring.
pub const fn used_len(num: u16) -> usize {
    available_event_at(num) + 2
}
