//! Map from blocks of the disk to blocks of the device, a table allocated where blocks have been
//! written.

use std::collections::HashMap;

/// Blocks per piece of the table, which takes 4 KiB.
const PIECE: u64 = 512;

/// Place of a block of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Home {
    /// No place: never written, or discarded.
    None,
    /// In a write with this number that has not completed.
    Write(u64),
    /// This block of the device.
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

/// The table, with 8 bytes per block of the allocated pieces.
#[derive(Default)]
pub(crate) struct Map {
    pieces: HashMap<u64, Box<[u64; PIECE as usize]>>,
}

impl Map {
    pub(crate) fn get(&self, block: u64) -> Home {
        let piece = self.pieces.get(&(block / PIECE));
        piece.map_or(Home::None, |piece| Home::unpack(piece[(block % PIECE) as usize]))
    }

    /// Sets the place of a block and returns the previous one.
    pub(crate) fn set(&mut self, block: u64, home: Home) -> Home {
        let new = || Box::new([NONE; PIECE as usize]);
        let piece = self.pieces.entry(block / PIECE).or_insert_with(new);
        let word = &mut piece[(block % PIECE) as usize];
        Home::unpack(std::mem::replace(word, home.pack()))
    }

    /// Removes the place of a block and returns it. Does not allocate a piece for an absent block.
    pub(crate) fn clear(&mut self, block: u64) -> Home {
        if self.get(block) == Home::None { Home::None } else { self.set(block, Home::None) }
    }

    /// Removes all places.
    pub(crate) fn clear_all(&mut self) {
        self.pieces.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}
