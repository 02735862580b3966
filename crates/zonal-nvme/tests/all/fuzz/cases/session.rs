//! Cases: sequences of actions by the hosts of one target, with invariants to check during and
//! after them.
//!
//! # Invariants
//! - Each command completes at most once, with well-formed PDUs. If its connection stays and its
//!   host sends only valid input, it completes exactly once, within a bounded number of polls.
//! - The memory and unsent output of a connection are bounded at all times. Its memory gauge is
//!   zero again once everything has completed.
//! - After the connections have closed, no controller is left, and no reference to the target or
//!   its volume.

use super::choices::Choices;
use super::commands;
use super::drive::{self, Shape};
use super::peer::{Lie, Peer, Tally};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use zerocopy::IntoBytes;
use zonal_core::{Nanos, ZoneIndex};
use zonal_io::buffer::BufferPools;
use zonal_io::changes::ZoneSetting;
use zonal_nvme::connection::Connection;
use zonal_nvme::subsystem::Target;
use zonal_nvme::wire::{CommonHeader, PduKind};

/// Maximum concurrent connections of a case.
const PEERS: usize = 5;

/// Maximum number of polls until everything has completed.
const POLLS_MAX: usize = 5_000;

const CONTROLLER_ANY: u16 = 0xFFFF;
const ENABLED: u32 = 0x0046_0061;

pub struct Session<'a> {
    choices: Choices<'a>,
    target: Arc<Target>,
    shape: Shape,
    pools: Rc<BufferPools>,
    peers: Vec<Peer>,
    now: Nanos,
    due: Option<Nanos>,
    lie: Option<Lie>,
    tally: Tally,
}

fn address() -> SocketAddr {
    "127.0.0.1:4420".parse().expect("an address")
}

/// Runs the case encoded by `bytes`: sessions of several hosts. A canary passes a `lie` of the
/// controller.
pub fn run(bytes: &[u8], lie: Option<Lie>) -> Result<Tally, String> {
    let mut session = Session::new(bytes);
    session.lie = lie;
    let prologues = session.choices.below(3);
    for _ in 0..=prologues {
        session.begin_host()?;
    }
    while !session.choices.is_over() {
        session.step()?;
    }
    session.end()
}

/// Runs a case of commands on one admin queue and one I/O queue.
pub fn run_commands(bytes: &[u8]) -> Result<Tally, String> {
    let mut session = Session::new(bytes);
    session.begin_host()?;
    while !session.choices.is_over() && session.peers.len() == 2 {
        let n = usize::from(session.choices.is(128));
        let made = match session.choices.is(128) {
            true => commands::any(&mut session.choices),
            false if n == 0 => commands::admin(&mut session.choices),
            false => commands::io(&mut session.choices, &session.shape),
        };
        if session.peers[n].has_entry() {
            session.peers[n].command(made.0, made.1);
        }
        session.exchange_all()?;
    }
    session.end()
}

/// Runs a case of raw input to a connection in one of its stages, all at once and in pieces. Both
/// must have the same result.
pub fn run_units(bytes: &[u8]) -> Result<Tally, String> {
    let mut choices = Choices::new(bytes);
    let (stage, step) = (choices.below(4), choices.below(97) as usize + 1);
    let rest = units(&mut choices);
    let mut said: Vec<(Vec<u8>, bool)> = Vec::new();
    for step in [usize::MAX, step] {
        let mut session = Session::new(&[0; 32]);
        match stage {
            0 => session.open(),
            1 => session.begin_connection(false),
            _ => session.begin_host()?,
        }
        let n = usize::from(stage == 3);
        let Some(peer) = session.peers.get_mut(n) else { return Err("a host cannot connect".to_owned()) };
        peer.is_wild = true;
        for piece in rest.chunks(step.min(rest.len()).max(1)) {
            peer.send(piece);
            peer.deliver(Nanos(0), usize::MAX);
            peer.check_bounds()?;
        }
        let output: Vec<u8> = peer.connection.output().slices().iter().flat_map(|s| s.to_vec()).collect();
        said.push((output, peer.connection.is_over()));
        session.end()?;
    }
    match said[0] == said[1] {
        true => Ok(Tally::default()),
        false => Err(format!("in pieces of {step} bytes it is another answer")),
    }
}

/// PDUs with other bytes between them. Most headers have the correct length, so that the bytes
/// after them are parsed as well.
fn units(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !choices.is_over() {
        if choices.is(32) {
            let len = choices.below(40) as usize;
            bytes.extend_from_slice(choices.take(len));
            continue;
        }
        let kind = choices.one_of(&[PduKind::Command, PduKind::Command, PduKind::HostData, PduKind::IcReq]);
        let header_len = kind.header_len();
        let data_len = if choices.is(128) { choices.below(700) } else { 0 };
        let offset = if data_len > 0 { header_len as u32 + choices.below(60) } else { 0 };
        let len = if data_len > 0 { offset + data_len } else { header_len as u32 };
        let mut unit = CommonHeader {
            kind: kind as u8,
            flags: if choices.is(16) { choices.byte() } else { 0 },
            header_len: header_len as u8,
            data_offset: offset as u8,
            len: if choices.is(8) { choices.number() } else { len }.into(),
        }
        .as_bytes()
        .to_vec();
        if kind == PduKind::Command {
            let made = if choices.is(128) { commands::admin(choices) } else { commands::any(choices) };
            unit.extend_from_slice(made.0.as_bytes());
        }
        let rest = (len as usize).saturating_sub(unit.len());
        unit.extend_from_slice(choices.take(rest.min(64)));
        unit.resize(unit.len().max(len as usize), 0);
        bytes.extend(unit);
    }
    bytes
}

impl<'a> Session<'a> {
    fn new(bytes: &'a [u8]) -> Session<'a> {
        let mut choices = Choices::new(bytes);
        let (target, shape) = drive::target(&mut choices);
        Session {
            choices,
            target,
            shape,
            pools: Rc::default(),
            peers: Vec::new(),
            now: Nanos(0),
            due: None,
            lie: None,
            tally: Tally::default(),
        }
    }

    fn open(&mut self) {
        let connection = Connection::new(self.target.clone(), address(), self.pools.clone());
        self.peers.push(Peer::new(connection, self.lie));
    }

    /// Opens a connection that the controller accepts.
    fn begin_connection(&mut self, has_digests: bool) {
        self.open();
        if let Some(peer) = self.peers.last_mut() {
            peer.ask_to_open(has_digests, has_digests, 0);
            peer.deliver(self.now, usize::MAX);
        }
    }

    /// Opens admin and I/O queue of a new, enabled controller.
    fn begin_host(&mut self) -> Result<(), String> {
        let has_digests = self.choices.is(64);
        self.begin_connection(has_digests);
        let Some(controller) = self.connect_last(0, CONTROLLER_ANY)? else { return Ok(()) };
        if let Some(admin) = self.peers.last_mut() {
            let (command, data) = commands::enable(ENABLED);
            admin.command(command, data);
        }
        self.exchange_all()?;
        self.begin_connection(has_digests);
        self.connect_last(1, controller)?;
        Ok(())
    }

    /// Connects the queue of the last connection. Returns its controller if accepted.
    fn connect_last(&mut self, qid: u16, controller: u16) -> Result<Option<u16>, String> {
        let made = commands::connect(&mut self.choices, qid, controller);
        if let Some(peer) = self.peers.last_mut() {
            peer.take(usize::MAX)?;
            peer.command(made.0, made.1);
        }
        self.exchange_all()?;
        Ok(self.peers.last().and_then(|peer| peer.queue).map(|(controller, _)| controller))
    }

    /// Performs one action of a host, or advances time.
    fn step(&mut self) -> Result<(), String> {
        match self.choices.below(32) {
            0 if self.peers.len() < PEERS => self.open(),
            1 if self.peers.len() + 1 < PEERS => self.begin_host()?,
            2 => self.close_one(),
            3..=5 => self.poll_volume(),
            6 => {
                let step = self.choices.one_of(&[1_000u64, 60_000, 1_000_000, 2_000_000_000, 11_000_000_000]);
                self.now.0 += step;
            }
            7 => self.set_zone(),
            _ if self.peers.is_empty() => {}
            other => {
                let n = self.choices.below(self.peers.len() as u32) as usize;
                self.step_of(n, other)?;
            }
        }
        self.peers.iter_mut().try_for_each(Peer::check_bounds)
    }

    fn step_of(&mut self, n: usize, what: u32) -> Result<(), String> {
        let (now, choices) = (self.now, &mut self.choices);
        let peer = &mut self.peers[n];
        let can_send = peer.is_granted() && peer.has_entry();
        match what {
            8 => {
                let (header, data, alignment) = (choices.is(64), choices.is(64), choices.below(34) as u8);
                peer.ask_to_open(header, data, alignment);
            }
            9 if can_send => {
                let qid = choices.below(4) as u16;
                let controller = choices.one_of(&[CONTROLLER_ANY, 1, 2, 3]);
                let made = commands::connect(choices, qid, controller);
                peer.command(made.0, made.1);
            }
            10 | 11 if can_send => {
                let made = commands::admin(choices);
                peer.command(made.0, made.1);
            }
            12..=17 if can_send => {
                let made = commands::io(choices, &self.shape);
                peer.command(made.0, made.1);
            }
            18 if can_send => {
                let made = commands::any(choices);
                peer.command(made.0, made.1);
            }
            19..=21 if !peer.asked.is_empty() => {
                let place = choices.below(peer.asked.len() as u32) as usize;
                let len = if choices.is(64) { Some(choices.number() % 100_000) } else { None };
                peer.answer(place, len);
            }
            22 if choices.is(32) => {
                let bytes = choices.take(16).to_vec();
                peer.is_wild = true;
                peer.send(&bytes);
            }
            23 if choices.is(64) => peer.is_wild |= corrupt(choices, peer),
            22..=26 => {
                let len = if choices.is(64) { choices.below(5_000) as usize } else { usize::MAX };
                peer.deliver(now, len);
            }
            27 | 28 => {
                let len = if choices.is(64) { choices.below(5_000) as usize } else { usize::MAX };
                peer.take(len)?;
            }
            _ => drop(peer.connection.poll(now)),
        }
        Ok(())
    }

    fn set_zone(&mut self) {
        let zone = ZoneIndex(self.choices.below(8));
        let to = self.choices.one_of(&ZoneSetting::ALL);
        // Not every drive and zone supports this.
        let _ = self.target.volume().device().set_zone(zone, to);
    }

    fn poll_volume(&mut self) {
        self.due = self.target.volume().poll(self.now);
    }

    /// Drops a connection at an arbitrary point.
    fn close_one(&mut self) {
        if !self.peers.is_empty() {
            let n = self.choices.below(self.peers.len() as u32) as usize;
            self.close(n);
        }
    }

    fn close(&mut self, n: usize) {
        let mut peer = self.peers.remove(n);
        peer.connection.cancel(self.now);
        self.tally += peer.tally;
    }

    /// Lets all hosts send and receive once. Returns true if anything was exchanged.
    fn exchange(&mut self) -> Result<bool, String> {
        let mut is_any = false;
        for peer in &mut self.peers {
            is_any |= !peer.wire.is_empty() && !peer.connection.is_over();
            peer.deliver(self.now, usize::MAX);
            is_any |= peer.take(usize::MAX)? > 0;
            while !peer.asked.is_empty() && !peer.connection.is_over() {
                peer.answer(0, None);
            }
            peer.check_bounds()?;
        }
        self.poll_volume();
        for peer in &mut self.peers {
            is_any |= peer.connection.poll(self.now);
        }
        Ok(is_any)
    }

    /// Exchanges until everything that can complete has completed.
    fn exchange_all(&mut self) -> Result<(), String> {
        for _ in 0..POLLS_MAX {
            let is_any = self.exchange()?;
            match self.due {
                _ if is_any => {}
                Some(due) => self.now = self.now.max(due),
                None if self.peers.iter().any(Peer::is_waiting) => self.now.0 += 1_000,
                None => return Ok(()),
            }
        }
        self.peers.iter_mut().try_for_each(Peer::check_end)?;
        Err(format!("after {POLLS_MAX} polls something still happens"))
    }

    fn end(mut self) -> Result<Tally, String> {
        self.exchange_all()?;
        self.peers.iter_mut().try_for_each(Peer::check_end)?;
        while !self.peers.is_empty() {
            self.close(0);
        }
        self.exchange_all()?;
        match self.target.controllers() {
            0 => {}
            left => return Err(format!("{left} controllers are left without a host")),
        }
        let Session { target, tally, .. } = self;
        let (volume, target) = (Arc::downgrade(target.volume()), Arc::downgrade(&{ target }));
        match (volume.strong_count(), target.strong_count()) {
            (0, 0) => Ok(tally),
            left => Err(format!("{left:?} references are left to the volume and the target")),
        }
    }
}

/// Changes a byte on the wire, if there is any. Returns true if it did.
fn corrupt(choices: &mut Choices<'_>, peer: &mut Peer) -> bool {
    let place = choices.below(peer.wire.len().min(200) as u32) as usize;
    let byte = choices.byte() | 1;
    match peer.wire.get_mut(place) {
        Some(other) => {
            *other ^= byte;
            true
        }
        None => false,
    }
}
