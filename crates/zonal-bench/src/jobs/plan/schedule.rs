//! Which clones there are, and which of them run at the same time.

use super::Misfit;
use crate::error::PlanError;
use crate::job::{Job, JobSpec};
use std::ops::Range;
use std::sync::Arc;

/// Where a clone stands among all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClonePlace {
    /// Index of the job in its file.
    pub(crate) job: usize,
    /// Which clone of it, from 0.
    pub(crate) clone: u32,
    /// Number among all clones, from 0.
    pub(crate) number: usize,
    /// Group in which it is reported.
    pub(crate) group: u32,
    pub(crate) seed: u64,
}

/// Clones as they were resolved, in the order of the jobs, and which of them run at the same time, in order.
pub(crate) struct Schedule<W> {
    pub(crate) clones: Vec<W>,
    pub(crate) rounds: Vec<Range<usize>>,
}

impl<W> Schedule<W> {
    /// Resolves each clone of `jobs`; the first that does not fit, and why.
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
            // A drawn seed is drawn once a job, so that its clones differ by their number only.
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
    // The hasher's keys are the random numbers that the standard library has.
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0u64)
}
