//! Reads, writes, comparisons and unmaps.

use crate::rig::{DRIVE, DRIVE_4K, GAPS, Reply, Rig, UNTOUCHED, cdb, filled, reply};
use std::sync::Arc;
use zonal_core::{DeviceError, Op};
use zonal_io::buffer::IoBufs;
use zonal_io::fault::{Effect, Fault, Ops, Plan, Rule};
use zonal_io::registry::Registry;
use zonal_scsi::sense::SenseCode;
use zonal_scsi::wire::*;
use zonal_scsi::{Task, status};

/// Blocks with different contents.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 512 * 7 + n) as u8).collect()
}

#[test]
fn written_blocks_are_read_by_all_forms() {
    for device in [DRIVE, DRIVE_4K] {
        let mut rig = Rig::new(device);
        let block = rig.disk.block_len() as usize;
        let data = pattern(4 * block);
        // WRITE(10), WRITE(12), WRITE(16) to a conventional zone.
        for (n, write) in [
            cdb(&[0x2A, 0, 0, 0, 0, 0, 0, 0, 4, 0]),
            cdb(&[0xAA, 0, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0]),
            cdb(&[0x8A, 8, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0]),
        ]
        .into_iter()
        .enumerate()
        {
            let reply = rig.ask(write, &data, 0);
            reply.good();
            assert_eq!(reply.transferred as usize, data.len());
            assert_eq!(rig.read(4 * n as u64, 4), data);
        }
        for read in [
            cdb(&[0x28, 0, 0, 0, 0, 5, 0, 0, 2, 0]),
            cdb(&[0xA8, 0, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0]),
            cdb(&[0x88, 0x18, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0]),
        ] {
            assert_eq!(rig.data(read, 2 * block), data[block..3 * block]);
        }
    }
}

#[test]
fn memory_beyond_the_command_is_left_alone() {
    let mut rig = Rig::new(DRIVE);
    rig.must_write(0, 2, 0x11);
    let reply = rig.ask(Read { lba: 0, blocks: 2, fua: false }.emit(), &[], 4096);
    reply.good();
    assert_eq!(reply.transferred, 1024);
    assert!(reply.data[..1024].iter().all(|byte| *byte == 0x11));
    assert!(reply.data[1024..].iter().all(|byte| *byte == UNTOUCHED));
    let reply = rig.ask(Write { lba: 0, blocks: 1, fua: true }.emit(), &[0x22; 1024], 0);
    reply.good();
    assert_eq!(reply.transferred, 512);
    assert_eq!(rig.read(0, 2), [[0x22; 512], [0x11; 512]].concat());
}

#[test]
fn memory_shorter_than_the_command_is_refused_untouched() {
    let mut rig = Rig::new(DRIVE);
    rig.must_write(0, 2, 0x11);
    let reply = rig.ask(Read { lba: 0, blocks: 2, fua: false }.emit(), &[], 1023);
    reply.fails_with(SenseCode::DATA_PHASE_ERROR);
    assert!(reply.data.iter().all(|byte| *byte == UNTOUCHED));
    let write = Write { lba: 0, blocks: 2, fua: false }.emit();
    rig.ask(write, &[0x22; 1023], 0).fails_with(SenseCode::DATA_PHASE_ERROR);
    assert_eq!(rig.read(0, 2), [0x11; 1024]);
}

#[test]
fn zero_blocks_are_a_command_without_data() {
    let mut rig = Rig::new(DRIVE);
    rig.ask(Read { lba: 0, blocks: 0, fua: false }.emit(), &[], 0).good();
    rig.ask(Write { lba: 5 << 11, blocks: 0, fua: false }.emit(), &[], 0).good();
    let beyond = rig.disk.blocks();
    rig.ask(Read { lba: beyond, blocks: 0, fua: false }.emit(), &[], 0)
        .fails_with(SenseCode::LBA_OUT_OF_RANGE);
}

#[test]
fn sequential_zone_takes_writes_at_its_pointer_only() {
    for device in [DRIVE, DRIVE_4K] {
        let mut rig = Rig::new(device);
        let start = 5 * rig.zone_blocks();
        rig.must_write(start, 4, 0x11);
        let block = vec![0x22; rig.disk.block_len() as usize];
        rig.write(start, &block).fails_with(SenseCode::UNALIGNED_WRITE_COMMAND);
        rig.write(start + 5, &block).fails_with(SenseCode::UNALIGNED_WRITE_COMMAND);
        rig.write(start + 4, &block).good();
        assert_eq!(rig.report(start, 0).1[0].write_pointer, start + 5);
    }
}

#[test]
fn writes_that_leave_their_zone_are_refused_as_a_whole() {
    let mut rig = Rig::new(DRIVE);
    let zone = rig.zone_blocks();
    // Out of the conventional zones, and out of a sequential one.
    rig.write(4 * zone - 1, &[0; 1024]).fails_with(SenseCode::WRITE_BOUNDARY_VIOLATION);
    rig.must_write(5 * zone, 2047, 0x11);
    rig.write(6 * zone - 1, &[0; 1024]).fails_with(SenseCode::WRITE_BOUNDARY_VIOLATION);
    assert_eq!(rig.report(5 * zone, 0).1[0].write_pointer, 6 * zone - 1);
    // Conventional zones may be crossed.
    rig.write(zone - 1, &[0x33; 1024]).good();
    // Reads may cross all zones and extend beyond write pointers.
    assert_eq!(rig.read(4 * zone - 1, 2), [0; 1024]);
}

#[test]
fn blocks_beyond_the_disk_are_out_of_range() {
    let mut rig = Rig::new(DRIVE);
    let end = rig.disk.blocks();
    for (lba, blocks) in [(end, 1), (end - 1, 2), (u64::MAX, 1), (u64::MAX, 2048)] {
        let out = vec![0; 1 << 20];
        rig.ask(Read { lba, blocks, fua: false }.emit(), &[], 1 << 20)
            .fails_with(SenseCode::LBA_OUT_OF_RANGE);
        rig.ask(Write { lba, blocks, fua: false }.emit(), &out, 0).fails_with(SenseCode::LBA_OUT_OF_RANGE);
        let sync = SynchronizeCache { lba, blocks, is_immediate: false };
        rig.ask(sync.emit(), &[], 0).fails_with(SenseCode::LBA_OUT_OF_RANGE);
        let verify = Verify { lba, blocks, check: Some(ByteCheck::None) };
        rig.ask(verify.emit(), &[], 0).fails_with(SenseCode::LBA_OUT_OF_RANGE);
        let same = WriteSame { lba, blocks, is_unmap: false, has_data: false };
        rig.ask(same.emit(), &[], 0).fails_with(SenseCode::LBA_OUT_OF_RANGE);
    }
    rig.ask(Read { lba: 0, blocks: 65_537, fua: false }.emit(), &[], 4096).is_wrong_at(10);
    Rig::new(DRIVE_4K).ask(cdb(&[0x28, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0]), &[], 4096).is_wrong_at(7);
}

#[test]
fn gaps_are_not_read_and_not_written() {
    let mut rig = Rig::new(GAPS);
    // Zones of 2048 blocks with a capacity of 1536.
    for (lba, blocks) in [(1536, 1), (1535, 2), (2047, 1), (0, 2048), (1000, 2000), (3000, 600)] {
        let read = rig.ask(Read { lba, blocks, fua: false }.emit(), &[], 1 << 20);
        read.fails_with(SenseCode::ATTEMPT_TO_ACCESS_GAP_ZONE);
    }
    assert_eq!(rig.read(0, 1536).len(), 1536 * 512);
    rig.must_write(0, 1535, 0x11);
    rig.write(1535, &[0; 1024]).fails_with(SenseCode::WRITE_BOUNDARY_VIOLATION);
    rig.write(1536, &[0; 512]).fails_with(SenseCode::ATTEMPT_TO_ACCESS_GAP_ZONE);
    rig.must_write(1535, 1, 0x11);
    // Conventional zones have no gap.
    let mut rig = Rig::new(&format!("{GAPS},zone_nr_conv=2"));
    assert_eq!(rig.read(2048 + 512, 2047).len(), 2047 * 512);
    rig.ask(Read { lba: 4000, blocks: 1633, fua: false }.emit(), &[], 1 << 20)
        .fails_with(SenseCode::ATTEMPT_TO_ACCESS_GAP_ZONE);
}

#[test]
fn full_zone_takes_no_write() {
    let mut rig = Rig::new(DRIVE);
    let start = 5 * rig.zone_blocks();
    rig.act(ZoneAction::Finish, start).good();
    rig.write(start, &[0; 512]).fails_with(SenseCode::INVALID_FIELD_IN_CDB);
}

#[test]
fn verify_compares_all_blocks_or_each_with_one() {
    for device in [DRIVE, DRIVE_4K] {
        let mut rig = Rig::new(device);
        let block = rig.disk.block_len() as usize;
        // More than one piece.
        let blocks = (600 << 10) / block;
        let mut data = pattern(blocks * block);
        rig.write(0, &data).good();
        let verify = |check| Verify { lba: 0, blocks: blocks as u32, check }.emit();
        let reply = rig.ask(verify(Some(ByteCheck::None)), &[], 0);
        reply.good();
        assert_eq!(reply.transferred, 0);
        let reply = rig.ask(verify(Some(ByteCheck::All)), &data, 0);
        reply.good();
        assert_eq!(reply.transferred as usize, data.len());
        *data.last_mut().unwrap() ^= 1;
        rig.ask(verify(Some(ByteCheck::All)), &data, 0).fails_with(SenseCode::MISCOMPARE_DURING_VERIFY);
        rig.ask(verify(Some(ByteCheck::All)), &data[1..], 0).fails_with(SenseCode::DATA_PHASE_ERROR);
        rig.must_write(0, 256, 0x55);
        let each = Verify { lba: 0, blocks: 256, check: Some(ByteCheck::Each) }.emit();
        rig.ask(each, &vec![0x55; block], 0).good();
        rig.ask(each, &vec![0x56; block], 0).fails_with(SenseCode::MISCOMPARE_DURING_VERIFY);
        rig.ask(verify(None), &[], 0).is_wrong_at(1);
    }
}

#[test]
fn write_same_fills_zeroes_and_patterns_in_both_kinds_of_zones() {
    for device in [DRIVE, DRIVE_4K, "ram:size=64M,zone_size=1M,zone_nr_conv=4,write_zeroes_max_sectors=0"] {
        let mut rig = Rig::new(device);
        let block = rig.disk.block_len() as usize;
        let zone = rig.zone_blocks();
        for start in [zone, 6 * zone] {
            let one = pattern(block);
            // A whole zone in several pieces.
            let same = WriteSame { lba: start, blocks: zone as u32, is_unmap: false, has_data: true };
            let reply = rig.ask(same.emit(), &one, 0);
            reply.good();
            assert_eq!(reply.transferred as usize, block);
            assert!(rig.read(start, zone as u32).chunks(block).all(|read| read == one));
        }
        rig.act(ZoneAction::Reset, 6 * zone).good();
        for (start, has_data) in [(zone, true), (6 * zone, false)] {
            let same = WriteSame { lba: start, blocks: 8, is_unmap: false, has_data };
            rig.ask(same.emit(), &vec![0; block], 0).good();
            assert!(rig.read(start, 8).iter().all(|byte| *byte == 0));
        }
        assert_eq!(rig.report(6 * zone, 0).1[0].write_pointer, 6 * zone + 8);
        // WRITE SAME(10).
        let ten = cdb(&[0x41, 0, 0, 0, 0, 3, 0, 0, 2, 0]);
        rig.ask(ten, &pattern(block), 0).good();
        assert_eq!(rig.read(4, 1), pattern(block));
    }
}

#[test]
fn write_same_unmaps_conventional_blocks_and_zeroes_others() {
    let mut rig = Rig::new(DRIVE);
    let zone = rig.zone_blocks();
    rig.must_write(0, 16, 0x11);
    let same = |lba, blocks| WriteSame { lba, blocks, is_unmap: true, has_data: false }.emit();
    rig.ask(same(4, 8), &[], 0).good();
    let expected = [vec![0x11; 2048], vec![0; 4096], vec![0x11; 2048]].concat();
    assert_eq!(rig.read(0, 16), expected);
    rig.ask(same(5 * zone, 8), &[], 0).good();
    assert_eq!(rig.report(5 * zone, 0).1[0].write_pointer, 5 * zone + 8);
    rig.ask(same(4 * zone - 1, 2), &[], 0).fails_with(SenseCode::WRITE_BOUNDARY_VIOLATION);
    rig.ask(same(0, 0), &[], 0).is_wrong_at(10);
    rig.ask(same(0, zone as u32 + 1), &[], 0).is_wrong_at(10);
    let mut rig = Rig::new(GAPS);
    rig.ask(same(0, 8), &[], 0).is_wrong_at(1);
}

#[test]
fn unmap_forgets_conventional_blocks_and_leaves_others() {
    for device in [DRIVE, DRIVE_4K] {
        let mut rig = Rig::new(device);
        let zone = rig.zone_blocks();
        let block = rig.disk.block_len() as usize;
        rig.must_write(0, 16, 0x11);
        rig.must_write(4 * zone - 4, 4, 0x22);
        rig.must_write(4 * zone, 4, 0x33);
        let ranges = vec![
            UnmapRange { lba: 2, blocks: 3 },
            UnmapRange { lba: 9, blocks: 0 },
            UnmapRange { lba: 4 * zone - 2, blocks: 4 },
            UnmapRange { lba: 12, blocks: 1 },
        ];
        let list = UnmapList { ranges }.emit();
        let unmap = cdb_of(&Unmap { len: (list.len() as u16).into(), ..Unmap::default() });
        let reply = rig.ask(unmap, &list, 0);
        reply.good();
        assert_eq!(reply.transferred as usize, list.len());
        let kept: Vec<bool> = rig.read(0, 16).chunks(block).map(|block| block[0] == 0x11).collect();
        let forgotten = [2, 3, 4, 12];
        assert!(kept.iter().enumerate().all(|(n, kept)| *kept != forgotten.contains(&n)), "{kept:?}");
        let around: Vec<u8> = rig.read(4 * zone - 4, 8).chunks(block).map(|block| block[0]).collect();
        assert_eq!(around, [0x22, 0x22, 0, 0, 0x33, 0x33, 0x33, 0x33]);
    }
}

#[test]
fn unmap_lists_that_are_wrong_change_nothing() {
    let mut rig = Rig::new(DRIVE);
    rig.must_write(0, 1, 0x11);
    let unmap = |list: &[u8]| cdb_of(&Unmap { len: (list.len() as u16).into(), ..Unmap::default() });
    let one = UnmapRange { lba: 0, blocks: 1 };
    let beyond = UnmapList { ranges: vec![one, UnmapRange { lba: rig.disk.blocks(), blocks: 1 }] }.emit();
    rig.ask(unmap(&beyond), &beyond, 0).fails_with(SenseCode::LBA_OUT_OF_RANGE);
    let many = UnmapList { ranges: vec![one; 257] }.emit();
    rig.ask(unmap(&many), &many, 0).fails_with(SenseCode::INVALID_FIELD_IN_PARAMETER_LIST);
    let long = UnmapRange { lba: 0, blocks: 4 << 11 };
    let long = UnmapList { ranges: vec![long, one] }.emit();
    rig.ask(unmap(&long), &long, 0).fails_with(SenseCode::INVALID_FIELD_IN_PARAMETER_LIST);
    let list = UnmapList { ranges: vec![one] }.emit();
    rig.ask(unmap(&list), &list[..23], 0).fails_with(SenseCode::DATA_PHASE_ERROR);
    rig.ask(unmap(&list[..7]), &list[..7], 0).fails_with(SenseCode::PARAMETER_LIST_LENGTH_ERROR);
    // A truncated range is ignored.
    rig.ask(unmap(&list[..23]), &list[..23], 0).good();
    rig.ask(unmap(&[]), &[], 0).good();
    assert_eq!(rig.read(0, 1), [0x11; 512]);
}

#[test]
fn caches_are_synchronized_in_both_forms() {
    let mut rig = Rig::new(DRIVE);
    rig.ask(cdb(&[0x35, 2, 0, 0, 0, 0, 0, 0, 0, 0]), &[], 0).good();
    rig.ask(SynchronizeCache { lba: 1, blocks: 8, is_immediate: false }.emit(), &[], 0).good();
}

/// Writes of one zone, all in flight at once.
#[test]
fn writes_in_order_on_one_queue_need_wait_for_none() {
    let mut rig = Rig::new(DRIVE_4K);
    let start = 7 * rig.zone_blocks();
    for n in 0..64 {
        let write = Write { lba: start + n, blocks: 1, fua: n % 5 == 0 };
        rig.submit(n, write.emit(), filled(&[n as u8; 4096]), IoBufs::empty());
    }
    assert_eq!(rig.queue.in_flight(), 64);
    for _ in 0..64 {
        let answer = rig.wait();
        assert_eq!((answer.status, answer.transferred), (status::GOOD, 4096), "{}", answer.tag);
    }
    let read = rig.read(start, 64);
    assert!(read.chunks(4096).enumerate().all(|(n, block)| block.iter().all(|byte| *byte == n as u8)));
}

#[test]
fn medium_errors_yield_their_sense_codes() {
    let mut rig = Rig::new(&format!("fault:medium=1+{DRIVE}"));
    let zone = rig.zone_blocks();
    rig.ask(Read { lba: 0, blocks: 1, fua: false }.emit(), &[], 512)
        .fails_with(SenseCode::UNRECOVERED_READ_ERROR);
    rig.write(0, &[0; 512]).fails_with(SenseCode::RECORDED_ENTITY_NOT_FOUND);
    rig.write(5 * zone, &[0; 512]).fails_with(SenseCode::RECORDED_ENTITY_NOT_FOUND);
    let verify = Verify { lba: 0, blocks: 1, check: Some(ByteCheck::Each) };
    rig.ask(verify.emit(), &[0; 512], 0).fails_with(SenseCode::UNRECOVERED_READ_ERROR);
    let same = WriteSame { lba: 0, blocks: 1, is_unmap: false, has_data: true };
    rig.ask(same.emit(), &[1; 512], 0).fails_with(SenseCode::RECORDED_ENTITY_NOT_FOUND);
}

/// Rig with a drive that is busy for each command `op` after the first `taken`.
fn rig_of_a_busy_drive(device: &str, op: Op, taken: u32) -> Rig {
    let rule = Rule::new(Effect::Refuse(DeviceError::Busy)).on(Ops::of(&[op])).after(taken.into());
    let plan = Plan { rules: vec![rule], ..Plan::default() };
    Rig::over(Arc::new(Fault::new(Registry::default().open(device).unwrap(), plan)))
}

/// Commands that were not executed may be retried.
#[test]
fn persistently_busy_device_is_reported_as_busy() {
    let mut rig = rig_of_a_busy_drive(DRIVE, Op::Read, 0);
    let reply = rig.ask(Read { lba: 0, blocks: 1, fua: false }.emit(), &[], 512);
    assert_eq!((reply.status, reply.transferred), (status::BUSY, 0));
}

/// A partly executed command must not be retried, as it would start below the write pointer.
#[test]
fn busy_device_after_partial_execution_is_reported_as_failure() {
    let mut rig = rig_of_a_busy_drive(DRIVE, Op::Write, 1);
    // Two pieces of 256 KiB.
    let same = WriteSame { lba: 5 * rig.zone_blocks(), blocks: 1024, is_unmap: false, has_data: true };
    rig.ask(same.emit(), &[1; 512], 0).fails_with(SenseCode::INTERNAL_TARGET_FAILURE);
}

/// A part executed by a killed process counts as well.
#[test]
fn busy_rest_of_a_resubmitted_command_is_reported_as_failure() {
    let mut rig = rig_of_a_busy_drive(DRIVE_4K, Op::Write, 1);
    let lba = 5 * rig.zone_blocks();
    rig.must_write(lba, 1, 7);
    let cdb = WriteSame { lba, blocks: 4, is_unmap: false, has_data: true }.emit();
    let task = Task { tag: 1, lun: 0, cdb, data_out: filled(&[7; 4096]), data_in: IoBufs::empty() };
    rig.queue.submit_again(rig.now, task);
    let answer = rig.wait();
    reply(answer.status, &answer.sense, answer.transferred, answer.data_in)
        .fails_with(SenseCode::INTERNAL_TARGET_FAILURE);
}

/// Writes `written` blocks as a killed process would have, then submits the write again.
fn written_again(device: &str, written: u32, lba: u64, data: &[u8], fua: bool) -> (Rig, Reply) {
    let mut rig = Rig::new(device);
    let block = rig.disk.block_len() as usize;
    let zone = rig.disk.blocks() / 64;
    rig.write(5 * zone, &pattern(4 * block)[..written as usize * block]).good();
    let blocks = (data.len() / block) as u32;
    let cdb = Write { lba: 5 * zone + lba, blocks, fua }.emit();
    let task = Task { tag: 1, lun: 0, cdb, data_out: filled(data), data_in: IoBufs::empty() };
    rig.queue.submit_again(rig.now, task);
    let answer = rig.wait();
    assert_eq!(&answer.data_out.into_buf()[..], data, "data from the initiator are not changed");
    let reply = reply(answer.status, &answer.sense, answer.transferred, answer.data_in);
    (rig, reply)
}

#[test]
fn write_that_is_left_of_a_killed_process_is_completed() {
    for device in [DRIVE, DRIVE_4K] {
        let block = Rig::new(device).disk.block_len() as usize;
        let data = pattern(4 * block);
        // None, some, or all of it was written before.
        for written in 1..=4 {
            for fua in [false, true] {
                let (mut rig, reply) = written_again(device, written, 1, &data[block..], fua);
                reply.good();
                assert_eq!(reply.transferred as usize, 3 * block);
                let zone = rig.disk.blocks() / 64;
                assert_eq!(rig.read(5 * zone, 4), data);
                rig.write(5 * zone + 4, &data[..block]).good();
            }
        }
    }
}

#[test]
fn resubmitted_write_with_different_data_is_refused() {
    let block = Rig::new(DRIVE_4K).disk.block_len() as usize;
    let mut data = pattern(4 * block);
    data[2 * block - 1] ^= 1;
    let (mut rig, reply) = written_again(DRIVE_4K, 2, 1, &data[block..], false);
    reply.fails_with(SenseCode::UNALIGNED_WRITE_COMMAND);
    let zone = rig.disk.blocks() / 64;
    assert_eq!(rig.read(5 * zone, 2), pattern(2 * block));
    // Without `submit_again`, matching data is refused as well.
    rig.write(5 * zone, &pattern(block)).fails_with(SenseCode::UNALIGNED_WRITE_COMMAND);
}

#[test]
fn write_same_that_is_left_of_a_killed_process_is_completed() {
    for (byte, has_data) in [(7, true), (0, true), (0, false)] {
        // None, some, all, or more than one piece of it was written before.
        for written in [0, 1, 3, 100, 200] {
            let mut rig = Rig::new(DRIVE_4K);
            let lba = 5 * rig.zone_blocks();
            if written > 0 {
                rig.write(lba, &vec![byte; written * 4096]).good();
            }
            let same = WriteSame { lba, blocks: 200, is_unmap: false, has_data };
            let data_out = if has_data { filled(&[byte; 4096]) } else { IoBufs::empty() };
            let sent = data_out.len() as u32;
            let task = Task { tag: 1, lun: 0, cdb: same.emit(), data_out, data_in: IoBufs::empty() };
            rig.queue.submit_again(rig.now, task);
            let answer = rig.wait();
            assert_eq!((answer.status, answer.transferred), (status::GOOD, sent), "{byte}, {written}");
            assert!(rig.read(lba, 200).iter().all(|read| *read == byte));
            rig.write(lba + 200, &[1; 4096]).good();
        }
    }
}

#[test]
fn resubmitted_write_same_with_different_data_is_refused() {
    let mut rig = Rig::new(DRIVE_4K);
    let lba = 5 * rig.zone_blocks();
    rig.write(lba, &[&[7; 4096][..], &[8; 4096]].concat()).good();
    let cdb = WriteSame { lba, blocks: 4, is_unmap: false, has_data: true }.emit();
    let task = Task { tag: 1, lun: 0, cdb, data_out: filled(&[7; 4096]), data_in: IoBufs::empty() };
    rig.queue.submit_again(rig.now, task);
    let answer = rig.wait();
    let reply = reply(answer.status, &answer.sense, answer.transferred, answer.data_in);
    reply.fails_with(SenseCode::UNALIGNED_WRITE_COMMAND);
    assert_eq!(rig.report(lba, 0).1[0].write_pointer, lba + 2);
}

/// A zone append of a Linux file system may be longer than the command limit of the disk.
#[test]
fn transfer_that_is_longer_than_the_drives_commands_is_moved_whole() {
    let mut rig = Rig::new("ram:size=64M,zone_size=8M,blocksize=4096,complete=poll");
    let longest = rig.disk.volume().info().command_sectors_max / 8;
    let data = pattern(1236 * 4096);
    assert!(longest < 1236, "a command of the drive has {longest} blocks");
    let reply = rig.ask(Write { lba: 2048, blocks: 1236, fua: true }.emit(), &data, 0);
    reply.good();
    assert_eq!(reply.transferred as usize, data.len());
    assert!(rig.read(2048, 1236) == data);
}
