use super::*;
use crate::buffer::IoBuf;
use crate::data::{Data, Segment};
use crate::device::{CommandResult, Output};
use crate::image::ImageOptions;
use crate::image::backing::twin::{Call, CutBacking, Watched};
use crate::sync::{Condvar, Mutex};
use std::io;
use std::time::Duration;
use zonal_core::{DeviceError, Op, Sector, ZoneCondition, ZoneError};

const ZONE: u64 = 64;

fn options() -> ImageOptions {
    ImageOptions {
        size: Some(16 * ZONE * 512),
        zone_size: Some(ZONE * 512),
        zone_capacity: Some(48 * 512),
        zone_nr_conv: Some(2),
        zone_max_open: Some(3),
        zone_max_active: Some(4),
        blocksize: Some(512),
        creation: Some([7; 16]),
        ..Default::default()
    }
}

fn backing() -> Arc<CutBacking> {
    let backing = Arc::new(CutBacking::new(1));
    options().format(&*backing).unwrap();
    backing
}

fn open_with(backing: &Arc<CutBacking>, options: &OpenOptions) -> ImageDevice {
    ImageDevice::open_backing(Path::new("twin"), backing.clone(), options).unwrap()
}

fn open(backing: &Arc<CutBacking>) -> ImageDevice {
    open_with(backing, &OpenOptions { threads: 0, ..Default::default() })
}

/// Runs a command to completion.
fn run(device: &ImageDevice, command: &Command) -> CommandResult {
    run_on(device, 0, command)
}

/// Runs a command to completion on a queue that no other thread uses.
fn run_on(device: &ImageDevice, queue: usize, command: &Command) -> CommandResult {
    let mut context = Some(Context::token(1));
    match device.submit(Nanos(0), queue, command, &mut context) {
        Submitted::Done(result) => return result,
        Submitted::Busy => panic!("busy"),
        Submitted::Accepted => {}
    }
    loop {
        let mut answer = None;
        device.poll(Nanos(0), queue, 1, &mut |c| answer = Some(c.result));
        match answer {
            Some(result) => return result,
            None => device.wait(queue, Duration::from_secs(1)),
        }
    }
}

fn command(op: Op, sector: u64, sectors: u32) -> Command {
    Command::new(op, Sector(sector), sectors)
}

fn data(buffer: &mut IoBuf) -> Data {
    // SAFETY: every caller keeps the buffer until its command completes.
    unsafe { Data::one(Segment::new(buffer.as_ptr(), buffer.len())) }
}

fn with_bytes(device: &ImageDevice, command: &Command, byte: u8) -> CommandResult {
    let mut buffer = IoBuf::zeroed(command.sectors * 512);
    buffer.fill(byte);
    run(device, &Command { data: data(&mut buffer), ..*command })
}

fn write(device: &ImageDevice, sector: u64, sectors: u32, byte: u8) -> CommandResult {
    with_bytes(device, &command(Op::Write, sector, sectors), byte)
}

fn append(device: &ImageDevice, zone: u64, sectors: u32, byte: u8) -> CommandResult {
    with_bytes(device, &command(Op::Append, zone * ZONE, sectors), byte)
}

/// First byte of each sector.
fn read(device: &ImageDevice, sector: u64, sectors: u32) -> Vec<u8> {
    let mut buffer = IoBuf::zeroed(sectors * 512);
    buffer.fill(0xEE);
    let done = run(device, &Command { data: data(&mut buffer), ..command(Op::Read, sector, sectors) });
    assert_eq!(done, Ok(Output::Done));
    buffer.chunks(512).inspect(|s| assert!(s.iter().all(|b| *b == s[0]))).map(|s| s[0]).collect()
}

fn manage(device: &ImageDevice, op: Op, zone: u64) -> CommandResult {
    run(device, &command(op, zone * ZONE, 0))
}

fn flush(device: &ImageDevice) -> CommandResult {
    run(device, &command(Op::Flush, 0, 0))
}

fn zone(device: &ImageDevice, zone: u64) -> (ZoneCondition, Option<u64>) {
    let Ok(Output::Zones(zones)) = run(device, &command(Op::Report, zone * ZONE, 1)) else { panic!() };
    (zones[0].condition, zones[0].write_pointer.map(|p| p.0 - zone * ZONE))
}

const DONE: CommandResult = Ok(Output::Done);

#[test]
fn flushed_data_and_states_survive_a_reopen() {
    let backing = backing();
    let device = open(&backing);
    assert_eq!(write(&device, 2 * ZONE, 8, 1), DONE);
    assert_eq!(append(&device, 2, 8, 2), Ok(Output::Appended(Sector(2 * ZONE + 8))));
    assert_eq!(write(&device, 3 * ZONE, 48, 3), DONE);
    assert_eq!(write(&device, 4 * ZONE, 4, 4), DONE);
    assert_eq!(manage(&device, Op::ZoneFinish, 4), DONE);
    assert_eq!(manage(&device, Op::ZoneOpen, 5), DONE);
    assert_eq!(write(&device, 70, 2, 5), DONE);
    assert_eq!(zone(&device, 5), (ZoneCondition::ExpOpen, Some(0)));
    assert_eq!(flush(&device), DONE);
    device.abandon();

    let device = open(&Arc::new(backing.restart(1)));
    assert_eq!(zone(&device, 1), (ZoneCondition::NotWp, None));
    assert_eq!(zone(&device, 2), (ZoneCondition::Closed, Some(16)));
    assert_eq!(zone(&device, 3), (ZoneCondition::Full, None));
    assert_eq!(zone(&device, 4), (ZoneCondition::Full, None));
    assert_eq!(zone(&device, 5), (ZoneCondition::Empty, Some(0)));
    assert_eq!(read(&device, 2 * ZONE, 18), [[1; 8].as_slice(), &[2; 8], &[0; 2]].concat());
    assert_eq!(read(&device, 3 * ZONE, 64), [[3; 48].as_slice(), &[0; 16]].concat());
    assert_eq!(read(&device, 4 * ZONE, 6), [4, 4, 4, 4, 0, 0]);
    assert_eq!(read(&device, 69, 4), [0, 5, 5, 0]);
    device.zones().check().unwrap();
}

#[test]
fn h59_finished_zone_keeps_where_its_data_ends() {
    let backing = backing();
    let device = open(&backing);
    // Several zones, because the twin ignores some discards, so their previous data is still in the
    // file.
    for index in 2..12 {
        assert_eq!(write(&device, index * ZONE, 8, 1), DONE);
        assert_eq!(manage(&device, Op::ZoneFinish, index), DONE);
        assert_eq!(manage(&device, Op::ZoneReset, index), DONE);
        assert_eq!(write(&device, index * ZONE, 2, 2), DONE);
        assert_eq!(flush(&device), DONE);
        assert_eq!(manage(&device, Op::ZoneFinish, index), DONE);
    }
    device.close().unwrap();
    let device = open(&backing);
    for index in 2..12 {
        assert_eq!(zone(&device, index), (ZoneCondition::Full, None));
        assert_eq!(read(&device, index * ZONE, 4), [2, 2, 0, 0]);
    }
}

#[test]
fn h61_failed_data_leaves_the_pointer() {
    let backing = backing();
    let device = open(&backing);
    assert_eq!(write(&device, 2 * ZONE, 8, 1), DONE);
    backing.fail_at(backing.calls());
    assert_eq!(write(&device, 2 * ZONE + 8, 8, 2), Err(DeviceError::Os(5)));
    assert_eq!(zone(&device, 2), (ZoneCondition::ImpOpen, Some(8)));
    assert_eq!(read(&device, 2 * ZONE + 8, 2), [0, 0]);
    assert_eq!(write(&device, 2 * ZONE + 8, 8, 3), DONE);
    assert!(device.failure().is_none(), "a failed data write is not a failed flush");
    assert_eq!(flush(&device), DONE);
}

#[test]
fn failed_sync_stands_until_reopen() {
    let backing = backing();
    let device = open(&backing);
    assert_eq!(write(&device, 2 * ZONE, 8, 1), DONE);
    assert_eq!(flush(&device), DONE);
    assert_eq!(write(&device, 2 * ZONE + 8, 8, 2), DONE);
    // Flush of one page that is already anchored: the page, the stamp, the sync.
    backing.fail_at(backing.calls() + 2);
    let failed = Err(DeviceError::Os(5));
    assert_eq!(flush(&device), failed);
    assert_eq!(flush(&device), failed);
    assert_eq!(write(&device, 2 * ZONE + 16, 8, 2), failed);
    assert_eq!(append(&device, 3, 8, 2), failed);
    assert_eq!(write(&device, 0, 8, 2), failed);
    assert_eq!(manage(&device, Op::ZoneReset, 2), failed);
    assert_eq!(run(&device, &command(Op::ResetAll, 0, 0)), failed);
    assert_eq!(read(&device, 2 * ZONE + 8, 1), [2], "reads go on");
    let message = device.failure().unwrap().to_string();
    assert!(
        message.starts_with("twin: syncing data and zone states failed: Input/output error"),
        "{message}"
    );
    assert!(device.close().is_err());
    // The cache has the data and the page, but no sync writes them unless they are written again.
    let device = open(&backing);
    assert_eq!(zone(&device, 2), (ZoneCondition::Closed, Some(16)));
    assert_eq!(write(&device, 2 * ZONE + 16, 8, 3), DONE);
    assert_eq!(flush(&device), DONE);
    for seed in 0..20 {
        let device = open(&Arc::new(backing.restart(seed)));
        assert_eq!(zone(&device, 2), (ZoneCondition::Closed, Some(24)));
        assert_eq!(read(&device, 2 * ZONE, 24), [[1; 8], [2; 8], [3; 8]].concat());
    }
}

#[test]
fn data_of_a_failed_sync_is_absent_after_reopening() {
    let backing = backing();
    let device = open(&backing);
    assert_eq!(write(&device, 2 * ZONE, 8, 1), DONE);
    // First flush: session and its sync, with a stamp before and after; an anchor, a stamp, the
    // sync of data.
    backing.fail_at(backing.calls() + 6);
    assert_eq!(flush(&device), Err(DeviceError::Os(5)));
    let message = device.failure().unwrap().to_string();
    assert!(message.starts_with("twin: syncing data failed"), "{message}");
    device.abandon();
    assert_eq!(zone(&open(&backing), 2), (ZoneCondition::Empty, Some(0)));
}

/// Holds writes of data until it is opened.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }

    fn pass(&self, call: Call) {
        if matches!(call, Call::Write(at) if at >= 1 << 20) {
            self.opened.wait_while(&mut self.is_open.lock(), |is_open| !*is_open);
        }
    }
}

/// Commands in flight and their buffers.
#[derive(Default)]
struct CommandsInFlight(Vec<IoBuf>);

impl CommandsInFlight {
    fn submit(&mut self, device: &ImageDevice, command: &Command, byte: u8) -> Submitted {
        let mut buffer = IoBuf::zeroed(command.sectors * 512);
        buffer.fill(byte);
        let command = Command { data: data(&mut buffer), ..*command };
        self.0.push(buffer);
        device.submit(Nanos(0), 0, &command, &mut Some(Context::token(self.0.len() as u64 - 1)))
    }

    /// Waits for `n` answers; returns `(token, answer)` in order of submission.
    fn drain(&mut self, device: &ImageDevice, n: usize) -> Vec<(u64, CommandResult)> {
        let mut answers = Vec::new();
        while answers.len() < n {
            device.poll(Nanos(0), 0, n, &mut |c| answers.push((c.context.into_token(), c.result)));
            if answers.len() < n {
                device.wait(0, Duration::from_secs(1));
            }
        }
        answers.sort_by_key(|(token, _)| *token);
        answers
    }
}

fn gated(threads: usize) -> (Arc<Gate>, Arc<CutBacking>, ImageDevice) {
    let (gate, twin) = (Arc::new(Gate::default()), backing());
    let watcher = gate.clone();
    let watched = Arc::new(Watched::new(twin.clone(), move |call| watcher.pass(call)));
    let options = OpenOptions { threads, ..Default::default() };
    let device = ImageDevice::open_backing(Path::new("gate"), watched, &options).unwrap();
    (gate, twin, device)
}

#[test]
fn positional_write_while_another_is_in_flight_is_refused() {
    let (gate, _, device) = gated(1);
    let mut flight = CommandsInFlight::default();
    let first = flight.submit(&device, &command(Op::Write, 2 * ZONE, 4), 1);
    assert!(matches!(first, Submitted::Accepted));
    match flight.submit(&device, &command(Op::Write, 2 * ZONE + 4, 4), 1) {
        Submitted::Done(result) => assert_eq!(result, Err(DeviceError::Zone(ZoneError::InvalidWrite))),
        other => panic!("{other:?}"),
    }
    device.poll(Nanos(0), 0, 8, &mut |c| panic!("{c:?} before its data"));
    gate.open();
    assert_eq!(flight.drain(&device, 1), [(0, DONE)]);
    assert_eq!(write(&device, 2 * ZONE + 4, 4, 2), DONE);
}

#[test]
fn appends_in_flight_overlap_and_keep_their_places() {
    let (gate, _, device) = gated(3);
    let mut flight = CommandsInFlight::default();
    for byte in 1..=3 {
        let submitted = flight.submit(&device, &command(Op::Append, 2 * ZONE, 4), byte);
        assert!(matches!(submitted, Submitted::Accepted));
    }
    gate.open();
    let answers = flight.drain(&device, 3);
    let expected: Vec<_> = (0..3).map(|n| (n, Ok(Output::Appended(Sector(2 * ZONE + 4 * n))))).collect();
    assert_eq!(answers, expected);
    assert_eq!(read(&device, 2 * ZONE, 12), [[1; 4], [2; 4], [3; 4]].concat());
}

#[test]
fn reset_while_writes_are_in_flight_keeps_them_from_newer_bytes() {
    let (gate, _, device) = gated(2);
    let mut flight = CommandsInFlight::default();
    // The first two are being transferred, the third waits.
    for byte in 1..=3 {
        flight.submit(&device, &command(Op::Append, 2 * ZONE, 4), byte);
    }
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(manage(&device, Op::ZoneReset, 2), DONE);
    let newer = flight.submit(&device, &command(Op::Append, 2 * ZONE, 8), 9);
    assert!(matches!(newer, Submitted::Accepted));
    gate.open();
    let answers = flight.drain(&device, 4);
    assert!(answers.iter().all(|(_, result)| result.is_ok()), "{answers:?}");
    assert_eq!(answers[3], (3, Ok(Output::Appended(Sector(2 * ZONE)))));
    assert_eq!(zone(&device, 2), (ZoneCondition::ImpOpen, Some(8)));
    assert_eq!(read(&device, 2 * ZONE, 12), [[9; 8].as_slice(), &[0; 4]].concat());
}

#[test]
fn awaited_command_is_executed_in_submit_unless_others_wait_for_a_helper_thread() {
    let (gate, _, device) = gated(1);
    let flush =
        || device.submit_awaited(Nanos(0), 0, &command(Op::Flush, 0, 0), &mut Some(Context::token(2)));
    assert!(matches!(flush(), Submitted::Done(DONE)));
    let mut flight = CommandsInFlight::default();
    // The helper thread is at the first one at most.
    for zone in 2..4 {
        flight.submit(&device, &command(Op::Append, zone * ZONE, 4), 1);
    }
    assert!(matches!(flush(), Submitted::Accepted));
    gate.open();
    assert_eq!(flight.drain(&device, 3)[2], (2, DONE));
}

#[test]
fn flush_includes_nothing_that_has_not_arrived() {
    let (gate, twin, device) = gated(2);
    let mut flight = CommandsInFlight::default();
    flight.submit(&device, &command(Op::Append, 2 * ZONE, 8), 1);
    // Fills the zone, which is full at once in memory, but not yet in the ledger.
    flight.submit(&device, &command(Op::Append, 3 * ZONE, 48), 2);
    let mut flush_only = CommandsInFlight::default();
    assert!(matches!(flush_only.submit(&device, &command(Op::Flush, 0, 0), 0), Submitted::Accepted));
    device.engine.close().unwrap();
    let device_after = open(&Arc::new(twin.restart(3)));
    assert_eq!(zone(&device_after, 2), (ZoneCondition::Empty, Some(0)));
    assert_eq!(zone(&device_after, 3), (ZoneCondition::Empty, Some(0)));
    gate.open();
    assert_eq!(flight.drain(&device, 3).len(), 3);
    assert_eq!(zone(&device, 3), (ZoneCondition::Full, None));
    device.close().unwrap();
    let device_after = open(&Arc::new(twin.restart(3)));
    assert_eq!(zone(&device_after, 2), (ZoneCondition::Closed, Some(8)));
    assert_eq!(zone(&device_after, 3), (ZoneCondition::Full, None));
}

/// Backing that executes a discard only after data was written at `awaited`, or after a time-out.
struct Reluctant {
    inner: Arc<CutBacking>,
    awaited: u64,
    written: Mutex<bool>,
    news: Condvar,
}

impl Backing for Reluctant {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.inner.read_at(buf, at)
    }
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.inner.write_at(buf, at)?;
        if at == self.awaited {
            *self.written.lock() = true;
            self.news.notify_all();
        }
        Ok(())
    }
    fn zero(&self, at: u64, len: u64) -> io::Result<()> {
        self.inner.zero(at, len)
    }
    fn discard(&self, at: u64, len: u64) {
        let mut written = self.written.lock();
        if !*written {
            self.news.wait_for(&mut written, Duration::from_secs(1));
        }
        drop(written);
        self.inner.discard(at, len);
    }
    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
}

#[test]
fn space_of_a_reset_zone_is_not_given_back_under_new_data() {
    let inner = backing();
    let layout = options().header().unwrap().layout();
    let backing = Arc::new(Reluctant {
        inner,
        awaited: layout.data(Sector(2 * ZONE + 8)),
        written: Mutex::new(false),
        news: Condvar::new(),
    });
    let open = OpenOptions { threads: 2, kept_max: 0, ..Default::default() };
    let device = ImageDevice::open_backing(Path::new("twin"), backing, &open).unwrap();
    // The old data ends where the second new append begins, so that append need not wait for the
    // commit of the reset.
    assert_eq!(append(&device, 2, 8, 1), Ok(Output::Appended(Sector(2 * ZONE))));
    assert_eq!(manage(&device, Op::ZoneReset, 2), DONE);
    let mut buffers = [2, 3].map(|byte| {
        let mut buffer = IoBuf::zeroed(8 * 512);
        buffer.fill(byte);
        buffer
    });
    for buffer in &mut buffers {
        let command = Command { data: data(buffer), ..command(Op::Append, 2 * ZONE, 8) };
        assert!(matches!(
            device.submit(Nanos(0), 0, &command, &mut Some(Context::token(1))),
            Submitted::Accepted
        ));
    }
    let mut ended = 0;
    while ended < 2 {
        device.poll(Nanos(0), 0, 2, &mut |c| {
            assert!(c.result.is_ok());
            ended += 1;
        });
        device.wait(0, Duration::from_millis(10));
    }
    assert_eq!(read(&device, 2 * ZONE, 16), [[2; 8], [3; 8]].concat());
    device.close().unwrap();
}

#[test]
fn zone_settings_survive_a_restart_and_can_be_restored() {
    let backing = backing();
    let device = open(&backing);
    for (index, sectors) in [(2, 8), (3, 48), (4, 8)] {
        assert_eq!(write(&device, index * ZONE, sectors, 1), DONE);
    }
    // Now only the setting has to become durable.
    assert_eq!(flush(&device), DONE);
    for (index, to) in [(2, ZoneSetting::ReadOnly), (3, ZoneSetting::ReadOnly), (4, ZoneSetting::Offline)] {
        assert_eq!(device.set_zone(ZoneIndex(index), to), Ok(()));
    }
    device.zones().check().unwrap();
    assert_eq!(flush(&device), DONE);
    device.abandon();

    let backing = Arc::new(backing.restart(1));
    let device = open(&backing);
    let conditions = [2, 3, 4].map(|index| zone(&device, index).0);
    assert_eq!(conditions, [ZoneCondition::ReadOnly, ZoneCondition::ReadOnly, ZoneCondition::Offline]);
    assert_eq!(read(&device, 2 * ZONE, 10), [[1; 8].as_slice(), &[0; 2]].concat());
    assert_eq!(write(&device, 2 * ZONE + 8, 1, 2), Err(ZoneError::ReadOnly.into()));
    for index in 2..5 {
        assert_eq!(device.set_zone(ZoneIndex(index), ZoneSetting::Restored), Ok(()));
    }
    assert_eq!(zone(&device, 2), (ZoneCondition::Closed, Some(8)));
    assert_eq!(zone(&device, 3), (ZoneCondition::Full, None));
    assert_eq!(zone(&device, 4), (ZoneCondition::Empty, Some(0)));
    assert_eq!(write(&device, 2 * ZONE + 8, 1, 2), DONE);
    assert_eq!(write(&device, 4 * ZONE, 1, 3), DONE);
    assert_eq!(read(&device, 4 * ZONE, 8), [3, 0, 0, 0, 0, 0, 0, 0]);
    device.zones().check().unwrap();
    device.close().unwrap();
    assert_eq!(zone(&open(&backing), 2), (ZoneCondition::Closed, Some(9)));
}

#[test]
fn read_only_zone_stays_so_where_it_would_be_one_active_zone_too_many() {
    let backing = backing();
    let device = open(&backing);
    assert_eq!(write(&device, 2 * ZONE, 8, 1), DONE);
    device.set_zone(ZoneIndex(2), ZoneSetting::ReadOnly).unwrap();
    for index in 3..7 {
        assert_eq!(write(&device, index * ZONE, 8, 1), DONE);
    }
    let restored = || device.set_zone(ZoneIndex(2), ZoneSetting::Restored);
    assert_eq!(restored(), Err(ZoneError::TooManyActive.into()));
    assert_eq!(zone(&device, 2).0, ZoneCondition::ReadOnly);
    assert_eq!(manage(&device, Op::ZoneReset, 5), DONE);
    assert_eq!((restored(), zone(&device, 2)), (Ok(()), (ZoneCondition::Closed, Some(8))));
    device.zones().check().unwrap();
}

#[test]
fn image_open_for_reading_is_verified_and_keeps_its_zones() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    options().create(&path).unwrap();
    let device = ImageDevice::open(&path, &OpenOptions { mode: OpenMode::Reading, ..Default::default() });
    let device = device.unwrap();
    assert_eq!(run(&device, &command(Op::Verify, 0, 8)), DONE);
    let refused = Err(DeviceError::OpenedForReading);
    assert_eq!(device.set_zone(ZoneIndex(2), ZoneSetting::Offline), refused);
    assert_eq!(run(&device, &command(Op::Discard, 0, 8)).map(drop), refused);
}

#[test]
fn verify_fails_where_the_file_cannot_be_read() {
    let backing = backing();
    let device = open(&backing);
    assert_eq!(write(&device, 2 * ZONE, 48, 1), DONE);
    backing.cut_at(backing.calls());
    assert_eq!(write(&device, 3 * ZONE, 8, 1), Err(DeviceError::Os(5)));
    assert_eq!(run(&device, &command(Op::Verify, 2 * ZONE, 48)), Err(DeviceError::Os(5)));
    device.abandon();
}

mod badblocks;
mod blocks;
