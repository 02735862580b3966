//! `sim:PROFILE` and the wrapper `timing:PROFILE+` among the devices.

use crate::{Profile, Timed};
use std::sync::Arc;
use zonal_io::registry::{NameError, Part, Registry};

/// Adds simulated drives and the wrapper `timing` to what `registry` knows.
///
/// ```
/// use zonal_io::registry::Registry;
/// let mut registry = Registry::default();
/// zonal_sim::register(&mut registry);
/// let device = registry.open("sim:smr-hdd-30t,policy=fifo")?;
/// assert!(device.info().rotational && device.info().virtual_time);
/// # Ok::<(), zonal_io::registry::NameError>(())
/// ```
pub fn register(registry: &mut Registry) {
    registry.add_kind("sim", |part| {
        let profile = profile(part)?;
        let name = part.name_from_here().to_owned();
        Ok(Box::new(move || Ok(profile.simulated(&name)?)))
    });
    registry.add_wrapper("timing", |part| {
        let profile = profile(part)?;
        let name = part.name_from_here().to_owned();
        Ok(Box::new(move |inner| {
            let model = profile.model(inner.info().geometry);
            Ok(Arc::new(Timed::new(inner, model).named(&name)))
        }))
    });
}

/// `PROFILE,key=value,...`: the first is no option.
fn profile(part: &Part<'_>) -> Result<Profile, NameError> {
    let mut words = part.text().split(',');
    let name = words.next().unwrap_or_default();
    let changes = words.map(|word| word.split_once('=').ok_or(word)).collect::<Result<Vec<_>, _>>();
    let changes = changes.map_err(|word| part.refused(format!("{word:?} is not key=value")))?;
    Profile::open(name, &changes).map_err(|e| part.refused(e))
}
