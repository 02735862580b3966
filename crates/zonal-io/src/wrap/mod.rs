//! Common parts of the wrappers.
//!
//! A wrapper that has to act on a command's answer passes a token as context to the inner device
//! and keeps the host's context in a slot meanwhile. Other contexts (a volume's) are passed on
//! unchanged, because they cannot be confused with a token, so a wrapper that has nothing to do
//! costs almost nothing. Tokens of direct users and of outer wrappers always have to be kept in
//! slots.

mod reset;

pub(crate) use reset::{ResetStep, ResetWalk};

/// Numbered slots. The inner device uses the numbers as tokens.
pub(crate) struct Slots<T> {
    places: Vec<Option<T>>,
    free: Vec<u64>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// Stores `thing` in a slot and returns its number.
    pub(crate) fn put(&mut self, thing: T) -> u64 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u64 - 1
        });
        self.places[number as usize] = Some(thing);
        number
    }

    /// Removes and returns the contents of slot `number`.
    ///
    /// # Panics
    /// If the slot is empty: the device has answered a command twice.
    pub(crate) fn take(&mut self, number: u64) -> T {
        self.free.push(number);
        self.places[number as usize].take().expect("a device answers each command once")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }
}

impl<T> Drop for Slots<T> {
    /// The contents of used slots are leaked, because the inner device may outlive its wrapper and
    /// still access their memory.
    fn drop(&mut self) {
        if !self.is_empty() {
            std::mem::forget(std::mem::take(&mut self.places));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_and_emptied() {
        let mut slots = Slots::default();
        let (a, b) = (slots.put('a'), slots.put('b'));
        assert_eq!(slots.take(a), 'a');
        assert_eq!(slots.put('c'), a);
        assert_eq!(slots.iter().collect::<String>(), "cb");
        assert_eq!((slots.take(b), slots.take(a)), ('b', 'c'));
        assert!(slots.is_empty());
    }
}
