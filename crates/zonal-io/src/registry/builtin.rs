//! Kinds and wrappers provided by this crate.

use super::{NameError, Open, Options, Part, Registry};
use crate::crypt::{Crypt, Key};
use crate::device::{Device, OpenMode};
use crate::emulated::{
    CompleteMode, Emulated, EmulatedOptions, Locking, MBPS_MAX, Null, QUEUE_DEPTH_MAX, QUEUES_MAX, Ram,
};
use crate::fault::{self, Fault, RATES, Rule};
use crate::image::{ImageDevice, OpenOptions};
use crate::linear::Linear;
use crate::trace::Trace;
use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zonal_core::Personality;

pub(super) fn register(registry: &mut Registry) {
    registry.add_kind("null", |part| {
        let options = emulated_options(part, EmulatedOptions::default())?;
        let name = part.name_from_here().to_owned();
        Ok(Box::new(move |_mode| Ok(Arc::new(Emulated::new(&name, &options, Null)?))))
    });
    registry.add_kind("ram", |part| {
        let options = emulated_options(part, EmulatedOptions::in_memory())?;
        let name = part.name_from_here().to_owned();
        Ok(Box::new(move |_mode| {
            let storage = Ram::new(&options.geometry()?);
            Ok(Arc::new(Emulated::new(&name, &options, storage)?))
        }))
    });
    registry.add_kind("image", |part| {
        // A name that is only a path takes no options, so any path can be given.
        if !part.has_kind() {
            let path = PathBuf::from(part.text());
            return Ok(part.open_path(path.clone(), open_image(path, OpenOptions::default())));
        }
        let (path, mut options) = part.path_and_options()?;
        if path.is_empty() {
            return Err(part.refused("image needs a path: `image:PATH`"));
        }
        let image = image_options(&mut options)?;
        options
            .finish()
            .map_err(|error| error.hinting("a path with a comma needs brackets: `image:[PATH]`"))?;
        Ok(open_image(PathBuf::from(path), image))
    });
    registry.set_path_kind("image");
    registry.add_wrapper("trace", |part| {
        let mut options = part.options()?;
        let file = options.text("file")?.map(PathBuf::from);
        let mut overwrite = false;
        options.flag("overwrite", &mut overwrite)?;
        options.finish()?;
        let file = file.ok_or_else(|| part.refused("trace needs file=PATH"))?;
        let name = part.name_from_here().to_owned();
        Ok(Box::new(move |inner| Ok(Arc::new(trace_to_file(inner, &file, overwrite)?.named(&name)))))
    });
    registry.add_wrapper("crypt", |part| {
        let mut options = part.options()?;
        let file = options.text("key")?.map(PathBuf::from);
        options.finish()?;
        let file = file.ok_or_else(|| part.refused("crypt needs key=FILE"))?;
        let name = part.name_from_here().to_owned();
        Ok(Box::new(move |inner| Ok(Arc::new(Crypt::new(inner, &Key::read(&file)?).named(&name)))))
    });
    registry.add_kind("concat", |part| {
        let devices = part.devices()?;
        let name = part.name_from_here().to_owned();
        Ok(Box::new(move |mode| {
            let opened = devices.into_iter().map(|plan| plan.open_for(mode));
            let opened = opened.collect::<Result<Vec<_>, _>>()?;
            Ok(Arc::new(Linear::concat(opened)?.named(&name)))
        }))
    });
    registry.add_wrapper("linear", |part| {
        let mut options = part.options()?;
        let first = options.number_if_there("zone", u32::MAX.into())?.unwrap_or(0) as u32;
        let zones = options.number_if_there("zones", u32::MAX.into())?;
        options.finish()?;
        let name = part.name_from_here().to_owned();
        Ok(Box::new(move |inner| {
            let rest = inner.info().geometry.zones().saturating_sub(first);
            let end = first.saturating_add(zones.map_or(rest, |n| n as u32));
            Ok(Arc::new(Linear::range(inner, first..end)?.named(&name)))
        }))
    });
    registry.add_wrapper("fault", |part| {
        let mut options = part.options()?;
        let file = options.text("plan")?.map(PathBuf::from);
        let seed = options.number_if_there("seed", u64::MAX)?;
        let rates = fault_rates(part, &mut options)?;
        options.finish()?;
        let name = part.name_from_here().to_owned();
        Ok(Box::new(move |inner| {
            let mut plan = file.map_or_else(|| Ok(fault::Plan::default()), |file| fault::read_plan(&file))?;
            plan.rules.extend(rates);
            plan.seed = seed.unwrap_or(plan.seed);
            plan.check(&*inner)?;
            Ok(Arc::new(Fault::new(inner, plan).named(&name)))
        }))
    });
}

/// Maximum number of helper threads of an image. Far above any useful number; it keeps a typing
/// error from exhausting the host's threads.
const IMAGE_THREADS_MAX: u64 = 256;

fn image_options(options: &mut Options<'_>) -> Result<OpenOptions, NameError> {
    let mut o = OpenOptions::default();
    let mut is_read_only = false;
    options.flag("readonly", &mut is_read_only)?;
    if is_read_only {
        o.mode = OpenMode::Reading;
    }
    let count = |n: u64| n as usize;
    o.threads = options.number_if_there("threads", IMAGE_THREADS_MAX)?.map_or(o.threads, count);
    o.submit_queues = options.positive("submit_queues", QUEUES_MAX)?.map_or(o.submit_queues, count);
    o.hw_queue_depth =
        options.positive("hw_queue_depth", QUEUE_DEPTH_MAX)?.map_or(o.hw_queue_depth, |n| n as u32);
    o.max_sectors = options.positive("max_sectors", u32::MAX.into())?.map(|n| n as u32);
    o.preserves_write_order = options.flag_if_there("preserves_write_order")?;
    o.mbps = options.number_if_there("mbps", MBPS_MAX)?.map_or(o.mbps, |n| n as u32);
    for key in ["badblocks", "badblocks_once", "badblocks_partial_io", "zone_readonly", "zone_offline"] {
        options.refuse(key, "stored in the image: see `zonal create --help` and `zonal zone --help`")?;
    }
    options
        .refuse("cache_size", "an image always has a volatile cache, of any size: the host's page cache")?;
    Ok(o)
}

/// Opens the image in `mode`, or for reading if its options ask for that.
fn open_image(path: PathBuf, options: OpenOptions) -> Open {
    Box::new(move |mode| {
        let mode = if options.mode == OpenMode::Reading { OpenMode::Reading } else { mode };
        Ok(Arc::new(ImageDevice::open(&path, &OpenOptions { mode, ..options })?))
    })
}

/// Rules for the rates in a name, such as `torn=1/1000`.
fn fault_rates(part: &Part<'_>, options: &mut Options<'_>) -> Result<Vec<Rule>, NameError> {
    let mut rules = Vec::new();
    for kind in &RATES {
        let Some(text) = options.text(kind.name)? else { continue };
        let rate = fault::parse_rate(text).ok_or_else(|| {
            part.refused(format!("{}={text} is not a rate: a number from 0 to 1, or 1/1000", kind.name))
        })?;
        rules.push(kind.rule(rate, fault::TIME_OUT));
    }
    Ok(rules)
}

/// The file could be the very image that is traced, so it is replaced only on request, and never if
/// it is an image.
fn trace_to_file(
    inner: Arc<dyn Device>,
    path: &Path,
    overwrite: bool,
) -> Result<Trace, Box<dyn Error + Send + Sync>> {
    let mut how = File::options();
    how.write(true);
    if overwrite && crate::image::is_image(path) {
        return Err(format!("{}: is an image; a trace never replaces an image", path.display()).into());
    }
    if overwrite {
        how.create(true).truncate(true)
    } else {
        how.create_new(true)
    };
    let file = how.open(path).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => {
            format!("{}: already exists; overwrite=1 replaces it", path.display())
        }
        _ => format!("{}: cannot create the trace: {e}", path.display()),
    })?;
    Ok(Trace::to_writer(inner, Box::new(BufWriter::new(file)))?)
}

/// Applies the options of `part` to `defaults` and checks them as far as possible without a device.
fn emulated_options(part: &Part<'_>, defaults: EmulatedOptions) -> Result<EmulatedOptions, NameError> {
    let mut options = part.options()?;
    let emulated = read_emulated(&mut options, defaults)?;
    options.finish()?;
    emulated.info("").map_err(|error| part.refused(error))?;
    Ok(emulated)
}

fn read_emulated(options: &mut Options<'_>, defaults: EmulatedOptions) -> Result<EmulatedOptions, NameError> {
    let mut o = defaults;
    options.size("size", &mut o.size)?;
    options.size("zone_size", &mut o.zone_size)?;
    options.size("zone_capacity", &mut o.zone_capacity)?;
    options.count("zone_nr_conv", &mut o.zone_nr_conv)?;
    options.count("zone_max_open", &mut o.zone_max_open)?;
    options.count("zone_max_active", &mut o.zone_max_active)?;
    options.count("zone_append_max_sectors", &mut o.zone_append_max_sectors)?;
    options.flag("zone_full", &mut o.zone_full)?;
    o.zone_readonly = zones(options.ranges("zone_readonly")?);
    o.zone_offline = zones(options.ranges("zone_offline")?);
    o.badblocks = options.ranges("badblocks")?;
    options.flag("badblocks_once", &mut o.badblocks_once)?;
    options.flag("badblocks_partial_io", &mut o.badblocks_partial_io)?;
    options.count("blocksize", &mut o.blocksize)?;
    options.count("max_sectors", &mut o.max_sectors)?;
    options.count("write_zeroes_max_sectors", &mut o.write_zeroes_max_sectors)?;
    options.number("completion_nsec", u64::MAX, &mut o.completion_nsec)?;
    options.count("mbps", &mut o.mbps)?;
    let modes = [("inline", CompleteMode::Inline), ("poll", CompleteMode::Poll)];
    options.choice("complete", &modes, &mut o.complete)?;
    options.count("hw_queue_depth", &mut o.hw_queue_depth)?;
    options.count("submit_queues", &mut o.submit_queues)?;
    options.flag("fua", &mut o.fua)?;
    options.flag("rotational", &mut o.rotational)?;
    options.flag("preserves_write_order", &mut o.preserves_write_order)?;
    let personalities = [("zns", Personality::Zns), ("zbc", Personality::Zbc)];
    options.choice("personality", &personalities, &mut o.personality)?;
    let locks = [("zone", Locking::Zone), ("device", Locking::Device)];
    options.choice("lock", &locks, &mut o.lock)?;
    options.refuse("cache_size", "this device has no volatile cache; an image file has one")?;
    options.refuse("memory_backed", "decided by the device kind: null keeps no data, ram does")?;
    Ok(o)
}

/// Numbers of zones. One that is too large for a zone is none of the drive's.
fn zones(ranges: Vec<RangeInclusive<u64>>) -> Vec<RangeInclusive<u32>> {
    let zone = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    ranges.into_iter().map(|range| zone(*range.start())..=zone(*range.end())).collect()
}
