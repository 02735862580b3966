//! Commands between the host and the wrapped device: their recipients, and memory that they own.

use super::rule::Late;
use crate::buffer::IoBuf;
use crate::data::{Data, Segment};
use crate::device::{Command, CommandResult, Context, Landing};
use crate::wrap::ResetWalk;
use zonal_core::{DeviceError, Geometry, Nanos, Op, ZoneIndex};

/// Zone of a command, or `None` for a command on all zones.
pub(super) type Scope = Option<ZoneIndex>;

/// Scope of `command`.
pub(super) fn scope(geometry: &Geometry, command: &Command) -> Scope {
    let is_of_all =
        matches!(command.op, Op::Flush | Op::ResetAll) || command.sector.0 >= geometry.sectors().0;
    (!is_of_all).then(|| geometry.zone_of(command.sector))
}

/// Treatment of a command's answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    /// Error that replaces success.
    pub(super) error: Option<DeviceError>,
    /// Earliest time of the answer.
    pub(super) due: Nanos,
    /// Rule that reorders the answer.
    pub(super) reorder: Option<usize>,
    /// Landing of its bytes, unless the command already has a fault of its own.
    pub(super) landing: Landing,
    /// ID of the late command that is executed, if at all, after the time-out was reported.
    pub(super) late: Option<u64>,
}

impl Order {
    pub(super) fn at(due: Nanos) -> Order {
        Order { error: None, due, reorder: None, landing: Landing::InPlace, late: None }
    }
}

/// A host's command.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) context: Context,
    pub(super) queue: usize,
    pub(super) sectors: u32,
    pub(super) scope: Scope,
    pub(super) order: Order,
    /// True if power was cut meanwhile.
    pub(super) is_cut: bool,
}

/// An answer that is ready to be returned.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) context: Context,
    pub(super) result: CommandResult,
    pub(super) scope: Scope,
    pub(super) late: Option<u64>,
}

/// Recipient of the wrapped device's answer.
#[derive(Debug)]
pub(super) enum Recipient {
    Host(Host),
    /// A reset of all zones, zone by zone.
    ResetAll(Host, ResetWalk),
    /// None: the time-out was reported long ago.
    Late(Scope),
    /// None: issued by the wrapper itself.
    None,
}

impl Recipient {
    fn host(&self) -> Option<&Host> {
        match self {
            Recipient::Host(host) | Recipient::ResetAll(host, _) => Some(host),
            Recipient::Late(_) | Recipient::None => None,
        }
    }

    pub(super) fn into_host(self) -> Option<Host> {
        match self {
            Recipient::Host(host) | Recipient::ResetAll(host, _) => Some(host),
            Recipient::Late(_) | Recipient::None => None,
        }
    }

    /// Queue on which a host waits for the answer.
    pub(super) fn queue(&self) -> Option<usize> {
        self.host().map(|h| h.queue)
    }

    /// Scope of the host's command.
    pub(super) fn scope(&self) -> Scope {
        self.host().and_then(|h| h.scope)
    }
}

/// A command for the wrapped device.
#[derive(Debug)]
pub(super) struct InnerCommand {
    pub(super) queue: usize,
    pub(super) command: Command,
    pub(super) recipient: Recipient,
    /// Memory that the command's data refers to, if not the host's. Never accessed, only kept
    /// alive.
    _pieces: Option<Box<[Segment]>>,
    _copy: Option<IoBuf>,
}

impl InnerCommand {
    /// Passes `command` on unchanged.
    pub(super) fn new(queue: usize, command: Command, recipient: Recipient) -> InnerCommand {
        InnerCommand { queue, command, recipient, _pieces: None, _copy: None }
    }

    /// Passes on the first `sectors` of a host's command.
    pub(super) fn torn(queue: usize, command: Command, sectors: u32, recipient: Recipient) -> InnerCommand {
        let bytes = sectors as usize * zonal_core::SECTOR_BYTES as usize;
        let pieces = command.data.first(bytes);
        let data = if pieces.is_empty() {
            Data::NONE
        } else {
            // SAFETY: the segments are part of the host's, which stay valid until the command
            // completes. The list is on the heap and lives until the flight ends with the command.
            unsafe { Data::many(&raw const *pieces) }
        };
        let command = Command { sectors, data, ..command };
        InnerCommand { queue, command, recipient, _pieces: Some(pieces), _copy: None }
    }
}

/// A command to be executed after its time-out was reported.
#[derive(Debug)]
pub(super) struct LateCommand {
    pub(super) id: u64,
    pub(super) when: Late,
    pub(super) scope: Scope,
    /// Time at which the time-out was reported.
    pub(super) told: Option<Nanos>,
    queue: usize,
    command: Command,
    copy: Option<IoBuf>,
}

impl LateCommand {
    /// Copies `command` with its bytes, because the host gets its own back with the time-out.
    pub(super) fn new(id: u64, queue: usize, command: &Command, scope: Scope, when: Late) -> LateCommand {
        let mut copy = IoBuf::zeroed(u32::try_from(command.data.len()).expect("a command is below 4 GiB"));
        command.data.for_each(|at, piece| copy[at..at + piece.len()].copy_from_slice(piece));
        let mut command = *command;
        if !copy.is_empty() {
            // SAFETY: the copy is owned by this command and moves with it into the flight, which
            // ends when the command completes.
            command.data = unsafe { Data::one(Segment::new(copy.as_ptr(), copy.len())) };
        }
        LateCommand { id, when, scope, told: None, queue, command, copy: Some(copy) }
    }

    pub(super) fn command(&self) -> &Command {
        &self.command
    }

    /// Returns the command in flight.
    pub(super) fn flight(mut self) -> InnerCommand {
        let (command, copy) = (self.command, self.copy.take());
        InnerCommand {
            queue: self.queue,
            command,
            recipient: Recipient::Late(self.scope),
            _pieces: None,
            _copy: copy,
        }
    }
}
