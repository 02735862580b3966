//! Copying with both ends at work: while one piece is written, the next is read.
//!
//! Owns the buffers, which go round between a thread that fills them and the caller, who empties them in their order.

use std::sync::mpsc;
use std::thread;
use zonal_fs::{BLOCK_BYTES, FileSystem};
use zonal_io::sync::Mutex;

/// Buffers that go round: one is filled, one is emptied, and one is in between, so that neither end waits at once when the
/// other is late.
const BUFFERS: usize = 3;

/// Bytes of a piece, about.
const PIECE_BYTES: usize = 4 << 20;

/// Bytes of a piece of a file: of whole units, so that none is cut short between two pieces.
pub(super) fn piece_bytes(fs: &FileSystem) -> usize {
    let unit = ((fs.superblock().unit_blocks - 1) * BLOCK_BYTES) as usize;
    unit * (PIECE_BYTES / unit).max(1)
}

/// Lets `empty` have all that `fill` puts into buffers of `bytes`, until that puts nothing in.
///
/// # Errors
/// The first of either. After one of `empty`'s, what `fill` is at just then is waited for.
pub(super) fn pipe<E: Send>(
    bytes: usize,
    fill: impl FnMut(&mut [u8]) -> Result<usize, E> + Send,
    mut empty: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    // The thread has it for as long as it runs. A thread that cannot be started leaves it to the caller.
    let fill = Mutex::new(fill);
    let has_thread = thread::scope(|scope| {
        let (to_empty, filled) = mpsc::channel();
        let (to_fill, emptied) = mpsc::channel();
        (0..BUFFERS).for_each(|_| to_fill.send(vec![0; bytes]).expect("its other end is here"));
        let read_ahead = {
            let fill = &fill;
            move || {
                let mut fill = fill.lock();
                for mut buffer in emptied {
                    let result = fill(&mut buffer);
                    let is_over = !matches!(result, Ok(length) if length > 0);
                    // The thread that empties them may have given up.
                    if to_empty.send(result.map(|length| (buffer, length))).is_err() || is_over {
                        return;
                    }
                }
            }
        };
        let thread =
            thread::Builder::new().name("zonal-read-ahead".to_owned()).spawn_scoped(scope, read_ahead);
        // Without a thread its end of the channel is gone, and nothing comes.
        for result in filled {
            let (buffer, length) = result?;
            if length > 0 {
                empty(&buffer[..length])?;
            }
            // The thread that fills has ended and does not take the last one.
            let _ = to_fill.send(buffer);
        }
        Ok(thread.is_ok())
    })?;
    if has_thread { Ok(()) } else { in_turn(&mut vec![0; bytes], fill.into_inner(), empty) }
}

/// Does the same without a thread: fills `buffer` and empties it in turn.
///
/// # Errors
/// The first of either.
pub(super) fn in_turn<E>(
    buffer: &mut [u8],
    mut fill: impl FnMut(&mut [u8]) -> Result<usize, E>,
    mut empty: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    loop {
        match fill(buffer)? {
            0 => return Ok(()),
            length => empty(&buffer[..length])?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Answer = Result<usize, &'static str>;

    /// Fills buffers with the numbers from 0 on, below `end`; then the end, or an error.
    fn counting(end: u8, last: Answer) -> impl FnMut(&mut [u8]) -> Answer + Send {
        let mut next = 0;
        move |buffer| {
            let length = buffer.len().min(usize::from(end - next));
            for byte in &mut buffer[..length] {
                *byte = next;
                next += 1;
            }
            if length == 0 { last } else { Ok(length) }
        }
    }

    #[test]
    fn all_pieces_come_in_their_order() {
        let mut seen = Vec::new();
        let mut empty = |piece: &[u8]| {
            seen.extend_from_slice(piece);
            Ok(())
        };
        pipe(7, counting(200, Ok(0)), &mut empty).unwrap();
        in_turn(&mut [0; 7], counting(200, Ok(0)), &mut empty).unwrap();
        assert_eq!(seen, (0..200).chain(0..200).collect::<Vec<u8>>());
    }

    #[test]
    fn either_ends_error_ends_it() {
        let mut seen = 0;
        let emptied = |piece: &[u8]| {
            seen += piece.len();
            Ok(())
        };
        assert_eq!(pipe(8, counting(20, Err("torn")), emptied), Err("torn"));
        assert_eq!(seen, 20);
        assert_eq!(pipe(8, counting(200, Ok(0)), |_| Err("full")), Err("full"));
        assert_eq!(in_turn(&mut [0; 8], counting(20, Err("torn")), |_| Ok(())), Err("torn"));
        assert_eq!(in_turn(&mut [0; 8], counting(200, Ok(0)), |_| Err("full")), Err("full"));
    }
}
