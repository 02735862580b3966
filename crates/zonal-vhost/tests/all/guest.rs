//! Guest: memory in a file, with the driver side of rings. Accesses the file by reads and writes,
//! like another process.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use zerocopy::IntoBytes;
use zonal_io::registry::Registry;
use zonal_io::volume::{Volume, VolumeOptions};
use zonal_scsi::{Disk, DiskOptions};
use zonal_vhost::memory::{Memory, Region};
use zonal_vhost::ring::RingSetup;
use zonal_vhost::wire::message::MemoryRegion;
use zonal_vhost::wire::ring::{Descriptor, INDIRECT, NEXT, WRITE, available_event_at, used_event_at};
use zonal_vhost::wire::scsi::{CommandHeader, HEADER_LEN, RESPONSE_LEN};

/// Size of each of two regions. Their order in the file is reversed.
pub const REGION: u64 = 4 << 20;
/// Guest-physical addresses of the regions.
pub const LOW: u64 = 0x10_0000;
pub const HIGH: u64 = 0x1_0000_0000;
/// Addresses in the front end.
const USER_LOW: u64 = 0x7F00_0000_0000;
const USER_HIGH: u64 = 0x7E00_0000_0000;

/// Location for the data of requests.
pub const DATA: u64 = HIGH;
/// Descriptors of a driver's ring.
pub const NUM: u16 = 16;

const READ_16: u8 = 0x88;
const WRITE_16: u8 = 0x8A;

pub fn region(guest: u64, user: u64, offset: u64) -> MemoryRegion {
    MemoryRegion { guest: guest.into(), len: REGION.into(), user: user.into(), offset: offset.into() }
}

/// Creates a file of `len` zero bytes.
pub fn file_of(len: u64) -> OwnedFd {
    let file = memfd_create("file", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, len).unwrap();
    file
}

/// Creates a file that does not support seals, so it can be truncated.
pub fn unsealed_file_of(len: u64) -> OwnedFd {
    let file = memfd_create("file", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, len).unwrap();
    file
}

/// Memory of a guest.
pub struct Guest {
    pub file: OwnedFd,
}

impl Guest {
    pub fn new() -> Arc<Guest> {
        Arc::new(Guest { file: file_of(2 * REGION) })
    }

    pub fn regions() -> [MemoryRegion; 2] {
        [region(LOW, USER_LOW, REGION), region(HIGH, USER_HIGH, 0)]
    }

    pub fn memory(&self) -> Rc<Memory> {
        let map = |memory: Memory, region| memory.with(Region::new(&region, &self.file).unwrap()).unwrap();
        Rc::new(Guest::regions().into_iter().fold(Memory::default(), map))
    }

    fn offset(address: u64) -> u64 {
        if address >= HIGH { address - HIGH } else { address - LOW + REGION }
    }

    pub fn write(&self, address: u64, bytes: &[u8]) {
        assert_eq!(pwrite(&self.file, bytes, Guest::offset(address)), Ok(bytes.len()));
    }

    pub fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert_eq!(pread(&self.file, &mut bytes[..], Guest::offset(address)), Ok(len));
        bytes
    }

    pub fn u16(&self, address: u64) -> u16 {
        u16::from_le_bytes(self.read(address, 2).try_into().unwrap())
    }

    pub fn u32(&self, address: u64) -> u32 {
        u32::from_le_bytes(self.read(address, 4).try_into().unwrap())
    }
}

pub fn descriptor(address: u64, len: u32, flags: u16, next: u16) -> Descriptor {
    Descriptor { address: address.into(), len: len.into(), flags: flags.into(), next: next.into() }
}

/// Result of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    pub status: u8,
    pub response: u8,
    pub residual: u32,
    pub sense: Vec<u8>,
    pub written: u32,
}

/// Driver side of a ring.
pub struct Driver {
    pub guest: Arc<Guest>,
    pub num: u16,
    pub event_idx: bool,
    base: u64,
    next: u16,
    next_descriptor: u16,
    seen: u16,
    pub kick: OwnedFd,
    pub call: OwnedFd,
}

impl Driver {
    /// Ring of queue `number`, starting at `index`.
    pub fn at(guest: &Arc<Guest>, number: u16, index: u16) -> Driver {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let [kick, call] = [0, 1].map(|_| eventfd(0, flags).unwrap());
        let base = LOW + 0x10_000 * u64::from(number);
        let (guest, event_idx) = (guest.clone(), true);
        let driver = Driver {
            guest,
            num: NUM,
            event_idx,
            base,
            next: index,
            next_descriptor: 0,
            seen: index,
            kick,
            call,
        };
        driver.guest.write(driver.available() + 2, &index.to_le_bytes());
        driver.guest.write(driver.used_ring() + 2, &index.to_le_bytes());
        driver
    }

    pub fn new(guest: &Arc<Guest>, number: u16) -> Driver {
        Driver::at(guest, number, 0)
    }

    pub fn table(&self) -> u64 {
        self.base
    }

    pub fn available(&self) -> u64 {
        self.base + 0x1000
    }

    pub fn used_ring(&self) -> u64 {
        self.base + 0x2000
    }

    /// Location of the header of the chain starting at `head`, followed by the response.
    fn request(&self, head: u16) -> u64 {
        self.base + 0x4000 + 0x200 * u64::from(head)
    }

    fn response_at(&self, head: u16) -> u64 {
        self.request(head) + 0x80
    }

    /// Space for an indirect table, for data in the low region, and for other needs of a test.
    pub fn room(&self) -> u64 {
        self.base + 0x8000
    }

    pub fn setup(&self) -> RingSetup {
        let user = |address: u64| address - LOW + USER_LOW;
        RingSetup {
            num: self.num,
            descriptors: user(self.table()),
            available: user(self.available()),
            used: user(self.used_ring()),
            base: self.next,
            event_idx: self.event_idx,
            indirect: true,
        }
    }

    pub fn set(&self, index: u16, descriptor: Descriptor) {
        self.guest.write(self.table() + 16 * u64::from(index), descriptor.as_bytes());
    }

    /// Writes a chain to the table, starting at the next free descriptor.
    pub fn chain(&mut self, parts: &[(u64, u32, u16)]) -> u16 {
        let head = self.next_descriptor;
        for (n, (address, len, flags)) in parts.iter().enumerate() {
            let index = (head + n as u16) % self.num;
            let next = (index + 1) % self.num;
            let flags = if n + 1 < parts.len() { flags | NEXT } else { *flags };
            self.set(index, descriptor(*address, *len, flags, next));
        }
        self.next_descriptor = (head + parts.len() as u16) % self.num;
        head
    }

    pub fn offer(&mut self, head: u16) {
        let entry = self.available() + 4 + 2 * u64::from(self.next % self.num);
        self.guest.write(entry, &head.to_le_bytes());
        self.next = self.next.wrapping_add(1);
        self.guest.write(self.available() + 2, &self.next.to_le_bytes());
    }

    pub fn kick(&self) {
        rustix::io::write(&self.kick, &1u64.to_ne_bytes()).unwrap();
    }

    /// True if the back end wants a notification for the entry before the next one.
    pub fn wants_kick(&self) -> bool {
        let event = self.guest.u16(self.used_ring() + available_event_at(self.num) as u64);
        !self.event_idx || event == self.next.wrapping_sub(1)
    }

    /// Requests an interrupt after `after` further entries.
    pub fn listen(&self, after: u16) {
        let event = self.seen.wrapping_add(after);
        self.guest.write(self.available() + used_event_at(self.num) as u64, &event.to_le_bytes());
    }

    pub fn used_index(&self) -> u16 {
        self.guest.u16(self.used_ring() + 2)
    }

    /// Next used entry: head and number of bytes.
    pub fn used(&mut self) -> Option<(u16, u32)> {
        if self.used_index() == self.seen {
            return None;
        }
        let entry = self.used_ring() + 4 + 8 * u64::from(self.seen % self.num);
        self.seen = self.seen.wrapping_add(1);
        Some((self.guest.u32(entry) as u16, self.guest.u32(entry + 4)))
    }

    /// True if an interrupt was signalled since the last call.
    pub fn was_called(&self) -> bool {
        rustix::io::read(&self.call, &mut [0; 8]).is_ok()
    }

    /// Waits for the next used entry, by interrupts only.
    pub fn wait(&mut self) -> (u16, u32) {
        let since = std::time::Instant::now();
        loop {
            self.listen(0);
            if let Some(used) = self.used() {
                return used;
            }
            let timeout = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
            let mut polled = [rustix::event::PollFd::new(&self.call, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut polled, Some(&timeout)).unwrap();
            self.was_called();
            assert!(since.elapsed().as_secs() < 20, "no answer: {} used", self.used_index());
        }
    }

    /// Makes a command available, with data in these pieces. Returns its head.
    pub fn command(&mut self, tag: u64, cdb: &[u8], out: &[(u64, u32)], into: &[(u64, u32)]) -> u16 {
        self.command_to([1, 0, 0x40, 0, 0, 0, 0, 0], tag, cdb, out, into)
    }

    pub fn command_to(
        &mut self,
        lun: [u8; 8],
        tag: u64,
        cdb: &[u8],
        out: &[(u64, u32)],
        into: &[(u64, u32)],
    ) -> u16 {
        let head = self.next_descriptor;
        let parts = self.parts(head, lun, tag, cdb, out, into);
        assert_eq!(self.chain(&parts), head);
        self.offer(head);
        head
    }

    fn parts(
        &self,
        head: u16,
        lun: [u8; 8],
        tag: u64,
        cdb: &[u8],
        out: &[(u64, u32)],
        into: &[(u64, u32)],
    ) -> Vec<(u64, u32, u16)> {
        let mut header =
            CommandHeader { lun, tag: tag.into(), attribute: 0, priority: 0, crn: 0, cdb: [0; 32] };
        header.cdb[..cdb.len()].copy_from_slice(cdb);
        self.guest.write(self.request(head), header.as_bytes());
        self.guest.write(self.response_at(head), &[0xEE; RESPONSE_LEN]);
        let mut parts = vec![(self.request(head), HEADER_LEN as u32, 0)];
        parts.extend(out.iter().map(|(address, len)| (*address, *len, 0)));
        parts.push((self.response_at(head), RESPONSE_LEN as u32, WRITE));
        parts.extend(into.iter().map(|(address, len)| (*address, *len, WRITE)));
        parts
    }

    /// Makes a command available through an indirect table in [`Driver::room`]. Returns its head.
    pub fn indirect_command(&mut self, tag: u64, cdb: &[u8], out: &[(u64, u32)], into: &[(u64, u32)]) -> u16 {
        let head = self.next_descriptor;
        let parts = self.parts(head, [1, 0, 0x40, 0, 0, 0, 0, 0], tag, cdb, out, into);
        let table = self.room() + 0x400 * u64::from(head);
        for (n, (address, len, flags)) in parts.iter().enumerate() {
            let flags = if n + 1 < parts.len() { flags | NEXT } else { *flags };
            self.guest
                .write(table + 16 * n as u64, descriptor(*address, *len, flags, n as u16 + 1).as_bytes());
        }
        assert_eq!(self.chain(&[(table, 16 * parts.len() as u32, INDIRECT)]), head);
        self.offer(head);
        head
    }

    pub fn response(&self, head: u16, written: u32) -> Response {
        let bytes = self.guest.read(self.response_at(head), RESPONSE_LEN);
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        Response {
            status: bytes[10],
            response: bytes[11],
            residual: number(4),
            sense: bytes[12..12 + number(0) as usize].to_vec(),
            written,
        }
    }

    /// Next answer, with a server running.
    pub fn answer(&mut self) -> (u16, Response) {
        let (head, written) = self.wait();
        (head, self.response(head, written))
    }

    /// Makes a request of the control queue available, with `room` bytes for the response. Returns
    /// the location of the response.
    pub fn control(&mut self, request: &[u8], room: u32) -> u64 {
        let head = self.next_descriptor;
        let (from, to) = (self.request(head), self.response_at(head));
        self.guest.write(from, request);
        self.guest.write(to, &[0xEE; 8]);
        assert_eq!(self.chain(&[(from, request.len() as u32, 0), (to, room, WRITE)]), head);
        self.offer(head);
        to
    }
}

/// READ(16) and WRITE(16) of blocks of 4 KiB.
pub fn read(lba: u64, blocks: u32) -> Vec<u8> {
    transfer(READ_16, lba, blocks)
}

pub fn write(lba: u64, blocks: u32) -> Vec<u8> {
    transfer(WRITE_16, lba, blocks)
}

fn transfer(code: u8, lba: u64, blocks: u32) -> Vec<u8> {
    let mut cdb = vec![0; 16];
    cdb[0] = code;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// Task management function.
pub fn management(function: u32, tag: u64) -> Vec<u8> {
    let mut request = vec![0; 24];
    request[4..8].copy_from_slice(&function.to_le_bytes());
    request[8..16].copy_from_slice(&[1, 0, 0x40, 0, 0, 0, 0, 0]);
    request[16..24].copy_from_slice(&tag.to_le_bytes());
    request
}

pub fn disk(device: &str) -> Arc<Disk> {
    let options = VolumeOptions::default().without_park().without_budget();
    let volume = Volume::open(Registry::default().open(device).unwrap(), options).unwrap();
    let identity = "67e55044-10b1-426f-9247-bb680e5fe0c8".parse().unwrap();
    Arc::new(Disk::new(Arc::new(volume), DiskOptions::new(identity)).unwrap())
}

/// Zones of 1 MiB, the first one conventional. Requests at the device complete when the volume is
/// polled.
pub const DEVICE: &str = "ram:size=64M,zone_size=1M,zone_nr_conv=1,complete=poll,blocksize=4096";
