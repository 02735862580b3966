//! Registration of `sim:PROFILE` and the wrapper `timing:PROFILE+`.

use crate::model::Span;
use crate::profile::{MICROS, MICROS_MAX, nanos};
use crate::{Checked, Concurrency, Model, Profile, Remote, Timed};
use std::sync::Arc;
use zonal_core::{Geometry, Sector, ZoneCondition};
use zonal_io::device::Device;
use zonal_io::emulated::{Emulated, Null, Ram};
use zonal_io::registry::{NameError, Part, Registry};
use zonal_io::volume;

/// Options of a simulated drive's name that are not values of its profile.
pub const NAME_OPTIONS: [&str; 3] = ["checked", "keep", "rtt_us"];

/// Adds simulated drives and the wrapper `timing` to `registry`.
///
/// ```
/// use zonal_io::registry::Registry;
/// let mut registry = Registry::default();
/// zonal_sim::register(&mut registry);
/// let device = registry.open("sim:smr-hdd-30t,policy=fifo")?;
/// assert!(device.info().rotational && device.insight().virtual_time);
/// let device = registry.open("timing:smr-hdd-30t+null:size=64M")?;
/// assert!(device.info().rotational && !device.insight().virtual_time);
/// # Ok::<(), zonal_io::registry::NameError>(())
/// ```
pub fn register(registry: &mut Registry) {
    registry.add_kind("sim", |part| {
        let options = options(part)?;
        let name = part.name_from_here().to_owned();
        Ok(Box::new(move |_mode| {
            let Options { profile, keeps_data, .. } = &options;
            let emulated = profile.emulated_options();
            let inner: Arc<dyn Device> = match *keeps_data {
                true => Arc::new(Emulated::new(&name, &emulated, Ram::new(&emulated.geometry()?))?),
                false => Arc::new(Emulated::new(&name, &emulated, Null)?),
            };
            let model = options.model(inner.info().geometry);
            let timed = Timed::new(inner, model).named(&name).in_virtual_time();
            Ok(Arc::new(timed.with_host(profile.host.time())))
        }))
    });
    registry.add_wrapper("timing", |part| {
        let options = options(part)?;
        if options.keeps_data {
            return Err(part.refused("keep: a wrapper keeps no data of its own"));
        }
        let name = part.name_from_here().to_owned();
        Ok(Box::new(move |inner| {
            let mut model = options.model(inner.info().geometry);
            declare_data(&mut *model, &*inner);
            Ok(Arc::new(Timed::new(inner, model).named(&name)))
        }))
    });
}

/// Declares the data that `device` has to a model with times that depend on it. Zones that the device
/// does not report count as empty.
fn declare_data(model: &mut dyn Model, device: &dyn Device) {
    if !model.depends_on_data() || device.insight().begins_empty {
        return;
    }
    let geometry = device.info().geometry;
    let zones = volume::report(device, Sector(0), geometry.zones()).unwrap_or_default();
    for zone in &zones {
        let is_full = zone.condition == ZoneCondition::Full;
        let end = zone.write_pointer.unwrap_or(if is_full { zone.start + zone.capacity } else { zone.start });
        model.zone_has(zone.zone, (end.0 - zone.start.0) as u32);
    }
}

/// Parsed options of a device's name.
struct Options {
    profile: Profile,
    checked: Option<Concurrency>,
    keeps_data: bool,
    /// Round trip to the drive.
    round_trip: Span,
}

impl Options {
    fn model(&self, geometry: Geometry) -> Box<dyn Model> {
        let mut model = self.profile.model(geometry);
        if let Some(concurrency) = self.checked {
            model = Box::new(Checked::new(model, geometry, concurrency));
        }
        match self.round_trip {
            0 => model,
            round_trip => Box::new(Remote::new(model, round_trip)),
        }
    }
}

/// Parses `PROFILE,key=value,...`. The keys in [`NAME_OPTIONS`] are not those of the profile.
fn options(part: &Part<'_>) -> Result<Options, NameError> {
    let mut words = part.text().split(',');
    let name = words.next().unwrap_or_default();
    let changes = words.map(|word| word.split_once('=').ok_or(word)).collect::<Result<Vec<_>, _>>();
    let mut changes = changes.map_err(|word| part.refused(format!("{word:?} is not key=value")))?;
    let twice =
        changes.iter().enumerate().find(|(n, (key, _))| changes[..*n].iter().any(|(other, _)| other == key));
    if let Some((_, (key, _))) = twice {
        return Err(part.refused(format!("{key} is given twice")));
    }
    let mut taken = |own: &str| changes.extract_if(.., |(key, _)| *key == own).last().map(|(_, word)| word);
    let [checked, keep, rtt_us] = NAME_OPTIONS.map(&mut taken);
    let concurrency = |word| {
        Concurrency::from_name(word)
            .ok_or_else(|| part.refused(format!("checked={word}: use many, zone or drive")))
    };
    let checked = checked.map(concurrency).transpose()?;
    let keeps_data = match keep {
        None | Some("none") => false,
        Some("data") => true,
        Some(word) => return Err(part.refused(format!("keep={word}: use none or data"))),
    };
    let micros = |word: &str| {
        let micros: Option<f64> = word.parse().ok().filter(|micros| (0.0..=MICROS_MAX).contains(micros));
        micros.ok_or_else(|| part.refused(format!("rtt_us={word}: use a round trip {MICROS}")))
    };
    let round_trip = rtt_us.map(micros).transpose()?.map_or(0, nanos);
    let profile = Profile::open(name, &changes).map_err(|e| part.refused(e))?;
    Ok(Options { profile, checked, keeps_data, round_trip })
}
