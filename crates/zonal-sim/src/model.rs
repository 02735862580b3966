//! Interface of timing models.

use crate::hibernation::Hibernation;
use zonal_core::{Nanos, Op, Sector, ZoneIndex};
use zonal_io::device::HeadMoves;

/// Number of a command at the drive, chosen by the submitter and free again after completion.
pub type Tag = u32;

/// Duration, in nanoseconds.
pub type Span = u64;

/// A command as seen by a model: without payload, and with the resulting address of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Operation.
    pub op: Op,
    /// First sector.
    pub sector: Sector,
    /// Length in sectors, or 0 if the operation has none.
    pub sectors: u32,
    /// Must be durable before it completes.
    pub fua: bool,
    /// The drive rejects it: it takes the time of a command, but does not use the medium.
    pub refused: bool,
}

/// Work done by a drive so far, in sectors of 512 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Sectors of submitted writes.
    pub submitted: u64,
    /// Sectors of writes on the medium.
    pub written: u64,
    /// Sectors of writes in the drive's cache or queue.
    pub held: u64,
    /// Movements of the head, if the drive has one.
    pub moves: HeadMoves,
    /// Time spent reading and writing.
    pub transferring: Span,
}

/// Model of the completion times of a drive.
///
/// Time never runs backwards: the caller passes times in ascending order.
pub trait Model: Send {
    /// Maximum number of commands at the drive.
    fn queue_depth(&self) -> u32;

    /// Submits a command. Fewer than [`Model::queue_depth`] are pending, and the model has
    /// [run](Model::run) until `now`.
    fn submit(&mut self, now: Nanos, tag: Tag, job: &Job);

    /// Processes all events until `now`, and reports completed commands in order.
    fn run(&mut self, now: Nanos, answered: &mut dyn FnMut(Nanos, Tag));

    /// Time of the next event if nothing is submitted before.
    fn next(&self) -> Option<Nanos>;

    /// Time before which nothing completes if nothing is submitted before; `None` if nothing is
    /// pending. As late as can be determined cheaply: a caller that waits for completions can skip
    /// the events before.
    fn answers_from(&self) -> Option<Nanos> {
        self.next()
    }

    /// Work done so far.
    fn totals(&self) -> Totals;

    /// True if writes complete before they are safe from a power loss, so that a flush has an
    /// effect.
    fn has_volatile_cache(&self) -> bool {
        false
    }

    /// True if the drive is rotational.
    fn is_rotational(&self) -> bool {
        false
    }

    /// Position of the head, if the drive has one.
    fn head(&self) -> Option<Sector> {
        None
    }

    /// True if times depend on the amount of data in the zones. Zones that have data before the first
    /// command are then declared by [`Model::zone_has`].
    fn depends_on_data(&self) -> bool {
        false
    }

    /// Declares that a zone has `written` sectors of data.
    fn zone_has(&mut self, _zone: ZoneIndex, _written: u32) {}

    /// Power saving of the link, which [`Timed`](crate::Timed) carries out.
    fn hibernation(&self) -> Option<Hibernation> {
        None
    }

    /// Movements of the head so far, if the drive has one.
    fn head_moves(&self) -> Option<HeadMoves> {
        None
    }
}
