//! Where each block of the laid disk is: a table that exists where something was written.

use std::collections::HashMap;

/// Blocks in one piece of the table: 4 KiB of it.
const PIECE: u64 = 512;

/// Where a block of the disk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Home {
    /// Nowhere: never written, or discarded.
    None,
    /// With the write of this number, which has not ended.
    Write(u64),
    /// At this block of the device.
    At(u64),
}

const NONE: u64 = u64::MAX;
const WRITE: u64 = 1 << 63;

impl Home {
    fn pack(self) -> u64 {
        match self {
            Home::None => NONE,
            Home::Write(number) => WRITE | number,
            Home::At(block) => block,
        }
    }

    fn unpack(word: u64) -> Home {
        match word {
            NONE => Home::None,
            word if word & WRITE != 0 => Home::Write(word & !WRITE),
            word => Home::At(word),
        }
    }
}

/// The table, 8 bytes a block of the pieces in use.
#[derive(Default)]
pub(crate) struct Map {
    pieces: HashMap<u64, Box<[u64; PIECE as usize]>>,
}

impl Map {
    pub(crate) fn get(&self, block: u64) -> Home {
        let piece = self.pieces.get(&(block / PIECE));
        piece.map_or(Home::None, |piece| Home::unpack(piece[(block % PIECE) as usize]))
    }

    /// Puts a block somewhere else; where it was.
    pub(crate) fn set(&mut self, block: u64, home: Home) -> Home {
        let new = || Box::new([NONE; PIECE as usize]);
        let piece = self.pieces.entry(block / PIECE).or_insert_with(new);
        let word = &mut piece[(block % PIECE) as usize];
        Home::unpack(std::mem::replace(word, home.pack()))
    }

    /// Puts a block nowhere; where it was. Makes no piece for what is nowhere already.
    pub(crate) fn clear(&mut self, block: u64) -> Home {
        if self.get(block) == Home::None { Home::None } else { self.set(block, Home::None) }
    }

    /// Forgets everything.
    pub(crate) fn clear_all(&mut self) {
        self.pieces.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}
