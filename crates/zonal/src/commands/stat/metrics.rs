//! The figures of `zonal stat` in the text format of Prometheus, version 0.0.4.

use super::{COUNTERS, Seen};
use serde_json::Value;
use std::fmt::{Display, Write};
use zonal_fs::{Activity, Status};

/// Metrics that grow, and such that go up and down.
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// The text, as it grows.
struct Text {
    text: String,
    /// The label that all samples have.
    device: String,
}

pub(super) fn of(seen: &Seen) -> String {
    let mut text = Text { text: String::new(), device: label("device", &seen.device) };
    if let Some((_, counters)) = &seen.volume {
        for (name, about) in COUNTERS {
            text.one(Kind::Counter, &format!("zonal_{name}_total"), about, &counters[name]);
        }
    }
    if let Some(connections) = seen.connections.as_ref().and_then(Value::as_array) {
        text.one(Kind::Gauge, "zonal_connections", "connections of hosts", connections.len());
        let in_flight: u64 = connections.iter().filter_map(|one| one["in_flight"].as_u64()).sum();
        text.one(Kind::Gauge, "zonal_host_commands", "commands of hosts without an answer", in_flight);
    }
    if let Some(status) = &seen.files {
        space(&mut text, status);
        status.activity.iter().for_each(|activity| running(&mut text, activity));
    }
    text.text
}

fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

impl Text {
    fn head(&mut self, kind: Kind, name: &str, about: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        write!(self.text, "# HELP {name} {about}\n# TYPE {name} {kind}\n").expect("a string takes all");
    }

    fn sample(&mut self, name: &str, labels: &[String], value: impl Display) {
        let labels: Vec<&str> = [&self.device].into_iter().chain(labels).map(String::as_str).collect();
        writeln!(self.text, "{name}{{{}}} {value}", labels.join(",")).expect("a string takes all");
    }

    fn one(&mut self, kind: Kind, name: &str, about: &str, value: impl Display) {
        self.head(kind, name, about);
        self.sample(name, &[], value);
    }
}

fn space(text: &mut Text, status: &Status) {
    let Status { size, free, available, used, zones, resets, .. } = status;
    for (name, about, value) in [
        ("size", "bytes of data that files can ever have", size),
        ("free", "bytes that are free or can be freed", free),
        ("available", "bytes that can be written before zones are collected", available),
        ("used", "bytes of data that files have", used),
    ] {
        text.one(Kind::Gauge, &format!("zonal_files_{name}_bytes"), about, value);
    }
    text.head(Kind::Gauge, "zonal_files_zones", "zones for data, by what they are");
    for (state, count) in [
        ("free", zones.free),
        ("open", zones.open),
        ("full", zones.full),
        ("dead", zones.dead),
        ("read-only", zones.read_only),
        ("offline", zones.offline),
    ] {
        text.sample("zonal_files_zones", &[label("state", state)], count);
    }
    let about = "full zones by tenths of the live data from which on collecting them gains nothing; 10 is from there on";
    text.head(Kind::Gauge, "zonal_files_victims", about);
    for (tenth, count) in status.victims.iter().enumerate() {
        text.sample("zonal_files_victims", &[label("tenth", &tenth.to_string())], count);
    }
    text.one(
        Kind::Counter,
        "zonal_files_zone_resets_total",
        "resets since the file system was made",
        resets.total,
    );
    text.one(
        Kind::Gauge,
        "zonal_files_zone_resets_least",
        "resets of the zone with the fewest",
        resets.least,
    );
    text.one(Kind::Gauge, "zonal_files_zone_resets_most", "resets of the zone with the most", resets.most);
    let is_read_only = u8::from(status.read_only.is_some());
    text.one(Kind::Gauge, "zonal_files_read_only", "1 if nothing is changed any more", is_read_only);
}

fn running(text: &mut Text, of: &Activity) {
    for (name, about, value) in [
        ("written_bytes", "data written for users", of.written_bytes),
        ("moved_bytes", "data that the collector copied", of.moved_bytes),
        ("moved_late_bytes", "copied data that had been written or was gone meanwhile", of.moved_late_bytes),
        ("collected_zones", "zones that were collected", of.victims),
        ("collected_bytes", "live data in zones that were collected", of.victims_bytes),
        ("resets", "zones that were reset", of.resets),
        ("commits", "commits of metadata", of.commits),
        ("stalls", "writers that had to wait for space", of.stalls),
        ("failed_units", "units that failed, and went to another zone or were given up", of.failed_units),
        ("damaged_blocks", "blocks that the collector could not read or verify", of.damaged_blocks),
    ] {
        text.one(Kind::Counter, &format!("zonal_files_{name}_total"), about, value);
    }
    let seconds = |ns: u64| ns as f64 / 1e9;
    let stalled = seconds(of.stalled_ns);
    text.one(Kind::Counter, "zonal_files_stalled_seconds_total", "waits for space, together", stalled);
    for (name, about, value) in [
        ("stall_max_seconds", "the longest wait for space", seconds(of.stall_max_ns)),
        ("write_amplification", "data written for each byte of users", of.write_amplification),
        ("waiting", "writers that wait for space now", of.waiting.into()),
        ("collecting", "1 if zones have to be collected now", f64::from(u8::from(of.reason.is_some()))),
    ] {
        text.one(Kind::Gauge, &format!("zonal_files_{name}"), about, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_is_escaped_as_the_format_wants() {
        assert_eq!(label("device", "a\"b\\c\nd"), r#"device="a\"b\\c\nd""#);
    }
}
