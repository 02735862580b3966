//! Tokens of the requests merged into one.

use std::collections::VecDeque;
use std::collections::vec_deque;
use std::iter::{Chain, Once, once};

/// Tokens in ascending order of address, at least one. A single one needs no allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parts<T> {
    first: T,
    rest: VecDeque<T>,
}

impl<T> Parts<T> {
    pub(super) const fn new(token: T) -> Parts<T> {
        Parts { first: token, rest: VecDeque::new() }
    }

    /// Token of the lowest address.
    pub const fn first(&self) -> &T {
        &self.first
    }

    /// Number of tokens, at least 1, so there is no `is_empty`.
    #[expect(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        1 + self.rest.len()
    }

    pub(super) fn append(&mut self, later: Parts<T>) {
        self.rest.push_back(later.first);
        self.rest.extend(later.rest);
    }
}

impl<T> IntoIterator for Parts<T> {
    type Item = T;
    type IntoIter = Chain<Once<T>, vec_deque::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        once(self.first).chain(self.rest)
    }
}
