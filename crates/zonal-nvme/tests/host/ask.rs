//! Shorthands for commands to a drive with zones of 1024 blocks.

use super::{End, Queue, sqe};
use zerocopy::FromBytes;
use zonal_core::ZoneIndex;
use zonal_io::changes::ZoneSetting;
use zonal_nvme::subsystem::Target;
use zonal_nvme::wire::{GetLogPage, ReportedZone, Sqe, ZoneReceive, ZoneSend, io};

/// Zones of 1024 blocks with a capacity of 768.
pub const RAM: &str = "ram:size=64M,zone_size=4M,zone_capacity=3M,zone_max_open=2,zone_max_active=3,complete=poll,blocksize=4096";
pub const ZONE: u32 = 1024;
pub const CAPACITY: u32 = 768;

pub fn transfer(opcode: u8, lba: u32, blocks: u32) -> (Sqe, Vec<u8>) {
    let mut command = sqe(opcode, 1, [lba, 0, blocks - 1, 0, 0, 0]);
    command.data.len = (blocks * 4096).into();
    (command, vec![(lba as u8).wrapping_add(1); (blocks * 4096) as usize])
}

pub fn run(queue: &mut Queue, opcode: u8, lba: u32, blocks: u32) -> u16 {
    let (command, data) = transfer(opcode, lba, blocks);
    queue.call(command, &data).status
}

pub fn write(queue: &mut Queue, lba: u32, blocks: u32) -> u16 {
    run(queue, io::WRITE, lba, blocks)
}

pub fn append(queue: &mut Queue, lba: u32, blocks: u32) -> u16 {
    run(queue, io::ZONE_APPEND, lba, blocks)
}

pub fn without_data(queue: &mut Queue, opcode: u8, lba: u32, blocks: u32) -> u16 {
    queue.call(sqe(opcode, 1, [lba, 0, blocks - 1, 0, 0, 0]), &[]).status
}

pub fn send_zone(queue: &mut Queue, send: ZoneSend) -> u16 {
    let mut command = sqe(0, 1, [0; 6]);
    send.emit(&mut command);
    queue.call(command, &[]).status
}

pub fn act(queue: &mut Queue, zone: u32, action: u8) -> u16 {
    send_zone(queue, ZoneSend { lba: u64::from(zone * ZONE), action, is_all: false })
}

pub fn act_on_all(queue: &mut Queue, action: u8) -> u16 {
    // The address is ignored.
    send_zone(queue, ZoneSend { lba: 77, action, is_all: true })
}

pub fn receive(queue: &mut Queue, receive: ZoneReceive) -> End {
    let mut command = sqe(0, 1, [0; 6]);
    receive.emit(&mut command);
    command.data.len = u32::try_from(receive.len).unwrap().into();
    queue.call(command, &[])
}

/// Structure at the start of a page.
pub fn read<T: FromBytes>(page: &[u8]) -> T {
    T::read_from_prefix(page).unwrap().0
}

/// Namespace list, up to the first zero.
pub fn namespaces(page: &[u8]) -> Vec<u32> {
    let numbers = page.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
    numbers.take_while(|nsid| *nsid != 0).collect()
}

pub fn report(queue: &mut Queue) -> Vec<ReportedZone> {
    let all = receive(queue, ZoneReceive { lba: 0, len: 64 * 17, action: 0, option: 0, is_partial: true });
    <[ReportedZone]>::ref_from_bytes(&all.data[64..]).unwrap().to_vec()
}

pub fn states(queue: &mut Queue) -> Vec<u8> {
    report(queue).iter().map(|zone| zone.state >> 4).collect()
}

pub fn log(admin: &mut Queue, log: GetLogPage) -> End {
    let mut command = sqe(0, 0, [0; 6]);
    log.emit(&mut command);
    let command = admin.with_room(command, log.len as u32);
    admin.call(command, &[])
}

pub fn page(admin: &mut Queue, lid: u8, csi: u8, nsid: u32) -> Vec<u8> {
    let end = log(admin, GetLogPage { lid, len: 4096, offset: 0, csi, retains: false, nsid });
    assert_eq!(end.status, 0, "log {lid:02x}");
    end.data
}

pub fn feature(admin: &mut Queue, opcode: u8, number: u32, value: u32) -> End {
    admin.call(sqe(opcode, 0, [number, value, 0, 0, 0, 0]), &[])
}

pub fn set(target: &Target, zone: u32, to: ZoneSetting) {
    target.volume().device().set_zone(ZoneIndex(zone), to).unwrap();
}
