//! Copying with overlap: the next piece is read while one is written.
//!
//! Owns the buffers, which circulate between a thread that fills them and the caller, which empties
//! them in order.

use std::sync::mpsc;
use std::thread;
use zonal_fs::{BLOCK_BYTES, FileSystem};
use zonal_io::sync::Mutex;

/// Number of buffers: one is filled, one is emptied, and one is in between, so that neither end
/// waits at once when the other is late.
const BUFFERS: usize = 3;

/// Approximate number of bytes of a piece.
const PIECE_BYTES: usize = 4 << 20;

/// Bytes of a piece of a file: whole units, so that no unit is split between two pieces.
pub(super) fn piece_bytes(fs: &FileSystem) -> usize {
    let unit = ((fs.superblock().unit_blocks - 1) * BLOCK_BYTES) as usize;
    unit * (PIECE_BYTES / unit).max(1)
}

/// Passes everything that `fill` puts into buffers of `bytes` to `empty`, until `fill` returns 0.
///
/// # Errors
/// The first error of either. After an error of `empty`, a call of `fill` in progress is waited
/// for.
pub(super) fn pipe<E: Send>(
    bytes: usize,
    fill: impl FnMut(&mut [u8]) -> Result<usize, E> + Send,
    mut empty: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    // Held by the thread while it runs. If the thread cannot be started, the caller uses it.
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
                    // The other end may have given up.
                    if to_empty.send(result.map(|length| (buffer, length))).is_err() || is_over {
                        return;
                    }
                }
            }
        };
        let thread =
            thread::Builder::new().name("zonal-read-ahead".to_owned()).spawn_scoped(scope, read_ahead);
        // Without a thread the channel is closed, and the loop ends at once.
        for result in filled {
            let (buffer, length) = result?;
            if length > 0 {
                empty(&buffer[..length])?;
            }
            // The thread has ended, and does not take the last buffer.
            let _ = to_fill.send(buffer);
        }
        Ok(thread.is_ok())
    })?;
    if has_thread { Ok(()) } else { in_turn(&mut vec![0; bytes], fill.into_inner(), empty) }
}

/// Like [`pipe`] without a thread: fills and empties `buffer` in turn.
///
/// # Errors
/// The first error of either.
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

    /// Fills buffers with ascending numbers below `end`, then returns `last`.
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
    fn pipe_delivers_all_pieces_in_order() {
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
