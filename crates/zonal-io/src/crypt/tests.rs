use super::*;
use crate::clock::Clock;
use crate::device::Output;
use crate::emulated::{CompleteMode, Emulated, EmulatedOptions, Ram};
use crate::volume::{Request, Volume, VolumeOptions, WriteMode, run_alone};

/// Eight zones of 512 sectors, the first conventional.
fn options(complete: CompleteMode) -> EmulatedOptions {
    EmulatedOptions {
        size: 8 * 512 * 512,
        zone_size: 512 * 512,
        zone_nr_conv: 1,
        hw_queue_depth: 3,
        complete,
        ..Default::default()
    }
}

/// The key of vector 10 of IEEE 1619.
fn key() -> Key {
    Key::parse(
        b"27182818284590452353602874713526624977572470936999595749669676273141592653589793238462643383279502884197169399375105820974944592\n",
    )
    .unwrap()
}

/// A drive with its encrypted view.
fn drive(complete: CompleteMode) -> (Arc<dyn Device>, Arc<Crypt>) {
    let options = options(complete);
    let ram = Ram::new(&options.geometry().unwrap());
    let below: Arc<dyn Device> = Arc::new(Emulated::new("ram", &options, ram).unwrap());
    let crypt = Arc::new(Crypt::new(below.clone(), &key()));
    (below, crypt)
}

/// Runs a command on memory divided at `cut`.
fn run(device: &dyn Device, op: Op, sector: u64, bytes: &mut [u8], cut: usize) -> CommandResult {
    let (one, two) = bytes.split_at_mut(cut);
    let pieces = [Segment::new(one.as_mut_ptr(), one.len()), Segment::new(two.as_mut_ptr(), two.len())];
    // SAFETY: bytes and list outlive the command, because this waits for its completion.
    let data = unsafe { Data::many(&raw const pieces) };
    let sectors = (bytes.len() / SECTOR) as u32;
    run_alone(device, &Command { data, ..Command::new(op, Sector(sector), sectors) })
}

fn write(device: &dyn Device, sector: u64, bytes: &[u8]) {
    let mut copy = bytes.to_vec();
    run(device, Op::Write, sector, &mut copy, SECTOR).unwrap();
    assert_eq!(copy, bytes, "the host's bytes are unchanged");
}

fn read(device: &dyn Device, sector: u64, sectors: usize, cut: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; sectors * SECTOR];
    run(device, Op::Read, sector, &mut bytes, cut).unwrap();
    bytes
}

const MODES: [CompleteMode; 2] = [CompleteMode::Inline, CompleteMode::Poll];

fn pattern(seed: u8, sectors: usize) -> Vec<u8> {
    (0..sectors * SECTOR).map(|n| (n as u8).wrapping_mul(31) ^ (n / SECTOR) as u8 ^ seed).collect()
}

/// Vector 10 of IEEE 1619: the data unit of sector 255.
#[test]
fn sectors_have_the_bytes_of_the_standard() {
    let (below, crypt) = drive(CompleteMode::Inline);
    let plain: Vec<u8> = (0..SECTOR).map(|n| n as u8).collect();
    write(&*crypt, 255, &plain);
    let bytes = read(&*below, 255, 1, 0);
    assert_eq!(bytes[..8], [0x1c, 0x3b, 0x3a, 0x10, 0x2f, 0x77, 0x03, 0x86]);
    assert_eq!(bytes[SECTOR - 8..], [0xb9, 0xc6, 0xe6, 0x93, 0xe1, 0x48, 0xc1, 0x51]);
}

#[test]
fn data_is_readable_above_and_different_below() {
    for mode in MODES {
        let (below, crypt) = drive(mode);
        let plain = pattern(7, 8);
        write(&*crypt, 512, &plain);
        write(&*crypt, 1024, &plain);
        // Destinations that are divided between sectors and inside one.
        for cut in [0, 3 * SECTOR, 700] {
            assert_eq!(read(&*crypt, 512, 8, cut), plain, "{mode:?} {cut}");
            assert_eq!(read(&*crypt, 1026, 6, cut), plain[2 * SECTOR..], "{mode:?} {cut}");
        }
        let (one, other) = (read(&*below, 512, 8, 0), read(&*below, 1024, 8, 0));
        for n in (0..plain.len()).step_by(SECTOR) {
            let sector = n..n + SECTOR;
            assert_ne!(one[sector.clone()], plain[sector.clone()]);
            assert_ne!(one[sector.clone()], other[sector], "the address matters");
        }
        let mut wrong = key();
        wrong.0[63] ^= 1;
        assert_ne!(read(&Crypt::new(below, &wrong), 512, 1, 0), plain[..SECTOR]);
    }
}

#[test]
fn unwritten_sectors_read_as_zeroes_and_written_zeroes_are_encrypted() {
    for mode in MODES {
        let (below, crypt) = drive(mode);
        write(&*crypt, 512, &[0; 2 * SECTOR]);
        assert_eq!(read(&*crypt, 512, 4, 100), [0; 4 * SECTOR]);
        assert!(read(&*below, 512, 2, 0).chunks(SECTOR).all(|sector| sector.iter().any(|&b| b != 0)));
        write(&*crypt, 8, &pattern(1, 4));
        let discard = Command::new(Op::Discard, Sector(9), 2);
        run_alone(&*crypt, &discard).unwrap();
        let left = read(&*crypt, 8, 4, 0);
        assert_eq!(left[SECTOR..3 * SECTOR], [0; 2 * SECTOR]);
        assert_eq!(left[3 * SECTOR..], pattern(1, 4)[3 * SECTOR..]);
    }
}

#[test]
fn commands_that_would_store_plain_data_are_not_supported() {
    let (below, crypt) = drive(CompleteMode::Inline);
    let crypt: Arc<dyn Device> = crypt;
    assert_eq!((crypt.info().append_sectors_max, crypt.info().write_zeroes_sectors_max), (0, 0));
    assert!(below.info().append_sectors_max > 0 && below.info().write_zeroes_sectors_max > 0);
    for op in [Op::Append, Op::WriteZeroes] {
        assert_eq!(run(&*crypt, op, 512, &mut [1; SECTOR], 0), Err(DeviceError::Unsupported));
    }
    assert_eq!(read(&*below, 512, 1, 0), [0; SECTOR]);
    let mode = Some(WriteMode::Append);
    assert!(Volume::open(crypt, VolumeOptions::default().with_mode(mode)).is_err());
}

#[test]
fn errors_of_the_device_are_passed_on() {
    for mode in MODES {
        let (_, crypt) = drive(mode);
        let refused = run(&*crypt, Op::Write, 520, &mut pattern(0, 1), 0);
        assert_eq!(refused, Err(zonal_core::ZoneError::InvalidWrite.into()));
        let mut bytes = [0xEE; SECTOR];
        assert_eq!(run(&*crypt, Op::Read, 1 << 40, &mut bytes, 0), Err(DeviceError::OutOfRange));
        assert_eq!(bytes, [0xEE; SECTOR], "nothing to decrypt");
    }
}

/// The volume emulates the appends, merges contiguous ones, and meets full queues.
#[test]
fn appends_of_many_threads_are_emulated_above() {
    const THREADS: u8 = 4;
    const EACH: u8 = 40;
    for mode in [WriteMode::PerZone, WriteMode::Qd1] {
        let (below, crypt) = drive(CompleteMode::Poll);
        let volume = Volume::open(crypt, VolumeOptions::default().with_mode(Some(mode))).unwrap();
        let clock = Clock::start();
        let write = |thread: u8| {
            let appended = (0..EACH).map(|n| {
                let bytes = pattern(thread * EACH + n, 2);
                let start = Sector(512 * (1 + u64::from(n % 2)));
                match volume.call(&clock, Request::append(start, 2, IoBuf::copied(&bytes))).result {
                    Ok(Output::Appended(at)) => (at, bytes),
                    other => panic!("{mode}: {other:?}"),
                }
            });
            appended.collect::<Vec<_>>()
        };
        let written: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || write(thread))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        for (at, bytes) in &written {
            let read_back = volume.call(&clock, Request::read(*at, 2, IoBuf::zeroed(1024))).buf.into_buf();
            assert_eq!(&read_back[..], &bytes[..], "{mode}: {at}");
            assert_ne!(read(&*below, at.0, 2, 0), *bytes);
        }
        let mut places: Vec<_> = written.iter().map(|(at, _)| at.0).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), usize::from(THREADS) * usize::from(EACH), "each has its own place");
    }
}

#[test]
fn key_is_64_bytes_or_128_digits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Key::read(&path).map_err(|error| error.to_string().replace(path.to_str().unwrap(), "key"))
    };
    let bytes: [u8; KEY_BYTES] = std::array::from_fn(|n| n as u8 * 3);
    let digits = bytes.map(|byte| format!("{byte:02X}")).concat();
    for text in [bytes.to_vec(), digits.clone().into_bytes(), format!(" {digits}\r\n").into_bytes()] {
        assert!(read(&text) == Ok(Key(bytes)), "{text:?}");
    }
    let length = Err("key: not a key: needs 64 bytes, or 128 hexadecimal digits".to_owned());
    for text in [&b""[..], &bytes[1..], &[b'1'; 127], &[b'x'; 128], &[b'1'; 2000], "é".repeat(64).as_bytes()]
    {
        assert_eq!(read(text), length, "{text:?}");
    }
    let same = Err("key: unsuitable key: its two halves are the same; use 64 random bytes".to_owned());
    assert_eq!(read(&[9; KEY_BYTES]), same);
    std::fs::remove_file(&path).unwrap();
    assert!(Key::read(&path).unwrap_err().to_string().contains("cannot read the key: No such file"));
    assert_eq!(format!("{:?}", key()), "Key(..)", "a key is never printed");
}
