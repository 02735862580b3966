//! Cancelled tasks are answered once and leave nothing behind.

use crate::rig::{DRIVE_4K, Rig, filled, memory};
use std::collections::BTreeMap;
use zonal_io::buffer::IoBufs;
use zonal_scsi::queue::TASKS_MAX;
use zonal_scsi::wire::*;
use zonal_scsi::{Task, status};

/// Statuses by tag, once all tasks have completed.
fn statuses(rig: &mut Rig) -> BTreeMap<u64, u8> {
    let mut statuses = BTreeMap::new();
    while rig.queue.in_flight() > 0 || rig.queue.has_news() {
        let answer = rig.wait();
        assert!(statuses.insert(answer.tag, answer.status).is_none(), "tag {} twice", answer.tag);
    }
    statuses
}

fn submit_writes(rig: &mut Rig, zone: u64, count: u64) {
    let start = zone * rig.zone_blocks();
    for n in 0..count {
        let write = Write { lba: start + n, blocks: 1, fua: false };
        rig.submit(n, write.emit(), filled(&[n as u8; 4096]), IoBufs::empty());
    }
}

#[test]
fn write_that_waits_is_aborted_and_those_before_it_are_not() {
    let mut rig = Rig::new(DRIVE_4K);
    submit_writes(&mut rig, 7, 3);
    // The first is at the device, and the others wait for it.
    assert!(rig.queue.cancel(rig.now, 2));
    assert!(!rig.queue.cancel(rig.now, 99));
    let statuses = statuses(&mut rig);
    assert_eq!(statuses, BTreeMap::from([(0, status::GOOD), (1, status::GOOD), (2, status::TASK_ABORTED)]));
    let start = 7 * rig.zone_blocks();
    assert_eq!(rig.report(start, 0).1[0].write_pointer, start + 2);
    assert!(!rig.queue.cancel(rig.now, 2), "an answered task is not there");
    rig.must_write(start + 2, 1, 9);
    // Later waiting tasks are not cancelled.
    submit_writes(&mut rig, 8, 5);
    assert!(self::statuses(&mut rig).values().all(|status| *status == status::GOOD));
}

#[test]
fn cancel_does_not_affect_a_command_at_the_device() {
    let mut rig = Rig::new(DRIVE_4K);
    submit_writes(&mut rig, 7, 1);
    assert!(rig.queue.cancel(rig.now, 0));
    assert!(rig.queue.cancel(rig.now, 0), "it is still there");
    assert_eq!(statuses(&mut rig), BTreeMap::from([(0, status::GOOD)]));
}

#[test]
fn command_of_several_steps_stops_after_the_present_one() {
    let mut rig = Rig::new(DRIVE_4K);
    let start = 7 * rig.zone_blocks();
    let same = WriteSame { lba: start, blocks: 256, is_unmap: false, has_data: true };
    rig.submit(5, same.emit(), filled(&[7; 4096]), IoBufs::empty());
    assert!(rig.queue.cancel(rig.now, 5));
    assert_eq!(statuses(&mut rig), BTreeMap::from([(5, status::TASK_ABORTED)]));
    // One piece of 256 KiB.
    assert_eq!(rig.report(start, 0).1[0].write_pointer, start + 64);
}

/// The zone has other contents, so the comparison would be followed by the write.
#[test]
fn write_that_is_aborted_while_it_is_compared_gives_its_memory_back() {
    let mut rig = Rig::new(DRIVE_4K);
    let lba = 7 * rig.zone_blocks();
    rig.must_write(lba, 1, 9);
    let cdb = Write { lba, blocks: 1, fua: false }.emit();
    let task = Task { tag: 1, lun: 0, cdb, data_out: filled(&[8; 4096]), data_in: IoBufs::empty() };
    rig.queue.submit_again(rig.now, task);
    assert!(rig.queue.cancel(rig.now, 1));
    let answer = rig.wait();
    assert_eq!(answer.status, status::TASK_ABORTED);
    assert_eq!(answer.data_out.into_buf()[..], [8; 4096]);
}

#[test]
fn reset_ends_all_tasks_and_the_queue_takes_more() {
    let mut rig = Rig::new(DRIVE_4K);
    submit_writes(&mut rig, 7, 40);
    rig.queue.cancel_all(rig.now);
    let all = statuses(&mut rig);
    assert_eq!(all.len(), 40);
    assert_eq!(all[&0], status::GOOD);
    assert!((1..40).all(|tag| all[&tag] == status::TASK_ABORTED), "{all:?}");
    let start = 7 * rig.zone_blocks();
    rig.must_write(start + 1, 1, 3);
    assert_eq!(rig.queue.in_flight(), 0);
}

#[test]
fn one_task_too_many_is_turned_away() {
    let mut rig = Rig::new(DRIVE_4K);
    for tag in 0..=TASKS_MAX as u64 {
        rig.submit(tag, Read { lba: 0, blocks: 1, fua: false }.emit(), IoBufs::empty(), memory(4096));
    }
    let answer = rig.queue.take().unwrap();
    assert_eq!((answer.tag, answer.status), (TASKS_MAX as u64, status::TASK_SET_FULL));
    assert_eq!(answer.data_in.len(), 4096);
    let all = statuses(&mut rig);
    assert_eq!(all.len(), TASKS_MAX);
    assert!(all.values().all(|status| *status == status::GOOD));
}
