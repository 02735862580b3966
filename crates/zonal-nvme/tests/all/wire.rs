//! Wire format: golden bytes of every structure, and a round trip of emitted values.

use proptest::prelude::*;
use std::fmt::Write;
use zerocopy::{FromBytes, FromZeros, IntoBytes};
use zonal_nvme::wire::{
    ChangedZoneList, CommonHeader, ConnectCommand, ConnectData, Cqe, DataHeader, DataPointer, DatasetRange,
    DigestFlags, DiscoveryEntry, DiscoveryHeader, ErrorEntry, FirmwareLog, GetLogPage, HealthLog, IcReq,
    IcResp, IdentifyController, IdentifyNamespace, IdentifyNvmController, IdentifyZoned,
    IdentifyZonedController, IndependentNamespace, PduKind, R2t, ReportHeader, ReportedZone, Sgl, Sqe,
    TermReq, ZoneReceive, ZoneSend, admin, data_flags, descriptor, digest, emit_descriptors, io, padded,
    parse_descriptors, term, text, zero_ended,
};

fn common(kind: PduKind, flags: u8, data_offset: u8, len: u32) -> CommonHeader {
    CommonHeader {
        kind: kind as u8,
        flags,
        header_len: kind.header_len() as u8,
        data_offset,
        len: len.into(),
    }
}

fn sqe(opcode: u8) -> Sqe {
    Sqe { cid: 0x1234.into(), ..Sqe::new(opcode, 1, [0; 6]).with_data(4096) }
}

/// Named samples of every structure, with a different value in each field.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let mut all = units();
    all.extend(commands());
    all.extend(pages());
    all
}

fn units() -> Vec<(&'static str, Vec<u8>)> {
    let (both, reserved) = (DigestFlags::HEADER | DigestFlags::DATA, [0; 112]);
    let request = IcReq {
        common: common(PduKind::IcReq, 0, 0, 128),
        format: 0.into(),
        alignment: 3,
        digests: both,
        r2t_max: 15.into(),
        reserved,
    };
    let response = IcResp {
        common: common(PduKind::IcResp, 0, 0, 128),
        format: 0.into(),
        alignment: 0,
        digests: DigestFlags::HEADER,
        data_max: 0x10_0000.into(),
        reserved,
    };
    let flags = data_flags::LAST | data_flags::SUCCESS | data_flags::HEADER_DIGEST;
    let data = DataHeader {
        common: common(PduKind::ControllerData, flags, 28, 28 + 4096),
        command: 0x1234.into(),
        transfer: 0.into(),
        offset: 0x2000.into(),
        len: 4096.into(),
        reserved: [0; 4],
    };
    let r2t = R2t {
        common: common(PduKind::R2t, 0, 0, 24),
        command: 0x1234.into(),
        transfer: 0x0056.into(),
        offset: 0.into(),
        len: 0x2_0000.into(),
        reserved: [0; 4],
    };
    let terminate = TermReq {
        common: common(PduKind::ControllerTerm, 0, 0, 48),
        error: term::DATA_RANGE.into(),
        field: 12.into(),
        reserved: [0; 10],
    };
    let end = Cqe {
        result: 0x0001_0203_0405_0607.into(),
        sq_head: 9.into(),
        sq: 0.into(),
        cid: 0x1234.into(),
        status: (0x41BC << 1).into(),
    };
    vec![
        ("IcReq", request.as_bytes().to_vec()),
        ("IcResp", response.as_bytes().to_vec()),
        ("DataHeader", data.as_bytes().to_vec()),
        ("R2t", r2t.as_bytes().to_vec()),
        ("TermReq", terminate.as_bytes().to_vec()),
        ("Cqe", end.as_bytes().to_vec()),
        // TCP 3.3.1.1: the digest of 32 zeroes is in RFC 3720, B.4.
        ("digest of 32 zeroes", digest(&[0; 32]).to_le_bytes().to_vec()),
    ]
}

fn connect() -> ConnectCommand {
    ConnectCommand { format: 0, qid: 3, entries: 128, has_flow_control: false, keep_alive: 5000 }
}

fn get_log() -> GetLogPage {
    GetLogPage { lid: 0x05, len: 0x4_0004, offset: 0x1_0000_0008, csi: 2, retains: true, nsid: u32::MAX }
}

fn receive() -> ZoneReceive {
    ZoneReceive { lba: 0x1_0000_0400, len: 4096, action: 0, option: 5, is_partial: true }
}

fn commands() -> Vec<(&'static str, Vec<u8>)> {
    let mut all = Vec::new();
    let mut add = |name, opcode: u8, emit: &dyn Fn(&mut Sqe)| {
        let mut sqe = sqe(opcode);
        emit(&mut sqe);
        all.push((name, sqe.as_bytes().to_vec()));
    };
    add("Sqe of Connect", 0, &|sqe| {
        connect().emit(sqe);
        sqe.data = DataPointer::InCapsule { offset: 0, len: 1024 }.emit();
    });
    add("Sqe of Get Log Page", admin::GET_LOG_PAGE, &|sqe| get_log().emit(sqe));
    let send = ZoneSend { lba: 0x400, action: ZoneSend::RESET, is_all: true };
    add("Sqe of Zone Management Send", 0, &|sqe| send.emit(sqe));
    add("Sqe of Zone Management Receive", 0, &|sqe| receive().emit(sqe));
    add("Sqe of Zone Append", io::ZONE_APPEND, &|sqe| sqe.set_lba(0x1_0000_0400));
    all
}

/// Structure with these fields, zero in all others.
macro_rules! page {
    ($name:ident { $($field:ident $([$n:literal] $(.$inner:ident)?)?: $value:expr),* $(,)? }) => {{
        let mut page = $name::new_zeroed();
        $(page.$field $([$n] $(.$inner)?)? = $value.into();)*
        (stringify!($name), page.as_bytes().to_vec())
    }};
}

const NAMES: [(u8, &[u8]); 4] = [
    (descriptor::EUI64, &[1, 2, 3, 4, 5, 6, 7, 8]),
    (descriptor::NGUID, &[0xA1; 16]),
    (descriptor::UUID, &[0xB2; 16]),
    (descriptor::COMMAND_SET, &[2]),
];

fn pages() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        page!(ConnectData {
            host: [0xD4; 16],
            cntlid: 0xFFFF,
            subsystem: zero_ended("nqn.2020-01.example:drive"),
            host_nqn: zero_ended("nqn.2020-01.example:host"),
        }),
        page!(IdentifyController {
            vendor: 0x1D1D,
            serial: padded("0123456789abcdef0123"),
            model: padded("Zonal"),
            firmware: padded("1.2.3"),
            cmic: 3,
            mdts: 8,
            cntlid: 0x0102,
            version: 0x0002_0100,
            oaes: 1 << 8 | 1 << 27,
            ctratt: 0x41,
            kind: 1,
            oacs: 0x0304,
            acl: 5,
            aerl: 6,
            frmw: 7,
            lpa: 9,
            elpe: 63,
            kas: 10,
            sqes: 0x66,
            cqes: 0x44,
            maxcmd: 128,
            nn: 2,
            oncs: 0x8C,
            vwc: 6,
            sgls: 0x10_0001,
            mnan: 4,
            subsystem: zero_ended("nqn.2020-01.example:drive"),
            ioccsz: 516,
            iorcsz: 1,
            icdoff: 0,
            msdbd: 1,
            ofcs: 1,
        }),
        page!(IdentifyNamespace {
            nsze: 0x0123_4567_89AB,
            ncap: 0x0123_4567_89AC,
            nuse: 0x0123_4567_89AD,
            nlbaf: 1,
            flbas: 2,
            nmic: 1,
            dlfeat: 1,
            nsattr: 1,
            nguid: [0xC3; 16],
            formats[0].metadata: 8,
            formats[0].lbads: 12,
        }),
        page!(IndependentNamespace { nsfeat: 0x30, nmic: 1, nsattr: 1, nstat: 1 }),
        page!(IdentifyZoned {
            zoc: 1,
            ozcs: 1,
            mar: 13,
            mor: u32::MAX,
            formats[0].zsze: 0x8_0000,
            formats[0].zdes: 1,
        }),
        page!(IdentifyZonedController { zasl: 5 }),
        page!(IdentifyNvmController { vsl: 3, wzsl: 4 }),
        ("NamespaceDescriptor", emit_descriptors(&NAMES)),
        page!(ErrorEntry {
            count: 7,
            sqid: 3,
            cid: 0x1234,
            status: 0x41BC << 1,
            location: 0xFFFF,
            lba: 0x400,
            nsid: 1,
            transport: 3,
            csi: 2,
            opcode: io::WRITE,
            version: 1,
        }),
        page!(HealthLog {
            critical: 8,
            temperature: 303,
            spare: 100,
            spare_min: 10,
            used: 1,
            units_read: 2,
            units_written: 3,
            reads: 4,
            writes: 5,
            power_cycles: 6,
            power_on_hours: 7,
            media_errors: 8,
            error_entries: 9,
        }),
        page!(FirmwareLog { slot: 1, revision: padded("1.2.3") }),
        page!(DiscoveryHeader { generation: 1, records: 2, format: 0 }),
        page!(DiscoveryEntry {
            transport: 3,
            family: 1,
            kind: 2,
            requirements: 4,
            port: 1,
            cntlid: 0xFFFF,
            admin_entries: 32,
            flags: 1,
            service: padded("4420"),
            subsystem: zero_ended("nqn.2020-01.example:drive"),
            address: padded("127.0.0.1"),
            security: 0,
        }),
        page!(ChangedZoneList { count: 2, starts[0]: 1024, starts[1]: 5120, }),
        page!(ReportHeader { zones: 2 }),
        page!(DatasetRange { attributes: 1, blocks: 0x200, lba: 0x1_0000_0400 }),
        page!(ReportedZone {
            kind: 2,
            state: 0x20,
            attributes: 4,
            capacity: 768,
            start: 1024,
            pointer: 1030,
        }),
    ]
}

/// Length, and hex lines of 16 bytes, except lines of zeroes.
fn dump(bytes: &[u8]) -> String {
    let mut text = format!("{} bytes\n", bytes.len());
    for (n, line) in bytes.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|byte| *byte != 0)) {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "  {:04x}: {}", 16 * n, hex.join(" ")).unwrap();
    }
    text
}

#[test]
fn structures_have_their_golden_bytes() {
    let mut now = String::new();
    for (name, bytes) in samples() {
        write!(now, "{name}: {}", dump(&bytes)).unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/wire.txt");
    if std::env::var_os("ZONAL_BLESS").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    for (now, golden) in now.lines().zip(golden.lines()) {
        assert_eq!(now, golden, "{path}");
    }
    assert_eq!(now.lines().count(), golden.lines().count(), "{path}");
}

#[test]
fn digest_is_that_of_rfc_3720() {
    assert_eq!(digest(&[0; 32]).to_le_bytes(), [0xAA, 0x36, 0x91, 0x8A]);
    assert_eq!(digest(&[0xFF; 32]).to_le_bytes(), [0x43, 0xAB, 0xA8, 0x62]);
}

fn any_page() -> impl Strategy<Value = Vec<u8>> {
    // Text is rare among uniformly random bytes.
    let byte = prop_oneof![3 => 0x20..0x7Fu8, 1 => Just(0), 1 => any::<u8>()];
    let plain = prop_oneof![8 => 0x20..0x7Fu8, 1 => Just(0)];
    prop_oneof![proptest::collection::vec(byte, 4096), proptest::collection::vec(plain, 4096)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn descriptors_that_parse_are_emitted_as_the_same(page in any_page()) {
        let names: Vec<_> = parse_descriptors(&page).collect();
        let emitted = emit_descriptors(&names);
        prop_assert_eq!(parse_descriptors(&emitted).collect::<Vec<_>>(), names);
    }

    #[test]
    fn commands_that_are_emitted_parse_as_the_same(bytes: [u8; 64]) {
        let sqe = Sqe::read_from_bytes(&bytes).unwrap();
        let mut blank = Sqe::read_from_bytes(&[0; 64]).unwrap();
        let log = GetLogPage::parse(&sqe);
        log.emit(&mut blank);
        prop_assert_eq!(GetLogPage::parse(&blank), log);
        let (send, receive) = (ZoneSend::parse(&sqe), ZoneReceive::parse(&sqe));
        let mut blank = Sqe::read_from_bytes(&[0; 64]).unwrap();
        send.emit(&mut blank);
        prop_assert_eq!(ZoneSend::parse(&blank), send);
        let mut blank = Sqe::read_from_bytes(&[0; 64]).unwrap();
        receive.emit(&mut blank);
        prop_assert_eq!(ZoneReceive::parse(&blank), receive);
        if let Some(pointer) = DataPointer::parse(&sqe.data) {
            prop_assert_eq!(DataPointer::parse(&pointer.emit()), Some(pointer));
        }
        if let Some(connect) = ConnectCommand::parse(&sqe) {
            let mut blank = Sqe::read_from_bytes(&[0; 64]).unwrap();
            connect.emit(&mut blank);
            prop_assert_eq!(ConnectCommand::parse(&blank), Some(connect));
        }
    }
}

#[test]
fn values_of_samples_are_parsed_again() {
    let of = |name: &str| samples().into_iter().find(|(other, _)| *other == name).unwrap().1;
    assert!(parse_descriptors(&of("NamespaceDescriptor")).eq(NAMES));
    let sqe = |name: &str| Sqe::read_from_bytes(&of(name)[..]).unwrap();
    assert_eq!(ConnectCommand::parse(&sqe("Sqe of Connect")), Some(connect()));
    assert_eq!(GetLogPage::parse(&sqe("Sqe of Get Log Page")), get_log());
    assert_eq!(ZoneReceive::parse(&sqe("Sqe of Zone Management Receive")), receive());
    assert_eq!(sqe("Sqe of Zone Append").lba(), 0x1_0000_0400);
    assert_eq!(sqe("Sqe of Connect").data.kind, Sgl::IN_CAPSULE);
}

#[test]
fn descriptors_end_with_an_empty_or_a_cut_one() {
    let parsed = |page: &'static [u8]| parse_descriptors(page).collect::<Vec<_>>();
    assert_eq!(parsed(&[]), []);
    assert_eq!(parsed(&[9, 2, 0, 0, 1, 1, 4, 1, 0, 0, 2]), [(9, &[1, 1][..]), (4, &[2])]);
    assert_eq!(parsed(&[4, 1, 0, 0, 2, 4, 0, 0, 0, 4, 1, 0, 0, 2]), [(4, &[2][..])], "an empty one");
    assert_eq!(parsed(&[4, 1, 0, 0, 2, 2, 16, 0, 0, 1]), [(4, &[2][..])], "it does not end");
}

#[test]
fn texts_are_filled_cut_and_checked() {
    assert_eq!((zero_ended("ab"), padded("ab")), (*b"ab\0\0", *b"ab  "));
    assert_eq!((zero_ended("abcde"), padded("abcde")), (*b"abcd", *b"abcd"));
    assert_eq!([&b"ab\0c"[..], b"abcd", b"\0\xFF"].map(text), [Some("ab"), Some("abcd"), Some("")]);
    assert_eq!(text(b"a\xFF\0"), None);
}
