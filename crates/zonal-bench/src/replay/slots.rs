//! Items in flight by key. A key is not reused for another item as long as it may still be looked
//! up.

/// Slots of items. A key consists of a slot and the number of its earlier uses.
pub(super) struct Slots<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub(super) fn insert(&mut self, value: T) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let entry = &mut self.slots[slot as usize];
        entry.1 = Some(value);
        u64::from(entry.0) << 32 | u64::from(slot)
    }

    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let (uses, value) = self.slots.get_mut(key as u32 as usize)?;
        if u64::from(*uses) == key >> 32 { value.as_mut() } else { None }
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<T> {
        self.get_mut(key)?;
        let (uses, value) = &mut self.slots[key as u32 as usize];
        *uses = uses.wrapping_add(1);
        self.free.push(key as u32);
        value.take()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_a_slot_used_again_finds_nothing() {
        let mut slots = Slots::default();
        let old = slots.insert('a');
        assert_eq!((slots.remove(old), slots.remove(old)), (Some('a'), None));
        let new = slots.insert('b');
        assert_eq!((old as u32, slots.get_mut(old)), (new as u32, None));
        assert_eq!(slots.get_mut(new).copied(), Some('b'));
        assert_eq!(slots.len(), 1);
    }
}
