//! `blkzone report` of util-linux: one line per zone, in sectors of 512 bytes. The write pointer is
//! relative to the start of the zone. Versions before 2.36 have no `cap`.

use super::{Listed, Listing, Place, Unit, condition, kind, numeric, wrong};
use zonal_core::ZoneCondition;

pub(super) fn parse(text: &str) -> anyhow::Result<Listing> {
    let mut listing = Listing::new(Unit::Sectors);
    for (place, line) in (1..).map(Place::Line).zip(text.lines()) {
        let line = line.trim();
        // With -v there is a line for each ioctl.
        if let Some(found) = line.strip_prefix("Found ") {
            let count = found.split(' ').next().and_then(|count| count.parse::<u64>().ok());
            let count = count.ok_or_else(|| wrong(place, "not a complete line of 'blkzone report -v'"))?;
            listing.zones_all = Some(listing.zones_all.unwrap_or(0).saturating_add(count));
            continue;
        }
        if line.is_empty() {
            continue;
        }
        listing.push(zone(place, line).map_err(|what| wrong(place, what))?)?;
    }
    Ok(listing)
}

fn zone(place: Place, line: &str) -> Result<Listed, String> {
    if !line.starts_with("start: ") || !line.ends_with(")]") {
        return Err("not a complete line of 'blkzone report'".to_owned());
    }
    let (start, size) = (numeric(line, "start: ")?, numeric(line, "len ")?);
    let condition = condition(numeric(line, "zcond:")?)?;
    let pointer = match (line.contains("wptr N/A"), condition) {
        (false, _) => numeric(line, "wptr ")?,
        // util-linux 2.41 leaves out pointers without meaning.
        (true, ZoneCondition::Full) => size,
        (true, _) => 0,
    };
    Ok(Listed {
        place,
        start,
        size,
        capacity: line.contains("cap ").then(|| numeric(line, "cap ")).transpose()?,
        // Undoes the subtraction of blkzone, also for a meaningless pointer.
        pointer: start.wrapping_add(pointer),
        kind: kind(numeric(line, "type:")?)?,
        condition,
    })
}
