//! Requests in a plug's queue, and their storage.

use super::word::WriteKind;
use crate::command::Op;
use std::collections::VecDeque;

/// Kind of a waiting request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    /// A write of this many sectors.
    Write(WriteKind, u32),
    /// A reset, finish or offline. With a budget, also an open or close.
    Manage(Op),
}

impl RequestKind {
    /// True for a reset or finish, which abort the writes before them.
    pub(super) fn moves_pointer(self) -> bool {
        matches!(self, RequestKind::Manage(Op::ZoneReset | Op::ZoneFinish))
    }

    pub(super) fn sectors(self) -> u32 {
        match self {
            RequestKind::Write(_, sectors) => sectors,
            RequestKind::Manage(_) => 0,
        }
    }
}

/// A waiting request. `T` is the shell's token for it.
#[derive(Debug)]
pub struct Item<T> {
    /// Kind of request.
    pub kind: RequestKind,
    /// True if it can be merged with its neighbours. All mergeable requests have the same operation
    /// and flags.
    pub mergeable: bool,
    /// The shell's token.
    pub token: T,
}

/// An item without its token, in two words.
///
/// Packed and without a destructor, so that it moves from registers straight into the queue.
/// Otherwise the compiler assembles it in memory piece by piece and reads it back as a whole, which
/// costs more than everything else in queueing a write.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Offset in the low 32 bits, kind above.
    what: u64,
    sectors: u64,
}

const AT: u64 = 0;
const MERGEABLE: u64 = 1;
const APPEND: u64 = 2;
const RESET: u64 = 3;
const FINISH: u64 = 4;
const ALONE: u64 = 5;
const OPEN: u64 = 6;
const CLOSE: u64 = 7;
const OFFLINE: u64 = 8;

impl Shape {
    #[inline(always)]
    fn new(kind: RequestKind, mergeable: bool) -> Shape {
        let (tag, offset, sectors) = match kind {
            RequestKind::Write(WriteKind::At(offset), sectors) => {
                (if mergeable { MERGEABLE } else { AT }, offset, sectors)
            }
            RequestKind::Write(WriteKind::Alone(offset), sectors) => (ALONE, offset, sectors),
            RequestKind::Write(WriteKind::Append, sectors) => (APPEND, 0, sectors),
            RequestKind::Manage(Op::ZoneReset) => (RESET, 0, 0),
            RequestKind::Manage(Op::ZoneFinish) => (FINISH, 0, 0),
            RequestKind::Manage(Op::ZoneOpen) => (OPEN, 0, 0),
            RequestKind::Manage(Op::ZoneClose) => (CLOSE, 0, 0),
            RequestKind::Manage(Op::ZoneOffline) => (OFFLINE, 0, 0),
            RequestKind::Manage(op) => unreachable!("{op:?} does not wait in a plug"),
        };
        Shape { what: tag << 32 | u64::from(offset), sectors: sectors.into() }
    }

    #[inline]
    pub(super) fn kind(self) -> RequestKind {
        let sectors = self.sectors as u32;
        match self.what >> 32 {
            AT | MERGEABLE => RequestKind::Write(WriteKind::At(self.what as u32), sectors),
            ALONE => RequestKind::Write(WriteKind::Alone(self.what as u32), sectors),
            APPEND => RequestKind::Write(WriteKind::Append, sectors),
            RESET => RequestKind::Manage(Op::ZoneReset),
            FINISH => RequestKind::Manage(Op::ZoneFinish),
            OPEN => RequestKind::Manage(Op::ZoneOpen),
            OFFLINE => RequestKind::Manage(Op::ZoneOffline),
            _ => RequestKind::Manage(Op::ZoneClose),
        }
    }

    /// True for a positional write that can be merged.
    #[inline]
    pub(super) fn mergeable(self) -> bool {
        self.what >> 32 == MERGEABLE
    }
}

/// Items in order. Shapes and tokens are kept in two parallel queues.
pub(super) struct Items<T> {
    shapes: VecDeque<Shape>,
    tokens: VecDeque<T>,
}

impl<T> Default for Items<T> {
    fn default() -> Items<T> {
        Items { shapes: VecDeque::new(), tokens: VecDeque::new() }
    }
}

impl<T> Items<T> {
    pub(super) fn len(&self) -> usize {
        self.shapes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }

    #[inline(always)]
    pub(super) fn push_back(&mut self, Item { kind, mergeable, token }: Item<T>) {
        self.shapes.push_back(Shape::new(kind, mergeable));
        self.tokens.push_back(token);
    }

    pub(super) fn push_front(&mut self, Item { kind, mergeable, token }: Item<T>) {
        self.shapes.push_front(Shape::new(kind, mergeable));
        self.tokens.push_front(token);
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<T> {
        self.shapes.pop_front()?;
        self.tokens.pop_front()
    }

    #[inline]
    pub(super) fn front(&self) -> Option<(Shape, &T)> {
        Some((*self.shapes.front()?, self.tokens.front()?))
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut T> {
        self.tokens.front_mut()
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = &T> {
        self.tokens.iter()
    }

    pub(super) fn shapes(&self) -> impl Iterator<Item = Shape> {
        self.shapes.iter().copied()
    }

    /// Removes all items, in order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Item<T>> {
        let items = std::mem::take(self);
        items.shapes.into_iter().zip(items.tokens).map(|(shape, token)| Item {
            kind: shape.kind(),
            mergeable: shape.mergeable(),
            token,
        })
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Items<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds = self.shapes.iter().map(|s| s.kind());
        f.debug_list().entries(kinds.zip(&self.tokens)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_every_kind_round_trip() {
        let ends = [0, 1, u32::MAX - 1, u32::MAX];
        let managed = [Op::ZoneReset, Op::ZoneFinish, Op::ZoneOpen, Op::ZoneClose, Op::ZoneOffline];
        let mut kinds = managed.map(RequestKind::Manage).to_vec();
        for sectors in ends {
            kinds.push(RequestKind::Write(WriteKind::Append, sectors));
            kinds.extend(ends.map(|offset| RequestKind::Write(WriteKind::At(offset), sectors)));
            kinds.extend(ends.map(|offset| RequestKind::Write(WriteKind::Alone(offset), sectors)));
        }
        for kind in kinds {
            for mergeable in [false, true] {
                let mut items = Items::default();
                items.push_back(Item { kind, mergeable, token: 7 });
                let (shape, token) = items.front().unwrap();
                assert_eq!((shape.kind(), *token), (kind, 7));
                let positional = matches!(kind, RequestKind::Write(WriteKind::At(_), _));
                assert_eq!(shape.mergeable(), mergeable && positional);
            }
        }
    }
}
