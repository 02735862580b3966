//! Keys of rows.
//!
//! The first byte of a key is the kind of its row. Numbers in keys are big-endian, so that keys
//! sort in numerical order.

use super::row::Position;

const INODE: u8 = b'I';
const ENTRY: u8 = b'D';
const POSITION: u8 = b'P';
const EXTENT: u8 = b'E';
const RUN: u8 = b'R';
const ZONE: u8 = b'Z';
const ATTRIBUTE: u8 = b'X';
const TARGET: u8 = b'L';
const ORPHAN: u8 = b'O';
const TAIL: u8 = b'T';
const COUNTER: u8 = b'S';

/// All kinds of rows.
pub(crate) const KINDS: [u8; 11] =
    [ENTRY, EXTENT, INODE, TARGET, ORPHAN, POSITION, RUN, COUNTER, TAIL, ATTRIBUTE, ZONE];

fn of(kind: u8, number: u64, rest: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(9 + rest.len());
    key.push(kind);
    key.extend_from_slice(&number.to_be_bytes());
    key.extend_from_slice(rest);
    key
}

/// Locality group of a row: all rows of one kind and file, or all runs of a zone, form a group.
/// Returns the number in the key, or for a run its zone. A key that is too short is padded with
/// zeroes.
pub(crate) fn group(key: &[u8]) -> u64 {
    let mut number = [0; 8];
    let rest = key.get(1..).unwrap_or_default();
    let known = rest.len().min(number.len());
    number[..known].copy_from_slice(&rest[..known]);
    let number = u64::from_be_bytes(number);
    if key.first() == Some(&RUN) { number >> 32 } else { number }
}

/// True if all keys in `from..end` are in one group: `end` is in the group too, or is the first key
/// after it.
pub(crate) fn is_one_group(from: &[u8], end: &[u8]) -> bool {
    let (Some((kind, from_number)), Some((end_kind, end_number))) = (from.split_first(), end.split_first())
    else {
        return false;
    };
    if kind != end_kind || from_number.len() < 8 || end_number.len() < 8 {
        return false;
    }
    let of_from = group(from);
    let next = if *kind == RUN { (of_from + 1) << 32 } else { of_from.saturating_add(1) };
    group(end) == of_from || end_number == next.to_be_bytes()
}

/// A file's attributes.
pub fn inode(ino: u64) -> Vec<u8> {
    of(INODE, ino, &[])
}

/// Range of the attributes of all files.
pub fn inodes() -> (Vec<u8>, Vec<u8>) {
    (vec![INODE], vec![INODE + 1])
}

/// A name in a directory.
pub fn entry(parent: u64, name: &[u8]) -> Vec<u8> {
    of(ENTRY, parent, name)
}

/// Range of the names in a directory.
pub fn entries(parent: u64) -> (Vec<u8>, Vec<u8>) {
    (of(ENTRY, parent, &[]), of(ENTRY, parent.saturating_add(1), &[]))
}

/// Range of the names in all directories.
pub fn all_entries() -> (Vec<u8>, Vec<u8>) {
    (vec![ENTRY], vec![ENTRY + 1])
}

/// A position of a directory.
pub fn position(directory: u64, position: Position) -> Vec<u8> {
    of(POSITION, directory, &position.0.to_be_bytes())
}

/// Range of the positions of all directories.
pub fn all_positions() -> (Vec<u8>, Vec<u8>) {
    (vec![POSITION], vec![POSITION + 1])
}

/// The extent of a file that starts at this block.
pub fn extent(ino: u64, block: u64) -> Vec<u8> {
    of(EXTENT, ino, &block.to_be_bytes())
}

/// Range of all extents.
pub fn all_extents() -> (Vec<u8>, Vec<u8>) {
    (vec![EXTENT], vec![EXTENT + 1])
}

/// The run of units that starts at this block of a zone.
pub fn run(zone: u32, block: u32) -> Vec<u8> {
    of(RUN, u64::from(zone) << 32 | u64::from(block), &[])
}

/// Range of the runs of a zone.
pub fn runs(zone: u32) -> (Vec<u8>, Vec<u8>) {
    (run(zone, 0), of(RUN, (u64::from(zone) + 1) << 32, &[]))
}

/// Range of all runs.
pub fn all_runs() -> (Vec<u8>, Vec<u8>) {
    (vec![RUN], vec![RUN + 1])
}

/// A zone's account.
pub fn zone(zone: u32) -> Vec<u8> {
    of(ZONE, zone.into(), &[])
}

/// Range of the accounts of all zones.
pub fn zones() -> (Vec<u8>, Vec<u8>) {
    (vec![ZONE], vec![ZONE + 1])
}

/// An extended attribute of a file.
pub fn attribute(ino: u64, name: &[u8]) -> Vec<u8> {
    of(ATTRIBUTE, ino, name)
}

/// Range of the extended attributes of a file.
pub fn attributes(ino: u64) -> (Vec<u8>, Vec<u8>) {
    (of(ATTRIBUTE, ino, &[]), of(ATTRIBUTE, ino.saturating_add(1), &[]))
}

/// Range of the extended attributes of all files.
pub fn all_attributes() -> (Vec<u8>, Vec<u8>) {
    (vec![ATTRIBUTE], vec![ATTRIBUTE + 1])
}

/// The target of a symbolic link.
pub fn target(ino: u64) -> Vec<u8> {
    of(TARGET, ino, &[])
}

/// Range of the targets of all symbolic links.
pub fn targets() -> (Vec<u8>, Vec<u8>) {
    (vec![TARGET], vec![TARGET + 1])
}

/// An orphan: a file without a name that is open, or was open when the power failed.
pub fn orphan(ino: u64) -> Vec<u8> {
    of(ORPHAN, ino, &[])
}

/// Range of all orphans.
pub fn orphans() -> (Vec<u8>, Vec<u8>) {
    (vec![ORPHAN], vec![ORPHAN + 1])
}

/// A block of a file whose data is in its row, because it was made durable before it was written to a
/// zone.
pub fn tail(ino: u64, block: u64) -> Vec<u8> {
    of(TAIL, ino, &block.to_be_bytes())
}

/// Range of all such blocks.
pub fn tails() -> (Vec<u8>, Vec<u8>) {
    (vec![TAIL], vec![TAIL + 1])
}

/// A counter of the whole file system.
pub fn counter(name: &str) -> Vec<u8> {
    of(COUNTER, 0, name.as_bytes())
}

/// Splits a key into its number and the bytes after it.
pub fn parts(key: &[u8]) -> (u64, &[u8]) {
    let number = key.get(1..9).map_or(0, |n| u64::from_be_bytes(n.try_into().expect("eight bytes")));
    (number, key.get(9..).unwrap_or_default())
}

/// File and block in the key of an extent or a block of a tail.
pub fn extent_parts(key: &[u8]) -> (u64, u64) {
    let (ino, rest) = parts(key);
    (ino, rest.try_into().map_or(0, u64::from_be_bytes))
}

/// Directory and position in the key of a position.
pub fn position_parts(key: &[u8]) -> (u64, Position) {
    let (directory, position) = extent_parts(key);
    (directory, Position(position))
}

/// Zone and block in the key of a run.
pub fn run_parts(key: &[u8]) -> (u32, u32) {
    let (number, _) = parts(key);
    ((number >> 32) as u32, number as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_a_file_and_of_a_zone_are_one_group() {
        for (from, end) in
            [entries(5), attributes(5), runs(5), (extent(5, 7), extent(5, 9)), (run(5, 1), run(5, 2))]
        {
            assert!(is_one_group(&from, &end));
            assert_eq!(group(&from), 5);
        }
        for (from, end) in [inodes(), all_runs(), (entry(5, b"x"), entry(6, b"a")), (run(5, 1), run(6, 1))] {
            assert!(!is_one_group(&from, &end));
        }
        assert!(!is_one_group(&inode(5), &entries(6).1));
        assert!(!is_one_group(b"", b""));
        assert_eq!([group(b""), group(b"I"), group(b"Ix")], [0, 0, u64::from(b'x') << 56]);
    }

    #[test]
    fn keys_sort_as_their_numbers_do() {
        assert!(extent(1, 255) < extent(1, 256));
        assert!(extent(1, u64::MAX) < extent(2, 0));
        assert!(position(1, Position(255)) < position(1, Position(256)));
        let (from, end) = runs(7);
        assert!(from <= run(7, 0) && run(7, u32::MAX) < end && end <= run(8, 0));
        assert_eq!(extent_parts(&extent(3, 4)), (3, 4));
        assert_eq!(position_parts(&position(3, Position(4))), (3, Position(4)));
        assert_eq!(run_parts(&run(3, 4)), (3, 4));
        assert_eq!(parts(&entry(3, b"x")), (3, &b"x"[..]));
    }
}
