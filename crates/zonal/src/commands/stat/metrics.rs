//! Values of `zonal stat` in the text format of Prometheus, version 0.0.4.

use super::{COUNTERS, Seen};
use prometheus::core::Collector;
use prometheus::{Counter, Gauge, GaugeVec, Opts, Registry, TextEncoder};
use serde_json::Value;
use zonal_fs::{Activity, Status};

/// Kind of a metric.
#[derive(Clone, Copy)]
enum MetricKind {
    Counter,
    Gauge,
}

/// Metrics of a device.
struct Metrics<'a> {
    registry: Registry,
    /// Label of all samples.
    device: &'a str,
}

pub(super) fn of(seen: &Seen) -> String {
    let metrics = Metrics { registry: Registry::new(), device: &seen.device };
    if let Some((_, counters)) = &seen.volume {
        for (name, about) in COUNTERS {
            let value = counters[name].as_f64().expect("a counter is a number");
            metrics.one(MetricKind::Counter, &format!("zonal_{name}_total"), about, value);
        }
    }
    if let Some(connections) = seen.connections.as_ref().and_then(Value::as_array) {
        metrics.one(
            MetricKind::Gauge,
            "zonal_connections",
            "connections of hosts, rings of virtual machines and queues of block devices",
            connections.len() as f64,
        );
        let in_flight: u64 = connections.iter().filter_map(|one| one["in_flight"].as_u64()).sum();
        let about = "commands in flight of hosts, virtual machines and this kernel";
        metrics.one(MetricKind::Gauge, "zonal_host_commands", about, in_flight as f64);
    }
    if let Some(status) = &seen.files {
        space(&metrics, status);
        status.activity.iter().for_each(|activity| running(&metrics, activity));
    }
    TextEncoder::new().encode_to_string(&metrics.registry.gather()).expect("a string takes all")
}

impl Metrics<'_> {
    fn options(&self, name: &str, about: &str) -> Opts {
        Opts::new(name, about).const_label("device", self.device)
    }

    fn register(&self, metric: impl Collector + 'static) {
        self.registry.register(Box::new(metric)).expect("each metric has a name of its own");
    }

    fn one(&self, kind: MetricKind, name: &str, about: &str, value: f64) {
        let options = self.options(name, about);
        match kind {
            MetricKind::Counter => {
                let counter = Counter::with_opts(options).expect("it has a valid name");
                counter.inc_by(value);
                self.register(counter);
            }
            MetricKind::Gauge => {
                let gauge = Gauge::with_opts(options).expect("it has a valid name");
                gauge.set(value);
                self.register(gauge);
            }
        }
    }

    /// Registers a gauge with a sample for each value of a label.
    fn each(&self, name: &str, about: &str, label: &str, samples: impl IntoIterator<Item = (String, f64)>) {
        let gauges = GaugeVec::new(self.options(name, about), &[label]).expect("it has a valid name");
        for (of, value) in samples {
            gauges.with_label_values(&[&of]).set(value);
        }
        self.register(gauges);
    }
}

fn space(metrics: &Metrics<'_>, status: &Status) {
    let Status { size, free, available, used, zones, resets, .. } = status;
    for (name, about, value) in [
        ("size", "bytes of data that files can have in total", size),
        ("free", "bytes that are free or can be freed", free),
        ("available", "bytes that can be written before garbage collection", available),
        ("used", "bytes of data in files", used),
    ] {
        metrics.one(MetricKind::Gauge, &format!("zonal_files_{name}_bytes"), about, *value as f64);
    }
    let states = [
        ("free", zones.free),
        ("open", zones.open),
        ("full", zones.full),
        ("dead", zones.dead),
        ("read-only", zones.read_only),
        ("offline", zones.offline),
    ];
    let counts = states.map(|(state, count)| (state.to_owned(), count as f64));
    metrics.each("zonal_files_zones", "data zones by state", "state", counts);
    let about =
        "full zones by tenths of the amount of live data from which collecting is useless; 10 is above that";
    let counts = status.victims.iter().enumerate().map(|(tenth, count)| (tenth.to_string(), *count as f64));
    metrics.each("zonal_files_victims", about, "tenth", counts);
    let about = "resets since the file system was made";
    metrics.one(MetricKind::Counter, "zonal_files_zone_resets_total", about, resets.total as f64);
    for (name, about, value) in [
        ("least", "resets of the zone with the fewest", resets.least),
        ("most", "resets of the zone with the most", resets.most),
    ] {
        metrics.one(MetricKind::Gauge, &format!("zonal_files_zone_resets_{name}"), about, value as f64);
    }
    let is_read_only = f64::from(u8::from(status.read_only.is_some()));
    metrics.one(
        MetricKind::Gauge,
        "zonal_files_read_only",
        "1 if the file system is read-only",
        is_read_only,
    );
}

fn running(metrics: &Metrics<'_>, of: &Activity) {
    for (name, about, value) in [
        ("written_bytes", "data written for users", of.written_bytes),
        ("moved_bytes", "data copied by garbage collection", of.moved_bytes),
        ("moved_late_bytes", "copied data that was overwritten or deleted meanwhile", of.moved_late_bytes),
        ("collected_zones", "zones collected", of.victims),
        ("collected_bytes", "live data in collected zones", of.victims_bytes),
        ("resets", "zones reset", of.resets),
        ("commits", "commits of metadata", of.commits),
        ("stalls", "writers that had to wait for space", of.stalls),
        ("failed_units", "failed units, written again to another zone or abandoned", of.failed_units),
        ("damaged_blocks", "blocks that garbage collection could not read or verify", of.damaged_blocks),
    ] {
        metrics.one(MetricKind::Counter, &format!("zonal_files_{name}_total"), about, value as f64);
    }
    let seconds = |ns: u64| ns as f64 / 1e9;
    let stalled = seconds(of.stalled_ns);
    metrics.one(
        MetricKind::Counter,
        "zonal_files_stalled_seconds_total",
        "total time of waits for space",
        stalled,
    );
    for (name, about, value) in [
        ("stall_max_seconds", "longest wait for space", seconds(of.stall_max_ns)),
        ("write_amplification", "bytes written per byte of users", of.write_amplification),
        ("waiting", "writers waiting for space", of.waiting as f64),
        ("collecting", "1 while garbage collection is necessary", f64::from(u8::from(of.reason.is_some()))),
    ] {
        metrics.one(MetricKind::Gauge, &format!("zonal_files_{name}"), about, value);
    }
}
