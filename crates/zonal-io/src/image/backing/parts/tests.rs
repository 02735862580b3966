use super::*;
use crate::image::ImageOptions;
use crate::image::backing::FileBacking;
use crate::sync::AtomicU32;

const ZONE: u64 = 64 << 10;

/// File that counts its syncs, and fails one on request.
struct Counted {
    file: FileBacking,
    syncs: AtomicU32,
    fails: AtomicBool,
}

impl Backing for Counted {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.file.write_at(buf, at)
    }

    fn zero(&self, at: u64, len: u64) -> io::Result<()> {
        self.file.zero(at, len)
    }

    fn discard(&self, at: u64, len: u64) {
        self.file.discard(at, len);
    }

    fn sync(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        if self.fails.swap(false, Ordering::SeqCst) { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
    }
}

/// Ten zones in files of four, and the offset of the data.
fn parts() -> (Parts<Counted>, u64) {
    let mut header =
        ImageOptions::default().with_size(10 * ZONE).with_zone_size(ZONE).header().expect("it is a drive");
    header.zones_per_file = 4;
    let split = header.split().unwrap();
    assert_eq!(split.files(), 3);
    let files = (0..3).map(|index| {
        let file = FileBacking::new(tempfile::tempfile().unwrap());
        file.set_len(split.file_len(index)).unwrap();
        Counted { file, syncs: AtomicU32::new(0), fails: AtomicBool::new(false) }
    });
    (Parts::new(split, files.collect()), header.layout().data_offset)
}

fn syncs(parts: &Parts<Counted>) -> Vec<u32> {
    parts.files.iter().map(|part| part.backing.syncs.load(Ordering::SeqCst)).collect()
}

#[test]
fn bytes_across_files_are_one_range() {
    let (parts, data) = parts();
    let len = parts.len().unwrap();
    assert_eq!(len, data + 10 * ZONE);
    let bytes: Vec<u8> = (0..9 * ZONE).map(|i| (i / 512 % 251) as u8 + 1).collect();
    // From the middle of the first zone to the middle of the last, across both file boundaries.
    let at = data + ZONE / 2;
    parts.write_at(&bytes, at).unwrap();
    let mut back = vec![0; bytes.len()];
    parts.read_at(&mut back, at).unwrap();
    assert_eq!(back, bytes);
    // The bytes around it are unchanged.
    let mut around = vec![1; (ZONE / 2) as usize];
    for at in [data, len - ZONE / 2] {
        parts.read_at(&mut around, at).unwrap();
        assert!(around.iter().all(|&b| b == 0));
    }
    let mut pieces: Vec<IoSlice<'_>> = bytes[..2 << 10].chunks(512).map(IoSlice::new).collect();
    parts.write_vectored_at(&mut pieces, data + 4 * ZONE - 1024).unwrap();
    let mut back = [0; 2 << 10];
    parts.read_at(&mut back, data + 4 * ZONE - 1024).unwrap();
    assert_eq!(back[..], bytes[..2 << 10]);
    parts.zero(data + 3 * ZONE, 6 * ZONE).unwrap();
    let mut back = vec![1; 6 * ZONE as usize];
    parts.read_at(&mut back, data + 3 * ZONE).unwrap();
    assert!(back.iter().all(|&b| b == 0));
    // The previous zone is unchanged.
    parts.read_at(&mut around, data + 3 * ZONE - ZONE / 2).unwrap();
    assert!(around.iter().all(|&b| b != 0));
    assert!(parts.read_at(&mut [0; 2], len - 1).is_err());
    assert!(parts.write_at(&[0; 2], len + ZONE * 3).is_err());
}

#[test]
fn sync_covers_exactly_the_written_parts() {
    let (parts, data) = parts();
    parts.sync().unwrap();
    assert_eq!(syncs(&parts), [1, 1, 1], "an earlier opener may have written any of them");
    parts.sync().unwrap();
    assert_eq!(syncs(&parts), [1, 1, 1]);
    parts.write_at(&[1; 512], data + 5 * ZONE).unwrap();
    parts.sync().unwrap();
    assert_eq!(syncs(&parts), [1, 2, 1]);
    parts.store(4096, 7).unwrap();
    parts.zero(data + 8 * ZONE, 512).unwrap();
    parts.files[0].backing.fails.store(true, Ordering::SeqCst);
    parts.sync().unwrap_err();
    parts.sync().unwrap();
    assert_eq!(syncs(&parts), [3, 2, 2], "a failed sync leaves nothing out");
}
