//! REPORT SUPPORTED OPERATION CODES, compared with the disk's behaviour.

use crate::rig::{DRIVE, GAPS, Rig, cdb, parse};
use zerocopy::big_endian::U16;
use zonal_scsi::sense::SenseCode;
use zonal_scsi::status;
use zonal_scsi::wire::*;

fn entries(rig: &mut Rig, has_timeouts: bool) -> Vec<OperationEntry> {
    let options = u8::from(has_timeouts) * bits::RCTD;
    let report = ReportOperations { options, len: 8192.into(), ..ReportOperations::default() };
    let data = rig.data(cdb_of(&report), 8192);
    assert_eq!(u32::from_be_bytes(data[..4].try_into().unwrap()) as usize, data.len() - 4);
    let size = if has_timeouts { 20 } else { 8 };
    data[4..].chunks_exact(size).map(parse).collect()
}

/// Every operation code with every service action: reported ones are not refused as unknown, and
/// all others are.
#[test]
fn reported_operations_are_exactly_the_dispatched_ones() {
    for device in [DRIVE, GAPS] {
        let mut rig = Rig::new(device);
        let entries = entries(&mut rig, false);
        for opcode in 0..=255 {
            for action in 0..32 {
                let mut of_code = entries.iter().filter(|entry| entry.opcode == opcode).peekable();
                let has_code = of_code.peek().is_some();
                let is_there = of_code
                    .any(|entry| entry.flags & OperationEntry::SERVACTV == 0 || entry.action == action);
                // Unit 0 and no other fields: a supported operation may fail, but not as unknown.
                let reply = rig.ask(cdb(&[opcode, action as u8]), &[], 0);
                let code = reply.sense.map(|sense| (sense.asc, sense.field.map(|field| field.byte)));
                if !has_code {
                    reply.fails_with(SenseCode::INVALID_OPERATION_CODE);
                } else if !is_there {
                    reply.is_wrong_at(1);
                } else {
                    assert_ne!(code.map(|code| code.0), Some(0x20), "{opcode:02x}/{action:02x}");
                }
            }
        }
    }
}

/// A bit in the usage data is accepted or has an invalid value; any other bit is refused with a
/// pointer to it.
#[test]
fn bits_outside_the_usage_data_are_refused_where_they_stand() {
    let mut rig = Rig::new(DRIVE);
    for entry in entries(&mut rig, true) {
        let report = ReportOperations {
            options: 3,
            opcode: entry.opcode,
            action: entry.action,
            len: 64.into(),
            ..ReportOperations::default()
        };
        let data = rig.data(cdb_of(&report), 64);
        let head = parse::<SupportedOperation>(&data);
        assert_eq!((head.support & 7, head.cdb_len), (3, entry.cdb_len));
        let usage = &data[4..];
        assert_eq!(usage.len(), usize::from(entry.cdb_len.get()));
        assert_eq!(usage[0], entry.opcode);
        for bit in 8..(usage.len() - 1) * 8 {
            let (byte, mask) = (bit / 8, 1 << (bit % 8));
            let is_action = entry.flags & OperationEntry::SERVACTV != 0 && byte == 1 && mask < 0x20;
            if usage[byte] & mask != 0 || is_action {
                continue;
            }
            let mut wrong = cdb(&[entry.opcode, entry.action.get() as u8]);
            wrong[byte] |= mask;
            rig.ask(wrong, &[], 0).is_wrong_at(byte as u16);
        }
        // NACA.
        let mut wrong = cdb(&[entry.opcode, entry.action.get() as u8]);
        wrong[usage.len() - 1] = 4;
        rig.ask(wrong, &[], 0).is_wrong_at(usage.len() as u16 - 1);
    }
}

#[test]
fn one_operation_is_reported_by_opcode_and_service_action() {
    let mut rig = Rig::new(DRIVE);
    let ask = |options, opcode, action| {
        let (options, action, len) = (bits::RCTD | options, U16::new(action), 64.into());
        cdb_of(&ReportOperations { options, opcode, action, len, ..ReportOperations::default() })
    };
    let support = |data: Vec<u8>| parse::<SupportedOperation>(&data).support & 7;
    let read: SupportedOperation = parse(&rig.data(ask(1, 0x28, 0), 64));
    assert_eq!((read.support, read.cdb_len.get()), (0x83, 10));
    assert_eq!(rig.data(ask(1, 0x28, 0), 64).len(), 4 + 10 + 12);
    let reset = rig.data(ask(2, 0x94, 4), 64);
    assert_eq!(reset[4..20], [0x94, 4, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 1, 4]);
    assert_eq!(support(rig.data(ask(3, 0x94, 5), 64)), 1);
    // READ(6), and SEQUENTIALIZE ZONE.
    assert_eq!(support(rig.data(ask(1, 0x08, 0), 64)), 1);
    assert_eq!(support(rig.data(ask(2, 0x94, 0x10), 64)), 1);
    rig.ask(ask(1, 0x94, 0), &[], 64).is_wrong_at(2);
    rig.ask(ask(2, 0x28, 0), &[], 64).is_wrong_at(2);
    rig.ask(ask(7, 0x28, 0), &[], 64).is_wrong_at(2);
}

#[test]
fn unmap_is_supported_only_if_blocks_can_be_deallocated() {
    for (device, has) in [(DRIVE, true), (GAPS, false)] {
        let mut rig = Rig::new(device);
        assert_eq!(entries(&mut rig, false).iter().any(|entry| entry.opcode == 0x42), has);
    }
}

#[test]
fn task_management_functions_are_reported_in_both_formats() {
    let mut rig = Rig::new(DRIVE);
    let ask = |options| {
        cdb_of(&ReportTaskManagement { options, len: 64.into(), ..ReportTaskManagement::default() })
    };
    assert_eq!(rig.data(ask(0), 64), [0xC8, 0, 0, 0]);
    let extended = rig.data(ask(bits::REPD), 64);
    assert_eq!((extended.len(), &extended[..4]), (16, &[0xC8, 0, 0, 12][..]));
}

#[test]
fn write_protected_disk_refuses_modifying_commands() {
    let mut rig = Rig::with(DRIVE, |options| options.with_read_only(true));
    for command in [
        Write { lba: 0, blocks: 1, fua: false }.emit(),
        WriteSame { lba: 0, blocks: 1, is_unmap: false, has_data: false }.emit(),
        cdb_of(&Unmap { len: 8.into(), ..Unmap::default() }),
        ZoneOut { action: ZoneAction::Reset, lba: 0, is_all: true }.emit(),
    ] {
        rig.ask(command, &[0; 512], 0).fails_with(SenseCode::WRITE_PROTECTED);
    }
    assert_eq!(rig.read(0, 1).len(), 512);
    let sync = SynchronizeCache { lba: 0, blocks: 0, is_immediate: false };
    assert_eq!(rig.ask(sync.emit(), &[], 0).status, status::GOOD);
}
