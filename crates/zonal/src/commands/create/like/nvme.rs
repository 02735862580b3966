//! `nvme zns report-zones` of nvme-cli: one line per zone, or JSON, in logical blocks. Type and
//! state are numbers or names, depending on the version and `-v`. The report has no zone size; it
//! is derived from the first two zones.

use super::{Listed, Listing, Place, Unit, condition, field, kind, number, numeric, wrong};
use anyhow::{Result, bail};
use serde_json::Value;
use zonal_core::{Personality, ZoneCondition, ZoneType};

pub(super) fn parse(text: &str) -> Result<Listing> {
    let mut listing = new();
    for (place, line) in (1..).map(Place::Line).zip(text.lines()) {
        let fault = |what| wrong(place, what);
        // The other lines are attributes and descriptor extensions.
        if line.starts_with("nr_zones:") {
            listing.zones_all = Some(numeric(line, "nr_zones:").map_err(fault)?);
        } else if line.trim_start().starts_with("SLBA:") {
            listing.push(zone(place, line).map_err(fault)?)?;
        }
    }
    sized(listing)
}

fn new() -> Listing {
    Listing { personality: Some(Personality::Zns), ..Listing::new(Unit::Blocks) }
}

fn zone(place: Place, line: &str) -> Result<Listed, String> {
    let (state, zone_type) = (field(line, "State:")?, field(line, "Type:")?);
    Ok(Listed {
        place,
        start: numeric(line, "SLBA:")?,
        size: 0,
        pointer: numeric(line, "WP:")?,
        capacity: Some(numeric(line, "Cap:")?),
        kind: match number(zone_type) {
            Ok(code) => kind(code & 0xf)?,
            Err(_) => kind_named(zone_type)?,
        },
        // The state is in the upper four bits.
        condition: match number(state) {
            Ok(code) => condition(code >> 4)?,
            Err(_) => condition_named(state)?,
        },
    })
}

fn kind_named(name: &str) -> Result<ZoneType, String> {
    match name {
        "SEQWRITE_REQ" => Ok(ZoneType::SequentialWriteRequired),
        _ => Err(format!("unknown zone type {name:?}")),
    }
}

fn condition_named(name: &str) -> Result<ZoneCondition, String> {
    Ok(match name {
        "EMPTY" => ZoneCondition::Empty,
        "IMP_OPENED" => ZoneCondition::ImpOpen,
        "EXP_OPENED" => ZoneCondition::ExpOpen,
        "CLOSED" => ZoneCondition::Closed,
        "READONLY" => ZoneCondition::ReadOnly,
        "FULL" => ZoneCondition::Full,
        "OFFLINE" => ZoneCondition::Offline,
        _ => return Err(format!("unknown zone state {name:?}")),
    })
}

/// Parses `json`, if it is a report of nvme-cli.
pub(super) fn from_json(json: &Value) -> Option<Result<Listing>> {
    let zones = json.get("zone_list")?.as_array()?;
    let parsed = zones.iter().enumerate().try_fold(new(), |mut listing, (n, zone)| {
        let place = Place::Zone(n);
        listing.push(object(place, zone).map_err(|what| wrong(place, what))?)?;
        Ok(listing)
    });
    Some(parsed.and_then(|mut listing| {
        listing.zones_all = json.get("nr_zones").and_then(Value::as_u64);
        sized(listing)
    }))
}

fn object(place: Place, zone: &Value) -> Result<Listed, String> {
    let number = |key: &str| integer(zone.get(key)).ok_or_else(|| format!("no number {key}"));
    let text = |key: &str| zone.get(key).and_then(Value::as_str).ok_or_else(|| format!("no {key}"));
    Ok(Listed {
        place,
        start: number("slba")?,
        size: 0,
        pointer: number("wp")?,
        capacity: Some(number("cap")?),
        kind: kind_named(text("type")?)?,
        condition: condition_named(text("state")?)?,
    })
}

/// Unsigned 64-bit number, printed as signed by some libraries.
pub(super) fn integer(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    value.as_u64().or_else(|| value.as_i64().map(|n| n as u64))
}

/// Sets the zone size, the distance between the first two zones.
fn sized(mut listing: Listing) -> Result<Listing> {
    let size = match listing.zones.as_slice() {
        [] => return Ok(listing),
        [_] => bail!("the zone size cannot be derived from one zone: make the report of the whole drive"),
        [first, second, ..] => second.start.checked_sub(first.start).filter(|&size| size > 0),
    };
    let size =
        size.ok_or_else(|| wrong(listing.zones[1].place, "the zone is not behind the previous one"))?;
    for zone in &mut listing.zones {
        zone.size = size;
    }
    Ok(listing)
}
