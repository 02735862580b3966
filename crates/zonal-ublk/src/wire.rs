//! Structures and numbers of the kernel interface `include/uapi/linux/ublk_cmd.h`, in native byte
//! order.
//!
//! Two levels: structures with the memory layout of the kernel, for which any bytes are valid, and
//! the checked [`KernelCommand`].

use std::mem::size_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Command to `/dev/ublk-control`: `ublksrv_ctrl_cmd`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ControlCommand {
    /// Device number; all ones for a new one.
    pub device: u32,
    /// Queue; all ones for none.
    pub queue: u16,
    /// Length of the structure at `address` in bytes.
    pub len: u16,
    /// Structure in this process, read or filled by the command.
    pub address: u64,
    /// Command-specific value.
    pub data: u64,
    /// Length of a path, needed only for devices of unprivileged users.
    pub path_len: u16,
    /// Zero.
    pub pad: u16,
    /// Zero.
    pub reserved: u32,
}

/// State of a device: `ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceFacts {
    /// Number of hardware queues.
    pub queues: u16,
    /// Queue depth.
    pub depth: u16,
    /// Device state, see [`device_state`].
    pub state: u16,
    /// Zero.
    pub pad: u16,
    /// Maximum request size in bytes.
    pub bytes_max: u32,
    /// Device number: N of `/dev/ublkbN`.
    pub device: u32,
    /// Serving process, or -1.
    pub pid: i32,
    /// Zero.
    pub pad2: u32,
    /// Bits of [`feature`].
    pub features: u64,
    /// Mark by which servers recognise the device.
    pub mark: u64,
    /// User ID of the owner.
    pub uid: u32,
    /// Group ID of the owner.
    pub gid: u32,
    /// Zero.
    pub reserved: [u64; 2],
}

/// Parameters of a device: `ublk_params`, up to the parameters of zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Parameters {
    /// Length of this structure in bytes.
    pub len: u32,
    /// Valid groups of parameters: bits of [`parameter`].
    pub types: u32,
    /// Bits of [`attribute`].
    pub attributes: u32,
    /// Logical block size in bytes, as a power of two.
    pub logical_shift: u8,
    /// Physical block size in bytes, as a power of two.
    pub physical_shift: u8,
    /// Optimal request size in bytes, as a power of two.
    pub best_shift: u8,
    /// Minimum efficient request size in bytes, as a power of two.
    pub least_shift: u8,
    /// Maximum request size in sectors.
    pub sectors_max: u32,
    /// Zone size in sectors.
    pub zone_sectors: u32,
    /// Device size in sectors.
    pub sectors: u64,
    /// Zero: no segment boundary.
    pub boundary_mask: u64,
    /// Zero.
    pub discard_alignment: u32,
    /// Discard granularity in bytes.
    pub discard_granularity: u32,
    /// Maximum discard size in sectors.
    pub discard_sectors_max: u32,
    /// Maximum size of a write of zeroes, in sectors.
    pub zeroes_sectors_max: u32,
    /// Maximum ranges of a discard.
    pub discard_ranges_max: u16,
    /// Zero.
    pub pad: u16,
    /// Major and minor numbers of both device files, filled in by the kernel.
    pub numbers: [u32; 4],
    /// Maximum open zones; 0 means no limit.
    pub open_max: u32,
    /// Maximum active zones; 0 means no limit.
    pub active_max: u32,
    /// Maximum append size in sectors.
    pub append_sectors_max: u32,
    /// Zeroes, with one word of padding.
    pub reserved: [u32; 6],
}

/// Request as stored by the kernel: `ublksrv_io_desc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Descriptor {
    /// Operation in the lowest byte, flags above.
    pub operation: u32,
    /// Number of sectors, or of zones to report.
    pub count: u32,
    /// First sector.
    pub sector: u64,
    /// Address of the server's data, in modes that use one.
    pub address: u64,
}

/// Result of a request: `ublksrv_io_cmd`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Commit {
    /// Queue.
    pub queue: u16,
    /// Tag of the request.
    pub tag: u16,
    /// Number of bytes, or a negative errno.
    pub result: i32,
    /// Sector of the data of an append; otherwise zero.
    pub sector: u64,
}

/// Zone of a report: `blk_zone`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReportedZone {
    /// First sector.
    pub start: u64,
    /// Zone size in sectors.
    pub len: u64,
    /// Write pointer as a sector.
    pub pointer: u64,
    /// 1: conventional; 2: sequential write required.
    pub kind: u8,
    /// Zone condition.
    pub condition: u8,
    /// Zero: the flags for non-sequential writes and recommended reset, and padding.
    pub reserved: [u8; 6],
    /// Zone capacity in sectors.
    pub capacity: u64,
    /// Zeroes.
    pub reserved2: [u8; 24],
}

const _: () = assert!(size_of::<ControlCommand>() == 32);
const _: () = assert!(size_of::<DeviceFacts>() == 64);
const _: () = assert!(size_of::<Parameters>() == 112);
const _: () = assert!(std::mem::offset_of!(Parameters, open_max) == 76);
const _: () = assert!(size_of::<Descriptor>() == 24);
const _: () = assert!(size_of::<Commit>() == 16);
const _: () = assert!(size_of::<ReportedZone>() == 64);

/// Ioctl number (`asm-generic/ioctl.h`) of type `u`.
const fn numbered(direction: u32, number: u32, len: usize) -> u32 {
    direction << 30 | (len as u32) << 16 | (b'u' as u32) << 8 | number
}

const READS: u32 = 2;
const READS_AND_WRITES: u32 = 3;

/// Commands to `/dev/ublk-control`.
pub mod control {
    use super::{ControlCommand, READS, READS_AND_WRITES, numbered};

    const LEN: usize = size_of::<ControlCommand>();

    /// Fills in [`DeviceFacts`](super::DeviceFacts).
    pub const GET_FACTS: u32 = numbered(READS, 0x02, LEN);
    /// Adds a device with [`DeviceFacts`](super::DeviceFacts), and updates them.
    pub const ADD: u32 = numbered(READS_AND_WRITES, 0x04, LEN);
    /// Deletes a device.
    pub const DELETE: u32 = numbered(READS_AND_WRITES, 0x05, LEN);
    /// Adds the disk; `data` is the server's process.
    pub const START: u32 = numbered(READS_AND_WRITES, 0x06, LEN);
    /// Removes the disk.
    pub const STOP: u32 = numbered(READS_AND_WRITES, 0x07, LEN);
    /// Reads [`Parameters`](super::Parameters).
    pub const SET_PARAMETERS: u32 = numbered(READS_AND_WRITES, 0x08, LEN);
    /// Fills in [`Parameters`](super::Parameters).
    pub const GET_PARAMETERS: u32 = numbered(READS, 0x09, LEN);
    /// Starts the recovery of a device without a server.
    pub const START_RECOVERY: u32 = numbered(READS_AND_WRITES, 0x10, LEN);
    /// Completes a recovery; `data` is the new server's process.
    pub const END_RECOVERY: u32 = numbered(READS_AND_WRITES, 0x11, LEN);
    /// Fills in a word of driver features.
    pub const GET_FEATURES: u32 = numbered(READS, 0x13, LEN);
    /// Deletes a device once its file is closed, without waiting for that.
    pub const DELETE_LATER: u32 = numbered(READS, 0x14, LEN);
}

/// Commands to `/dev/ublkcN`.
pub mod io {
    use super::{Commit, READS_AND_WRITES, numbered};

    /// Fetches the first request of a tag.
    pub const FETCH: u32 = numbered(READS_AND_WRITES, 0x20, size_of::<Commit>());
    /// Completes a request, and fetches the next one of its tag.
    pub const COMMIT_AND_FETCH: u32 = numbered(READS_AND_WRITES, 0x21, size_of::<Commit>());
}

/// Features of the driver or a device: `UBLK_F_*`.
pub mod feature {
    /// The device outlives its server.
    pub const USER_RECOVERY: u64 = 1 << 3;
    /// Unanswered requests are resubmitted to the next server.
    pub const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    /// Commands are encoded as ioctls.
    pub const IOCTL_ENCODE: u64 = 1 << 6;
    /// The server copies the data of requests.
    pub const USER_COPY: u64 = 1 << 7;
    /// Zoned devices.
    pub const ZONED: u64 = 1 << 8;
}

/// Device states relevant to a server, of `UBLK_S_DEV_*`.
pub mod device_state {
    /// No disk.
    pub const DEAD: u16 = 0;
    /// Without a server, and all requests are back at the kernel.
    pub const QUIESCED: u16 = 2;
}

/// Parameter groups: `UBLK_PARAM_TYPE_*`.
pub mod parameter {
    /// Blocks and sizes.
    pub const BASIC: u32 = 1 << 0;
    /// Discards and writes of zeroes.
    pub const DISCARD: u32 = 1 << 1;
    /// Zone limits.
    pub const ZONED: u32 = 1 << 3;
}

/// Disk attributes: `UBLK_ATTR_*`.
pub mod attribute {
    /// Read-only.
    pub const READ_ONLY: u32 = 1 << 0;
    /// Rotational.
    pub const ROTATIONAL: u32 = 1 << 1;
    /// Volatile write cache.
    pub const VOLATILE_CACHE: u32 = 1 << 2;
    /// Force Unit Access supported.
    pub const FUA: u32 = 1 << 3;
}

/// Flags of a [`Descriptor`]: `UBLK_IO_F_*`.
pub mod flag {
    /// Force Unit Access: durable before completion.
    pub const FUA: u32 = 1 << 13;
}

/// Result of a tag's command that ended without a request: the device is stopped.
pub const STOPPED: i32 = -19;

/// File offset of the first queue's descriptors.
const DESCRIPTORS_AT: u64 = 0;

/// Maximum queue depth.
pub const DEPTH_MAX: u16 = 4096;

/// Offset of request data in `/dev/ublkcN`.
const DATA_AT: u64 = 0x8000_0000;

/// Bits of an offset within the data of a request.
const DATA_BITS: u32 = 25;

/// Bits of a tag.
const TAG_BITS: u32 = 16;

/// Maximum request size in bytes, given by the layout of offsets.
pub const BYTES_MAX: u32 = 1 << DATA_BITS;

/// File offset of a queue's descriptors.
pub fn descriptors_of(queue: u16, page: usize) -> u64 {
    DESCRIPTORS_AT + u64::from(queue) * descriptors_len(DEPTH_MAX, page) as u64
}

/// Length of a queue's descriptors in bytes, rounded up to pages.
pub fn descriptors_len(depth: u16, page: usize) -> usize {
    (usize::from(depth) * size_of::<Descriptor>()).next_multiple_of(page)
}

/// File offset of the data of a request.
pub fn data_of(queue: u16, tag: u16) -> u64 {
    DATA_AT + (u64::from(queue) << (TAG_BITS + DATA_BITS)) + (u64::from(tag) << DATA_BITS)
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        /// Operations that the kernel requests of a server: `UBLK_IO_OP_*`.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum KernelOp { $($(#[$doc])* $name = $number,)* }

        impl KernelOp {
            /// All operations.
            pub const ALL: &'static [KernelOp] = &[$(KernelOp::$name),*];

            const fn from_number(number: u8) -> Option<KernelOp> {
                match number {
                    $($number => Some(KernelOp::$name),)*
                    _ => None,
                }
            }
        }
    };
}

operations! {
    /// Read.
    Read = 0;
    /// Write.
    Write = 1;
    /// Flush the volatile cache.
    Flush = 2;
    /// Discard.
    Discard = 3;
    /// Write zeroes.
    WriteZeroes = 5;
    /// Open a zone.
    ZoneOpen = 10;
    /// Close a zone.
    ZoneClose = 11;
    /// Finish a zone.
    ZoneFinish = 12;
    /// Append to a zone.
    ZoneAppend = 13;
    /// Reset all zones.
    ZoneResetAll = 14;
    /// Reset a zone.
    ZoneReset = 15;
    /// Report zones.
    ReportZones = 18;
}

/// Kernel request as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelCommand {
    /// Operation.
    pub op: KernelOp,
    /// Force Unit Access: durable before completion.
    pub fua: bool,
    /// First sector.
    pub sector: u64,
    /// Number of sectors, or of zones to report.
    pub count: u32,
}

impl KernelCommand {
    /// Decodes a descriptor; `None` for an unknown operation. Advisory flags are ignored.
    pub fn parse(descriptor: &Descriptor) -> Option<KernelCommand> {
        let op = KernelOp::from_number(descriptor.operation as u8)?;
        let fua = descriptor.operation & flag::FUA != 0;
        Some(KernelCommand { op, fua, sector: descriptor.sector, count: descriptor.count })
    }

    /// Encodes as a descriptor.
    pub fn emit(&self) -> Descriptor {
        let flags = if self.fua { flag::FUA } else { 0 };
        let operation = u32::from(self.op as u8) | flags;
        Descriptor { operation, count: self.count, sector: self.sector, address: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From `asm-generic/ioctl.h`, computed by the kernel's encoder.
    #[test]
    fn commands_have_the_kernels_numbers() {
        assert_eq!(control::ADD, 0xC020_7504);
        assert_eq!(control::GET_FACTS, 0x8020_7502);
        assert_eq!(control::GET_FEATURES, 0x8020_7513);
        assert_eq!(io::COMMIT_AND_FETCH, 0xC010_7521);
    }

    #[test]
    fn data_and_descriptors_of_queues_and_tags_do_not_overlap() {
        assert_eq!(data_of(0, 1) - data_of(0, 0), u64::from(BYTES_MAX));
        assert_eq!(data_of(1, 0) - data_of(0, u16::MAX), u64::from(BYTES_MAX));
        assert_eq!(descriptors_of(1, 4096), 98304);
        assert_eq!((descriptors_len(128, 4096), descriptors_len(256, 4096)), (4096, 8192));
    }

    #[test]
    fn command_that_is_emitted_is_parsed_as_it_was() {
        for &op in KernelOp::ALL {
            for fua in [false, true] {
                let command = KernelCommand { op, fua, sector: 1 << 40, count: 8 };
                assert_eq!(KernelCommand::parse(&command.emit()), Some(command));
            }
        }
        let unknown = (0..=u8::MAX).filter(|&number| {
            let descriptor = Descriptor { operation: number.into(), ..Descriptor::default() };
            KernelCommand::parse(&descriptor).is_none()
        });
        assert_eq!(unknown.count(), 256 - KernelOp::ALL.len());
    }
}
