//! What a timing model is.

use zonal_core::{Nanos, Op, Sector};

/// Number of a command at the drive, given by its submitter and free again once it is answered.
pub type Tag = u32;

/// A length of time, in nanoseconds.
pub type Span = u64;

/// A command as a model sees it: no payload, and appends at the place that they got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// What to do.
    pub op: Op,
    /// First sector.
    pub sector: Sector,
    /// Length in sectors; 0 for what has none.
    pub sectors: u32,
    /// Durable before it is answered.
    pub fua: bool,
    /// The drive refuses it: it costs a command, and nothing on the medium.
    pub refused: bool,
}

/// What a drive has done so far. Sectors are of 512 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Sectors of writes that were submitted.
    pub submitted: u64,
    /// Sectors of writes that reached the medium.
    pub written: u64,
    /// Sectors of writes in the drive's cache or queue.
    pub held: u64,
    /// Times that the head moved to another place than where it stood.
    pub positionings: u64,
    /// Time spent moving and waiting for the place to come round.
    pub positioning: Span,
    /// Time spent reading and writing.
    pub transferring: Span,
}

/// When a drive answers what it was given.
///
/// Time never runs backwards: the caller passes times in ascending order.
pub trait Model: Send {
    /// Largest number of commands that the drive holds at a time.
    fn queue_depth(&self) -> u32;

    /// The drive is given a command. There are fewer than [`Model::queue_depth`] unanswered, and the model has
    /// [run](Model::run) until `now`.
    fn submit(&mut self, now: Nanos, tag: Tag, job: &Job);

    /// Lets everything happen that does until `now`, and names the commands that are answered, in order.
    fn run(&mut self, now: Nanos, answered: &mut dyn FnMut(Nanos, Tag));

    /// When something happens next, if nothing is submitted until then.
    fn next(&self) -> Option<Nanos>;

    /// A time before which nothing is answered, if nothing is submitted until then; `None` if nothing is any more. As late
    /// as it is cheap to say: a caller that waits for answers need not look at what happens in between.
    fn answers_from(&self) -> Option<Nanos> {
        self.next()
    }

    /// What it has done.
    fn totals(&self) -> Totals;

    /// Whether writes are answered that a loss of power would take back, so that a flush has something to do.
    fn has_volatile_cache(&self) -> bool {
        false
    }

    /// Where the head is, of a drive that has one.
    fn head(&self) -> Option<Sector> {
        None
    }
}
