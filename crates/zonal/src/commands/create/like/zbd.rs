//! `zbd report` of libzbd: one line per zone, or CSV, in bytes (without `-u`). With `-i` lines
//! about the drive precede the zones.

use super::{Listed, Listing, Place, Unit, condition, kind, number, numeric, wrong};
use anyhow::Result;
use zonal_core::ZoneCondition;

/// Start of the CSV header.
pub(super) const CSV_HEAD: &str = "zone num, ";

/// True if `line` describes a zone.
pub(super) fn is_zone(line: &str) -> bool {
    line.strip_prefix("Zone ").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

pub(super) fn parse(text: &str) -> Result<Listing> {
    let mut listing = Listing::new(Unit::Bytes);
    for (place, line) in (1..).map(Place::Line).zip(text.lines()) {
        let fault = |what: String| wrong(place, what);
        let line = line.trim();
        if is_zone(line) {
            listing.push(zone(place, line).map_err(fault)?)?;
        } else if listing.zones.is_empty() {
            head(&mut listing, line).map_err(fault)?;
        } else if !line.is_empty() {
            return Err(fault("not a complete line of 'zbd report'".to_owned()));
        }
    }
    Ok(listing)
}

/// Parses a line about the drive.
fn head(listing: &mut Listing, line: &str) -> Result<(), String> {
    let limit = |value: &str| match value.trim() {
        "no limit" => Ok(0),
        text => text.parse().map_err(|_| format!("{text:?} is not a number")),
    };
    match line.split_once(": ") {
        Some(("Logical blocks", value)) => {
            listing.block = u32::try_from(numeric(value, "blocks of ")?).ok();
        }
        Some(("Capacity", value)) => listing.end = numeric(value, "GB (")?.checked_mul(512),
        Some(("Maximum number of open zones", value)) => listing.open_max = Some(limit(value)?),
        Some(("Maximum number of active zones", value)) => listing.active_max = Some(limit(value)?),
        _ => {}
    }
    Ok(())
}

fn zone(place: Place, line: &str) -> Result<Listed, String> {
    let parts: Vec<&str> = line.split(", ").collect();
    let value = |key: &str| {
        let found = parts.iter().find_map(|part| part.strip_prefix(key));
        found.ok_or_else(|| format!("no value of {}", key.trim_end()))
    };
    let (start, size) = (number(value("ofst ")?)?, number(value("len ")?)?);
    // Older versions have no capacity.
    let capacity = value("cap ").ok().map(number).transpose()?;
    let name = parts[0].split_once(": ").map_or("", |(_, name)| name);
    let kind = kind(match name {
        "cnv" => 1,
        "swr" => 2,
        "swp" => 3,
        _ => match name.strip_prefix("unknown type ") {
            Some(code) => number(code)?,
            None => return Err(format!("unknown zone type {name:?}")),
        },
    })?;
    if name == "cnv" {
        let condition = ZoneCondition::NotWp;
        return Ok(Listed { place, start, size, capacity, pointer: start, kind, condition });
    }
    let pointer = number(value("wp ")?)?;
    value("reset ")?;
    let at = parts.iter().position(|part| part.starts_with("wp ")).unwrap_or(parts.len());
    let condition = match parts.get(at + 1).copied().unwrap_or("") {
        "nw" => ZoneCondition::NotWp,
        "em" => ZoneCondition::Empty,
        "oi" => ZoneCondition::ImpOpen,
        "oe" => ZoneCondition::ExpOpen,
        "cl" => ZoneCondition::Closed,
        "fu" => ZoneCondition::Full,
        "ro" => ZoneCondition::ReadOnly,
        "ol" => ZoneCondition::Offline,
        unknown => return Err(format!("unknown zone condition {unknown:?}")),
    };
    Ok(Listed { place, start, size, capacity, pointer, kind, condition })
}

/// Parses CSV with the columns of its header: older versions have no `cap`.
pub(super) fn parse_csv(text: &str) -> Result<Listing> {
    let mut listing = Listing::new(Unit::Bytes);
    let mut columns: Option<Vec<&str>> = None;
    for (place, line) in (1..).map(Place::Line).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let row: Vec<&str> = line.split(',').map(str::trim).collect();
        match &columns {
            None => columns = Some(row),
            Some(columns) => {
                listing.push(csv_zone(place, columns, &row).map_err(|what| wrong(place, what))?)?;
            }
        }
    }
    Ok(listing)
}

fn csv_zone(place: Place, columns: &[&str], row: &[&str]) -> Result<Listed, String> {
    if columns.len() != row.len() {
        return Err(format!("{} values for {} columns", row.len(), columns.len()));
    }
    let cell =
        |name: &str| columns.iter().zip(row).find(|(column, _)| **column == name).map(|(_, cell)| *cell);
    let value = |name: &str| number(cell(name).ok_or_else(|| format!("no column {name}"))?);
    Ok(Listed {
        place,
        start: value("ofst")?,
        size: value("len")?,
        capacity: cell("cap").map(number).transpose()?,
        pointer: value("wp")?,
        kind: kind(value("type")?)?,
        condition: condition(value("cond")?)?,
    })
}
