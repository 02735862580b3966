//! Initiator with one queue that waits for each answer.

use std::sync::Arc;
use zerocopy::FromBytes;
use zonal_core::{Nanos, ZoneCondition};
use zonal_io::Volume;
use zonal_io::buffer::{IoBuf, IoBufs};
use zonal_io::device::{Device, ZoneSetting, set_zones};
use zonal_io::registry::Registry;
use zonal_io::volume::VolumeOptions;
use zonal_scsi::sense::SenseCode;
use zonal_scsi::wire::{Read, ReportHeader, ReportZones, ReportedZone, SenseData, Write, cdb_of};
use zonal_scsi::wire::{ZoneAction, ZoneOut};
use zonal_scsi::{Answer, Cdb, Disk, DiskOptions, Task, TaskQueue, status};

pub const IDENTITY: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

/// Drive with both kinds of zones and a limit: 64 zones of 1 MiB.
pub const DRIVE: &str = "ram:size=64M,zone_size=1M,zone_nr_conv=4,zone_max_open=8";

/// [`DRIVE`] with blocks of 4 KiB, completing when polled.
pub const DRIVE_4K: &str =
    "ram:size=64M,zone_size=1M,zone_nr_conv=4,zone_max_open=8,blocksize=4096,complete=poll";

/// Drive without conventional zones, with a gap of a quarter of each zone.
pub const GAPS: &str = "ram:size=16M,zone_size=1M,zone_capacity=768K";

/// Initiator.
pub struct Rig {
    pub disk: Arc<Disk>,
    pub queue: TaskQueue,
    pub now: Nanos,
}

/// Result of a command.
#[derive(Debug)]
pub struct Reply {
    pub status: u8,
    pub sense: Option<SenseData>,
    pub transferred: u32,
    /// Whole buffer for data to the initiator.
    pub data: Vec<u8>,
}

/// Byte that buffers are filled with before a command.
pub const UNTOUCHED: u8 = 0xEE;

pub fn volume(device: &str) -> Arc<Volume> {
    volume_over(Registry::default().open(device).unwrap())
}

fn volume_over(device: Arc<dyn Device>) -> Arc<Volume> {
    Arc::new(Volume::open(device, VolumeOptions::default()).unwrap())
}

pub fn cdb(bytes: &[u8]) -> Cdb {
    let mut cdb = [0; 32];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

/// Structure at the start of `bytes`.
pub fn parse<T: FromBytes>(bytes: &[u8]) -> T {
    T::read_from_prefix(bytes).unwrap().0
}

pub fn report_zones(lba: u64, len: u32, options: u8) -> Cdb {
    cdb_of(&ReportZones { lba: lba.into(), len: len.into(), options, ..ReportZones::default() })
}

/// Buffer of `len` bytes in three pieces.
pub fn memory(len: usize) -> IoBufs {
    let first = len / 3;
    let pieces = [first, 0, len - first].map(|len| {
        let mut piece = IoBuf::zeroed(len as u32);
        piece.fill(UNTOUCHED);
        piece
    });
    Vec::from(pieces).into()
}

pub fn filled(bytes: &[u8]) -> IoBufs {
    let (first, rest) = bytes.split_at(bytes.len() / 3);
    vec![IoBuf::copied(first), IoBuf::copied(rest)].into()
}

impl Rig {
    pub fn new(device: &str) -> Rig {
        Rig::with(device, |options| options)
    }

    pub fn with(device: &str, change: impl FnOnce(DiskOptions) -> DiskOptions) -> Rig {
        Rig::of(volume(device), change(DiskOptions::new(IDENTITY.parse().unwrap())))
    }

    pub fn over(device: Arc<dyn Device>) -> Rig {
        Rig::of(volume_over(device), DiskOptions::new(IDENTITY.parse().unwrap()))
    }

    pub fn of(volume: Arc<Volume>, options: DiskOptions) -> Rig {
        let disk = Arc::new(Disk::new(volume, options).unwrap());
        Rig { queue: TaskQueue::new(disk.clone()), disk, now: Nanos(0) }
    }

    pub fn submit(&mut self, tag: u64, cdb: Cdb, data_out: IoBufs, data_in: IoBufs) {
        self.queue.submit(self.now, Task { tag, lun: 0, cdb, data_out, data_in });
    }

    /// Polls until there is an answer. The limit is far beyond the need of any command.
    pub fn wait(&mut self) -> Answer {
        for _ in 0..100_000 {
            self.disk.volume().poll(self.now);
            while self.queue.poll(self.now) {}
            if let Some(answer) = self.queue.take() {
                return answer;
            }
            self.now.0 += 1_000_000;
        }
        panic!("no answer");
    }

    pub fn ask_lun(&mut self, lun: u16, cdb: Cdb, out: &[u8], len: usize) -> Reply {
        let task = Task { tag: 1, lun, cdb, data_out: filled(out), data_in: memory(len) };
        self.queue.submit(self.now, task);
        let answer = self.wait();
        assert_eq!(answer.tag, 1);
        assert_eq!(self.queue.in_flight(), 0);
        assert_eq!(&answer.data_out.into_buf()[..], out, "data from the initiator are not changed");
        reply(answer.status, &answer.sense, answer.transferred, answer.data_in)
    }

    pub fn ask(&mut self, cdb: Cdb, out: &[u8], len: usize) -> Reply {
        self.ask_lun(0, cdb, out, len)
    }

    /// Data of a command that has to succeed.
    pub fn data(&mut self, cdb: Cdb, len: usize) -> Vec<u8> {
        let reply = self.ask(cdb, &[], len);
        assert_eq!(reply.status, status::GOOD, "{cdb:02x?} {:?}", reply.sense);
        let moved = reply.transferred as usize;
        assert!(reply.data[moved..].iter().all(|byte| *byte == UNTOUCHED), "{cdb:02x?}");
        reply.data[..moved].to_vec()
    }

    pub fn write(&mut self, lba: u64, data: &[u8]) -> Reply {
        let blocks = data.len() as u32 / self.disk.block_len();
        self.ask(Write { lba, blocks, fua: false }.emit(), data, 0)
    }

    /// Writes `blocks` blocks of `byte`.
    pub fn must_write(&mut self, lba: u64, blocks: u32, byte: u8) {
        let data = vec![byte; (blocks * self.disk.block_len()) as usize];
        self.write(lba, &data).good();
    }

    pub fn read(&mut self, lba: u64, blocks: u32) -> Vec<u8> {
        let len = (blocks * self.disk.block_len()) as usize;
        self.data(Read { lba, blocks, fua: false }.emit(), len)
    }

    pub fn act(&mut self, action: ZoneAction, lba: u64) -> Reply {
        self.ask(ZoneOut { action, lba, is_all: false }.emit(), &[], 0)
    }

    pub fn act_on_all(&mut self, action: ZoneAction) -> Reply {
        self.ask(ZoneOut { action, lba: 0, is_all: true }.emit(), &[], 0)
    }

    /// Report with room for all zones.
    pub fn report(&mut self, lba: u64, option: u8) -> (ReportHeader, Vec<ReportedZone>) {
        // A header, a gap after each zone, and room that must stay unchanged.
        let len = 64 * (2 * self.disk.volume().info().geometry.zones() + 2);
        let data = self.data(report_zones(lba, len, option), len as usize);
        let header = parse::<ReportHeader>(&data);
        let zones: Vec<_> = data[64..].chunks_exact(64).map(parse).collect();
        assert_eq!(header.len.get() as usize, zones.len() * 64);
        (header, zones)
    }

    /// Blocks per zone.
    pub fn zone_blocks(&self) -> u64 {
        self.disk.volume().info().geometry.zone_size().0 * 512 / u64::from(self.disk.block_len())
    }

    pub fn condition(&mut self, zone: u64) -> ZoneCondition {
        let lba = zone * self.zone_blocks();
        ZoneCondition::from_code(self.report(lba, 0).1[0].condition >> 4).unwrap()
    }

    /// Changes a zone's condition from the drive's side.
    pub fn set_zone(&mut self, zone: u32, to: ZoneSetting) {
        set_zones(&**self.disk.volume().device(), zone..=zone, to).unwrap();
        for _ in 0..100 {
            self.disk.volume().poll(self.now);
            self.now.0 += 1_000_000;
        }
    }
}

pub fn reply(status: u8, sense: &[u8], transferred: u32, data_in: IoBufs) -> Reply {
    assert_eq!(status == status::CHECK_CONDITION, !sense.is_empty());
    let sense = (!sense.is_empty()).then(|| SenseData::parse(sense).unwrap());
    Reply { status, sense, transferred, data: data_in.into_buf().to_vec() }
}

impl Reply {
    #[track_caller]
    pub fn good(&self) {
        assert_eq!(self.status, status::GOOD, "{:?}", self.sense);
    }

    #[track_caller]
    pub fn fails_with(&self, code: SenseCode) {
        let sense = self.sense.expect("sense data");
        let own = SenseCode { key: sense.key, asc: sense.asc, ascq: sense.ascq };
        assert_eq!(own.name(), code.name(), "{own:02x?}");
        assert_eq!(self.transferred, 0);
    }

    /// INVALID FIELD IN CDB at this byte.
    #[track_caller]
    pub fn is_wrong_at(&self, byte: u16) {
        self.fails_with(SenseCode::INVALID_FIELD_IN_CDB);
        let field = self.sense.unwrap().field.expect("a field pointer");
        assert_eq!((field.is_in_cdb, field.byte), (true, byte));
    }
}
