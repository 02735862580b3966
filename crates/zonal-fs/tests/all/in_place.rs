//! Writes from the caller's buffer, and zero-copy reads, mixed with all others.

use crate::common::{bytes, device, make, read_all, settle, volume, waiter};
use zonal_fs::format::{FileKind, HEADER_BYTES};
use zonal_fs::{FileSystem, MountOptions, NewFile, Payload, ROOT, SetIds};
use zonal_io::buffer::BufferPool;

const BLOCK: u64 = 4096;

/// Size of the largest write, in blocks.
const MOST: u64 = 255;

struct Files {
    fs: FileSystem,
    pool: BufferPool,
}

impl Files {
    /// A file system with units of up to `unit_blocks`, header included, in zones of 4 MiB.
    fn on(name: &str, unit_blocks: u32) -> Files {
        let fs = make(volume(device(name)), unit_blocks, MountOptions::default());
        Files { fs, pool: BufferPool::new(HEADER_BYTES as u32 + (MOST * BLOCK) as u32, 4) }
    }

    fn new_file(&self, name: &[u8]) -> u64 {
        self.fs.create(&waiter(), ROOT, name, &NewFile::new(FileKind::File, 0o644)).unwrap()
    }

    /// Writes `data` in place. Returns true if the file system kept the buffer.
    fn write(&self, ino: u64, at: u64, data: &[u8]) -> bool {
        let mut buf = self.pool.take();
        buf[HEADER_BYTES..][..data.len()].copy_from_slice(data);
        let before = buf.as_ptr();
        let written =
            self.fs.write_in_place(&waiter(), (ino, at), (&mut buf, data.len()), &self.pool, SetIds::Clear);
        assert_eq!(written.unwrap(), data.len() as u64);
        buf.as_ptr() != before
    }

    fn read(&self, ino: u64, at: u64, length: u64) -> Vec<u8> {
        self.fs.read_in_place(&waiter(), ino, at, length, |pieces| pieces.concat()).unwrap()
    }
}

fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

#[test]
fn writes_in_place_match_ordinary_writes() {
    // Some appends fail: a buffer that was handed over is then written elsewhere.
    let failing = "fault:plan=tests/data/every-ninth-append.toml+ram:size=256M,zone_size=4M,blocksize=4096,complete=poll";
    for (name, unit_blocks) in [
        ("ram:size=256M,zone_size=4M,blocksize=4096,complete=poll", 256),
        ("ram:size=256M,zone_size=4M,zone_capacity=3M,blocksize=4096,complete=poll", 256),
        (failing, 256),
    ] {
        let files = Files::on(name, unit_blocks);
        let ino = files.new_file(b"f");
        let open = files.fs.open_file(ino).unwrap();
        let mut model = vec![0; 0];
        let (mut state, mut kept) = (u64::from(unit_blocks), 0);
        for round in 0..300 {
            // Mostly whole blocks, and long writes.
            let at = random(&mut state, 4 * MOST) * BLOCK + [0, 0, 0, 100][random(&mut state, 4) as usize];
            let blocks = [MOST, MOST, 128, 127, 1 + random(&mut state, MOST)][random(&mut state, 5) as usize];
            let length = (blocks * BLOCK - [0, 0, 0, 5][random(&mut state, 4) as usize]) as usize;
            let data = bytes(round, length);
            if model.len() < at as usize + length {
                model.resize(at as usize + length, 0);
            }
            model[at as usize..][..length].copy_from_slice(&data);
            match random(&mut state, 4) {
                0 => _ = files.fs.write(&waiter(), ino, at, Payload::Bytes(&data)).unwrap(),
                _ => kept += u32::from(files.write(ino, at, &data)),
            }
            let from = random(&mut state, model.len() as u64);
            let wanted = random(&mut state, 3 * MOST * BLOCK);
            let end = model.len().min((from + wanted) as usize);
            assert!(files.read(ino, from, wanted) == model[from as usize..end], "{name}: round {round}");
            if round % 40 == 0 {
                files.fs.sync(&waiter()).unwrap();
            }
        }
        assert!(kept > 30, "{name}: {kept} were in place");
        assert_eq!(files.fs.statistics().failed_units > 0, name == failing, "{name}");
        settle(&files.fs);
        assert!(read_all(&files.fs, ino).unwrap() == model, "{name}");
        files.fs.check();
        open.close(&waiter()).unwrap();
    }
}

#[test]
fn holes_are_shown_as_zeroes_and_nothing_after_the_end() {
    let files = Files::on("ram:size=256M,zone_size=4M,blocksize=4096,complete=poll", 256);
    let ino = files.new_file(b"f");
    files.write(ino, MOST * BLOCK, &bytes(1, (MOST * BLOCK) as usize));
    files.fs.truncate(&waiter(), ino, 5 * MOST * BLOCK + 3).unwrap();
    let expected = [&vec![0; (MOST * BLOCK) as usize][..], &bytes(1, (MOST * BLOCK) as usize)].concat();
    assert!(files.read(ino, 0, 2 * MOST * BLOCK) == expected);
    assert!(
        files.read(ino, BLOCK - 1, MOST * BLOCK) == expected[BLOCK as usize - 1..][..(MOST * BLOCK) as usize]
    );
    assert_eq!(files.read(ino, 5 * MOST * BLOCK, 100), [0; 3]);
    assert_eq!(files.read(ino, 5 * MOST * BLOCK + 3, 100), [0; 0]);
}
