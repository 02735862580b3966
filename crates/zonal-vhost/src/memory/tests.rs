use super::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::rc::Rc;

fn file(len: u64) -> OwnedFd {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, len).unwrap();
    file
}

fn region(guest: u64, len: u64, user: u64, offset: u64) -> MemoryRegion {
    MemoryRegion { guest: guest.into(), len: len.into(), user: user.into(), offset: offset.into() }
}

/// Two pages at 0x1000 and, directly after them, two pages at 0x3000 from another part of the file.
fn memory() -> Memory {
    let file = file(0x10000);
    let first = Region::new(&region(0x1000, 0x2000, 0x7000_0000, 0x8000), &file).unwrap();
    let second = Region::new(&region(0x3000, 0x2000, 0x9000_0000, 0x1000), &file).unwrap();
    Memory::default().with(second).unwrap().with(first).unwrap()
}

#[test]
fn file_shorter_than_its_region_is_refused() {
    let file = file(0x2000);
    let error = Region::new(&region(0, 0x2000, 0, 0x1000), &file).err();
    assert_eq!(error, Some(MemoryError::FileTooShort { end: 0x3000, len: 0x2000 }));
    assert!(Region::new(&region(0, 0x1000, 0, 0x1000), &file).is_ok());
}

#[test]
fn mapped_file_is_sealed_against_shrinking() {
    let file = file(0x2000);
    let _region = Region::new(&region(0, 0x2000, 0, 0), &file).unwrap();
    assert_eq!(ftruncate(&file, 0), Err(Errno::PERM));
}

#[test]
fn region_without_bytes_or_beyond_the_last_address_is_refused() {
    let file = file(0x2000);
    for (guest, len, user, offset) in
        [(0, 0, 0, 0), (u64::MAX, 2, 0, 0), (0, 2, u64::MAX, 0), (0, 2, 0, u64::MAX), (0, u64::MAX, 0, 0)]
    {
        let error = Region::new(&region(guest, len, user, offset), &file).err();
        assert_eq!(error, Some(MemoryError::Range { guest, len, user, offset }));
    }
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(Region::new(&region(0, 1, 0, 0), &socket.into()).err(), Some(MemoryError::NotAFile));
}

#[test]
fn region_that_starts_inside_a_page_is_mapped() {
    let file = file(0x3000);
    let region = Region::new(&region(0x5001, 0x1800, 0, 0x0E03), &file).unwrap();
    let mut buffers = GuestBuffers::new(Rc::new(Memory::default().with(region).unwrap()));
    assert!(buffers.push_writable(0x5001, 0x1800) && buffers.write(&[7; 0x1800]));
    let mut bytes = vec![0; 0x3000];
    assert_eq!(rustix::io::pread(&file, &mut bytes, 0), Ok(0x3000));
    assert_eq!(bytes, [vec![0; 0x0E03], vec![7; 0x1800], vec![0; 0x09FD]].concat());
}

#[test]
fn regions_that_overlap_are_refused_and_neighbours_are_not() {
    let memory = memory();
    let file = file(0x10000);
    let other = Region::new(&region(0x4FFF, 2, 0, 0), &file).unwrap();
    assert_eq!(memory.with(other).err(), Some(MemoryError::Overlap { guest: 0x4FFF }));
    let other = Region::new(&region(0x5000, 1, 0, 0), &file).unwrap();
    assert_eq!(memory.with(other).unwrap().regions(), 3);
    assert_eq!(memory.without(&region(1, 1, 1, 1)).err(), Some(MemoryError::NotThere { guest: 1 }));
    assert_eq!(memory.without(&region(0x1000, 0x2000, 0x7000_0000, 0)).unwrap().regions(), 1);
}

#[test]
fn bytes_over_two_regions_are_two_pieces_and_in_one_region_one() {
    let mut buffers = GuestBuffers::new(Rc::new(memory()));
    assert!(buffers.push_readable(0x2800, 0x1000));
    assert!(buffers.push_writable(0x3000, 0x800));
    assert!(buffers.push_writable(0x3800, 0x800));
    let (out, into) = buffers.lend(0x10, 0);
    let lens: Vec<usize> = out.pieces().iter().map(|piece| piece.len()).collect();
    assert_eq!((lens, into.pieces().len(), into.len()), (vec![0x7F0, 0x800], 1, 0x1000));
    buffers.take_back(out, into);
}

#[test]
fn bytes_outside_of_memory_are_refused() {
    let memory = Rc::new(memory());
    for (guest, len) in
        [(0, 1), (0xFFF, 2), (0x4FFF, 2), (0x5000, 1), (u64::MAX, 2), (u64::MAX - 1, u32::MAX)]
    {
        let mut buffers = GuestBuffers::new(memory.clone());
        assert!(!buffers.push_readable(guest, len), "{guest:#x} {len}");
    }
}

#[test]
fn more_than_4_gib_are_refused() {
    let mut buffers = GuestBuffers::new(Rc::new(memory()));
    // A sparse file costs nothing.
    let large = file(0xC000_0000);
    let memory = Memory::default().with(Region::new(&region(0, 0xC000_0000, 0, 0), &large).unwrap()).unwrap();
    let mut large = GuestBuffers::new(Rc::new(memory));
    assert!(large.push_writable(0, 0xC000_0000) && large.push_writable(0, 0x3FFF_FFFF));
    assert!(!large.push_writable(0, 1));
    assert!(buffers.push_writable(0x1000, 0x4000));
}

#[test]
fn copies_are_the_same_at_any_alignment() {
    let memory = Rc::new(memory());
    for (at, len) in (0..9).flat_map(|at| [0, 1, 7, 8, 9, 51, 108].map(|len| (at, len))) {
        let mut buffers = GuestBuffers::new(memory.clone());
        let bytes: Vec<u8> = (0..len).map(|n| n as u8 ^ at as u8).collect();
        // Across the border of the regions.
        assert!(buffers.push_writable(0x2FF0 + at, 200) && buffers.push_readable(0x2FF0 + at, 200));
        assert!(buffers.write(&bytes));
        let mut read = vec![0; bytes.len()];
        assert!(buffers.read(&mut read));
        assert_eq!(read, bytes);
    }
    let buffers = GuestBuffers::new(memory);
    assert!(!buffers.read(&mut [0]) && !buffers.write(&[0]));
}

#[test]
fn request_dropped_before_its_payload_is_back_keeps_memory() {
    let memory = Rc::new(memory());
    let mut buffers = GuestBuffers::new(memory.clone());
    assert!(buffers.push_writable(0x1000, 0x1000));
    let lent = buffers.lend(0, 0);
    drop(buffers);
    assert_eq!(Rc::strong_count(&memory), 2);
    drop(lent);
    let mut buffers = GuestBuffers::new(memory.clone());
    let (out, into) = buffers.lend(0, 0);
    buffers.take_back(out, into);
    drop(buffers);
    assert_eq!(Rc::strong_count(&memory), 2);
}

#[test]
fn area_outside_of_a_region_or_not_aligned_is_none() {
    let memory = memory();
    assert!(memory.area(0x7000_0000, 0x2000, 16).is_some());
    for (user, len, align) in [
        (0x7000_0000, 0x2001, 16),
        (0x7000_0008, 16, 16),
        (0x6FFF_FFF0, 32, 16),
        (u64::MAX, 2, 1),
        (0x9000_1FFF, 2, 1),
        (0, 1, 1),
    ] {
        assert!(memory.area(user, len, align).is_none(), "{user:#x}");
    }
}
