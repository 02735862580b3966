//! Constants of the specifications used by both sides, besides the [opcodes](super::admin).
#![allow(missing_docs, reason = "the names are the standard's")]

/// Maximum length of an NQN in bytes (Base 4.7).
pub const NQN_MAX: usize = 223;

/// Command sets (Base 5.1.13.1).
pub mod command_set {
    pub const NVM: u8 = 0;
    pub const ZNS: u8 = 2;
}

/// Property offsets (Base 3.1.4).
pub mod property {
    pub const CAP: u32 = 0x00;
    pub const VS: u32 = 0x08;
    pub const CC: u32 = 0x14;
    pub const CSTS: u32 = 0x1C;
    pub const CRTO: u32 = 0x68;
}

/// Bits of `CAP` (Base 3.1.4.1): command sets besides NVM are supported.
pub mod cap {
    pub const HAS_SETS: u64 = 1 << 43;
}

/// Fields of `CC` (Base 3.1.4.5): enable, command set selection, shutdown, queue entry sizes.
pub mod cc {
    pub const ENABLE: u32 = 1;
    pub const SETS: u32 = 7 << 4;
    pub const ALL_SETS: u32 = 6 << 4;
    pub const SHUTDOWN: u32 = 3 << 14;
    pub const SHUTDOWN_NORMAL: u32 = 1 << 14;
    pub const SIZES: u32 = 0xFF << 16;
    pub const SIZES_64_16: u32 = 0x46 << 16;
}

/// Fields of `CSTS` (Base 3.1.4.6).
pub mod csts {
    pub const READY: u32 = 1;
    pub const FATAL: u32 = 2;
    pub const SHUTDOWN: u32 = 3 << 2;
    pub const SHUTTING_DOWN: u32 = 1 << 2;
    pub const SHUT_DOWN: u32 = 2 << 2;
}

/// Log pages (Base 5.1.12, ZNS 4.1.4).
pub mod log {
    pub const SUPPORTED: u8 = 0x00;
    pub const ERRORS: u8 = 0x01;
    pub const HEALTH: u8 = 0x02;
    pub const FIRMWARE: u8 = 0x03;
    pub const NAMESPACES: u8 = 0x04;
    pub const EFFECTS: u8 = 0x05;
    pub const DISCOVERY: u8 = 0x70;
    pub const ZONES: u8 = 0xBF;
}

/// Features (Base 5.1.25).
pub mod feature {
    pub const ARBITRATION: u8 = 0x01;
    pub const POWER: u8 = 0x02;
    pub const TEMPERATURE: u8 = 0x04;
    pub const ERROR_RECOVERY: u8 = 0x05;
    pub const WRITE_CACHE: u8 = 0x06;
    pub const QUEUES: u8 = 0x07;
    pub const ATOMICITY: u8 = 0x0A;
    pub const EVENTS: u8 = 0x0B;
    pub const KEEP_ALIVE: u8 = 0x0F;
    pub const COMMAND_SETS: u8 = 0x19;
    pub const HOST: u8 = 0x81;
}

/// Asynchronous events (Base 5.1.2.1, ZNS 4.1.5).
pub mod event {
    /// Bits of `OAES` and of the [feature](super::feature::EVENTS).
    pub const NAMESPACES: u32 = 1 << 8;
    pub const ZONES: u32 = 1 << 27;
    /// Event type and information in dword 0 of the completion.
    pub const NOTICE: u64 = 2;
    pub const NAMESPACE_CHANGED: u64 = 0x00;
    pub const ZONE_CHANGED: u64 = 0xEF;
}

/// Optional NVM commands: bits of `ONCS` (Base 5.1.13.2.1).
pub mod oncs {
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    pub const WRITE_ZEROES: u16 = 1 << 3;
    pub const VERIFY: u16 = 1 << 7;
}
