//! Structures and numbers of the kernel's interface, `include/uapi/linux/ublk_cmd.h`, in the byte order of the machine.
//!
//! Two levels: structures as they lie in memory, any bytes of which are a value; and [`KernelCommand`], which is checked.

use std::mem::size_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A command to `/dev/ublk-control`: `ublksrv_ctrl_cmd`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ControlCommand {
    /// The device; all ones: a new one.
    pub device: u32,
    /// The queue; all ones: none.
    pub queue: u16,
    /// Bytes at `address`.
    pub len: u16,
    /// A structure of this process, which the command reads or fills.
    pub address: u64,
    /// A number of the command's own.
    pub data: u64,
    /// Bytes of a path that only devices of unprivileged users need.
    pub path_len: u16,
    /// Zero.
    pub pad: u16,
    /// Zero.
    pub reserved: u32,
}

/// What the kernel knows of a device: `ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceFacts {
    /// Hardware queues.
    pub queues: u16,
    /// Requests of each.
    pub depth: u16,
    /// One of [`device_state`].
    pub state: u16,
    /// Zero.
    pub pad: u16,
    /// Bytes of the largest request.
    pub bytes_max: u32,
    /// Its number: N of `/dev/ublkbN`.
    pub device: u32,
    /// Process that serves it, or -1.
    pub pid: i32,
    /// Zero.
    pub pad2: u32,
    /// Of [`feature`].
    pub features: u64,
    /// What its server wants to find again.
    pub mark: u64,
    /// Owner.
    pub uid: u32,
    /// Owner.
    pub gid: u32,
    /// Zero.
    pub reserved: [u64; 2],
}

/// What a device is: `ublk_params`, without what lies after the parameters of zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Parameters {
    /// Bytes of this structure.
    pub len: u32,
    /// Which of the others count: of [`parameter`].
    pub types: u32,
    /// Of [`attribute`].
    pub attributes: u32,
    /// Bytes of a logical block, as a power of two.
    pub logical_shift: u8,
    /// Bytes of a physical block, as a power of two.
    pub physical_shift: u8,
    /// Bytes of the best request, as a power of two.
    pub best_shift: u8,
    /// Bytes of the least request that is no loss, as a power of two.
    pub least_shift: u8,
    /// Sectors of the largest request.
    pub sectors_max: u32,
    /// Sectors of a zone.
    pub zone_sectors: u32,
    /// Sectors of the device.
    pub sectors: u64,
    /// Zero: a request's pieces may begin anywhere.
    pub boundary_mask: u64,
    /// Zero.
    pub discard_alignment: u32,
    /// Bytes that a discard begins at a multiple of.
    pub discard_granularity: u32,
    /// Sectors of the largest discard.
    pub discard_sectors_max: u32,
    /// Sectors of the largest command that writes zeroes.
    pub zeroes_sectors_max: u32,
    /// Ranges of a discard.
    pub discard_ranges_max: u16,
    /// Zero.
    pub pad: u16,
    /// Major and minor numbers of both device files, which the kernel fills in.
    pub numbers: [u32; 4],
    /// Zones open at most; 0: no limit.
    pub open_max: u32,
    /// Zones active at most; 0: no limit.
    pub active_max: u32,
    /// Sectors of the largest append.
    pub append_sectors_max: u32,
    /// Zeroes, and one word that fills up the last eight bytes.
    pub reserved: [u32; 6],
}

/// A request, where the kernel puts it for the server: `ublksrv_io_desc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Descriptor {
    /// Operation in the lowest byte, flags above it.
    pub operation: u32,
    /// Sectors, or of a report zones.
    pub count: u32,
    /// First sector.
    pub sector: u64,
    /// Where the server's data are, in modes that have such.
    pub address: u64,
}

/// What a server tells the driver of a request: `ublksrv_io_cmd`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Commit {
    /// The queue.
    pub queue: u16,
    /// The request's tag.
    pub tag: u16,
    /// Bytes, or an error number below zero.
    pub result: i32,
    /// Of an append, the sector where its data are; otherwise zero.
    pub sector: u64,
}

/// A zone of a report: `blk_zone`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReportedZone {
    /// First sector.
    pub start: u64,
    /// Sectors.
    pub len: u64,
    /// Sector of the next write.
    pub pointer: u64,
    /// 1: conventional; 2: sequential write required.
    pub kind: u8,
    /// The condition's number.
    pub condition: u8,
    /// Zero: no write out of order, no advice to reset, and padding.
    pub reserved: [u8; 6],
    /// Sectors that can be written.
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

/// Numbers of ioctls (`asm-generic/ioctl.h`) of type `u`.
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
    /// Makes a device of [`DeviceFacts`](super::DeviceFacts), and fills them in.
    pub const ADD: u32 = numbered(READS_AND_WRITES, 0x04, LEN);
    /// Removes a device.
    pub const DELETE: u32 = numbered(READS_AND_WRITES, 0x05, LEN);
    /// Shows the disk; `data` is the server's process.
    pub const START: u32 = numbered(READS_AND_WRITES, 0x06, LEN);
    /// Takes the disk away.
    pub const STOP: u32 = numbered(READS_AND_WRITES, 0x07, LEN);
    /// Reads [`Parameters`](super::Parameters).
    pub const SET_PARAMETERS: u32 = numbered(READS_AND_WRITES, 0x08, LEN);
    /// Fills in [`Parameters`](super::Parameters).
    pub const GET_PARAMETERS: u32 = numbered(READS, 0x09, LEN);
    /// Another process takes over a device whose server is gone.
    pub const START_RECOVERY: u32 = numbered(READS_AND_WRITES, 0x10, LEN);
    /// It has; `data` is the process.
    pub const END_RECOVERY: u32 = numbered(READS_AND_WRITES, 0x11, LEN);
    /// Fills in a word of what the driver can do.
    pub const GET_FEATURES: u32 = numbered(READS, 0x13, LEN);
    /// Removes a device once its file is closed, and does not wait for that.
    pub const DELETE_LATER: u32 = numbered(READS, 0x14, LEN);
}

/// Commands to `/dev/ublkcN`.
pub mod io {
    use super::{Commit, READS_AND_WRITES, numbered};

    /// Takes the first request of a tag.
    pub const FETCH: u32 = numbered(READS_AND_WRITES, 0x20, size_of::<Commit>());
    /// Ends a request, and takes the next one of its tag.
    pub const COMMIT_AND_FETCH: u32 = numbered(READS_AND_WRITES, 0x21, size_of::<Commit>());
}

/// What the driver can do, and does for a device: `UBLK_F_*`.
pub mod feature {
    /// A device outlives its server.
    pub const USER_RECOVERY: u64 = 1 << 3;
    /// Another server gets the requests that the first has not answered.
    pub const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    /// Commands have the numbers of ioctls.
    pub const IOCTL_ENCODE: u64 = 1 << 6;
    /// The server reads and writes a request's data.
    pub const USER_COPY: u64 = 1 << 7;
    /// Zones.
    pub const ZONED: u64 = 1 << 8;
}

/// The state of a device that a server looks for, of `UBLK_S_DEV_*`.
pub mod device_state {
    /// It has no disk, or has none any more.
    pub const DEAD: u16 = 0;
    /// Its server is gone, and the kernel has all of its requests back.
    pub const QUIESCED: u16 = 2;
}

/// Groups of parameters: `UBLK_PARAM_TYPE_*`.
pub mod parameter {
    /// Blocks and sizes.
    pub const BASIC: u32 = 1 << 0;
    /// Discards and zeroes.
    pub const DISCARD: u32 = 1 << 1;
    /// Limits of zones.
    pub const ZONED: u32 = 1 << 3;
}

/// Attributes of a disk: `UBLK_ATTR_*`.
pub mod attribute {
    /// It is only read.
    pub const READ_ONLY: u32 = 1 << 0;
    /// Its medium turns.
    pub const ROTATIONAL: u32 = 1 << 1;
    /// It needs flushes.
    pub const VOLATILE_CACHE: u32 = 1 << 2;
    /// It makes single writes durable.
    pub const FUA: u32 = 1 << 3;
}

/// Flags of a [`Descriptor`]: `UBLK_IO_F_*`.
pub mod flag {
    /// Durable before it is answered.
    pub const FUA: u32 = 1 << 13;
}

/// A tag's command ended without a request: the device is stopped.
pub const STOPPED: i32 = -19;

/// Where the descriptors of the first queue are mapped from.
const DESCRIPTORS_AT: u64 = 0;

/// Requests of a queue at most.
pub const DEPTH_MAX: u16 = 4096;

/// Where the data of requests begin in `/dev/ublkcN`.
const DATA_AT: u64 = 0x8000_0000;

/// Bits of an offset in a request's data.
const DATA_BITS: u32 = 25;

/// Bits of a tag.
const TAG_BITS: u32 = 16;

/// Largest request in bytes that the offsets have room for.
pub const BYTES_MAX: u32 = 1 << DATA_BITS;

/// Where a queue's descriptors are mapped from.
pub fn descriptors_of(queue: u16, page: usize) -> u64 {
    DESCRIPTORS_AT + u64::from(queue) * descriptors_len(DEPTH_MAX, page) as u64
}

/// Bytes of a queue's descriptors, in whole pages.
pub fn descriptors_len(depth: u16, page: usize) -> usize {
    (usize::from(depth) * size_of::<Descriptor>()).next_multiple_of(page)
}

/// Where the data of a request are read and written.
pub fn data_of(queue: u16, tag: u16) -> u64 {
    DATA_AT + (u64::from(queue) << (TAG_BITS + DATA_BITS)) + (u64::from(tag) << DATA_BITS)
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        /// Operations that the kernel asks a server for: `UBLK_IO_OP_*`.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum KernelOp { $($(#[$doc])* $name = $number,)* }

        impl KernelOp {
            /// Every operation.
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
    /// Make what was written durable.
    Flush = 2;
    /// Forget.
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
    /// Describe zones.
    ReportZones = 18;
}

/// A request of the kernel, as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelCommand {
    /// What to do.
    pub op: KernelOp,
    /// Whether it is durable before it is answered.
    pub fua: bool,
    /// First sector.
    pub sector: u64,
    /// Sectors, or of a report zones.
    pub count: u32,
}

impl KernelCommand {
    /// The command of a descriptor; `None` for an operation without a name. Flags that are advice are left out.
    pub fn parse(descriptor: &Descriptor) -> Option<KernelCommand> {
        let op = KernelOp::from_number(descriptor.operation as u8)?;
        let fua = descriptor.operation & flag::FUA != 0;
        Some(KernelCommand { op, fua, sector: descriptor.sector, count: descriptor.count })
    }

    /// As a descriptor.
    pub fn emit(&self) -> Descriptor {
        let flags = if self.fua { flag::FUA } else { 0 };
        let operation = u32::from(self.op as u8) | flags;
        Descriptor { operation, count: self.count, sector: self.sector, address: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By `asm-generic/ioctl.h`, from the kernel's own encoder.
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
