//! `sim:PROFILE` and the wrapper `timing:PROFILE+` among the devices.

use crate::{Checked, Company, Model, Profile, Timed};
use std::sync::Arc;
use zonal_core::Geometry;
use zonal_io::device::Device;
use zonal_io::emulated::{Emulated, Null};
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
        let (profile, checked) = profile(part)?;
        let name = part.name_from_here().to_owned();
        Ok(Box::new(move |_mode| {
            let inner: Arc<dyn Device> = Arc::new(Emulated::new(&name, &profile.emulated_options(), Null)?);
            let model = model(&profile, checked, inner.info().geometry);
            let timed = Timed::new(inner, model).named(&name).in_virtual_time();
            Ok(Arc::new(timed.with_host(profile.host.time())))
        }))
    });
    registry.add_wrapper("timing", |part| {
        let (profile, checked) = profile(part)?;
        let name = part.name_from_here().to_owned();
        Ok(Box::new(move |inner| {
            let model = model(&profile, checked, inner.info().geometry);
            Ok(Arc::new(Timed::new(inner, model).named(&name)))
        }))
    });
}

fn model(profile: &Profile, checked: Option<Company>, geometry: Geometry) -> Box<dyn Model> {
    let model = profile.model(geometry);
    match checked {
        Some(company) => Box::new(Checked::new(model, geometry, company)),
        None => model,
    }
}

/// `PROFILE,key=value,...`: the first is no option, and `checked` is none of the profile's.
fn profile(part: &Part<'_>) -> Result<(Profile, Option<Company>), NameError> {
    let mut words = part.text().split(',');
    let name = words.next().unwrap_or_default();
    let changes = words.map(|word| word.split_once('=').ok_or(word)).collect::<Result<Vec<_>, _>>();
    let mut changes = changes.map_err(|word| part.refused(format!("{word:?} is not key=value")))?;
    let checked = changes.extract_if(.., |(key, _)| *key == "checked").last();
    let company = |(_, word)| {
        Company::from_name(word)
            .ok_or_else(|| part.refused(format!("checked={word}: there are many, zone and drive")))
    };
    let checked = checked.map(company).transpose()?;
    let profile = Profile::open(name, &changes).map_err(|e| part.refused(e))?;
    Ok((profile, checked))
}
