//! A run: hosts, their connections to one target, the drive below, and a generator that chooses the
//! next event. Single-threaded, with a simulated clock.

use crate::hosts::book::{Book, Entry, QueueId};
use crate::hosts::cases::peer::{Ended, Peer};
use crate::hosts::setup::{OWN_ZONES, Setup};
use crate::random::canary::{Canary, Lie};
use crate::random::tap::{Observer, Seen, Steps, Tap};
use crate::random::truth::Truth;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use zonal_check::rig::payload;
use zonal_core::Nanos;
use zonal_io::buffer::BufferPools;
use zonal_io::device::{CommandResult, Device};
use zonal_io::emulated::{Emulated, Ram};
use zonal_io::fault::Fault;
use zonal_io::volume::{Volume, VolumeOptions};
use zonal_nvme::connection::Connection;
use zonal_nvme::subsystem::{Target, TargetOptions};
use zonal_nvme::wire::{Sgl, Sqe, admin, fabrics, io};

const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8";
const UUID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";
const ENABLED: u32 = 0x0046_0061;
const ENTRIES: u32 = 32;

/// Consecutive polls after which a run that is still busy counts as stuck.
const POLLS_MAX: usize = 20_000;

/// Time within which everything must end once no more commands are sent.
const DRAIN_MAX: u64 = 2_000_000_000;

/// Commands issued by the volume, observed above the faults.
#[derive(Default)]
pub struct Issued(pub Mutex<Vec<Seen>>);

impl Observer for Issued {
    fn begins(&self, seen: &Seen) {
        self.0.lock().push(seen.clone());
    }

    fn is_busy(&self, seen: &Seen) {
        let mut issued = self.0.lock();
        if let Some(place) = issued.iter().rposition(|other| other.began == seen.began) {
            issued.remove(place);
        }
    }

    fn ends(&self, _seen: &Seen, _result: &CommandResult) {}
}

/// A connection and its host.
pub struct Line {
    pub id: QueueId,
    host: usize,
    qid: u16,
    /// True if its controller is being reset or shut down: the fate of its commands is open.
    is_ending: bool,
    pub peer: Peer,
}

/// State of a run. See the module.
pub struct HostsRun {
    pub setup: Setup,
    pub book: Book,
    pub truth: Arc<Truth>,
    pub issued: Arc<Issued>,
    pub target: Arc<Target>,
    pub fault: Arc<Fault>,
    rng: Pcg64Mcg,
    steps: Steps,
    pools: Rc<BufferPools>,
    pub lines: Vec<Line>,
    lines_ever: usize,
    now: Nanos,
    due: Option<Nanos>,
    /// For each sequential zone, the block of its write pointer if all commands sent so far
    /// succeed.
    next: Vec<u32>,
    /// Zones of a single queue in which a loss or a fault has broken the order.
    broken: Vec<bool>,
    /// Zones whose write pointer a host should ask for.
    in_doubt: Vec<bool>,
    digest: DefaultHasher,
}

impl HostsRun {
    /// Creates a target on a drive with an observer above and below its faults. With `lie`, the
    /// drive lies.
    pub fn new(seed: u64, lie: Option<Lie>) -> HostsRun {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let setup = Setup::draw(&mut rng);
        let steps = Steps::default();
        let geometry = setup.device.geometry().expect("the options fit");
        let ram = Ram::new(&geometry);
        let mut device: Arc<dyn Device> =
            Arc::new(Emulated::new("hosts", &setup.device, ram).expect("the options fit"));
        if let Some(lie) = lie {
            device = Arc::new(Canary::new(device, lie));
        }
        let truth = Arc::new(Truth::new(geometry));
        let inner = Tap::new("drive", device, truth.clone(), steps.clone());
        let fault = Arc::new(Fault::new(Arc::new(inner), setup.plan.clone()));
        let issued = Arc::<Issued>::default();
        let outer = Arc::new(Tap::new("volume", fault.clone(), issued.clone(), steps.clone()));
        let options =
            VolumeOptions::default().without_park().without_budget().with_mode(setup.mode).with_force(true);
        // A report may hit a fault: retry with the next random numbers of the plan.
        let volume = (0..100).find_map(|_| Volume::open(outer.clone(), options).ok());
        let volume = Arc::new(volume.expect("the device describes its zones"));
        let identity = UUID.parse().expect("an identity");
        let options = TargetOptions::new(identity);
        let target = Arc::new(Target::new(volume, options).expect("zones that hosts take"));
        let zones = (geometry.zones() - geometry.conventional_zones()) as usize;
        HostsRun {
            setup,
            book: Book::default(),
            truth,
            issued,
            target,
            fault,
            rng,
            steps,
            pools: Rc::default(),
            lines: Vec::new(),
            lines_ever: 0,
            now: Nanos(0),
            due: None,
            next: vec![0; zones],
            broken: vec![false; zones],
            in_doubt: vec![false; zones],
            digest: DefaultHasher::new(),
        }
    }

    pub fn block(&self) -> u32 {
        self.setup.device.blocksize
    }

    fn zone_blocks(&self) -> u32 {
        (self.setup.device.zone_size / u64::from(self.block())) as u32
    }

    fn capacity_blocks(&self) -> u32 {
        match self.setup.device.zone_capacity {
            0 => self.zone_blocks(),
            bytes => (bytes / u64::from(self.block())) as u32,
        }
    }

    fn is(&mut self, of: u32) -> bool {
        self.rng.random_ratio(1, of)
    }

    /// Digest of all answers that hosts received, in order.
    pub fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// Connects all hosts, lets them take this number of steps, and waits until everything has
    /// ended.
    pub fn play(&mut self, operations: usize) -> Result<(), String> {
        for host in 0..self.setup.hosts {
            self.begin_host(host)?;
        }
        for _ in 0..operations {
            self.step()?;
            self.sweep();
        }
        self.drain()
    }

    fn step(&mut self) -> Result<(), String> {
        let n = self.rng.random_range(0..self.lines.len().max(1));
        match self.rng.random_range(0..200) {
            _ if self.lines.is_empty() => return self.begin_host(0),
            0..80 => self.submit(n),
            80..115 => self.deliver(n),
            115..140 => self.poll(),
            140..165 => drop(self.lines[n].peer.connection.poll(self.now)),
            165..185 => self.take(n, self.now.0 as usize % 3000 + 1)?,
            185..193 => self.now.0 += self.rng.random_range(1..=self.setup.step),
            193 | 194 => self.admin(n),
            195 if self.setup.has_losses && self.is(3) => self.close(n),
            196 if self.setup.has_losses && self.is(6) => self.reset_controller(n),
            197 if self.setup.has_losses && self.is(20) => self.now.0 += 11_000_000_000,
            198 => {
                let host = self.rng.random_range(0..self.setup.hosts);
                if !self.lines.iter().any(|line| line.host == host) {
                    self.begin_host(host)?;
                }
            }
            _ => self.take(n, usize::MAX)?,
        }
        match self.lines.get_mut(n) {
            Some(line) => line.peer.check_bounds(),
            None => Ok(()),
        }
    }

    /// Connects a controller with its queues.
    fn begin_host(&mut self, host: usize) -> Result<(), String> {
        let Some(controller) = self.connect(host, 0, 0xFFFF)? else { return Ok(()) };
        let place = self.lines.len() - 1;
        let enable = Sqe::new(fabrics::OPCODE, fabrics::PROPERTY_SET.into(), [0, 0x14, ENABLED, 0, 0, 0]);
        self.lines[place].peer.command(enable, Vec::new());
        self.exchange_with(place)?;
        for qid in 1..=self.setup.queues {
            self.connect(host, qid, controller)?;
        }
        Ok(())
    }

    fn connect(&mut self, host: usize, qid: u16, controller: u16) -> Result<Option<u16>, String> {
        let address = "127.0.0.1:4420".parse().expect("an address");
        let connection = Connection::new(self.target.clone(), address, self.pools.clone());
        let mut peer = Peer::new(connection, None);
        peer.ended = Some(Vec::new());
        peer.ask_to_open(self.setup.has_digests, self.setup.has_digests, 0);
        let id = QueueId(self.lines_ever);
        self.lines_ever += 1;
        self.lines.push(Line { id, host, qid, is_ending: false, peer });
        let place = self.lines.len() - 1;
        self.exchange_with(place)?;
        let flow_control = if self.setup.has_flow_control { 0 } else { 1 << 18 };
        let mut data = vec![0; 1024];
        data[..16].fill(host as u8 + 1);
        data[16..18].copy_from_slice(&controller.to_le_bytes());
        data[256..256 + NQN.len()].copy_from_slice(NQN.as_bytes());
        data[512..530].copy_from_slice(b"nqn.2020-01.a:host");
        let cdw = [u32::from(qid) << 16, (ENTRIES - 1) | flow_control, 10_000, 0, 0, 0];
        let mut command = Sqe::new(fabrics::OPCODE, fabrics::CONNECT.into(), cdw);
        (command.data.kind, command.data.len) = (Sgl::IN_CAPSULE, 1024.into());
        self.lines[place].peer.command(command, data);
        self.exchange_with(place)?;
        Ok(self.lines[place].peer.queue.map(|(controller, _)| controller))
    }

    /// Runs one host and the target until neither has anything to send.
    fn exchange_with(&mut self, n: usize) -> Result<(), String> {
        for _ in 0..3 {
            self.lines[n].peer.deliver(self.now, usize::MAX);
            self.lines[n].peer.connection.poll(self.now);
            self.take(n, usize::MAX)?;
        }
        Ok(())
    }

    /// Cancels and closes finished connections, as a server does.
    fn sweep(&mut self) {
        while let Some(n) = self.lines.iter().position(|line| line.peer.connection.is_over()) {
            let host = self.lines[n].host;
            self.close(n);
            // A host that has lost an I/O queue abandons its controller.
            if let Some(admin) = self.lines.iter().position(|line| line.host == host && line.qid == 0) {
                self.close(admin);
            }
        }
    }

    fn close(&mut self, n: usize) {
        let Line { id, host, qid, mut peer, .. } = self.lines.remove(n);
        peer.connection.cancel(self.now);
        self.book.cancelled.insert(id, self.steps.next());
        self.break_zone_of(id, host, qid);
    }

    /// Commands that follow a lost one need not succeed.
    fn break_zone_of(&mut self, queue: QueueId, host: usize, qid: u16) {
        if qid != 1 || host >= OWN_ZONES as usize {
            return;
        }
        self.broken[host] = true;
        for entry in self.book.entries.iter_mut().filter(|entry| entry.queue == queue) {
            entry.is_proper &= entry.end.is_some();
        }
    }

    fn reset_controller(&mut self, n: usize) {
        let host = self.lines[n].host;
        let is_admin = |line: &Line| line.host == host && line.qid == 0;
        let Some(place) = self.lines.iter().position(is_admin) else { return };
        let value = if self.rng.random_ratio(1, 2) { 0 } else { ENABLED | 1 << 14 };
        if self.lines[place].peer.has_entry() {
            let set = Sqe::new(fabrics::OPCODE, fabrics::PROPERTY_SET.into(), [0, 0x14, value, 0, 0, 0]);
            self.lines[place].peer.command(set, Vec::new());
            for n in (0..self.lines.len()).filter(|n| self.lines[*n].host == host).collect::<Vec<_>>() {
                self.lines[n].is_ending = true;
                let Line { id, host, qid, .. } = self.lines[n];
                self.break_zone_of(id, host, qid);
            }
        }
    }

    fn admin(&mut self, n: usize) {
        let host = self.lines[n].host;
        let Some(place) = self.lines.iter().position(|line| line.host == host && line.qid == 0) else {
            return;
        };
        if !self.lines[place].peer.has_entry() {
            return;
        }
        let command = match self.rng.random_range(0..4) {
            0 => Sqe::new(admin::KEEP_ALIVE, 0, [0; 6]),
            1 => Sqe::new(admin::ASYNC_EVENT_REQUEST, 0, [0; 6]),
            2 => {
                let mut command = Sqe::new(admin::IDENTIFY, 0, [1, 0, 0, 0, 0, 0]);
                command.data.len = 4096.into();
                command
            }
            _ => {
                let cids: Vec<u16> = self.lines[n].peer.outstanding.keys().copied().collect();
                let Some(cid) = cids.get(self.rng.random_range(0..cids.len().max(1))) else { return };
                let (id, qid) = (self.lines[n].id, self.lines[n].qid);
                self.book.abort(id, *cid);
                self.break_zone_of(id, host, qid);
                Sqe::new(admin::ABORT, 0, [u32::from(qid) | u32::from(*cid) << 16, 0, 0, 0, 0, 0])
            }
        };
        self.lines[place].peer.command(command, Vec::new());
    }

    fn poll(&mut self) {
        self.due = self.target.volume().poll(self.now);
    }

    fn deliver(&mut self, n: usize) {
        let len = if self.is(4) { self.rng.random_range(1..6000) } else { usize::MAX };
        let peer = &mut self.lines[n].peer;
        while !peer.asked.is_empty() {
            let place = self.rng.random_range(0..peer.asked.len());
            let part = self.rng.random_ratio(1, 3).then(|| self.rng.random_range(1..20_000));
            peer.answer(place, part);
        }
        peer.deliver(self.now, len);
    }

    /// Receives bytes, and records the answers.
    fn take(&mut self, n: usize, len: usize) -> Result<(), String> {
        let line = &mut self.lines[n];
        let id = line.id;
        line.peer.take(len)?;
        let ended = line.peer.ended.replace(Vec::new()).unwrap_or_default();
        for one in ended {
            let step = self.steps.next();
            (id.0, one.sqe.cid.get(), one.status, one.result, self.now.0, &one.data).hash(&mut self.digest);
            self.book.end(id, &one.sqe, (step, one.status, one.result), &one.data);
            self.learn(&one);
        }
        Ok(())
    }

    /// Updates the write pointer that hosts assume for a zone, from the answers to them.
    fn learn(&mut self, one: &Ended) {
        let zone = (one.sqe.lba() / u64::from(self.zone_blocks())) as usize;
        let is_shared = one.sqe.nsid.get() == 1 && (OWN_ZONES as usize..self.next.len()).contains(&zone);
        match one.sqe.opcode {
            io::ZONE_MANAGEMENT_RECEIVE if is_shared && one.status == 0 && one.data.len() >= 128 => {
                let pointer = u64::from_le_bytes(one.data[88..96].try_into().expect("8 bytes"));
                let start = zone as u64 * u64::from(self.zone_blocks());
                self.next[zone] = (pointer.saturating_sub(start) as u32).min(self.zone_blocks() - 1);
                self.in_doubt[zone] = false;
            }
            io::WRITE | io::ZONE_APPEND if is_shared && one.status != 0 => self.in_doubt[zone] = true,
            _ => {}
        }
    }

    /// Waits until all commands that can end have ended.
    fn drain(&mut self) -> Result<(), String> {
        let since = self.now.0;
        for _ in 0..POLLS_MAX {
            self.sweep();
            let mut is_any = false;
            for n in 0..self.lines.len() {
                let peer = &mut self.lines[n].peer;
                is_any |= !peer.wire.is_empty() || !peer.asked.is_empty();
                while !peer.asked.is_empty() {
                    peer.answer(0, None);
                }
                peer.deliver(self.now, usize::MAX);
                is_any |= peer.connection.poll(self.now);
                is_any |= !peer.connection.output().is_empty();
                self.take(n, usize::MAX)?;
            }
            self.poll();
            match self.due {
                _ if is_any => {}
                Some(due) => self.now = self.now.max(due),
                None if self.lines.iter().any(|line| line.peer.is_waiting()) => self.now.0 += 1_000,
                None => {
                    self.lines.iter_mut().try_for_each(|line| line.peer.check_end())?;
                    let took = self.now.0 - since;
                    return if took > DRAIN_MAX { Err(format!("it took {took} ns to end")) } else { Ok(()) };
                }
            }
        }
        let open: Vec<_> = self.lines.iter().map(|line| (line.id, line.peer.outstanding.len())).collect();
        Err(format!("it does not come to rest: {open:?}, plugs {:?}", self.target.volume().plugs()))
    }

    /// Runs a command of a new host, with all faults off, and returns its record.
    pub fn look(&mut self, line: usize, command: Sqe) -> Result<Entry, String> {
        let (queue, began) = (self.lines[line].id, self.steps.next());
        let cid = self.lines[line].peer.command(command, Vec::new());
        let entry = Entry { queue, sqe: command, began, is_proper: false, is_aborted: false, end: None };
        self.book.begin(cid, entry);
        let number = self.book.entries.len() - 1;
        self.drain()?;
        Ok(self.book.entries[number].clone())
    }

    /// Connects a host after all others have gone, and returns its I/O queue.
    pub fn begin_observer(&mut self) -> Result<usize, String> {
        while !self.lines.is_empty() {
            self.close(0);
        }
        self.drain()?;
        self.fault.clear_rules();
        self.begin_host(self.setup.hosts)?;
        let is_io = |line: &Line| line.qid == 1 && line.peer.queue.is_some();
        self.lines.iter().position(is_io).ok_or("an observer cannot connect".to_owned())
    }

    /// Sends a command on this queue, if it is an I/O queue.
    fn submit(&mut self, n: usize) {
        let line = &self.lines[n];
        if line.is_ending
            || line.qid == 0
            || line.peer.queue.is_none()
            || !line.peer.is_granted()
            || !line.peer.has_entry()
        {
            return;
        }
        let (queue, number) = (line.id, self.book.next());
        let own = u32::from(line.qid == 1 && (line.host as u32) < OWN_ZONES);
        let own = (own == 1).then_some(line.host as u32);
        let Some((mut command, is_proper)) = self.draw(own, queue) else { return };
        let mut data = Vec::new();
        if matches!(command.opcode, io::WRITE | io::ZONE_APPEND) {
            data = payload(number, command.data.len.get() / 512).to_vec();
            if data.len() <= 8192 && self.is(2) {
                command.data.kind = Sgl::IN_CAPSULE;
            }
        }
        let began = self.steps.next();
        let cid = self.lines[n].peer.command(command, data);
        command.cid = cid.into();
        self.book.begin(cid, Entry { queue, sqe: command, began, is_proper, is_aborted: false, end: None });
    }

    /// Draws a command, and returns true with it if only losses and faults can make it fail.
    fn draw(&mut self, own: Option<u32>, queue: QueueId) -> Option<(Sqe, bool)> {
        let sequential = self.next.len() as u32;
        let (zone_blocks, capacity) = (self.zone_blocks(), self.capacity_blocks());
        let shared = OWN_ZONES.min(sequential - 1)..sequential;
        let zone = match own {
            Some(zone) if self.is(2) && zone < shared.start => zone,
            _ => self.rng.random_range(shared.clone()),
        };
        let is_own = zone < shared.start;
        let blocks = self.rng.random_range(1..=6u32).min(capacity);
        let fua = if self.is(6) { 1 << 30 } else { 0 };
        let kind = match self.in_doubt[zone as usize] && self.is(2) {
            true => 99,
            false => self.rng.random_range(0..100),
        };
        if is_own && kind < 80 {
            return self.draw_own(zone, blocks, fua, queue);
        }
        let start = zone * zone_blocks;
        let len = blocks * self.block();
        let sized = |opcode, nsid, cdw, len: u32| {
            let mut command = Sqe::new(opcode, nsid, cdw);
            command.data.len = len.into();
            command
        };
        let nsid = if self.setup.device.zone_nr_conv > 0 && self.is(6) { 2 } else { 1 };
        Some(match kind {
            _ if is_own => {
                // A read that may overlap writes in flight.
                let at = start + self.rng.random_range(0..zone_blocks - blocks);
                (sized(io::READ, 1, [at, 0, blocks - 1, 0, 0, 0], len), false)
            }
            // At the assumed write pointer; anywhere in the other namespace.
            0..35 => {
                let at = match nsid {
                    2 => self.rng.random_range(0..zone_blocks - blocks),
                    _ if self.is(16) => start + self.rng.random_range(0..zone_blocks),
                    _ => start + self.next[zone as usize],
                };
                if nsid == 1 && at == start + self.next[zone as usize] {
                    self.next[zone as usize] = (self.next[zone as usize] + blocks).min(zone_blocks - 1);
                }
                (sized(io::WRITE, nsid, [at, 0, (blocks - 1) | fua, 0, 0, 0], len), false)
            }
            35..50 => {
                let room = self.next[zone as usize] + blocks;
                self.next[zone as usize] = room.min(zone_blocks - 1);
                (sized(io::ZONE_APPEND, 1, [start, 0, (blocks - 1) | fua, 0, 0, 0], len), false)
            }
            50..72 => {
                let at = if nsid == 2 { 0 } else { start } + self.rng.random_range(0..zone_blocks - blocks);
                (sized(io::READ, nsid, [at, 0, blocks - 1, 0, 0, 0], len), false)
            }
            72..76 => {
                let at = if nsid == 2 { 0 } else { start + self.next[zone as usize] };
                (Sqe::new(io::WRITE_ZEROES, nsid, [at, 0, (blocks - 1) | fua, 0, 0, 0]), false)
            }
            76..80 => (Sqe::new(io::FLUSH, nsid, [0; 6]), false),
            80..92 => {
                self.next[zone as usize] = 0;
                (Sqe::new(io::ZONE_MANAGEMENT_SEND, 1, [start, 0, 0, 4, 0, 0]), false)
            }
            92..97 => {
                let action = [1, 2, 3][self.rng.random_range(0..3)];
                if action == 2 {
                    self.next[zone as usize] = zone_blocks - 1;
                }
                (Sqe::new(io::ZONE_MANAGEMENT_SEND, 1, [start, 0, 0, action, 0, 0]), false)
            }
            _ => {
                let partial = if self.is(2) { 1 << 16 } else { 0 };
                (sized(io::ZONE_MANAGEMENT_RECEIVE, 1, [start, 0, 255, partial, 0, 0], 1024), false)
            }
        })
    }

    /// The next write of a zone that belongs to this queue, or, once the queue has no command of it
    /// in flight, a reset.
    fn draw_own(&mut self, zone: u32, blocks: u32, fua: u32, queue: QueueId) -> Option<(Sqe, bool)> {
        let (start, next) = (zone * self.zone_blocks(), self.next[zone as usize]);
        let is_of_zone = |entry: &&Entry| {
            entry.queue == queue && entry.sqe.lba() / u64::from(self.zone_blocks()) == u64::from(zone)
        };
        let is_quiet = self.book.entries.iter().filter(is_of_zone).all(|entry| entry.end.is_some());
        let is_whole = !self.broken[zone as usize];
        if next + blocks > self.capacity_blocks() || !is_whole {
            if !is_quiet {
                return None;
            }
            // The reset restores a known order.
            self.next[zone as usize] = 0;
            self.broken[zone as usize] = false;
            return Some((Sqe::new(io::ZONE_MANAGEMENT_SEND, 1, [start, 0, 0, 4, 0, 0]), false));
        }
        self.next[zone as usize] += blocks;
        let mut command = Sqe::new(io::WRITE, 1, [start + next, 0, (blocks - 1) | fua, 0, 0, 0]);
        command.data.len = (blocks * self.block()).into();
        Some((command, true))
    }
}
