//! Memory of a command, in any number of pieces.

use zonal_io::buffer::IoBufs;

/// Memory of a command, except for buffers owned by a request in flight.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) data_out: IoBufs,
    pub(crate) data_in: IoBufs,
}

/// Calls `look` for each piece of up to `len` bytes from `at` on, with its offset from `at`.
fn each_piece(bufs: &IoBufs, at: usize, len: usize, mut look: impl FnMut(usize, &[u8])) {
    let (mut skip, mut done) = (at, 0);
    for piece in bufs.pieces() {
        if done == len {
            return;
        }
        let here = &piece[skip.min(piece.len())..];
        skip -= skip.min(piece.len());
        let here = &here[..here.len().min(len - done)];
        if !here.is_empty() {
            look(done, here);
        }
        done += here.len();
    }
}

/// Copies up to `len` bytes from `at` on.
pub(crate) fn copy(bufs: &IoBufs, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len.min(bufs.len().saturating_sub(at)));
    each_piece(bufs, at, len, |_, piece| bytes.extend_from_slice(piece));
    bytes
}

/// True if the bytes from `at` on equal `bytes`.
pub(crate) fn has(bufs: &IoBufs, at: usize, bytes: &[u8]) -> bool {
    let (mut is_same, mut seen) = (true, 0);
    each_piece(bufs, at, bytes.len(), |done, piece| {
        is_same &= bytes[done..done + piece.len()] == *piece;
        seen += piece.len();
    });
    is_same && seen == bytes.len()
}

/// Stores bytes at `at` as far as they fit. Returns the number stored.
pub(crate) fn put(bufs: &mut IoBufs, at: usize, bytes: &[u8]) -> usize {
    let (mut skip, mut left) = (at, bytes);
    for piece in bufs.pieces_mut() {
        if left.is_empty() {
            break;
        }
        let from = skip.min(piece.len());
        skip -= from;
        let len = left.len().min(piece.len() - from);
        let (here, rest) = left.split_at(len);
        piece[from..from + len].copy_from_slice(here);
        left = rest;
    }
    bytes.len() - left.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_io::buffer::IoBuf;

    fn bytes(lengths: &[u32]) -> IoBufs {
        lengths.iter().map(|len| IoBuf::zeroed(*len)).collect::<Vec<_>>().into()
    }

    #[test]
    fn bytes_over_pieces_are_put_and_read_where_they_belong() {
        for lengths in [&[10][..], &[3, 7], &[1, 0, 4, 5], &[0, 10, 0]] {
            for at in 0..=12 {
                for len in 0..=12 {
                    let mut bufs = bytes(lengths);
                    let given: Vec<u8> = (1..=len as u8).collect();
                    let room = 10_usize.saturating_sub(at).min(len);
                    assert_eq!(put(&mut bufs, at, &given), room, "{lengths:?} {at} {len}");
                    let mut expected = vec![0; 10];
                    expected[at.min(10)..at.min(10) + room].copy_from_slice(&given[..room]);
                    assert_eq!(copy(&bufs, 0, 100), expected, "{lengths:?} {at} {len}");
                    assert_eq!(copy(&bufs, at, len), given[..room]);
                    assert_eq!(has(&bufs, at, &given), room == len);
                    assert!(!has(&bufs, 0, &[9; 10]));
                }
            }
        }
    }
}
