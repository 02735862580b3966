//! Self-describing blocks.
//!
//! # Layout
//! Little endian, at the start of each block:
//!
//! | bytes | field |
//! |---|---|
//! | 0-7 | magic |
//! | 8-15 | sector; all ones if the device chooses it |
//! | 16-23 | seed of the job |
//! | 24-31 | number of the block, unique in the run |
//! | 32-35 | generation of the zone |
//! | 36-39 | zone |
//! | 40-43 | length of the block in bytes |
//! | 44-47 | CRC-32C of the payload |
//! | 48-51 | CRC-32C of bytes 0-47 |
//! | 52-55 | zero |
//! | 56- | payload, generated from seed and number |

use super::Ticket;
use super::record::Recorder;
use crate::jobs::plan::WorkerPlan;
use crate::jobs::workload::{Io, Placing};
use crate::report::{Expected, Found};
use crc_fast::crc32_iscsi;
use zonal_core::{Geometry, SECTOR_BYTES, Sector, ZoneIndex};

/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 56;

const MAGIC: u64 = u64::from_le_bytes(*b"ZonalBlk");
const SUMMED: usize = 48;
const SECTOR_UNKNOWN: u64 = u64::MAX;

/// Low bits of a block number that count the blocks of a worker. The bits above identify the
/// worker.
const COUNT_BITS: u32 = 48;

/// Generator of the blocks of one worker.
#[derive(Debug)]
pub struct Blocks {
    seed: u64,
    next: u64,
}

impl Blocks {
    /// Creates the generator of a worker.
    pub fn new(plan: &WorkerPlan) -> Blocks {
        Blocks { seed: plan.seed, next: (plan.number as u64) << COUNT_BITS }
    }

    /// Fills `bytes` with the next block, to be written as `io` into `zone`.
    pub fn fill(
        &mut self,
        bytes: &mut [u8],
        io: &Io,
        zone: ZoneIndex,
        generation: u32,
        recorder: Option<&Recorder>,
    ) -> Ticket {
        let id = self.next;
        self.next += 1;
        let sector = match io.placing {
            Placing::At => io.sector.0,
            Placing::Append => SECTOR_UNKNOWN,
        };
        let header =
            Header { sector, seed: self.seed, id, generation, zone: zone.0, bytes: bytes.len() as u32 };
        header.write_block(bytes);
        let begun = recorder.map_or(0, Recorder::event);
        Ticket { id, generation, begun, expected: None }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) sector: u64,
    pub(super) seed: u64,
    pub(super) id: u64,
    pub(super) generation: u32,
    pub(super) zone: u32,
    pub(super) bytes: u32,
}

impl Header {
    /// Builds the complete block of this header.
    pub(super) fn block(&self) -> Vec<u8> {
        let mut block = vec![0; self.bytes as usize];
        self.write_block(&mut block);
        block
    }

    fn write_block(&self, block: &mut [u8]) {
        let (header, payload) = block.split_at_mut(HEADER_BYTES);
        fill_payload(payload, self.seed ^ self.id.rotate_left(32));
        header[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        header[8..16].copy_from_slice(&self.sector.to_le_bytes());
        header[16..24].copy_from_slice(&self.seed.to_le_bytes());
        header[24..32].copy_from_slice(&self.id.to_le_bytes());
        header[32..36].copy_from_slice(&self.generation.to_le_bytes());
        header[36..40].copy_from_slice(&self.zone.to_le_bytes());
        header[40..44].copy_from_slice(&self.bytes.to_le_bytes());
        header[44..48].copy_from_slice(&crc32_iscsi(payload).to_le_bytes());
        let sum = crc32_iscsi(&header[..SUMMED]);
        header[48..52].copy_from_slice(&sum.to_le_bytes());
        header[52..56].fill(0);
    }

    fn read(header: &[u8]) -> Header {
        Header {
            sector: u64_at(header, 8),
            seed: u64_at(header, 16),
            id: u64_at(header, 24),
            generation: le_u32(header, 32),
            zone: le_u32(header, 36),
            bytes: le_u32(header, 40),
        }
    }
}

/// True if each sector of `block` belongs to one of `writes`. That is the result of writes to one
/// place if some of them were torn.
pub(super) fn is_mixture(block: &[u8], writes: &[Vec<u8>]) -> bool {
    let sector = SECTOR_BYTES as usize;
    let is_of_one = |(n, found): (usize, &[u8])| writes.iter().any(|w| w[n * sector..].starts_with(found));
    block.chunks(sector).enumerate().all(is_of_one)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn le_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Fills the payload with bytes that differ from block to block and do not compress: a counter
/// through a mixing function.
fn fill_payload(payload: &mut [u8], seed: u64) {
    let mut state = seed;
    for chunk in payload.chunks_mut(8) {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        z ^= z >> 32;
        chunk.copy_from_slice(&z.to_le_bytes()[..chunk.len()]);
    }
}

/// Checks `block`, read at `sector`. Returns the expected and the actual content if they differ.
pub fn check_block(
    block: &[u8],
    sector: Sector,
    geometry: &Geometry,
    expected: Option<&Expected>,
) -> Option<(Expected, Found)> {
    let anything = Expected { sector, id: None, generation: None, seed: None };
    let expected = *expected.unwrap_or(&anything);
    let is = |found| Some((expected, found));
    if u64_at(block, 0) != MAGIC {
        return is(Found::NoBlock { start: u64_at(block, 0) });
    }
    let (stated, computed) = (le_u32(block, SUMMED), crc32_iscsi(&block[..SUMMED]));
    if stated != computed {
        return is(Found::BadHeader { stated, computed });
    }
    let header = Header::read(block);
    let stated = le_u32(block, 44);
    let has_length = header.bytes as usize == block.len();
    let computed = has_length.then(|| crc32_iscsi(&block[HEADER_BYTES..]));
    let is_place = header.zone == geometry.zone_of(sector).0
        && (header.sector == sector.0 || header.sector == SECTOR_UNKNOWN);
    let is_right = computed == Some(stated)
        && is_place
        && expected.id.is_none_or(|id| id == header.id)
        && expected.seed.is_none_or(|seed| seed == header.seed)
        && expected.generation.is_none_or(|generation| generation == header.generation);
    if is_right {
        return None;
    }
    is(Found::Block {
        sector: (header.sector != SECTOR_UNKNOWN).then_some(Sector(header.sector)),
        zone: ZoneIndex(header.zone),
        generation: header.generation,
        seed: header.seed,
        id: header.id,
        bytes: header.bytes,
        stated,
        computed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_core::Sectors;

    const SECTOR: Sector = Sector(136);

    fn geometry() -> Geometry {
        Geometry::new(Sectors(1024), Sectors(128), Sectors(0), 0).unwrap()
    }

    fn header() -> Header {
        Header { sector: SECTOR.0, seed: 7, id: 42, generation: 3, zone: 1, bytes: 4096 }
    }

    fn block(header: &Header) -> Vec<u8> {
        let mut block = vec![0xAA; 4096];
        header.write_block(&mut block);
        block
    }

    fn expected() -> Expected {
        Expected { sector: SECTOR, id: Some(42), generation: Some(3), seed: Some(7) }
    }

    fn check(block: &[u8]) -> Option<Found> {
        check_block(block, SECTOR, &geometry(), Some(&expected())).map(|(_, found)| found)
    }

    #[test]
    fn block_as_written_is_right() {
        assert_eq!(check(&block(&header())), None);
        assert_eq!(check_block(&block(&header()), SECTOR, &geometry(), None), None);
        let appended = Header { sector: SECTOR_UNKNOWN, ..header() };
        assert_eq!(check(&block(&appended)), None);
    }

    #[test]
    fn every_changed_byte_is_found() {
        let good = block(&header());
        // Bytes 52 to 55 carry no information and are not covered by a checksum.
        for at in (0..52).chain(HEADER_BYTES..good.len()) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(check(&bad).is_some(), "byte {at}");
        }
    }

    #[test]
    fn block_of_another_place_or_time_is_found() {
        let others = [
            Header { sector: 144, ..header() },
            Header { seed: 8, ..header() },
            Header { id: 41, ..header() },
            Header { generation: 2, ..header() },
            Header { sector: SECTOR_UNKNOWN, zone: 2, ..header() },
        ];
        for other in others {
            assert!(matches!(check(&block(&other)), Some(Found::Block { .. })), "{other:?}");
        }
    }

    #[test]
    fn missing_block_is_distinguished_from_a_damaged_one() {
        assert_eq!(check(&[0; 4096]), Some(Found::NoBlock { start: 0 }));
        let mut bad = block(&header());
        bad[9] ^= 1;
        assert!(matches!(check(&bad), Some(Found::BadHeader { .. })));
    }

    #[test]
    fn mixture_has_sectors_of_the_writes_to_its_place_only() {
        let [a, b, c] = [42, 43, 44].map(|id| Header { id, ..header() }.block());
        let mut torn = b[..1024].to_vec();
        torn.extend_from_slice(&a[1024..]);
        let writes = [a, b];
        assert!(is_mixture(&torn, &writes));
        torn[3584..].copy_from_slice(&c[3584..]);
        assert!(!is_mixture(&torn, &writes));
    }

    #[test]
    fn payloads_of_two_blocks_differ() {
        let (a, b) = (block(&header()), block(&Header { id: 43, ..header() }));
        let same = a[HEADER_BYTES..].iter().zip(&b[HEADER_BYTES..]).filter(|(a, b)| a == b).count();
        assert!(same < 100, "{same} of 4040 bytes are the same");
    }
}
