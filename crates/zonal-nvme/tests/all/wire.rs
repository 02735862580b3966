//! The wire format: golden bytes of every structure, and that a value that is emitted is parsed as itself.

use proptest::prelude::*;
use std::fmt::Write;
use zerocopy::{FromBytes, IntoBytes};
use zonal_nvme::wire::{
    ChangedZoneList, CommonHeader, ConnectCommand, ConnectData, Cqe, DataHeader, DataPointer, DigestFlags,
    DiscoveryEntry, DiscoveryHeader, ErrorEntry, FirmwareLog, GetLogPage, HealthLog, IcReq, IcResp,
    IdentifyController, IdentifyNamespace, IdentifyZoned, IdentifyZonedController, IndependentNamespace,
    Layout, NamespaceDescriptor, PduKind, R2t, ReportHeader, ReportedZone, Sgl, Sqe, TermReq, ZoneReceive,
    ZoneSend, admin, data_flags, digest, io, parse_namespaces, term,
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
    Sqe {
        opcode,
        flags: 0x40,
        cid: 0x1234.into(),
        nsid: 1.into(),
        cdw2: [0.into(); 2],
        metadata: 0.into(),
        data: DataPointer::Transport { len: 4096 }.emit(),
        cdw: [0; 6].map(Into::into),
    }
}

/// Every structure, by its name, with values that differ in all fields.
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

fn controller() -> IdentifyController {
    IdentifyController {
        vendor: 0x1D1D,
        serial: "0123456789abcdef0123".into(),
        model: "Zonal".into(),
        firmware: "1.2.3".into(),
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
        subsystem: "nqn.2020-01.example:drive".into(),
        ioccsz: 516,
        iorcsz: 1,
        icdoff: 0,
        msdbd: 1,
        ofcs: 1,
    }
}

fn names() -> Vec<NamespaceDescriptor> {
    vec![
        NamespaceDescriptor::Eui64([1, 2, 3, 4, 5, 6, 7, 8]),
        NamespaceDescriptor::Nguid([0xA1; 16]),
        NamespaceDescriptor::Uuid([0xB2; 16]),
        NamespaceDescriptor::CommandSet(2),
    ]
}

fn pages() -> Vec<(&'static str, Vec<u8>)> {
    let namespace = IdentifyNamespace {
        nsze: 0x0123_4567_89AB,
        ncap: 0x0123_4567_89AC,
        nuse: 0x0123_4567_89AD,
        nlbaf: 1,
        flbas: 2,
        nmic: 1,
        dlfeat: 1,
        nsattr: 1,
        nguid: [0xC3; 16],
        metadata: 8,
        lbads: 12,
    };
    let independent = IndependentNamespace { nsfeat: 0x30, nmic: 1, nsattr: 1, nstat: 1 };
    let zoned = IdentifyZoned { zoc: 1, ozcs: 1, mar: 13, mor: u32::MAX, zsze: 0x8_0000, zdes: 1 };
    let error = ErrorEntry {
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
    };
    let health = HealthLog {
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
    };
    let entry = DiscoveryEntry {
        transport: 3,
        family: 1,
        kind: 2,
        requirements: 4,
        port: 1,
        cntlid: 0xFFFF,
        admin_entries: 32,
        flags: 1,
        service: "4420".into(),
        subsystem: "nqn.2020-01.example:drive".into(),
        address: "127.0.0.1".into(),
        security: 0,
    };
    let connect = ConnectData {
        host: [0xD4; 16],
        cntlid: 0xFFFF,
        subsystem: "nqn.2020-01.example:drive".into(),
        host_nqn: "nqn.2020-01.example:host".into(),
    };
    let zone =
        ReportedZone { kind: 2, state: 0x20, attributes: 4, capacity: 768, start: 1024, pointer: 1030 };
    vec![
        ("ConnectData", connect.emit().into_vec()),
        ("IdentifyController", controller().emit().into_vec()),
        ("IdentifyNamespace", namespace.emit().into_vec()),
        ("IndependentNamespace", independent.emit().into_vec()),
        ("IdentifyZoned", zoned.emit().into_vec()),
        ("IdentifyZonedController", IdentifyZonedController { zasl: 5 }.emit().into_vec()),
        ("NamespaceDescriptor", NamespaceDescriptor::emit_all(&names()).into_vec()),
        ("ErrorEntry", error.emit().into_vec()),
        ("HealthLog", health.emit().into_vec()),
        ("FirmwareLog", FirmwareLog { slot: 1, revision: "1.2.3".into() }.emit().into_vec()),
        ("DiscoveryHeader", DiscoveryHeader { generation: 1, records: 2, format: 0 }.emit().into_vec()),
        ("DiscoveryEntry", entry.emit().into_vec()),
        ("ChangedZoneList", ChangedZoneList::Zones(vec![1024, 5120]).emit().into_vec()),
        ("ReportHeader", ReportHeader { zones: 2 }.emit().into_vec()),
        ("ReportedZone", zone.emit().into_vec()),
    ]
}

/// Length, and the lines of 16 bytes that are not all zeroes.
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

/// Fields lie within their structure and do not overlap.
fn check_places<T: Layout>() {
    let mut places = T::PLACES.to_vec();
    places.sort_unstable();
    let mut end = 0;
    for (at, len) in places {
        assert!(at >= end, "{}: the field at {at} overlaps another", T::NAME);
        end = at + len;
    }
    assert!(end <= T::LEN, "{}", T::NAME);
}

/// Whatever parses is emitted so that it parses as the same, and all else is zero or a filler.
fn check_round_trip<T: Layout + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let Some(value) = T::parse(bytes) else { return };
    let mut emitted = vec![0; T::LEN];
    value.put(&mut emitted);
    assert_eq!(T::parse(&emitted).as_ref(), Some(&value));
    let mut again = vec![0; T::LEN];
    T::parse(&emitted).unwrap().put(&mut again);
    assert_eq!(again, emitted);
    let is_in_field = |n: usize| T::PLACES.iter().any(|(at, len)| (*at..at + len).contains(&n));
    assert!(emitted.iter().enumerate().all(|(n, byte)| is_in_field(n) || *byte == 0), "{}", T::NAME);
    assert_eq!(T::parse(&bytes[..T::LEN - 1]), None, "too short");
}

macro_rules! for_each_layout {
    ($check:ident $argument:tt: $($layout:ty)*) => { $($check::<$layout> $argument;)* };
}

#[test]
fn fields_of_structures_do_not_overlap() {
    for_each_layout!(check_places (): ConnectData IdentifyController IdentifyNamespace IndependentNamespace
        IdentifyZoned IdentifyZonedController ErrorEntry HealthLog FirmwareLog DiscoveryHeader DiscoveryEntry
        ReportHeader ReportedZone);
}

fn any_page() -> impl Strategy<Value = Vec<u8>> {
    // Texts are seldom found among bytes of all values.
    let byte = prop_oneof![3 => 0x20..0x7Fu8, 1 => Just(0), 1 => any::<u8>()];
    let plain = prop_oneof![8 => 0x20..0x7Fu8, 1 => Just(0)];
    prop_oneof![proptest::collection::vec(byte, 4096), proptest::collection::vec(plain, 4096)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn pages_that_parse_are_emitted_as_the_same(page in any_page()) {
        for_each_layout!(check_round_trip (&page): ConnectData IdentifyController IdentifyNamespace
            IndependentNamespace IdentifyZoned IdentifyZonedController ErrorEntry HealthLog FirmwareLog
            DiscoveryHeader DiscoveryEntry ReportHeader ReportedZone);
        parse_namespaces(&page);
        if let Some(list) = ChangedZoneList::parse(&page) {
            prop_assert_eq!(ChangedZoneList::parse(&list.emit().into_vec()), Some(list));
        }
        if let Some(names) = NamespaceDescriptor::parse_all(&page) {
            let emitted = NamespaceDescriptor::emit_all(&names).into_vec();
            prop_assert_eq!(NamespaceDescriptor::parse_all(&emitted), Some(names));
        }
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
    assert_eq!(IdentifyController::parse(&of("IdentifyController")), Some(controller()));
    assert_eq!(NamespaceDescriptor::parse_all(&of("NamespaceDescriptor")), Some(names()));
    let sqe = |name: &str| Sqe::read_from_bytes(&of(name)[..]).unwrap();
    assert_eq!(ConnectCommand::parse(&sqe("Sqe of Connect")), Some(connect()));
    assert_eq!(GetLogPage::parse(&sqe("Sqe of Get Log Page")), get_log());
    assert_eq!(ZoneReceive::parse(&sqe("Sqe of Zone Management Receive")), receive());
    assert_eq!(sqe("Sqe of Zone Append").lba(), 0x1_0000_0400);
    assert_eq!(sqe("Sqe of Connect").data.kind, Sgl::IN_CAPSULE);
}

#[test]
fn names_of_wrong_lengths_are_refused() {
    let page = |bytes: &[u8]| {
        let mut page = bytes.to_vec();
        page.resize(4096, 0);
        NamespaceDescriptor::parse_all(&page)
    };
    assert_eq!(page(&[]), Some(vec![]));
    assert_eq!(page(&[4, 2, 0, 0, 2, 0]), None, "a command set of two bytes");
    assert_eq!(page(&[3, 15, 0, 0]), None, "a UUID of 15");
    assert_eq!(page(&[9, 2, 0, 0, 1, 1, 4, 1, 0, 0, 2]), Some(vec![NamespaceDescriptor::CommandSet(2)]));
    assert_eq!(NamespaceDescriptor::parse_all(&[2, 16, 0, 0, 1]), None, "it does not end");
}
