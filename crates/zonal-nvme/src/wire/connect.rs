//! Connect command (Base 6.3).

use super::{Sqe, fabrics};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Data of a Connect command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ConnectData {
    /// Host identifier.
    pub host: [u8; 16],
    /// Controller number or [`ConnectData::ANY_CONTROLLER`].
    pub cntlid: U16,
    pub(crate) reserved_18: [u8; 238],
    /// NQN of the subsystem.
    pub subsystem: [u8; 256],
    /// NQN of the host.
    pub host_nqn: [u8; 256],
    pub(crate) reserved_768: [u8; 256],
}

const _: () = assert!(size_of::<ConnectData>() == 1024);

impl ConnectData {
    /// Requests a new controller; not a valid controller number.
    pub const ANY_CONTROLLER: u16 = 0xFFFF;
}

/// Parameters of a Connect command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectCommand {
    /// Record format: 0.
    pub format: u16,
    /// Queue number; 0 is the admin queue.
    pub qid: u16,
    /// Entries of the submission queue, at least 1.
    pub entries: u32,
    /// True if the host uses submission queue flow control.
    pub has_flow_control: bool,
    /// Keep alive timeout in milliseconds; 0 means none.
    pub keep_alive: u32,
}

impl ConnectCommand {
    const NO_FLOW_CONTROL: u32 = 1 << 18;

    /// Decodes a command; `None` if it is not a Connect.
    pub fn parse(sqe: &Sqe) -> Option<ConnectCommand> {
        (sqe.opcode == fabrics::OPCODE && sqe.nsid.get() as u8 == fabrics::CONNECT).then(|| ConnectCommand {
            format: sqe.dword(10) as u16,
            qid: (sqe.dword(10) >> 16) as u16,
            entries: u32::from(sqe.dword(11) as u16) + 1,
            has_flow_control: sqe.dword(11) & ConnectCommand::NO_FLOW_CONTROL == 0,
            keep_alive: sqe.dword(12),
        })
    }

    /// Encodes the parameters into a command.
    pub fn emit(&self, sqe: &mut Sqe) {
        let flow = if self.has_flow_control { 0 } else { ConnectCommand::NO_FLOW_CONTROL };
        (sqe.opcode, sqe.nsid) = (fabrics::OPCODE, u32::from(fabrics::CONNECT).into());
        sqe.cdw[0] = (u32::from(self.format) | u32::from(self.qid) << 16).into();
        sqe.cdw[1] = (self.entries.wrapping_sub(1) & 0xFFFF | flow).into();
        sqe.cdw[2] = self.keep_alive.into();
    }
}
