//! Traces of each format: the parsed records, and arbitrary bytes, which yield records or an error
//! with its location.

use proptest::prelude::*;
use std::fs;
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use zonal_bench::replay::trace::{
    Format, Record, Trace, TraceError, TraceOp, TraceOptions, TracePlace, fuzz_trace,
};
use zonal_core::{Nanos, Sector, Sectors};

fn corpus(kind: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/trace").join(kind);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 5, "the corpus is not where it was");
    files
}

fn accepted(name: &str, options: &TraceOptions) -> (Trace, Vec<Record>) {
    let path = corpus("accept").into_iter().find(|path| path.ends_with(name)).unwrap();
    let mut trace = Trace::open(&path, options).unwrap();
    let records = trace.by_ref().collect::<Result<Vec<_>, _>>().unwrap_or_else(|e| panic!("{e}"));
    (trace, records)
}

fn of_bytes(bytes: &[u8], options: &TraceOptions) -> Result<Vec<Record>, TraceError> {
    Trace::new(Box::new(Cursor::new(bytes.to_vec())), "t", options)?.collect()
}

fn record(micros: u64, op: TraceOp, sector: u64, sectors: u64, place: TracePlace) -> Record {
    let (sector, sectors) = (Sector(sector), Sectors(sectors));
    Record { at: Nanos(micros * 1000), op, fua: false, sector, sectors, place }
}

#[test]
fn vscsi_of_both_versions_is_read_as_the_same_requests() {
    for (name, bytes) in [("v1.vscsi", 32), ("v2.vscsi", 40)] {
        let (trace, records) = accepted(name, &TraceOptions::default());
        let at = |n: u64| TracePlace::Byte(n * bytes);
        let expected = [
            record(0, TraceOp::Write, 63, 8, at(0)),
            record(200, TraceOp::Read, 63, 1, at(1)),
            record(400, TraceOp::Flush, 0, 0, at(3)),
            record(1000, TraceOp::Write, 1 << 32, 16, at(4)),
        ];
        assert_eq!(records, expected, "{name}");
        // An inquiry, and a read of length zero.
        assert_eq!((trace.format(), trace.skipped()), (Format::Vscsi, 2), "{name}");
    }
}

#[test]
fn blkparse_arrivals_are_the_records() {
    let (trace, records) = accepted("blkparse.txt", &TraceOptions::default());
    let expected = [
        record(0, TraceOp::Write, 223_490, 8, TracePlace::Line(2)),
        record(500, TraceOp::Read, 4096, 64, TracePlace::Line(5)),
        record(1000, TraceOp::Flush, 0, 0, TracePlace::Line(7)),
        Record { fua: true, ..record(1000, TraceOp::Write, 223_498, 16, TracePlace::Line(7)) },
        record(2000, TraceOp::Discard, 524_288, 2048, TracePlace::Line(9)),
        record(3000, TraceOp::Flush, 0, 0, TracePlace::Line(11)),
    ];
    assert_eq!(records, expected);
    assert_eq!((trace.format(), trace.skipped()), (Format::Blkparse, 6));
}

#[test]
fn blkparse_event_asked_for_is_the_record() {
    let options = TraceOptions { event: Some('D'), ..TraceOptions::default() };
    let (_, records) = accepted("blkparse.txt", &options);
    assert_eq!(records, [record(0, TraceOp::Write, 223_490, 8, TracePlace::Line(4))]);
}

#[test]
fn blkparse_of_a_zoned_drive_has_its_zone_operations() {
    use TraceOp::*;
    let (_, records) = accepted("blkparse-zoned.txt", &TraceOptions::default());
    let ops: Vec<TraceOp> = records.iter().map(|record| record.op).collect();
    assert_eq!(ops, [Write, Write, Open, Append, Finish, Reset, Write, Read, Close, ResetAll]);
}

#[test]
fn backward_msr_timestamp_is_clamped_to_the_previous_one() {
    let (trace, records) = accepted("msr.csv", &TraceOptions::default());
    let at = |n: u64| Nanos((n - 128_166_372_003_061_629) * 100);
    let times: Vec<Nanos> = records.iter().map(|record| record.at).collect();
    let second = at(128_166_372_016_382_155);
    assert_eq!(times, [Nanos(0), second, second, at(128_166_372_026_382_245)]);
    let places: Vec<(u64, u64)> = records.iter().map(|r| (r.sector.0 * 512, r.sectors.0 * 512)).collect();
    let expected =
        [(7_014_609_920, 24_576), (1_317_441_536, 8192), (1_317_449_728, 4096), (2_436_440_064, 512)];
    assert_eq!(places, expected);
    assert_eq!((trace.format(), trace.backward()), (Format::Msr, 1));
}

#[test]
fn msr_with_a_heading_and_without_response_times_is_read() {
    let (_, records) = accepted("msr-heading.csv", &TraceOptions::default());
    let expected = [
        record(0, TraceOp::Write, 0, 8, TracePlace::Line(2)),
        record(1, TraceOp::Read, 0, 8, TracePlace::Line(3)),
    ];
    assert_eq!(records, expected);
}

#[test]
fn iolog_version_2_has_waits_and_version_3_timestamps() {
    let (_, two) = accepted("iolog2.log", &TraceOptions::default());
    let expected = [
        record(0, TraceOp::Write, 0, 8, TracePlace::Line(4)),
        record(1500, TraceOp::Read, 0, 8, TracePlace::Line(6)),
        record(2000, TraceOp::Flush, 0, 0, TracePlace::Line(8)),
        record(2000, TraceOp::Discard, 0, 2048, TracePlace::Line(9)),
    ];
    assert_eq!(two, expected);
    let (_, three) = accepted("iolog3.log", &TraceOptions::default());
    let expected = [
        record(0, TraceOp::Write, 8, 16, TracePlace::Line(4)),
        record(1503, TraceOp::Read, 8, 8, TracePlace::Line(5)),
        record(1505, TraceOp::Flush, 0, 0, TracePlace::Line(6)),
    ];
    assert_eq!(three, expected);
}

#[test]
fn only_one_device_of_several_is_read_where_it_is_named() {
    let bytes = b"fio version 2 iolog\nsda write 0 4096\nsdb write 4096 4096\nsda read 0 4096\n";
    let error = of_bytes(bytes, &TraceOptions::default()).unwrap_err().to_string();
    assert_eq!(
        error,
        "t: line 3: a record of sdb after those of sda: a replay has one device; select it with --only"
    );
    let only = |name: &str| TraceOptions { only: Some(name.to_owned()), ..TraceOptions::default() };
    assert_eq!(
        of_bytes(bytes, &only("sdb")).unwrap(),
        [record(0, TraceOp::Write, 8, 8, TracePlace::Line(3))]
    );
    assert_eq!(of_bytes(bytes, &only("sda")).unwrap().len(), 2);
}

#[test]
fn refused_traces_name_the_place() {
    let places = [
        ("binary", "not a trace"),
        ("blkparse-cut", "line 2: the line ends before the process"),
        ("blkparse-foreign", "line 2: \"hello\" is not a device"),
        ("blkparse-kind", "line 1: \"X\" is not a type"),
        ("blkparse-sector", "line 1: \"x\" is not a valid first sector"),
        ("blkparse-time", "line 1: \"now\" is not a time"),
        ("empty", "the trace is empty"),
        ("iolog-action", "line 2: \"scrub\" is not an action"),
        ("iolog-files", "line 3: a record of sdb"),
        ("iolog-odd", "line 2: an offset of 100 bytes"),
        ("iolog-time", "line 2: \"sda\" is not a valid time"),
        ("iolog-version", "line 1: \"fio version 9 iolog\""),
        ("iolog-words", "line 2: not a file"),
        ("msr-columns", "line 2: 5 columns"),
        ("msr-disks", "line 2: a record of h.1 after those of h.0"),
        ("msr-number", "line 2: \"-1\" is not a valid offset"),
        ("msr-type", "line 1: \"Erase\" is not a type"),
        ("text", "not a trace"),
        ("vscsi-age", "byte 64: the time is over 580 years"),
        ("vscsi-cut", "byte 160: the trace ends after 27 of 32 bytes"),
        ("vscsi-end", "byte 64: the request ends beyond"),
        ("vscsi-length", "byte 64: a length of 513 bytes"),
        ("vscsi-version", "byte 64: a record of version 3 among those of version 1"),
    ];
    let files = corpus("refuse");
    assert_eq!(files.len(), places.len(), "each file has its line here");
    for (file, (name, what)) in files.iter().zip(places) {
        assert!(file.ends_with(name), "{}", file.display());
        let read = Trace::open(file, &TraceOptions::default())
            .and_then(|trace| trace.collect::<Result<Vec<_>, _>>());
        let error = read.expect_err(name).to_string();
        assert!(error.contains(&format!("{name}: {what}")), "{error}");
    }
}

#[test]
fn line_without_an_end_is_refused_before_it_fills_the_memory() {
    let endless = BufReader::new(io::repeat(b'1').take(1 << 40));
    let options = TraceOptions { format: Some(Format::Msr), ..TraceOptions::default() };
    let mut trace = Trace::new(Box::new(endless), "t", &options).unwrap();
    let error = trace.next().unwrap().unwrap_err().to_string();
    assert_eq!(error, "t: line 1: a line of more than 65536 bytes");
    assert!(trace.next().is_none());
}

#[test]
fn cut_and_flipped_traces_are_records_or_an_error() {
    for file in corpus("accept").into_iter().chain(corpus("refuse")) {
        let bytes = fs::read(file).unwrap();
        for cut in 0..bytes.len() {
            fuzz_trace(&bytes[..cut]);
            let mut flipped = bytes.clone();
            flipped[cut] ^= 1 << (cut % 8);
            fuzz_trace(&flipped);
        }
        fuzz_trace(&bytes);
    }
}

/// A request for a trace writer: microseconds since the last one, true for a read, sector, sectors.
type Written = (u32, bool, u32, u16);

fn written() -> impl Strategy<Value = Vec<Written>> {
    prop::collection::vec((any::<u32>(), any::<bool>(), any::<u32>(), 1..=u16::MAX), 1..50)
}

/// Expected records for such requests, with the positions of a format.
fn expected(rows: &[Written], place: impl Fn(u64) -> TracePlace) -> Vec<Record> {
    let mut micros = 0;
    let mut records = Vec::new();
    for (n, &(wait, is_read, sector, sectors)) in rows.iter().enumerate() {
        micros += if n == 0 { 0 } else { u64::from(wait) };
        let op = if is_read { TraceOp::Read } else { TraceOp::Write };
        records.push(record(micros, op, sector.into(), sectors.into(), place(n as u64)));
    }
    records
}

/// Writes `rows` in a format, each with its time in microseconds.
fn write(rows: &[Written], mut one: impl FnMut(u64, &Written) -> Vec<u8>) -> Vec<u8> {
    let mut micros = 0;
    let mut bytes = Vec::new();
    for row in rows {
        micros += u64::from(row.0);
        bytes.extend(one(micros, row));
    }
    bytes
}

fn vscsi(version: u16, micros: u64, &(_, is_read, sector, sectors): &Written) -> Vec<u8> {
    let command = if is_read { 0x28u16 } else { 0x2A }.to_le_bytes();
    let version = (version << 8).to_le_bytes();
    let (one, bytes) = (1u32.to_le_bytes(), (u32::from(sectors) * 512).to_le_bytes());
    let (block, time) = (u64::from(sector).to_le_bytes(), micros.to_le_bytes());
    match version {
        [_, 1] => [&one[..], &bytes, &one, &command, &version, &block, &time].concat(),
        _ => [&command[..], &version, &one, &bytes, &one, &block, &time, &time].concat(),
    }
}

proptest! {
    #[test]
    fn any_bytes_are_records_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzz_trace(&bytes);
    }

    #[test]
    fn any_words_are_records_or_an_error(words in "(fio version [23] iolog\n)?([0-9]{1,3}[, ]|sda |write |Q |W |\\+ |[.]|\n){0,60}") {
        fuzz_trace(words.as_bytes());
    }

    #[test]
    fn written_requests_are_read_back(rows in written()) {
        let options = TraceOptions::default();
        let line = |n| TracePlace::Line(n + 1);
        for version in [1u16, 2] {
            let bytes = write(&rows, |micros, row| vscsi(version, micros, row));
            let of = expected(&rows, |n| TracePlace::Byte(n * if version == 1 { 32 } else { 40 }));
            prop_assert_eq!(of_bytes(&bytes, &options).unwrap(), of);
        }
        let name = |is_read| if is_read { "Read" } else { "Write" };
        let bytes = write(&rows, |micros, &(_, r, at, n)| {
            format!("{},h,0,{},{},{},1\n", micros * 10, name(r), u64::from(at) * 512, u64::from(n) * 512).into_bytes()
        });
        prop_assert_eq!(of_bytes(&bytes, &options).unwrap(), expected(&rows, line));
        let bytes = write(&rows, |micros, &(_, r, at, n)| {
            let (s, us) = (micros / 1_000_000, micros % 1_000_000);
            format!("8,0 1 1 {s}.{us:06}000 1 Q {} {at} + {n} [x y]\n", &name(r)[..1]).into_bytes()
        });
        prop_assert_eq!(of_bytes(&bytes, &options).unwrap(), expected(&rows, line));
        let mut bytes = b"fio version 3 iolog\n".to_vec();
        bytes.extend(write(&rows, |micros, &(_, r, at, n)| {
            let (at, n) = (u64::from(at) * 512, u64::from(n) * 512);
            format!("{micros} d {} {at} {n}\n", name(r).to_lowercase()).into_bytes()
        }));
        prop_assert_eq!(of_bytes(&bytes, &options).unwrap(), expected(&rows, |n| line(n + 1)));
    }
}
