//! `sg_rep_zones` of sg3_utils: one paragraph per zone, or JSON, in logical blocks. Consecutive
//! reports are joined, because one command does not return all zones of a large disk.

use super::nvme::integer;
use super::{Listed, Listing, Place, Unit, condition, kind, number, wrong};
use anyhow::Result;
use serde_json::Value;
use zonal_core::{Personality, ZoneCondition, ZoneType};

/// True for the first line of a report header or of a zone.
pub(super) fn is_begin(line: &str) -> bool {
    value(line, "maximum lba:").or_else(|| value(line, "zone type:")).is_some()
}

pub(super) fn parse(text: &str) -> Result<Listing> {
    let mut listing = new();
    let mut open: Option<Paragraph> = None;
    for (place, line) in (1..).map(Place::Line).zip(text.lines()) {
        let fault = |what: String| wrong(place, what);
        if let Some(last) = value(line, "maximum lba:") {
            listing.end = Some(number(last).map_err(fault)?.saturating_add(1));
        } else if let Some(name) = value(line, "zone type:") {
            if let Some(open) = open {
                return Err(open.unfinished());
            }
            let kind = kind_named(name).map_err(fault)?;
            open = Some(Paragraph { place, kind, condition: None, size: None, start: None });
        } else if let Some(paragraph) = &mut open {
            if let Some(name) = value(line, "zone condition:") {
                paragraph.condition = Some(condition_named(name).map_err(fault)?);
            } else if let Some(size) = value(line, "zone length:") {
                paragraph.size = Some(number(size).map_err(fault)?);
            } else if let Some(start) = value(line, "zone start lba:") {
                paragraph.start = Some(number(start).map_err(fault)?);
            } else if let Some(pointer) = value(line, "write pointer lba:") {
                let pointer = if pointer == "-1" { u64::MAX } else { number(pointer).map_err(fault)? };
                listing.push(paragraph.end(pointer).ok_or_else(|| paragraph.unfinished())?)?;
                open = None;
            }
        }
    }
    match open {
        Some(open) => Err(open.unfinished()),
        None => Ok(listing),
    }
}

fn new() -> Listing {
    Listing { personality: Some(Personality::Zbc), ..Listing::new(Unit::Blocks) }
}

/// Zone that is being read.
struct Paragraph {
    place: Place,
    kind: ZoneType,
    condition: Option<ZoneCondition>,
    size: Option<u64>,
    start: Option<u64>,
}

impl Paragraph {
    fn end(&self, pointer: u64) -> Option<Listed> {
        Some(Listed {
            place: self.place,
            start: self.start?,
            size: self.size?,
            capacity: None,
            pointer,
            kind: self.kind,
            condition: self.condition?,
        })
    }

    fn unfinished(&self) -> anyhow::Error {
        wrong(self.place, "the description of the zone is incomplete")
    }
}

/// Value of a line with this key, in any case. `key` is in lower case.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let line = line.trim();
    let (found, value) = (line.get(..key.len())?, line.get(key.len()..)?);
    found.eq_ignore_ascii_case(key).then(|| value.trim())
}

fn kind_named(name: &str) -> Result<ZoneType, String> {
    const KINDS: [(&str, u64); 5] = [
        ("conventional", 1),
        ("sequential write required", 2),
        ("sequential write preferred", 3),
        ("sequential or before required", 4),
        ("gap", 5),
    ];
    match KINDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        Some((_, code)) => kind(*code),
        None => Err(format!("unknown zone type {name:?}")),
    }
}

fn condition_named(name: &str) -> Result<ZoneCondition, String> {
    const CONDITIONS: [(&str, u64); 9] = [
        ("not write pointer", 0),
        ("empty", 1),
        ("implicitly opened", 2),
        ("explicitly opened", 3),
        ("closed", 4),
        ("inactive", 5),
        ("read only", 0xd),
        ("full", 0xe),
        ("offline", 0xf),
    ];
    // With -v the code follows.
    let name = name.split_once(" [0x").map_or(name, |(name, _)| name);
    match CONDITIONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        Some((_, code)) => condition(*code),
        None => Err(format!("unknown zone condition {name:?}")),
    }
}

/// Parses `json`, if it is a report of sg3_utils.
pub(super) fn from_json(json: &Value) -> Option<Result<Listing>> {
    let report = find(json, "zone_descriptors_list")?;
    let zones = report.get("zone_descriptors_list")?.as_array()?;
    let end =
        find(json, "maximum_lba").and_then(|o| plain(o.get("maximum_lba"))).map(|n| n.saturating_add(1));
    Some(zones.iter().enumerate().try_fold(Listing { end, ..new() }, |mut listing, (n, zone)| {
        let place = Place::Zone(n);
        listing.push(object(place, zone).map_err(|what| wrong(place, what))?)?;
        Ok(listing)
    }))
}

/// Object with `key`: the outermost, or one inside it.
fn find<'a>(json: &'a Value, key: &str) -> Option<&'a Value> {
    if json.get(key).is_some() {
        return Some(json);
    }
    json.as_object()?.values().find(|inner| inner.get(key).is_some())
}

/// Number, plain or wrapped in an object, depending on the options of sg3_utils.
fn plain(value: Option<&Value>) -> Option<u64> {
    integer(value).or_else(|| integer(value?.get("i")))
}

fn object(place: Place, zone: &Value) -> Result<Listed, String> {
    let number = |key: &str| plain(zone.get(key)).ok_or_else(|| format!("no number {key}"));
    Ok(Listed {
        place,
        start: number("zone_start_lba")?,
        size: number("zone_length")?,
        capacity: None,
        pointer: number("write_pointer_lba")?,
        kind: kind(number("zone_type")?)?,
        condition: condition(number("zone_condition")?)?,
    })
}
