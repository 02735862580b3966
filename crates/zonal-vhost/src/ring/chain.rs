//! Chains of descriptors, which describe a guest's requests (VIRTIO 2.7.5).

use super::{DESCRIPTORS_MAX, Ring, RingFault};
use crate::memory::GuestBuffers;
use crate::wire::ring::{DESCRIPTOR_LEN, Descriptor, INDIRECT, NEXT, WRITE};
use std::sync::atomic::Ordering;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Copy of an indirect table.
type Table = Vec<Descriptor>;

impl Ring {
    /// Memory of the chain starting at `head`.
    pub(super) fn chain(&self, head: u16) -> Result<GuestBuffers, RingFault> {
        let mut chain = GuestBuffers::new(self.parts.memory.clone());
        let (mut index, mut table) = (head, None);
        // A chain uses no descriptor twice, so one longer than its table loops.
        let mut left = self.setup.num;
        loop {
            left = left.checked_sub(1).ok_or(RingFault::TooLong { head })?;
            let descriptor = self.descriptor(table.as_ref(), index)?;
            let flags = descriptor.flags.get();
            if flags & INDIRECT != 0 {
                if table.is_some() || flags & NEXT != 0 || !self.setup.indirect {
                    return Err(RingFault::Indirect { head });
                }
                let entries = self.table(head, &descriptor)?;
                left = entries.len() as u16;
                (index, table) = (0, Some(entries));
                continue;
            }
            push(&mut chain, head, &descriptor)?;
            if flags & NEXT == 0 {
                return Ok(chain);
            }
            index = descriptor.next.get();
        }
    }

    fn descriptor(&self, table: Option<&Table>, index: u16) -> Result<Descriptor, RingFault> {
        let len = table.map_or(u32::from(self.setup.num), |table| table.len() as u32);
        if u32::from(index) >= len {
            return Err(RingFault::DescriptorIndex { index, len });
        }
        if let Some(table) = table {
            return Ok(table[usize::from(index)]);
        }
        let at = DESCRIPTOR_LEN * usize::from(index);
        let words =
            [0, 8].map(|word| self.parts.descriptors.load_u64(at + word, Ordering::Relaxed).to_le_bytes());
        Ok(Descriptor::read_from_bytes(words.as_flattened()).expect("two words are a descriptor"))
    }

    /// Copies the indirect table referenced by `descriptor`.
    fn table(&self, head: u16, descriptor: &Descriptor) -> Result<Table, RingFault> {
        let (guest, len) = (descriptor.address.get(), descriptor.len.get());
        let entries = len as usize / DESCRIPTOR_LEN;
        if !(len as usize).is_multiple_of(DESCRIPTOR_LEN) || entries == 0 {
            return Err(RingFault::Indirect { head });
        }
        if entries > usize::from(DESCRIPTORS_MAX) {
            return Err(RingFault::TooLong { head });
        }
        let mut bytes = GuestBuffers::new(self.parts.memory.clone());
        let mut table = vec![Descriptor::new_zeroed(); entries];
        match bytes.push_readable(guest, len) && bytes.read(table.as_mut_bytes()) {
            true => Ok(table),
            false => Err(RingFault::OutOfMemory { guest, len }),
        }
    }
}

fn push(chain: &mut GuestBuffers, head: u16, descriptor: &Descriptor) -> Result<(), RingFault> {
    let (guest, len) = (descriptor.address.get(), descriptor.len.get());
    if len == 0 {
        return Err(RingFault::Empty { head });
    }
    let is_memory = match descriptor.flags.get() & WRITE != 0 {
        true => chain.push_writable(guest, len),
        false if chain.writable_len() > 0 => return Err(RingFault::Direction { head }),
        false => chain.push_readable(guest, len),
    };
    is_memory.then_some(()).ok_or(RingFault::OutOfMemory { guest, len })
}
