//! A job while options are being applied to it.

use super::error::ValueError;
use super::spec::{Direction, JobSpec};

/// A job while options are being applied to it.
#[derive(Debug, Clone, Default)]
pub(super) struct Draft {
    pub spec: JobSpec,
    pub mix: Mix,
}

/// `rwmixread` or `rwmixwrite`. They may precede `rw`, and have no effect without it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mix {
    pub read_percent: u8,
}

impl Default for Mix {
    fn default() -> Self {
        Self { read_percent: 50 }
    }
}

impl Draft {
    pub fn set_mix(&mut self, percent: u8) -> Result<(), ValueError> {
        self.mix = Mix { read_percent: percent };
        if let Direction::Mixed { read_percent } = &mut self.spec.pattern.direction {
            *read_percent = percent;
        }
        Ok(())
    }
}
