//! Text and JSON of the structures that are found.

use crate::text::shown;
use crate::value;
use serde_json::{Value, json};
use zonal_core::ZoneDescriptor;
use zonal_fs::BLOCK_BYTES;
use zonal_fs::dump::{Inspected, MetadataLocation, Row};
use zonal_fs::format::{Anchor, Extent, Header, Metadata, Superblock};
use zonal_fs::scan::{ScanItem, UnitState, written};
use zonal_fs::superblocks::Candidate;

/// Text for people, and an object for programs.
pub(super) struct Said {
    pub(super) text: String,
    pub(super) object: Value,
}

fn said(text: impl Into<String>, object: Value) -> Said {
    Said { text: text.into(), object }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(super) fn superblock(candidate: &Candidate) -> Said {
    let Candidate { zone, block, found } = candidate;
    let at = format!("superblock at zone {zone} block {block}");
    let place = json!({ "zone": zone.0, "block": block });
    let copy = match found {
        Ok(copy) => copy,
        Err(error) => {
            let damaged = error.to_string();
            let mut object = json!({ "superblock": { "damaged": damaged } });
            merge(&mut object["superblock"], place);
            return said(format!("{at}: damaged: {damaged}"), object);
        }
    };
    let (words, mut object) = of_superblock(&copy.superblock);
    let Anchor { copy: number, number: reached, batch, homes, pieces, piece_blocks, zones } = &copy.anchor;
    let listed: Vec<u32> = zones.iter().map(|zone| zone.0).collect();
    merge(
        &mut object,
        json!({ "copy": number, "number": reached, "batch": batch, "homes": homes.map(|zone| zone.0), "pieces": pieces,
            "piece_blocks": piece_blocks, "metadata_zones": listed }),
    );
    merge(&mut object, place);
    let mut lines = format!("{at}: copy {number}: {words}");
    lines += &format!("\n  store: number {reached}, batch {batch}");
    if *pieces > 0 {
        lines += &format!(", {pieces} pieces of {piece_blocks} blocks");
    }
    if !listed.is_empty() {
        lines += &format!(", zones {}", listed.iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
    }
    if homes[0] != homes[1] {
        lines += &format!("; homes: zones {} and {}", homes[0], homes[1]);
    }
    said(lines, json!({ "superblock": object }))
}

fn of_superblock(superblock: &Superblock) -> (String, Value) {
    let Superblock { uuid, sectors, zone_sectors, capacity_sectors, unit_blocks, first_zone, .. } =
        superblock;
    let Superblock { metadata, is_summed, reserved_blocks, label, .. } = superblock;
    let (place, metadata) = match metadata {
        Metadata::Conventional => ("in conventional zones", "conventional zones"),
        Metadata::Logged => ("in zones", "log"),
        Metadata::Beside => ("in a file beside the drive", "beside"),
    };
    let sums = if *is_summed { "checksums" } else { "no checksums" };
    let (size, zone, capacity) =
        (value::human(sectors * 512), value::human(zone_sectors * 512), value::human(capacity_sectors * 512));
    let unit = value::human(u64::from(unit_blocks * BLOCK_BYTES));
    let reserved = value::human(reserved_blocks * u64::from(BLOCK_BYTES));
    let words = format!(
        "{} {label:?}: {size} in zones of {zone} ({capacity}), data from zone {first_zone} on in appends of {unit}, {sums}; \
         metadata {place}; {reserved} reserved",
        hex(uuid)
    );
    let object = json!({
        "uuid": hex(uuid),
        "label": label,
        "bytes": sectors * 512,
        "zone_bytes": zone_sectors * 512,
        "capacity_bytes": capacity_sectors * 512,
        "unit_blocks": unit_blocks,
        "first_zone": first_zone,
        "metadata": metadata,
        "checksums": is_summed,
        "reserved_blocks": reserved_blocks,
    });
    (words, object)
}

pub(super) fn whereabouts(place: &MetadataLocation) -> Vec<Said> {
    let segments = match place {
        MetadataLocation::Beside => {
            return vec![said("metadata: in a file beside the drive", json!({ "metadata": "beside" }))];
        }
        MetadataLocation::OnDrive(segments) => segments,
    };
    let mut all = vec![said(
        format!("metadata: {} segments", segments.len()),
        json!({ "metadata": { "segments": segments.len() } }),
    )];
    for (segment, begun) in segments {
        let (at, place) = (format!("  {segment}"), json!({ "segment": segment.to_string() }));
        let Some(begun) = begun else {
            let empty = json!({ "segment": segment.to_string(), "empty": true });
            all.push(said(format!("{at}: empty"), empty));
            continue;
        };
        all.push(kept(&at, place, begun, |begun| {
            let bytes = value::human(begun.len);
            let words = format!(
                "beginning {}, begun after batch {}, when the database had {bytes}",
                begun.beginning, begun.batch
            );
            (words, json!({ "beginning": begun.beginning, "batch": begun.batch, "bytes": begun.len }))
        }));
    }
    all
}

/// Describes the contents of a place, or the damage there.
fn kept<T>(
    at: &str,
    mut place: Value,
    kept: &Inspected<T>,
    describe: impl Fn(&T) -> (String, Value),
) -> Said {
    let (words, object) = match kept {
        Inspected::Sound(found) => describe(found),
        Inspected::Damaged(damage) => {
            (format!("damaged: {damage}"), json!({ "damaged": damage.to_string() }))
        }
        Inspected::Unreadable(error) => {
            (format!("cannot be read: {error}"), json!({ "damaged": error.to_string() }))
        }
    };
    merge(&mut place, object);
    said(format!("{at}: {words}"), place)
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

pub(super) fn numbers(numbers: &[(String, u64)]) -> Said {
    let words: Vec<String> =
        numbers.iter().map(|(name, number)| format!("{} {number}", shown(name.as_bytes()))).collect();
    let object: serde_json::Map<String, Value> =
        numbers.iter().map(|(name, number)| (name.clone(), (*number).into())).collect();
    said(format!("numbers: {}", words.join(", ")), json!({ "numbers": object }))
}

pub(super) fn kinds(kinds: &[(&str, u64)]) -> Said {
    let words: Vec<String> = kinds.iter().map(|(name, rows)| format!("{name} {rows}")).collect();
    let object: serde_json::Map<String, Value> =
        kinds.iter().map(|(name, rows)| ((*name).to_owned(), (*rows).into())).collect();
    said(format!("rows: {}", words.join(", ")), json!({ "rows": object }))
}

pub(super) fn row(kind: &str, row: &Row) -> Said {
    let (words, object) = of_row(row);
    let mut all = json!({ "row": kind });
    merge(&mut all, object);
    said(format!("{kind:<9} {words}"), all)
}

fn of_row(row: &Row) -> (String, Value) {
    match row {
        Row::File(ino, file) => {
            let kind = format!("{:?}", file.kind).to_lowercase();
            let (mode, position) = (format!("{:04o}", file.mode), file.position.0);
            let words = format!(
                "{ino}: {kind} {mode}, {} links, {} bytes in {} blocks, user {} group {}, lifetime {}, opening {}, \
                 generation {}, position {position} in {}",
                file.links,
                file.size,
                file.blocks,
                file.uid,
                file.gid,
                file.lifetime,
                file.born,
                file.generation,
                file.parent
            );
            let object = json!({
                "file": ino, "kind": kind, "mode": mode, "links": file.links, "bytes": file.size, "blocks": file.blocks,
                "uid": file.uid,
                "gid": file.gid, "rdev": file.rdev, "lifetime": file.lifetime, "born": file.born,
                "generation": file.generation, "atime_ns": file.atime, "mtime_ns": file.mtime, "ctime_ns": file.ctime,
                "btime_ns": file.btime, "next_position": file.next_position.0, "parent": file.parent, "position": position,
            });
            (words, object)
        }
        Row::Name(parent, name, entry) => {
            let (name, kind) = (text(name), format!("{:?}", entry.kind).to_lowercase());
            let position = entry.position.0;
            let object = json!({
                "parent": parent, "name": name, "file": entry.ino, "kind": kind, "position": position,
            });
            (format!("{name:?} in {parent}, position {position}: {kind} {}", entry.ino), object)
        }
        Row::Position(directory, position, name) => {
            let (position, name) = (position.0, text(name));
            let object = json!({ "parent": directory, "position": position, "name": name });
            (format!("{position} in {directory}: {name:?}"), object)
        }
        Row::Extent(ino, block, extent) => of_extent(*ino, *block, extent),
        Row::Run(zone, block, run) => {
            let words: Vec<String> =
                run.pieces.iter().map(|p| format!("{} {}+{}", p.ino, p.block, p.blocks)).collect();
            let pieces: Vec<Value> = run
                .pieces
                .iter()
                .map(|p| json!({ "file": p.ino, "block": p.block, "blocks": p.blocks }))
                .collect();
            let object =
                json!({ "zone": zone, "at": block, "unit_blocks": run.unit_blocks, "pieces": pieces });
            let unit_blocks = run.unit_blocks;
            (format!("zone {zone} block {block}, units of {unit_blocks}: files {}", words.join(", ")), object)
        }
        Row::Zone(zone, account) => (
            format!("{zone}: {} live blocks, {} resets", account.used, account.resets),
            json!({ "zone": zone, "live_blocks": account.used, "resets": account.resets }),
        ),
        Row::Attribute(ino, name, bytes) => (
            format!("{:?} of {ino}: {} bytes", text(name), bytes.len()),
            json!({ "file": ino, "name": text(name), "value": hex(bytes) }),
        ),
        Row::Target(ino, target) => {
            (format!("{ino}: {:?}", text(target)), json!({ "file": ino, "target": text(target) }))
        }
        Row::Orphan(ino) => (format!("{ino}"), json!({ "file": ino })),
        Row::Tail(ino, block, bytes) => (
            format!("block {block} of {ino}: {} bytes", bytes.len()),
            json!({ "file": ino, "block": block, "value": hex(bytes) }),
        ),
        Row::Counter(name, number) => {
            (format!("{}: {number}", shown(name.as_bytes())), json!({ "name": name, "number": number }))
        }
        Row::Superblock(superblock) => {
            let (words, object) = of_superblock(superblock);
            (format!("superblock: {words}"), json!({ "name": "superblock", "superblock": object }))
        }
        Row::Damaged(key, bytes) => (
            format!("key {}, {} bytes", hex(key), bytes.len()),
            json!({ "key": hex(key), "value": hex(bytes) }),
        ),
    }
}

fn of_extent(ino: u64, block: u64, extent: &Extent) -> (String, Value) {
    let Extent { zone, unit, unit_blocks, skip, blocks } = *extent;
    let words =
        format!("{ino} {block}+{blocks}: zone {zone} block {unit}, units of {unit_blocks}, {skip} before it");
    let object = json!({
        "file": ino, "block": block, "blocks": blocks, "zone": zone, "unit": unit, "unit_blocks": unit_blocks,
        "skip": skip,
    });
    (words, object)
}

pub(super) fn zone(zone: &ZoneDescriptor, is_data: bool) -> Said {
    let (condition, blocks) = (format!("{:?}", zone.condition), written(zone));
    let what = if is_data { "" } else { "; not for data" };
    said(
        format!("zone {}: {condition}, {blocks} blocks written{what}", zone.zone),
        json!({ "zone": zone.zone.0, "condition": condition, "written_blocks": blocks, "data": is_data }),
    )
}

pub(super) fn found(found: &ScanItem, live: Option<&[u32]>) -> Said {
    match found {
        ScanItem::Garbage { block, blocks, why } => said(
            format!("block {block}: {blocks} blocks of garbage: {why}"),
            json!({ "garbage": block, "blocks": blocks, "why": why.to_string() }),
        ),
        ScanItem::Unreadable { block, blocks } => said(
            format!("block {block}: {blocks} blocks that cannot be read"),
            json!({ "unreadable": block, "blocks": blocks }),
        ),
        ScanItem::Unit { block, header, state, .. } => unit(*block, header, *state, live),
    }
}

fn unit(block: u32, header: &Header, state: UnitState, live: Option<&[u32]>) -> Said {
    let blocks = header.blocks();
    let (words, state) = match state {
        UnitState::Sound => (String::new(), json!("whole")),
        UnitState::Damaged(wrong) => {
            (format!(", {wrong} of them damaged"), json!({ "damaged_blocks": wrong }))
        }
        UnitState::Torn(there) => (format!(", torn after {there}"), json!({ "torn_after": there })),
    };
    let Header { sequence, since, begun, .. } = header;
    let mut text_of =
        format!("block {block}: unit {sequence} since {since}, zone begun {begun}, {blocks} blocks{words}");
    let mut records = Vec::new();
    for (n, (record, path)) in header.records.iter().zip(&header.paths).enumerate() {
        let live = live.and_then(|live| live.get(n));
        let left = live.map_or("unknown".to_owned(), |live| format!("{live} live"));
        let path = text(path);
        text_of += &format!(
            "\n  file {} of opening {}, {}+{}: number {}, {left}; {} bytes at {path:?}",
            record.ino, record.born, record.block, record.blocks, record.number, record.size
        );
        records.push(json!({
            "file": record.ino, "born": record.born, "block": record.block, "blocks": record.blocks,
            "number": record.number, "bytes": record.size, "path": path, "live_blocks": live,
        }));
    }
    let object = json!({
        "unit": block, "sequence": sequence, "since": since, "zone_begun": begun, "blocks": blocks, "state": state,
        "checksums": !header.sums.is_empty(), "records": records,
    });
    said(text_of, object)
}
