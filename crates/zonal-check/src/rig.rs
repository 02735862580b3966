//! A volume on a scripted device, with a record of every completed request.
//!
//! Every sector written by a rig carries the number of its request, so the data shows which request
//! wrote it.

use crate::script::{Answer, Script, Seen};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use zonal_core::{Nanos, Op, RequestError, SECTOR_BYTES, Sector, ZoneIndex};
use zonal_io::buffer::{IoBuf, IoBufs};
use zonal_io::device::{Device, DeviceInfo, Output};
use zonal_io::volume::{Channel, Completion, PlugStatus, Request, Volume, VolumeOptions, WriteMode};

/// Result of a request.
pub type End = Result<Output, RequestError>;

/// Success without an address.
pub const DONE: End = Ok(Output::Done);

/// Number of rounds after which a busy rig is considered stuck.
const ROUNDS_MAX: usize = 100_000;

type Ends = Arc<Mutex<BTreeMap<u64, Completion>>>;

/// A volume on a scripted device. See the module.
pub struct Rig {
    /// Scripted device.
    pub script: Arc<Script>,
    /// Volume on the device.
    pub volume: Arc<Volume>,
    /// Channel of the rig's own requests.
    pub channel: Channel,
    ends: Ends,
    next: Mutex<u64>,
    clock: Mutex<Nanos>,
}

/// A payload in which every sector begins with `token` and the sector's number.
pub fn payload(token: u64, sectors: u32) -> IoBuf {
    let mut buf = IoBuf::zeroed(sectors * SECTOR_BYTES as u32);
    for (n, sector) in buf.chunks_exact_mut(SECTOR_BYTES as usize).enumerate() {
        sector[..8].copy_from_slice(&token.to_le_bytes());
        sector[8..16].copy_from_slice(&(n as u64).to_le_bytes());
    }
    buf
}

/// `whole` split into one to four pieces, depending on `token`, that end at arbitrary bytes.
pub fn in_pieces(whole: IoBuf, token: u64) -> IoBufs {
    let number = (token % 4) as usize + 1;
    let ends = (1..=number).map(|piece| whole.len() * piece / number - (piece % number));
    let mut from = 0;
    let pieces = ends.map(|end| {
        let mut piece = IoBuf::zeroed((end - from) as u32);
        piece.copy_from_slice(&whole[from..end]);
        from = end;
        piece
    });
    pieces.collect::<Vec<_>>().into()
}

/// Request number and sector number in each sector of `bytes`.
pub fn tags(bytes: &[u8]) -> Vec<(u64, u64)> {
    let number = |b: &[u8]| u64::from_le_bytes(b.try_into().expect("eight bytes"));
    bytes.chunks_exact(SECTOR_BYTES as usize).map(|s| (number(&s[..8]), number(&s[8..16]))).collect()
}

impl Rig {
    /// A volume in `mode` with merging and without parking, on a device with this description. The
    /// mode is forced even if the device does not preserve order.
    pub fn new(info: DeviceInfo, mode: WriteMode) -> Rig {
        Rig::on(
            Arc::new(Script::new(info)),
            VolumeOptions::default().with_mode(mode).with_merge(true).with_force(true).without_park(),
        )
    }

    /// A volume on `script`, which answers the reports of its opening.
    pub fn on(script: Arc<Script>, options: VolumeOptions) -> Rig {
        Rig::with(script, options, |volume| volume)
    }

    /// Like [`Rig::on`], with the volume configured by `prepare`.
    pub fn with(script: Arc<Script>, options: VolumeOptions, prepare: impl FnOnce(Volume) -> Volume) -> Rig {
        Rig::over(script.clone(), script, options, prepare)
    }

    /// Like [`Rig::with`], on a device that passes its commands on to `script`.
    pub fn over(
        script: Arc<Script>,
        device: Arc<dyn Device>,
        options: VolumeOptions,
        prepare: impl FnOnce(Volume) -> Volume,
    ) -> Rig {
        script.style(|_| crate::script::Style::Now(Answer::Obey));
        let volume = Volume::open(device, options).expect("the device describes its zones");
        let volume = Arc::new(prepare(volume));
        script.style(|_| crate::script::Style::Later);
        let ends = Ends::default();
        let noted = ends.clone();
        let channel = volume.channel(move |c| note(&noted, c));
        Rig { script, volume, channel, ends, next: Mutex::new(1), clock: Mutex::new(Nanos(0)) }
    }

    /// A volume in mode per-zone on [`crate::script::info`].
    pub fn per_zone() -> Rig {
        Rig::new(crate::script::info(), WriteMode::PerZone)
    }

    /// A volume in mode append on [`crate::script::info`].
    pub fn append_mode() -> Rig {
        Rig::new(crate::script::info(), WriteMode::Append)
    }

    /// Another channel whose completions the rig records as well, after calling `also`.
    pub fn also(&self, also: impl Fn(&Completion) + Send + Sync + 'static) -> Channel {
        let noted = self.ends.clone();
        self.volume.channel(move |c| {
            also(&c);
            note(&noted, c);
        })
    }

    /// Takes the next request number.
    pub fn token(&self) -> u64 {
        let mut next = self.next.lock();
        *next += 1;
        *next - 1
    }

    /// Submits a request with a new number, and returns the number.
    pub fn submit(&self, request: Request) -> u64 {
        let token = self.token();
        self.volume.submit(self.now(), &self.channel, request.token(token));
        token
    }

    /// Address of an offset in a zone.
    pub fn sector(&self, zone: u32, offset: u32) -> Sector {
        let start = self.volume.info().geometry.start_of(ZoneIndex(zone));
        Sector(start.0 + u64::from(offset))
    }

    /// A tagged write of `sectors` sectors at an offset, not yet submitted.
    pub fn write_request(&self, zone: u32, offset: u32, sectors: u32) -> Request {
        let token = self.token();
        Request::write(self.sector(zone, offset), sectors, payload(token, sectors)).token(token)
    }

    /// Submits a request that has a number already.
    pub fn submit_as_is(&self, request: Request) -> u64 {
        let token = request.token;
        self.volume.submit(self.now(), &self.channel, request);
        token
    }

    /// Writes at an offset in a zone.
    pub fn write(&self, zone: u32, offset: u32, sectors: u32) -> u64 {
        self.submit_as_is(self.write_request(zone, offset, sectors))
    }

    /// A tagged append to a zone, not yet submitted.
    pub fn append_request(&self, zone: u32, sectors: u32) -> Request {
        let token = self.token();
        Request::append(self.sector(zone, 0), sectors, payload(token, sectors)).token(token)
    }

    /// Appends to a zone.
    pub fn append(&self, zone: u32, sectors: u32) -> u64 {
        self.submit_as_is(self.append_request(zone, sectors))
    }

    /// Submits a zone management operation.
    pub fn manage(&self, op: Op, zone: u32) -> u64 {
        self.submit(Request::zone(op, self.sector(zone, 0)))
    }

    /// Resets a zone.
    pub fn reset(&self, zone: u32) -> u64 {
        self.manage(Op::ZoneReset, zone)
    }

    /// Current time.
    pub fn now(&self) -> Nanos {
        *self.clock.lock()
    }

    /// Advances the clock, then polls until the volume has nothing more to do.
    pub fn pass(&self, time: Nanos) {
        self.clock.lock().0 += time.0;
        self.rest();
    }

    /// One poll.
    pub fn poll(&self) -> Option<Nanos> {
        self.volume.poll(self.now())
    }

    /// Completes the oldest pending command, and polls until the volume has nothing more to do.
    pub fn step(&self, answer: Answer) -> Seen {
        self.finish(0, answer)
    }

    /// Completes the pending command `place` places after the oldest one, and polls until the
    /// volume has nothing more to do.
    pub fn finish(&self, place: usize, answer: Answer) -> Seen {
        let seen = self.script.pending().into_iter().nth(place).expect("a command is pending");
        self.script.finish(seen.id, answer);
        self.rest();
        seen
    }

    /// Polls until the volume has nothing more to do. The clock follows the deadlines that polls
    /// return.
    ///
    /// # Panics
    /// If the volume stays busy.
    pub fn rest(&self) {
        let rested = zonal_sim::executor::run_until_idle(&self.volume, self.now());
        *self.clock.lock() = rested.expect("the volume comes to rest");
    }

    /// Completes all commands by the rules until none is pending.
    ///
    /// # Panics
    /// If commands never run out.
    pub fn settle(&self) {
        self.rest();
        for _ in 0..ROUNDS_MAX {
            if self.script.pending().is_empty() {
                return;
            }
            self.step(Answer::Obey);
        }
        panic!("the device is asked for ever");
    }

    /// Result of a request, or `None` if it is in flight.
    pub fn end(&self, token: u64) -> Option<End> {
        self.ends.lock().get(&token).map(|c| c.result.clone())
    }

    /// Results of requests.
    ///
    /// # Panics
    /// If one is in flight.
    pub fn ends<const N: usize>(&self, tokens: [u64; N]) -> [End; N] {
        tokens.map(|t| self.end(t).unwrap_or_else(|| panic!("request {t} has not ended")))
    }

    /// Number of completed requests.
    pub fn ended(&self) -> usize {
        self.ends.lock().len()
    }

    /// Buffer of a completed request.
    pub fn buf(&self, token: u64) -> IoBuf {
        std::mem::take(&mut self.ends.lock().get_mut(&token).expect("the request has ended").buf).into_buf()
    }

    /// Commands that the device has received since it was opened, in brief, without reports.
    pub fn asked(&self) -> Vec<(Op, u32, u32, u32)> {
        let opening = |s: &Seen| s.op == Op::Report;
        self.script.log().iter().filter(|s| !opening(s)).map(Seen::brief).collect()
    }

    /// Number of times that the volume read a write pointer after a failed write.
    pub fn resyncs(&self) -> usize {
        self.script.log().iter().filter(|s| s.resync).count()
    }

    /// Plug of a zone, if it has one.
    pub fn plug(&self, zone: u32) -> Option<PlugStatus> {
        self.volume.plugs().into_iter().find(|p| p.zone == zone)
    }

    /// Issue-time write pointer of a zone, in sectors from its start.
    pub fn pointer(&self, zone: u32) -> Option<u32> {
        let sector = self.volume.write_pointer(ZoneIndex(zone))?;
        Some((sector.0 - self.sector(zone, 0).0) as u32)
    }

    /// Request and sector number in each of `sectors` sectors of a zone.
    pub fn tags(&self, zone: u32, offset: u32, sectors: u32) -> Vec<(u64, u64)> {
        tags(&self.script.bytes(self.sector(zone, offset), sectors))
    }

    /// Asserts that the `sectors` sectors from `offset` were written by one request, completely and
    /// in order.
    pub fn assert_written(&self, zone: u32, offset: u32, sectors: u32, token: u64) {
        let expected: Vec<_> = (0..u64::from(sectors)).map(|n| (token, n)).collect();
        assert_eq!(self.tags(zone, offset, sectors), expected, "zone {zone} offset {offset}");
    }
}

fn note(ends: &Ends, completion: Completion) {
    let token = completion.token;
    let before = ends.lock().insert(token, completion);
    assert!(before.is_none(), "request {token} ended twice");
}
