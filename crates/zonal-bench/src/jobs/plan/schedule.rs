//! Clones of the jobs, divided into rounds that run concurrently.

use super::Misfit;
use crate::error::PlanError;
use crate::job::{Job, JobSpec};
use std::ops::Range;
use std::sync::Arc;

/// Position of a clone in the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClonePlace {
    /// Index of the job in its file.
    pub(crate) job: usize,
    /// Index of the clone within its job, from 0.
    pub(crate) clone: u32,
    /// Index among all clones, from 0.
    pub(crate) number: usize,
    /// Reporting group.
    pub(crate) group: u32,
    pub(crate) seed: u64,
}

/// Resolved clones in the order of the jobs, and the ranges of clones that run concurrently, in
/// order.
pub(crate) struct Schedule<W> {
    pub(crate) clones: Vec<W>,
    pub(crate) rounds: Vec<Range<usize>>,
}

impl<W> Schedule<W> {
    /// Resolves each clone of `jobs`, or returns the first misfit.
    pub(crate) fn new(
        jobs: &[Job],
        mut resolve: impl FnMut(&Arc<JobSpec>, ClonePlace) -> Result<W, PlanError>,
    ) -> Result<Schedule<W>, Misfit> {
        let (mut clones, mut rounds) = (Vec::new(), Vec::new());
        let (mut group, mut begin) = (0, 0);
        for (job, Job { spec, .. }) in jobs.iter().enumerate() {
            let spec = Arc::new(spec.clone());
            if spec.stonewall && clones.len() > begin {
                rounds.push(begin..clones.len());
                begin = clones.len();
            }
            group += u32::from((spec.stonewall || spec.new_group) && !clones.is_empty());
            // A random seed is drawn once per job, so that its clones differ only by their index.
            let seed = spec.seed().unwrap_or_else(fresh_seed);
            for clone in 0..spec.numjobs {
                let place = ClonePlace { job, clone, number: clones.len(), group, seed };
                clones.push(resolve(&spec, place).map_err(|error| (spec.name.clone(), error))?);
            }
        }
        rounds.push(begin..clones.len());
        Ok(Schedule { clones, rounds })
    }
}

fn fresh_seed() -> u64 {
    // The hasher's keys are the only random numbers in the standard library.
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0u64)
}
