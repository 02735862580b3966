//! Commands that end early: by an Abort, by deletion of their queue, or by a reset or shutdown of
//! their controller.

use crate::host::odd::odd_over;
use crate::host::{Digests, End, NQN, Queue, sqe, target};
use zonal_core::Nanos;
use zonal_nvme::wire::{Sgl, Sqe, admin, fabrics, io};

const RAM: &str = "ram:size=64M,zone_size=4M,complete=poll,blocksize=4096";
const ABORTED: u16 = 0x4007;
const DELETED: u16 = 0x4008;
const INVALID_WRITE: u16 = 0x41BC;
const CC: u32 = 0x14;
const CSTS: u32 = 0x1C;

fn write(lba: u32, blocks: u32) -> (Sqe, Vec<u8>) {
    let mut command = sqe(io::WRITE, 1, [lba, 0, blocks - 1, 0, 0, 0]);
    command.data.len = (blocks * 4096).into();
    (command, vec![7; (blocks * 4096) as usize])
}

/// Submits a write of one block with in-capsule data.
fn submit(queue: &mut Queue, lba: u32) -> u16 {
    let (mut command, data) = write(lba, 1);
    command.data.kind = Sgl::IN_CAPSULE;
    queue.submit(command, &data)
}

/// Submits a write and withholds its data.
fn submit_without_data(queue: &mut Queue, lba: u32, blocks: u32) -> u16 {
    queue.holds_data = true;
    let (command, data) = write(lba, blocks);
    let cid = queue.submit(command, &data);
    queue.holds_data = false;
    cid
}

fn abort(admin: &mut Queue, queue: u16, cid: u16) -> u16 {
    admin.submit(sqe(admin::ABORT, 0, [u32::from(queue) | u32::from(cid) << 16, 0, 0, 0, 0, 0]), &[])
}

fn pointer(queue: &mut Queue) -> u64 {
    let command = queue.with_room(sqe(io::ZONE_MANAGEMENT_RECEIVE, 1, [0, 0, 31, 1 << 16, 0, 0]), 128);
    let page = queue.call(command, &[]).data;
    u64::from_le_bytes(page[64 + 24..64 + 32].try_into().unwrap())
}

/// The write at the device completes normally, the aborted one is not executed, and the ones behind
/// it fail because it is missing.
#[test]
fn write_that_waits_in_the_volume_is_aborted() {
    let mut admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    let [first, victim, after] = [0, 1, 2].map(|lba| submit(&mut queue, lba));
    let asked = abort(&mut admin, 1, victim);
    assert_eq!(admin.end(asked), None, "its queue has not heard of it");
    queue.link.connection.poll(queue.link.now);
    queue.send(&[]);
    assert_eq!(queue.end(victim).unwrap().status, ABORTED);
    assert_eq!(queue.end(first), None);
    admin.poll();
    assert_eq!(admin.end(asked), Some(End::default()), "it was aborted");
    assert_eq!(queue.wait(first).status, 0);
    assert_eq!(queue.wait(after).status, INVALID_WRITE);
    assert_eq!(pointer(&mut queue), 1);
    let again = submit(&mut queue, 1);
    assert_eq!(queue.wait(again).status, 0);
}

#[test]
fn abort_of_a_write_at_the_device_reports_not_aborted() {
    let mut admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    let write = submit(&mut queue, 0);
    let asked = abort(&mut admin, 1, write);
    queue.link.connection.poll(queue.link.now);
    queue.send(&[]);
    admin.link.connection.poll(admin.link.now);
    admin.send(&[]);
    assert_eq!(admin.end(asked), None, "its command has not ended");
    assert_eq!(queue.wait(write).status, 0);
    assert_eq!(admin.wait(asked), End { result: 1, ..End::default() });
}

/// Its data arrives after the command has ended and is discarded; then the slot is free again.
#[test]
fn write_that_waits_for_its_data_is_aborted() {
    for digests in [false, true] {
        let digests = Digests { header: digests, data: digests };
        let mut admin = Queue::admin_with(&target(RAM), digests, NQN);
        let mut queue = admin.io(1);
        for round in 0..100 {
            let victim = submit_without_data(&mut queue, round, 16);
            let after = submit(&mut queue, round);
            let asked = abort(&mut admin, 1, victim);
            queue.poll();
            assert_eq!(queue.wait(victim).status, ABORTED);
            assert_eq!(admin.wait(asked), End::default());
            assert_eq!(queue.wait(after).status, 0, "it waited for its predecessor alone");
            queue.send_held_data();
            assert_eq!(queue.terminated, None);
        }
        assert_eq!(pointer(&mut queue), 100);
    }
}

#[test]
fn command_that_waits_for_memory_is_aborted() {
    let mut admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    // Four of these use up the memory of a connection.
    let first: Vec<u16> = (0..4).map(|n| submit_without_data(&mut queue, n * 256, 256)).collect();
    let victim = submit_without_data(&mut queue, 4 * 256, 256);
    let asked = abort(&mut admin, 1, victim);
    queue.poll();
    assert_eq!(queue.wait(victim).status, ABORTED);
    assert_eq!(admin.wait(asked), End::default());
    queue.send_held_data();
    for cid in first {
        assert_eq!(queue.wait(cid).status, 0);
    }
    assert_eq!(pointer(&mut queue), 1024);
}

#[test]
fn aborts_of_missing_commands_and_queues_report_not_aborted() {
    let mut admin = Queue::admin(&target(RAM));
    let queue = admin.io(1);
    let not_aborted = End { result: 1, ..End::default() };
    let asked = abort(&mut admin, 9, 1);
    assert_eq!(admin.wait(asked), not_aborted, "no such queue");
    let asked = abort(&mut admin, 0, 4711);
    assert_eq!(admin.wait(asked), not_aborted, "no such command");
    let asked = abort(&mut admin, 1, 4711);
    admin.poll();
    assert_eq!(admin.end(asked), None);
    drop(queue);
    assert_eq!(admin.wait(asked), not_aborted, "its queue is gone");
}

#[test]
fn fifth_abort_at_once_is_refused() {
    let mut admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    let asked: Vec<u16> = (0..5).map(|_| abort(&mut admin, 1, 4711)).collect();
    assert_eq!(admin.wait(asked[4]).status, 0x4103);
    queue.poll();
    for cid in &asked[..4] {
        assert_eq!(admin.wait(*cid).result, 1);
    }
}

#[test]
fn request_for_an_event_is_aborted() {
    let mut admin = Queue::admin(&target(RAM));
    let event = admin.submit(sqe(admin::ASYNC_EVENT_REQUEST, 0, [0; 6]), &[]);
    let asked = abort(&mut admin, 0, event);
    assert_eq!(admin.wait(event).status, ABORTED);
    assert_eq!(admin.wait(asked), End::default());
    // All four requests are available again.
    for _ in 0..4 {
        let event = admin.submit(sqe(admin::ASYNC_EVENT_REQUEST, 0, [0; 6]), &[]);
        admin.poll();
        assert_eq!(admin.end(event), None);
    }
    assert_eq!(admin.call(sqe(admin::ASYNC_EVENT_REQUEST, 0, [0; 6]), &[]).status, 0x4105);
}

fn disconnect(queue: &mut Queue) -> u16 {
    queue.submit(sqe(fabrics::OPCODE, fabrics::DISCONNECT.into(), [0; 6]), &[])
}

#[test]
fn disconnect_during_another_is_refused_and_both_end() {
    let target = target(RAM);
    let admin = Queue::admin(&target);
    let mut queue = admin.io(1);
    let write = submit(&mut queue, 0);
    let (first, second) = (disconnect(&mut queue), disconnect(&mut queue));
    assert_eq!(queue.wait(second).status, 0x400C);
    assert_eq!((queue.wait(write).status, queue.wait(first).status), (0, 0));
}

#[test]
fn queue_deletion_completes_its_waiting_commands_first() {
    let target = target(RAM);
    let mut admin = Queue::admin(&target);
    let mut queue = admin.io(1);
    let first = submit(&mut queue, 0);
    let waiting: Vec<u16> = (1..9).map(|lba| submit(&mut queue, lba)).collect();
    let without_data = submit_without_data(&mut queue, 9, 16);
    let last = disconnect(&mut queue);
    queue.link.connection.poll(queue.link.now);
    queue.send(&[]);
    for cid in waiting.into_iter().chain([without_data]) {
        assert_eq!(queue.end(cid).unwrap().status, DELETED);
    }
    assert_eq!((queue.end(first), queue.end(last)), (None, None), "it is at the device");
    assert_eq!(queue.wait(last), End::default());
    assert_eq!(queue.end(first).unwrap().status, 0);
    assert!(queue.link.connection.is_over());
    drop(queue);
    let mut other = admin.io(1);
    for _ in 0..10 {
        other.poll();
    }
    assert_eq!(pointer(&mut other), 1, "nothing of it is written later");
    let refused = disconnect(&mut admin);
    assert_eq!(admin.wait(refused).status, 0x4185, "the admin queue is not deleted");
}

/// Once a host sees the reset complete, it may write at once: no earlier write is executed
/// afterwards.
#[test]
fn controller_reset_completes_after_queues_end_their_waiting_commands() {
    let mut admin = Queue::admin(&target(RAM));
    let event = admin.submit(sqe(admin::ASYNC_EVENT_REQUEST, 0, [0; 6]), &[]);
    let mut queue = admin.io(1);
    for lba in 0..9 {
        submit(&mut queue, lba);
    }
    admin.set_property(CC, 0x0046_0060);
    assert_eq!(admin.property(CSTS, false), 1, "a queue is there");
    assert!(queue.link.connection.is_over());
    queue.link.connection.cancel(queue.link.now);
    drop(queue);
    assert_eq!(admin.property(CSTS, false), 0);
    assert_eq!(admin.wait(event).status, ABORTED);
    admin.set_property(CC, 0x0046_0061);
    let mut queue = admin.io(1);
    for _ in 0..10 {
        queue.poll();
    }
    assert_eq!(pointer(&mut queue), 1);
}

#[test]
fn controllers_that_are_reset_again_and_again_lose_no_slot() {
    let mut admin = Queue::admin(&target(RAM));
    for _ in 0..50 {
        let events: Vec<u16> =
            (0..4).map(|_| admin.submit(sqe(admin::ASYNC_EVENT_REQUEST, 0, [0; 6]), &[])).collect();
        admin.set_property(CC, 0x0046_0060);
        for event in events {
            assert_eq!(admin.wait(event).status, ABORTED);
        }
        admin.set_property(CC, 0x0046_0061);
    }
}

/// Base 3.6.1: all data is durable when the shutdown completes, and no I/O command is accepted from
/// its start on.
#[test]
fn shutdown_is_complete_after_a_flush() {
    let target = target("ram:size=64M,zone_size=4M,complete=poll,blocksize=4096");
    let mut admin = Queue::admin(&target);
    let mut queue = admin.io(1);
    let first = submit(&mut queue, 0);
    assert_eq!(queue.wait(first).status, 0);
    let set = sqe(fabrics::OPCODE, fabrics::PROPERTY_SET.into(), [0, CC, 0x0046_4061, 0, 0, 0]);
    let shutdown = admin.submit(set, &[]);
    assert_eq!(admin.end(shutdown), None, "the flush is at the device");
    assert_eq!(admin.property(CSTS, false) >> 2 & 3, 1, "shutting down");
    let late = submit(&mut queue, 1);
    assert_eq!(queue.wait(late).status, 0x400C);
    // The poll lets its connection check for commands at the device.
    queue.poll();
    assert_eq!(admin.wait(shutdown), End::default());
    assert_eq!(admin.property(CSTS, false) >> 2 & 3, 2, "shut down");
    admin.set_property(CC, 0);
    drop(queue);
    assert_eq!(admin.property(CSTS, false), 0);
}

/// The slots of aborted commands are free again after their data has arrived.
#[test]
fn queue_with_many_aborts_has_no_more_entries() {
    let mut admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    let others: Vec<u16> = (0..10).map(|n| submit_without_data(&mut queue, n * 16, 16)).collect();
    for _ in 0..30 {
        let victim = submit_without_data(&mut queue, 0, 16);
        let asked = abort(&mut admin, 1, victim);
        queue.poll();
        assert_eq!(queue.wait(victim).status, ABORTED);
        assert_eq!(admin.wait(asked), End::default());
    }
    queue.send_held_data();
    for cid in others {
        assert_eq!(queue.wait(cid).status, 0);
    }
    submit_without_data(&mut queue, 160, 16);
    for lba in 1..32 {
        submit(&mut queue, lba);
    }
    assert_eq!((queue.terminated, queue.link.connection.in_flight()), (None, 32), "all of its entries");
    submit(&mut queue, 32);
    assert_eq!(queue.terminated, Some(1), "one more than it has entries");
}

/// A host that never sends requested data aborts commands again and again.
#[test]
fn aborted_commands_still_awaiting_data_are_bounded() {
    let mut admin = Queue::admin(&target(RAM));
    let mut queue = admin.io(1);
    let mut victims = 0;
    while queue.terminated.is_none() {
        let victim = submit_without_data(&mut queue, 0, 16);
        if queue.terminated.is_some() {
            break;
        }
        let asked = abort(&mut admin, 1, victim);
        queue.poll();
        assert_eq!(queue.wait(victim).status, ABORTED);
        assert_eq!(admin.wait(asked), End::default());
        victims += 1;
        assert!(victims <= 64, "a queue of 32 entries");
    }
    assert!(victims >= 32);
}

/// The host resets its controller during a shutdown and requests another: the flush of the first
/// one does not cover the second.
#[test]
fn second_shutdown_is_complete_after_a_flush_of_its_own() {
    let slow = "ram:size=64M,zone_size=4M,blocksize=4096,completion_nsec=1000";
    let (_, target) = odd_over(slow, |info| info.volatile_cache = true);
    let mut admin = Queue::admin(&target);
    let set = sqe(fabrics::OPCODE, fabrics::PROPERTY_SET.into(), [0, CC, 0x0046_4061, 0, 0, 0]);
    let first = admin.submit(set, &[]);
    admin.link.now = Nanos(500);
    admin.set_property(CC, 0x0046_0060);
    admin.set_property(CC, 0x0046_0061);
    let second = admin.submit(set, &[]);
    admin.link.now = Nanos(1400);
    assert_eq!(admin.wait(first), End::default());
    assert_eq!(admin.property(CSTS, false) >> 2 & 3, 1, "shutting down");
    assert_eq!(admin.end(second), None);
    admin.link.now = Nanos(1500);
    assert_eq!(admin.wait(second), End::default());
    assert_eq!(admin.property(CSTS, false) >> 2 & 3, 2, "shut down");
}

/// Base 3.6.1: a shutdown completes only after I/O commands at the device have completed.
#[test]
fn shutdown_waits_for_commands_at_the_device() {
    let target = target("ram:size=64M,zone_size=4M,complete=poll,blocksize=4096");
    let mut admin = Queue::admin(&target);
    let (mut queue, idle) = (admin.io(1), admin.io(2));
    let write = submit(&mut queue, 0);
    let set = sqe(fabrics::OPCODE, fabrics::PROPERTY_SET.into(), [0, CC, 0x0046_4061, 0, 0, 0]);
    let shutdown = admin.submit(set, &[]);
    for _ in 0..100 {
        admin.poll();
        assert_eq!(admin.end(shutdown), None);
    }
    assert_eq!(admin.property(CSTS, false) >> 2 & 3, 1, "shutting down");
    // The host requests another shutdown.
    let again = |cc| sqe(fabrics::OPCODE, fabrics::PROPERTY_SET.into(), [0, CC, cc, 0, 0, 0]);
    assert_eq!(admin.call(again(0x0046_0061), &[]).status, 0);
    let second = admin.submit(again(0x0046_4061), &[]);
    // A queue that is gone has nothing at the device.
    drop(idle);
    assert_eq!(queue.wait(write).status, 0);
    assert_eq!(admin.wait(shutdown), End::default());
    assert_eq!(admin.wait(second), End::default());
    assert_eq!(admin.property(CSTS, false) >> 2 & 3, 2, "shut down");
}

#[test]
fn abort_of_a_pending_shutdown_has_no_effect() {
    let mut admin = Queue::admin(&target("ram:size=64M,zone_size=4M,complete=poll,blocksize=4096"));
    let mut queue = admin.io(1);
    let write = submit(&mut queue, 0);
    let set = sqe(fabrics::OPCODE, fabrics::PROPERTY_SET.into(), [0, CC, 0x0046_4061, 0, 0, 0]);
    let shutdown = admin.submit(set, &[]);
    let asked = abort(&mut admin, 0, shutdown);
    assert_eq!(admin.wait(asked), End { result: 1, ..End::default() });
    assert_eq!(admin.end(shutdown), None, "the write is at the device");
    assert_eq!(queue.wait(write).status, 0);
    queue.poll();
    assert_eq!(admin.wait(shutdown), End::default());
    assert_eq!(admin.property(CSTS, false) >> 2 & 3, 2, "shut down");
}
