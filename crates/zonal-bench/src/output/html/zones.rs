//! List of the zones that are not empty at the end, since a few among a hundred thousand are hard
//! to find on the map.

use super::quantities::grouped;
use super::tables::Fact;
use crate::measure::series::{ZoneMap, ZoneRun};
use crate::report::Report;
use zonal_core::ZoneCondition;

/// Maximum number of ranges listed per mode.
const RANGES_MAX: usize = 64;

/// Neighbouring zones with the same condition.
struct Range {
    first: u32,
    zones: u32,
    condition: ZoneCondition,
    /// Minimum and maximum fill level in percent.
    fill: (u8, u8),
}

/// Non-empty zones of each mode with a zone map, in the order of the device.
pub(super) fn used(report: &Report) -> Vec<Fact> {
    let modes = report.modes.iter();
    let maps = modes.filter_map(|mode| Some((mode.mode, mode.series.as_ref()?.zones.as_ref()?)));
    maps.map(|(mode, map)| Fact { name: mode.name().to_owned(), text: list(map) }).collect()
}

fn list(map: &ZoneMap) -> String {
    let ranges = ranges(map);
    let shown = ranges.iter().take(RANGES_MAX).map(in_words).collect::<Vec<_>>().join("; ");
    match ranges.len().saturating_sub(RANGES_MAX) {
        0 if ranges.is_empty() => "none".to_owned(),
        0 => shown,
        more => format!("{shown}; and {} more ranges", grouped(more as u64)),
    }
}

fn ranges(map: &ZoneMap) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    let mut first = 0;
    for &ZoneRun { zones, condition, fill } in &map.runs {
        match ranges.last_mut() {
            Some(last) if last.first + last.zones == first && last.condition == condition => {
                last.zones += zones;
                last.fill = (last.fill.0.min(fill), last.fill.1.max(fill));
            }
            _ if is_used(condition) => ranges.push(Range { first, zones, condition, fill: (fill, fill) }),
            _ => {}
        }
        first += zones;
    }
    ranges
}

/// True if a zone is listed. Conventional zones have no write pointer that would show their use.
fn is_used(condition: ZoneCondition) -> bool {
    !matches!(condition, ZoneCondition::Empty | ZoneCondition::NotWp)
}

fn in_words(range: &Range) -> String {
    let last = range.first + range.zones - 1;
    let place = match range.zones {
        1 => grouped(range.first),
        _ => format!("{}–{}", grouped(range.first), grouped(last)),
    };
    let fill = match range.fill {
        (least, most) if least == most => format!("{least}%"),
        (least, most) => format!("{least}–{most}%"),
    };
    match range.condition {
        ZoneCondition::ImpOpen | ZoneCondition::ExpOpen => format!("{place} open, {fill} written"),
        ZoneCondition::Closed => format!("{place} closed, {fill} written"),
        ZoneCondition::Full => format!("{place} full"),
        ZoneCondition::ReadOnly => format!("{place} read-only"),
        ZoneCondition::Offline => format!("{place} offline"),
        ZoneCondition::Empty | ZoneCondition::NotWp => place,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(zones: u32, condition: ZoneCondition, fill: u8) -> ZoneRun {
        ZoneRun { zones, condition, fill }
    }

    #[test]
    fn used_zones_are_listed_in_ranges_and_empty_ones_are_not() {
        use ZoneCondition::{Closed, Empty, Full, ImpOpen, NotWp};
        let map = ZoneMap {
            runs: vec![
                run(4, NotWp, 0),
                run(37_200, Empty, 0),
                run(3, Full, 100),
                run(1, ImpOpen, 40),
                run(1, ImpOpen, 7),
                run(70_000, Empty, 0),
                run(1, Closed, 99),
            ],
        };
        let thin = '\u{202f}';
        let expected = "37_204–37_206 full; 37_207–37_208 open, 7–40% written; 107_209 closed, 99% written";
        assert_eq!(list(&map), expected.replace('_', &thin.to_string()));
        assert_eq!(list(&ZoneMap { runs: vec![run(5, Empty, 0)] }), "none");
    }

    #[test]
    fn long_range_list_is_truncated_with_a_note() {
        let pair = [run(1, ZoneCondition::Full, 100), run(1, ZoneCondition::Empty, 0)];
        let map = ZoneMap { runs: pair.repeat(100) };
        let text = list(&map);
        assert!(text.ends_with("126 full; and 36 more ranges"), "{text}");
    }
}
