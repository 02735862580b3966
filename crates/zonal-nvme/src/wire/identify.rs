//! Identify data structures (Base 5.1.13.2, NVM 4.1.5, ZNS 4.1.5). Fields that the target leaves at zero and no host of it needs are
//! not named.

use super::layout::{Padded, ZeroEnded, layout};
use super::{Field, Page};

layout! {
    /// Identify Controller (Base 5.1.13.2.1).
    IdentifyController[4096] {
        /// Of the vendor at the PCI-SIG.
        vendor: u16 = 0,
        /// Serial number.
        serial: Padded<20> = 4,
        /// Model number.
        model: Padded<40> = 24,
        /// Firmware revision.
        firmware: Padded<8> = 64,
        /// Several ports (bit 0), several controllers (bit 1).
        cmic: u8 = 76,
        /// Most data of a command, as a power of two of pages of 4 KiB; 0 is no limit.
        mdts: u8 = 77,
        /// The controller's number.
        cntlid: u16 = 78,
        /// Version of the standard.
        version: u32 = 80,
        /// Optional events.
        oaes: u32 = 92,
        /// Host identifiers of 128 bits (bit 0), any traffic keeps the controller alive (bit 6).
        ctratt: u32 = 96,
        /// 1: I/O, 2: discovery.
        kind: u8 = 111,
        /// Optional admin commands.
        oacs: u16 = 256,
        /// Aborts at once, less one.
        acl: u8 = 258,
        /// Requests for events at once, less one.
        aerl: u8 = 259,
        /// Slots of firmware.
        frmw: u8 = 260,
        /// Log pages: of namespaces (bit 0), of effects (bit 1), from an offset (bit 2).
        lpa: u8 = 261,
        /// Entries of the error log, less one.
        elpe: u8 = 262,
        /// Unit of the time to keep alive, in 100 ms.
        kas: u16 = 320,
        /// Sizes of entries of submission queues, as powers of two.
        sqes: u8 = 512,
        /// The same of completion queues.
        cqes: u8 = 513,
        /// Commands that a queue is best given at once.
        maxcmd: u16 = 514,
        /// Largest number of a namespace.
        nn: u32 = 516,
        /// Optional NVM commands.
        oncs: u16 = 520,
        /// A volatile cache (bit 0), flush of all namespaces (bits 2:1).
        vwc: u8 = 525,
        /// SGL support.
        sgls: u32 = 536,
        /// Namespaces at most.
        mnan: u32 = 540,
        /// The subsystem's name.
        subsystem: ZeroEnded<256> = 768,
        /// Largest command capsule, in 16 bytes.
        ioccsz: u32 = 1792,
        /// Response capsule, in 16 bytes.
        iorcsz: u32 = 1796,
        /// Where data begin in a capsule, in 16 bytes.
        icdoff: u16 = 1800,
        /// SGL descriptors of a command at most.
        msdbd: u8 = 1803,
        /// Optional fabrics commands: Disconnect (bit 0).
        ofcs: u16 = 1804,
    }
}

layout! {
    /// Identify Namespace of the NVM command set (NVM 4.1.5.1), also needed for zoned ones.
    IdentifyNamespace[4096] {
        /// Size in logical blocks.
        nsze: u64 = 0,
        /// Capacity in logical blocks.
        ncap: u64 = 8,
        /// Blocks in use.
        nuse: u64 = 16,
        /// Formats, less one.
        nlbaf: u8 = 25,
        /// The format in use.
        flbas: u8 = 26,
        /// Several controllers may have it (bit 0).
        nmic: u8 = 30,
        /// Deallocated blocks read as zeroes (1).
        dlfeat: u8 = 33,
        /// Write protected (bit 0).
        nsattr: u8 = 99,
        /// Identifier of 16 bytes.
        nguid: [u8; 16] = 104,
        /// Metadata of a block in bytes, of format 0.
        metadata: u16 = 128,
        /// Bytes of a block as a power of two, of format 0.
        lbads: u8 = 130,
    }
}

layout! {
    /// Identify Namespace, independent of command sets (Base 5.1.13.2.8).
    IndependentNamespace[4096] {
        /// The medium turns (bit 4), there is no volatile cache (bit 5).
        nsfeat: u8 = 0,
        /// Several controllers may have it (bit 0).
        nmic: u8 = 1,
        /// Write protected (bit 0).
        nsattr: u8 = 8,
        /// It is ready (bit 0).
        nstat: u8 = 14,
    }
}

layout! {
    /// Identify Namespace of the Zoned Namespace command set (ZNS 4.1.5.1).
    IdentifyZoned[4096] {
        /// Zones whose capacity varies (bit 0), active excursions (bit 1).
        zoc: u16 = 0,
        /// Reads may cross zones (bit 0).
        ozcs: u16 = 2,
        /// Active zones, less one; all ones: no limit.
        mar: u32 = 4,
        /// Open zones, less one; all ones: no limit.
        mor: u32 = 8,
        /// Blocks of a zone, of format 0.
        zsze: u64 = 2816,
        /// Descriptor extensions in 64 bytes, of format 0.
        zdes: u8 = 2824,
    }
}

layout! {
    /// Identify Controller of the Zoned Namespace command set (ZNS 4.1.5.2).
    IdentifyZonedController[4096] {
        /// Largest append, as a power of two of pages of 4 KiB; 0: as other commands.
        zasl: u8 = 0,
    }
}

/// What a namespace is called (Base 5.1.13.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NamespaceDescriptor {
    /// Globally unique identifier of 8 bytes.
    Eui64([u8; 8]),
    /// The same of 16 bytes.
    Nguid([u8; 16]),
    /// A UUID.
    Uuid([u8; 16]),
    /// The command set.
    CommandSet(u8),
}

impl NamespaceDescriptor {
    fn kind(&self) -> u8 {
        match self {
            NamespaceDescriptor::Eui64(_) => 1,
            NamespaceDescriptor::Nguid(_) => 2,
            NamespaceDescriptor::Uuid(_) => 3,
            NamespaceDescriptor::CommandSet(_) => 4,
        }
    }

    fn value(&self) -> &[u8] {
        match self {
            NamespaceDescriptor::Eui64(value) => value,
            NamespaceDescriptor::Nguid(value) | NamespaceDescriptor::Uuid(value) => value,
            NamespaceDescriptor::CommandSet(value) => std::slice::from_ref(value),
        }
    }

    /// These, one after the other.
    ///
    /// # Panics
    /// If they do not fit into a page: a mistake of the caller.
    pub fn emit_all(all: &[NamespaceDescriptor]) -> Page<4096> {
        let (mut page, mut at) = (Page::default(), 0);
        for descriptor in all {
            let value = descriptor.value();
            page.bytes(at, &[descriptor.kind(), value.len() as u8]).bytes(at + 4, value);
            at += 4 + value.len();
        }
        page
    }

    /// All of a page, up to the first of length 0. Kinds that are unknown are left out; `None` if a known one has another length
    /// than its own, or a descriptor does not end.
    pub fn parse_all(mut page: &[u8]) -> Option<Vec<NamespaceDescriptor>> {
        let mut all = Vec::new();
        while let [kind, len, _, _, rest @ ..] = page {
            if *len == 0 {
                break;
            }
            let value = rest.get(..usize::from(*len))?;
            page = &rest[usize::from(*len)..];
            match kind {
                1 => all.push(NamespaceDescriptor::Eui64(value.try_into().ok()?)),
                2 => all.push(NamespaceDescriptor::Nguid(value.try_into().ok()?)),
                3 => all.push(NamespaceDescriptor::Uuid(value.try_into().ok()?)),
                4 => all.push(NamespaceDescriptor::CommandSet(<[u8; 1]>::try_from(value).ok()?[0])),
                _ => {}
            }
        }
        Some(all)
    }
}

/// The numbers of a list of namespaces (Base 5.1.13.2.2): it ends with the first zero.
pub fn parse_namespaces(page: &[u8]) -> Vec<u32> {
    let numbers = page.chunks_exact(4).filter_map(u32::take);
    numbers.take_while(|nsid| *nsid != 0).collect()
}
