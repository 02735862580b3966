//! Shared parts of the thread models: a drive that checks its commands, and a record of the
//! completions.

pub mod drive;

pub use drive::{Answers, Drive};

use std::collections::BTreeMap;
use std::process::Command;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use zonal_core::{Nanos, Sector, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::device::{Device, Output};
use zonal_io::sync::model::{Canary, pause, with_canary};
use zonal_io::volume::{Channel, Completion, Request, Volume, VolumeOptions, WriteMode, report};

/// Environment variable for a process that runs one model with one defect: the name of the canary.
const CANARY: &str = "ZONAL_CANARY";

/// True if this process has to detect one of the `canaries`; runs `model` with it in that case.
pub fn is_canary(canaries: &[Canary], model: impl FnOnce()) -> bool {
    let Ok(name) = std::env::var(CANARY) else { return false };
    let canary = canaries.iter().find(|c| format!("{c:?}") == name).expect("a canary of this model");
    with_canary(*canary, model);
    true
}

/// Runs `test` with a canary, which it has to detect. In a process of its own, since a schedule
/// that is stopped halfway takes its process down.
pub fn find(test: &str, canary: Canary) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CANARY, format!("{canary:?}"))
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    assert!(!child.status.success(), "{test}: the test did not detect {canary:?}");
    let said = String::from_utf8_lossy(&child.stderr);
    let mut lines = said.lines().skip_while(|l| !l.contains("panicked at"));
    let what = lines.nth(1).expect("a model that finds something says what");
    println!("{test}: {canary:?} found: {what}");
}

/// Number from the environment.
pub fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value}")))
}

/// Maximum of polls after which a volume has to be idle.
const POLLS_MAX: usize = 1000;

/// Bytes for any request of a model. The models' drives do not read them.
static BYTES: [u64; 512] = [0; 512];

/// Buffer without cost for a model.
pub fn bytes() -> IoBuf {
    let ptr = NonNull::from(&BYTES).cast();
    // SAFETY: valid forever; no thread writes to it, as models do not read and their drives ignore
    // the data.
    unsafe { IoBuf::from_raw(ptr, size_of_val(&BYTES) as u32) }
}

/// Append of `sectors` to `zone`.
pub fn append(zone: u32, sectors: u32) -> Request {
    Request::append(start(zone), sectors, bytes())
}

/// First sector of `zone`.
pub fn start(zone: u32) -> Sector {
    Sector(u64::from(zone) * drive::ZONE)
}

/// Requests of all threads of a model, and their results. Not part of the model: it only records.
#[derive(Clone, Default)]
pub struct Ends(Arc<Mutex<BTreeMap<u64, Option<Ended>>>>);

type Ended = Result<Output, zonal_core::RequestError>;

impl Ends {
    /// Records that a request with this number is about to be submitted.
    pub fn expect(&self, token: u64) {
        assert!(self.0.lock().unwrap().insert(token, None).is_none(), "a number used twice");
    }

    /// Records a completion.
    pub fn note(&self, c: Completion) {
        let mut ends = self.0.lock().unwrap();
        let end = ends.get_mut(&c.token).expect("only what was submitted ends");
        assert!(end.is_none(), "request {} ended twice", c.token);
        *end = Some(c.result);
    }

    /// Number of unfinished requests.
    pub fn left(&self) -> usize {
        self.0.lock().unwrap().values().filter(|e| e.is_none()).count()
    }

    /// Results of all requests.
    pub fn all(&self) -> Vec<(u64, Ended)> {
        let ends = self.0.lock().unwrap();
        ends.iter().map(|(&token, end)| (token, end.clone().expect("every request has ended"))).collect()
    }
}

/// Volume over a drive, with a record of its completions.
pub struct Bench {
    pub volume: Volume,
    /// Record of completions.
    pub ends: Ends,
}

impl Bench {
    /// Creates a volume over a drive with this many sequential zones.
    pub fn new(mode: WriteMode, zones: u32, answers: Answers) -> Arc<Bench> {
        Bench::over(Arc::new(Drive::new(mode, zones, answers)), mode)
    }

    /// Creates a volume over a drive that accepts the commands of any mode, for switches.
    pub fn switching(zones: u32, answers: Answers) -> Arc<Bench> {
        Bench::over(Arc::new(Drive::new(WriteMode::Pipelined, zones, answers)), WriteMode::PerZone)
    }

    /// Creates a volume over a drive.
    pub fn over(device: Arc<dyn Device>, mode: WriteMode) -> Arc<Bench> {
        let options = VolumeOptions::default().with_mode(mode).with_merge(false);
        let volume = Volume::open(device, options).unwrap();
        Arc::new(Bench { volume, ends: Ends::default() })
    }

    /// Opens a channel that records its completions.
    pub fn channel(&self) -> Channel {
        let ends = self.ends.clone();
        self.volume.channel(move |c| ends.note(c))
    }

    /// Like [`Bench::channel`], with delivery by polls only.
    pub fn deferred_channel(&self) -> Channel {
        let ends = self.ends.clone();
        self.volume.deferred_channel(move |c| ends.note(c))
    }

    /// Submits a request with this number.
    pub fn submit(&self, channel: &Channel, token: u64, request: Request) {
        self.ends.expect(token);
        self.volume.submit(Nanos(0), channel, request.token(token));
    }

    /// Polls until every request has ended. No other thread may use the bench: a poll without
    /// progress and with nothing at the device then means that something is stuck.
    pub fn finish(&self) {
        let mut now = Nanos(0);
        for _ in 0..POLLS_MAX {
            let Some(due) = self.volume.poll(now) else { break };
            now = now.max(due);
            pause();
        }
        assert_eq!(self.ends.left(), 0, "stuck: {:?}", self.volume.plugs());
        self.check();
    }

    /// Checks that nothing is left anywhere, and that volume and drive agree on every zone.
    pub fn check(&self) {
        for plug in self.volume.plugs() {
            assert_eq!((plug.flags, plug.pending), (0, 0), "{plug}");
        }
        for (zone, pointer) in self.pointers().into_iter().enumerate() {
            let ours = self.volume.write_pointer(ZoneIndex(zone as u32)).expect("a sequential zone");
            assert_eq!(ours.0 - start(zone as u32).0, pointer, "pointer of zone {zone}");
        }
    }

    /// Write pointers as reported by the idle drive.
    pub fn pointers(&self) -> Vec<u64> {
        let zones = report(&**self.volume.device(), Sector(0), u32::MAX).expect("an idle drive answers");
        zones.iter().map(|z| z.write_pointer.map_or(drive::ZONE, |p| p.0 - z.start.0)).collect()
    }

    /// Successful appends: their numbers, ascending, and their positions.
    pub fn appended(&self) -> Vec<(u64, u64)> {
        let ends = self.ends.all();
        ends.iter().filter_map(|(token, end)| appended(end).map(|at| (*token, at))).collect()
    }

    /// Checks that successful appends are adjacent.
    pub fn check_appends(&self, sectors: u64) {
        let mut at: Vec<u64> = self.appended().into_iter().map(|(_, at)| at).collect();
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
