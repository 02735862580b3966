//! Images in several files: division of the bytes, and the head of each part, a file other than the
//! first.

use super::{DATA_ALIGN, PAGE_BYTES, crc};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a part.
pub const PART_MAGIC: [u8; 8] = *b"ZONLPART";
/// Format version of a part.
const PART_VERSION: u32 = 1;
/// Offset of the data in a part, with the same alignment as in the first file.
pub const PART_DATA_OFFSET: u64 = DATA_ALIGN;
/// Size of the head of a part: two copies, as of the header of an image.
pub const PART_HEAD_BYTES: usize = 2 * PAGE_BYTES;
/// Maximum number of files of an image, all of them open while the image is. Enough for 4 PiB on
/// ext4.
pub const FILES_MAX: u32 = 256;

/// Reason that a file is not the expected part of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// There is no such file.
    #[error("missing: the image has {files} files; move, copy and remove them together")]
    Missing {
        /// Number of files of the image.
        files: u32,
    },
    /// The file is not a part, or its head is damaged.
    #[error("not a part of an image, or damaged")]
    Foreign,
    /// Written by a later version.
    #[error("a part of version {0}, not supported by this program")]
    Newer(u32),
    /// The part belongs to an image with another creation number.
    #[error("part of another image")]
    OtherImage,
    /// Wrong index or number of files.
    #[error("part {found} of {files} of the image, in the place of part {expected} of {files_expected}")]
    Misplaced {
        /// Index stored.
        found: u32,
        /// Number of files according to the part.
        files: u32,
        /// Index according to its name.
        expected: u32,
        /// Number of files according to the image.
        files_expected: u32,
    },
}

/// Division of an image into files.
///
/// An image is one range of bytes, described by [`Layout`](super::Layout). The first file has
/// everything before the data, and the first zones. Each part has the same number of zones behind
/// its head, the last one possibly fewer. No zone is in two files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::len_without_is_empty, reason = "the length of an image, not of a collection")]
pub struct Split {
    /// Offset of the data.
    pub(super) data_offset: u64,
    /// Bytes of data per file, except the last.
    pub(super) run: u64,
    /// Length of the image in bytes.
    pub(super) len: u64,
}

/// Location of a byte of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Index of the file, from 0.
    pub file: usize,
    /// Offset in the file.
    pub at: u64,
    /// Number of bytes from there in the same file.
    pub len: u64,
}

impl Split {
    /// Length of the image in bytes.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Number of files.
    pub const fn files(&self) -> u32 {
        ((self.len - self.data_offset).div_ceil(self.run)) as u32
    }

    /// Location of byte `at` of the image.
    #[inline]
    pub const fn place(&self, at: u64) -> Placed {
        let first = self.data_offset + self.run;
        if at < first {
            return Placed { file: 0, at, len: first - at };
        }
        let (file, offset) = ((at - self.data_offset) / self.run, (at - self.data_offset) % self.run);
        Placed { file: file as usize, at: PART_DATA_OFFSET + offset, len: self.run - offset }
    }

    /// Length of file `index`.
    pub const fn file_len(&self, index: u32) -> u64 {
        let head = if index == 0 { self.data_offset } else { PART_DATA_OFFSET };
        let before = self.data_offset + self.run * index as u64;
        let data = self.len - before;
        head + if data < self.run { data } else { self.run }
    }
}

/// On-disk head of a part.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
struct RawPart {
    magic: [u8; 8],
    version: U32,
    crc: U32,
    creation: [u8; 16],
    index: U32,
    files: U32,
    rest: [u8; 472],
}

const _: () = assert!(size_of::<RawPart>() == 512);

impl RawPart {
    fn checksum(&self) -> u32 {
        let mut copy = self.clone();
        copy.crc = 0.into();
        crc(copy.as_bytes())
    }
}

/// Head of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartHead {
    /// Creation number of the image.
    pub creation: [u8; 16],
    /// Index of the file in the image, from 1.
    pub index: u32,
    /// Number of files of the image.
    pub files: u32,
}

impl PartHead {
    /// Bytes at the start of the file: both copies.
    pub fn emit(&self) -> Vec<u8> {
        let mut raw = RawPart {
            magic: PART_MAGIC,
            version: PART_VERSION.into(),
            crc: 0.into(),
            creation: self.creation,
            index: self.index.into(),
            files: self.files.into(),
            rest: [0; 472],
        };
        raw.crc = raw.checksum().into();
        let mut bytes = vec![0; PART_HEAD_BYTES];
        for at in [0, PAGE_BYTES] {
            bytes[at..at + size_of::<RawPart>()].copy_from_slice(raw.as_bytes());
        }
        bytes
    }

    /// Checks that a file that begins with `bytes` is this part. One sound copy is sufficient.
    ///
    /// # Errors
    /// [`PartError`], of the first copy if neither is sound.
    pub fn check(&self, bytes: &[u8]) -> Result<(), PartError> {
        let copy = |at: usize| PartHead::parse(bytes.get(at..).unwrap_or(&[]));
        let found = copy(0).or_else(|e| copy(PAGE_BYTES).map_err(|_| e))?;
        if found.creation != self.creation {
            return Err(PartError::OtherImage);
        }
        if found != *self {
            return Err(PartError::Misplaced {
                found: found.index,
                files: found.files,
                expected: self.index,
                files_expected: self.files,
            });
        }
        Ok(())
    }

    fn parse(bytes: &[u8]) -> Result<PartHead, PartError> {
        let (raw, _) = RawPart::ref_from_prefix(bytes).map_err(|_| PartError::Foreign)?;
        if raw.magic != PART_MAGIC {
            return Err(PartError::Foreign);
        }
        if raw.version.get() > PART_VERSION {
            return Err(PartError::Newer(raw.version.get()));
        }
        if raw.crc.get() != raw.checksum() {
            return Err(PartError::Foreign);
        }
        Ok(PartHead { creation: raw.creation, index: raw.index.get(), files: raw.files.get() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPLIT: Split = Split { data_offset: 3 << 20, run: 8 << 20, len: (3 << 20) + (20 << 20) };

    #[test]
    fn every_byte_has_its_place_in_one_file() {
        assert_eq!(SPLIT.files(), 3);
        let mut ends = [0; 3];
        let mut at = 0;
        while at < SPLIT.len {
            let placed = SPLIT.place(at);
            let begin = if placed.file == 0 { 0 } else { PART_DATA_OFFSET };
            assert_eq!(placed.at, ends[placed.file].max(begin), "at {at}");
            // The last byte of a run is in the same file, the next one is not.
            let last = SPLIT.place(at + placed.len - 1);
            assert_eq!((last.file, last.at, last.len), (placed.file, placed.at + placed.len - 1, 1));
            let len = placed.len.min(SPLIT.len - at);
            ends[placed.file] = placed.at + len;
            at += len;
        }
        assert_eq!(ends, [0, 1, 2].map(|file| SPLIT.file_len(file)));
        assert_eq!(ends[2], PART_DATA_OFFSET + (4 << 20));
    }

    #[test]
    fn head_is_checked_by_either_copy() {
        let head = PartHead { creation: [7; 16], index: 2, files: 3 };
        let sound = head.emit();
        assert_eq!(head.check(&sound), Ok(()));
        for at in [0, 9, 20, 33, 400] {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            assert_eq!(head.check(&bytes), Ok(()), "the second copy");
            bytes[PAGE_BYTES + at] ^= 1;
            assert!(head.check(&bytes).is_err(), "byte {at}");
        }
        let other = PartHead { creation: [8; 16], ..head };
        assert_eq!(other.check(&sound), Err(PartError::OtherImage));
        let third = PartHead { index: 1, ..head };
        assert!(matches!(third.check(&sound), Err(PartError::Misplaced { found: 2, expected: 1, .. })));
        for len in [0, 8, 511] {
            assert_eq!(head.check(&sound[..len]), Err(PartError::Foreign), "{len}");
        }
    }
}
