//! What the models of threads share: a drive that watches what reaches it, and a tally of what ended.

pub mod drive;

pub use drive::{Answers, Drive};

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use zonal_core::{Nanos, Sector, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::device::{Device, Output};
use zonal_io::sync::model::pause;
use zonal_io::volume::{Channel, Completion, Request, Volume, VolumeOptions, WriteMode};

/// Bytes for any request of a model. No drive of theirs looks at them.
static BYTES: [u64; 512] = [0; 512];

/// A buffer that costs a model nothing.
pub fn bytes() -> IoBuf {
    let ptr = NonNull::from(&BYTES).cast();
    // SAFETY: valid for ever; nobody writes to it, as no model reads and its drives do not look at what they get.
    unsafe { IoBuf::from_raw(ptr, size_of_val(&BYTES) as u32) }
}

/// An append of `sectors` to `zone`.
pub fn append(zone: u32, sectors: u32) -> Request {
    Request::append(start(zone), sectors, bytes())
}

/// The first sector of `zone`.
pub fn start(zone: u32) -> Sector {
    Sector(u64::from(zone) * drive::ZONE)
}

/// Requests and what became of them, of all threads of a model. Not part of it: what it says follows from what is.
#[derive(Clone, Default)]
pub struct Ends(Arc<Mutex<BTreeMap<u64, Option<Ended>>>>);

type Ended = Result<Output, zonal_core::RequestError>;

impl Ends {
    /// A request with this number is about to be submitted.
    pub fn expect(&self, token: u64) {
        assert!(self.0.lock().unwrap().insert(token, None).is_none(), "a number used twice");
    }

    fn note(&self, c: Completion) {
        let mut ends = self.0.lock().unwrap();
        let end = ends.get_mut(&c.token).expect("only what was submitted ends");
        assert!(end.is_none(), "request {} ended twice", c.token);
        *end = Some(c.result);
    }

    /// How many have not ended.
    pub fn left(&self) -> usize {
        self.0.lock().unwrap().values().filter(|e| e.is_none()).count()
    }

    /// How each has ended.
    pub fn all(&self) -> Vec<(u64, Ended)> {
        let ends = self.0.lock().unwrap();
        ends.iter().map(|(&token, end)| (token, end.clone().expect("every request has ended"))).collect()
    }
}

/// A volume over a drive, and what ended on it.
pub struct Bench {
    /// The volume.
    pub volume: Volume,
    /// Its drive.
    pub drive: Arc<Drive>,
    /// What ended.
    pub ends: Ends,
}

impl Bench {
    /// Over a drive with so many sequential zones.
    pub fn new(mode: WriteMode, zones: u32, answers: Answers) -> Arc<Bench> {
        let drive = Arc::new(Drive::new(mode, zones, answers));
        let device: Arc<dyn Device> = drive.clone();
        let options = VolumeOptions { mode: Some(mode), merge: false, ..VolumeOptions::default() };
        let volume = Volume::open(device, options).unwrap();
        Arc::new(Bench { volume, drive, ends: Ends::default() })
    }

    /// A channel that notes its ends.
    pub fn channel(&self) -> Channel {
        let ends = self.ends.clone();
        self.volume.channel(move |c| ends.note(c))
    }

    /// The same, for polls only.
    pub fn deferred_channel(&self) -> Channel {
        let ends = self.ends.clone();
        self.volume.deferred_channel(move |c| ends.note(c))
    }

    /// Submits a request with this number.
    pub fn submit(&self, channel: &Channel, token: u64, request: Request) {
        self.ends.expect(token);
        self.volume.submit(Nanos(0), channel, request.token(token));
    }

    /// Polls until every request has ended. Nobody else may be at it, so a poll that brings nothing, though nothing is at
    /// the device, means that something is stuck.
    pub fn finish(&self) {
        for _ in 0..100 {
            let due = self.volume.poll(Nanos(0));
            if due.is_none() {
                break;
            }
            pause();
        }
        assert_eq!(self.ends.left(), 0, "stuck: {:?}", self.volume.plugs());
        self.check();
    }

    /// That nothing is left anywhere, and that volume and drive agree about every zone.
    pub fn check(&self) {
        for plug in self.volume.plugs() {
            assert_eq!((plug.flags, plug.pending), (0, 0), "{plug}");
        }
        for (zone, pointer) in self.drive.pointers().into_iter().enumerate() {
            let ours = self.volume.write_pointer(ZoneIndex(zone as u32)).expect("a sequential zone");
            assert_eq!(ours.0 - start(zone as u32).0, pointer, "pointer of zone {zone}");
        }
    }

    /// That successful appends lie side by side.
    pub fn check_appends(&self, sectors: u64) {
        let mut at: Vec<u64> = self.ends.all().iter().filter_map(|(_, end)| appended(end)).collect();
        at.sort_unstable();
        let gaps = at.windows(2).filter(|w| w[1] - w[0] != sectors && w[1] % drive::ZONE != 0).count();
        assert_eq!(gaps, 0, "{at:?}");
    }
}

fn appended(end: &Ended) -> Option<u64> {
    match end {
        Ok(Output::Appended(sector)) => Some(sector.0),
        _ => None,
    }
}
