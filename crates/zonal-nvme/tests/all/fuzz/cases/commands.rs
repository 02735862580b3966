//! Commands of cases: mostly valid ones, with an occasional wrong field.

use super::choices::Choices;
use super::drive::{NQN, Shape};
use zerocopy::FromBytes;
use zonal_nvme::subsystem::DISCOVERY_NQN;
use zonal_nvme::wire::{Sgl, Sqe, admin, fabrics, io};

/// Command with its data from the host.
pub type Made = (Sqe, Vec<u8>);

/// Longest payload of a case: close to the maximum of a command.
const PAYLOAD_MAX: u32 = 1 << 20;

/// Adds data from the host, in the capsule if it fits and is chosen.
fn with_payload(choices: &mut Choices<'_>, mut command: Sqe, len: u32) -> Made {
    command.data.len = len.into();
    let is_in_capsule = len <= 8192 && choices.is(128);
    if is_in_capsule {
        command.data.kind = Sgl::IN_CAPSULE;
    }
    (command, vec![choices.byte(); len as usize])
}

pub fn connect(choices: &mut Choices<'_>, qid: u16, controller: u16) -> Made {
    let entries = choices.one_of(&[32u32, 4, 128, 4096]);
    let entries = if qid > 0 { entries.min(128) } else { entries };
    let flags = if choices.is(128) { 1 << 18 } else { 0 };
    let keep_alive = choices.one_of(&[0, 10_000, 1, 3_600_000]);
    let nqn = if choices.is(8) { DISCOVERY_NQN } else { NQN };
    let mut data = vec![0; 1024];
    data[..16].fill(7);
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    data[256..256 + nqn.len()].copy_from_slice(nqn.as_bytes());
    data[512..530].copy_from_slice(b"nqn.2020-01.a:host");
    let cdw = [u32::from(qid) << 16, (entries - 1) | flags, keep_alive, 0, 0, 0];
    let mut command = Sqe::new(fabrics::OPCODE, fabrics::CONNECT.into(), cdw);
    (command.data.kind, command.data.len) = (Sgl::IN_CAPSULE, 1024.into());
    if choices.is(24) {
        // A wrong field.
        match choices.below(4) {
            0 => command.cdw[0] = choices.number().into(),
            1 => command.cdw[1] = choices.number().into(),
            2 => command.data.len = choices.number().into(),
            _ => data[choices.below(1024) as usize] = choices.byte(),
        }
    }
    (command, data)
}

pub fn enable(value: u32) -> Made {
    let cdw = [0, 0x14, value, 0, 0, 0];
    (Sqe::new(fabrics::OPCODE, fabrics::PROPERTY_SET.into(), cdw), Vec::new())
}

/// Command for an admin queue.
pub fn admin(choices: &mut Choices<'_>) -> Made {
    let number = choices.number();
    let nsid = choices.one_of(&[0, 1, 2, 3, u32::MAX]);
    let len = choices.one_of(&[4096u32, 512, 16, 1 << 20, 0]);
    let mut command = match choices.below(12) {
        0 => enable(choices.one_of(&[0x0046_0061, 0, 0x0046_4061, number])).0,
        1 => Sqe::new(fabrics::OPCODE, choices.below(10), [number & 1, choices.below(0x80), number, 0, 0, 0]),
        2 | 3 => Sqe::new(admin::IDENTIFY, nsid, [number & 0x1F, (number >> 8 & 2) << 24, 0, 0, 0, 0]),
        4 | 5 => {
            let page = choices.one_of(&[0u32, 1, 2, 3, 4, 5, 0x70, 0xBF]);
            let dwords = len / 4;
            let cdw = [page | dwords.saturating_sub(1) << 16, dwords >> 16, number & 0xFFF, 0, 2 << 24, 0];
            Sqe::new(admin::GET_LOG_PAGE, nsid, cdw)
        }
        6 => Sqe::new(admin::ASYNC_EVENT_REQUEST, 0, [0; 6]),
        7 => Sqe::new(
            admin::SET_FEATURES,
            nsid,
            [choices.one_of(&[0x0B, 0x0F, 7, 6, 0x81, number]), number, 0, 0, 0, 0],
        ),
        8 => Sqe::new(
            admin::GET_FEATURES,
            nsid,
            [choices.one_of(&[0x0B, 0x0F, 7, 6, 0x81, number]), 0, 0, 0, 0, 0],
        ),
        9 => Sqe::new(admin::ABORT, 0, [number, 0, 0, 0, 0, 0]),
        10 => Sqe::new(admin::KEEP_ALIVE, 0, [0; 6]),
        _ => Sqe::new(choices.byte(), nsid, [number; 6]),
    };
    let is_host_identifier = command.opcode == admin::SET_FEATURES && command.cdw[0].get() as u8 == 0x81;
    if is_host_identifier {
        return with_payload(choices, command, 16);
    }
    command.data.len = len.into();
    (command, Vec::new())
}

/// Command for an I/O queue.
pub fn io(choices: &mut Choices<'_>, shape: &Shape) -> Made {
    let place = usize::from(choices.is(48));
    let zones = shape.zones[place] + u32::from(choices.is(16));
    let zone = choices.below(zones) * shape.zone;
    let blocks = match choices.is(16) {
        true => choices.below(PAYLOAD_MAX / shape.block) + 1,
        false => choices.below(8) + 1,
    };
    let nsid = if choices.is(4) { choices.number() } else { place as u32 + 1 };
    let at = zone + choices.below(shape.zone);
    let flags = if choices.is(64) { 1 << 30 } else { 0 };
    let mut made = match choices.below(16) {
        // At or near the start of the zone, often at the write pointer.
        0..=4 => {
            let at = zone + choices.below(4) * blocks;
            let command = Sqe::new(io::WRITE, nsid, [at, 0, (blocks - 1) | flags, 0, 0, 0]);
            with_payload(choices, command, blocks * shape.block)
        }
        5 | 6 => {
            let command = Sqe::new(io::ZONE_APPEND, nsid, [zone, 0, (blocks - 1) | flags, 0, 0, 0]);
            with_payload(choices, command, blocks * shape.block)
        }
        7..=9 => {
            let mut command = Sqe::new(io::READ, nsid, [at, 0, blocks - 1, 0, 0, 0]);
            command.data.len = (blocks * shape.block).into();
            (command, Vec::new())
        }
        10 => (Sqe::new(io::WRITE_ZEROES, nsid, [zone, 0, (blocks - 1) | flags, 0, 0, 0]), Vec::new()),
        11 => (Sqe::new(io::FLUSH, choices.one_of(&[nsid, u32::MAX]), [0; 6]), Vec::new()),
        12 | 13 => {
            let all = if choices.is(64) { 1 << 8 } else { 0 };
            let action = choices.one_of(&[4u32, 1, 2, 3, 5, 0x10, 0]);
            (Sqe::new(io::ZONE_MANAGEMENT_SEND, nsid, [zone, 0, 0, action | all, 0, 0]), Vec::new())
        }
        14 => {
            let dwords = choices.one_of(&[1024u32, 16, 32, 1, 262_144]);
            let options = choices.number() & 0x1_0703;
            let mut command = Sqe::new(io::ZONE_MANAGEMENT_RECEIVE, nsid, [at, 0, dwords - 1, options, 0, 0]);
            command.data.len = (dwords * 4).into();
            (command, Vec::new())
        }
        _ => {
            let ranges = choices.below(4) + 1;
            let len = choices.one_of(&[ranges * 16, 4096]);
            let command = Sqe::new(io::DATASET_MANAGEMENT, nsid, [ranges - 1, choices.below(8), 0, 0, 0, 0]);
            let (command, mut data) = with_payload(choices, command, len);
            let some = choices.take(data.len().min(32));
            data[..some.len()].copy_from_slice(some);
            (command, data)
        }
    };
    if choices.is(16) {
        spoil(choices, &mut made.0);
    }
    made
}

/// Introduces an error into a command. Its data keeps its length.
fn spoil(choices: &mut Choices<'_>, command: &mut Sqe) {
    match choices.below(6) {
        0 => command.flags = choices.byte(),
        1 => command.data.len = choices.number().into(),
        2 => command.data.address = u64::from(choices.number()).into(),
        3 => command.cdw[choices.below(6) as usize] = choices.number().into(),
        4 => command.opcode = choices.byte(),
        _ => command.nsid = choices.number().into(),
    }
}

/// Arbitrary 64 bytes. Data is in the capsule if the data pointer says so.
pub fn any(choices: &mut Choices<'_>) -> Made {
    let mut bytes = [0; 64];
    let some = choices.take(64);
    bytes[..some.len()].copy_from_slice(some);
    let mut command = Sqe::read_from_bytes(&bytes).expect("64 bytes");
    if choices.is(192) {
        command.flags = 0x40;
    }
    match command.data.kind == Sgl::IN_CAPSULE {
        true => {
            let len = command.data.len.get() % 8193;
            command.data.len = len.into();
            (command, vec![1; len as usize])
        }
        false => (command, vec![2; command.data.len.get().min(PAYLOAD_MAX) as usize]),
    }
}
