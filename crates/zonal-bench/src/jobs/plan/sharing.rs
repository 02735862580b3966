//! Rules by which the workers of a run share zones.

/// Rules by which workers share zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HostRules {
    /// As in fio, which job files are written for: a zone belongs to one worker while it has I/O in
    /// flight there.
    #[default]
    Fio,
    /// As the write path allows: any number of workers may have writes of a zone in flight. They
    /// are submitted in the order of their positions.
    Zonal,
}

/// Ordering of the writes of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ordering {
    /// By the write path, provided that they are submitted in order.
    BySubmission,
    /// None: only one write of a zone is in flight at a time.
    OneInFlight,
    /// None needed: the device places the writes.
    ByDevice,
}

/// A worker that adds zones to the open set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opener {
    /// Index of the worker.
    pub worker: u32,
    /// Maximum number of zones in the set opened by this worker; 0 is no limit.
    pub max: u32,
    /// True if no other worker writes to its zones, so the words need no atomic read-modify-write
    /// operations.
    pub is_exclusive: bool,
}

/// Options of the zones shared by workers.
#[derive(Clone, Copy, Debug)]
pub struct ZonesOptions {
    /// Ordering of the writes of a zone.
    pub ordering: Ordering,
    /// Maximum number of open zones; 0 is no limit.
    pub open_max: u32,
    /// True to count written sectors.
    pub counts_written: bool,
    /// True to count the resets of each zone.
    pub counts_generations: bool,
    /// Sectors of the largest write of any worker.
    pub write_sectors_max: u32,
    /// True if some workers follow fio's rule of zone ownership.
    pub keeps_holds: bool,
}
