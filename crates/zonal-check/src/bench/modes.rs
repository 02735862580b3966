//! One thread that writes several zones in the modes that order them, compared with one write per
//! zone.

use super::Effort;
use super::measure::{Case, interleave, time};
use super::path::{SECTORS, Writer, null};
use super::report::{Bound, Report};
use zonal_core::{Sector, ZoneIndex};
use zonal_io::emulated::{CompleteMode, EmulatedOptions};
use zonal_io::volume::{Request, WriteMode};

/// Zones that are written in turn.
const ZONES: u64 = 4;

/// Writes 4 KiB `count` times, each to the next zone, at queue depth `depth`.
fn round(writer: &mut Writer, count: u64, depth: u64) -> f64 {
    let ns = time(count, || {
        for i in 0..count {
            writer.wait_below(depth);
            let start = writer.volume.info().geometry.start_of(ZoneIndex((i % ZONES) as u32));
            let buf = writer.payload(4096);
            let sector = Sector(start.0 + i / ZONES * u64::from(SECTORS));
            writer.submit(Request::write(sector, SECTORS, buf));
        }
        writer.wait_below(1);
    });
    writer.reset_all();
    ns
}

/// Four zones in turn: inline at queue depth 1, where every write in mode `qd1` changes the zone,
/// and polled at queue depth 16.
pub(super) fn in_turn(effort: Effort, report: &mut Report) {
    let count = effort.operations;
    let inline = EmulatedOptions::default().with_size(64 << 36).with_zone_size(1 << 36);
    let polled = inline.clone().with_complete(CompleteMode::Poll);
    let modes = [WriteMode::PerZone, WriteMode::Qd1, WriteMode::Pipelined, WriteMode::ZoneLock];
    for (what, options, depth) in [("in line, depth 1", inline, 1), ("polled, depth 16", polled, 16)] {
        let mut writers = modes.map(|mode| {
            let preserves_write_order = mode == WriteMode::Pipelined;
            Writer::new(null(options.clone().with_preserves_write_order(preserves_write_order)), mode, false)
        });
        let [per_zone, qd1, pipelined, zone_lock] = &mut writers;
        let mut cases = [
            Case::new("per-zone", || round(per_zone, count, depth)),
            Case::new("qd1", || round(qd1, count, depth)),
            Case::new("pipelined", || round(pipelined, count, depth)),
            Case::new("zone-lock", || round(zone_lock, count / 4, depth)),
        ];
        let samples = interleave(effort.rounds.min(9), &mut cases);
        let [per_zone, qd1, pipelined, zone_lock] = &samples[..] else { unreachable!("four cases") };
        let name = |mode: &str| format!("4 zones in turn, {mode}, {what}");
        report.add(&name("per-zone"), "", per_zone, "ns", Bound::None);
        report.add(&name("qd1"), "", qd1, "ns", Bound::None);
        let over = qd1.against(per_zone, |q, p| (q - p).max(0.01));
        report.add("  the token's cost", "per-zone", &over, "ns", Bound::AtMost(200.0));
        report.add(&name("pipelined"), "", pipelined, "ns", Bound::None);
        report.add(&name("zone-lock"), "", zone_lock, "ns", Bound::None);
    }
}
