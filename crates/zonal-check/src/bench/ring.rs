//! A guest's memory with one ring of requests, and the minimum of a driver: to count the
//! instructions of their device.

use super::path::SECTORS;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use zonal_scsi::{Cdb, status};
use zonal_vhost::memory::{Area, Memory, Region, map_area};
use zonal_vhost::ring::{InflightQueue, RingSetup, queue_len};
use zonal_vhost::wire::message::MemoryRegion;
use zonal_vhost::wire::ring::{
    AVAILABLE_ENTRY, DESCRIPTOR_LEN, ENTRIES, INDEX, INDIRECT, NEXT, USED_ENTRY, WRITE, used_event_at,
};
use zonal_vhost::wire::scsi::{HEADER_LEN, RESPONSE_LEN};

/// Descriptors of a guest's ring, as in QEMU.
const NUM: u16 = 256;

/// Addresses of the parts of a ring, of the headers, tables and responses of requests, and of their
/// data.
const TABLE: u64 = 0;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const REQUESTS: u64 = 0x4000;
const DATA: u64 = 0x1_0000;

/// Bytes of a request without its data, and the offsets of its table and response.
const REQUEST_LEN: u64 = 0x200;
const TABLE_AT: u64 = 0x80;
const RESPONSE_AT: u64 = 0x100;

/// Offset of the status in a response.
const STATUS_AT: u64 = 10;

/// A status that no request ends with.
const NO_STATUS: u8 = 0xEE;

const RELAXED: Ordering = Ordering::Relaxed;

/// Driver of a guest, with an indirect table for each request, like that of Linux.
pub(super) struct Driver {
    area: Area,
    next: u16,
    seen: u16,
}

fn file_of(len: usize) -> io::Result<std::os::fd::OwnedFd> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("guest", flags)?;
    rustix::fs::ftruncate(&file, len as u64)?;
    Ok(file)
}

impl Driver {
    /// Creates the driver and its memory, with everything filled in but the commands of requests.
    pub(super) fn new(is_read: bool, depth: u16) -> Option<(Rc<Memory>, Driver)> {
        let page = u64::from(SECTORS) * 512;
        let len = DATA + page * u64::from(depth);
        let file = file_of(len as usize).ok()?;
        let region = MemoryRegion { guest: 0.into(), len: len.into(), user: 0.into(), offset: 0.into() };
        let memory = Memory::default().with(Region::new(&region, &file).ok()?).ok()?;
        let area = memory.area(0, len as usize, 8)?;
        let driver = Driver { area, next: 0, seen: 0 };
        for tag in 0..depth {
            let request = REQUESTS + REQUEST_LEN * u64::from(tag);
            let header = (request, HEADER_LEN as u64, 0);
            let response = (request + RESPONSE_AT, RESPONSE_LEN as u64, WRITE);
            let data = (DATA + page * u64::from(tag), page, if is_read { WRITE } else { 0 });
            let parts = if is_read { [header, response, data] } else { [header, data, response] };
            for (n, (address, len, flags)) in (0..).zip(parts) {
                let flags = if n < 2 { flags | NEXT } else { flags };
                let at = request + TABLE_AT + DESCRIPTOR_LEN as u64 * u64::from(n);
                driver.describe(at, address, len, flags, n + 1);
            }
            let at = TABLE + DESCRIPTOR_LEN as u64 * u64::from(tag);
            driver.describe(at, request + TABLE_AT, 3 * DESCRIPTOR_LEN as u64, INDIRECT, 0);
            // The unit and a tag.
            driver.area.store_u64(request as usize, u64::from_le_bytes([1, 0, 0x40, 0, 0, 0, 0, 0]), RELAXED);
            driver.area.store_u64(request as usize + 8, u64::from(tag), RELAXED);
        }
        Some((Rc::new(memory), driver))
    }

    fn describe(&self, at: u64, address: u64, len: u64, flags: u16, next: u16) {
        self.area.store_u64(at as usize, address, RELAXED);
        self.area.store_u64(at as usize + 8, len | u64::from(flags) << 32 | u64::from(next) << 48, RELAXED);
    }

    pub(super) fn setup() -> RingSetup {
        let (descriptors, available, used) = (TABLE, AVAILABLE, USED);
        RingSetup { num: NUM, descriptors, available, used, base: 0, event_idx: true, indirect: true }
    }

    /// Creates the log of requests in flight that QEMU requires.
    pub(super) fn log() -> Option<InflightQueue> {
        let len = queue_len(NUM);
        let file = file_of(len).ok()?;
        InflightQueue::new(&map_area(&file, 0, len as u64).ok()?, 0, NUM)
    }

    /// Makes a request with this command available.
    pub(super) fn offer(&mut self, tag: u16, cdb: &Cdb) {
        let request = (REQUESTS + REQUEST_LEN * u64::from(tag)) as usize;
        // Attribute, priority and a reference number precede the command. Its last bytes stay zero.
        let mut header = [0; 35];
        header[3..].copy_from_slice(cdb);
        for (n, word) in header.as_chunks().0.iter().enumerate() {
            self.area.store_u64(request + 16 + 8 * n, u64::from_le_bytes(*word), RELAXED);
        }
        self.area.store_u8(request + RESPONSE_AT as usize + STATUS_AT as usize, NO_STATUS, RELAXED);
        let entry = AVAILABLE as usize + ENTRIES + AVAILABLE_ENTRY * usize::from(self.next % NUM);
        self.area.store_u16(entry, tag, RELAXED);
        self.next = self.next.wrapping_add(1);
    }

    /// Publishes the available requests, and asks for an interrupt with the first completion.
    pub(super) fn publish(&self) {
        self.area.store_u16(AVAILABLE as usize + used_event_at(NUM), self.seen, RELAXED);
        self.area.store_u16(AVAILABLE as usize + INDEX, self.next, Ordering::Release);
    }

    /// Consumes the completed requests, and returns their number.
    pub(super) fn take(&mut self) -> u16 {
        let before = self.seen;
        let index = self.area.load_u16(USED as usize + INDEX, Ordering::Acquire);
        while self.seen != index {
            let entry = USED as usize + ENTRIES + USED_ENTRY * usize::from(self.seen % NUM);
            let request = REQUESTS + REQUEST_LEN * u64::from(self.area.load_u32(entry, RELAXED));
            let given = self.area.load_u8((request + RESPONSE_AT + STATUS_AT) as usize, RELAXED);
            assert_eq!(given, status::GOOD);
            self.seen = self.seen.wrapping_add(1);
        }
        self.seen.wrapping_sub(before)
    }
}
