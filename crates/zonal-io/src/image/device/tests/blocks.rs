//! Blocks kept by reset zones, and reads executed in `submit`.

use super::*;
use crate::image::backing::FileBacking;
use crate::sync::{AtomicBool, Ordering};
use std::os::unix::fs::MetadataExt;

/// File system that is full until blocks are freed, or that has all data in memory.
struct Host {
    inner: Arc<CutBacking>,
    is_full: AtomicBool,
    /// True if all bytes are in memory.
    is_at_hand: bool,
    /// True once a sector of [`BEHIND`] was written.
    is_behind: AtomicBool,
}

/// A write that begins with this byte fails, once one that begins with [`BEHIND`] has arrived.
const FAILS: u8 = 0xFA;
const BEHIND: u8 = 0xFB;

impl Backing for Host {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.inner.read_at(buf, at)
    }
    fn read_at_once(&self, buf: &mut [u8], at: u64) -> bool {
        self.is_at_hand && self.read_at(buf, at).is_ok()
    }
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        if buf[0] == FAILS {
            while !self.is_behind.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            return Err(io::Error::from_raw_os_error(5));
        }
        self.is_behind.fetch_or(buf[0] == BEHIND, Ordering::Release);
        match self.is_full.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => self.inner.write_at(buf, at),
        }
    }
    fn zero(&self, at: u64, len: u64) -> io::Result<()> {
        self.inner.zero(at, len)
    }
    fn discard(&self, at: u64, len: u64) {
        self.is_full.store(false, Ordering::Relaxed);
        self.inner.discard(at, len);
    }
    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
}

fn host(is_at_hand: bool) -> Arc<Host> {
    Arc::new(Host {
        inner: backing(),
        is_full: AtomicBool::new(false),
        is_at_hand,
        is_behind: AtomicBool::new(false),
    })
}

#[test]
fn write_to_a_full_file_system_takes_the_space_that_reset_zones_keep() {
    let backing = host(false);
    let open = OpenOptions { threads: 0, ..Default::default() };
    let device = ImageDevice::open_backing(Path::new("twin"), backing.clone(), &open).unwrap();
    assert_eq!(write(&device, 2 * ZONE, 8, 1), DONE);
    assert_eq!(write(&device, 3 * ZONE, 8, 1), DONE);
    assert_eq!(flush(&device), DONE);
    assert_eq!(manage(&device, Op::ZoneReset, 2), DONE);
    assert_eq!(flush(&device), DONE);
    backing.is_full.store(true, Ordering::Relaxed);
    assert_eq!(write(&device, 3 * ZONE + 8, 8, 2), DONE);
    assert_eq!(read(&device, 3 * ZONE, 16), [[1; 8], [2; 8]].concat());
    // No blocks are kept any more.
    backing.is_full.store(true, Ordering::Relaxed);
    assert!(write(&device, 3 * ZONE + 16, 8, 3).is_err());
    backing.is_full.store(false, Ordering::Relaxed);
    assert_eq!(write(&device, 2 * ZONE, 8, 4), DONE);
    assert_eq!(read(&device, 2 * ZONE, 16), [[4; 8], [0; 8]].concat());
    device.close().unwrap();
}

/// The failed one leaves a hole, because the other has its place already.
#[test]
fn append_that_fails_before_another_shows_nothing_stale() {
    let open = OpenOptions { threads: 2, ..Default::default() };
    let device = ImageDevice::open_backing(Path::new("twin"), host(false), &open).unwrap();
    assert_eq!(write(&device, 2 * ZONE, 48, 1), DONE);
    assert_eq!(manage(&device, Op::ZoneReset, 2), DONE);
    let mut flight = CommandsInFlight::default();
    for byte in [FAILS, BEHIND] {
        flight.submit(&device, &command(Op::Append, 2 * ZONE, 8), byte);
    }
    let appended = |offset| Ok(Output::Appended(Sector(2 * ZONE + offset)));
    assert_eq!(flight.drain(&device, 2), [(0, Err(DeviceError::Os(5))), (1, appended(8))]);
    assert_eq!(zone(&device, 2), (ZoneCondition::ImpOpen, Some(16)));
    assert_eq!(read(&device, 2 * ZONE, 16), [[0; 8], [BEHIND; 8]].concat());
}

#[test]
fn blocks_kept_by_a_reset_show_nothing_stale_after_any_cut() {
    for cut in 0..12 {
        for seed in 0..10 {
            let backing = backing();
            let device = open(&backing);
            assert_eq!(write(&device, 2 * ZONE, 40, 1), DONE);
            assert_eq!(flush(&device), DONE);
            assert_eq!(manage(&device, Op::ZoneReset, 2), DONE);
            assert_eq!(flush(&device), DONE);
            backing.cut_at(backing.calls() + cut);
            // Until power is cut; the zone may only contain a prefix of these writes.
            for sector in 0..3 {
                let _ = (write(&device, 2 * ZONE + 8 * sector, 8, 2), flush(&device));
            }
            device.abandon();
            let backing = Arc::new(backing.restart(seed));
            let device = open(&backing);
            let written = zone(&device, 2).1.unwrap() as usize;
            let found = read(&device, 2 * ZONE, 48);
            assert_eq!(found, [vec![2; written], vec![0; 48 - written]].concat(), "cut {cut}, seed {seed}");
            // Also after more writes and a reset by the next opener, which has no record of the
            // blocks.
            assert_eq!(write(&device, 2 * ZONE + written as u64, 1, 3), DONE);
            assert_eq!(read(&device, 2 * ZONE, 48)[written..], [vec![3], vec![0; 47 - written]].concat());
            device.abandon();
        }
    }
}

#[test]
fn read_is_answered_in_submit_only_where_its_bytes_are_at_hand() {
    for is_at_hand in [false, true] {
        let open = OpenOptions { threads: 1, ..Default::default() };
        let device = ImageDevice::open_backing(Path::new("twin"), host(is_at_hand), &open).unwrap();
        assert_eq!(write(&device, 2 * ZONE, 8, 1), DONE);
        let mut buffer = IoBuf::zeroed(16 * 512);
        buffer.fill(0xEE);
        let command = Command { data: data(&mut buffer), ..command(Op::Read, 2 * ZONE, 16) };
        let submitted = device.submit(Nanos(0), 0, &command, &mut Some(Context::token(1)));
        assert_eq!(matches!(submitted, Submitted::Done(Ok(Output::Done))), is_at_hand);
        let mut ended = is_at_hand;
        while !ended {
            device.poll(Nanos(0), 0, 1, &mut |c| ended = c.result == DONE);
            device.wait(0, Duration::from_millis(10));
        }
        assert_eq!(buffer[..], [[1; 8 * 512], [0; 8 * 512]].concat());
        assert!(device.is_idle(0), "no place of the queue is taken");
        device.close().unwrap();
    }
}

/// An image with zones of 4 MiB, in a file.
fn in_file(dir: &Path) -> Arc<FileBacking> {
    let options = ImageOptions {
        size: Some(64 << 20),
        zone_size: Some(4 << 20),
        creation: Some([7; 16]),
        blocksize: Some(4096),
        ..Default::default()
    };
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(dir.join("image"));
    let backing = Arc::new(FileBacking::new(file.unwrap()));
    options.format(&*backing).unwrap();
    backing
}

#[test]
fn short_writes_with_a_flush_after_each_find_blocks_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let backing = in_file(dir.path());
    let open = || {
        let options = OpenOptions { threads: 0, ..Default::default() };
        ImageDevice::open_backing(Path::new("image"), backing.clone(), &options).unwrap()
    };
    let device = open();
    let bytes = || std::fs::metadata(dir.path().join("image")).unwrap().blocks() * 512;
    let before = bytes();
    (0..4).for_each(|n| assert_eq!(write(&device, n * 8, 8, 1), DONE));
    run(&device, &command(Op::Flush, 0, 0)).unwrap();
    assert!(bytes() < before + (64 << 10), "writes without flushes take no more than their own");
    for n in 4..200u8 {
        write(&device, u64::from(n) * 8, 8, n).unwrap();
        run(&device, &command(Op::Flush, 0, 0)).unwrap();
    }
    let taken = bytes() - before;
    assert!((200 * 4096 + (64 << 10)..200 * 4096 + (512 << 10)).contains(&taken), "{taken} bytes");
    let check = |device: &ImageDevice| {
        (4..200u8).for_each(|n| assert_eq!(read(device, u64::from(n) * 8, 8), [n; 8]));
        assert_eq!(read(device, 200 * 8, 8), [0; 8]);
    };
    check(&device);
    drop(device);
    check(&open());
}

#[test]
fn zeroes_for_later_writes_overwrite_no_write_of_another_thread() {
    let dir = tempfile::tempdir().unwrap();
    let options = OpenOptions { threads: 4, submit_queues: 3, ..Default::default() };
    let device = ImageDevice::open_backing(Path::new("image"), in_file(dir.path()), &options).unwrap();
    let zone = 4 << 11;
    for round in 1..=20u8 {
        // Threads append to one zone, and flush now and then.
        let written: Vec<(u64, u8)> = std::thread::scope(|s| {
            let appends = |thread: u8| {
                let device = &device;
                move || {
                    let queue = usize::from(thread);
                    let one = |n: u8| {
                        let byte = round ^ thread << 5 ^ n;
                        let mut buffer = IoBuf::zeroed(4096);
                        buffer.fill(byte);
                        let append = Command { data: data(&mut buffer), ..command(Op::Append, zone, 8) };
                        let Ok(Output::Appended(at)) = run_on(device, queue, &append) else {
                            panic!("append")
                        };
                        if n % 3 == thread {
                            run_on(device, queue, &command(Op::Flush, 0, 0)).unwrap();
                        }
                        (at.0, byte)
                    };
                    (0..30).map(one).collect::<Vec<_>>()
                }
            };
            let threads: Vec<_> = (0..3).map(|thread| s.spawn(appends(thread))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        for (at, byte) in written {
            assert!(read(&device, at, 8) == [byte; 8], "round {round}, sector {at}");
        }
        run(&device, &command(Op::ZoneReset, zone, 0)).unwrap();
    }
}
