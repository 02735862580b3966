//! Commands between the host and the wrapped device: for whom they are, and the memory that they need of their own.

use super::rule::Late;
use crate::buffer::IoBuf;
use crate::data::{Data, Segment};
use crate::device::{Command, CommandResult, Context, Landing};
use crate::wrap::ResetWalk;
use zonal_core::{DeviceError, Geometry, Nanos, Op, ZoneIndex};

/// Zone that a command is about, or `None` for a command about all of them.
pub(super) type Scope = Option<ZoneIndex>;

/// The scope of `command`.
pub(super) fn scope(geometry: &Geometry, command: &Command) -> Scope {
    let is_of_all =
        matches!(command.op, Op::Flush | Op::ResetAll) || command.sector.0 >= geometry.sectors().0;
    (!is_of_all).then(|| geometry.zone_of(command.sector))
}

/// What becomes of the answer of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    /// Success is told as this.
    pub(super) error: Option<DeviceError>,
    /// Not told before.
    pub(super) due: Nanos,
    /// Its answer is reordered by the rule with this number.
    pub(super) reorder: Option<usize>,
    /// Where its bytes go, unless it came with a fault of its own.
    pub(super) landing: Landing,
    /// Carried out, if at all, after it was told that time is over.
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
    /// Power was cut meanwhile.
    pub(super) is_cut: bool,
}

/// An answer that waits to be told.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) context: Context,
    pub(super) result: CommandResult,
    pub(super) scope: Scope,
    pub(super) late: Option<u64>,
}

/// Whom the wrapped device's answer is for.
#[derive(Debug)]
pub(super) enum Whom {
    Host(Host),
    /// A reset of all zones, zone by zone.
    ResetAll(Host, ResetWalk),
    /// No receiver: the host was told long ago that time is over.
    Late(Scope),
    /// No receiver: the wrapper's own doing.
    Nobody,
}

impl Whom {
    fn host(&self) -> Option<&Host> {
        match self {
            Whom::Host(host) | Whom::ResetAll(host, _) => Some(host),
            Whom::Late(_) | Whom::Nobody => None,
        }
    }

    pub(super) fn into_host(self) -> Option<Host> {
        match self {
            Whom::Host(host) | Whom::ResetAll(host, _) => Some(host),
            Whom::Late(_) | Whom::Nobody => None,
        }
    }

    /// The queue on which a host waits for the answer.
    pub(super) fn queue(&self) -> Option<usize> {
        self.host().map(|h| h.queue)
    }

    /// What the host's command is about.
    pub(super) fn scope(&self) -> Scope {
        self.host().and_then(|h| h.scope)
    }
}

/// A command for the wrapped device.
#[derive(Debug)]
pub(super) struct InnerCommand {
    pub(super) queue: usize,
    pub(super) command: Command,
    pub(super) whom: Whom,
    /// What the command's data points to, where it is not the host's: only kept here, not used.
    _pieces: Option<Box<[Segment]>>,
    _copy: Option<IoBuf>,
}

impl InnerCommand {
    /// `command` as it is.
    pub(super) fn new(queue: usize, command: Command, whom: Whom) -> InnerCommand {
        InnerCommand { queue, command, whom, _pieces: None, _copy: None }
    }

    /// The first `sectors` of `command`, a host's.
    pub(super) fn torn(queue: usize, command: Command, sectors: u32, whom: Whom) -> InnerCommand {
        let bytes = sectors as usize * zonal_core::SECTOR_BYTES as usize;
        let pieces = command.data.first(bytes);
        let data = if pieces.is_empty() {
            Data::NONE
        } else {
            // SAFETY: the pieces are part of the host's, which stay until the command completes; the list is on the heap
            // and lives until the flight ends, with the command.
            unsafe { Data::many(&raw const *pieces) }
        };
        let command = Command { sectors, data, ..command };
        InnerCommand { queue, command, whom, _pieces: Some(pieces), _copy: None }
    }
}

/// A command that is carried out after its time-out was told.
#[derive(Debug)]
pub(super) struct LateCommand {
    pub(super) id: u64,
    pub(super) when: Late,
    pub(super) scope: Scope,
    /// When the time-out was told.
    pub(super) told: Option<Nanos>,
    queue: usize,
    command: Command,
    copy: Option<IoBuf>,
}

impl LateCommand {
    /// `command` with bytes of its own: the host gets its back with the time-out.
    pub(super) fn new(id: u64, queue: usize, command: &Command, scope: Scope, when: Late) -> LateCommand {
        let mut copy = IoBuf::zeroed(u32::try_from(command.data.len()).expect("a command is below 4 GiB"));
        command.data.for_each(|at, piece| copy[at..at + piece.len()].copy_from_slice(piece));
        let mut command = *command;
        if !copy.is_empty() {
            // SAFETY: the copy is ours alone and goes with the command: into the flight, which ends with it.
            command.data = unsafe { Data::one(Segment::new(copy.as_ptr(), copy.len())) };
        }
        LateCommand { id, when, scope, told: None, queue, command, copy: Some(copy) }
    }

    pub(super) fn command(&self) -> &Command {
        &self.command
    }

    /// The command, in flight.
    pub(super) fn flight(mut self) -> InnerCommand {
        let (command, copy) = (self.command, self.copy.take());
        InnerCommand { queue: self.queue, command, whom: Whom::Late(self.scope), _pieces: None, _copy: copy }
    }
}
