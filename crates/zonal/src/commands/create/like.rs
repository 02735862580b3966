//! Zone reports of real drives, for `zonal create --like`.
//!
//! Each reporting program has a parser, which turns the text into a [`Listing`] in the units of
//! that program. [`Listing::drive`] then checks the invariants of a drive, once for all parsers. Any
//! text results in a drive, or in an error with its line.

mod blkzone;
mod nvme;
mod sg;
mod zbd;

use crate::commands::results::read_bounded;
use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use zonal_core::device::ZoneState;
use zonal_core::{Personality, SECTOR_BYTES, ZoneCondition, ZoneType};
use zonal_io::image::format::ZONES_MAX;

/// Maximum length of a report: 30 times that of a 30 TB disk with zones of 256 MiB.
const REPORT_BYTES_MAX: u64 = 512 << 20;

/// Drive described by a report.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Drive {
    /// Size in bytes.
    pub(super) size: u64,
    /// Zone size in bytes.
    pub(super) zone_size: u64,
    /// Writable part of a sequential zone in bytes.
    pub(super) zone_capacity: u64,
    /// Number of conventional zones, at the start of the drive.
    pub(super) conventional: u32,
    /// Logical block size in bytes.
    pub(super) block: u32,
    /// Limit of open zones, if the report has it.
    pub(super) open_max: Option<u32>,
    /// Limit of active zones, if the report has it.
    pub(super) active_max: Option<u32>,
    /// Standard of the drive, derived from the report.
    pub(super) personality: Personality,
    /// State of each zone at the time of the report.
    pub(super) states: Vec<ZoneState>,
}

/// Reads the report in `file`, or from standard input if `file` is `-`. `block` is the value of
/// `--blocksize`.
pub(super) fn read(file: &Path, block: Option<u32>) -> Result<Drive> {
    let is_stdin = file.as_os_str() == "-";
    let name = if is_stdin { "standard input".to_owned() } else { file.display().to_string() };
    let read =
        |from: &mut dyn Read| read_bounded(from, REPORT_BYTES_MAX, "longer than 512 MiB: not a zone report");
    let bytes =
        if is_stdin { read(&mut io::stdin()) } else { File::open(file).and_then(|mut file| read(&mut file)) };
    let bytes = bytes.with_context(|| name.clone())?;
    parse(&bytes, block).with_context(|| name)
}

/// Parses a report.
fn parse(bytes: &[u8], block: Option<u32>) -> Result<Drive> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let line = 1 + bytes[..e.valid_up_to()].iter().filter(|&&b| b == b'\n').count();
        wrong(Place::Line(line), "not text")
    })?;
    listing(text)?.drive(block)
}

/// Recognizes the program that printed `text`, and parses it.
fn listing(text: &str) -> Result<Listing> {
    if text.trim_start().starts_with('{') {
        let json: serde_json::Value =
            serde_json::from_str(text).context("begins like JSON, but is not valid JSON")?;
        let parsed = nvme::from_json(&json).or_else(|| sg::from_json(&json));
        return parsed.unwrap_or_else(|| bail!("the JSON has neither zone_list nor zone_descriptors_list"));
    }
    type Parser = fn(&str) -> Result<Listing>;
    let parser = text.lines().find_map(|line| -> Option<Parser> {
        let line = line.trim_start();
        Some(match line {
            _ if line.starts_with("start: ") => blkzone::parse,
            _ if line.starts_with("nr_zones: ") || line.starts_with("SLBA: ") => nvme::parse,
            _ if zbd::is_zone(line) => zbd::parse,
            _ if line.starts_with(zbd::CSV_HEAD) => zbd::parse_csv,
            _ if sg::is_begin(line) => sg::parse,
            _ => return None,
        })
    });
    let parser = parser.ok_or_else(|| {
        anyhow!(
            "not a zone report; give the output of 'blkzone report', 'nvme zns report-zones', 'sg_rep_zones' \
             or 'zbd report'"
        )
    })?;
    parser(text)
}

/// Position in a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// Line of the text, from 1.
    Line(usize),
    /// Zone of a JSON report, from 0.
    Zone(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(line) => write!(f, "line {line}"),
            Place::Zone(zone) => write!(f, "zone {zone}"),
        }
    }
}

/// Error with its position.
fn wrong(place: Place, what: impl fmt::Display) -> Error {
    anyhow!("{place}: {what}")
}

/// Unit of the numbers in a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    /// Bytes.
    Bytes,
    /// Sectors of 512 bytes.
    Sectors,
    /// Logical blocks of the drive.
    Blocks,
}

/// Parsed report, in the units of its program.
struct Listing {
    unit: Unit,
    zones: Vec<Listed>,
    /// Number of zones of the drive, according to the report.
    zones_all: Option<u64>,
    /// End of the drive, according to the report.
    end: Option<u64>,
    block: Option<u32>,
    open_max: Option<u32>,
    active_max: Option<u32>,
    /// Standard, if the program supports only one.
    personality: Option<Personality>,
}

/// Zone of a report.
struct Listed {
    place: Place,
    start: u64,
    size: u64,
    /// `None` if the program does not print capacities; the size is used instead.
    capacity: Option<u64>,
    /// Address of the write pointer. Arbitrary on some drives if the condition has none.
    pointer: u64,
    kind: ZoneType,
    condition: ZoneCondition,
}

impl Listing {
    fn new(unit: Unit) -> Listing {
        Listing {
            unit,
            zones: Vec::new(),
            zones_all: None,
            end: None,
            block: None,
            open_max: None,
            active_max: None,
            personality: None,
        }
    }

    /// Adds a zone.
    ///
    /// # Errors
    /// If there are too many zones for an image.
    fn push(&mut self, zone: Listed) -> Result<()> {
        if self.zones.len() as u64 == u64::from(ZONES_MAX) {
            return Err(wrong(
                zone.place,
                format_args!("more than {ZONES_MAX} zones, the maximum of an image"),
            ));
        }
        self.zones.push(zone);
        Ok(())
    }

    /// Checks the whole report and converts it to sectors. `block` is the value of `--blocksize`,
    /// in bytes.
    fn drive(self, block: Option<u32>) -> Result<Drive> {
        let block = self.block(block)?;
        let mut drawn = Drawn::new(self.unit, u64::from(block) / SECTOR_BYTES);
        // The capacity of an offline zone is meaningless.
        let is_valid = |zone: &&Listed| {
            zone.kind == ZoneType::SequentialWriteRequired && zone.condition != ZoneCondition::Offline
        };
        if let Some(zone) = self.zones.iter().find(is_valid) {
            let capacity = drawn.sectors(zone.capacity.unwrap_or(zone.size));
            drawn.capacity = Some(capacity.map_err(|what| wrong(zone.place, what))?);
        }
        for (n, zone) in self.zones.iter().enumerate() {
            drawn.add(zone, n + 1 == self.zones.len()).map_err(|what| wrong(zone.place, what))?;
        }
        self.check_end(&drawn)?;
        ensure!(!self.zones.is_empty(), "the report has no zones");
        let capacity = drawn.capacity.context("the drive has no sequential zone")?;
        Ok(Drive {
            size: drawn.end * SECTOR_BYTES,
            zone_size: drawn.zone_size * SECTOR_BYTES,
            zone_capacity: capacity * SECTOR_BYTES,
            conventional: drawn.conventional as u32,
            block,
            open_max: self.open_max,
            active_max: self.active_max,
            // NVMe has no conventional zones.
            personality: self.personality.unwrap_or(match drawn.conventional {
                0 => Personality::Zns,
                _ => Personality::Zbc,
            }),
            states: drawn.states,
        })
    }

    /// Logical block size in bytes, given or from the report.
    fn block(&self, given: Option<u32>) -> Result<u32> {
        let block = match (given, self.block) {
            (Some(given), Some(listed)) if given != listed => {
                bail!("the report has logical blocks of {listed} bytes, but --blocksize is {given}")
            }
            (given, listed) => given.or(listed).context(
                "the report does not have the logical block size of the drive: give it with --blocksize",
            )?,
        };
        ensure!(
            block.is_power_of_two() && u64::from(block) >= SECTOR_BYTES,
            "a logical block of {block} bytes is not a power of two of at least {SECTOR_BYTES}"
        );
        Ok(block)
    }

    /// Checks that the report has all zones of the drive.
    fn check_end(&self, drawn: &Drawn) -> Result<()> {
        if let Some(all) = self.zones_all {
            let listed = self.zones.len();
            ensure!(
                all == listed as u64,
                "the report lists {listed} of {all} zones: make it of the whole drive"
            );
        }
        if let Some(end) = self.end {
            let end = drawn.sectors(end).map_err(Error::msg)?;
            ensure!(
                end == drawn.end,
                "the zones end at {}, but the drive ends at {}: make the report of the whole drive",
                bytes(drawn.end),
                bytes(end)
            );
        }
        Ok(())
    }
}

/// Zones checked so far, in sectors.
struct Drawn {
    unit: Unit,
    block: u64,
    /// Size of the first zone.
    zone_size: u64,
    /// Capacity of the first sequential zone.
    capacity: Option<u64>,
    conventional: usize,
    end: u64,
    states: Vec<ZoneState>,
}

impl Drawn {
    fn new(unit: Unit, block: u64) -> Drawn {
        Drawn { unit, block, zone_size: 0, capacity: None, conventional: 0, end: 0, states: Vec::new() }
    }

    /// Converts `value` to sectors, small enough that sums of a few do not overflow.
    fn sectors(&self, value: u64) -> Result<u64, String> {
        let sectors = match self.unit {
            Unit::Bytes => value.is_multiple_of(SECTOR_BYTES).then_some(value / SECTOR_BYTES),
            Unit::Sectors => Some(value),
            Unit::Blocks => value.checked_mul(self.block),
        };
        let sectors = sectors.filter(|&n| n <= i64::MAX as u64 / SECTOR_BYTES);
        sectors.ok_or_else(|| format!("{value:#x} is not an address on a drive"))
    }

    /// Adds the next zone.
    fn add(&mut self, zone: &Listed, is_last: bool) -> Result<(), String> {
        let (start, size) = (self.sectors(zone.start)?, self.sectors(zone.size)?);
        self.check_place(start, size, is_last)?;
        let state = match zone.kind {
            ZoneType::Conventional => self.conventional(zone)?,
            ZoneType::SequentialWriteRequired => self.sequential(zone, start, size)?,
        };
        self.states.push(state);
        self.end = start + size;
        Ok(())
    }

    fn check_place(&mut self, start: u64, size: u64, is_last: bool) -> Result<(), String> {
        let end = self.end;
        if self.states.is_empty() {
            self.zone_size = size;
            if start != 0 {
                return Err("the report does not begin at the start of the drive".to_owned());
            }
        }
        if start < end {
            return Err(format!("the zone overlaps the previous one, which ends at {}", bytes(end)));
        }
        if start > end {
            return Err(format!(
                "gap before the zone: it begins at {}, but the previous one ends at {}",
                bytes(start),
                bytes(end)
            ));
        }
        let first = self.zone_size;
        if size == 0 || size > first || (size < first && !is_last) {
            return Err(format!(
                "the zone has {}, but the first one has {}; in an image only the last zone can be smaller",
                bytes(size),
                bytes(first)
            ));
        }
        Ok(())
    }

    fn conventional(&mut self, zone: &Listed) -> Result<ZoneState, String> {
        if self.conventional != self.states.len() {
            return Err("a conventional zone behind a sequential one; an image has them first".to_owned());
        }
        if zone.condition != ZoneCondition::NotWp {
            return Err(format!(
                "a conventional zone that is {}; an image does not support that",
                zone.condition
            ));
        }
        self.conventional += 1;
        Ok(ZoneState::CONVENTIONAL)
    }

    fn sequential(&mut self, zone: &Listed, start: u64, size: u64) -> Result<ZoneState, String> {
        let own = match zone.capacity {
            None => size,
            // The capacity of an offline zone is meaningless.
            Some(_) if zone.condition == ZoneCondition::Offline => self.capacity.unwrap_or(size).min(size),
            Some(capacity) => self.sectors(capacity)?,
        };
        let expected = *self.capacity.get_or_insert(own);
        if own == 0 || own > size || own != expected.min(size) {
            return Err(format!(
                "the zone has a capacity of {}, but the first sequential one has {}; an image has only one",
                bytes(own),
                bytes(expected)
            ));
        }
        // A meaningless address lies outside the zone.
        let written = self.sectors(zone.pointer).ok().and_then(|pointer| pointer.checked_sub(start));
        state(zone.condition, own, written.filter(|&n| n <= size), self.block)
    }
}

/// Formats a number of sectors.
fn bytes(sectors: u64) -> String {
    crate::value::human(sectors * SECTOR_BYTES)
}

/// State of a sequential zone. `written` is its write pointer in sectors from its start, if that is
/// in the zone.
fn state(
    condition: ZoneCondition,
    capacity: u64,
    written: Option<u64>,
    block: u64,
) -> Result<ZoneState, String> {
    let written = match condition {
        ZoneCondition::NotWp => return Err("a sequential zone without a write pointer".to_owned()),
        ZoneCondition::Empty if written != Some(0) => {
            return Err("the zone is empty, but its write pointer is not at its start".to_owned());
        }
        ZoneCondition::Empty | ZoneCondition::Offline => 0,
        ZoneCondition::Full => capacity,
        // The standards give this write pointer no meaning. A valid one is kept.
        // blkzone prints 0 for none.
        ZoneCondition::ReadOnly => {
            written.filter(|&n| n != 0 && n <= capacity && n.is_multiple_of(block)).unwrap_or(capacity)
        }
        _ => match written {
            None => return Err("the write pointer is outside of the zone".to_owned()),
            Some(n) if n >= capacity => {
                return Err(format!(
                    "the write pointer is at the end of the zone, but the zone is {condition}, not full"
                ));
            }
            Some(n) => n,
        },
    };
    if !written.is_multiple_of(block) {
        return Err(format!(
            "the write pointer is not a multiple of the logical block of {} bytes",
            block * SECTOR_BYTES
        ));
    }
    // A zone has at most 2^31 sectors; larger ones are also refused by the geometry.
    Ok(ZoneState { condition, written: u32::try_from(written).map_err(|_| "the zone is too large")? })
}

/// Type of a zone by its code, common to ZBC, ZNS and Linux.
fn kind(code: u64) -> Result<ZoneType, String> {
    match code {
        1 => Ok(ZoneType::Conventional),
        2 => Ok(ZoneType::SequentialWriteRequired),
        3 => Err("a zone of type \"sequential write preferred\", which Zonal does not emulate".to_owned()),
        4 => Err("a zone of type \"sequential or before required\", which Zonal does not emulate".to_owned()),
        5 => Err("a gap, which Zonal does not emulate".to_owned()),
        _ => Err(format!("unknown zone type {code:#x}")),
    }
}

/// Condition of a zone by its code, common to ZBC, ZNS and Linux.
fn condition(code: u64) -> Result<ZoneCondition, String> {
    let known = u8::try_from(code).ok().and_then(ZoneCondition::from_code);
    known.ok_or_else(|| match code {
        5 => "an inactive zone, which Zonal does not emulate".to_owned(),
        _ => format!("unknown zone condition {code:#x}"),
    })
}

/// Value after `key` in `line`, up to a space, a comma or a parenthesis.
fn field<'a>(line: &'a str, key: &str) -> Result<&'a str, String> {
    let value = line.split_once(key).map(|(_, rest)| rest.trim_start());
    let value = value.and_then(|rest| rest.split([' ', ',', '(']).next());
    value.filter(|v| !v.is_empty()).ok_or_else(|| format!("no value of {}", key.trim_end_matches([':', ' '])))
}

/// Number after `key` in `line`.
fn numeric(line: &str, key: &str) -> Result<u64, String> {
    number(field(line, key)?)
}

/// Parses a decimal number, or a hexadecimal one with 0x.
fn number(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    number.ok_or_else(|| format!("{text:?} is not a number"))
}

#[cfg(test)]
mod tests;
