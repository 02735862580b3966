//! Test host: builds commands and decodes PDUs of a controller. Its link is a connection without a
//! socket, or a socket.

// Each test program uses part of this.
#![allow(dead_code, unused_imports)]

pub mod ask;
pub mod link;
pub mod odd;

pub use link::{Direct, Link, Socket};
use std::net::SocketAddr;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};
use zonal_io::device::Device;
use zonal_io::registry::Registry;
use zonal_io::volume::{Volume, VolumeOptions, WriteMode};
use zonal_nvme::subsystem::{Target, TargetOptions};
use zonal_nvme::wire::{
    CommonHeader, Cqe, DataHeader, IcReq, PduKind, R2t, Sgl, Sqe, admin, data_flags, digest, fabrics,
};

pub const UUID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";
pub const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8";
const CONTROLLER: u16 = 0xFFFF;

pub fn target(device: &str) -> Arc<Target> {
    target_with(device, options())
}

pub fn target_with(device: &str, options: TargetOptions) -> Arc<Target> {
    Arc::new(Target::new(volume(device), options).unwrap())
}

/// Target on a volume with this write mode.
pub fn target_in(device: &str, mode: WriteMode) -> Arc<Target> {
    let options = VolumeOptions::default().with_mode(mode).with_force(true).without_park().without_budget();
    let volume = Volume::open(Registry::default().open(device).unwrap(), options).unwrap();
    Arc::new(Target::new(Arc::new(volume), self::options()).unwrap())
}

pub fn target_of(device: Arc<dyn Device>) -> Arc<Target> {
    Arc::new(Target::new(volume_of(device), options()).unwrap())
}

pub fn volume(device: &str) -> Arc<Volume> {
    volume_of(Registry::default().open(device).unwrap())
}

/// Opens a volume with the options of `zonal serve`.
fn volume_of(device: Arc<dyn Device>) -> Arc<Volume> {
    let options = VolumeOptions::default().without_park().without_budget();
    Arc::new(Volume::open(device, options).unwrap())
}

pub fn options() -> TargetOptions {
    TargetOptions::new(UUID.parse().unwrap())
}

/// Result of a command.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// Status as printed by hosts.
    pub status: u16,
    pub result: u64,
    pub data: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
pub struct Digests {
    pub header: bool,
    pub data: bool,
}

/// Queue of a host.
pub struct Queue<L = Direct> {
    pub link: L,
    digests: Digests,
    is_open: bool,
    received: Vec<u8>,
    ends: Vec<(u16, End)>,
    partial: Vec<(u16, Vec<u8>)>,
    payloads: Vec<(u16, Vec<u8>)>,
    last: u16,
    /// Withhold requested data.
    pub holds_data: bool,
    held: Vec<R2t>,
    /// Controller number, once connected.
    controller: u16,
    /// Reason of a termination by the controller.
    pub terminated: Option<u16>,
}

pub fn address() -> SocketAddr {
    "127.0.0.1:4420".parse().unwrap()
}

pub fn sqe(opcode: u8, nsid: u32, cdw: [u32; 6]) -> Sqe {
    Sqe::new(opcode, nsid, cdw)
}

/// Connect command for queue `qid` with zero-based size `last_entry`.
pub fn connect_command(qid: u16, last_entry: u16, controller: u16, nqn: &str) -> (Sqe, Vec<u8>) {
    const FLOW_CONTROL: u32 = 1 << 18;
    let mut data = vec![0; 1024];
    data[..16].fill(7);
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    data[256..256 + nqn.len()].copy_from_slice(nqn.as_bytes());
    data[512..530].copy_from_slice(b"nqn.2020-01.a:host");
    let cdw = [u32::from(qid) << 16, u32::from(last_entry) | FLOW_CONTROL, 10_000, 0, 0, 0];
    (sqe(fabrics::OPCODE, fabrics::CONNECT.into(), cdw).with_capsule(1024), data)
}

impl Queue {
    /// Admin queue of a new, enabled controller.
    pub fn admin(target: &Arc<Target>) -> Queue {
        Queue::admin_with(target, Digests::default(), NQN)
    }

    pub fn admin_with(target: &Arc<Target>, digests: Digests, nqn: &str) -> Queue {
        Queue::admin_over(Direct::new(target), digests, nqn)
    }

    /// Open connection.
    pub fn open(target: &Arc<Target>, digests: Digests) -> Queue {
        Queue::open_over(Direct::new(target), digests)
    }
}

impl<L: Link> Queue<L> {
    /// New connection before negotiation.
    pub fn raw(link: L, digests: Digests) -> Queue<L> {
        Queue {
            link,
            digests,
            is_open: false,
            received: Vec::new(),
            ends: Vec::new(),
            partial: Vec::new(),
            payloads: Vec::new(),
            last: 0,
            holds_data: false,
            held: Vec::new(),
            controller: 0,
            terminated: None,
        }
    }

    pub fn open_over(link: L, digests: Digests) -> Queue<L> {
        let mut queue = Queue::raw(link, digests);
        let request = IcReq {
            common: CommonHeader { kind: 0, flags: 0, header_len: 128, data_offset: 0, len: 128.into() },
            format: 0.into(),
            alignment: 0,
            digests: u8::from(digests.header) | u8::from(digests.data) << 1,
            r2t_max: 0.into(),
            reserved: [0; 112],
        };
        queue.send(request.as_bytes());
        queue.wait_until(|queue| queue.received.len() >= 128);
        assert_eq!(queue.received[0], PduKind::IcResp as u8);
        queue.received.drain(..128);
        queue.is_open = true;
        queue
    }

    pub fn admin_over(link: L, digests: Digests, nqn: &str) -> Queue<L> {
        let mut queue = Queue::open_over(link, digests);
        let end = queue.connect(0, CONTROLLER, nqn);
        assert_eq!(end.status, 0, "{end:?}");
        queue.set_property(0x14, 0x0046_0061);
        assert_eq!(queue.property(0x1C, false), 1);
        queue
    }

    /// I/O queue of the same controller.
    pub fn io(&self, qid: u16) -> Queue<L> {
        let mut queue = Queue::open_over(self.link.another(), self.digests);
        let end = queue.connect(qid, self.controller, NQN);
        assert_eq!(end.status, 0, "{end:?}");
        queue
    }

    /// Controller number.
    pub fn controller(&self) -> u16 {
        self.controller
    }

    pub fn connect(&mut self, qid: u16, controller: u16, nqn: &str) -> End {
        let (command, data) = connect_command(qid, 31, controller, nqn);
        let end = self.call(command, &data);
        self.controller = end.result as u16;
        end
    }

    pub fn property(&mut self, offset: u32, is_long: bool) -> u64 {
        let command =
            sqe(fabrics::OPCODE, fabrics::PROPERTY_GET.into(), [u32::from(is_long), offset, 0, 0, 0, 0]);
        let end = self.call(command, &[]);
        assert_eq!(end.status, 0);
        end.result
    }

    pub fn set_property(&mut self, offset: u32, value: u32) {
        let command = sqe(fabrics::OPCODE, fabrics::PROPERTY_SET.into(), [0, offset, value, 0, 0, 0]);
        assert_eq!(self.call(command, &[]).status, 0);
    }

    pub fn identify(&mut self, cns: u8, set: u8, nsid: u32) -> End {
        let command =
            self.with_room(sqe(admin::IDENTIFY, nsid, [cns.into(), u32::from(set) << 24, 0, 0, 0, 0]), 4096);
        self.call(command, &[])
    }

    pub fn with_room(&self, mut command: Sqe, len: u32) -> Sqe {
        command.data.len = len.into();
        command
    }

    /// Sends a command with in-capsule data, or data on request. Returns the identifier.
    pub fn submit(&mut self, command: Sqe, payload: &[u8]) -> u16 {
        let (cid, bytes) = self.capsule(command, payload);
        self.send(&bytes);
        cid
    }

    /// Encodes a command for the caller to send, with its identifier.
    pub fn capsule(&mut self, mut command: Sqe, payload: &[u8]) -> (u16, Vec<u8>) {
        self.last = self.last.wrapping_add(1) % 0x7FFF;
        command.cid = self.last.into();
        let is_in_capsule = command.data.kind == Sgl::IN_CAPSULE;
        let data: &[u8] = if is_in_capsule { payload } else { &[] };
        if !is_in_capsule {
            self.payloads.push((self.last, payload.to_vec()));
        }
        (self.last, self.unit(PduKind::Command, 72, command.as_bytes(), data))
    }

    /// Builds a PDU with its digests.
    pub fn unit(&self, kind: PduKind, header_len: usize, header: &[u8], data: &[u8]) -> Vec<u8> {
        let digests = if self.is_open { self.digests } else { Digests::default() };
        let header_digest = if digests.header { 4 } else { 0 };
        let data_digest = if digests.data && !data.is_empty() { 4 } else { 0 };
        let offset = header_len + header_digest;
        let common = CommonHeader {
            kind: kind as u8,
            flags: if digests.header { data_flags::HEADER_DIGEST } else { 0 }
                | if data_digest > 0 { data_flags::DATA_DIGEST } else { 0 }
                | if kind == PduKind::HostData { data_flags::LAST } else { 0 },
            header_len: header_len as u8,
            data_offset: if data.is_empty() { 0 } else { offset as u8 },
            len: ((offset + data.len() + data_digest) as u32).into(),
        };
        let mut bytes = common.as_bytes().to_vec();
        bytes.extend_from_slice(header);
        if digests.header {
            let told = digest(&bytes);
            bytes.extend_from_slice(&told.to_le_bytes());
        }
        bytes.extend_from_slice(data);
        if data_digest > 0 {
            bytes.extend_from_slice(&digest(data).to_le_bytes());
        }
        bytes
    }

    /// Delivers bytes and processes the output.
    pub fn send(&mut self, bytes: &[u8]) {
        self.link.send(bytes);
        self.take_output();
    }

    /// Drives the peer and processes its output.
    pub fn poll(&mut self) {
        self.link.poll();
        self.take_output();
    }

    fn take_output(&mut self) {
        self.link.take(&mut self.received);
        while self.is_open && self.take_unit() {}
    }

    fn take_unit(&mut self) -> bool {
        let Ok((common, _)) = CommonHeader::read_from_prefix(&self.received) else { return false };
        let len = common.len.get() as usize;
        if self.received.len() < len {
            return false;
        }
        let unit: Vec<u8> = self.received.drain(..len).collect();
        if common.flags & data_flags::HEADER_DIGEST != 0 {
            let header = usize::from(common.header_len);
            assert_eq!(digest(&unit[..header]).to_le_bytes(), unit[header..header + 4]);
        }
        match PduKind::of(common.kind).unwrap() {
            PduKind::Response => {
                let (cqe, _) = Cqe::read_from_prefix(&unit[8..]).unwrap();
                self.note(cqe.cid.get(), cqe.status.get() >> 1, cqe.result.get());
            }
            PduKind::ControllerData => {
                let (header, _) = DataHeader::read_from_prefix(&unit).unwrap();
                let at = usize::from(common.data_offset);
                let data = unit[at..at + header.len.get() as usize].to_vec();
                if common.flags & data_flags::DATA_DIGEST != 0 {
                    assert_eq!(digest(&data).to_le_bytes(), unit[len - 4..]);
                }
                self.partial.push((header.command.get(), data));
                if common.flags & data_flags::SUCCESS != 0 {
                    self.note(header.command.get(), 0, 0);
                }
            }
            PduKind::R2t => {
                let (r2t, _) = R2t::read_from_prefix(&unit).unwrap();
                match self.holds_data {
                    true => self.held.push(r2t),
                    false => self.send_data(r2t),
                }
            }
            PduKind::ControllerTerm => {
                self.terminated = Some(u16::from_le_bytes([unit[8], unit[9]]));
            }
            kind => panic!("{kind:?}"),
        }
        true
    }

    /// Sends the withheld data.
    pub fn send_held_data(&mut self) {
        for r2t in std::mem::take(&mut self.held) {
            self.send_data(r2t);
        }
    }

    /// Sends data that the controller has requested.
    fn send_data(&mut self, r2t: R2t) {
        let cid = r2t.command.get();
        let place = self.payloads.iter().position(|(other, _)| *other == cid).unwrap();
        let payload = self.payloads[place].1.clone();
        assert_eq!(r2t.len.get() as usize, payload.len());
        // In two PDUs, as hosts may.
        let (first, second) = payload.split_at(payload.len() / 1024 * 512);
        for (offset, data) in [(0, first), (first.len(), second)] {
            if data.is_empty() {
                continue;
            }
            let header = DataHeader {
                common: CommonHeader::read_from_bytes(&[0; 8]).unwrap(),
                command: r2t.command,
                transfer: r2t.transfer,
                offset: (offset as u32).into(),
                len: (data.len() as u32).into(),
                reserved: [0; 4],
            };
            let bytes = self.unit(PduKind::HostData, 24, &header.as_bytes()[8..], data);
            self.send(&bytes);
        }
    }

    fn note(&mut self, cid: u16, status: u16, result: u64) {
        let place = self.partial.iter().position(|(other, _)| *other == cid);
        let data = place.map(|place| self.partial.remove(place).1).unwrap_or_default();
        self.ends.push((cid, End { status, result, data }));
    }

    /// Takes the result of a command, if complete.
    pub fn end(&mut self, cid: u16) -> Option<End> {
        let place = self.ends.iter().position(|(other, _)| *other == cid)?;
        Some(self.ends.remove(place).1)
    }

    /// Waits for a command to complete.
    pub fn wait(&mut self, cid: u16) -> End {
        self.wait_until(|queue| queue.ends.iter().any(|(other, _)| *other == cid));
        self.end(cid).unwrap()
    }

    fn wait_until(&mut self, has_come: impl Fn(&Self) -> bool) {
        for _ in 0..10_000 {
            if has_come(self) {
                return;
            }
            self.poll();
        }
        panic!("the controller has not answered; the connection ended with {:?}", self.terminated);
    }

    pub fn call(&mut self, command: Sqe, payload: &[u8]) -> End {
        let cid = self.submit(command, payload);
        self.wait(cid)
    }
}
