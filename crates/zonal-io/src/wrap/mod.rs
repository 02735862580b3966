//! What devices made out of devices have in common.
//!
//! A wrapper that has to do something about a command's answer gives the inner device a context of its own, a token,
//! and keeps the host's context in a slot meanwhile. Whatever else comes through (a volume's contexts) can be passed on
//! as it is, because it cannot be taken for a token; so a wrapper that has nothing to do costs next to nothing.
//! Tokens of direct users and of outer wrappers have to be kept in slots, always.

mod reset;

pub(crate) use reset::{ResetStep, ResetWalk};

/// Things in numbered places: what the device inside knows by those numbers.
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
    /// Puts `thing` into a place and returns its number.
    pub(crate) fn put(&mut self, thing: T) -> u64 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u64 - 1
        });
        self.places[number as usize] = Some(thing);
        number
    }

    /// Takes out what is in place `number`.
    ///
    /// # Panics
    /// If nothing is: a device has answered a command twice.
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
    /// The device inside may outlive its wrapper, and read and fill what these things own until it is done: it is not freed
    /// any more.
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
