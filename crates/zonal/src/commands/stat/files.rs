//! File system part of `zonal stat`.

use super::WIDTH;
use crate::commands::files::{drive_to_read, waiters};
use crate::exit::{Exit, Failure, OrExit};
use crate::text::shown;
use crate::value::human;
use std::io::Write;
use std::path::PathBuf;
use zonal_fs::{Activity, MountOptions, OpenZoneStatus, Scrub, Status, make};

/// Maximum number of open zones with a line each; `--json` has all of them.
const SHOWN_MAX: usize = 16;

/// Status of the file system on a device that no process has open. It is not changed.
pub(super) fn look(device: &str, metadata: Option<PathBuf>) -> Result<Status, Failure> {
    let drive = drive_to_read(device)?;
    let fs = make::look(&drive, &waiters(), metadata, MountOptions::default()).or_exit(Exit::Device)?;
    // The file system was just opened for reading, so these fields mean nothing.
    let mut status = fs.status();
    (status.read_only, status.activity) = (None, None);
    Ok(status)
}

/// Prints the status for people.
pub(super) fn print(status: &Status, out: &mut dyn Write) -> Result<(), Failure> {
    for (name, value) in lines(status) {
        writeln!(out, "{name:<WIDTH$} {value}")?;
    }
    Ok(())
}

fn lines(status: &Status) -> Vec<(&'static str, String)> {
    let Status { uuid, label, size, free, available, used, zones, resets, .. } = status;
    let [size, free, available, used] = [size, free, available, used].map(|bytes| human(*bytes));
    let counts = format!(
        "{}: {} free, {} open of at most {}, {} full, {} dead, {} read-only, {} offline",
        zones.total,
        zones.free,
        zones.open,
        zones.open_max,
        zones.full,
        zones.dead,
        zones.read_only,
        zones.offline
    );
    let most = resets.most_zone.map_or(String::new(), |zone| format!(", most of zone {zone}"));
    let mut lines = vec![
        (
            "file system",
            if label.is_empty() { uuid.clone() } else { format!("{uuid} {}", shown(label.as_bytes())) },
        ),
        ("space", format!("{used} used, {free} free, of {size}; {available} before garbage collection")),
        ("zones", counts),
        ("live tenths", victims(status)),
        ("zone resets", format!("{}; {} to {} a zone{most}", resets.total, resets.least, resets.most)),
    ];
    for (name, bytes, what) in [
        ("to move", status.read_only_bytes, "in zones that became read-only"),
        ("lost", status.offline_bytes, "in zones that are offline"),
    ] {
        if bytes > 0 {
            lines.push((name, format!("{} {what}", human(bytes))));
        }
    }
    lines.extend(status.open_zones.iter().take(SHOWN_MAX).map(|zone| ("open zone", open_zone(zone))));
    if let Some(more) = status.open_zones.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
        lines.push(("open zones", format!("and {more} more")));
    }
    lines.extend(status.scrub.iter().map(|kept| ("scrub", scrub(kept))));
    lines.extend(status.read_only.iter().map(|why| ("read-only", why.clone())));
    lines.extend(status.activity.iter().flat_map(activity));
    lines
}

/// Describes the last scrub.
fn scrub(kept: &Scrub) -> String {
    let Scrub { bytes, damaged, ended, .. } = kept;
    let seen = format!("{} verified, {damaged} pieces damaged", human(*bytes));
    match ended {
        Some(_) => seen,
        None => format!("{seen}, not finished"),
    }
}

/// Full zones by tenths of the amount of live data from which collecting a zone is useless.
fn victims(status: &Status) -> String {
    let (whole, tenths) = status.victims.split_last().expect("it has a fixed length");
    let tenths: Vec<String> = tenths.iter().map(u32::to_string).collect();
    format!("{} zones, and {whole} not worth collecting", tenths.join(" "))
}

fn open_zone(zone: &OpenZoneStatus) -> String {
    let [written, capacity, used] = [zone.written, zone.capacity, zone.used].map(human);
    let OpenZoneStatus { zone, owner, lifetime, .. } = zone;
    format!("{zone}: of the {owner}, lifetime {lifetime}, {written} of {capacity} written, {used} live")
}

fn activity(of: &Activity) -> Vec<(&'static str, String)> {
    let [written, moved, late, live] =
        [of.written_bytes, of.moved_bytes, of.moved_late_bytes, of.victims_bytes].map(human);
    let ms = |ns: u64| ns as f64 / 1e6;
    let reason = |reason: &Option<String>| reason.clone().unwrap_or_else(|| "none".to_owned());
    vec![
        ("written", format!("{written}, write amplification {:.3}", of.write_amplification)),
        ("collected", format!("{} zones with {live}; {moved} moved, {late} of it in vain", of.victims)),
        ("reason now", reason(&of.reason)),
        ("last reason", reason(&of.last_reason)),
        (
            "waits",
            format!(
                "{}, {:.3} ms in all, {:.3} ms the longest; {} now",
                of.stalls,
                ms(of.stalled_ns),
                ms(of.stall_max_ns),
                of.waiting
            ),
        ),
        ("commits", format!("{}, and {} resets", of.commits, of.resets)),
        ("failed units", of.failed_units.to_string()),
        ("damaged blocks", of.damaged_blocks.to_string()),
    ]
}
