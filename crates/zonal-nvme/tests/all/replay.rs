//! Replays a recorded session of a Linux host with the kernel's own target against this one;
//! `tests/data/README.md` describes the recording. Each response must have the same status, data
//! length and fields, except for the differences listed here.

use crate::host::ask::{namespaces, read};
use crate::host::{Digests, Direct, End, NQN, Queue, target};
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};
use zonal_nvme::subsystem::DISCOVERY_NQN;
use zonal_nvme::wire::{
    ConnectData, Cqe, DataHeader, DataPointer, DiscoveryEntry, DiscoveryHeader, GetLogPage,
    IdentifyController, IdentifyNamespace, IdentifyZoned, IdentifyZonedController, IndependentNamespace,
    PduKind, ReportHeader, ReportedZone, Sqe, admin, descriptor, fabrics, io, parse_descriptors, text,
    zero_ended,
};

/// Drive exported by the recorded target.
const DRIVE: &str =
    "ram:size=512M,zone_size=4M,blocksize=4096,zone_max_open=8,zone_max_active=8,zone_append_max_sectors=128";

/// Largest in-capsule data (Base 5.1.13.2.1, IOCCSZ). The recorded target accepted 16 KiB.
const IN_CAPSULE: u32 = 8192;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Host,
    Target,
    Closed,
}

struct Record {
    connection: usize,
    side: Side,
    unit: Vec<u8>,
}

fn session() -> Vec<Record> {
    let mut bytes = &include_bytes!("../data/linux-session.bin")[..];
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let (len, kept) = (number(2), number(6));
        let mut unit = bytes[10..10 + kept].to_vec();
        unit.resize(len, 0);
        let side = [Side::Host, Side::Target, Side::Closed][usize::from(bytes[1])];
        records.push(Record { connection: bytes[0].into(), side, unit });
        bytes = &bytes[10 + kept..];
    }
    records
}

/// Unanswered command of the recorded host.
struct Open {
    /// Command identifier in the replay.
    cid: u16,
    sqe: Sqe,
    /// Data from the recorded target, except for reads.
    data: Vec<u8>,
    data_len: u32,
}

#[derive(Default)]
struct Replay {
    queues: BTreeMap<usize, Queue>,
    open: BTreeMap<(usize, u16), Open>,
    /// Names of the differences observed.
    seen: BTreeSet<&'static str>,
    controllers: BTreeMap<usize, u16>,
    answers: usize,
}

impl Replay {
    fn host_sends(&mut self, target: &std::sync::Arc<zonal_nvme::subsystem::Target>, record: &Record) {
        let unit = &record.unit;
        if unit[0] == PduKind::IcReq as u8 {
            let queue = Queue::open_over(Direct::new(target), Digests::default());
            self.queues.insert(record.connection, queue);
            return;
        }
        assert_eq!(unit[0], PduKind::Command as u8);
        let (mut sqe, _) = Sqe::read_from_prefix(&unit[8..]).unwrap();
        let theirs = sqe.cid.get();
        let mut payload = unit[72..].to_vec();
        match DataPointer::parse(&sqe.data) {
            Some(DataPointer::InCapsule { len, .. }) if payload.is_empty() => {
                // A write with a payload that is not in the recording.
                payload = vec![record.connection as u8; len as usize];
                if len > IN_CAPSULE {
                    sqe.data = DataPointer::Transport { len }.emit();
                }
            }
            _ => {}
        }
        if (sqe.opcode, sqe.nsid.get() as u8) == (fabrics::OPCODE, fabrics::CONNECT) {
            payload = self.connects(record.connection, &payload);
        }
        let queue = self.queues.get_mut(&record.connection).unwrap();
        let cid = queue.submit(sqe, &payload);
        self.open.insert((record.connection, theirs), Open { cid, sqe, data: Vec::new(), data_len: 0 });
    }

    /// Connect data with the names and numbers of this target.
    fn connects(&self, connection: usize, recorded: &[u8]) -> Vec<u8> {
        let mut data: ConnectData = read(recorded);
        if text(&data.subsystem) != Some(DISCOVERY_NQN) {
            data.subsystem = zero_ended(NQN);
        }
        if data.cntlid != 0xFFFF {
            data.cntlid = self.controllers[&(connection - 1)].into();
        }
        data.as_bytes().to_vec()
    }

    fn target_sends(&mut self, record: &Record) {
        let unit = &record.unit;
        let kind = PduKind::of(unit[0]).unwrap();
        match kind {
            PduKind::IcResp => {}
            PduKind::ControllerData => {
                let (header, _) = DataHeader::read_from_prefix(unit).unwrap();
                let open = self.open.get_mut(&(record.connection, header.command.get())).unwrap();
                open.data.extend_from_slice(&unit[24..]);
                open.data_len += header.len.get();
            }
            PduKind::Response => {
                let (cqe, _) = Cqe::read_from_prefix(&unit[8..]).unwrap();
                let Some(open) = self.open.remove(&(record.connection, cqe.cid.get())) else {
                    // The kernel ends event requests with an internal error when it frees a
                    // controller.
                    assert!(!self.queues.contains_key(&record.connection) && cqe.status.get() >> 1 == 0x4006);
                    return;
                };
                self.answered(record.connection, &open, &cqe);
            }
            kind => panic!("{kind:?}"),
        }
    }

    fn answered(&mut self, connection: usize, open: &Open, theirs: &Cqe) {
        let queue = self.queues.get_mut(&connection).unwrap();
        let ours = queue.wait(open.cid);
        self.answers += 1;
        let theirs =
            End { status: theirs.status.get() >> 1, result: theirs.result.get(), data: open.data.clone() };
        if (open.sqe.opcode, open.sqe.nsid.get() as u8) == (fabrics::OPCODE, fabrics::CONNECT) {
            self.controllers.insert(connection, ours.result as u16);
            assert_eq!((ours.status, theirs.status), (0, 0));
            return;
        }
        if let Some(difference) = intended(&open.sqe, &ours, &theirs) {
            return self.differs(difference);
        }
        let what = format!("{:02x} {:x?}", open.sqe.opcode, open.sqe.cdw);
        assert_eq!(ours.status, theirs.status, "{what}");
        assert_eq!(ours.data.len(), open.data_len as usize, "{what}");
        if let Some(difference) = different_result(&open.sqe, &ours, &theirs) {
            return self.differs(difference);
        }
        assert_eq!(ours.result, theirs.result, "{what}");
        if !theirs.data.is_empty() {
            compare_pages(&open.sqe, &ours.data, &theirs.data);
        }
    }

    fn differs(&mut self, difference: &'static str) {
        self.seen.insert(difference);
    }
}

/// Reason for a difference in status, if intended.
fn intended(sqe: &Sqe, ours: &End, theirs: &End) -> Option<&'static str> {
    match (sqe.opcode, ours.status, theirs.status) {
        // Internal error with the More bit: details in the error log.
        (io::WRITE, 0x41BC, 0x6006) => Some("writes not at the pointer have the status of the standard"),
        (admin::SET_FEATURES, 0x4002, 0) if sqe.dword(10) as u8 == 0x0B => {
            Some("events that the controller does not have are not enabled")
        }
        (admin::GET_LOG_PAGE, 0x4109, 0) if GetLogPage::parse(sqe).lid == 0x0C => {
            Some("there is no asymmetric access, nor its log")
        }
        _ => None,
    }
}

/// Reason for a difference in the result, if intended.
fn different_result(sqe: &Sqe, ours: &End, theirs: &End) -> Option<&'static str> {
    const CAP: u32 = 0;
    const CSTS: u32 = 0x1C;
    let is_property = sqe.opcode == fabrics::OPCODE && sqe.nsid.get() as u8 == fabrics::PROPERTY_GET;
    match sqe.dword(11) {
        CAP if is_property => {
            assert_eq!((theirs.result & 0xFFFF, ours.result & 0xFFFF), (1023, 127));
            assert_eq!(ours.result >> 37 & 0xFF, theirs.result >> 37 & 0xFF, "command sets");
            Some("queues of 128 entries, and another time to be ready")
        }
        CSTS if is_property && theirs.result == 8 => {
            assert_eq!(ours.result, 9);
            Some("a controller that is shut down stays enabled")
        }
        _ => None,
    }
}

/// Compares pages field by field where both targets should agree.
fn compare_pages(sqe: &Sqe, ours: &[u8], theirs: &[u8]) {
    fn both<T: FromBytes>(ours: &[u8], theirs: &[u8]) -> (T, T) {
        (read(ours), read(theirs))
    }
    match (sqe.opcode, sqe.dword(10) as u8, (sqe.dword(11) >> 24) as u8) {
        (admin::IDENTIFY, 1, _) => compare_controllers(both(ours, theirs)),
        (admin::IDENTIFY, 0, _) => {
            let (ours, theirs) = both::<IdentifyNamespace>(ours, theirs);
            assert_eq!((ours.nsze, ours.ncap, ours.nuse), (theirs.nsze, theirs.ncap, theirs.nuse));
            assert_eq!((ours.nlbaf, ours.flbas, ours.formats[0]), (0, 0, theirs.formats[0]));
            assert_eq!(ours.formats[0].metadata, 0);
            assert_eq!((ours.nmic, ours.nsattr), (theirs.nmic, theirs.nsattr));
        }
        (admin::IDENTIFY, 2, _) => assert_eq!(namespaces(ours), namespaces(theirs)),
        (admin::IDENTIFY, 3, _) => {
            let is_zoned = |page| parse_descriptors(page).any(|name| name == (descriptor::COMMAND_SET, &[2]));
            assert!(is_zoned(ours) && is_zoned(theirs));
        }
        (admin::IDENTIFY, 5, 2) => {
            let (ours, mut theirs) = both::<IdentifyZoned>(ours, theirs);
            // Reads may cross zones here.
            theirs.ozcs = 1.into();
            assert_eq!(ours, theirs);
        }
        (admin::IDENTIFY, 6, 2) => {
            let (ours, theirs) = both::<IdentifyZonedController>(ours, theirs);
            assert_eq!(ours, theirs);
        }
        (admin::IDENTIFY, 8, _) => {
            let (ours, theirs) = both::<IndependentNamespace>(ours, theirs);
            assert_eq!((ours.nsfeat, ours.nmic), (theirs.nsfeat, theirs.nmic));
            assert_eq!((ours.nsattr, ours.nstat), (theirs.nsattr, theirs.nstat));
        }
        // NVM command set limits; this target has none.
        (admin::IDENTIFY, 5 | 6, 0) => {}
        (admin::GET_LOG_PAGE, 0x05, _) => compare_effects(ours, theirs, sqe.dword(14) >> 24 == 2),
        (admin::GET_LOG_PAGE, 0x70, _) => compare_discovery(&GetLogPage::parse(sqe), ours, theirs),
        (admin::GET_LOG_PAGE, 0x02, _) => {}
        (io::ZONE_MANAGEMENT_RECEIVE, ..) => {
            assert_eq!(both::<ReportHeader>(ours, theirs).0, both::<ReportHeader>(ours, theirs).1);
            for (ours, theirs) in ours[64..].chunks_exact(64).zip(theirs[64..].chunks_exact(64)) {
                let (ours, theirs) = both::<ReportedZone>(ours, theirs);
                assert_eq!(ours, theirs);
            }
        }
        (io::READ, ..) => {}
        other => panic!("{other:x?} is not compared"),
    }
}

fn compare_controllers((ours, theirs): (IdentifyController, IdentifyController)) {
    assert_eq!((ours.kind, ours.version), (theirs.kind, theirs.version));
    assert_eq!((ours.sgls, ours.icdoff), (theirs.sgls, theirs.icdoff));
    const IO: u8 = 1;
    if ours.kind != IO {
        return;
    }
    assert_eq!((ours.ctratt, ours.kas, ours.frmw), (theirs.ctratt, theirs.kas, theirs.frmw));
    assert_eq!((ours.acl, ours.aerl, ours.msdbd), (theirs.acl, theirs.aerl, theirs.msdbd));
    assert_eq!(ours.iorcsz, theirs.iorcsz);
    assert_eq!((ours.sqes, ours.cqes), (theirs.sqes, theirs.cqes));
    // Bit 3 is asymmetric namespace access.
    assert_eq!(ours.cmic, theirs.cmic & !8);
    // Write Zeroes and Dataset Management; bit 5 is reservations, bit 7 Verify.
    assert_eq!(ours.oncs.get() & 1 << 3, theirs.oncs.get() & 1 << 3);
}

fn compare_effects(ours: &[u8], theirs: &[u8], is_zoned: bool) {
    let of = |page: &[u8], at: usize| read::<U32>(&page[4 * at..]).get();
    for opcode in 0..256 {
        assert_eq!(of(ours, opcode), of(theirs, opcode), "admin {opcode:02x}");
        let (ours, theirs) = (of(ours, 256 + opcode), of(theirs, 256 + opcode));
        match opcode as u8 {
            // Reservations.
            0x0D | 0x0E | 0x11 | 0x15 => assert_eq!((ours, theirs), (0, 1)),
            io::VERIFY => assert_eq!((ours, theirs), (1, 0)),
            // It changes the data read later.
            io::DATASET_MANAGEMENT => assert_eq!((ours, theirs), (3, 1)),
            _ => assert_eq!(ours, theirs, "{opcode:02x}, zoned: {is_zoned}"),
        }
    }
}

fn compare_discovery(log: &GetLogPage, ours: &[u8], theirs: &[u8]) {
    if log.len < 1024 {
        // First part of the header.
        assert_eq!(ours[8..], theirs[8..]);
        return;
    }
    assert_eq!(log.offset % 1024, 0);
    let entries = |page: &[u8]| page.chunks_exact(1024).map(read::<DiscoveryEntry>).collect::<Vec<_>>();
    let (ours, theirs) = match log.offset {
        0 => {
            let heads = [ours, theirs].map(|page| read::<DiscoveryHeader>(page).records);
            assert_eq!(heads[0], heads[1]);
            (entries(&ours[1024..]), entries(&theirs[1024..]))
        }
        _ => (entries(ours), entries(theirs)),
    };
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let mut theirs = *theirs;
        (theirs.subsystem, theirs.service, theirs.address) = (ours.subsystem, ours.service, ours.address);
        assert_eq!(*ours, theirs);
    }
}

#[test]
fn replayed_linux_session_receives_the_recorded_answers() {
    let target = target(DRIVE);
    let mut replay = Replay::default();
    for record in session() {
        match record.side {
            Side::Host => replay.host_sends(&target, &record),
            Side::Target => replay.target_sends(&record),
            Side::Closed => {
                replay.open.retain(|(connection, _), _| *connection != record.connection);
                replay.queues.remove(&record.connection);
            }
        }
    }
    assert_eq!(replay.answers, 104, "answers that were compared");
    let expected = [
        "a controller that is shut down stays enabled",
        "events that the controller does not have are not enabled",
        "queues of 128 entries, and another time to be ready",
        "there is no asymmetric access, nor its log",
        "writes not at the pointer have the status of the standard",
    ];
    let seen: Vec<_> = replay.seen.into_iter().collect();
    assert_eq!(seen, expected);
}
