//! Scheduler of a run: a single thread, and a generator that chooses the next event.

use crate::random::book::Book;
use crate::random::canary::{Canary, Lie};
use crate::random::face::Face;
use crate::random::guard::Guard;
use crate::random::setup::{Profile, Setup};
use crate::random::successors::{Successors, note};
use crate::random::tap::{Steps, Tap};
use crate::random::truth::Truth;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zonal_core::budget::WriterClass;
use zonal_core::{Nanos, Op, Sector, ZoneIndex};
use zonal_io::device::Device;
use zonal_io::emulated::{Emulated, Ram};
use zonal_io::fault::Fault;
use zonal_io::volume::{Channel, Part, Request, Volume, VolumeOptions, Withdrawal};

/// Consecutive polls without result after which a run counts as stuck.
const POLLS_MAX: usize = 20_000;

/// Draws a setup from a seed.
pub type Draw = fn(&mut Pcg64Mcg) -> Setup;

/// State of a run.
pub struct Run {
    pub setup: Setup,
    pub volume: Arc<Volume>,
    pub book: Arc<Book>,
    pub guard: Arc<Guard>,
    pub truth: Arc<Truth>,
    pub fault: Arc<Fault>,
    pub rng: Pcg64Mcg,
    now: Arc<AtomicU64>,
    due: Option<Nanos>,
    channels: Vec<Channel>,
    successors: Arc<Successors>,
    /// Requests of each channel, to count those in flight.
    sent: Vec<Vec<u64>>,
    /// Write pointer of each zone if all submitted requests succeed.
    pub next: Vec<u32>,
    /// Requests to cancel individually.
    withdrawn: Vec<Withdrawal>,
}

impl Run {
    /// Creates a volume on a drive with an observer above and below its faults. With `lie`, the
    /// drive lies.
    pub fn new(seed: u64, draw: Draw, lie: Option<Lie>) -> Run {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let setup = draw(&mut rng);
        let steps = Steps::default();
        let ram = Ram::new(&setup.device.geometry().expect("the options fit"));
        let mut device: Arc<dyn Device> =
            Arc::new(Emulated::new("random", &setup.device, ram).expect("the options fit"));
        if let Some(lie) = lie {
            device = Arc::new(Canary::new(device, lie));
        }
        let geometry = device.info().geometry;
        let truth = Arc::new(Truth::new(geometry));
        let inner = Tap::new("drive", device, truth.clone(), steps.clone());
        let fault = Arc::new(Fault::new(Arc::new(inner), setup.plan.clone()));
        let guard = Arc::new(Guard::new(geometry));
        let outer = Tap::new("fault", fault.clone(), guard.clone(), steps.clone());
        let volume = Arc::new(open(Arc::new(outer), setup.options));
        guard.watch(&volume);
        let book = Arc::new(Book::new(steps));
        let now = Arc::new(AtomicU64::new(0));
        let successors = Arc::new(Successors::new(&volume, &book, &now));
        let channels: Vec<Channel> = (0..)
            .zip(&setup.faces)
            .map(|(n, face)| channel(&volume, &book, &now, (n, face, &successors)))
            .collect();
        let sent = channels.iter().map(|_| Vec::new()).collect();
        let next = vec![0; geometry.zones() as usize];
        Run {
            setup,
            volume,
            book,
            guard,
            truth,
            fault,
            rng,
            now,
            due: None,
            channels,
            successors,
            sent,
            next,
            withdrawn: Vec::new(),
        }
    }

    pub fn now(&self) -> Nanos {
        Nanos(self.now.load(Ordering::Relaxed))
    }

    /// Runs this number of operations.
    pub fn load(&mut self, operations: u64) -> Result<(), String> {
        let mut left = operations;
        while left > 0 {
            match self.rng.random_range(0..100) {
                0..60 => left -= u64::from(self.submit_one()?),
                60..90 => self.poll(),
                90..98 => {
                    let step = self.rng.random_range(1..=self.setup.step);
                    self.step(step);
                }
                98 => self.switch(),
                _ => {
                    let zone = ZoneIndex(self.rng.random_range(0..self.volume.info().geometry.zones()));
                    self.volume.resync(self.now(), zone);
                }
            }
        }
        self.drain()
    }

    fn switch(&mut self) {
        if self.setup.modes.len() > 1 && self.rng.random_ratio(1, 2) {
            let mode = self.setup.modes[self.rng.random_range(0..self.setup.modes.len())];
            self.volume.switch_mode(self.now(), mode).expect("the device can do it");
        }
    }

    /// Advances the clock, and polls.
    pub fn step(&mut self, time: u64) {
        self.now.fetch_add(time, Ordering::Relaxed);
        self.poll();
    }

    /// Replaces a submitter by a new one. Requests of the old one end without it, or are cancelled.
    pub fn leave(&mut self, by: usize, is_cancelled: bool) {
        let left = std::mem::take(&mut self.sent[by]);
        if is_cancelled {
            left.iter().for_each(|&token| self.book.cancel(token));
            self.volume.cancel(self.now(), &self.channels[by]);
        }
        let face = &self.setup.faces[by];
        self.channels[by] = channel(&self.volume, &self.book, &self.now, (by, face, &self.successors));
    }

    /// A submitter cancels one of all requests so far, which may be another's or have ended.
    pub fn withdraw(&mut self, by: usize) {
        let token = self.rng.random_range(1..self.book.next());
        if self.sent[by].contains(&token) {
            self.book.cancel(token);
        }
        let withdrawal = self.volume.cancel_request(self.now(), &self.channels[by], token);
        self.withdrawn.push(withdrawal);
        if self.rng.random_ratio(1, 2) {
            self.withdrawn.clear();
        }
    }

    pub fn poll(&mut self) {
        self.book.polls(true);
        self.due = self.volume.poll(self.now());
        self.book.polls(false);
    }

    /// Advances the clock to the time that the volume waits for, and polls.
    fn go_on(&mut self) {
        let before = self.now();
        match self.due {
            // A parked write may repeatedly ask to wait for a nanosecond.
            Some(due) if self.setup.profile == Profile::Interfered => {
                self.now.store(due.0.max(before.0 + 20_000), Ordering::Relaxed);
            }
            Some(due) if due > before => self.now.store(due.0, Ordering::Relaxed),
            Some(_) => {}
            None => self.now.store(before.0 + 1_000, Ordering::Relaxed),
        }
        self.poll();
    }

    /// Continues until `done`.
    pub fn until(&mut self, done: impl Fn(&Run) -> bool) -> Result<(), String> {
        for _ in 0..POLLS_MAX {
            if done(self) {
                return Ok(());
            }
            self.go_on();
        }
        let slots = self.volume.budget_status();
        Err(format!("stuck:{}; slots {slots:?}; plugs {:?}", self.book.describe_open(), self.volume.plugs()))
    }

    /// Waits until everything has ended.
    pub fn drain(&mut self) -> Result<(), String> {
        let since = self.now().0;
        self.successors.clear();
        self.withdrawn.clear();
        self.until(|run| run.book.open() == 0)?;
        self.poll();
        // A mode switch or resync belongs to no request, and continues without one. A zone with a
        // failed report stays in doubt.
        self.until(|run| run.due.is_none() && run.volume.plugs().iter().all(|p| p.flags & 1 == 0))?;
        let took = self.now().0 - since;
        if took > self.setup.drain_max() { Err(format!("it took {took} ns to drain")) } else { Ok(()) }
    }

    /// Submits one request for one submitter, unless that has enough in flight.
    fn submit_one(&mut self) -> Result<bool, String> {
        let by = match self.setup.profile {
            // Small parts refuse most of the requests drawn for the whole drive.
            Profile::Interfered if self.rng.random_ratio(1, 2) => 0,
            _ => self.rng.random_range(0..self.channels.len()),
        };
        let book = self.book.clone();
        self.sent[by].retain(|&token| !book.has_ended(token));
        if self.sent[by].len() >= self.setup.depth {
            self.go_on();
            if self.sent[by].len() >= POLLS_MAX {
                return Err("more is under way than was sent".to_owned());
            }
            return Ok(false);
        }
        let (request, proper) = match self.setup.profile {
            Profile::Wild => (self.any_request(), false),
            Profile::Interfered if self.rng.random_ratio(1, 10) => (self.odd_request(), false),
            Profile::Interfered => (self.any_request(), false),
            _ => self.proper_request(),
        };
        let op = request.op;
        if self.setup.successors && self.rng.random_ratio(1, 4) {
            let successor = self.any_successor();
            self.successors.put(successor);
        }
        let token = self.submit(by, request, proper);
        // The effect of a reset of all zones is certain only for writes that end before it or begin
        // after it.
        if op == Op::ResetAll && !self.setup.is_wild() {
            self.until(|run| run.book.has_ended(token))?;
        }
        if self.setup.profile == Profile::Interfered {
            self.interfere(by);
        }
        Ok(true)
    }

    /// Submits a request tagged with its number, and returns the number.
    pub fn submit(&mut self, by: usize, request: Request, proper: bool) -> u64 {
        let g = self.volume.info().geometry;
        let request = note(&self.book, self.now(), (&g, &self.setup.faces[by]), request, proper);
        let token = request.token;
        self.sent[by].push(token);
        self.volume.submit(self.now(), &self.channels[by], request);
        token
    }

    /// Sector at `offset` in a zone.
    pub fn sector(&self, zone: u32, offset: u32) -> Sector {
        Sector(self.volume.info().geometry.start_of(ZoneIndex(zone)).0 + u64::from(offset))
    }
}

fn open(device: Arc<dyn Device>, options: VolumeOptions) -> Volume {
    // A report may hit a fault: retry with the next random numbers of the plan.
    for _ in 0..100 {
        if let Ok(volume) = Volume::open(device.clone(), options) {
            return volume;
        }
    }
    panic!("the device does not describe its zones");
}

fn channel(
    volume: &Arc<Volume>,
    book: &Arc<Book>,
    now: &Arc<AtomicU64>,
    (n, face, successors): (usize, &Face, &Arc<Successors>),
) -> Channel {
    let (book, now, successors, deferred) = (book.clone(), now.clone(), successors.clone(), n % 2 == 1);
    let (g, shown) = (volume.info().geometry, face.clone());
    let note = move |c| {
        book.end(&shown.there(&g, c), deferred, Nanos(now.load(Ordering::Relaxed)));
        successors.one_has_ended();
    };
    let part = face.kind.map(|kind| Part::with(volume.clone(), face.zones.clone(), kind).expect("its zones"));
    let channel = match (&part, deferred) {
        (None, false) => volume.channel(note),
        (None, true) => volume.deferred_channel(note),
        (Some(part), false) => part.channel(note),
        (Some(part), true) => part.deferred_channel(note),
    };
    channel.of_class(WriterClass((n % 2) as u8))
}
