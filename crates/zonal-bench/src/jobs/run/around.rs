//! Setup around a volume, shared by runs and replays: order required by a mode, faults, and the
//! control socket.

use crate::error::BenchError;
use std::sync::Arc;
use zonal_io::control::{ControlError, ControlServer, Errands, StatusSource};
use zonal_io::device::{Device, DeviceInfo};
use zonal_io::fault::{Fault, Plan};
use zonal_io::volume::{SwitchError, Volume, WriteMode};

/// Checks that the device keeps the order required by these modes.
pub(crate) fn check_order(
    info: &DeviceInfo,
    modes: impl IntoIterator<Item = WriteMode>,
) -> Result<(), BenchError> {
    match modes.into_iter().any(|mode| mode.fits(info) == Err(SwitchError::NoOrder)) {
        true => Err(BenchError::NoOrder { device: info.name.clone() }),
        false => Ok(()),
    }
}

/// Wraps the device with the faults of a plan, if there is one.
pub(crate) fn with_faults(
    bare: &Arc<dyn Device>,
    plan: Option<&Plan>,
) -> Result<Option<Arc<Fault>>, BenchError> {
    let Some(plan) = plan else { return Ok(None) };
    plan.check(&**bare)?;
    Ok(Some(Arc::new(Fault::new(bare.clone(), plan.clone()))))
}

/// Control socket of an open volume, if requested.
pub(crate) struct Control(Option<Result<ControlServer, ControlError>>);

impl Control {
    pub(crate) fn start(
        is_wanted: bool,
        volume: &Arc<Volume>,
        files: Option<StatusSource>,
        errands: Errands,
    ) -> Control {
        Control(is_wanted.then(|| ControlServer::start_with(volume.clone(), files, errands)))
    }

    /// Returns the reason why a requested socket is missing.
    pub(crate) fn note(&self) -> Option<String> {
        let Some(Err(error)) = &self.0 else { return None };
        Some(format!("no control socket: {error}"))
    }
}
