//! How the workers of a run share zones.

/// How workers share zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HostRules {
    /// As fio's jobs do, which is what a job file means: a zone is one worker's while I/O of it is in flight there.
    #[default]
    Fio,
    /// As the write path allows: any number of workers have writes of a zone in flight, which are submitted in the order
    /// of their places.
    Zonal,
}

/// What keeps the writes of a zone in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ordering {
    /// The write path, if they are submitted in order.
    BySubmission,
    /// Nothing: one write of a zone in flight at a time.
    OneInFlight,
    /// Nothing needs to: the device places them.
    ByDevice,
}

/// Who brings a zone into the open set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opener {
    /// Number of the worker.
    pub worker: u32,
    /// Most zones of the set that it may have brought there; 0 is no limit.
    pub max: u32,
    /// Whether no other worker writes to its zones, so that words need no locked operations.
    pub is_alone: bool,
}

/// How the zones that workers share are made.
#[derive(Clone, Copy, Debug)]
pub struct ZonesOptions {
    /// What keeps writes in order.
    pub ordering: Ordering,
    /// Most open zones; 0 is no limit.
    pub open_max: u32,
    /// Whether to count what is written.
    pub counts_written: bool,
    /// Whether to count how often each zone lost its data.
    pub counts_generations: bool,
    /// Sectors of the largest write of any worker.
    pub write_sectors_max: u32,
    /// Whether some workers keep to fio's rule of who may use a zone.
    pub keeps_holds: bool,
}
