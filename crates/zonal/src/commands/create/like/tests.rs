//! The samples follow the `printf` formats of the programs, with values of drives.

use super::*;
use std::fmt::Write;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Disk with two conventional and six sequential zones of 256 MiB, in different conditions.
const BLKZONE: &str = "\
  start: 0x000000000, len 0x080000, cap 0x080000, wptr 0x000000 reset:0 non-seq:0, zcond: 0(nw) [type: 1(CONVENTIONAL)]
  start: 0x000080000, len 0x080000, cap 0x080000, wptr 0x000000 reset:0 non-seq:0, zcond: 0(nw) [type: 1(CONVENTIONAL)]
  start: 0x000100000, len 0x080000, cap 0x080000, wptr 0x000000 reset:0 non-seq:0, zcond: 1(em) [type: 2(SEQ_WRITE_REQUIRED)]
  start: 0x000180000, len 0x080000, cap 0x080000, wptr 0x000800 reset:0 non-seq:0, zcond: 2(oi) [type: 2(SEQ_WRITE_REQUIRED)]
  start: 0x000200000, len 0x080000, cap 0x080000, wptr 0x000000 reset:0 non-seq:0, zcond: 3(oe) [type: 2(SEQ_WRITE_REQUIRED)]
  start: 0x000280000, len 0x080000, cap 0x080000, wptr 0x07fff8 reset:0 non-seq:0, zcond: 4(cl) [type: 2(SEQ_WRITE_REQUIRED)]
  start: 0x000300000, len 0x080000, cap 0x080000, wptr 0x080000 reset:0 non-seq:0, zcond:14(fu) [type: 2(SEQ_WRITE_REQUIRED)]
  start: 0x000380000, len 0x080000, cap 0x080000, wptr 0xfffffffffffffff8 reset:0 non-seq:0, zcond:15(of) [type: 2(SEQ_WRITE_REQUIRED)]
";

/// Zones of 128 MiB with 98 MiB of capacity in blocks of 4 KiB, one in each state.
const NVME: &str = "\
nr_zones: 7
SLBA: 0          WP: 0x1000     Cap: 0x6200     State: 0x20 Type: 0x2  Attrs: 0    AttrsInfo: 0   
SLBA: 0x8000     WP: 0x8000     Cap: 0x6200     State: 0x10 Type: 0x2  Attrs: 0    AttrsInfo: 0   
SLBA: 0x10000    WP: 0x10001    Cap: 0x6200     State: 0x30 Type: 0x2  Attrs: 0    AttrsInfo: 0   
SLBA: 0x18000    WP: 0x18002    Cap: 0x6200     State: 0x40 Type: 0x2  Attrs: 0    AttrsInfo: 0   
SLBA: 0x20000    WP: 0xffffffffffffffff Cap: 0x6200     State: 0xd0 Type: 0x2  Attrs: 0    AttrsInfo: 0   
SLBA: 0x28000    WP: 0xffffffffffffffff Cap: 0x6200     State: 0xe0 Type: 0x2  Attrs: 0    AttrsInfo: 0   
SLBA: 0x30000    WP: 0x30000    Cap: 0x6200     State: 0xf0 Type: 0x2  Attrs: 0    AttrsInfo: 0   
";

/// Output of version 1, and of later ones with -v.
const NVME_NAMES: &str = "\
nr_zones: 3
SLBA: 0x0        WP: 0x10       Cap: 0x8000     State: IMP_OPENED   Type: SEQWRITE_REQ   Attrs: 0x0
SLBA: 0x8000     WP: 0x8000     Cap: 0x8000     State: EMPTY        Type: SEQWRITE_REQ  \n\
Attrs: Zone Descriptor Extension is Vaild
       Zone Finished by Controller
Extension Data:        0  1  2  3
0000: 53 4c 42 41 \"SLBA\"
..
SLBA: 0x10000    WP: 0x18000    Cap: 0x8000     State: FULL         Type: SEQWRITE_REQ   Attrs: 0x0
";

const NVME_JSON: &str = r#"{"nr_zones":2,"zone_list":[
  {"slba":0,"wp":2048,"cap":22528,"state":"CLOSED","type":"SEQWRITE_REQ","attrs":0,"attrs_info":0,"ext_data":"Not valid"},
  {"slba":32768,"wp":18446744073709551615,"cap":22528,"state":"FULL","type":"SEQWRITE_REQ","attrs":0}]}"#;

const SG: &str = "\
Report zones response:
  Same=2: zone type and length same apart from length in last descriptor

  Maximum LBA: 0x1bfff

  Reported zone starting LBA granularity: 0x0

 zone descriptor number: 0
   Zone type: conventional
   Zone condition: Not write pointer
   PUEP: 0
   NON_SEQ: 0
   RESET: 0
   Zone Length: 0x10000
   Zone start LBA: 0x0
   Write pointer LBA: -1
 zone descriptor number: 1
   Zone type: sequential write required
   Zone condition: Implicitly opened [0x2]
   PUEP: 0
   NON_SEQ: 0
   RESET: 0
   Zone Length: 0xc000
   Zone start LBA: 0x10000
   Write pointer LBA: 0x10010
";

const SG_JSON: &str = r#"{"utility_invoked":{"name":"sg_rep_zones"},"report_zones_response":{"same":1,"maximum_lba":{"i":131071,"hex":"1ffff"}},
 "zone_descriptors_list":[
  {"zone_type":{"i":2,"meaning":"sequential write required"},"zone_condition":4,"puep":0,"zone_length":65536,"zone_start_lba":0,"write_pointer_lba":16},
  {"zone_type":2,"zone_condition":14,"zone_length":{"i":65536,"hex":"10000"},"zone_start_lba":65536,"write_pointer_lba":-1}]}"#;

const ZBD: &str = "\
Device /dev/sda:
    Vendor ID: ATA HGST HSH721414AL
    Zone model: host-managed
    Capacity: 0.805 GB (1572864 512-bytes sectors)
    Logical blocks: 196608 blocks of 4096 B
    Physical blocks: 196608 blocks of 4096 B
    Zones: 3 zones of 256.0 MB
    Maximum number of open zones: 128
    Maximum number of active zones: no limit
Zone 00000: cnv, ofst 00000000000000, len 00000268435456, cap 00000268435456
Zone 00001: swr, ofst 00000268435456, len 00000268435456, cap 00000268435456, wp 00000268439552, cl, non_seq 0, reset 0
Zone 00002: swr, ofst 00000536870912, len 00000268435456, cap 00000268435456, wp 00000805306368, fu, non_seq 0, reset 0
";

const ZBD_CSV: &str = "\
zone num, type, ofst, len, cap, wp, cond, non_seq, reset
00000, 1, 00000000000000, 00000268435456, 00000268435456, 00000000000000, 0x0, 0, 0
00001, 2, 00000268435456, 00000268435456, 00000268435456, 00000268435456, 0x1, 0, 0
";

const SAMPLES: [&str; 8] = [BLKZONE, NVME, NVME_NAMES, NVME_JSON, SG, SG_JSON, ZBD, ZBD_CSV];

fn drive(text: &str) -> Drive {
    parse(text.as_bytes(), Some(4096)).unwrap()
}

fn error(text: &str) -> String {
    format!("{:#}", parse(text.as_bytes(), Some(4096)).unwrap_err())
}

fn at(condition: ZoneCondition, written: u32) -> ZoneState {
    ZoneState { condition, written }
}

/// Size, zone size, capacity and conventional zones.
fn shape(drive: &Drive) -> (u64, u64, u64, u32) {
    (drive.size, drive.zone_size, drive.zone_capacity, drive.conventional)
}

#[test]
fn blkzone_zones_have_types_conditions_and_pointers() {
    let drive = drive(BLKZONE);
    assert_eq!(shape(&drive), (2048 * MIB, 256 * MIB, 256 * MIB, 2));
    assert_eq!((drive.personality, drive.block), (Personality::Zbc, 4096));
    assert_eq!(
        drive.states,
        [
            ZoneState::CONVENTIONAL,
            ZoneState::CONVENTIONAL,
            ZoneState::EMPTY,
            at(ZoneCondition::ImpOpen, 0x800),
            at(ZoneCondition::ExpOpen, 0),
            at(ZoneCondition::Closed, 0x7fff8),
            ZoneState::full(0x80000),
            at(ZoneCondition::Offline, 0),
        ]
    );
}

#[test]
fn blkzone_of_before_capacities_means_the_size() {
    assert_eq!(drive(&BLKZONE.replace(", cap 0x080000", "")), drive(BLKZONE));
}

#[test]
fn blkzone_of_util_linux_2_41_leaves_out_pointers_without_meaning() {
    let newer = BLKZONE
        .replace("wptr 0x000000 reset:0 non-seq:0, zcond: 0", "wptr N/A reset:0 non-seq:0, zcond: 0")
        .replace("wptr 0x080000 reset", "wptr N/A reset")
        .replace("wptr 0xfffffffffffffff8", "wptr N/A");
    assert_eq!(newer.matches("N/A").count(), 4);
    assert_eq!(drive(&newer), drive(BLKZONE));
}

#[test]
fn blkzone_smaller_last_zone_is_kept() {
    let last = "  start: 0x000400000, len 0x007000, cap 0x007000, wptr 0x000008 reset:0 non-seq:0, zcond: 4(cl) [type: 2(SEQ_WRITE_REQUIRED)]\n";
    let drive = drive(&format!("{BLKZONE}{last}"));
    assert_eq!(drive.size, 2048 * MIB + 0x7000 * 512);
    assert_eq!(drive.states.last(), Some(&at(ZoneCondition::Closed, 8)));
}

#[test]
fn nvme_counts_in_logical_blocks() {
    let drive = drive(NVME);
    assert_eq!(shape(&drive), (7 * 128 * MIB, 128 * MIB, 98 * MIB, 0));
    assert_eq!(drive.personality, Personality::Zns);
    assert_eq!(
        drive.states,
        [
            at(ZoneCondition::ImpOpen, 0x8000),
            ZoneState::EMPTY,
            at(ZoneCondition::ExpOpen, 8),
            at(ZoneCondition::Closed, 16),
            // Without a valid write pointer.
            at(ZoneCondition::ReadOnly, 0x31000),
            ZoneState::full(0x31000),
            at(ZoneCondition::Offline, 0),
        ]
    );
    let small = parse(NVME.as_bytes(), Some(512)).unwrap();
    assert_eq!(shape(&small), (7 * 16 * MIB, 16 * MIB, 0x6200 * 512, 0));
}

#[test]
fn nvme_names_and_json_are_read_as_well() {
    let states = [at(ZoneCondition::ImpOpen, 128), ZoneState::EMPTY, ZoneState::full(0x40000)];
    assert_eq!(drive(NVME_NAMES).states, states);
    let json = drive(NVME_JSON);
    assert_eq!(shape(&json), (256 * MIB, 128 * MIB, 88 * MIB, 0));
    assert_eq!(json.states, [at(ZoneCondition::Closed, 0x4000), ZoneState::full(0x2c000)]);
}

#[test]
fn sg_text_and_json_are_read() {
    let text = drive(SG);
    assert_eq!(shape(&text), (448 * MIB, 256 * MIB, 192 * MIB, 1));
    assert_eq!(text.states, [ZoneState::CONVENTIONAL, at(ZoneCondition::ImpOpen, 128)]);
    let json = drive(SG_JSON);
    assert_eq!(shape(&json), (512 * MIB, 256 * MIB, 256 * MIB, 0));
    assert_eq!(json.states, [at(ZoneCondition::Closed, 128), ZoneState::full(0x80000)]);
    assert_eq!((text.personality, json.personality), (Personality::Zbc, Personality::Zbc));
}

#[test]
fn zbd_text_has_block_and_limits_with_i() {
    let drive = parse(ZBD.as_bytes(), None).unwrap();
    assert_eq!(shape(&drive), (768 * MIB, 256 * MIB, 256 * MIB, 1));
    assert_eq!((drive.block, drive.open_max, drive.active_max), (4096, Some(128), Some(0)));
    let states = [ZoneState::CONVENTIONAL, at(ZoneCondition::Closed, 8), ZoneState::full(0x80000)];
    assert_eq!(drive.states, states);
    assert!(format!("{:#}", parse(ZBD.as_bytes(), Some(512)).unwrap_err()).contains("4096"));
}

#[test]
fn zbd_csv_columns_follow_the_header() {
    let csv = drive(ZBD_CSV);
    assert_eq!(csv.states, [ZoneState::CONVENTIONAL, ZoneState::EMPTY]);
    let old = ZBD_CSV.replace(" cap,", "").replace("00000268435456, 00000268435456, 0", "00000268435456, 0");
    assert_eq!(drive(&old), csv);
}

#[test]
fn logical_block_that_is_not_known_is_asked_for() {
    for sample in SAMPLES.into_iter().filter(|&sample| sample != ZBD) {
        let error = format!("{:#}", parse(sample.as_bytes(), None).unwrap_err());
        assert!(error.contains("--blocksize"), "{error}");
    }
}

#[test]
fn contradictions_are_refused_with_their_line() {
    let cases = [
        // Write pointer outside of its zone, at its end, and unaligned.
        (BLKZONE, "wptr 0x000800", "wptr 0x080008", "line 4: the write pointer is outside"),
        (BLKZONE, "wptr 0x000800", "wptr 0x080000", "line 4: the write pointer is at the end"),
        (BLKZONE, "wptr 0x000800", "wptr 0x000801", "line 4: the write pointer is not a multiple"),
        (
            BLKZONE,
            "wptr 0x000000 reset:0 non-seq:0, zcond: 1",
            "wptr 0x000008 reset:0 non-seq:0, zcond: 1",
            "line 3:",
        ),
        // Addresses.
        (BLKZONE, "start: 0x000180000", "start: 0x000180008", "line 4: gap before"),
        (BLKZONE, "start: 0x000180000", "start: 0x00017fff8", "line 4: the zone overlaps the previous one"),
        (BLKZONE, "start: 0x000000000", "start: 0x000000008", "line 1: the report does not begin"),
        (
            BLKZONE,
            "start: 0x000180000, len 0x080000",
            "start: 0x000180000, len 0x040000",
            "line 4: the zone has 128 MiB",
        ),
        (
            BLKZONE,
            "start: 0x000180000, len 0x080000",
            "start: 0x000180000, len 0x000000",
            "line 4: the zone has 0 B",
        ),
        (BLKZONE, "start: 0x000180000", "start: 0xfffffffffffffff8", "line 4: "),
        (BLKZONE, "start: 0x000180000", "start: 0x1000000000000000000", "line 4: "),
        // Types and conditions.
        (BLKZONE, "zcond: 1(em)", "zcond: 7(x7)", "line 3: unknown zone condition 0x7"),
        (
            BLKZONE,
            "zcond: 1(em) [type: 2",
            "zcond: 1(em) [type: 3",
            "line 3: a zone of type \"sequential write pref",
        ),
        (BLKZONE, "zcond: 4(cl) [type: 2", "zcond: 0(nw) [type: 1", "line 6: a conventional zone behind"),
        (BLKZONE, "zcond: 0(nw)", "zcond:13(ro)", "line 1: a conventional zone that is READONLY"),
        (BLKZONE, "zcond: 1(em)", "zcond: 0(nw)", "line 3: a sequential zone without"),
        (
            BLKZONE,
            "cap 0x080000, wptr 0x000800",
            "cap 0x070000, wptr 0x000800",
            "line 4: the zone has a capacity",
        ),
        (BLKZONE, "[type: 2(SEQ_WRITE_REQUIRED)]", "", "line 3: not a complete line"),
        (NVME, "State: 0x30", "State: 0x50", "line 4: an inactive zone"),
        (NVME, "WP: 0x10001", "WP: 0x16200", "line 4: the write pointer is at the end"),
        (
            BLKZONE,
            "start: 0x000000000,",
            "Found 9 zones from 0x0\n  start: 0x000000000,",
            "lists 8 of 9 zones",
        ),
        (NVME, "nr_zones: 7", "nr_zones: 8", "lists 7 of 8 zones"),
        (NVME, "SLBA: 0x8000 ", "SLBA: 0      ", "line 3: the zone is not behind"),
        (NVME_NAMES, "State: EMPTY", "State: Unknown State", "line 3: unknown zone state"),
        (NVME_JSON, "\"slba\":32768", "\"lba\":32768", "zone 1: no number slba"),
        (SG, "Maximum LBA: 0x1bfff", "Maximum LBA: 0x2bfff", "make the report of the whole drive"),
        (SG, "Zone type: sequential write required", "Zone type: gap", "line 18: a gap"),
        (SG, "   Zone Length: 0xc000\n", "", "line 18: the description of the zone is incomplete"),
        (ZBD, "1572864 512-bytes", "2097152 512-bytes", "make the report of the whole drive"),
        (ZBD, ", reset 0\nZone 00002", "\nZone 00002", "line 11: no value of reset"),
        (ZBD, "Zone 00001: swr", "Zone 00001: unknown type 0x5", "line 11: a gap"),
        (ZBD_CSV, "0x1, 0, 0", "0x1, 0", "line 3: 8 values for 9 columns"),
        (ZBD_CSV, "00000268435456, 0x1", "268435457, 0x1", "line 3: the zone is empty"),
    ];
    for (sample, from, to, expected) in cases {
        let text = sample.replacen(from, to, 1);
        assert_ne!(text, sample, "{from}");
        let error = error(&text);
        assert!(error.contains(expected), "{from} -> {to}: {error}");
    }
}

#[test]
fn other_texts_are_refused() {
    for text in [
        "",
        "\n\n",
        "NAME   SIZE\nsda 14T\n",
        "{}",
        "{\"zone_list\":3}",
        "{\"zone_list\":[]}",
        "{",
        "nr_zones: 0\n",
    ] {
        assert!(!error(text).is_empty(), "{text:?}");
    }
    assert_eq!(format!("{:#}", parse(b"nr_zones: 1\n\xff\n", None).unwrap_err()), "line 2: not text");
    let one = "SLBA: 0 WP: 0 Cap: 0x6200 State: 0x10 Type: 0x2\n";
    assert!(error(one).contains("from one zone"));
}

#[test]
fn cut_or_changed_text_is_a_drive_or_an_error() {
    for sample in SAMPLES {
        for end in 0..sample.len() {
            let _ = parse(&sample.as_bytes()[..end], Some(4096));
        }
        for at in 0..sample.len() {
            for byte in [b'0', b'f', b' ', b'-', b'\n', b'{', 0xff] {
                let mut bytes = sample.as_bytes().to_vec();
                bytes[at] = byte;
                let _ = parse(&bytes, Some(4096));
            }
        }
    }
}

#[test]
fn line_that_ends_early_is_an_error() {
    for sample in [BLKZONE, NVME, SG, ZBD] {
        let last = sample.trim_end().rfind('\n').unwrap();
        for end in [last + 12, last + 20] {
            assert!(!error(&sample[..end]).is_empty());
        }
    }
}

/// Zones of the largest disks on the market, in an unoptimized build.
#[test]
fn report_of_a_disk_of_30_tb_takes_less_than_a_second() {
    let zones = 111_758u64;
    let mut text = String::new();
    for zone in 0..zones {
        let (start, kind) = (
            zone << 19,
            if zone < 1000 { "0(nw) [type: 1(CONVENTIONAL)" } else { "4(cl) [type: 2(SEQ_WRITE_REQUIRED)" },
        );
        writeln!(text, "  start: 0x{start:09x}, len 0x080000, cap 0x080000, wptr 0x000008 reset:0 non-seq:0, zcond: {kind}]").unwrap();
    }
    let began = Instant::now();
    let drive = drive(&text);
    let took = began.elapsed();
    assert_eq!((drive.size, drive.conventional), (zones * 256 * MIB, 1000));
    assert!(took < Duration::from_secs(1), "{took:?}");
}
